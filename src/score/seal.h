/* What has to be in the tree when the tests have ended as it was when they began: noted when everything is in place, compared when
 * every process of the run is dead. Both in Brig's helper; what lies between is a memfd that the daemon holds and does not read.
 *
 *     seal_make()       at the end of applying: a mark of each file, and a watch on each directory above one
 *     seal_check()      after the run: a finding for each difference, and for what the run wrote that a patch may not write silently
 *
 * A mark is type, mode, size, inode and the time of the last change, which nobody inside can set; of files that were just written also
 * their contents, because the kernel's clock is coarse. What a run wrote of the rest is what lies in the uppers: nobody inside can take a
 * file of base out of them again (one that is new, and gone again, leaves nothing there). A directory that was moved away and back leaves no
 * trace but an event of its watch. */
#pragma once
#include "score/apply_job.h"

#define SEAL_BYTES_MAX (32u << 20)         /* a seal */
#define SEAL_DIRECTORIES_MAX 256u          /* above test files; with a watch each */
#define SEAL_WATCHES_MAX 1024u             /* these, their compiled code, and what is watched outside of the tree */
#define SEAL_FINDINGS_MAX 64u              /* of one check; more only count as these do */
#define SEAL_WRITTEN_MAX 100000u           /* entries of the uppers that are looked at; more are a finding */
#define SEAL_COMPARE_MAX (4u << 20)         /* bytes of a file that may be found to be as it was */
#define SEAL_UPPER_FD 250                  /* HELPER_UPPER_FD */
#define SEAL_DEPTH_MAX 128u                /* of directories of the uppers */

struct seal {
        const char *repo_path;
        int tree;
        char **tests, **restored;              /* were just written, or put back */
        char **named;                          /* by the ids */
        char **protect, **allow, **touched;    /* as in the job */
        int watch_fd;                          /* or -1 */
};
/* Appends frames to `out`. Waits for the next tick of the kernel's clock, so that whatever is written later has a later time. */
int seal_make(const struct seal *s, struct buf *out, struct error *e);

struct seal_view {
        int root, watch_fd;                    /* "/" of the sandbox; the watch or -1 */
        struct apply_base base;
        bool no_bytecode;                      /* the run was told to write no compiled code: what there is of a test's is a finding */
        bool launched;                         /* what a test wrote and put back as it was is no finding, unless it is marked */
        int upper[3];                          /* of "/", "/usr" and "/opt"; may not be open */
};
/* Appends frames of findings to `out`; 0, or our fault. */
int seal_check(const char *seal, size_t len, const struct seal_view *v, struct buf *out, struct error *e);

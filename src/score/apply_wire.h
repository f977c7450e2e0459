/* What the daemon and its helper say to each other about applying: frames of (type, length, bytes), in a sealed memfd on the way
 * in and in a plain memfd on the way back. Lists are repeated frames. Whoever reads checks every length; order is free but for
 * the closing frame of a report. */
#pragma once
#include <stdbool.h>
#include "base/buf.h"

/* Descriptors of the helper, from HELPER_FIRST_FREE_FD on. */
#define APPLY_REQUEST_FD 7
#define APPLY_PATCH_FD 8
#define APPLY_TEST_PATCH_FD 9
#define APPLY_REPORT_FD 10
#define APPLY_SEAL_FD 11                   /* where the seal goes (score/seal.h); may not be open: none is made */
#define APPLY_WATCH_FD 12                  /* an inotify descriptor for it; may not be open */
/* Of the helper that looks again: the seal, the watch, the report. */
#define RECHECK_SEAL_FD 7
#define RECHECK_WATCH_FD 8
#define RECHECK_REPORT_FD 9
/* Its argument, if any. */
#define RECHECK_NO_BYTECODE "no-bytecode"  /* compiled code of tests is a finding */
#define RECHECK_LAUNCHED "launched"        /* nothing of the patch ran before our runner: a support file that is as it was counts as not written */

#define APPLY_REQUEST_MAX (4u << 20)
#define APPLY_REPORT_MAX (48u << 20)       /* beside the diff */
#define APPLY_DIFF_MAX (128ul << 20)
#define APPLY_MEMORY_MIN (12ull << 20)     /* the helper is given that much whatever the sandbox has */
#define APPLY_PATHS_MAX 25000u             /* of one list */
#define APPLY_CONFIG_FILES_MAX 64u
#define APPLY_CONFIG_BYTES_MAX (1u << 20)  /* one configuration file */

enum apply_frame {
        FRAME_NONE,
        /* request */
        FRAME_REPO_PATH, FRAME_MODE /* digit */, FRAME_PROTECT, FRAME_ALLOW, FRAME_DIFF_MAX /* decimal; absent = no diff */,
        FRAME_MEMORY /* decimal: bytes the helper may take */,
        FRAME_COMMAND /* the text that a shell runs */,
        FRAME_NAMED /* a file that the ids name */,
        FRAME_UNDO /* the agent's patch is not applied: its paths are reset, the bytes are the reason */,
        /* report */
        FRAME_RUNG /* digit: the agent's patch was applied */, FRAME_REJECTED /* reason */, FRAME_REFUSED /* reason */,
        FRAME_TEST_OK, FRAME_TEST_REJECTED /* reason */, FRAME_TOUCHED, FRAME_TEST_FILE, FRAME_RESTORED,
        FRAME_FINDING /* weight digit, kind, NUL, path, NUL, detail */, FRAME_CONFIG /* path, NUL, '+' and contents, or '-' */,
        FRAME_MODULE /* path of a module, or of a link that may be one, that base does not have */,
        FRAME_DIFF, FRAME_DIFF_CUT /* a diff that is not whole */, FRAME_FAULT /* ours */, FRAME_END,
        FRAME_NO_TREE /* there is no directory to work in; the bytes say where */,
        /* seal: beside these FRAME_REPO_PATH, FRAME_TEST_FILE, FRAME_TOUCHED, FRAME_ALLOW, FRAME_PROTECT */
        FRAME_MARK /* path, NUL, struct mark */, FRAME_DIRECTORY /* path, NUL, the watch's number */, FRAME_MAX,
};
/* Weights of findings; the daemon's enum integrity has the same values. */
enum apply_weight { WEIGHT_NOTE, WEIGHT_SUSPECT, WEIGHT_VIOLATED };

int frame_add(struct buf *b, enum apply_frame type, const void *p, size_t n);
int frame_adds(struct buf *b, enum apply_frame type, const char *s);
/* The next frame of data[0..len) at *at: 1 and the frame, 0 at the end, -EBADMSG for what is none. */
int frame_next(const char *data, size_t len, size_t *at, enum apply_frame *ret_type, const char **ret, size_t *ret_len);

/* The end of a session by a verifier: its files appear only now, it runs beside or instead of the agent's processes, its results are
 * read, the session is torn down, and the answer is kept.
 *
 *     READY ─> FINISHING: [others killed] ─> facts of the result files ─> verifier, in a mount namespace and control group of its own
 *              ─> everything frozen ─> result files read ─> sandbox gone ─> record on disk ─> FINISHED, answered
 *
 * The private view (struct exec_view) is what the agent's processes cannot see. With `keep` they still run: the agent's root can
 * attack the verifier's processes and everything outside the view, and the answer says so (integrity: "live"). */
#pragma once
#include "sandbox/file_pack.h"
#include "sandbox/results_wire.h"
#include "session/session.h"

#define FINISH_ANSWER_MAX (144u << 20)         /* bytes of the answer */

enum agent_processes { AGENT_KEEP, AGENT_KILL, AGENT_PROCESSES_MAX };
STRING_TABLE_DECLARE(agent_processes);         /* "keep", "kill" */

struct finish_spec {
        struct file_pack pack;         /* sealed: what appears at `mount` */
        char *mount, *command;         /* command NULL: bash <mount>/test.sh */
        char **result_files;           /* absolute paths; NULL = none */
        uint64_t timeout_ms, output_limit;
        int agent;                     /* enum agent_processes */
};
void finish_spec_release(struct finish_spec *spec);

/* `answer` is a JSON object: session_id, exit_code, stdout, stderr, result_files, stale_files, timed_out, error, execution_time,
 * integrity. r: 0; -ENOENT there is no such session, or it was deleted meanwhile; -EAGAIN it is not ready; -EBUSY it stands still; -EUSERS too many wait;
 * -ESHUTDOWN; -EIO it broke down (answer is NULL, the session's record says why). */
typedef void (*session_finished)(int r, const char *answer, size_t n, void *user);
/* Takes the spec's contents. A session that is finishing or has finished gives the first call's answer, whatever the spec.
 * `done` may run from inside the call. *ret_wait is for session_finish_forget, and only set while `done` has not run. */
struct finish_wait;
void session_finish(struct sessions *ss, const char *id, struct finish_spec *spec, session_finished done, void *user, struct finish_wait **ret_wait);
void session_finish_forget(struct finish_wait *w);     /* the waiter is gone; the finish goes on */

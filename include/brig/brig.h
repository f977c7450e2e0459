/* Client of Brig, a sandbox fleet: tasks, sessions, and pools of endpoints, over libcurl.
 *
 *     struct brig_client *c;
 *     struct brig_error e;
 *     struct brig_task_result r;
 *     if (brig_client_new("http://127.0.0.1:9090", NULL, &c, &e) < 0 ||
 *         brig_run_task(c, "{\"repo_url\":\"...\",\"test_command\":\"...\"}", NULL, &r, &e) < 0)
 *             fprintf(stderr, "%s\n", e.message);
 *     else
 *             printf("%s\n", r.outcome), brig_task_result_release(&r);
 *     brig_client_free(c);
 *
 * Specs are JSON texts: the bodies of the task executor's protocol, as its documentation has them. Strings are UTF-8.
 *
 * Errors: a function returns a negative enum brig_code and fills *e (which may be NULL); its outputs are then untouched.
 * Ownership: what a function gives through a ret_ argument is the caller's, to be freed with the function named beside it, or with
 * free(). Threads: every function is safe from any thread, also on one client or pool at once, except those that free it.
 * Times are seconds. Link with `pkg-config --cflags --libs brig`. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRIG_API __attribute__((visibility("default")))

enum brig_code {
        BRIG_OK = 0,
        BRIG_PENDING = 1,          /* not an error: the task has not ended */
        BRIG_ERR_MEMORY = -1,
        BRIG_ERR_ARGUMENT = -2,    /* a URL or JSON text that is none, a number out of range */
        BRIG_ERR_TRANSPORT = -3,   /* no whole answer: refused, cut, timed out; http_status is 0 */
        BRIG_ERR_STATUS = -4,      /* the endpoint answered with an error: http_status */
        BRIG_ERR_ANSWER = -5,      /* an answer that is not what the protocol says */
        BRIG_ERR_TIMEOUT = -6,     /* the task or session did not get there in time */
        BRIG_ERR_FAILED = -7,      /* the session failed to start: its reason is the message */
};

struct brig_error {
        enum brig_code code;
        int http_status;           /* 0 without an answer */
        double retry_after;        /* what a 503 asked for; 0 = it did not say */
        char message[512];         /* one line for a person */
};

/* ---- one endpoint --------------------------------------------------------------------------------------------- */

struct brig_client;

/* base_url: "http://HOST[:PORT][/PREFIX]", "https://..." or "unix:/PATH"; never through a proxy. token: NULL takes BRIG_API_TOKEN
 * or DOCKYARD_SANDBOX_API_TOKEN of the environment, "" sends none. Nothing is sent yet. */
BRIG_API int brig_client_new(const char *base_url, const char *token, struct brig_client **ret, struct brig_error *e);
BRIG_API void brig_client_free(struct brig_client *c);     /* no call is in it any more; NULL is fine */

/* ---- tasks ------------------------------------------------------------------------------------------------------ */

struct brig_task_result {
        char *json;                /* the whole record, json_len bytes and NUL */
        size_t json_len;
        /* from it; "" or the value in brackets where the record does not say */
        char *task_id, *status;    /* status: "completed" or "failed" */
        char *outcome;             /* "resolved", "unresolved", ... */
        char *error_code;          /* error.code */
        char *out, *err;           /* stdout and stderr of the command, NUL bytes replaced by '?' */
        int exit_code;             /* [-1] */
        bool resolved;             /* [false] */
        long tests_passed, tests_failed;   /* [-1] */
};
BRIG_API void brig_task_result_release(struct brig_task_result *r);

/* How to wait; zeroes are the defaults. */
struct brig_wait {
        double poll_interval;      /* 2: most time between two questions where the endpoint does not hold its answer back */
        double overall_timeout;    /* 0: for a task its "timeout" (300) and 120, in image mode its "pull_timeout" (1800) more; for a
                                    * session the time for pull or build, and 120 */
        bool keep;                 /* a task's record stays at the endpoint */
};

/* An answer that is lost is asked for again, under one idempotency key: the task is accepted once. free() the id. */
BRIG_API int brig_submit_task(struct brig_client *c, const char *spec, char **ret_task_id, struct brig_error *e);
/* BRIG_OK and the record, or BRIG_PENDING. Does not wait. */
BRIG_API int brig_get_result(struct brig_client *c, const char *task_id, struct brig_task_result *ret, struct brig_error *e);
/* Deletes the record; cancels a task that has not ended. */
BRIG_API int brig_delete_task(struct brig_client *c, const char *task_id, struct brig_error *e);
/* Submits, waits, deletes. `wait` may be NULL. On BRIG_ERR_TIMEOUT the task is cancelled. */
BRIG_API int brig_run_task(struct brig_client *c, const char *spec, const struct brig_wait *wait, struct brig_task_result *ret,
                           struct brig_error *e);

/* ---- sessions --------------------------------------------------------------------------------------------------- */

struct brig_session_status { char *session_id, *status, *image, *error; };     /* "" where there is none */
BRIG_API void brig_session_status_release(struct brig_session_status *s);

/* Starts one and waits until it is ready. One that does not get there is deleted. free() the id. */
BRIG_API int brig_start_session(struct brig_client *c, const char *spec, const struct brig_wait *wait, char **ret_session_id,
                                struct brig_error *e);
BRIG_API int brig_get_session_status(struct brig_client *c, const char *session_id, struct brig_session_status *ret,
                                     struct brig_error *e);
BRIG_API int brig_delete_session(struct brig_client *c, const char *session_id, struct brig_error *e);

struct brig_exec_options {
        int timeout;               /* 0 = 60 */
        const char *cwd;           /* NULL = the session's */
        long output_limit;         /* bytes kept of each stream; 0 = the endpoint's default */
};
struct brig_exec_result { char *out, *err; int exit_code; bool timed_out; };   /* 124 when it timed out; NUL bytes are '?' */
BRIG_API void brig_exec_result_release(struct brig_exec_result *r);
/* `options` may be NULL. Never sent twice. */
BRIG_API int brig_session_exec(struct brig_client *c, const char *session_id, const char *command, const struct brig_exec_options *options,
                               struct brig_exec_result *ret, struct brig_error *e);
/* A gzipped tar of `path` (NULL = "/workspace"): its bytes, decoded; free() them. timeout 0 = 300. */
BRIG_API int brig_session_export(struct brig_client *c, const char *session_id, const char *path, int timeout, unsigned char **ret_tar,
                                 size_t *ret_len, struct brig_error *e);

struct brig_finish_result {
        char *json; size_t json_len;       /* the whole answer: result_files is in it */
        char *out, *err, *error;           /* error: "" without */
        int exit_code; bool timed_out;
};
BRIG_API void brig_finish_result_release(struct brig_finish_result *r);
/* `request`: the call's body, JSON (harness_files, test_command, result_files, timeout, ...), or NULL. The session ends with it. */
BRIG_API int brig_session_finish(struct brig_client *c, const char *session_id, const char *request, struct brig_finish_result *ret,
                                 struct brig_error *e);

/* ---- background commands of a session (Brig's native API) ----------------------------------------------------------- */

/* `request`: the call's body, JSON ({"command": "make test"}, or "argv", "cwd", "env", "timeout_s", ...). Never sent twice. */
BRIG_API int brig_start_command(struct brig_client *c, const char *session_id, const char *request, long *ret_command, struct brig_error *e);

struct brig_follow_options {       /* zeroes are the defaults */
        const char *stream;        /* "stdout" or "stderr"; NULL = both, each in its own order */
        long long offset;          /* first byte of each; negative: from the end */
};
struct brig_command_end { int exit_code; bool timed_out, oom, output_limit, session_ended; };
/* What the command has written, then what it writes, to `each` (in this thread; bytes are not a string; non-zero ends the call and is
 * returned), until it ends. A connection that is lost is made again and goes on where it broke off. `options`, `ret` may be NULL. */
BRIG_API int brig_follow_command(struct brig_client *c, const char *session_id, long command, const struct brig_follow_options *options,
                                 int (*each)(const char *stream, const char *bytes, size_t n, void *user), void *user,
                                 struct brig_command_end *ret, struct brig_error *e);

/* ---- many endpoints ------------------------------------------------------------------------------------------------ */

/* Work goes where there is room, in turns; an endpoint that fails rests, and its work goes to another. A task may run more than
 * once then, its result comes once. Never repeated: what an endpoint refuses. */
struct brig_pool;

struct brig_pool_options {         /* zeroes are the defaults */
        const char *token;         /* as for brig_client_new */
        int per_endpoint;          /* tasks in flight at one endpoint; 0 = twice what it says it runs at once */
        int max_in_flight;         /* in all; 0 = no further bound */
        int attempts;              /* endpoints tried for one task; 0 = 3 */
        double poll_interval;
};

/* urls: comma-separated; NULL takes BRIG_URLS or DOCKYARD_SANDBOX_URLS. options may be NULL. */
BRIG_API int brig_pool_new(const char *urls, const struct brig_pool_options *options, struct brig_pool **ret, struct brig_error *e);
BRIG_API void brig_pool_free(struct brig_pool *p);         /* no call is in it any more; NULL is fine */
/* Waits for room, runs the task, tries elsewhere where that may help. */
BRIG_API int brig_pool_run_task(struct brig_pool *p, const char *spec, const struct brig_wait *wait, struct brig_task_result *ret,
                                struct brig_error *e);

struct brig_outcome { int code; struct brig_task_result result; struct brig_error error; };    /* result when code is BRIG_OK */
/* Runs n tasks, at most `threads` (0 = 64) at a time; ret[i] is of specs[i]. `progress` may be NULL; it is called from the pool's
 * threads, one at a time, when i has ended as number `done`. Fails only when no thread can be started. */
BRIG_API int brig_pool_map(struct brig_pool *p, const char *const *specs, size_t n, unsigned threads,
                           void (*progress)(size_t done, size_t n, size_t i, const struct brig_outcome *o, void *user), void *user,
                           struct brig_outcome *ret, struct brig_error *e);

#ifdef __cplusplus
}
#endif

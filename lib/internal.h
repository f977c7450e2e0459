/* Between the files of the client library; not for others. */
#pragma once
#include "base/json.h"
#include "brig/brig.h"

#define ANSWER_MAX (1024u << 20)       /* bytes of one answer */
#define QUOTED_MAX 200                 /* bytes of an answer in a message */
#define REQUEST_TIMEOUT_S 30.0         /* of a call that does not wait for anything */
#define WAIT_S 20.0                    /* an answer is held back at most this long */
#define TRIES 3                        /* of an exchange that may be repeated */
#define RETRY_FIRST_S 0.1              /* rest before the second; doubles */
#define UNREACHABLE_MAX_S 30.0         /* how long a wait forgives an endpoint that does not answer: a restart */
#define POLL_FIRST_S 0.02              /* rest between polls where the endpoint does not hold back; doubles */

/* ---- error.c ---- */
int fail(struct brig_error *e, enum brig_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
static inline int fail_memory(struct brig_error *e) { return fail(e, BRIG_ERR_MEMORY, "out of memory"); }

/* ---- http.c ---- */
struct exchange {
        const char *method;            /* "GET", "POST" or "DELETE" */
        const char *path;              /* from "/" */
        const char *body; size_t body_len;     /* NULL: none */
        const char *key;               /* Idempotency-Key, NULL without */
        double timeout;
        int tries;                     /* at least 1; a request that never left is sent again whatever this says */
        /* The body of an answer 200 as it comes, instead of keeping it; non-zero breaks off. NULL: kept. */
        int (*piece)(const char *p, size_t n, void *user); void *piece_user;
        long silence;                  /* instead of `timeout`: seconds without a byte; 0 = not looked at */
};
struct answer { int status; double retry_after; struct buf body; };
static inline void cleanup_answer(struct answer *a) { buf_release(&a->body); }
#define _cleanup_answer_ CLEANUP(cleanup_answer)
#define ANSWER_INIT { .body = BUF_INIT(ANSWER_MAX) }
/* The answer, whatever its status; BRIG_ERR_TRANSPORT when none came. */
int exchange(struct brig_client *c, const struct exchange *x, struct answer *ret, struct brig_error *e);
const char *client_url(const struct brig_client *c);
double now(void);                      /* monotonic */
void rest(double seconds);
int idempotency_key(char ret[33], struct brig_error *e);

/* ---- json.c ---- */
int parse_object(const char *p, size_t n, const char *what, enum brig_code code, struct json *ret, struct brig_error *e);
/* The answer's body if it has that status; else BRIG_ERR_STATUS. */
int expect(const struct answer *a, int status, const char *what, struct json *ret, struct brig_error *e);
/* A member as an owned string: "" when absent, null or of another type; NUL bytes become '?'. */
int member_text(const struct json *object, const char *name, char **ret, struct brig_error *e);
/* The same, and it must be there. */
int member_id(const struct json *object, const char *name, const char *what, char **ret, struct brig_error *e);
int64_t member_int(const struct json *object, const char *name, int64_t absent);
double member_number(const struct json *object, const char *name, double absent);
bool member_bool(const struct json *object, const char *name);
/* Every id goes into a path: [0-9A-Za-z._-]+. */
int check_id(const char *id, struct brig_error *e);

/* ---- wait.c ---- */
struct poll { double interval, deadline, rest, asked, answered, wait; };
void poll_start(struct poll *p, const struct brig_wait *w, double timeout);
double poll_ask(struct poll *p);       /* now a question goes out; how long to have it held back */
void poll_rest(struct poll *p);        /* the answer was `not yet` */

/* ---- task.c ---- */
double task_timeout(const struct json *spec);
/* As brig_run_task; `grace`: how long an endpoint may be unreachable while we wait. */
int run_task(struct brig_client *c, const char *spec, const struct brig_wait *w, double grace, struct brig_task_result *ret,
             struct brig_error *e);

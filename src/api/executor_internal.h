/* Between the files of the executor surface. */
#pragma once
#include "api/executor.h"
#include "api/fields.h"
#include "api/reply.h"
#include "base/hash.h"

/* A task that was decoded and found good, ready for engine_submit. */
struct prepared {
        struct envelope envelope;
        struct buf body;               /* canonical JSON, without the credentials of repo_url */
        char *secret_url;              /* repo_url with them; NULL without */
        char body_hash[SHA256_HEX];    /* of the body */
        char *source;                  /* repo_url without credentials, for the log */
        char *repo_url, *base_commit;  /* for executor_check; no repo_url: nothing to check */
};
void prepared_release(struct prepared *p);
/* -EINVAL, -EOPNOTSUPP, -E2BIG, -ENOMEM; the text is the wire's. */
int executor_decode(const struct score_defaults *defaults, const struct json *object, const char *header_key, struct prepared *ret,
                    struct error *e);                  /* any thread */
int executor_check(struct api *a, const struct prepared *p, struct error *e);         /* may this repository be named? */
int executor_prepare(struct api *a, const struct json *object, struct prepared *ret, struct error *e);        /* both */
/* `p` must stay until `done`. */
int executor_submit(struct api *a, const struct prepared *p, engine_submitted done, void *user);
void executor_log_accepted(const char *id, const struct prepared *p, bool repeated);
/* The body as a JSON object, or the answer is given and false returned. */
bool executor_body(struct http_request *r, struct json *ret);

void executor_post_submit(struct http_request *r, void *user);
void executor_post_batch(struct http_request *r, void *user);
void executor_get_task(struct http_request *r, void *user);
void executor_get_result(struct http_request *r, void *user);
void executor_delete_task(struct http_request *r, void *user);
void executor_get_log(struct http_request *r, void *user);
void executor_get_stdout(struct http_request *r, void *user);
void executor_get_stderr(struct http_request *r, void *user);

/* ---- sessions ---- */

struct sessions;
/* The answer to a fault of the engine of sessions; `text` is a decoder's, else NULL. */
void executor_session_fault(struct http_request *r, int x, const char *text);
/* 404, or 409 with the state that it is in. */
void executor_session_unready(struct sessions *ss, struct http_request *r, const char *id);
/* Is the session that the path names there, and ready? False: it is answered. */
bool executor_session_ready(struct api *a, struct http_request *r, struct sessions **ret_ss, const char **ret_id);
/* As executor_body, but an empty body is an empty object. */
bool executor_optional_body(struct http_request *r, struct json *ret);

void executor_post_session(struct http_request *r, void *user);
void executor_get_session(struct http_request *r, void *user);
void executor_delete_session(struct http_request *r, void *user);
void executor_post_exec(struct http_request *r, void *user);
void executor_post_finish(struct http_request *r, void *user);
void executor_post_export(struct http_request *r, void *user);

/* From the body of a request to a task that the engine can be given. Decoding, which takes as long as the body is big, touches nothing
 * but the body and may run in any thread; what asks the engine runs on the loop's. */
#include <string.h>

#include "api/executor_internal.h"
#include "base/redact.h"
#include "score/request.h"

void prepared_release(struct prepared *p) {
        envelope_release(&p->envelope);
        buf_release(&p->body);
        secret_free(TAKE_PTR(p->secret_url));
        secret_free(TAKE_PTR(p->repo_url));
        free(TAKE_PTR(p->base_commit));
        free(TAKE_PTR(p->source));
}

static char *redacted(const char *url) {
        _cleanup_buf_ struct buf b = BUF_INIT(2 * REQUEST_URL_MAX);
        return redact_url(url, &b) < 0 ? NULL : buf_steal(&b);
}

static int decode_request(const struct score_defaults *defaults, const struct json *object, struct prepared *p, struct error *e) {
        struct score_request q;
        int r = score_request_decode(object, FIELDS_CHECK, defaults, &q, e);
        if (r < 0)
                return r;
        bool named = q.tree == SOURCE_CLONE || q.repo_url[0];
        p->source = redacted(q.repo_url);
        p->repo_url = named ? strdup(q.repo_url) : NULL;
        p->base_commit = strdup(q.base_commit);
        if (!p->source || !p->base_commit || (named && !p->repo_url))
                r = error_set(e, -ENOMEM, "decode request");
        score_request_release(&q);
        return r;
}

static int make_body(const struct json *object, struct prepared *p, struct error *e) {
        int r = 0;
        /* Room for all of it at once: growing a big body by doubling would hold it twice. */
        if (object->n < p->body.limit)
                r = buf_reserve(&p->body, object->n);
        if (r == 0)
                r = json_canonical_buf(object, &p->body);
        if (r == 0)
                r = score_request_hide(&p->body, &p->secret_url);
        if (r == 0)
                r = sha256_hex(buf_str(&p->body), p->body.len, p->body_hash);
        if (r == -ENOSPC || r == -E2BIG)
                return error_say(e, -E2BIG, "%s", fault_text(-E2BIG));
        if (r == -ERANGE)
                return error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);   /* a number that nobody could hold */
        return r < 0 ? error_set(e, r, "decode request") : 0;
}

int executor_decode(const struct score_defaults *defaults, const struct json *object, const char *header_key, struct prepared *ret, struct error *e) {
        struct prepared p = { .body = BUF_INIT(TASK_BODY_MAX) };
        int r = object->type == JSON_OBJECT ? 0 : error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);
        if (r == 0)
                r = envelope_decode(object, header_key, &p.envelope, e);
        if (r == 0)
                r = decode_request(defaults, object, &p, e);
        if (r == 0)
                r = make_body(object, &p, e);
        if (r < 0) {
                prepared_release(&p);
                return r;
        }
        *ret = p;
        return 0;
}

/* The store says "repo_url: why"; the surface says it as it says all faults. */
int executor_check(struct api *a, const struct prepared *p, struct error *e) {
        static const char *const fields[] = { "repo_url", "base_commit" };
        struct error why;
        int r = p->repo_url ? engine_check_source(a->engine, p->repo_url, p->base_commit, &why) : 0;
        if (r == 0)
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                size_t n = strlen(fields[i]);
                if (strncmp(why.text, fields[i], n) == 0 && strncmp(why.text + n, ": ", 2) == 0)
                        return error_say(e, r, "Invalid value for '%s': %s", fields[i], why.text + n + 2);
        }
        return error_say(e, r, "%s", why.text);
}

int executor_prepare(struct api *a, const struct json *object, struct prepared *ret, struct error *e) {
        struct prepared p;
        int r = executor_decode(engine_defaults(a->engine), object, NULL, &p, e);
        if (r < 0)
                return r;
        r = executor_check(a, &p, e);
        if (r < 0) {
                prepared_release(&p);
                return r;
        }
        *ret = p;
        return 0;
}

#include "registry/access.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/json.h"
#include "base/redact.h"
#include "registry/challenge.h"

struct access {
        struct fetcher *fetcher;
        struct address base;
        char path[IMAGE_REF_PATH_MAX + 1];
        char host[IMAGE_REF_HOST_MAX + 1];
        bool loopback;
        char *username, *password;
        char *authorization;
        unsigned generation, renewals;
        struct fetch *fetch;               /* of a token */
        struct buf answer;
        struct access_wait *waiting;
        bool answering, dead;              /* freed by one of those who are being answered */
};

static int set_base(struct access *a, const char *scheme, struct error *e) {
        char url[1024];
        snprintf(url, sizeof url, "%s://%s/v2/%s/", scheme, a->host, a->path);
        return address_resolve(NULL, url, a->loopback, &a->base, e);
}

int access_new(struct fetcher *f, const struct image_ref *ref, const char *username, const char *password, struct access **ret, struct error *e) {
        struct access *a = calloc(1, sizeof *a);
        if (!a)
                return error_set(e, -ENOMEM, "pull");
        a->fetcher = f;
        buf_init(&a->answer, ACCESS_ANSWER_MAX);
        a->loopback = ref->loopback;
        memcpy(a->path, ref->path, sizeof a->path);
        memcpy(a->host, ref->host, sizeof a->host);
        int r = 0;
        if (username) {
                a->username = strdup(username);
                a->password = strdup(password ? password : "");
                r = a->username && a->password ? 0 : error_set(e, -ENOMEM, "pull");
        }
        r = r ? r : set_base(a, "https", e);
        if (r < 0) {
                access_free(a);
                return r;
        }
        *ret = a;
        return 0;
}

static void wipe_answer(struct access *a) {
        if (a->answer.data)
                explicit_bzero(a->answer.data, a->answer.alloc);
        buf_release(&a->answer);
}

void access_free(struct access *a) {
        if (!a)
                return;
        if (a->answering) {
                a->dead = true;
                return;
        }
        fetch_cancel(a->fetch);
        wipe_answer(a);
        secret_free(a->username);
        secret_free(a->password);
        secret_free(a->authorization);
        free(a);
}

const struct address *access_base(const struct access *a) { return &a->base; }
bool access_is_loopback(const struct access *a) { return a->loopback; }
int access_use_plain(struct access *a, struct error *e) { return set_base(a, "http", e); }

const char *access_authorization(const struct access *a, unsigned *ret_generation) {
        *ret_generation = a->generation;
        return a->authorization;
}

void access_leave(struct access *a, struct access_wait *w) {
        for (struct access_wait **at = &a->waiting; *at; at = &(*at)->next)
                if (*at == w) {
                        *at = w->next;
                        return;
                }
}

/* ---- what is sent ---- */

static void use(struct access *a, char *authorization) {
        secret_free(a->authorization);
        a->authorization = authorization;
        a->generation++;
}

/* "Basic <base64 of name:password>", owned; NULL for want of memory. */
static char *basic(const struct access *a) {
        static const char prefix[] = "Basic ";
        size_t n = strlen(a->username) + 1 + strlen(a->password);
        char *plain = NULL, *out = malloc(sizeof prefix + (n + 2) / 3 * 4 + 1);
        if (out && asprintf(&plain, "%s:%s", a->username, a->password) >= 0) {
                memcpy(out, prefix, sizeof prefix);
                EVP_EncodeBlock((unsigned char *)out + strlen(prefix), (const unsigned char *)plain, (int)n);
                secret_free(plain);
                return out;
        }
        free(out);
        return NULL;
}

static void answer_all(struct access *a, int r, const struct error *e) {
        struct access_wait *w;
        a->answering = true;
        while ((w = a->waiting)) {
                a->waiting = w->next;
                w->done(r, e, w->user);
        }
        a->answering = false;
        if (a->dead)
                access_free(a);
}

static int take_token(struct access *a, const struct buf *answer) {
        struct json doc, v;
        _cleanup_buf_ struct buf token = BUF_INIT(ACCESS_TOKEN_MAX);
        char *value = NULL;
        if (json_parse(buf_str(answer), answer->len, &doc, NULL) < 0)
                return -EBADMSG;
        if ((!json_get(&doc, "token", &v) || v.type != JSON_STRING) && (!json_get(&doc, "access_token", &v) || v.type != JSON_STRING))
                return -EBADMSG;
        if (json_string(&v, &token) < 0 || token.len == 0)
                return -EBADMSG;
        int r = 0;
        for (size_t i = 0; i < token.len; i++)
                if ((unsigned char)token.data[i] <= ' ' || (unsigned char)token.data[i] >= 0x7f)
                        r = -EBADMSG;                    /* it becomes a header's value */
        if (r == 0 && asprintf(&value, "Bearer %s", token.data) < 0)
                r = -ENOMEM;
        explicit_bzero(token.data, token.alloc);
        if (r == 0)
                use(a, value);
        return r;
}

/* ---- tokens ---- */

static int token_piece(const void *p, size_t n, long status, void *user) {
        struct access *a = user;
        return buf_add(&a->answer, p, n);
}

static void token_done(const struct fetch_result *res, void *user) {
        struct access *a = user;
        struct error e = { 0 };
        int r;
        a->fetch = NULL;
        if (res->r == -ECANCELED)
                r = error_say(&e, -EBADMSG, "the token server's answer is larger than %u bytes", ACCESS_ANSWER_MAX);
        else if (res->r < 0)
                r = error_say(&e, res->r, "the registry's token server: %s", res->why);
        else if (res->status == 401 || res->status == 403)
                r = error_say(&e, -EACCES, "the registry's token server denies access%s", a->username ? "" : ": no credentials were given");
        else if (res->status != 200)
                r = error_say(&e, res->status == 429 || res->status >= 500 ? -EAGAIN : -EBADMSG, "the registry's token server answers with status %ld", res->status);
        else if ((r = take_token(a, &a->answer)) < 0)
                error_say(&e, r, "the registry's token server gives no token");
        wipe_answer(a);
        answer_all(a, r, &e);
}

static int ask_token(struct access *a, const struct challenge *c, struct error *e) {
        struct address where;
        char scope[IMAGE_REF_PATH_MAX + 32];
        int r = address_resolve(NULL, c->realm, a->loopback, &where, e);
        if (r < 0)
                return error_prefix(e, "the registry's token server");
        snprintf(scope, sizeof scope, "repository:%s:pull", a->path);
        if ((c->service[0] && address_add_query(&where, "service", c->service) < 0) || address_add_query(&where, "scope", scope) < 0)
                return error_say(e, -EBADMSG, "the registry's challenge is too long");
        char *authorization = a->username ? basic(a) : NULL;
        if (a->username && !authorization)
                return error_set(e, -ENOMEM, "ask for a token");
        const struct fetch_spec spec = { .url = where.url, .authorization = authorization, .named_loopback = a->loopback && where.loopback,
                                         .take = token_piece, .done = token_done, .user = a };
        r = fetch_start(a->fetcher, &spec, &a->fetch, e);
        secret_free(authorization);
        return r;
}

static int offer_basic(struct access *a, struct error *e) {
        if (!a->username)
                return error_say(e, -EACCES, "the registry wants credentials, and none were given");
        if (a->authorization)
                return error_say(e, -EACCES, "the registry denies access to the credentials that were given");
        char *value = basic(a);
        if (!value)
                return error_set(e, -ENOMEM, "offer credentials");
        use(a, value);
        return 1;
}

int access_renew(struct access *a, const char *challenge, unsigned generation, struct access_wait *w, struct error *e) {
        struct challenge c;
        if (generation != a->generation)
                return 1;
        if (!a->fetch) {
                if (challenge_parse(challenge, strlen(challenge), &c) < 0)
                        return error_say(e, -EACCES, "the registry denies access, and does not say how it is had");
                if (++a->renewals > ACCESS_RENEWALS_MAX)
                        return error_say(e, -EACCES, "the registry denies access again and again");
                if (c.kind == CHALLENGE_BASIC)
                        return offer_basic(a, e);
                int r = ask_token(a, &c, e);
                if (r < 0)
                        return r;
        }
        w->next = a->waiting;
        a->waiting = w;
        return 0;
}

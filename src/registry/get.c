#include "registry/get.h"

#include <string.h>

#include "base/fs.h"
#include "base/hash.h"

struct get {
        struct get_spec spec;
        char what[IMAGE_REF_PATH_MAX + 32], digest[IMAGE_REF_DIGEST_LEN + 1], content_type[256];
        struct address at;                 /* where the next attempt goes */
        struct fetch *fetch;
        struct access_wait wait;
        uv_timer_t timer;
        bool waiting_access, plain_tried, ended;
        unsigned generation, denials, redirects, attempts;
        struct sha256 hash;
        uint64_t got, got_before;          /* bytes taken; at the beginning of this attempt */
        uint64_t skip, junk;
        bool body;                         /* this answer's body is the thing */
        bool too_long, junk_over, strange_range;
        int sink_errno;
};

static void attempt(struct get *g);
static void again(uv_timer_t *t) { attempt(t->data); }

/* ---- the end ---- */

static void timer_closed(uv_handle_t *h) {
        struct get *g = h->data;
        sha256_release(&g->hash);
        free(g);
}

static void let_go(struct get *g) {
        g->ended = true;
        fetch_cancel(TAKE_PTR(g->fetch));
        if (g->waiting_access)
                access_leave(g->spec.access, &g->wait);
        g->waiting_access = false;
        uv_close((uv_handle_t *)&g->timer, timer_closed);
}

void get_cancel(struct get *g) {
        if (g)
                let_go(g);
}

static void end(struct get *g, enum registry_failure f, const struct error *e) {
        struct error kept = e ? *e : (struct error){ 0 };
        g->spec.done(f, &kept, g->spec.user);
        let_go(g);
}

static void fail(struct get *g, enum registry_failure f, int code, const char *what) {
        struct error e;
        error_say(&e, code, "%s", what);
        end(g, f, &e);
}

const char *get_digest(const struct get *g) { return g->digest; }
const char *get_content_type(const struct get *g) { return g->content_type; }

/* ---- the body ---- */

static bool range_begins_at(const char *header, uint64_t at) {
        char *rest;
        if (strncasecmp(header, "bytes ", 6) != 0 || header[6] < '0' || header[6] > '9')
                return false;
        errno = 0;
        unsigned long long v = strtoull(header + 6, &rest, 10);
        return errno == 0 && *rest == '-' && v == at;
}

static int first_piece(struct get *g, long status) {
        g->body = status == 200 || status == 206;
        if (g->body)
                g->denials = 0;                  /* a token may expire more than once while much is fetched */
        if (status == 200)
                g->skip = g->got;
        else if (status == 206 && !range_begins_at(fetch_content_range(g->fetch), g->got)) {
                g->strange_range = true;
                return -EBADMSG;
        }
        return 0;
}

static int sink(struct get *g, const char *p, size_t n) {
        int r = g->spec.fd >= 0 ? fs_write_all(g->spec.fd, p, n) : buf_add(g->spec.into, p, n);
        if (r < 0)
                return g->sink_errno = r;
        sha256_update(&g->hash, p, n);
        g->got += n;
        if (g->spec.progress)
                g->spec.progress(g->got, g->spec.user);
        return 0;
}

static int take(const void *data, size_t n, long status, void *user) {
        struct get *g = user;
        const char *p = data;
        if (g->junk == 0 && !g->body) {
                int r = first_piece(g, status);
                if (r < 0)
                        return r;
        }
        if (!g->body) {
                g->junk += n;
                g->junk_over = g->junk > GET_JUNK_MAX;
                return g->junk_over ? -EMSGSIZE : 0;
        }
        size_t skipped = (size_t)MIN2((uint64_t)n, g->skip);
        g->skip -= skipped;
        p += skipped;
        n -= skipped;
        if (n > g->spec.size - g->got) {
                g->too_long = true;
                return -EMSGSIZE;
        }
        return n > 0 ? sink(g, p, n) : 0;
}

/* ---- what an answer means ---- */



/* Later, unless it was tried often enough. */
static void retry(struct get *g, int64_t after_s, const char *why) {
        char text[ERROR_TEXT_MAX];
        if (g->got - g->got_before >= GET_PROGRESS)
                g->attempts = 0;
        if (++g->attempts >= GET_ATTEMPTS_MAX || after_s > GET_RETRY_AFTER_MAX_S) {
                snprintf(text, sizeof text, after_s > GET_RETRY_AFTER_MAX_S ? "the registry asks to come back much later: %s" : "the registry cannot be reached: %s", why);
                fail(g, REGISTRY_UNREACHABLE, -EHOSTUNREACH, text);
                return;
        }
        g->at = *access_base(g->spec.access);    /* a redirect's target is good for one attempt */
        g->redirects = 0;
        uv_timer_start(&g->timer, again, after_s >= 0 ? (uint64_t)after_s * 1000 : (uint64_t)GET_BACKOFF_MS << (g->attempts - 1), 0);
}

static void complete(struct get *g) {
        char hex[SHA256_HEX];
        if (g->spec.exact && g->got < g->spec.size) {
                retry(g, -1, "it sends less than the manifest says");
                return;
        }
        sha256_finish(&g->hash, hex);
        char said[IMAGE_REF_DIGEST_LEN + 1];
        memcpy(said, g->digest, sizeof said);
        snprintf(g->digest, sizeof g->digest, "sha256:%s", hex);
        if (said[0] && strcmp(said, g->digest) != 0) {
                fail(g, REGISTRY_INVALID, -EBADMSG, "what the registry sent has another digest than it should");
                return;
        }
        end(g, REGISTRY_OK, NULL);
}

static void redirected(struct get *g, const struct fetch_result *res) {
        struct address to;
        struct error e;
        if (!res->location[0] || ++g->redirects > GET_REDIRECTS_MAX) {
                fail(g, REGISTRY_INVALID, -ELOOP, res->location[0] ? "the registry redirects in circles" : "the registry redirects to nowhere");
                return;
        }
        int r = address_resolve(&g->at, res->location, access_is_loopback(g->spec.access), &to, &e);
        if (r < 0) {
                end(g, REGISTRY_INVALID, &e);
                return;
        }
        g->at = to;
        attempt(g);
}

static void access_answer(int r, const struct error *e, void *user) {
        struct get *g = user;
        g->waiting_access = false;
        if (r == -EAGAIN)
                retry(g, -1, e->text);
        else if (r < 0)
                end(g, r == -EACCES ? REGISTRY_DENIED : r == -EBADMSG || r == -EPROTO ? REGISTRY_INVALID : REGISTRY_UNREACHABLE, e);
        else
                attempt(g);
}

static void unauthorized(struct get *g, const struct fetch_result *res) {
        struct error e;
        if (strcmp(g->at.origin, access_base(g->spec.access)->origin) != 0 || ++g->denials > 2) {
                fail(g, REGISTRY_DENIED, -EACCES, "the registry denies access to the image");
                return;
        }
        g->wait = (struct access_wait){ .done = access_answer, .user = g };
        int r = access_renew(g->spec.access, res->authenticate, g->generation, &g->wait, &e);
        if (r == 0) {
                g->waiting_access = true;
                return;
        }
        access_answer(MIN2(r, 0), &e, g);
}

static void answered(struct get *g, const struct fetch_result *res) {
        char text[128];
        switch (res->status) {
        case 200: case 206:
                snprintf(g->content_type, sizeof g->content_type, "%s", res->content_type);
                complete(g);
                return;
        case 301: case 302: case 303: case 307: case 308: redirected(g, res); return;
        case 401: unauthorized(g, res); return;
        case 403: fail(g, REGISTRY_DENIED, -EACCES, "the registry denies access to the image"); return;
        case 404: fail(g, REGISTRY_NOT_FOUND, -ENOENT, "the registry has no such image"); return;
        case 416:                                /* it has no more than we do: what we have is not what it has */
                fail(g, REGISTRY_INVALID, -EBADMSG, "the registry cannot go on where it was cut");
                return;
        }
        snprintf(text, sizeof text, "it answers with status %ld", res->status);
        if (res->status == 429 || res->status == 408 || res->status >= 500)
                retry(g, res->retry_after_s, text);
        else
                fail(g, REGISTRY_INVALID, -EBADMSG, text);
}

/* Loopback registries are asked over TLS first. */
static bool try_plain(struct get *g, const struct fetch_result *res) {
        if (res->r != -EPROTONOSUPPORT || !access_is_loopback(g->spec.access) || g->plain_tried || g->redirects > 0 || g->at.plain)
                return false;
        g->plain_tried = true;
        if (access_use_plain(g->spec.access, NULL) < 0)
                return false;
        g->at = *access_base(g->spec.access);
        return true;
}

static void fetched(const struct fetch_result *res, void *user) {
        struct get *g = user;
        g->fetch = NULL;
        if (res->r == 0)
                answered(g, res);
        else if (g->spec.exact && g->body && g->got == g->spec.size && !g->too_long)
                complete(g);                     /* cut behind the last byte */
        else if (g->too_long)
                fail(g, REGISTRY_INVALID, -EMSGSIZE, g->spec.exact ? "the registry sends more than the manifest says" : "the registry sends more than is allowed");
        else if (g->strange_range)
                fail(g, REGISTRY_INVALID, -EBADMSG, "the registry sends another part than it was asked for");
        else if (g->sink_errno)
                fail(g, g->sink_errno == -ENOSPC || g->sink_errno == -EDQUOT ? REGISTRY_DISK_FULL : REGISTRY_INTERNAL, g->sink_errno, "keep what the registry sent");
        else if (g->junk_over || res->r == -EMSGSIZE)
                fail(g, REGISTRY_INVALID, -EMSGSIZE, "the registry's answer does not end");
        else if (try_plain(g, res))
                attempt(g);
        else if (res->r == -EACCES || res->r == -EPROTO || res->r == -EPROTONOSUPPORT) {
                struct error e;
                error_say(&e, res->r, "the registry cannot be reached: %s", res->why);
                end(g, REGISTRY_UNREACHABLE, &e);
        } else
                retry(g, -1, res->why);
}

/* ---- the beginning ---- */

static void attempt(struct get *g) {
        struct error e;
        const struct address *base = access_base(g->spec.access);
        char url[FETCH_URL_MAX];
        const char *authorization = access_authorization(g->spec.access, &g->generation);
        bool at_registry = strcmp(g->at.origin, base->origin) == 0;
        int n = snprintf(url, sizeof url, "%s%s", g->at.url, g->redirects == 0 ? g->what : "");
        if (n < 0 || (size_t)n >= sizeof url) {
                fail(g, REGISTRY_INTERNAL, -ENAMETOOLONG, "too long a URL");
                return;
        }
        if (g->spec.fd < 0) {                    /* small things begin anew */
                buf_reset(g->spec.into);
                g->got = 0;
                sha256_release(&g->hash);
                if (sha256_init(&g->hash) < 0) {
                        fail(g, REGISTRY_INTERNAL, -ENOMEM, "no memory");
                        return;
                }
        }
        g->got_before = g->got;
        g->skip = g->junk = 0;
        g->body = false;
        const struct fetch_spec s = { .url = url, .accept = g->spec.accept, .authorization = at_registry ? authorization : NULL, .from = g->got,
                                      .named_loopback = access_is_loopback(g->spec.access) && g->at.loopback, .take = take, .done = fetched, .user = g };
        if (fetch_start(g->spec.fetcher, &s, &g->fetch, &e) < 0)
                end(g, REGISTRY_INTERNAL, &e);
}

int get_start(const struct get_spec *spec, struct get **ret, struct error *e) {
        struct get *g = calloc(1, sizeof *g);
        int r = g ? sha256_init(&g->hash) : -ENOMEM;
        if (r < 0) {
                free(g);
                return error_set(e, r, "ask the registry");
        }
        g->spec = *spec;
        snprintf(g->what, sizeof g->what, "%s", spec->what);
        snprintf(g->digest, sizeof g->digest, "%s", spec->digest ? spec->digest : "");
        g->at = *access_base(spec->access);
        uv_timer_init(spec->loop, &g->timer);
        g->timer.data = g;
        uv_timer_start(&g->timer, again, 0, 0);
        *ret = g;
        return 0;
}

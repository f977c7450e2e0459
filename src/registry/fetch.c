/* libcurl tells which sockets it waits for (a uv_poll each) and until when (one uv_timer); what happened is told to it with
 * socket_action, and finished transfers are collected afterwards, outside its callbacks: `done` may start and cancel fetches freely.
 * Names are resolved by libcurl's own threads; a cancelled look-up is left to its thread (QUICK_EXIT), the loop does not wait for it. */
#include "registry/fetch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "registry/curl.h"

#define call curl_calls

struct fetcher {
        uv_loop_t *loop;
        CURLM *multi;
        uv_timer_t timer;
        struct reach reach;
        char *ca_file;
        struct fetch *fetches;
        size_t handles;                    /* of libuv's, that are not closed yet */
        bool closing, collecting;
        void (*closed)(void *user); void *closed_user;
};

struct socket_poll { uv_poll_t poll; struct fetcher *f; curl_socket_t fd; };

struct fetch {
        struct fetch *next, **prev;
        struct fetcher *f;
        CURL *easy;
        struct curl_slist *headers;
        struct fetch_spec spec;
        size_t header_bytes;
        int taken;                         /* what take() said */
        bool denied, header_bomb;
        char location[FETCH_URL_MAX], authenticate[FETCH_VALUE_MAX], content_type[256], content_range[128], retry_after[32];
        char why[CURL_ERROR_SIZE];
};

/* ---- the loop ---- */

static void handle_closed(struct fetcher *f) {
        void (*closed)(void *) = f->closed;
        void *user = f->closed_user;
        if (--f->handles > 0)
                return;
        free(f->ca_file);
        free(f);
        closed(user);
}

static void poll_closed(uv_handle_t *h) {
        struct socket_poll *p = h->data;
        struct fetcher *f = p->f;
        free(p);
        handle_closed(f);
}

static void collect(struct fetcher *f);

static void on_socket(uv_poll_t *handle, int status, int events) {
        struct socket_poll *p = handle->data;
        struct fetcher *f = p->f;
        int flags = 0, running;
        if (status < 0)
                flags = CURL_CSELECT_ERR;
        if (events & UV_READABLE)
                flags |= CURL_CSELECT_IN;
        if (events & UV_WRITABLE)
                flags |= CURL_CSELECT_OUT;
        call.multi_socket_action(f->multi, p->fd, flags, &running);
        collect(f);
}

static void on_timer(uv_timer_t *t) {
        struct fetcher *f = t->data;
        int running;
        call.multi_socket_action(f->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        collect(f);
}

static int want_timer(CURLM *m, long ms, void *user) {
        struct fetcher *f = user;
        if (f->closing || ms < 0)
                uv_timer_stop(&f->timer);
        else
                uv_timer_start(&f->timer, on_timer, (uint64_t)ms, 0);
        return 0;
}

static int want_socket(CURL *easy, curl_socket_t s, int what, void *user, void *mine) {
        struct fetcher *f = user;
        struct socket_poll *p = mine;
        if (what == CURL_POLL_REMOVE) {
                if (p) {
                        uv_poll_stop(&p->poll);
                        call.multi_assign(f->multi, s, NULL);
                        uv_close((uv_handle_t *)&p->poll, poll_closed);
                }
                return 0;
        }
        if (!p) {
                p = calloc(1, sizeof *p);
                if (!p)
                        return -1;
                p->f = f;
                p->fd = s;
                if (uv_poll_init_socket(f->loop, &p->poll, s) < 0) {
                        free(p);
                        return -1;
                }
                p->poll.data = p;
                f->handles++;
                call.multi_assign(f->multi, s, p);
        }
        uv_poll_start(&p->poll, (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0), on_socket);
        return 0;
}

/* ---- what libcurl asks of a fetch ---- */

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a) {
        struct fetch *x = user;
        if (purpose != CURLSOCKTYPE_IPCXN || !reach_allows(&x->f->reach, &a->addr, x->spec.named_loopback)) {
                x->denied = true;
                return CURL_SOCKET_BAD;
        }
        return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t take_body(char *p, size_t size, size_t n, void *user) {
        struct fetch *x = user;
        long status = 0;
        call.easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
        x->taken = x->spec.take(p, size * n, status, x->spec.user);
        return x->taken < 0 ? CURL_WRITEFUNC_ERROR : size * n;
}

/* "Name: value": the value without white space around it, when it fits; a longer one is as good as none. */
static void keep(const char *line, size_t n, const char *name, char *ret, size_t size) {
        size_t len = strlen(name);
        if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':')
                return;
        line += len + 1;
        n -= len + 1;
        while (n > 0 && (*line == ' ' || *line == '\t'))
                line++, n--;
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' ' || line[n - 1] == '\t'))
                n--;
        if (n >= size || memchr(line, 0, n))
                n = 0;
        memcpy(ret, line, n);
        ret[n] = 0;
}

static size_t take_header(char *p, size_t size, size_t n, void *user) {
        struct fetch *x = user;
        n *= size;
        x->header_bytes += n;
        if (x->header_bytes > FETCH_HEADERS_MAX) {
                x->header_bomb = true;
                return 0;
        }
        if (n > 5 && memcmp(p, "HTTP/", 5) == 0)         /* another answer begins: an interim one's headers are not this one's */
                x->location[0] = x->authenticate[0] = x->content_type[0] = x->content_range[0] = x->retry_after[0] = 0;
        keep(p, n, "Location", x->location, sizeof x->location);
        /* Of several challenges the first that is Bearer counts, else the first. */
        if (!x->authenticate[0] || strncasecmp(x->authenticate, "bearer", 6) != 0)
                keep(p, n, "WWW-Authenticate", x->authenticate, sizeof x->authenticate);
        keep(p, n, "Content-Type", x->content_type, sizeof x->content_type);
        keep(p, n, "Content-Range", x->content_range, sizeof x->content_range);
        keep(p, n, "Retry-After", x->retry_after, sizeof x->retry_after);
        return n;
}

const char *fetch_content_range(const struct fetch *x) { return x->content_range; }

/* ---- the end ---- */

/* From here on the fetcher knows nothing of it. */
static void unlink_fetch(struct fetch *x) {
        if (x->easy)
                call.multi_remove_handle(x->f->multi, x->easy);
        if (x->prev) {
                *x->prev = x->next;
                if (x->next)
                        x->next->prev = x->prev;
        }
        x->prev = NULL;
}

static void fetch_free(struct fetch *x) {
        if (x->easy)
                call.easy_cleanup(x->easy);
        for (struct curl_slist *h = x->headers; h; h = h->next)
                explicit_bzero(h->data, strlen(h->data));        /* one of them may be a credential */
        call.slist_free_all(x->headers);
        free(x);
}

void fetch_cancel(struct fetch *x) {
        if (!x)
                return;
        unlink_fetch(x);
        fetch_free(x);
}

static int code_of(const struct fetch *x, CURLcode c) {
        if (c == CURLE_OK)
                return 0;
        if (x->taken < 0)
                return -ECANCELED;
        if (x->denied)
                return -EACCES;
        if (x->header_bomb)
                return -EMSGSIZE;
        switch (c) {
        case CURLE_COULDNT_RESOLVE_HOST: return -EHOSTUNREACH;
        case CURLE_COULDNT_CONNECT: return -ECONNREFUSED;
        case CURLE_OPERATION_TIMEDOUT: return -ETIMEDOUT;
        case CURLE_SSL_CONNECT_ERROR: return -EPROTONOSUPPORT;
        case CURLE_PEER_FAILED_VERIFICATION: case CURLE_SSL_CACERT_BADFILE: case CURLE_SSL_CERTPROBLEM: return -EPROTO;
        case CURLE_OUT_OF_MEMORY: return -ENOMEM;
        case CURLE_PARTIAL_FILE: case CURLE_RECV_ERROR: case CURLE_SEND_ERROR: case CURLE_GOT_NOTHING: return -ECONNRESET;
        default: return -EBADMSG;
        }
}

static int64_t seconds(const char *s) {
        size_t n = strspn(s, "0123456789");
        return n == 0 || n > 9 || s[n] ? -1 : (int64_t)strtol(s, NULL, 10);
}

static void finish(struct fetch *x, CURLcode code) {
        struct fetch_result r = { .r = code_of(x, code), .location = x->location, .authenticate = x->authenticate, .content_type = x->content_type,
                                  .content_range = x->content_range, .retry_after_s = seconds(x->retry_after) };
        curl_off_t length = -1;
        long port = 0;
        call.easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &r.status);
        call.easy_getinfo(x->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        call.easy_getinfo(x->easy, CURLINFO_LOCAL_PORT, &port);
        r.content_length = length;
        r.connected = port > 0;
        r.why = r.r == 0 ? "" : x->denied ? "the address is not one that a pull may reach" : x->header_bomb ? "too many headers" :
                x->why[0] ? x->why : call.easy_strerror(code);
        unlink_fetch(x);
        x->spec.done(&r, x->spec.user);
        fetch_free(x);
}

static void timer_closed(uv_handle_t *h) { handle_closed(h->data); }

static void close_handles(struct fetcher *f) {
        uv_timer_stop(&f->timer);
        call.multi_cleanup(f->multi);            /* says goodbye to the sockets it kept: their polls are closed */
        uv_close((uv_handle_t *)&f->timer, timer_closed);
}

static void collect(struct fetcher *f) {
        CURLMsg *m;
        int left;
        if (f->collecting)
                return;
        f->collecting = true;
        while (!f->closing && (m = call.multi_info_read(f->multi, &left))) {
                if (m->msg != CURLMSG_DONE)
                        continue;
                char *at = NULL;
                CURLcode code = m->data.result;
                call.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &at);
                finish((struct fetch *)(void *)at, code);
        }
        f->collecting = false;
        if (f->closing)
                close_handles(f);
}

/* ---- the beginning ---- */

static int add_header(struct fetch *x, const char *name, const char *value) {
        _cleanup_free_ char *line = NULL;
        if (asprintf(&line, "%s: %s", name, value) < 0) {
                line = NULL;
                return -ENOMEM;
        }
        struct curl_slist *more = call.slist_append(x->headers, line);
        explicit_bzero(line, strlen(line));
        if (!more)
                return -ENOMEM;
        x->headers = more;
        return 0;
}

static void set_limits(CURL *c, const struct fetch *x) {
        call.easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
        call.easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
        call.easy_setopt(c, CURLOPT_PROXY, "");
        call.easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        call.easy_setopt(c, CURLOPT_HTTP_CONTENT_DECODING, 0L);
        call.easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
        call.easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)FETCH_CONNECT_MS);
        call.easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
        call.easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)FETCH_STALL_S);
        call.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
        call.easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
        if (x->f->ca_file)
                call.easy_setopt(c, CURLOPT_CAINFO, x->f->ca_file);
}

static int set_up(struct fetch *x) {
        CURL *c = x->easy;
        const struct fetch_spec *s = &x->spec;
        char range[32];
        int r = s->accept ? add_header(x, "Accept", s->accept) : 0;
        r = r ? r : s->authorization ? add_header(x, "Authorization", s->authorization) : 0;
        if (r == 0 && s->from > 0) {
                snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)s->from);
                r = add_header(x, "Range", range);
        }
        r = r ? r : add_header(x, "User-Agent", "brig/" BRIG_VERSION);
        if (r < 0)
                return r;
        set_limits(c, x);
        call.easy_setopt(c, CURLOPT_HTTPHEADER, x->headers);
        call.easy_setopt(c, CURLOPT_PRIVATE, (char *)x);
        call.easy_setopt(c, CURLOPT_ERRORBUFFER, x->why);
        call.easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
        call.easy_setopt(c, CURLOPT_OPENSOCKETDATA, x);
        call.easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
        call.easy_setopt(c, CURLOPT_WRITEDATA, x);
        call.easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
        call.easy_setopt(c, CURLOPT_HEADERDATA, x);
        if (call.easy_setopt(c, CURLOPT_URL, s->url) != CURLE_OK || call.multi_add_handle(x->f->multi, c) != CURLM_OK)
                return -ENOMEM;
        return 0;
}

int fetch_start(struct fetcher *f, const struct fetch_spec *spec, struct fetch **ret, struct error *e) {
        struct fetch *x = calloc(1, sizeof *x);
        int r = x ? 0 : -ENOMEM;
        if (r == 0) {
                x->f = f;
                x->spec = *spec;
                x->easy = call.easy_init();
                r = x->easy ? set_up(x) : -ENOMEM;
                x->spec.url = x->spec.accept = x->spec.authorization = NULL;     /* libcurl has copies */
        }
        if (r < 0) {
                fetch_cancel(x);
                return error_set(e, r, "start a request");
        }
        x->next = f->fetches;
        x->prev = &f->fetches;
        if (x->next)
                x->next->prev = &x->next;
        f->fetches = x;
        *ret = x;
        return 0;
}

int fetcher_new(uv_loop_t *loop, const struct fetcher_config *cfg, struct fetcher **ret, struct error *e) {
        int r = curl_load(e);
        if (r < 0)
                return r;
        struct fetcher *f = calloc(1, sizeof *f);
        if (!f)
                return error_set(e, -ENOMEM, "prepare for pulls");
        f->loop = loop;
        f->reach = cfg->reach;
        f->multi = call.multi_init();
        if (cfg->ca_file)
                f->ca_file = strdup(cfg->ca_file);
        if (!f->multi || (cfg->ca_file && !f->ca_file)) {
                if (f->multi)
                        call.multi_cleanup(f->multi);
                free(f->ca_file);
                free(f);
                return error_set(e, -ENOMEM, "prepare for pulls");
        }
        call.multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
        call.multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
        call.multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, want_timer);
        call.multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
        uv_timer_init(loop, &f->timer);
        f->handles = 1;
        f->timer.data = f;
        *ret = f;
        return 0;
}

void fetcher_close(struct fetcher *f, void (*done)(void *user), void *user) {
        ASSERT(!f->fetches);
        f->closed = done;
        f->closed_user = user;
        f->closing = true;
        if (!f->collecting)                      /* else it was asked for by a done(): when that has returned */
                close_handles(f);
}

/* libcurl is loaded when a verb needs it, not linked: with what it depends on it is thirty libraries, and every mapping of the program
 * is copied for each sandbox that the spawner, which is the same program, makes. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/client.h"

#define LIBCURL "libcurl.so.4"

#define URL_MAX 4096
#define HEADER_MAX 8192

static struct {
        CURLcode (*global_init)(long flags);
        CURL *(*easy_init)(void);
        void (*easy_cleanup)(CURL *c);
        CURLcode (*easy_setopt)(CURL *c, CURLoption option, ...);
        CURLcode (*easy_perform)(CURL *c);
        CURLcode (*easy_getinfo)(CURL *c, CURLINFO info, ...);
        CURLcode (*easy_send)(CURL *c, const void *p, size_t n, size_t *ret);
        CURLcode (*easy_recv)(CURL *c, void *p, size_t n, size_t *ret);
        const char *(*easy_strerror)(CURLcode code);
        struct curl_slist *(*slist_append)(struct curl_slist *list, const char *s);
        void (*slist_free_all)(struct curl_slist *list);
} curl;

static int load(struct error *e) {
        static const struct { const char *name; void *at; } symbols[] = {
                { "curl_global_init", &curl.global_init }, { "curl_easy_init", &curl.easy_init }, { "curl_easy_cleanup", &curl.easy_cleanup },
                { "curl_easy_setopt", &curl.easy_setopt }, { "curl_easy_perform", &curl.easy_perform }, { "curl_easy_getinfo", &curl.easy_getinfo },
                { "curl_easy_strerror", &curl.easy_strerror }, { "curl_slist_append", &curl.slist_append },
                { "curl_easy_send", &curl.easy_send }, { "curl_easy_recv", &curl.easy_recv }, { "curl_slist_free_all", &curl.slist_free_all },
        };
        if (curl.slist_free_all)
                return 0;
        void *lib = dlopen(LIBCURL, RTLD_NOW | RTLD_LOCAL);
        if (!lib)
                return error_say(e, -ENOENT, "cannot speak to a daemon without %s: %s", LIBCURL, dlerror());
        for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
                void *symbol = dlsym(lib, symbols[i].name);
                if (!symbol)
                        return error_say(e, -ENOENT, "%s lacks %s", LIBCURL, symbols[i].name);
                memcpy(symbols[i].at, &symbol, sizeof symbol);
        }
        curl.global_init(CURL_GLOBAL_DEFAULT);
        return 0;
}

struct client {
        CURL *curl;
        struct curl_slist *headers;
        char base[URL_MAX];
        char shown[URL_MAX];               /* in messages: the address as it was given */
        const volatile sig_atomic_t *interrupted;
        char why[CURL_ERROR_SIZE];
};

static int watch(void *user, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal, curl_off_t ulnow) {
        const struct client *c = user;
        return c->interrupted && *c->interrupted;
}

static int add_header(struct client *c, const char *line) {
        struct curl_slist *more = curl.slist_append(c->headers, line);
        if (!more)
                return -ENOMEM;
        c->headers = more;
        return 0;
}

static int set_target(struct client *c, const char *url, struct error *e) {
        snprintf(c->shown, sizeof c->shown, "%s", url);
        if (strncmp(url, "unix:", 5) == 0) {
                curl.easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, url + 5);
                url = "http://localhost";
        } else if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
                return error_say(e, -EINVAL, "'%.200s' is not the address of a daemon: want http://HOST:PORT or unix:/PATH", url);
        size_t n = strlen(url);
        while (n > 0 && url[n - 1] == '/')
                n--;
        if (n >= sizeof c->base)
                return error_say(e, -EINVAL, "the daemon's address is too long");
        memcpy(c->base, url, n);
        c->base[n] = 0;
        return 0;
}

static int set_headers(struct client *c, const char *token, struct error *e) {
        char line[HEADER_MAX];
        /* curl's own Expect would cost a round trip for every large patch. */
        int r = add_header(c, "Expect:");
        if (r == 0)
                r = add_header(c, "Content-Type: application/json");
        if (r == 0 && token && token[0]) {
                if (strpbrk(token, "\r\n") || snprintf(line, sizeof line, "Authorization: Bearer %s", token) >= (int)sizeof line)
                        return error_say(e, -EINVAL, "the token cannot be sent");
                r = add_header(c, line);
        }
        return r < 0 ? error_set(e, r, "prepare the request") : 0;
}

int client_open(const char *url, const char *token, struct client **ret, struct error *e) {
        int r = load(e);
        if (r < 0)
                return r;
        struct client *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "open the client");
        c->curl = curl.easy_init();
        r = c->curl ? set_target(c, url, e) : error_set(e, -ENOMEM, "open the client");
        if (r == 0)
                r = set_headers(c, token, e);
        if (r < 0) {
                client_free(c);
                return r;
        }
        curl.easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
        curl.easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
        curl.easy_setopt(c->curl, CURLOPT_NOPROXY, "127.0.0.1,localhost,::1");
        curl.easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl.easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->why);
        curl.easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
        curl.easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, watch);
        curl.easy_setopt(c->curl, CURLOPT_XFERINFODATA, c);
        *ret = c;
        return 0;
}

void client_free(struct client *c) {
        if (!c)
                return;
        if (c->curl)
                curl.easy_cleanup(c->curl);
        curl.slist_free_all(c->headers);
        free(c);
}

void client_interrupted_by(struct client *c, const volatile sig_atomic_t *flag) {
        c->interrupted = flag;
}

static int perform(struct client *c, struct error *e) {
        c->why[0] = 0;
        CURLcode code = curl.easy_perform(c->curl);
        const char *why = c->why[0] ? c->why : curl.easy_strerror(code);
        if (code == CURLE_OK)
                return 0;
        if (code == CURLE_ABORTED_BY_CALLBACK)
                return error_say(e, -EINTR, "interrupted");
        if (code == CURLE_OPERATION_TIMEDOUT)
                return error_say(e, -ETIMEDOUT, "%s does not answer: %s", c->shown, why);
        return error_say(e, -EIO, "%s: %s", c->shown, why);
}

struct transfer { struct client *c; const struct client_transfer *t; int r; };

static int status_of(struct client *c) {
        long status = 0;
        curl.easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
        return (int)status;
}

static size_t give(char *p, size_t size, size_t n, void *user) {
        struct transfer *x = user;
        ssize_t r = x->t->source(p, size * n, x->t->user);
        if (r >= 0)
                return (size_t)r;
        x->r = (int)r;
        return CURL_READFUNC_ABORT;
}

static size_t pass_on(char *p, size_t size, size_t n, void *user) {
        struct transfer *x = user;
        x->r = x->t->sink(status_of(x->c), p, size * n, x->t->user);
        return x->r < 0 ? 0 : size * n;
}

static int set_body(struct client *c, const struct client_transfer *t, struct transfer *x) {
        curl.easy_setopt(c->curl, CURLOPT_HTTPGET, 1L);
        if (t->source) {
                curl.easy_setopt(c->curl, CURLOPT_UPLOAD, 1L);
                curl.easy_setopt(c->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)-1);
                curl.easy_setopt(c->curl, CURLOPT_READFUNCTION, give);
                curl.easy_setopt(c->curl, CURLOPT_READDATA, x);
        } else if (t->body) {
                curl.easy_setopt(c->curl, CURLOPT_POST, 1L);
                curl.easy_setopt(c->curl, CURLOPT_POSTFIELDS, t->body);
                curl.easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->n);
        }
        curl.easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, t->method);
        return 0;
}

/* The lines that every request has, but for the type of its body. */
static int headers_with(const struct client *c, const char *type, struct curl_slist **ret) {
        char line[256];
        snprintf(line, sizeof line, "Content-Type: %s", type);
        for (const struct curl_slist *h = c->headers; h; h = h->next) {
                struct curl_slist *more = curl.slist_append(*ret, strncmp(h->data, "Content-Type:", 13) == 0 ? line : h->data);
                if (!more)
                        return -ENOMEM;
                *ret = more;
        }
        return 0;
}

int client_transfer(struct client *c, const struct client_transfer *t, int *ret_status, struct error *e) {
        struct transfer x = { .c = c, .t = t };
        struct curl_slist *headers = NULL;
        char url[2 * URL_MAX];
        if (snprintf(url, sizeof url, "%s%s", c->base, t->path) >= (int)sizeof url)
                return error_say(e, -EINVAL, "the address is too long");
        int r = t->content_type ? headers_with(c, t->content_type, &headers) : 0;
        if (r < 0) {
                curl.slist_free_all(headers);
                return error_set(e, r, "prepare the request");
        }
        curl.easy_setopt(c->curl, CURLOPT_URL, url);
        curl.easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)t->timeout_ms);
        if (headers)
                curl.easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
        curl.easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, pass_on);
        curl.easy_setopt(c->curl, CURLOPT_WRITEDATA, &x);
        set_body(c, t, &x);
        struct error own;
        r = perform(c, &own);          /* what a callback said stands in e */
        if (r < 0 && x.r == 0 && e)
                *e = own;
        curl.easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
        curl.slist_free_all(headers);
        if (x.r < 0)
                return x.r;
        *ret_status = status_of(c);
        return r;
}

static int collect(int status, const char *p, size_t n, void *user) { return buf_add(user, p, n); }

int client_call(struct client *c, const char *method, const char *path, const char *body, size_t n, uint64_t timeout_ms, int *ret_status,
                struct buf *ret_body, struct error *e) {
        struct client_transfer t = { .method = method, .path = path, .body = body, .n = n, .sink = collect, .user = ret_body, .timeout_ms = timeout_ms };
        int r = client_transfer(c, &t, ret_status, e);
        return r == -ENOSPC ? error_say(e, -EIO, "the answer is too long") : r;
}

/* ---- the connection itself ---------------------------------------------------------------------------------------------------- */

int client_fd(struct client *c) {
        curl_socket_t fd = -1;
        curl.easy_getinfo(c->curl, CURLINFO_ACTIVESOCKET, &fd);
        return (int)fd;
}

ssize_t client_write(struct client *c, const void *p, size_t n) {
        size_t done = 0;
        CURLcode code = curl.easy_send(c->curl, p, n, &done);
        return code == CURLE_OK ? (ssize_t)done : code == CURLE_AGAIN ? -EAGAIN : -EIO;
}

ssize_t client_read(struct client *c, void *p, size_t n) {
        size_t done = 0;
        CURLcode code = curl.easy_recv(c->curl, p, n, &done);
        return code == CURLE_OK ? (ssize_t)done : code == CURLE_AGAIN ? -EAGAIN : -EIO;
}

static int wait_for(struct client *c, short what, uint64_t deadline) {
        struct pollfd p = { .fd = client_fd(c), .events = what };
        uint64_t now = now_ms();
        if (c->interrupted && *c->interrupted)
                return -EINTR;
        if (now >= deadline)
                return -ETIMEDOUT;
        return poll(&p, 1, (int)MIN2(deadline - now, (uint64_t)1000)) < 0 && errno != EINTR ? -errno : 0;
}

static int send_all(struct client *c, const char *p, size_t n, uint64_t deadline) {
        while (n > 0) {
                ssize_t r = client_write(c, p, n);
                if (r == -EAGAIN)
                        r = wait_for(c, POLLOUT, deadline);
                if (r < 0)
                        return (int)r;
                p += r;
                n -= (size_t)r;
        }
        return 0;
}

/* Reads until `done` says so, or to the end. */
static int receive(struct client *c, struct buf *b, bool (*done)(const struct buf *b), uint64_t deadline) {
        char space[4096];
        while (!done(b)) {
                ssize_t r = client_read(c, space, sizeof space);
                if (r == 0)
                        return 0;
                if (r == -EAGAIN)
                        r = wait_for(c, POLLIN, deadline);
                else if (r > 0)
                        r = buf_add(b, space, (size_t)r);
                if (r < 0)
                        return (int)r;
        }
        return 0;
}

static bool head_is_whole(const struct buf *b) { return strstr(buf_str(b), "\r\n\r\n"); }
static bool never(const struct buf *b) { return false; }

static int request_head(const struct client *c, const char *path, const char *head, struct buf *b) {
        const char *host = strstr(c->base, "://"), *top = host ? strchr(host + 3, '/') : NULL;
        host = host ? host + 3 : c->base;
        int r = buf_printf(b, "GET %s%s HTTP/1.1\r\nHost: %.*s\r\n%s", top ? top : "", path, (int)(top ? (size_t)(top - host) : strlen(host)), host, head);
        for (const struct curl_slist *h = c->headers; r == 0 && h; h = h->next)
                if (strncmp(h->data, "Authorization:", 14) == 0)
                        r = buf_printf(b, "%s\r\n", h->data);
        return r < 0 ? r : buf_adds(b, "\r\n");
}

int client_upgrade(struct client *c, const char *path, const char *head, uint64_t timeout_ms, struct buf *ret_rest, int *ret_status, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(CLIENT_HEAD_MAX);
        uint64_t deadline = now_ms() + timeout_ms;
        *ret_status = 0;
        curl.easy_setopt(c->curl, CURLOPT_URL, c->base);
        curl.easy_setopt(c->curl, CURLOPT_CONNECT_ONLY, 1L);
        curl.easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
        int r = perform(c, e);
        if (r < 0)
                return r;
        r = request_head(c, path, head, &b);
        r = r ? r : send_all(c, buf_str(&b), b.len, deadline);
        buf_reset(&b);
        r = r ? r : receive(c, &b, head_is_whole, deadline);
        const char *end = strstr(buf_str(&b), "\r\n\r\n");
        if (r < 0 || !end)
                return error_set(e, r < 0 ? r : -EIO, "%s does not answer", c->shown);
        if (strncmp(buf_str(&b), "HTTP/1.1 ", 9) == 0)
                *ret_status = (int)strtol(b.data + 9, NULL, 10);
        buf_consume(&b, (size_t)(end + 4 - b.data));
        if (*ret_status != 101)
                (void)receive(c, &b, never, MIN2(deadline, now_ms() + 1000));
        r = buf_add(ret_rest, buf_str(&b), b.len);
        return r < 0 ? error_set(e, r, "read the answer") : *ret_status == 101 ? 0 : error_say(e, -EIO, "%s does not change protocols", c->shown);
}

/* One exchange at a time per libcurl handle; a client keeps handles, and with them connections, for whoever calls next. */
#include <curl/curl.h>
#include <pthread.h>
#include <sys/random.h>
#include <time.h>

#include "internal.h"

#define HANDLES_KEPT 64

struct brig_client {
        char *url;                     /* without a trailing slash; of a unix socket: "http://localhost" */
        char *name;                    /* as it was given, for messages */
        char *socket_path;             /* NULL without */
        char *authorization;           /* "Authorization: Bearer ...", NULL without */
        pthread_mutex_t lock;
        CURL *kept[HANDLES_KEPT]; size_t n_kept;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void global_init(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

double now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void rest(double seconds) {
        if (seconds <= 0)
                return;
        struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

int idempotency_key(char ret[33], struct brig_error *e) {
        unsigned char b[16];
        if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
                return fail(e, BRIG_ERR_MEMORY, "no random bytes");
        for (size_t i = 0; i < sizeof b; i++)
                snprintf(ret + 2 * i, 3, "%02x", b[i]);
        return 0;
}

static const char *token_of_environment(void) {
        const char *t = getenv("BRIG_API_TOKEN");
        if (!t || !*t)
                t = getenv("DOCKYARD_SANDBOX_API_TOKEN");
        return t ? t : "";
}

static int set_target(struct brig_client *c, const char *url) {
        size_t n = strlen(url);
        while (n > 0 && url[n - 1] == '/')
                n--;
        c->name = strndup(url, n);
        if (strncmp(url, "unix:", 5) == 0) {
                c->socket_path = n > 5 ? strndup(url + 5, n - 5) : NULL;
                c->url = strdup("http://localhost");
                return !c->socket_path ? -EINVAL : c->name && c->url ? 0 : -ENOMEM;
        }
        const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
        if (!host || host >= url + n || strcspn(host, " \t\r\n?#") != strlen(host))
                return -EINVAL;
        c->url = strndup(url, n);
        return c->name && c->url ? 0 : -ENOMEM;
}

int brig_client_new(const char *base_url, const char *token, struct brig_client **ret, struct brig_error *e) {
        pthread_once(&once, global_init);
        struct brig_client *c = calloc(1, sizeof *c);
        if (!c)
                return fail_memory(e);
        pthread_mutex_init(&c->lock, NULL);
        int r = base_url ? set_target(c, base_url) : -EINVAL;
        if (!token)
                token = token_of_environment();
        if (r == 0 && *token && asprintf(&c->authorization, "Authorization: Bearer %s", token) < 0)
                c->authorization = NULL, r = -ENOMEM;
        if (r == 0 && c->authorization && strpbrk(c->authorization, "\r\n"))
                r = fail(e, BRIG_ERR_ARGUMENT, "the token has a line end in it");
        else if (r < 0)
                r = r == -ENOMEM ? fail_memory(e) : fail(e, BRIG_ERR_ARGUMENT, "not an http, https or unix URL: '%.200s'", base_url ? base_url : "");
        if (r < 0) {
                brig_client_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

void brig_client_free(struct brig_client *c) {
        if (!c)
                return;
        for (size_t i = 0; i < c->n_kept; i++)
                curl_easy_cleanup(c->kept[i]);
        pthread_mutex_destroy(&c->lock);
        free(c->url);
        free(c->name);
        free(c->socket_path);
        free(c->authorization);
        free(c);
}

const char *client_url(const struct brig_client *c) { return c->name; }

static CURL *handle_take(struct brig_client *c) {
        pthread_mutex_lock(&c->lock);
        CURL *h = c->n_kept ? c->kept[--c->n_kept] : NULL;
        pthread_mutex_unlock(&c->lock);
        if (!h)
                return curl_easy_init();
        curl_easy_reset(h);            /* the options; its connection stays */
        return h;
}

static void handle_keep(struct brig_client *c, CURL *h) {
        pthread_mutex_lock(&c->lock);
        if (c->n_kept < HANDLES_KEPT)
                c->kept[c->n_kept++] = TAKE_PTR(h);
        pthread_mutex_unlock(&c->lock);
        curl_easy_cleanup(h);
}

struct sink { CURL *handle; const struct exchange *exchange; struct answer *answer; };

static size_t on_body(char *p, size_t one, size_t n, void *user) {
        const struct sink *s = user;
        long status = 0;
        if (s->exchange->piece && curl_easy_getinfo(s->handle, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK && status == 200)
                return s->exchange->piece(p, one * n, s->exchange->piece_user) ? 0 : one * n;
        return buf_add(&s->answer->body, p, one * n) < 0 ? 0 : one * n;
}

static int add_header(struct curl_slist **list, const char *line) {
        struct curl_slist *more = curl_slist_append(*list, line);
        if (!more)
                return -ENOMEM;
        *list = more;
        return 0;
}

static int request_headers(const struct brig_client *c, const struct exchange *x, struct curl_slist **ret) {
        int r = add_header(ret, "Accept: application/json");
        if (r == 0)
                r = add_header(ret, "Expect:");        /* no 100-continue: it costs a round trip */
        if (r == 0 && x->body)
                r = add_header(ret, "Content-Type: application/json");
        if (r == 0 && c->authorization)
                r = add_header(ret, c->authorization);
        if (r == 0 && x->key) {
                char line[64];
                snprintf(line, sizeof line, "Idempotency-Key: %s", x->key);
                r = add_header(ret, line);
        }
        return r;
}

static void handle_set(CURL *h, const struct brig_client *c, const struct exchange *x, const char *url, struct curl_slist *headers, struct sink *s) {
        curl_easy_setopt(h, CURLOPT_URL, url);
        curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(h, CURLOPT_PROXY, "");
        curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
        if (x->silence > 0) {
                curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)(REQUEST_TIMEOUT_S * 1000));
                curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
                curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, x->silence);
        } else
                curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(x->timeout * 1000));
        curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, s);
        if (c->socket_path)
                curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
        if (x->body) {
                curl_easy_setopt(h, CURLOPT_POST, 1L);
                curl_easy_setopt(h, CURLOPT_POSTFIELDS, x->body);
                curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body_len);
        } else
                curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, x->method);
}

/* Seconds that the answer asks to wait, in numbers; a date is as good as nothing to us. */
static double retry_after(CURL *h) {
        curl_off_t s = 0;
        return curl_easy_getinfo(h, CURLINFO_RETRY_AFTER, &s) == CURLE_OK && s > 0 ? (double)s : 0;
}

/* *ret_sent: something of it may have reached the endpoint. */
static int exchange_once(struct brig_client *c, const struct exchange *x, struct answer *a, bool *ret_sent, struct brig_error *e) {
        _cleanup_free_ char *url = NULL;
        struct curl_slist *headers = NULL;
        CURL *h = handle_take(c);
        struct sink sink = { h, x, a };
        CURLcode code = CURLE_OUT_OF_MEMORY;
        if (h && asprintf(&url, "%s%s", c->url, x->path) >= 0 && request_headers(c, x, &headers) == 0) {
                handle_set(h, c, x, url, headers, &sink);
                code = curl_easy_perform(h);
        }
        long status = 0;
        if (code == CURLE_OK) {
                curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
                a->status = (int)status;
                a->retry_after = retry_after(h);
                handle_keep(c, h);
        } else
                curl_easy_cleanup(h);
        curl_slist_free_all(headers);
        *ret_sent = code != CURLE_COULDNT_CONNECT && code != CURLE_COULDNT_RESOLVE_HOST;
        if (code == CURLE_OUT_OF_MEMORY)
                return fail_memory(e);
        return code == CURLE_OK ? 0 : fail(e, BRIG_ERR_TRANSPORT, "%s %s%s: %s", x->method, c->name, x->path, curl_easy_strerror(code));
}

int exchange(struct brig_client *c, const struct exchange *x, struct answer *ret, struct brig_error *e) {
        double pause = RETRY_FIRST_S;
        for (int attempt = 1;; attempt++) {
                bool sent = true;
                buf_reset(&ret->body);
                int r = exchange_once(c, x, ret, &sent, e);
                if (r != BRIG_ERR_TRANSPORT || attempt >= (sent ? x->tries : TRIES))
                        return r;
                rest(pause);
                pause *= 2;
        }
}

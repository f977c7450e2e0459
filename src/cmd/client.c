#include <curl/curl.h>
#include <string.h>

#include "cmd/client.h"

#define URL_MAX 4096
#define HEADER_MAX 8192

struct client {
        CURL *curl;
        struct curl_slist *headers;
        char base[URL_MAX];
        const volatile sig_atomic_t *interrupted;
        char why[CURL_ERROR_SIZE];
};

static size_t take(char *p, size_t size, size_t n, void *user) {
        return buf_add(user, p, size * n) < 0 ? 0 : size * n;
}

static int watch(void *user, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal, curl_off_t ulnow) {
        const struct client *c = user;
        return c->interrupted && *c->interrupted;
}

static int add_header(struct client *c, const char *line) {
        struct curl_slist *more = curl_slist_append(c->headers, line);
        if (!more)
                return -ENOMEM;
        c->headers = more;
        return 0;
}

static int set_target(struct client *c, const char *url, struct error *e) {
        if (strncmp(url, "unix:", 5) == 0) {
                curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, url + 5);
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
        struct client *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "open the client");
        curl_global_init(CURL_GLOBAL_DEFAULT);
        c->curl = curl_easy_init();
        int r = c->curl ? set_target(c, url, e) : error_set(e, -ENOMEM, "open the client");
        if (r == 0)
                r = set_headers(c, token, e);
        if (r < 0) {
                client_free(c);
                return r;
        }
        curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
        curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "127.0.0.1,localhost,::1");
        curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->why);
        curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, watch);
        curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, c);
        *ret = c;
        return 0;
}

void client_free(struct client *c) {
        if (!c)
                return;
        if (c->curl)
                curl_easy_cleanup(c->curl);
        curl_slist_free_all(c->headers);
        free(c);
}

void client_interrupted_by(struct client *c, const volatile sig_atomic_t *flag) {
        c->interrupted = flag;
}

static int perform(struct client *c, struct error *e) {
        c->why[0] = 0;
        CURLcode code = curl_easy_perform(c->curl);
        const char *why = c->why[0] ? c->why : curl_easy_strerror(code);
        if (code == CURLE_OK)
                return 0;
        if (code == CURLE_ABORTED_BY_CALLBACK)
                return error_say(e, -EINTR, "interrupted");
        if (code == CURLE_OPERATION_TIMEDOUT)
                return error_say(e, -ETIMEDOUT, "%s does not answer: %s", c->base, why);
        return error_say(e, -EIO, "%s: %s", c->base, why);
}

int client_call(struct client *c, const char *method, const char *path, const char *body, size_t n, uint64_t timeout_ms, int *ret_status,
                struct buf *ret_body, struct error *e) {
        char url[2 * URL_MAX];
        if (snprintf(url, sizeof url, "%s%s", c->base, path) >= (int)sizeof url)
                return error_say(e, -EINVAL, "the address is too long");
        curl_easy_setopt(c->curl, CURLOPT_URL, url);
        curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
        curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, ret_body);
        if (body) {
                curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
                curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
                curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
        } else
                curl_easy_setopt(c->curl, CURLOPT_HTTPGET, 1L);
        curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
        int r = perform(c, e);
        if (r < 0)
                return r;
        long status = 0;
        curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
        *ret_status = (int)status;
        return 0;
}

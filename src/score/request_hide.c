/* Credentials of a request's repository, between the wire and the disk: a stored body has three stars for
 * the user and the password; the whole URL is its keeper's, in memory, and is put back when the task starts. */
#include <string.h>

#include "base/json.h"
#include "base/redact.h"
#include "score/request.h"

#define HIDDEN "***@"

/* Behind "://" of an http(s) URL that names a user, else NULL: in other schemes a user is part of the address, and no secret. */
static const char *userinfo(const char *url) {
        size_t n = strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
        return n > 0 && memchr(url + n, '@', strcspn(url + n, "/?#")) ? url + n : NULL;
}

bool score_request_is_hidden(const struct score_request *q) {
        const char *user = userinfo(q->repo_url);
        return user && strncmp(user, HIDDEN, strlen(HIDDEN)) == 0;
}

int score_request_unhide(struct score_request *q, const char *url) {
        char *copy = strdup(url);
        if (!copy)
                return -ENOMEM;
        secret_free(q->repo_url);
        q->repo_url = copy;
        return 0;
}

/* Puts `text` in the place of the n bytes at `at`, and wipes what is left over at the end. */
static int put_in_place(struct buf *b, size_t at, size_t n, const struct buf *text) {
        size_t tail = b->len - at - n, before = b->len;
        if (text->len > n) {
                int r = buf_reserve(b, text->len - n);
                if (r < 0)
                        return r;
        }
        memmove(b->data + at + text->len, b->data + at + n, tail);
        memcpy(b->data + at, buf_str(text), text->len);
        b->len = at + text->len + tail;
        if (b->len < before)
                explicit_bzero(b->data + b->len, before - b->len);
        b->data[b->len] = 0;
        return 0;
}

static int write_hidden(const char *url, struct buf *ret) {
        _cleanup_buf_ struct buf shown = BUF_INIT(REQUEST_URL_MAX + 16);
        struct json_writer w = JSON_WRITER(ret);
        int r = redact_url(url, &shown);
        if (r < 0)
                return r;
        json_put_text(&w, buf_str(&shown));
        return json_finish(&w);
}

int score_request_hide(struct buf *body, char **ret_url) {
        struct json object = { .type = JSON_OBJECT, .p = buf_str(body), .n = body->len }, v;
        _cleanup_buf_ struct buf url = BUF_INIT(REQUEST_URL_MAX), text = BUF_INIT(8 * REQUEST_URL_MAX);
        if (!json_get(&object, "repo_url", &v) || v.type != JSON_STRING) {
                *ret_url = NULL;
                return 0;
        }
        int r = json_string(&v, &url);
        if (r == 0 && !userinfo(buf_str(&url))) {
                *ret_url = NULL;
                return 0;
        }
        if (r == 0)
                r = write_hidden(buf_str(&url), &text);
        char *whole = r == 0 ? strdup(buf_str(&url)) : NULL;
        if (r == 0 && !whole)
                r = -ENOMEM;
        if (r == 0)
                r = put_in_place(body, (size_t)(v.p - object.p), v.n, &text);
        if (url.data)
                explicit_bzero(url.data, url.len);
        if (r < 0) {
                secret_free(whole);
                return r;
        }
        *ret_url = whole;
        return 0;
}

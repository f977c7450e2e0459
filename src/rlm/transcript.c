#include "base/utf8.h"
#include "rlm/transcript.h"

#define TAIL_BYTES (2u * TRANSCRIPT_MAX * 4u)
#define PIECE 4096u

void transcript_init(struct transcript *t) {
        *t = (struct transcript){ .head = BUF_INIT(TRANSCRIPT_MAX * 4u), .tail = BUF_INIT(TAIL_BYTES) };
}

void transcript_release(struct transcript *t) {
        buf_release(&t->head);
        buf_release(&t->tail);
}

static size_t character(const char *p) {
        unsigned char c = (unsigned char)*p;
        return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Keeps the last ones: moved rarely, so that each byte is moved once at most. */
static void cut_tail(struct transcript *t, size_t keep) {
        size_t at = 0;
        while (t->tail_chars > keep) {
                at += character(t->tail.data + at);
                t->tail_chars--;
        }
        buf_consume(&t->tail, at);
}

/* n bytes that are `chars` characters, where they go: to the head while it lacks so many. */
static int put(struct transcript *t, bool head, const char *p, size_t n, size_t chars) {
        int r = buf_add(head ? &t->head : &t->tail, p, n);
        if (r < 0)
                return r;
        t->total += chars;
        *(head ? &t->head_chars : &t->tail_chars) += chars;
        return 0;
}

#define TAIL_CHARS (2 * TRANSCRIPT_MAX - 1)

/* How many characters there is room for now. */
static size_t room(struct transcript *t, bool *ret_head) {
        *ret_head = t->head_chars < TRANSCRIPT_HEAD;
        if (*ret_head)
                return TRANSCRIPT_HEAD - t->head_chars;
        if (t->tail_chars == TAIL_CHARS)
                cut_tail(t, TRANSCRIPT_MAX);
        return TAIL_CHARS - t->tail_chars;
}

static int add(struct transcript *t, const char *p, size_t n) {
        bool head;
        room(t, &head);
        return put(t, head, p, n, 1);
}

/* A run of ASCII, which most output is. */
static int add_run(struct transcript *t, const char *p, size_t n) {
        while (n > 0) {
                bool head;
                size_t take = MIN2(n, room(t, &head));
                int r = put(t, head, p, take, take);
                if (r < 0)
                        return r;
                p += take;
                n -= take;
        }
        return 0;
}

static int add_step(struct transcript *t, const char *p, size_t n, bool valid) {
        return valid ? add(t, p, n) : add(t, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN);
}

/* Is p[0..n) the beginning of a character that more bytes could complete? */
static bool incomplete(const char *p, size_t n) {
        bool valid;
        unsigned char c = (unsigned char)*p;
        size_t want = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return c >= 0xc2 && c < 0xf5 && n < want && utf8_step(p, n, &valid) == n && !valid;
}

static int feed(struct transcript *t, const char *p, size_t n, size_t *ret_used) {
        size_t at = 0;
        while (at < n) {
                bool valid;
                size_t run = 0;
                while (at + run < n && (unsigned char)p[at + run] < 0x80)
                        run++;
                int r = add_run(t, p + at, run);
                if (r < 0)
                        return r;
                at += run;
                if (at == n || incomplete(p + at, n - at))
                        break;
                size_t step = utf8_step(p + at, n - at, &valid);
                r = add_step(t, p + at, step, valid);
                if (r < 0)
                        return r;
                at += step;
        }
        *ret_used = at;
        return 0;
}

int transcript_feed(struct transcript *t, const char *p, size_t n) {
        char piece[PIECE + sizeof t->part];
        while (n > 0) {
                size_t take = MIN2(n, (size_t)PIECE), used;
                memcpy(piece, t->part, t->n_part);
                memcpy(piece + t->n_part, p, take);
                size_t len = t->n_part + take;
                int r = feed(t, piece, len, &used);
                if (r < 0)
                        return r;
                ASSERT(len - used < sizeof t->part);
                t->n_part = len - used;
                memcpy(t->part, piece + used, t->n_part);
                p += take;
                n -= take;
        }
        return 0;
}

bool transcript_truncated(const struct transcript *t) { return t->total > TRANSCRIPT_MAX; }

int transcript_text(struct transcript *t, struct buf *ret) {
        int r = 0;
        if (t->n_part > 0) {
                t->n_part = 0;
                r = add(t, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN);
        }
        if (r == 0)
                r = buf_add(ret, buf_str(&t->head), t->head.len);
        if (r == 0 && transcript_truncated(t)) {
                cut_tail(t, TRANSCRIPT_TAIL);
                r = buf_printf(ret, "\n[... %llu characters left out ...]\n", (unsigned long long)(t->total - TRANSCRIPT_HEAD - TRANSCRIPT_TAIL));
        }
        return r < 0 ? r : buf_add(ret, buf_str(&t->tail), t->tail.len);
}

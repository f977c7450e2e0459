/* Frames of a turn's control socket: see frames.h. */
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "rlm/frames.h"

#define SUBMIT_HEAD (8u + 4u)
#define DONE_HEAD (8u + 1u)
#define DONE_MAX (DONE_HEAD + 3 * 4u + TURN_NAME_MAX + TURN_ERROR_MAX + TURN_TOOL_ERROR_MAX)
#define IN_MAX (FRAME_HEAD + TURN_SUBMIT_MAX + SUBMIT_HEAD + (1u << 20))      /* the longest frame, and what one read may bring beyond it */

_Static_assert(DONE_MAX < TURN_SUBMIT_MAX, "a SUBMIT is the longest frame");

/* 0: nobody may send such a frame to us. */
static int limit_of(char kind, size_t *ret) {
        switch (kind) {
        case FRAME_HELLO: case FRAME_BEGUN: *ret = 0; return 0;
        case FRAME_FAILED: *ret = FRAME_FAILED_MAX; return 0;
        case FRAME_SUBMIT: *ret = SUBMIT_HEAD + TURN_SUBMIT_MAX; return 0;
        case FRAME_DONE: *ret = DONE_MAX; return 0;
        default: return -EPROTO;
        }
}

static uint32_t get_u32(const char *p) {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        return v;
}

void frames_init(struct frames *f) {
        buf_init(&f->in, IN_MAX);
        f->used = 0;
}

void frames_release(struct frames *f) { buf_release(&f->in); }

/* The head of what is there, if it is whole. */
static int head(const struct frames *f, size_t *ret_n) {
        if (f->in.len < FRAME_HEAD)
                return 0;
        size_t most, n = get_u32(f->in.data);
        int r = limit_of(f->in.data[4], &most);
        if (r < 0 || n > most)
                return -EPROTO;
        *ret_n = n;
        return 1;
}

static void drop_used(struct frames *f) {
        if (f->used > 0)
                buf_consume(&f->in, f->used);
        f->used = 0;
}

int frames_feed(struct frames *f, const void *p, size_t n) {
        size_t ignored;
        drop_used(f);
        int r = buf_add(&f->in, p, n);
        if (r == -ENOSPC)
                return -EPROTO;        /* the caller takes frames out as they become whole */
        return r < 0 ? r : MIN2(head(f, &ignored), 0);
}

int frames_next(struct frames *f, struct frame *ret) {
        size_t n;
        drop_used(f);
        int r = head(f, &n);
        if (r <= 0 || f->in.len < FRAME_HEAD + n)
                return MIN2(r, 0);
        *ret = (struct frame){ .kind = (enum frame_kind)f->in.data[4], .p = f->in.data + FRAME_HEAD, .n = n };
        f->used = FRAME_HEAD + n;
        return 1;
}

int frame_submit_decode(const struct frame *f, struct frame_submit *ret) {
        if (f->kind != FRAME_SUBMIT || f->n < SUBMIT_HEAD)
                return -EPROTO;
        struct frame_submit s = { .sequence = get_u32(f->p + 8), .json = f->p + SUBMIT_HEAD, .n = f->n - SUBMIT_HEAD };
        memcpy(&s.action, f->p, sizeof s.action);
        *ret = s;
        return 0;
}

static int take_part(const char **p, size_t *left, size_t most, const char **ret, size_t *ret_n) {
        if (*left < 4)
                return -EPROTO;
        size_t n = get_u32(*p);
        if (n > *left - 4 || n > most || !utf8_valid(*p + 4, n))
                return -EPROTO;
        *ret = *p + 4;
        *ret_n = n;
        *p += 4 + n;
        *left -= 4 + n;
        return 0;
}

int frame_done_decode(const struct frame *f, uint64_t *ret_action, struct turn_reply *ret) {
        struct turn_reply d = { 0 };
        if (f->kind != FRAME_DONE || f->n < DONE_HEAD || (unsigned char)f->p[8] >= TURN_ERROR_KIND_MAX)
                return -EPROTO;
        d.kind = (enum turn_error_kind)f->p[8];
        const char *p = f->p + DONE_HEAD;
        size_t left = f->n - DONE_HEAD;
        int r = take_part(&p, &left, TURN_NAME_MAX, &d.error_type, &d.error_type_len);
        if (r == 0)
                r = take_part(&p, &left, TURN_ERROR_MAX, &d.error, &d.error_len);
        if (r == 0)
                r = take_part(&p, &left, TURN_TOOL_ERROR_MAX, &d.tool_error, &d.tool_error_len);
        if (r < 0 || left > 0 || (d.kind == TURN_ERROR_TOOL) != (d.tool_error_len > 0))
                return -EPROTO;
        struct json v;
        if (d.tool_error_len > 0 && (json_parse(d.tool_error, d.tool_error_len, &v, NULL) < 0 || v.type != JSON_OBJECT))
                return -EPROTO;
        memcpy(ret_action, f->p, sizeof *ret_action);
        *ret = d;
        return 0;
}

/* ---- ours ---- */

static int put_head(struct buf *b, enum frame_kind kind, size_t n) {
        uint32_t length = (uint32_t)n;
        int r = buf_reserve(b, FRAME_HEAD + n);
        if (r == 0)
                r = buf_add(b, &length, sizeof length);
        return r < 0 ? r : buf_addc(b, (char)kind);
}

int frame_put(struct buf *b, enum frame_kind kind, const void *p, size_t n) {
        int r = put_head(b, kind, n);
        return r < 0 ? r : buf_add(b, p, n);
}

int frame_put_execute(struct buf *b, uint64_t action, const char *code, size_t code_len, const char *variables, size_t variables_len) {
        uint32_t length = (uint32_t)code_len;
        int r = put_head(b, FRAME_EXECUTE, sizeof action + sizeof length + code_len + variables_len);
        if (r < 0)
                return r;
        buf_add(b, &action, sizeof action);        /* the room is there */
        buf_add(b, &length, sizeof length);
        buf_add(b, code, code_len);
        return buf_add(b, variables, variables_len);
}

int frame_put_answer(struct buf *b, uint32_t sequence, bool accepted, const char *text) {
        size_t n = strlen(text);
        int r = put_head(b, FRAME_ANSWER, sizeof sequence + 1 + n);
        if (r < 0)
                return r;
        buf_add(b, &sequence, sizeof sequence);
        buf_addc(b, accepted ? 1 : 0);
        return buf_add(b, text, n);
}

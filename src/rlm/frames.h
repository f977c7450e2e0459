/* What daemon and driver say to each other on a turn's control socket: frames of a length (4 bytes, of the payload), a kind (1 byte) and
 * a payload, numbers in the machine's order. Both ends are of one build; the other end is hostile all the same, for it is the turn's code.
 *
 * A reader takes bytes as they come and gives whole frames. Each kind has its own limit, which is checked before anything is kept. */
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "rlm/interpreter.h"

#define FRAME_HEAD 5u

enum frame_kind {
        FRAME_HELLO = 'H',         /* from the process: it is there */
        FRAME_BEGUN = 'B',
        FRAME_FAILED = 'X',        /* text: it could not begin */
        FRAME_SUBMIT = 'S',        /* u64 action, u32 sequence, JSON */
        FRAME_DONE = 'D',          /* u64 action, u8 turn_error_kind, three times u32 length and bytes: type, text, tool error */
        FRAME_BEGIN = 'b',         /* to the process: JSON */
        FRAME_EXECUTE = 'e',       /* u64 action, u32 length, code, variables */
        FRAME_ANSWER = 'A',        /* u32 sequence, u8 accepted, text */
};
#define FRAME_FAILED_MAX 512u

struct frames { struct buf in; size_t used; };         /* used: what the frame that was given last takes */
struct frame { enum frame_kind kind; const char *p; size_t n; };       /* valid until the next frames_* */

void frames_init(struct frames *f);
void frames_release(struct frames *f);
/* Bytes that have come. 0, or -EPROTO: they begin a frame that no process may send, or one too long. -ENOMEM. */
int frames_feed(struct frames *f, const void *p, size_t n);
/* 1 and a frame; 0: more bytes are needed; -EPROTO. */
int frames_next(struct frames *f, struct frame *ret);

struct frame_submit { uint64_t action; uint32_t sequence; const char *json; size_t n; };
/* -EPROTO. Whether `json` is some is not looked at. */
int frame_submit_decode(const struct frame *f, struct frame_submit *ret);
/* -EPROTO: lengths, kinds, text that is no UTF-8, a tool error that is no JSON object, or one where there should be none. */
int frame_done_decode(const struct frame *f, uint64_t *ret_action, struct turn_reply *ret);

/* All append a whole frame. */
int frame_put(struct buf *b, enum frame_kind kind, const void *p, size_t n);
int frame_put_execute(struct buf *b, uint64_t action, const char *code, size_t code_len, const char *variables, size_t variables_len);
int frame_put_answer(struct buf *b, uint32_t sequence, bool accepted, const char *text);

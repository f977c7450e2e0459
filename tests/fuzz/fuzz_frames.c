/* What a turn's process writes to its control socket, in pieces (the first byte says how long each is): no crash, no frame over its kind's
 * limit, no text that is not UTF-8, and nothing kept beyond the longest frame. */
#include "base/utf8.h"
#include "fuzz.h"
#include "rlm/frames.h"

#define KEPT_MAX (TURN_SUBMIT_MAX + (2u << 20))

static void look(const struct frame *f) {
        struct frame_submit s;
        struct turn_reply d;
        uint64_t action;
        ASSERT(f->kind == FRAME_HELLO || f->kind == FRAME_BEGUN || f->kind == FRAME_FAILED || f->kind == FRAME_SUBMIT || f->kind == FRAME_DONE);
        if (frame_submit_decode(f, &s) == 0)
                ASSERT(s.n <= TURN_SUBMIT_MAX && s.json + s.n == f->p + f->n);
        if (frame_done_decode(f, &action, &d) < 0)
                return;
        ASSERT(d.kind < TURN_ERROR_KIND_MAX && d.error_type_len <= TURN_NAME_MAX && d.error_len <= TURN_ERROR_MAX && d.tool_error_len <= TURN_TOOL_ERROR_MAX);
        ASSERT(utf8_valid(d.error_type, d.error_type_len) && utf8_valid(d.error, d.error_len) && utf8_valid(d.tool_error, d.tool_error_len));
        ASSERT((d.kind == TURN_ERROR_TOOL) == (d.tool_error_len > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size < 1)
                return 0;
        size_t piece = (size_t)data[0] + 1;
        struct frames frames;
        struct frame f;
        frames_init(&frames);
        for (size_t at = 1; at < size; at += piece) {
                int r = frames_feed(&frames, data + at, MIN2(piece, size - at));
                while (r >= 0 && (r = frames_next(&frames, &f)) > 0)
                        look(&f);
                ASSERT(frames.in.len <= KEPT_MAX);
                if (r < 0)
                        break;
        }
        frames_release(&frames);
        return 0;
}

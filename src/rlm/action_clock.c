#include "rlm/action_clock.h"

static void count(struct action_clock *c, uint64_t now_ms) {
        uint64_t passed = now_ms > c->at_ms ? now_ms - c->at_ms : 0;
        if (c->waiting) {
                uint64_t of_host = MIN2(passed, c->host_left_ms);
                c->host_left_ms -= of_host;
                c->host_used_ms += of_host;
                passed -= of_host;
        }
        c->compute_left_ms -= MIN2(passed, c->compute_left_ms);
        c->at_ms = MAX2(c->at_ms, now_ms);
}

void action_clock_start(struct action_clock *c, uint64_t now_ms, uint64_t timeout_ms, uint64_t host_wait_ms) {
        *c = (struct action_clock){ .at_ms = now_ms, .compute_left_ms = timeout_ms, .host_left_ms = host_wait_ms };
}

void action_clock_wait(struct action_clock *c, uint64_t now_ms, bool waiting) {
        count(c, now_ms);
        c->waiting = waiting;
}

uint64_t action_clock_deadline(struct action_clock *c, uint64_t now_ms) {
        count(c, now_ms);
        return c->at_ms + c->compute_left_ms + (c->waiting ? c->host_left_ms : 0);
}

uint64_t action_clock_wait_deadline(struct action_clock *c, uint64_t now_ms) {
        count(c, now_ms);
        return c->at_ms + c->compute_left_ms + c->host_left_ms;
}

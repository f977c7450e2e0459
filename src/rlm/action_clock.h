/* The two clocks of an action. The code has `timeout`; while it waits for its host (a call is pending) that clock stands still, up to
 * `host_wait` in all. So the wall time of an action is at most the sum, whatever threads do: one that computes while another waits uses
 * up the host's share, and after that its own. Pure: the time is passed in, ms. */
#pragma once
#include <stdbool.h>

#include "base/macros.h"

struct action_clock {
        uint64_t at_ms;                    /* up to when it is counted */
        uint64_t compute_left_ms, host_left_ms, host_used_ms;
        bool waiting;
};

void action_clock_start(struct action_clock *c, uint64_t now_ms, uint64_t timeout_ms, uint64_t host_wait_ms);
/* A call became pending where none was, or the last one ended. */
void action_clock_wait(struct action_clock *c, uint64_t now_ms, bool waiting);
/* When the action's time is up if nothing changes: it stays the same as long as nothing does. */
uint64_t action_clock_deadline(struct action_clock *c, uint64_t now_ms);
/* When it would be up for somebody who begins to wait now. */
uint64_t action_clock_wait_deadline(struct action_clock *c, uint64_t now_ms);

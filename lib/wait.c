/* When to ask again. An endpoint that holds its answers back is asked once; another one at growing intervals. */
#include "internal.h"

void poll_start(struct poll *p, const struct brig_wait *w, double timeout) {
        double t = now();
        *p = (struct poll){
                .interval = w && w->poll_interval > 0 ? w->poll_interval : 2, .asked = t, .answered = t,
                .deadline = t + (w && w->overall_timeout > 0 ? w->overall_timeout : timeout),
        };
        p->rest = MIN2(POLL_FIRST_S, p->interval);
}

double poll_ask(struct poll *p) {
        p->asked = now();
        double left = p->deadline - p->asked;
        return p->wait = left < 0 ? 0 : MIN2(WAIT_S, left);
}

void poll_rest(struct poll *p) {
        p->answered = now();
        if (p->answered - p->asked >= MIN2(1.0, p->wait / 2))
                return;
        rest(MIN2(p->rest, MAX2(p->deadline - p->answered, 0.001)));
        p->rest = MIN2(p->rest * 2, p->interval);
}

#include "rlm/child_quota.h"

enum child_answer child_quota_take(struct child_quota *q) {
        if (q->closed)
                return CHILD_CLOSED;
        if (q->used >= q->most)
                return CHILD_TOO_MANY;
        if (q->alive >= q->most_alive)
                return CHILD_TOO_MANY_ALIVE;
        q->used++;
        q->alive++;
        return CHILD_OK;
}

void child_quota_not_started(struct child_quota *q) {
        ASSERT(q->used > 0 && q->alive > 0);
        q->used--;
}

void child_quota_gone(struct child_quota *q) {
        ASSERT(q->alive > 0);
        q->alive--;
}

/* What is known of an instance without the agent's patch: a run at base, and one with the gold patch. The rules that speak of base or gold hold where there is
 * one; without it score_verdict tolerates, and says so in `unverified`.
 *
 * Counted references; loop thread only. Immutable once made. */
#pragma once
#include "score/record.h"

struct control {
        unsigned refs;
        struct test_results base, gold;
        char *tree_hash, *image_digest;    /* of the gold run: of another tree or image it says nothing; NULL: there was none */
        char *broken;                      /* the environment does not do what its data says, and how; NULL: it does */
};

/* From the records of both runs, whose results are taken over. Neither is an infra_error. NULL: no memory. */
struct control *control_new(struct score_record *base, struct score_record *gold);
static inline struct control *control_ref(struct control *c) {
        if (c)
                c->refs++;
        return c;
}
void control_unref(struct control *c);     /* NULL is fine */
/* Does it speak of what this record is about? */
bool control_fits(const struct control *c, const struct score_record *r);

/* Makes of a whole request that of one of the runs; the gold patch is in none but GOLD's, as the patch. -ENOMEM. */
enum control_step { CONTROL_TASK, CONTROL_BASE, CONTROL_GOLD };
int control_shape(struct score_request *q, enum control_step step);
/* Names what a control run depends on: of a stored body, all but the agent's part and what only describes the task. */
int control_key(const char *body, size_t n, char ret[static 65]);

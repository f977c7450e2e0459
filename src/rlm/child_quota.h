/* How many children a turn may have: `most` in its life, `most_alive` at a time. One that never started gives its place back; one that did has
 * used it up, and stays counted as alive until nothing of it is left.
 *
 *     (none) ──take──> STARTING ──started──> ALIVE ──gone──> (none), its place used up
 *                         └──not_started──> GOING ──gone──> (none), its place given back
 *
 * Once closed, none is taken. Pure; one thread. */
#pragma once
#include <stdbool.h>

#include "base/macros.h"

#define CHILDREN_MAX_DEFAULT 4u
#define CHILDREN_ALIVE_MAX 4u

enum child_answer { CHILD_OK, CHILD_CLOSED /* the turn is over, or has not begun */, CHILD_TOO_MANY /* in the turn's life */, CHILD_TOO_MANY_ALIVE };

struct child_quota { unsigned most, most_alive, used, alive; bool closed; };

enum child_answer child_quota_take(struct child_quota *q);
void child_quota_not_started(struct child_quota *q);       /* of one that was taken; `gone` follows */
void child_quota_gone(struct child_quota *q);              /* nothing of it is left */

#include <string.h>

#include "base/hash.h"
#include "rlm/lease.h"

static const char *const call_state_names[] = { "queued", "claimed", "settled", "taken", "abandoned" };
STRING_TABLE(call_state, call_state_names, CALL_STATE_MAX)

static const char *const lease_answer_names[] = {
        "ok", "stale lease", "duplicate result", "duplicate call", "unknown call", "invocation is not executing", "the wait for the host's answer is over",
        "bad call id", "too many tool calls in this turn", "too many tool calls at a time", "too many prompts in this turn", "out of memory",
};
STRING_TABLE(lease_answer, lease_answer_names, LEASE_ANSWER_MAX)

void leases_limits_default(struct leases_limits *ret) {
        *ret = (struct leases_limits){ .calls = LEASE_CALLS_MAX, .pending = LEASE_PENDING_MAX, .prompts = LEASE_PROMPTS_MAX };
}

static const char *call_key(const struct map_node *n) { return container_of(n, struct lease_call, node)->id; }

int leases_init(struct leases *l, const struct leases_limits *limits, void (*token)(char ret[static LEASE_TOKEN_SIZE], void *user),
                void (*answer)(struct lease_call *c, enum lease_answer a, void *user), void *user) {
        *l = (struct leases){ .limits = *limits, .token = token, .answer = answer, .user = user };
        l->waiting_last = &l->waiting;
        return map_init(&l->calls, call_key);
}

void leases_release(struct leases *l) {
        while (l->newest) {
                struct lease_call *c = l->newest;
                l->newest = c->older;
                free(c);
        }
        map_release(&l->calls);
        *l = (struct leases){ 0 };
        l->waiting_last = &l->waiting;
}

struct lease_call *leases_find(const struct leases *l, const char *id) {
        struct map_node *n = map_find(&l->calls, id);
        return n ? container_of(n, struct lease_call, node) : NULL;
}

/* ---- who waits ------------------------------------------------------------------------------------------------------------------- */

static void wait_begin(struct leases *l, struct lease_call *c) {
        c->at = l->waiting_last;
        *l->waiting_last = c;
        l->waiting_last = &c->next;
        l->n_waiting++;
        l->n_queued++;
}

static void wait_end(struct leases *l, struct lease_call *c) {
        if (c->state == CALL_QUEUED)
                l->n_queued--;
        l->n_waiting--;
        *c->at = c->next;
        if (c->next)
                c->next->at = c->at;
        else
                l->waiting_last = c->at;
        c->next = NULL;
        c->at = NULL;
}

static void abandon(struct leases *l, struct lease_call *c, enum lease_answer why) {
        wait_end(l, c);
        c->state = CALL_ABANDONED;
        l->answer(c, why, l->user);
}

void leases_begin_action(struct leases *l) { l->executing = !l->closed; }

void leases_end_action(struct leases *l) {
        l->executing = false;
        while (l->waiting)
                abandon(l, l->waiting, LEASE_NOT_EXECUTING);
}

void leases_close(struct leases *l) {
        l->closed = true;
        leases_end_action(l);
}

void leases_expire(struct leases *l, uint64_t now_ms) {
        for (struct lease_call *c = l->waiting, *next; c; c = next) {
                next = c->next;
                if (c->ends_at_ms <= now_ms)
                        abandon(l, c, LEASE_TIMEOUT);
        }
}

uint64_t leases_next_end(const struct leases *l) {
        uint64_t at = UINT64_MAX;
        for (const struct lease_call *c = l->waiting; c; c = c->next)
                at = MIN2(at, c->ends_at_ms);
        return at;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------------ */

static bool id_ok(const char *id, size_t n) {
        if (n == 0 || n > LEASE_ID_MAX)
                return false;
        for (size_t i = 0; i < n; i++) {
                char c = id[i];
                bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                if (!letter && c != '.' && c != '_' && c != ':' && c != '-')
                        return false;
        }
        return true;
}

static enum lease_answer within_limits(const struct leases *l, unsigned prompts) {
        if (l->n_calls >= l->limits.calls)
                return LEASE_TOO_MANY_CALLS;
        if (l->n_waiting >= l->limits.pending)
                return LEASE_TOO_MANY_PENDING;
        if (prompts > l->limits.prompts - l->n_prompts)
                return LEASE_TOO_MANY_PROMPTS;
        return LEASE_OK;
}

enum lease_answer leases_call(struct leases *l, const char *id, size_t id_len, unsigned prompts, uint64_t ends_at_ms, void *user,
                              struct lease_call **ret) {
        char name[LEASE_ID_MAX + 1];
        if (id && !id_ok(id, id_len))
                return LEASE_BAD_ID;
        if (!l->executing)
                return LEASE_NOT_EXECUTING;
        if (id) {
                memcpy(name, id, id_len);
                name[id_len] = 0;
                if (leases_find(l, name))
                        return LEASE_DUPLICATE_CALL;
        }
        enum lease_answer a = within_limits(l, prompts);
        if (a != LEASE_OK)
                return a;
        if (!id)
                do
                        snprintf(name, sizeof name, "c%u", ++l->next_id);
                while (leases_find(l, name));          /* at most as often as there are calls */
        size_t n = strlen(name);
        struct lease_call *c = calloc(1, sizeof *c + n + 1);
        if (!c)
                return LEASE_NO_MEMORY;
        memcpy(c->id, name, n + 1);
        c->ends_at_ms = ends_at_ms;
        c->user = user;
        ASSERT(map_add(&l->calls, &c->node) == 0);
        c->older = l->newest;
        l->newest = c;
        l->n_calls++;
        l->n_prompts += prompts;
        wait_begin(l, c);
        *ret = c;
        return LEASE_OK;
}

size_t leases_claim(struct leases *l, void (*each)(struct lease_call *c, void *user), void *user) {
        size_t n = 0;
        for (struct lease_call *c = l->waiting; c && l->n_queued > 0; c = c->next) {
                if (c->state != CALL_QUEUED)
                        continue;
                l->token(c->lease, l->user);
                c->state = CALL_CLAIMED;
                l->n_queued--;
                n++;
                each(c, user);
        }
        return n;
}

/* ---- results ---------------------------------------------------------------------------------------------------------------------- */

static bool lease_is(const struct lease_call *c, const char *lease) {
        return c->lease[0] && strlen(lease) == LEASE_TOKEN_SIZE - 1 && secret_equal(c->lease, lease, LEASE_TOKEN_SIZE - 1);
}

enum lease_answer leases_check(struct leases *l, const char *id, const char *lease, struct lease_call **ret_call) {
        struct lease_call *c = leases_find(l, id);
        if (!c)
                return LEASE_UNKNOWN_CALL;
        if (!lease_is(c, lease))
                return LEASE_STALE;
        if (c->state == CALL_SETTLED)
                return LEASE_DUPLICATE_RESULT;
        if (c->state != CALL_CLAIMED)
                return LEASE_DUPLICATE_CALL;
        if (ret_call)
                *ret_call = c;
        return LEASE_OK;
}

enum lease_answer leases_settle(struct leases *l, const char *id, const char *lease) {
        struct lease_call *c;
        enum lease_answer a = leases_check(l, id, lease, &c);
        if (a != LEASE_OK)
                return a;
        wait_end(l, c);
        c->state = CALL_SETTLED;
        l->answer(c, LEASE_OK, l->user);
        return LEASE_OK;
}

void lease_taken(struct leases *l, struct lease_call *c) {
        if (c->state == CALL_SETTLED)
                c->state = CALL_TAKEN;
}

void lease_gone(struct leases *l, struct lease_call *c) {
        if (c->at)
                wait_end(l, c);
        if (c->state != CALL_TAKEN)
                c->state = CALL_ABANDONED;
}

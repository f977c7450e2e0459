#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rlm/lease.h"

/* ---- single rules ------------------------------------------------------------------------------------------------------------- */

struct bed {
        struct leases l;
        unsigned tokens;
        unsigned answers[LEASE_ANSWER_MAX];
        char claimed[1024];
};

static void make_token(char ret[static LEASE_TOKEN_SIZE], void *user) {
        struct bed *b = user;
        snprintf(ret, LEASE_TOKEN_SIZE, "%032x", ++b->tokens);
}

static void on_answer(struct lease_call *c, enum lease_answer a, void *user) { ((struct bed *)user)->answers[a]++; }

static void bed_init(struct bed *b, unsigned calls, unsigned pending, unsigned prompts) {
        const struct leases_limits limits = { .calls = calls, .pending = pending, .prompts = prompts };
        *b = (struct bed){ 0 };
        assert_int_equal(leases_init(&b->l, &limits, make_token, on_answer, b), 0);
        leases_begin_action(&b->l);
}

static void note(struct lease_call *c, void *user) {
        struct bed *b = user;
        size_t at = strlen(b->claimed);
        snprintf(b->claimed + at, sizeof b->claimed - at, "%s ", c->id);
}

static enum lease_answer call(struct bed *b, const char *id, unsigned prompts, struct lease_call **ret) {
        struct lease_call *unused;
        return leases_call(&b->l, id, id ? strlen(id) : 0, prompts, 1000, NULL, ret ? ret : &unused);
}

static void a_claim_issues_every_unclaimed_call_once_in_order(void **state) {
        struct bed b;
        bed_init(&b, 256, 64, 32);
        call(&b, "a", 0, NULL);
        call(&b, "b", 0, NULL);
        assert_int_equal(leases_claim(&b.l, note, &b), 2);
        call(&b, "c", 0, NULL);
        assert_int_equal(leases_claim(&b.l, note, &b), 1);
        assert_int_equal(leases_claim(&b.l, note, &b), 0);
        assert_string_equal(b.claimed, "a b c ");
        leases_release(&b.l);
}

static void an_id_that_is_not_given_is_one_that_nobody_used(void **state) {
        struct bed b;
        struct lease_call *c;
        bed_init(&b, 256, 64, 32);
        assert_int_equal(call(&b, "c1", 0, NULL), LEASE_OK);
        assert_int_equal(call(&b, NULL, 0, &c), LEASE_OK);
        assert_string_equal(c->id, "c2");
        leases_release(&b.l);
}

static void ids_are_of_a_small_set(void **state) {
        struct bed b;
        char longest[LEASE_ID_MAX + 2];
        bed_init(&b, 256, 64, 32);
        memset(longest, 'x', sizeof longest);
        longest[LEASE_ID_MAX + 1] = 0;
        assert_int_equal(call(&b, longest, 0, NULL), LEASE_BAD_ID);
        longest[LEASE_ID_MAX] = 0;
        assert_int_equal(call(&b, longest, 0, NULL), LEASE_OK);
        assert_int_equal(call(&b, "", 0, NULL), LEASE_BAD_ID);
        assert_int_equal(call(&b, "a b", 0, NULL), LEASE_BAD_ID);
        assert_int_equal(call(&b, "a\xc3\xa4", 0, NULL), LEASE_BAD_ID);
        assert_int_equal(leases_call(&b.l, "a\0b", 3, 0, 0, NULL, NULL), LEASE_BAD_ID);
        leases_release(&b.l);
}

static void the_limits_hold_exactly(void **state) {
        struct bed b;
        struct lease_call *c[4];
        bed_init(&b, 4, 3, 5);
        for (int i = 0; i < 3; i++)
                assert_int_equal(call(&b, NULL, 0, &c[i]), LEASE_OK);
        assert_int_equal(call(&b, NULL, 0, NULL), LEASE_TOO_MANY_PENDING);
        lease_gone(&b.l, c[0]);
        assert_int_equal(call(&b, NULL, 6, NULL), LEASE_TOO_MANY_PROMPTS);
        assert_int_equal(call(&b, NULL, 5, NULL), LEASE_OK);
        lease_gone(&b.l, c[1]);
        assert_int_equal(call(&b, NULL, 0, NULL), LEASE_TOO_MANY_CALLS);
        leases_release(&b.l);
}

static void a_batch_of_prompts_is_reserved_as_a_whole_for_the_turn(void **state) {
        struct bed b;
        bed_init(&b, 256, 64, 32);
        assert_int_equal(call(&b, NULL, 30, NULL), LEASE_OK);
        leases_end_action(&b.l);
        leases_begin_action(&b.l);
        assert_int_equal(call(&b, NULL, 3, NULL), LEASE_TOO_MANY_PROMPTS);
        assert_int_equal(call(&b, NULL, UINT32_MAX, NULL), LEASE_TOO_MANY_PROMPTS);
        assert_int_equal(call(&b, NULL, 2, NULL), LEASE_OK);
        assert_int_equal(call(&b, NULL, 1, NULL), LEASE_TOO_MANY_PROMPTS);
        leases_release(&b.l);
}

static void waits_end_when_their_time_comes_not_before(void **state) {
        struct bed b;
        bed_init(&b, 256, 64, 32);
        struct lease_call *early, *late;
        leases_call(&b.l, "early", 5, 0, 100, NULL, &early);
        leases_call(&b.l, "late", 4, 0, 200, NULL, &late);
        assert_int_equal(leases_next_end(&b.l), 100);
        leases_expire(&b.l, 99);
        assert_int_equal(b.answers[LEASE_TIMEOUT], 0);
        leases_expire(&b.l, 100);
        assert_int_equal(b.answers[LEASE_TIMEOUT], 1);
        assert_int_equal(early->state, CALL_ABANDONED);
        assert_int_equal(leases_next_end(&b.l), 200);
        leases_expire(&b.l, 300);
        assert_int_equal(leases_next_end(&b.l), UINT64_MAX);
        leases_release(&b.l);
}

static void a_result_is_told_by_its_lease_first(void **state) {
        struct bed b;
        struct lease_call *c;
        char mine[LEASE_TOKEN_SIZE];
        bed_init(&b, 256, 64, 32);
        assert_int_equal(leases_settle(&b.l, "a", ""), LEASE_UNKNOWN_CALL);
        call(&b, "a", 0, &c);
        assert_int_equal(leases_settle(&b.l, "a", ""), LEASE_STALE);           /* never claimed */
        leases_claim(&b.l, note, &b);
        memcpy(mine, c->lease, sizeof mine);
        assert_int_equal(leases_settle(&b.l, "a", "00000000000000000000000000000099"), LEASE_STALE);
        assert_int_equal(leases_settle(&b.l, "a", "0"), LEASE_STALE);
        assert_int_equal(leases_settle(&b.l, "a", mine), LEASE_OK);
        assert_int_equal(leases_settle(&b.l, "a", mine), LEASE_DUPLICATE_RESULT);
        assert_int_equal(leases_settle(&b.l, "a", "0"), LEASE_STALE);
        lease_taken(&b.l, c);
        assert_int_equal(leases_settle(&b.l, "a", mine), LEASE_DUPLICATE_CALL);
        assert_int_equal(leases_settle(&b.l, "a", "0"), LEASE_STALE);
        assert_int_equal(call(&b, "a", 0, NULL), LEASE_DUPLICATE_CALL);
        leases_release(&b.l);
}

static void a_closed_turn_never_executes_again(void **state) {
        struct bed b;
        bed_init(&b, 256, 64, 32);
        call(&b, "a", 0, NULL);
        leases_close(&b.l);
        assert_int_equal(b.answers[LEASE_NOT_EXECUTING], 1);
        leases_begin_action(&b.l);
        assert_int_equal(call(&b, "b", 0, NULL), LEASE_NOT_EXECUTING);
        assert_int_equal(leases_claim(&b.l, note, &b), 0);
        leases_release(&b.l);
}

/* ---- every interleaving --------------------------------------------------------------------------------------------------------
 *
 * The world has two call ids. An event is one word of a caller, of the host, of time, or of the turn; a path is a sequence of them. Every
 * path up to DEPTH is run against the machine and against a model that is written from the rules and keeps nothing but what the
 * parties themselves saw. Beyond that depth all states that paths can lead to are visited once, until no new one is found. */

#define IDS 2
#define DEPTH 5

enum event {
        CALL_A, CALL_B, CLAIM, RESULT_A, RESULT_B, FORGED_A /* with B's lease */, FORGED_B, OLD_A /* with the lease that A had before the restart */,
        TAKEN_A, TAKEN_B, GONE_A, GONE_B, WAITS_END, ACTION_END, ACTION_BEGIN, CANCEL, RESTART, EVENTS
};

enum told { TOLD_NOTHING, TOLD_RESULT, TOLD_TIMEOUT, TOLD_NOT_EXECUTING, TOLD_SILENT /* gone, or cut off by the restart */ };

struct party {                 /* what caller and host of one id saw */
        bool called, claimed, settled, taken, over;
        enum told told;
        struct lease_call *c;
        char lease[LEASE_TOKEN_SIZE], old[LEASE_TOKEN_SIZE];
};
struct world {
        struct leases l;
        struct party p[IDS];
        bool executing, cancelled;
        unsigned tokens, issued;
};

static const char *const ids[IDS] = { "A", "B" };

static void world_token(char ret[static LEASE_TOKEN_SIZE], void *user) {
        snprintf(ret, LEASE_TOKEN_SIZE, "%032x", ++((struct world *)user)->tokens);
}

/* A caller hears one answer, and only while it waits. */
static void world_answer(struct lease_call *c, enum lease_answer a, void *user) {
        struct world *w = user;
        struct party *p = &w->p[c->id[0] - 'A'];
        assert_ptr_equal(p->c, c);
        assert_int_equal(p->told, TOLD_NOTHING);
        assert_false(p->over);
        assert_true(a == LEASE_OK || a == LEASE_TIMEOUT || a == LEASE_NOT_EXECUTING);
        p->told = a == LEASE_OK ? TOLD_RESULT : a == LEASE_TIMEOUT ? TOLD_TIMEOUT : TOLD_NOT_EXECUTING;
        p->over = true;
}

static void world_open(struct world *w) {
        static const struct leases_limits limits = { .calls = 8, .pending = 4, .prompts = 4 };
        assert_int_equal(leases_init(&w->l, &limits, world_token, world_answer, w), 0);
        leases_begin_action(&w->l);
        w->executing = true;
        w->cancelled = false;
}

/* A lease goes out once, for a call that waits, and is like no other. */
static void world_claimed(struct lease_call *c, void *user) {
        struct world *w = user;
        struct party *p = &w->p[c->id[0] - 'A'];
        assert_true(p->called && !p->claimed && !p->over);
        p->claimed = true;
        memcpy(p->lease, c->lease, sizeof p->lease);
        for (int i = 0; i < IDS; i++)
                assert_true(&w->p[i] == p || strcmp(w->p[i].lease, p->lease) != 0);
        w->issued++;
}

static bool waits(const struct party *p) { return p->called && !p->over; }

static void do_call(struct world *w, int i) {
        struct party *p = &w->p[i];
        enum lease_answer want = !w->executing ? LEASE_NOT_EXECUTING : p->called ? LEASE_DUPLICATE_CALL : LEASE_OK;
        assert_int_equal(leases_call(&w->l, ids[i], 1, 1, 100, NULL, &p->c), want);
        if (want == LEASE_OK)
                p->called = true;
}

static void do_claim(struct world *w) {
        size_t want = 0;
        for (int i = 0; i < IDS; i++)
                want += waits(&w->p[i]) && !w->p[i].claimed;
        assert_int_equal(leases_claim(&w->l, world_claimed, w), want);
}

static void do_result(struct world *w, int i, const char *lease) {
        struct party *p = &w->p[i];
        enum lease_answer want = !p->called ? LEASE_UNKNOWN_CALL
                                 : !p->claimed || strcmp(lease, p->lease) != 0 ? LEASE_STALE
                                 : waits(p) ? LEASE_OK
                                 : p->settled && !p->taken && p->told == TOLD_RESULT ? LEASE_DUPLICATE_RESULT
                                 : LEASE_DUPLICATE_CALL;
        assert_int_equal(leases_settle(&w->l, ids[i], lease), want);
        if (want == LEASE_OK) {
                assert_int_equal(p->told, TOLD_RESULT);        /* at once */
                p->settled = true;
        }
}

static void do_taken(struct world *w, int i) {
        if (w->p[i].told != TOLD_RESULT)       /* a broker says it of answers only */
                return;
        lease_taken(&w->l, w->p[i].c);
        w->p[i].taken = true;
}

static void do_gone(struct world *w, int i) {
        struct party *p = &w->p[i];
        if (!p->called || p->taken)
                return;
        lease_gone(&w->l, p->c);
        p->over = true;
        p->told = TOLD_SILENT;
}

static void end_waits(struct world *w, enum told how) {
        bool waited[IDS];
        for (int i = 0; i < IDS; i++)
                waited[i] = waits(&w->p[i]);
        if (how == TOLD_TIMEOUT)
                leases_expire(&w->l, 100);
        else if (w->cancelled)
                leases_close(&w->l);
        else
                leases_end_action(&w->l);
        for (int i = 0; i < IDS; i++)
                if (waited[i])
                        assert_int_equal(w->p[i].told, how);
}

/* Everything of before is unknown; callers' connections died with it. */
static void do_restart(struct world *w) {
        leases_release(&w->l);
        for (int i = 0; i < IDS; i++) {
                struct party fresh = { 0 };
                memcpy(fresh.old, w->p[i].claimed ? w->p[i].lease : w->p[i].old, sizeof fresh.old);
                w->p[i] = fresh;
        }
        world_open(w);
}

static void step(struct world *w, enum event e) {
        switch (e) {
        case CALL_A: case CALL_B: do_call(w, e - CALL_A); break;
        case CLAIM: do_claim(w); break;
        case RESULT_A: case RESULT_B: do_result(w, e - RESULT_A, w->p[e - RESULT_A].lease); break;
        case FORGED_A: do_result(w, 0, w->p[1].lease); break;
        case FORGED_B: do_result(w, 1, w->p[0].lease); break;
        case OLD_A: do_result(w, 0, w->p[0].old); break;
        case TAKEN_A: case TAKEN_B: do_taken(w, e - TAKEN_A); break;
        case GONE_A: case GONE_B: do_gone(w, e - GONE_A); break;
        case WAITS_END: end_waits(w, TOLD_TIMEOUT); break;
        case ACTION_END: w->executing = false; end_waits(w, TOLD_NOT_EXECUTING); break;
        case ACTION_BEGIN: leases_begin_action(&w->l); w->executing = !w->cancelled; break;
        case CANCEL: w->cancelled = true; w->executing = false; end_waits(w, TOLD_NOT_EXECUTING); break;
        case RESTART: do_restart(w); break;
        case EVENTS: break;
        }
}

/* No caller waits for ever: whoever was neither answered nor gone is in the list of those that wait, which time ends. */
static void nothing_is_lost(struct world *w) {
        unsigned waiting = 0, queued = 0;
        for (int i = 0; i < IDS; i++) {
                waiting += waits(&w->p[i]);
                queued += waits(&w->p[i]) && !w->p[i].claimed;
        }
        assert_int_equal(w->l.n_waiting, waiting);
        assert_int_equal(w->l.n_queued, queued);
        assert_true(leases_next_end(&w->l) == (waiting ? 100 : UINT64_MAX));
        assert_int_equal(w->issued, w->tokens);
}

static void run_path(const unsigned char *path, size_t n, struct world *w) {
        *w = (struct world){ 0 };
        world_open(w);
        for (size_t i = 0; i < n; i++) {
                step(w, (enum event)path[i]);
                nothing_is_lost(w);
        }
}

static void every_path_of_some_length_keeps_the_rules(void **state) {
        unsigned char path[DEPTH] = { 0 };
        struct world w;
        for (size_t paths = 0;; paths++) {
                run_path(path, DEPTH, &w);
                leases_release(&w.l);
                size_t at = DEPTH;
                while (at > 0 && ++path[at - 1] == EVENTS)
                        path[--at] = 0;
                if (at == 0)
                        break;
        }
}

/* What the machine and the parties know, in one number; leases are told apart by whose they are. */
static uint64_t fingerprint(const struct world *w) {
        uint64_t f = w->executing | (uint64_t)w->cancelled << 1 | (uint64_t)w->l.executing << 2 | (uint64_t)w->l.closed << 3;
        unsigned shift = 4;
        for (int i = 0; i < IDS; i++) {
                const struct party *p = &w->p[i];
                uint64_t one = p->called | (uint64_t)p->claimed << 1 | (uint64_t)p->settled << 2 | (uint64_t)p->taken << 3 | (uint64_t)p->over << 4 |
                               (uint64_t)p->told << 5 | (uint64_t)(p->c ? p->c->state : 7) << 8 | (uint64_t)(p->old[0] != 0) << 11;
                f |= one << shift;
                shift += 12;
        }
        bool b_first = w->l.waiting && w->l.waiting->id[0] == 'B';
        return f | (uint64_t)b_first << shift;
}

#define STATES_MAX 20000
#define PATH_MAX_ 64
struct seen { uint64_t print; unsigned char path[PATH_MAX_]; unsigned n; };

static bool is_new(const struct seen *seen, size_t n, uint64_t print) {
        for (size_t i = 0; i < n; i++)
                if (seen[i].print == print)
                        return false;
        return true;
}

static void every_state_that_can_be_reached_keeps_the_rules(void **state) {
        struct seen *seen = calloc(STATES_MAX, sizeof *seen);
        struct world w;
        size_t n = 1;
        assert_non_null(seen);
        run_path(NULL, 0, &w);
        seen[0].print = fingerprint(&w);
        leases_release(&w.l);
        for (size_t at = 0; at < n; at++)
                for (int e = 0; e < EVENTS; e++) {
                        struct seen next = seen[at];
                        assert_true(next.n < PATH_MAX_);
                        next.path[next.n++] = (unsigned char)e;
                        run_path(next.path, next.n, &w);
                        next.print = fingerprint(&w);
                        leases_release(&w.l);
                        if (!is_new(seen, n, next.print))
                                continue;
                        assert_true(n < STATES_MAX);
                        seen[n++] = next;
                }
        assert_true(n > 500);          /* else the world above is not what it says */
        print_message("%zu states, the farthest %u events away\n", n, seen[n - 1].n);
        free(seen);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_claim_issues_every_unclaimed_call_once_in_order),
                cmocka_unit_test(an_id_that_is_not_given_is_one_that_nobody_used),
                cmocka_unit_test(ids_are_of_a_small_set),
                cmocka_unit_test(the_limits_hold_exactly),
                cmocka_unit_test(a_batch_of_prompts_is_reserved_as_a_whole_for_the_turn),
                cmocka_unit_test(waits_end_when_their_time_comes_not_before),
                cmocka_unit_test(a_result_is_told_by_its_lease_first),
                cmocka_unit_test(a_closed_turn_never_executes_again),
                cmocka_unit_test(every_path_of_some_length_keeps_the_rules),
                cmocka_unit_test(every_state_that_can_be_reached_keeps_the_rules),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

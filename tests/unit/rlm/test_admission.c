#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rlm/admission.h"

#define TICKETS 12
static struct ticket t[TICKETS];
static struct admission a;
static char granted[64], stopped[64];      /* numbers of tickets, in order */
static bool stop_releases;

static void note(char *list, const struct ticket *x) {
        size_t n = strlen(list);
        list[n] = (char)('0' + (x - t));
        list[n + 1] = 0;
}

static void on_granted(struct ticket *x) { note(granted, x); }

static void on_stop(struct ticket *x) {
        note(stopped, x);
        if (stop_releases)
                admission_release(&a, x);
}

static void init(unsigned slots) {
        memset(t, 0, sizeof t);
        granted[0] = stopped[0] = 0;
        stop_releases = false;
        admission_init(&a, slots, on_stop);
}

static bool ask(int i, enum admission_kind kind) { return admission_request(&a, &t[i], kind, on_granted); }

static void the_last_slot_serves_host_io_alone(void **state) {
        init(3);
        assert_true(ask(0, ADMISSION_ROOT));
        assert_true(ask(1, ADMISSION_CHILD));
        assert_false(ask(2, ADMISSION_ROOT));
        assert_true(ask(3, ADMISSION_IO));
        assert_false(ask(4, ADMISSION_IO));
        assert_int_equal(a.used, 3);
}

static void roots_that_wait_do_not_hold_up_host_io(void **state) {
        init(2);
        assert_true(ask(0, ADMISSION_ROOT));
        assert_false(ask(1, ADMISSION_ROOT));
        assert_true(ask(2, ADMISSION_IO));
        admission_release(&a, &t[2]);
        assert_string_equal(granted, "");      /* a root must not take the last one */
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "1");
}

/* Turns that hold every slot they can get, each of which waits for host I/O before it goes on, while more roots stand in line: each is
 * served in its order by the one slot that is left, and a waiting root never gets it in between. */
static void turns_that_fill_every_slot_are_all_served_host_io(void **state) {
        init(4);
        for (int i = 0; i < 3; i++)
                assert_true(ask(i, i == 2 ? ADMISSION_CHILD : ADMISSION_ROOT));
        assert_false(ask(3, ADMISSION_ROOT));
        assert_false(ask(4, ADMISSION_CHILD));
        assert_true(ask(5, ADMISSION_IO));
        assert_false(ask(6, ADMISSION_IO));
        assert_false(ask(7, ADMISSION_IO));
        admission_release(&a, &t[5]);
        assert_string_equal(granted, "6");
        admission_release(&a, &t[6]);
        assert_string_equal(granted, "67");
        admission_release(&a, &t[7]);
        assert_string_equal(granted, "67");
        assert_int_equal(a.used, 3);
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "673");
}

static void host_io_may_take_all(void **state) {
        init(2);
        assert_true(ask(0, ADMISSION_IO));
        assert_true(ask(1, ADMISSION_IO));
        assert_false(ask(2, ADMISSION_ROOT));
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "2");
}

static void the_first_in_line_is_the_first_served(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        ask(1, ADMISSION_ROOT);
        ask(2, ADMISSION_CHILD);
        ask(3, ADMISSION_ROOT);
        for (int i = 0; i < 3; i++)
                admission_release(&a, &t[i]);
        assert_string_equal(granted, "123");
}

static void nobody_passes_who_waits(void **state) {
        init(3);
        ask(0, ADMISSION_ROOT);
        ask(1, ADMISSION_ROOT);
        ask(2, ADMISSION_ROOT);                /* waits */
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "2");
        assert_false(ask(3, ADMISSION_ROOT));
}

static void a_waiter_that_gives_up_gives_its_place_back(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        ask(1, ADMISSION_ROOT);
        ask(2, ADMISSION_ROOT);
        admission_cancel(&a, &t[1]);
        assert_int_equal(t[1].state, TICKET_NONE);
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "2");
        admission_cancel(&a, &t[2]);           /* too late: it has its slot, and gives that back like any other */
        assert_int_equal(a.used, 1);
        admission_release(&a, &t[2]);
        assert_int_equal(a.used, 0);
        assert_true(ask(1, ADMISSION_ROOT));
}

static void an_idle_root_keeps_its_slot_while_nobody_waits(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        admission_idle(&a, &t[0]);
        assert_int_equal(a.used, 1);
        assert_string_equal(stopped, "");
        assert_true(admission_busy(&a, &t[0]));
        assert_int_equal(t[0].state, TICKET_HELD);
}

static void the_least_recently_used_idle_root_is_stopped_for_a_waiter(void **state) {
        init(4);
        for (int i = 0; i < 3; i++)
                ask(i, ADMISSION_ROOT);
        admission_idle(&a, &t[1]);
        admission_idle(&a, &t[0]);
        admission_idle(&a, &t[2]);
        admission_busy(&a, &t[1]);
        admission_idle(&a, &t[1]);             /* used again: now the last */
        assert_false(ask(3, ADMISSION_ROOT));
        assert_string_equal(stopped, "0");
        assert_false(ask(4, ADMISSION_ROOT));
        assert_string_equal(stopped, "02");
        assert_string_equal(granted, "");      /* until the stop is confirmed */
        admission_release(&a, &t[2]);
        assert_string_equal(granted, "3");
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "34");
}

static void one_that_is_being_stopped_cannot_be_used_again(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        admission_idle(&a, &t[0]);
        ask(1, ADMISSION_ROOT);
        assert_string_equal(stopped, "0");
        assert_false(admission_busy(&a, &t[0]));
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "1");
}

static void a_root_that_becomes_idle_while_somebody_waits_is_stopped(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        ask(1, ADMISSION_ROOT);
        stop_releases = true;                  /* from inside, even */
        admission_idle(&a, &t[0]);
        assert_string_equal(stopped, "0");
        assert_string_equal(granted, "1");
        assert_int_equal(a.used, 1);
}

static void one_waiter_stops_one_root_only(void **state) {
        init(4);
        for (int i = 0; i < 3; i++) {
                ask(i, ADMISSION_ROOT);
                admission_idle(&a, &t[i]);
        }
        ask(3, ADMISSION_ROOT);
        admission_cancel(&a, &t[3]);
        ask(4, ADMISSION_ROOT);                /* the stop that is under way serves this one */
        assert_string_equal(stopped, "0");
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "4");
}

static void host_io_that_is_idle_goes_for_host_io_or_for_a_root_that_may_have_its_slot(void **state) {
        init(3);
        ask(0, ADMISSION_IO);
        ask(1, ADMISSION_IO);
        admission_idle(&a, &t[0]);
        admission_idle(&a, &t[1]);
        ask(2, ADMISSION_ROOT);
        assert_false(ask(3, ADMISSION_ROOT));
        assert_string_equal(stopped, "0");
        assert_false(ask(4, ADMISSION_IO));
        assert_string_equal(stopped, "01");
}

static void nothing_is_stopped_for_a_root_that_may_not_have_its_slot(void **state) {
        init(2);
        ask(0, ADMISSION_ROOT);
        ask(1, ADMISSION_IO);
        admission_idle(&a, &t[1]);
        assert_false(ask(2, ADMISSION_ROOT));
        assert_string_equal(stopped, "");
        assert_true(admission_busy(&a, &t[1]));
        admission_idle(&a, &t[0]);             /* this one's slot it may have */
        assert_string_equal(stopped, "0");
        admission_release(&a, &t[0]);
        assert_string_equal(granted, "2");
}

static void the_idle_one_whose_slot_helps_is_stopped_though_another_is_older(void **state) {
        init(3);
        ask(0, ADMISSION_IO);
        admission_idle(&a, &t[0]);
        ask(1, ADMISSION_ROOT);
        ask(2, ADMISSION_ROOT);
        admission_idle(&a, &t[2]);
        assert_false(ask(3, ADMISSION_ROOT));
        assert_string_equal(stopped, "2");
        assert_false(ask(4, ADMISSION_ROOT));  /* for it there is none */
        assert_string_equal(stopped, "2");
}

/* How many who wait would be served if those that are being stopped were gone, and `extra` (a ticket, or -1) with them: one by one. */
static unsigned served(int extra) {
        unsigned s = 0, io = 0, s_waits = 0, io_waits = 0, n = 0;
        for (int k = 0; k < TICKETS; k++) {
                bool is_io = t[k].kind == ADMISSION_IO, holds = t[k].state == TICKET_HELD || (t[k].state == TICKET_IDLE && k != extra), waits = t[k].state == TICKET_WAITING;
                s += holds && !is_io;
                io += holds && is_io;
                s_waits += waits && !is_io;
                io_waits += waits && is_io;
        }
        for (; io_waits > 0 && s + io < 4; io_waits--, io++)
                n++;
        for (; s_waits > 0 && s + io < 4 && s < 3; s_waits--, s++)
                n++;
        return n;
}

/* Random words, and what must hold after each. */
static void the_numbers_hold_whatever_happens(void **state) {
        uint32_t x = 1;
        init(4);
        for (int i = 0; i < 200000; i++) {
                x = x * 1664525 + 1013904223;
                struct ticket *one = &t[(x >> 8) % TICKETS];
                switch ((x >> 20) % 5) {
                case 0:
                        if (one->state == TICKET_NONE)
                                ask((int)(one - t), (enum admission_kind)((x >> 24) % ADMISSION_KIND_MAX));
                        break;
                case 1: admission_cancel(&a, one); break;
                case 2:
                        if (one->state == TICKET_HELD)
                                admission_idle(&a, one);
                        break;
                case 3:
                        if (one->state == TICKET_IDLE)
                                admission_busy(&a, one);
                        break;
                case 4: admission_release(&a, one); break;
                }
                granted[0] = stopped[0] = 0;
                unsigned used = 0, io = 0, waiting = 0, stopping = 0;
                for (int k = 0; k < TICKETS; k++) {
                        bool holds = t[k].state > TICKET_WAITING;
                        used += holds;
                        io += holds && t[k].kind == ADMISSION_IO;
                        waiting += t[k].state == TICKET_WAITING;
                        stopping += t[k].state == TICKET_STOPPING;
                }
                assert_int_equal(a.used, used);
                assert_int_equal(a.used_io, io);
                assert_int_equal(a.n_waiting, waiting);
                assert_int_equal(a.n_stopping, stopping);
                assert_true(used <= 4 && used - io <= 3);
                for (int k = 0; k < TICKETS; k++)                      /* nobody waits for one that does nothing */
                        assert_false(t[k].state == TICKET_IDLE && served(k) > served(-1));
                bool room = used < 4 && used - io < 3;
                assert_false(room && a.line[0].first);
                assert_false(used < 4 && a.line[1].first);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_last_slot_serves_host_io_alone),
                cmocka_unit_test(roots_that_wait_do_not_hold_up_host_io),
                cmocka_unit_test(turns_that_fill_every_slot_are_all_served_host_io),
                cmocka_unit_test(host_io_may_take_all),
                cmocka_unit_test(the_first_in_line_is_the_first_served),
                cmocka_unit_test(nobody_passes_who_waits),
                cmocka_unit_test(a_waiter_that_gives_up_gives_its_place_back),
                cmocka_unit_test(an_idle_root_keeps_its_slot_while_nobody_waits),
                cmocka_unit_test(the_least_recently_used_idle_root_is_stopped_for_a_waiter),
                cmocka_unit_test(one_that_is_being_stopped_cannot_be_used_again),
                cmocka_unit_test(a_root_that_becomes_idle_while_somebody_waits_is_stopped),
                cmocka_unit_test(one_waiter_stops_one_root_only),
                cmocka_unit_test(host_io_that_is_idle_goes_for_host_io_or_for_a_root_that_may_have_its_slot),
                cmocka_unit_test(nothing_is_stopped_for_a_root_that_may_not_have_its_slot),
                cmocka_unit_test(the_idle_one_whose_slot_helps_is_stopped_though_another_is_older),
                cmocka_unit_test(the_numbers_hold_whatever_happens),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

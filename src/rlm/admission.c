#include <string.h>

#include "rlm/admission.h"

static const char *const admission_kind_names[] = { "root", "child", "host_io" };
STRING_TABLE(admission_kind, admission_kind_names, ADMISSION_KIND_MAX)

void admission_init(struct admission *a, unsigned slots, void (*stop)(struct ticket *t)) {
        ASSERT(slots >= ADMISSION_SLOTS_MIN);
        *a = (struct admission){ .slots = slots, .stop = stop };
        for (size_t i = 0; i < ARRAY_SIZE(a->line); i++)
                a->line[i].last = &a->line[i].first;
        a->idle.last = &a->idle.first;
}

static void list_add(struct ticket_list *l, struct ticket *t) {
        t->next = NULL;
        t->at = l->last;
        *l->last = t;
        l->last = &t->next;
}

static void list_remove(struct ticket_list *l, struct ticket *t) {
        *t->at = t->next;
        if (t->next)
                t->next->at = t->at;
        else
                l->last = t->at;
        t->next = NULL;
        t->at = NULL;
}

static struct ticket_list *line_of(struct admission *a, const struct ticket *t) { return &a->line[t->kind == ADMISSION_IO]; }

static bool may_have(const struct admission *a, const struct ticket *t) {
        if (a->used >= a->slots)
                return false;
        return t->kind == ADMISSION_IO || a->used - a->used_io < a->slots - 1;
}

static void hold(struct admission *a, struct ticket *t) {
        t->state = TICKET_HELD;
        a->used++;
        a->used_io += t->kind == ADMISSION_IO;
}

/* Of the two that stand first, who is next? */
static struct ticket *next_in_line(struct admission *a) {
        struct ticket *s = a->line[0].first, *io = a->line[1].first;
        bool s_may = s && may_have(a, s), io_may = io && may_have(a, io);
        if (s_may && io_may)
                return s->order < io->order ? s : io;
        return s_may ? s : io_may ? io : NULL;
}

/* How many waiters will have a slot once those that are being stopped have gone, and `more`, an idle one or NULL, with them. */
static unsigned will_be_served(const struct admission *a, const struct ticket *more) {
        unsigned io_more = more && more->kind == ADMISSION_IO, s_more = more && !io_more;
        unsigned s_used = a->used - a->used_io - (a->n_stopping - a->n_stopping_io) - s_more, io_used = a->used_io - a->n_stopping_io - io_more;
        unsigned s = MIN2(a->n_waiting - a->n_waiting_io, a->slots - 1 - s_used);
        return MIN2(s + a->n_waiting_io, a->slots - s_used - io_used);
}

/* The least recently used one whose end serves one waiter more. */
static struct ticket *to_stop(const struct admission *a) {
        unsigned served = will_be_served(a, NULL);
        struct ticket *t = served < a->n_waiting ? a->idle.first : NULL;
        while (t && will_be_served(a, t) <= served)
                t = t->next;
        return t;
}

static void wait_less(struct admission *a, struct ticket *t) {
        list_remove(line_of(a, t), t);
        a->n_waiting--;
        a->n_waiting_io -= t->kind == ADMISSION_IO;
}

/* Hands out what is free, then asks for as many idle ones as waiters lack. Callbacks may come back in here: one loop does all. */
static void decide(struct admission *a) {
        if (a->deciding)
                return;
        a->deciding = true;
        for (;;) {
                struct ticket *t = next_in_line(a);
                if (t) {
                        wait_less(a, t);
                        hold(a, t);
                        t->granted(t);
                        continue;
                }
                struct ticket *idle = to_stop(a);
                if (!idle)
                        break;
                list_remove(&a->idle, idle);
                idle->state = TICKET_STOPPING;
                a->n_stopping++;
                a->n_stopping_io += idle->kind == ADMISSION_IO;
                a->stop(idle);
        }
        a->deciding = false;
}

bool admission_request(struct admission *a, struct ticket *t, enum admission_kind kind, void (*granted)(struct ticket *t)) {
        ASSERT(t->state == TICKET_NONE);
        *t = (struct ticket){ .kind = kind, .granted = granted, .order = a->next_order++ };
        if (!line_of(a, t)->first && may_have(a, t)) {
                hold(a, t);
                return true;
        }
        t->state = TICKET_WAITING;
        list_add(line_of(a, t), t);
        a->n_waiting++;
        a->n_waiting_io += kind == ADMISSION_IO;
        decide(a);
        return false;
}

void admission_cancel(struct admission *a, struct ticket *t) {
        if (t->state != TICKET_WAITING)
                return;
        wait_less(a, t);
        t->state = TICKET_NONE;
        decide(a);
}

void admission_idle(struct admission *a, struct ticket *t) {
        ASSERT(t->state == TICKET_HELD);
        t->state = TICKET_IDLE;
        list_add(&a->idle, t);
        decide(a);
}

bool admission_busy(struct admission *a, struct ticket *t) {
        if (t->state == TICKET_STOPPING)
                return false;
        ASSERT(t->state == TICKET_IDLE);
        list_remove(&a->idle, t);
        t->state = TICKET_HELD;
        return true;
}

void admission_release(struct admission *a, struct ticket *t) {
        if (t->state == TICKET_NONE || t->state == TICKET_WAITING)
                return;
        if (t->state == TICKET_IDLE)
                list_remove(&a->idle, t);
        if (t->state == TICKET_STOPPING) {
                a->n_stopping--;
                a->n_stopping_io -= t->kind == ADMISSION_IO;
        }
        t->state = TICKET_NONE;
        a->used--;
        a->used_io -= t->kind == ADMISSION_IO;
        decide(a);
}

/* Who may have a sandbox: N slots, of which roots and children may hold N - 1, so that one always serves host I/O and no turn can
 * wait for itself. Pure: no time, no input or output; one thread.
 *
 * A ticket is a place in line, then a slot:
 *
 *     (none) ──request──> WAITING ──granted──> HELD <──busy──  IDLE ──stop──> STOPPING
 *               │            └─cancel─> (none)   └───idle────────^               │
 *               └──────── granted at once ───────^     release (the sandbox is confirmed gone) ──> (none)
 *
 * - First come, first served among roots and children, and among host I/O; of both, the older one goes first unless only the other may.
 * - An idle one keeps its slot until somebody waits for it: then the least recently used whose slot lets one more waiter in is asked to
 *   stop, one for each waiter that lacks a slot; a slot that no waiter may have stops nobody. It is free once it is released, not before: a
 *   stop that is not confirmed gives nothing away.
 * - A waiter that gives up leaves nothing behind. */
#pragma once
#include <stdbool.h>

#include "base/macros.h"

#define ADMISSION_SLOTS_MIN 2u
#define ADMISSION_SLOTS_SEED_MAX 8u        /* more only where the operator insists by a flag */
#define ADMISSION_SLOTS_MAX 1024u
#define ADMISSION_WAITING_MAX 10000u

enum admission_kind { ADMISSION_ROOT, ADMISSION_CHILD, ADMISSION_IO, ADMISSION_KIND_MAX };
STRING_TABLE_DECLARE(admission_kind);      /* "root", "child", "host_io" */
enum ticket_state { TICKET_NONE, TICKET_WAITING, TICKET_HELD, TICKET_IDLE, TICKET_STOPPING };

struct ticket {                            /* in its owner's object; zeroed: none */
        struct ticket *next, **at;         /* in the line, or among the idle */
        enum admission_kind kind;
        enum ticket_state state;
        uint64_t order;
        void (*granted)(struct ticket *t); /* after a wait; HELD by then */
};

struct ticket_list { struct ticket *first, **last; };
struct admission {
        unsigned slots, used, used_io;
        unsigned n_waiting, n_waiting_io, n_stopping, n_stopping_io;      /* all, and of host I/O */
        struct ticket_list line[2];        /* roots and children; host I/O */
        struct ticket_list idle;           /* least recently used first */
        uint64_t next_order;
        bool deciding;
        void (*stop)(struct ticket *t);    /* end this idle one: STOPPING by then. May release it from inside */
};

void admission_init(struct admission *a, unsigned slots, void (*stop)(struct ticket *t));
/* True: HELD at once. Else it waits, and `granted` runs from inside whatever frees a slot. */
bool admission_request(struct admission *a, struct ticket *t, enum admission_kind kind, void (*granted)(struct ticket *t));
void admission_cancel(struct admission *a, struct ticket *t);      /* of one that waits; else nothing */
void admission_idle(struct admission *a, struct ticket *t);        /* HELD: it may be stopped for a waiter, maybe from inside this call */
bool admission_busy(struct admission *a, struct ticket *t);        /* IDLE: is used again. False: it is being stopped */
void admission_release(struct admission *a, struct ticket *t);     /* HELD, IDLE, STOPPING: the slot is free. Else nothing */

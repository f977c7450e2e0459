/* Shared by ledger.c (loop's side) and ledger_writer.c (the writer thread). */
#pragma once
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "store/ballast.h"
#include "store/ledger.h"

enum request_kind { REQUEST_INSERT, REQUEST_RUNNING, REQUEST_REQUEUE, REQUEST_FINISH, REQUEST_BODY, REQUEST_DELETE, REQUEST_EXPIRE, REQUEST_KIND_MAX };

/* One write on its way. A single allocation: the strings it points to lie behind it. */
struct ledger_request {
        struct ledger_request *next;
        enum request_kind kind;
        ledger_done done;
        void *user;
        int r;
        size_t bytes;                  /* of blobs, for LEDGER_PENDING_MAX */
        const char *id, *outcome, *record;     /* record: REQUEST_BODY's body, too */
        size_t record_len;
        int64_t before_ms;
        size_t n_jobs;
        struct ledger_job jobs[];
};

struct request_list { struct ledger_request *first, **last; };

struct ledger {
        uv_loop_t *loop;
        uv_async_t committed;          /* writer -> loop */
        uv_timer_t tend;
        int open_handles;
        sqlite3 *reader;
        sqlite3_stmt *read[8];         /* prepared on first use, see ledger.c */
        int dirfd;
        uint64_t low_water;
        size_t pending_bytes;          /* loop's thread only */

        /* writer thread only */
        sqlite3 *writer;
        sqlite3_stmt *write[20];
        struct ballast ballast;

        pthread_t thread;
        pthread_mutex_t mutex;
        pthread_cond_t wake;
        struct request_list todo, done;    /* under the mutex */
        bool stop, tend_wanted;            /* under the mutex */
        _Atomic bool short_of_space;       /* the ballast is spent, or a write has just failed for want of space */
        _Atomic uint64_t commits, writes, ballast_freed;
};

static inline void list_init(struct request_list *l) { l->first = NULL; l->last = &l->first; }
static inline void list_add(struct request_list *l, struct ledger_request *q) { q->next = NULL; *l->last = q; l->last = &q->next; }
static inline void list_join(struct request_list *to, struct request_list *from) {
        if (!from->first)
                return;
        *to->last = from->first;
        to->last = from->last;
        list_init(from);
}

void *ledger_writer_thread(void *ledger);
void ledger_writer_tend(struct ledger *l);     /* at open, before the thread runs; then only from the thread */

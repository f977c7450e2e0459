/* A ledger in a fresh directory, and calls that run the loop until the write they ask for is committed. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "store/ledger.h"

struct fixture {
        uv_loop_t loop;
        struct ledger *l;
        char home[64];
        struct ledger_config cfg;
        bool mounted;
};

struct waiting { uv_loop_t *loop; int r; bool done; };

static void on_done(int r, void *user) {
        struct waiting *w = user;
        w->r = r;
        w->done = true;
}

static inline int await(struct fixture *f, int called, struct waiting *w) {
        assert_int_equal(called, 0);
        while (!w->done)
                uv_run(&f->loop, UV_RUN_ONCE);
        return w->r;
}
#define AWAIT(f, call, ...) ({ struct waiting w_ = { 0 }; await(f, call((f)->l, __VA_ARGS__, on_done, &w_), &w_); })

static inline struct ledger_job job(const char *id, const char *body) {
        return (struct ledger_job){ .id = id, .kind = "task", .tenant = "t", .body = body, .body_len = strlen(body), .created_ms = 1 };
}

static inline int insert(struct fixture *f, const char *id, const char *body) {
        struct ledger_job j = job(id, body);
        return AWAIT(f, ledger_insert, &j, 1);
}

static inline int insert_key(struct fixture *f, const char *id, const char *tenant, const char *key) {
        struct ledger_job j = job(id, "{}");
        j.tenant = tenant;
        j.idempotency_key = key;
        j.body_hash = "h";
        return AWAIT(f, ledger_insert, &j, 1);
}

static inline void fixture_open(struct fixture *f) {
        struct error e = { 0 };
        assert_int_equal(uv_loop_init(&f->loop), 0);
        int r = ledger_open(&f->loop, &f->cfg, &f->l, &e);
        if (r < 0)
                fail_msg("%s", e.text);
}

static inline void fixture_close(struct fixture *f) {
        ledger_close(f->l);
        f->l = NULL;
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&f->loop), 0);
}

static inline void fixture_dir(struct fixture *f) {
        *f = (struct fixture){ 0 };
        snprintf(f->home, sizeof f->home, "/tmp/brig-ledger-XXXXXX");
        assert_non_null(mkdtemp(f->home));
        f->cfg = (struct ledger_config){ .home = f->home };
}

static inline void fixture_init(struct fixture *f) {
        fixture_dir(f);
        fixture_open(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

static inline void fixture_release(struct fixture *f) {
        if (f->l)
                fixture_close(f);
        if (f->mounted)
                assert_int_equal(umount2(f->home, MNT_DETACH), 0);
        nftw(f->home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline enum job_state state_of(struct fixture *f, const char *id, int *ret_attempts) {
        struct ledger_row row;
        assert_int_equal(ledger_get(f->l, id, &row), 0);
        enum job_state st = row.state;
        if (ret_attempts)
                *ret_attempts = row.attempts;
        ledger_row_release(&row);
        return st;
}

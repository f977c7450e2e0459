/* The engine inside this process: what `brig serve` is, without HTTP, for one task.
 *
 *     start ─> submit ─> wait ─> record ─> drain ─> loop ends
 *               └ signal ─> delete ────────┘ */
#include <signal.h>
#include <string.h>

#include "api/executor_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "cmd/score_run.h"
#include "engine/settings.h"

#define TICK_MS 1000
#define END_MS 20000               /* for the sandbox to go and the engine to close */
#define WAIT_FOREVER_MS (30ull * 24 * 3600 * MS_PER_S)

extern char **environ;

struct local {
        const struct score_run *run;
        struct buf *ret;
        struct error *e;
        uv_loop_t loop;
        struct engine_config cfg;
        struct api api;
        struct prepared prepared;
        uv_signal_t interrupt, term;
        uv_timer_t tick, limit;
        struct engine_wait *wait;
        uint64_t since_ms;
        char id[37];
        int r;                             /* what score_local returns */
        bool interrupted, ending;
};

static int configure(struct local *l) {
        const char *home = getenv("BRIG_HOME");
        settings_init(&l->cfg);
        l->cfg.in_process = true;
        l->cfg.log_level = LOG_ERROR;      /* a person reads this terminal; BRIG_LOG_LEVEL says otherwise */
        int r = settings_from_env(&l->cfg, environ, l->e);
        if (r == 0 && !(home && home[0])) {
                free(l->cfg.home);
                l->cfg.home = strdup(SCORE_HOME);
                if (!l->cfg.home)
                        r = error_set(l->e, -ENOMEM, "read the settings");
        }
        if (r == 0)
                r = settings_check(&l->cfg, l->e);
        /* Whoever may start this as root may name any directory: the operator's roots are for clients of a daemon. */
        if (r == 0 && l->run->local_repo) {
                l->cfg.local_repo = strdup(l->run->local_repo);
                if (!l->cfg.local_repo)
                        r = error_set(l->e, -ENOMEM, "read the settings");
        }
        return r;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------- */

static void close_handles(struct local *l) {
        uv_close((uv_handle_t *)&l->interrupt, NULL);
        uv_close((uv_handle_t *)&l->term, NULL);
        uv_close((uv_handle_t *)&l->tick, NULL);
        uv_close((uv_handle_t *)&l->limit, NULL);
}

/* The record, if there is one, was read: but a sandbox that does not go is our fault, and worth more than a verdict. Nothing of the
 * engine can be freed; the spawner sees our socket close and removes what it has, or ends with it. */
static void on_limit(uv_timer_t *t) {
        struct local *l = t->data;
        l->r = error_say(l->e, -ETIME, "the sandbox was not gone after %d s; what is left is removed by the next start", END_MS / 1000);
        uv_stop(&l->loop);
}

static void drained(void *user) {
        struct local *l = user;
        engine_free(l->api.engine);
        close_handles(l);
}

static void end(struct local *l, int r) {
        if (l->ending)
                return;
        l->ending = true;
        l->r = r;
        progress_clear(l->run);
        uv_timer_start(&l->limit, on_limit, END_MS, 0);
        engine_drain(l->api.engine, 0, drained, l);
}

static void deleted(int r, void *user) {
        struct local *l = user;
        end(l, error_say(l->e, -EINTR, "interrupted"));
}

static void on_signal(uv_signal_t *s, int number) {
        struct local *l = s->data;
        if (l->interrupted)
                _exit(128 + number);       /* the spawner, whose socket closes, removes the sandbox */
        l->interrupted = true;
        uv_timer_start(&l->limit, on_limit, END_MS, 0);
        if (l->wait) {
                engine_wait_cancel(l->wait);
                l->wait = NULL;
        }
        if (!l->id[0] || engine_task_delete(l->api.engine, l->id, deleted, l) < 0)
                deleted(0, l);
}

static void on_fatal(const char *why, void *user) {
        struct local *l = user;
        l->r = error_say(l->e, -EIO, "%s", why);
        uv_stop(&l->loop);
}

/* ---- the task ---------------------------------------------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *t) {
        struct local *l = t->data;
        enum task_status st;
        if (!l->ending && l->id[0] && engine_task_status(l->api.engine, l->id, &st) == 0)
                progress_show(l->run, task_status_to_string((int)st), l->since_ms);
}

static void ended(int r, void *user) {
        struct local *l = user;
        l->wait = NULL;
        if (r == 0)
                r = engine_task_record(l->api.engine, l->id, l->ret);
        end(l, r < 0 ? error_set(l->e, r, "read the record") : 0);
}

static void submitted(int r, const char *id, void *user) {
        struct local *l = user;
        if (l->interrupted)
                return;
        if (r < 0 && r != -EEXIST) {
                end(l, error_say(l->e, r == -EINVAL || r == -EBUSY ? -EINVAL : -EIO, "%s", fault_text(r)));
                return;
        }
        snprintf(l->id, sizeof l->id, "%s", id);
        l->wait = engine_task_wait(l->api.engine, l->id, WAIT_FOREVER_MS, ended, l);
        if (!l->wait)
                ended(0, l);
}

static void start_handles(struct local *l) {
        uv_signal_init(&l->loop, &l->interrupt);
        uv_signal_init(&l->loop, &l->term);
        uv_timer_init(&l->loop, &l->tick);
        uv_timer_init(&l->loop, &l->limit);
        l->interrupt.data = l->term.data = l->tick.data = l->limit.data = l;
        uv_signal_start(&l->interrupt, on_signal, SIGINT);
        uv_signal_start(&l->term, on_signal, SIGTERM);
        if (l->run->progress)
                uv_timer_start(&l->tick, on_tick, 0, TICK_MS);
}

static void submit(struct local *l) {
        struct json object;
        int r = json_parse(l->run->request, l->run->request_len, &object, l->e);
        if (r == 0)
                r = executor_prepare(&l->api, &object, &l->prepared, l->e);
        if (r == 0) {
                r = executor_submit(&l->api, &l->prepared, submitted, l);
                if (r < 0)
                        error_set(l->e, r, "submit the task");
        } else if (r != -ENOMEM)
                r = -EINVAL;
        if (r < 0)
                end(l, r);
}

int score_local(const struct score_run *run, struct buf *ret, struct error *e) {
        static struct local l;             /* handles stay registered in its loop if the engine ends badly */
        l.run = run;
        l.ret = ret;
        l.e = e;
        l.since_ms = now_ms();
        int r = configure(&l);
        if (r < 0)
                return r;
        uv_loop_init(&l.loop);
        l.api.loop = &l.loop;
        r = engine_start(&l.loop, &l.cfg, &l.api.engine, e);
        if (r < 0) {
                settings_release(&l.cfg);
                return r == -EINVAL ? -EIO : r;
        }
        engine_on_fatal(l.api.engine, on_fatal, &l);
        start_handles(&l);
        submit(&l);
        uv_run(&l.loop, UV_RUN_DEFAULT);
        prepared_release(&l.prepared);
        settings_release(&l.cfg);
        return l.r;
}

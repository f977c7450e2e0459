#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cmd/score_run.h"

#define CALL_MS 30000              /* submit and delete: on disk, but a large patch may take its time */
#define WAIT_S 50
#define WAIT_SHOWN_S 1             /* while somebody watches */
#define ANSWER_MAX (1u << 20)
#define RETRIES_MAX 5              /* of a wait that got no answer: the daemon may be restarting, and the task survives that */

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
        interrupted = 1;
}

void progress_show(const struct score_run *run, const char *state, uint64_t since_ms) {
        if (run->progress)
                fprintf(stderr, "\r\033[K%s, %llu s", state, (unsigned long long)((now_ms() - since_ms) / MS_PER_S));
}

void progress_clear(const struct score_run *run) {
        if (run->progress)
                fputs("\r\033[K", stderr);
}

/* A member of an answer, as text; "" when it is not there. */
static void member(const struct buf *answer, const char *key, char *ret, size_t n) {
        struct json doc, v;
        struct buf b = BUF_INIT(n - 1);
        ret[0] = 0;
        if (json_parse(buf_str(answer), answer->len, &doc, NULL) == 0 && json_get(&doc, key, &v) && json_string(&v, &b) == 0)
                memcpy(ret, buf_str(&b), b.len + 1);
        buf_release(&b);
}

static int refused(int status, const struct buf *answer, struct error *e) {
        char why[400];
        member(answer, "error", why, sizeof why);
        return error_say(e, status < 500 ? -EINVAL : -EIO, "the daemon says %d: %s", status, why[0] ? why : "(no reason)");
}

static int submit(struct client *c, const struct score_run *run, char ret_id[static 64], struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);
        int status, r = client_call(c, "POST", "/task/submit", run->request, run->request_len, CALL_MS, &status, &answer, e);
        if (r < 0)
                return r;
        if (status != 202)
                return refused(status, &answer, e);
        member(&answer, "task_id", ret_id, 64);
        return ret_id[0] ? 0 : error_say(e, -EIO, "the daemon's answer names no task");
}

/* 1: the record is in *ret; 0: not yet. */
static int poll_once(struct client *c, const struct score_run *run, const char *id, uint64_t since_ms, struct buf *ret, struct error *e) {
        char path[128], state[32];
        unsigned wait = run->progress ? WAIT_SHOWN_S : WAIT_S;
        int status;
        snprintf(path, sizeof path, "/task/%.40s/result?wait=%u", id, wait);
        size_t before = ret->len;
        int r = client_call(c, "GET", path, NULL, 0, (uint64_t)wait * MS_PER_S + CALL_MS, &status, ret, e);
        if (r < 0 || status == 200)
                return r < 0 ? r : 1;
        if (status != 202)
                return refused(status, ret, e);
        member(ret, "status", state, sizeof state);
        progress_show(run, state, since_ms);
        ret->len = before;
        return 0;
}

static int wait_for_record(struct client *c, const struct score_run *run, const char *id, struct buf *ret, struct error *e) {
        uint64_t since = now_ms();
        for (int failures = 0;;) {
                int r = poll_once(c, run, id, since, ret, e);
                if (r > 0)
                        return 0;
                if (r == -EIO && ++failures <= RETRIES_MAX) {
                        ret->len = 0;
                        /* No event says that a daemon is there again; a signal ends the pause. */
                        struct timespec pause = { .tv_sec = 1 };
                        nanosleep(&pause, NULL);
                } else if (r < 0)
                        return r;
                else
                        failures = 0;
                if (interrupted)
                        return error_say(e, -EINTR, "interrupted");
        }
}

static void cancel(struct client *c, const char *id) {
        char path[64];
        int status;
        _cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);
        client_interrupted_by(c, NULL);
        snprintf(path, sizeof path, "/task/%.40s", id);
        client_call(c, "DELETE", path, NULL, 0, CALL_MS, &status, &answer, NULL);
}

void score_interruptible(void) {
        struct sigaction act = { .sa_handler = on_signal };
        sigaction(SIGINT, &act, NULL);
        sigaction(SIGTERM, &act, NULL);
}

bool score_interrupted(void) { return interrupted; }

int score_remote(struct client *c, const struct score_run *run, struct buf *ret, struct error *e) {
        char id[64];
        client_interrupted_by(c, &interrupted);
        int r = submit(c, run, id, e);
        if (r < 0)
                return r;
        r = wait_for_record(c, run, id, ret, e);
        progress_clear(run);
        if (r == -EINTR)
                cancel(c, id);
        return r;
}

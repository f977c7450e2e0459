/* One execute: from the code to the answer. What the code's process says is data; when it ends, what it used, how long it took and what a SUBMIT
 * is worth is decided here.
 *
 *     NONE ──execute──> RUNNING ──done──> ANSWERING ──(usage)──> NONE
 *                          │ time is up: waits end, interrupt
 *                          v
 *                     INTERRUPTED ──done──> ...     (the root is tainted)
 *                          │ it does not yield
 *                          v
 *                       KILLED ──the process is dead──> NONE; the turn is over */
#include <string.h>

#include "base/utf8.h"
#include "rlm/rlm_internal.h"

#define ANSWER_MAX (16u << 20)             /* two streams of at most 4 bytes a character, escaped; error; final */
#define EVENT_PIECE (16u * 1024)           /* bytes of output in one event */

/* ---- the answer --------------------------------------------------------------------------------------------------------------------------- */

static const char *category_of(const struct rlm_turn *t, enum turn_error_kind kind) {
        static const char *const names[] = {
                [TURN_OK] = NULL, [TURN_ERROR_SYNTAX] = "syntax_error", [TURN_ERROR_EXCEPTION] = "exception", [TURN_ERROR_INTERRUPTED] = "interrupted",
                [TURN_ERROR_TOOL] = "tool_error",
        };
        _Static_assert(ARRAY_SIZE(names) == TURN_ERROR_KIND_MAX, "a kind of error has no category");
        return t->timed_out && kind != TURN_OK ? "timeout" : names[kind];
}

static int put_stream(struct json_writer *w, const char *key, struct transcript *s) {
        _cleanup_buf_ struct buf b = BUF_INIT(TRANSCRIPT_MAX * 4u + 256);
        int r = transcript_text(s, &b);
        json_field_string(w, key, buf_str(&b), b.len);
        return r;
}

/* All but "usage" and the closing brace. */
static int write_answer(struct rlm_turn *t, const char *category, const char *error, size_t error_len, const struct turn_reply *reply) {
        struct json_writer w = JSON_WRITER(&t->answer);
        buf_release(&t->answer);
        buf_init(&t->answer, ANSWER_MAX);
        json_begin_object(&w);
        int r = put_stream(&w, "stdout", &t->out[0]);
        if (r == 0)
                r = put_stream(&w, "stderr", &t->out[1]);
        if (t->has_final)
                json_field_raw(&w, "final", t->final.data, t->final.len);
        else
                json_field_null(&w, "final");
        if (category)
                json_field_string(&w, "error", error, error_len);
        else
                json_field_null(&w, "error");
        json_field_text(&w, "error_category", category);
        if (reply && reply->error_type_len > 0)
                json_field_string(&w, "error_type", reply->error_type, reply->error_type_len);
        else
                json_field_null(&w, "error_type");
        if (reply && reply->tool_error_len > 0)
                json_field_raw(&w, "tool_error", reply->tool_error, reply->tool_error_len);
        else
                json_field_null(&w, "tool_error");
        json_field_bool(&w, "truncated", transcript_truncated(&t->out[0]) || transcript_truncated(&t->out[1]));
        return r < 0 ? r : w.r;
}

static void finish(struct rlm_turn *t, int64_t cpu_us, bool over) {
        struct json_writer w = { .out = &t->answer, .depth = 1, .comma = true };
        json_field_bool(&w, "turn_over", over);
        json_put_key(&w, "usage");
        json_begin_object(&w);
        json_field_uint(&w, "wall_ms", now_ms() - t->started_ms);
        if (cpu_us >= 0 && t->cpu_before_us >= 0)
                json_field_int(&w, "cpu_ms", (cpu_us - t->cpu_before_us) / 1000);
        else
                json_field_null(&w, "cpu_ms");
        json_field_uint(&w, "host_wait_ms", t->clock.host_used_ms);
        json_field_uint(&w, "tool_calls", t->leases.n_calls - t->calls_before);
        json_field_uint(&w, "prompts", t->leases.n_prompts - t->prompts_before);
        json_end_object(&w);
        json_end_object(&w);
        int r = json_finish(&w);
        struct buf answer = t->answer;
        rlm_executed done = t->executed;
        char data[64];
        int n = snprintf(data, sizeof data, "{\"action\":%llu}", (unsigned long long)t->action);
        buf_init(&t->answer, ANSWER_MAX);
        buf_release(&t->final);
        transcript_release(&t->out[0]);
        transcript_release(&t->out[1]);
        t->has_final = false;
        t->phase = ACTION_NONE;
        t->executed = NULL;
        if (cpu_us >= 0)
                t->cpu_before_us = cpu_us;
        turn_event(t, "execution_done", data, (size_t)n);
        if (done)
                done(&answer, r, t->executed_user);
        buf_release(&answer);
}

/* Nobody writes to it, calls or submits any more. */
static void stop_taking(struct rlm_turn *t) {
        leases_end_action(&t->leases);
        action_clock_wait(&t->clock, now_ms(), false);
        uv_timer_stop(&t->timer);
}

/* ---- time ------------------------------------------------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer) { action_timer(timer->data); }

void action_rearm(struct rlm_turn *t) {
        if (t->phase != ACTION_RUNNING)
                return;
        uint64_t now = now_ms(), at = MIN2(action_clock_deadline(&t->clock, now), leases_next_end(&t->leases));
        uv_update_time(t->m->cfg.loop);
        uv_timer_start(&t->timer, on_timer, at > now ? at - now : 0, 0);
}

static void interrupt(struct rlm_turn *t) {
        t->timed_out = true;
        t->phase = ACTION_INTERRUPTED;
        if (t->root)
                t->root->tainted = true;
        turn_process_interrupt(t->process);
        uv_timer_start(&t->timer, on_timer, RLM_INTERRUPT_GRACE_MS, 0);
}

void action_timer(struct rlm_turn *t) {
        uint64_t now = now_ms();
        if (t->phase == ACTION_RUNNING) {
                leases_expire(&t->leases, now);        /* who waits hears of it before the code is interrupted */
                action_clock_wait(&t->clock, now, t->leases.n_waiting > 0);
                if (action_clock_deadline(&t->clock, now) <= now)
                        interrupt(t);
                else
                        action_rearm(t);
        } else if (t->phase == ACTION_INTERRUPTED) {
                t->phase = ACTION_KILLED;
                turn_process_kill(t->process);
        }
}

/* ---- execute ---------------------------------------------------------------------------------------------------------------------------------- */

static size_t characters(const char *p, size_t n) {
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
                count += ((unsigned char)p[i] & 0xc0) != 0x80;
        return count;
}

static bool blank(const char *p, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (!strchr(" \t\r\n\f\v", p[i]))
                        return false;
        return true;
}

static enum rlm_fault check(const struct rlm_turn *t, const struct rlm_execute *x, struct error *e) {
        if (t->state == TURN_WAITING || t->state == TURN_BEGINNING)
                return RLM_NOT_READY;
        if (t->state != TURN_OPEN)
                return RLM_TURN_ENDED;
        if (t->phase != ACTION_NONE)
                return RLM_EXECUTING;
        if (t->m->draining)
                return RLM_DRAINING;
        if (characters(x->code, x->code_len) > RLM_CODE_CHARS_MAX)
                return RLM_CODE_TOO_LARGE;
        if (blank(x->code, x->code_len))
                return RLM_EMPTY_CODE;
        if (memchr(x->code, 0, x->code_len)) {
                error_say(e, -EINVAL, "code: holds a NUL");
                return RLM_INVALID;
        }
        return RLM_OK;
}

enum rlm_fault rlm_execute(struct rlm_turn *t, const struct rlm_execute *x, rlm_executed done, void *user, struct error *e) {
        enum rlm_fault f = check(t, x, e);
        if (f != RLM_OK)
                return f;
        int r = turn_process_execute(t->process, t->action + 1, x->code, x->code_len, x->variables, x->variables_len, e);
        if (r < 0)
                return r == -ESHUTDOWN ? RLM_TURN_ENDED : r == -EINVAL || r == -EFBIG ? RLM_INVALID : r == -ENODATA ? RLM_EMPTY_CODE : RLM_INTERNAL;
        t->action++;
        t->phase = ACTION_RUNNING;
        t->started_ms = now_ms();
        t->timed_out = t->has_final = false;
        t->calls_before = t->leases.n_calls;
        t->prompts_before = t->leases.n_prompts;
        t->executed = done;
        t->executed_user = user;
        for (size_t i = 0; i < ARRAY_SIZE(t->out); i++)
                transcript_init(&t->out[i]);
        action_clock_start(&t->clock, t->started_ms, x->timeout_ms, x->host_wait_ms);
        leases_begin_action(&t->leases);
        action_rearm(t);
        return RLM_OK;
}

/* ---- what the process says ------------------------------------------------------------------------------------------------------------------ */

/* Pieces end between characters where they can. */
static size_t piece(const char *p, size_t n) {
        size_t len = MIN2(n, (size_t)EVENT_PIECE);
        for (size_t back = 0; back < 3 && len < n && len > back; back++)
                if (((unsigned char)p[len - back] & 0xc0) != 0x80)
                        return len - back;
        return len;
}

void action_output(struct turn_process *p, int stream, const char *b, size_t n, void *user) {
        struct rlm_turn *t = user;
        bool within = t->phase == ACTION_RUNNING || t->phase == ACTION_INTERRUPTED || t->phase == ACTION_KILLED;
        if (within)
                (void)transcript_feed(&t->out[stream == 2], b, n);     /* no memory: the text is short of something */
        while (t->subscribers && n > 0) {
                size_t len = piece(b, n);
                _cleanup_buf_ struct buf data = BUF_INIT(8u * EVENT_PIECE);
                struct json_writer w = JSON_WRITER(&data);
                json_begin_object(&w);
                json_field_uint(&w, "action", within ? t->action : 0);
                json_field_string(&w, "data", b, len);
                json_end_object(&w);
                if (json_finish(&w) == 0)
                        turn_event(t, stream == 2 ? "stderr" : "stdout", data.data, data.len);
                b += len;
                n -= len;
        }
}

int action_submit(struct turn_process *p, uint64_t action, const char *outputs, size_t n, struct error *why, void *user) {
        struct rlm_turn *t = user;
        struct json given;
        if (action != t->action || (t->phase != ACTION_RUNNING && t->phase != ACTION_INTERRUPTED))
                return error_say(why, -EINVAL, "SUBMIT: no action is executing");
        buf_release(&t->final);
        buf_init(&t->final, 2 * SUBMIT_BYTES_MAX);
        int r = json_parse(outputs, n, &given, why);
        if (r == 0)
                r = outputs_check(&t->outputs, &given, &t->final, why);
        t->has_final = r == 0;
        return r;
}

static void on_usage(struct turn_process *p, int64_t cpu_us, void *user) {
        struct rlm_turn *t = user;
        if (t->phase == ACTION_ANSWERING)
                finish(t, cpu_us, false);
}

void action_done(struct turn_process *p, uint64_t action, const struct turn_reply *reply, void *user) {
        struct rlm_turn *t = user;
        if (action != t->action || t->phase == ACTION_NONE || t->phase == ACTION_ANSWERING)
                return;
        if (t->phase == ACTION_KILLED)         /* too late: its end is on the way */
                return;
        stop_taking(t);
        (void)write_answer(t, category_of(t, reply->kind), reply->error, reply->error_len, reply);
        t->phase = ACTION_ANSWERING;
        /* Asking the spawner takes milliseconds where it has other things to do: more than a short action itself. */
        if (now_ms() - t->started_ms < RLM_USAGE_MIN_MS || turn_process_usage(p, on_usage, t) < 0)
                finish(t, -1, false);
}

static const char *end_category(const struct rlm_turn *t, const struct turn_end *end, const struct rlm_root *root) {
        static const char *const names[] = { "cancelled", "process_exited", "protocol_violation", "submit_not_ended", "start_failed", "sandbox_ended" };
        _Static_assert(ARRAY_SIZE(names) == TURN_END_MAX, "an end of a turn has no category");
        if (t->timed_out)
                return "timeout";
        if (root && root->out_of_memory)
                return "memory_limit";
        return names[end->reason];
}

void action_ended(struct rlm_turn *t, const struct turn_end *end) {
        if (t->phase == ACTION_NONE)
                return;
        if (t->phase != ACTION_ANSWERING) {
                const char *text = t->timed_out ? "the time of this action is up, and it did not yield" : end->error.text;
                stop_taking(t);
                (void)write_answer(t, end_category(t, end, t->root), text, strlen(text), NULL);
        }
        finish(t, end->cpu_us, true);
}

void action_cancelled(struct rlm_turn *t) {
        static const char text[] = "the turn was ended by its host";
        if (t->phase == ACTION_NONE)
                return;
        if (t->phase != ACTION_ANSWERING) {
                stop_taking(t);
                (void)write_answer(t, "cancelled", text, sizeof text - 1, NULL);
        }
        finish(t, -1, true);
}

#include <string.h>

#include "rlm/stage.h"

static void on_ready(struct interpreter *in, void *user) { ((struct stage *)user)->ready = true; }

static void on_lost(struct interpreter *in, const struct error *e, void *user) {
        struct stage *s = user;
        s->lost = true;
        s->error = *e;
}

struct sandbox_spec stage_spec(void) {
        struct sandbox_spec spec = box_spec();
        spec.profile = PROFILE_RLM;
        return spec;
}

void stage_open(struct fixture *f, struct stage *s) {
        struct error e = { 0 };
        const struct interpreter_spec spec = { .cache = IMAGE_HOST };
        static const struct interpreter_callbacks cb = { .ready = on_ready, .lost = on_lost };
        struct sandbox_spec box = stage_spec();
        *s = (struct stage){ 0 };
        box_create(f, &s->box, &box);
        if (interpreter_start(s->box.sandbox, &spec, &cb, s, &s->interpreter, &e) < 0)
                fail_msg("%s", e.text);
        fixture_until(f, &s->ready);
}

void stage_close(struct stage *s) {
        interpreter_free(s->interpreter);
        box_destroy(&s->box);
}

/* ---- turns ---- */

static void on_begun(struct turn_process *t, void *user) { ((struct act *)user)->begun = true; }

static void keep(char *space, size_t *len, const char *p, size_t n) {
        if (*len < STAGE_TEXT_MAX - 1)
                memcpy(space + *len, p, MIN2(n, STAGE_TEXT_MAX - 1 - *len));
        *len += n;
        space[MIN2(*len, (size_t)STAGE_TEXT_MAX - 1)] = 0;
}

static void on_output(struct turn_process *t, int stream, const char *p, size_t n, void *user) {
        struct act *a = user;
        a->heard = true;
        if (stream == 1)
                keep(a->out, &a->out_len, p, n);
        else
                keep(a->err, &a->err_len, p, n);
}

static int on_submit(struct turn_process *t, uint64_t action, const char *outputs, size_t n, struct error *why, void *user) {
        struct act *a = user;
        assert_int_equal(action, a->action);
        snprintf(a->submitted, sizeof a->submitted, "%.*s", (int)MIN2(n, sizeof a->submitted - 1), outputs);
        a->submits++;
        const char *refuse = a->refuse;
        a->refuse = NULL;
        return refuse ? error_say(why, -EINVAL, "%s", refuse) : 0;
}

static void on_done(struct turn_process *t, uint64_t action, const struct turn_reply *r, void *user) {
        struct act *a = user;
        assert_int_equal(action, a->action);
        a->done = true;
        a->kind = r->kind;
        snprintf(a->type, sizeof a->type, "%.*s", (int)r->error_type_len, r->error_type);
        snprintf(a->error, sizeof a->error, "%.*s", (int)r->error_len, r->error);
        snprintf(a->tool_error, sizeof a->tool_error, "%.*s", (int)r->tool_error_len, r->tool_error);
}

static void on_ended(struct turn_process *t, const struct turn_end *end, void *user) {
        struct act *a = user;
        assert_false(a->ended);
        a->ended = a->done = a->begun = true;
        a->process = NULL;
        a->end = *end;
}

void act_start(struct stage *s, struct act *a, const char *setup, const char *broker, const char *cwd) {
        static const struct turn_callbacks cb = { .begun = on_begun, .output = on_output, .submit = on_submit, .done = on_done, .ended = on_ended };
        const struct turn_spec spec = { .setup = setup, .setup_len = strlen(setup), .secret = "s3cret", .broker = broker, .cwd = cwd };
        struct error e = { 0 };
        *a = (struct act){ .stage = s };
        if (turn_process_start(s->interpreter, &spec, &cb, a, &a->process, &e) < 0)
                fail_msg("%s", e.text);
}

void act_begin(struct stage *s, struct act *a, const char *setup) {
        act_start(s, a, setup, "unix:/tmp/broker", "/tmp");
        fixture_until(s->box.f, &a->begun);
        if (a->ended)
                fail_msg("the turn ended: %s: %s", turn_end_reason_to_string(a->end.reason), a->end.error.text);
}

void act_send(struct act *a, const char *code, const char *variables) {
        struct error e = { 0 };
        a->done = a->heard = false;
        a->out_len = a->err_len = 0;
        a->out[0] = a->err[0] = a->submitted[0] = 0;
        a->submits = 0;
        if (turn_process_execute(a->process, ++a->action, code, strlen(code), variables, variables ? strlen(variables) : 0, &e) < 0)
                fail_msg("%s", e.text);
}

void act_wait(struct act *a) { fixture_until(a->stage->box.f, &a->done); }

void act_run(struct act *a, const char *code) {
        act_send(a, code, NULL);
        act_wait(a);
}

void act_wait_end(struct act *a) { fixture_until(a->stage->box.f, &a->ended); }

void act_end(struct act *a) {
        if (!a->ended)
                turn_process_kill(a->process);
        act_wait_end(a);
}

long act_number(struct act *a, const char *expression) {
        act_run(a, expression);
        assert_string_equal(a->error, "");
        return strtol(a->out, NULL, 10);
}

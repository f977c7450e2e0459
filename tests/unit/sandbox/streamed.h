/* An exec whose output comes as a stream. `enough` is set once `want` bytes of its stdout are there: set it right after the start. */
#pragma once
#include "sandbox/fixture.h"

static UNUSED struct sandbox_spec session_spec(void) {
        struct sandbox_spec s = box_spec();
        s.profile = PROFILE_SESSION;
        return s;
}

struct streamed { struct run run; struct buf text[3]; size_t chunks; bool enough, room, born; size_t want; };

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct streamed *s = user;
        buf_add(&s->text[stream], p, n);
        s->chunks++;
        s->enough |= s->want > 0 && s->text[1].len >= s->want;
}
static void on_writable(struct sandbox_exec *x, void *user) { ((struct streamed *)user)->room = true; }
static void on_started(struct sandbox_exec *x, void *user) { ((struct streamed *)user)->born = true; }
static void on_streamed_exit(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct streamed *s = user;
        s->run.exited = true;
        s->run.end = *end;
        s->run.exec = NULL;
}

static const char *const plain_env[] = { "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", NULL };

static UNUSED void stream_start(struct box *b, struct streamed *s, const char *script, void (*change)(struct exec_spec *)) {
        const char *const argv[] = { "sh", "-c", script, NULL };
        struct error e = { 0 };
        *s = (struct streamed){ .text = { BUF_INIT(1), BUF_INIT(8 << 20), BUF_INIT(8 << 20) } };
        struct exec_spec x = { .argv = argv, .env = plain_env, .cwd = "/", .stdin_fd = -1, .output = on_output, .writable = on_writable, .started = on_started };
        if (change)
                change(&x);
        assert_int_equal(sandbox_exec(b->sandbox, &x, on_streamed_exit, s, &s->run.exec, &e), 0);
}
static UNUSED void stream_release(struct streamed *s) {
        buf_release(&s->text[1]);
        buf_release(&s->text[2]);
}

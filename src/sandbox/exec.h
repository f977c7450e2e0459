/* One exec, the daemon's side: what exec.c (its life) and exec_io.c (what goes in and comes out) share. Loop thread only. */
#pragma once
#include "sandbox/client.h"

/* Where output comes from: a pipe, or the terminal (stream 0 only). */
struct exec_stream {
        uv_poll_t poll; bool polled;
        int fd;                            /* owned; -1 = none */
        int number;                        /* as `output` is told */
        bool ended;
        uint64_t total;
        struct output_capture *capture;    /* may be NULL */
        struct sandbox_exec *exec;
};

struct exec_input { uv_poll_t poll; bool polled, wanted; int fd; struct sandbox_exec *exec; };

struct sandbox_exec {
        struct sandbox_exec *next, **prev;
        struct sandbox *sandbox;
        uint64_t ref, handle;
        struct exec_stream stream[2];
        struct exec_input input;
        int far[3];                        /* the program's ends, until they are sent */
        bool tty; struct exec_tty size;
        struct exec_input arrival;         /* terminal: where its descriptor comes from */
        uv_timer_t timer;
        uint64_t timeout_ms, started_ms, output_bytes;
        bool linked, timer_made, ended, held, kill_wanted;
        int pending;                       /* signal asked for before it started */
        struct exec_end end;
        void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user);
        void (*output)(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user);
        void (*writable)(struct sandbox_exec *x, void *user);
        void (*started)(struct sandbox_exec *x, void *user);
        void *user;
        unsigned closing;
};

/* ---- exec_io.c ---- */
int exec_io_prepare(struct sandbox_exec *x, const struct exec_spec *spec);     /* makes pipes; on failure exec_io_release */
void exec_io_start(struct sandbox_exec *x);            /* the request is sent: watch our ends, close the others */
void exec_io_drain(struct sandbox_exec *x);            /* what is there at this moment, and no more */
void exec_io_close(struct sandbox_exec *x);            /* handles, by exec_close_handle */
void exec_io_release(struct sandbox_exec *x);          /* descriptors */

/* ---- exec.c ---- */
void exec_close_handle(struct sandbox_exec *x, uv_handle_t *h);

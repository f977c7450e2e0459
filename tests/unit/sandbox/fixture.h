/* A spawner on a loop, and sandboxes and execs run to their end: what the tests of this layer share. Needs root. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sandbox/capture.h"
#include "sandbox/sandbox.h"

struct fixture {
        uv_loop_t loop;
        struct spawner *spawner;
        char home[64];
        bool stopped, lost;
};
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Instance id of the last fixture that was set up. */
const char *fixture_instance(void);
/* How many times longer things may take here: BRIG_TEST_SLOW on an emulated machine, else 1. */
unsigned fixture_slowness(void);
void fixture_kill_spawner(struct fixture *f);

struct box {                       /* one sandbox under test */
        struct fixture *f;
        struct sandbox *sandbox;
        bool ready, failed, gone, killed;
        char step[128];
        struct error error;
        struct sandbox_end end;
        bool limit[LIMIT_KIND_MAX];
};
struct run {                       /* one exec under test */
        struct sandbox_exec *exec;
        struct output_capture out, err;
        bool exited;
        struct exec_end end;
};

extern const struct sandbox_callbacks box_callbacks;
struct sandbox_spec box_spec(void);
/* Runs the loop until *flag. After 120 s (times BRIG_TEST_SLOW; a busy disk's discards alone were seen to take 30) the whole program ends: callbacks that are still to come point into the
 * test that waits, and would write on a stack that a failed assertion has left. */
void fixture_until(struct fixture *f, const bool *flag);
void box_create(struct fixture *f, struct box *b, const struct sandbox_spec *spec);     /* waits for ready */
void box_destroy(struct box *b);                                                        /* waits for gone */
struct exec_spec run_spec(struct run *r, const char *const *argv);
void run_start(struct box *b, struct run *r, const struct exec_spec *spec);
void run_wait(struct box *b, struct run *r);
void run_sh(struct box *b, struct run *r, const char *script);                          /* start and wait */
/* A sandbox whose PID 1 is argv; waits for its end. */
void box_run_direct(struct fixture *f, struct box *b, struct run *r, const struct sandbox_spec *spec, const char *const *argv);
void run_release(struct run *r);
/* Output as text, without the final newline. Freed by the next call. */
const char *run_out(struct run *r);
const char *run_err(struct run *r);

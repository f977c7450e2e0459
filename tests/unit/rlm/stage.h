/* A sandbox with an interpreter, and turns in it that are run to their end: what the tests of turns share. Needs root. */
#pragma once
#include "rlm/interpreter.h"
#include "sandbox/fixture.h"

#define STAGE_TEXT_MAX 65536

struct stage {                     /* a sandbox with an interpreter */
        struct box box;
        struct interpreter *interpreter;
        bool ready, lost;
        struct error error;
};
void stage_open(struct fixture *f, struct stage *s);           /* waits until python is ready */
void stage_close(struct stage *s);
/* What a box without an interpreter is made of. */
struct sandbox_spec stage_spec(void);

struct act {                       /* a turn, and what its last action said */
        struct stage *stage;
        struct turn_process *process;  /* NULL: has ended */
        bool begun, done, ended;
        uint64_t action;
        char out[STAGE_TEXT_MAX], err[STAGE_TEXT_MAX];         /* beginnings, with NUL */
        size_t out_len, err_len;                               /* of all */
        enum turn_error_kind kind;
        char type[TURN_NAME_MAX + 1], error[TURN_ERROR_MAX + 1], tool_error[4096];
        char submitted[STAGE_TEXT_MAX];        /* the last that was offered */
        unsigned submits;
        bool heard;                            /* some output */
        const char *refuse;                    /* text to refuse the next with; NULL: accept */
        struct turn_end end;
};
#define STAGE_SETUP "{\"outputs\":[{\"name\":\"answer\"}]}"
void act_begin(struct stage *s, struct act *a, const char *setup);     /* waits until it has begun */
void act_start(struct stage *s, struct act *a, const char *setup, const char *broker, const char *cwd);     /* does not wait */
void act_send(struct act *a, const char *code, const char *variables);         /* an action, not waited for */
void act_wait(struct act *a);                                  /* until it is done */
void act_run(struct act *a, const char *code);                 /* both */
void act_wait_end(struct act *a);
void act_end(struct act *a);                                   /* kills it and waits until all is gone */
/* A number that python prints. */
long act_number(struct act *a, const char *expression);

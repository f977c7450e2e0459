/* A spawner for unit tests of the store: sandboxes that run no process. Everything is put off until fake_run, as the real one
 * answers only from the loop. What a command does is the test's `exec`. */
#pragma once
#include "sandbox/layers.h"
#include "sandbox/sandbox.h"

struct fake_command {              /* in: what is to be run; out: what comes of it */
        enum sandbox_profile profile;
        enum sandbox_network network;
        const char *const *argv;
        const char *const *env;
        const char *writable;      /* target of the writable mount, "" without */
        const char *upper_layer;   /* "" without */
        int status;                /* exit status */
        const char *out, *err;
        bool hang;                 /* until the sandbox is destroyed, or fake_release */
        bool timed_out;
};

struct fake {
        void (*exec)(struct fake_command *c);
        int create_error, publish_error, open_error;   /* -errno for the next ones */
        unsigned creates, live;    /* sandboxes made, alive */
        unsigned publishes, removes, opens, closes, mirror_makes, mirror_removes;
        struct layer_manifest listed[8]; size_t n_listed;
        char published_key[65];    /* of the last layer that was published */
};
extern struct fake fake;

void fake_reset(void);
void fake_run(void);               /* until nothing is put off */
bool fake_step(void);              /* one event */
void fake_release(void);           /* commands that hang end well */
static inline struct spawner *fake_spawner(void) { return (struct spawner *)&fake; }

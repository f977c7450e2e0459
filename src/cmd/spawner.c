#include "cmd/verbs.h"
#include "sandbox/sandbox.h"

/* The daemon starts it, with one end of their socket at descriptor 3. */
static int run(const struct command *c, int argc, char **argv) { return spawner_main(3); }

const struct command cmd_spawner = { .name = "spawner", .hidden = true, .run = run };

#include "cmd/verbs.h"
#include "sandbox/sandbox.h"

/* The daemon starts it, with one end of their socket at descriptor 3. */
int cmd_spawner(int argc, char **argv) { return spawner_main(3); }

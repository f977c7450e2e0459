#include "cmd/verbs.h"

const struct command *const commands[] = {
        &cmd_serve,
        &cmd_score,
        &cmd_config,
        &cmd_doctor,
        &cmd_completion,
        &cmd_manual,
        &cmd_spawner,
        NULL,
};

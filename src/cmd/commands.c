#include "cmd/verbs.h"

const struct command *const commands[] = {
        &cmd_serve,
        &cmd_score,
        &cmd_session_start,
        &cmd_session_ls,
        &cmd_session_rm,
        &cmd_exec,
        &cmd_shell,
        &cmd_ps,
        &cmd_logs,
        &cmd_kill,
        &cmd_top,
        &cmd_config,
        &cmd_doctor,
        &cmd_completion,
        &cmd_manual,
        &cmd_spawner,
        NULL,
};

/* One table per verb, each in the file of its name; commands.c lists them. */
#pragma once
#include "cmd/command.h"

extern const struct command cmd_completion, cmd_config, cmd_doctor, cmd_eval, cmd_manual, cmd_score, cmd_serve, cmd_spawner;
extern const struct command cmd_session_start, cmd_session_ls, cmd_session_rm, cmd_exec, cmd_shell, cmd_ps, cmd_logs, cmd_kill, cmd_top;
extern const struct command cmd_cp, cmd_diff, cmd_fork, cmd_snapshot_create, cmd_snapshot_check, cmd_snapshot_ls, cmd_snapshot_rm;
extern const struct command cmd_image_ls, cmd_image_rm, cmd_image_import, cmd_image_pull, cmd_image_build;

/* One table per verb, each in the file of its name; commands.c lists them. */
#pragma once
#include "cmd/command.h"

extern const struct command cmd_completion, cmd_config, cmd_doctor, cmd_manual, cmd_score, cmd_serve, cmd_spawner;

/* One function per verb: argv[0] is the verb; returns the program's exit status. A line in main.c's table makes it known. */
#pragma once

#define EXIT_USAGE 64

int cmd_config(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_spawner(int argc, char **argv);

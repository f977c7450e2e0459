/* The probes behind facilities.h; private to facilities*.c. */
#pragma once
#include "sandbox/facilities.h"

/* Sets a row; the detail is "<fmt>". */
void facility_set(struct facilities *f, enum facility which, enum facility_state s, int value, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* ok when r >= 0, else missing with the errno as detail; the fmt says what was tried. */
void facility_tried(struct facilities *f, enum facility which, int r, const char *what);

/* Each fills some rows of `f`, which is shared memory: they run in a child process with namespaces of its own. */
void facilities_probe_processes(struct facilities *f);
void facilities_probe_mounts(struct facilities *f);
void facilities_probe_cgroups(struct facilities *f);
void facilities_probe_network(struct facilities *f);

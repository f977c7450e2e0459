/* Reading a report of the helper into an apply_result. The helper is ours, but it worked on a tree that is not: every length,
 * number and path is checked as if it were a stranger's. Pure. */
#pragma once
#include "score/apply.h"

/* A report that has nothing but findings. */
int apply_findings_read(const char *data, size_t len, struct findings *ret, struct error *e);
/* 0; -EREMOTEIO when the helper says that it failed (e: why), -EBADMSG for what is no whole report, -ENOMEM. */
int apply_report_read(const char *data, size_t len, enum patch_mode mode, struct apply_result *ret, struct error *e);

/* TAP, and the node runner's, which is TAP. */
#pragma once
#include "score/text.h"

#define TAP_DEPTH_MAX SINK_GROUPS_MAX   /* levels of sub-tests; what lies deeper is left out */

/* Tests at the margin under their own names, in the order of the text. With `nested` those without sub-tests, under "parent > child". 0, -ENOMEM, -ENOSPC. */
int tap_read(const char *text, bool nested, struct sink *ret, bool *ret_any);

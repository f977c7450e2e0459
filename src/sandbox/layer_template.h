/* Formatted, empty images to copy; theory in layer_template.c. 0 or -errno. */
#pragma once
#include <stdint.h>

#define LAYER_TEMPLATE_NAME 64
#define LAYER_TEMPLATES_MAX 16     /* sizes; what is asked for in a seventeenth is formatted each time */

/* Copies the one of this size into `to`, an empty file of `bytes`. -ENOENT: there is none yet. What a failure leaves in `to` is
 * nothing that can be used. */
int layer_template_copy(int dir, uint64_t bytes, uint64_t inodes, int to);
/* Keeps a copy of a freshly formatted image. */
int layer_template_save(int dir, uint64_t bytes, uint64_t inodes, int from);

/* The ballast: a file that only takes up space, to be given back when the disk is full so that what runs can be recorded.
 * No thread of its own: calls of one ballast must not overlap. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define BALLAST_FILE "ballast"

struct ballast { int dirfd; uint64_t bytes, low_water; bool there; };

/* Free bytes of the file system for an ordinary user; INT64_MAX when it cannot be asked. */
uint64_t disk_free(int dirfd);
/* Makes it if it is not there and leaves the low-water mark free. 0, or -ENOSPC and the like; then it is not there. */
int ballast_make(struct ballast *b);
bool ballast_drop(struct ballast *b);      /* gives the space back; false when there was none */

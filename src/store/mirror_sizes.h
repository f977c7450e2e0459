/* How big each mirror is, and when it was last used: files `<id>.size` in the directory of the mirrors' state, whose time is that
 * of the last use. Mirrors themselves only the spawner can read. Small and few enough for the loop's thread. */
#pragma once
#include "base/macros.h"

#include <stdbool.h>
#include <stdint.h>

int mirror_size_put(int dirfd, const char *id, uint64_t kib);      /* also counts as a use */
void mirror_size_used(int dirfd, const char *id);
void mirror_size_forget(int dirfd, const char *id);
/* 1 and the least recently used mirror that is not busy, 0 if there is none, -errno. *ret_total: bytes of all. */
int mirror_size_oldest(int dirfd, bool (*busy)(const char *id, void *user), void *user, char ret_id[static 65], uint64_t *ret_total);

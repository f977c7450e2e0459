/* The tree on disk, beneath a directory descriptor: no component of a path is ever followed when it is a link, and nothing
 * outside the directory is read or written, whatever stands there. Used in Brig's helper, inside the sandbox's boundary. */
#pragma once
#include <sys/stat.h>

#include "score/patch_plan.h"

#define TREE_REMOVE_DEPTH_MAX 256

/* State of path beneath root. 0, -EFBIG, or what the kernel said. */
int tree_read(int root, const char *path, struct entry *ret);
/* Stat of path beneath root, links not followed; st_mode 0 = absent, also when a parent is no directory. */
int tree_stat(int root, const char *path, struct stat *ret);
/* tree_read as a patch_source callback; user points to the int. */
int tree_source_read(void *user, const char *path, struct entry *ret);
/* Where `path` leads by the links of the tree, written as a path of it; false: to nothing in it, or no link is on the way. */
#define TREE_LINKS_MAX 16
bool tree_resolve(int root, const char *path, char ret[static PATCH_PATH_MAX + 1]);
/* Writes a plan. What is replaced is unlinked first, so hard links and permissions of others stay untouched; what is written
 * carries the present as its time. Directories are made (0755) and, once emptied, removed. -EBADMSG: a directory with contents
 * is in the way of a file. On failure a part may have been written: the caller resets the paths of the plan. */
int tree_write(int root, const struct patch_plan *plan, struct error *e);
/* Puts path back to what it is beneath base, removing whatever stands there, contents and all; parents that are no directories
 * but should be are replaced. *ret_changed: it was different before. Times of restored files are the base's. */
int tree_reset(int root, int base, const char *path, bool *ret_changed, struct error *e);

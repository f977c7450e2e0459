/* A file as an ext4 file system on a loop device: make, mount. For the spawner's children: blocks for milliseconds. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Formats the open, sparse file: no journal, no reserved blocks, inode tables left unwritten, root directory 0755 owned by
 * `owner`. Runs mkfs.ext4 with a fixed argv and an empty environment. */
int layer_loop_format(int image_fd, uint64_t inodes, uint32_t owner, struct error *e);
/* Attaches the file to a free loop device which clears itself with its last user, and mounts it. Returns a detached mount
 * (nodev) or -errno. Read-only mounts never write to the file. */
int layer_loop_mount(int image_fd, bool read_only, struct error *e);
/* Makes the superblock behind the mount read-only: -EBUSY while anybody can still write. Everything is on the loop
 * device when it returns. */
int layer_loop_seal(int mount_fd, struct error *e);

/* Headers of a tar archive that Brig writes itself: ustar, with a pax header where a value does not fit. Pure, any thread.
 *
 *     tar_write_header(&b, &(struct tar_item){ .path = "a/b", .kind = TAR_WRITE_FILE, .mode = 0644, .size = n });
 *     ... n bytes, then tar_write_padding(n) zeros; at the end of all TAR_WRITE_END zeros ... */
#pragma once
#include <stdbool.h>

#include "base/buf.h"

#define TAR_WRITE_BLOCK 512u
#define TAR_WRITE_END (2 * TAR_WRITE_BLOCK)
#define TAR_WRITE_HEADER_MAX (16u * 1024)  /* bytes that one call appends at most */

enum tar_write_kind { TAR_WRITE_FILE = '0', TAR_WRITE_LINK = '1', TAR_WRITE_SYMLINK = '2', TAR_WRITE_DIR = '5', TAR_WRITE_FIFO = '6' };

struct tar_item {
        const char *path;          /* at most 4095 bytes, relative; "" is the top itself */
        const char *link;          /* of a symbolic link what is in it, of a hard link the path of the other name; at most 4095 bytes */
        enum tar_write_kind kind;
        uint32_t mode, uid, gid;
        int64_t mtime;             /* s */
        uint64_t size;             /* of a file */
};
int tar_write_header(struct buf *b, const struct tar_item *it);    /* -ENAMETOOLONG, -ENOSPC, -ENOMEM */
static inline size_t tar_write_padding(uint64_t size) { return (size_t)(-size & (TAR_WRITE_BLOCK - 1)); }

/* A tar archive read entry by entry: ustar, GNU long names, pax headers, sparse files. What is hostile in an archive's *structure* ends
 * here (checksums, numbers, lengths, limits); what is hostile in its *names* is the business of whoever writes the entries.
 *
 *     while ((r = tar_next(t, &entry, &e)) > 0)
 *             ... tar_data(t, ...) as long as it gives bytes; what is not read is skipped ...
 *
 * Memory is constant: one name, one link, one set of attributes, each with a limit. Helper code; one thread. */
#pragma once
#include "archive/inflow.h"

#define TAR_NAME_MAX 4095              /* bytes of a path, and of a link's target */
#define TAR_PAX_MAX (1u << 20)         /* bytes of an extended header */
#define TAR_XATTRS_MAX 64
#define TAR_SPARSE_MAX 65536           /* pieces of a sparse file */

enum tar_type { TAR_FILE, TAR_HARDLINK, TAR_SYMLINK, TAR_CHAR, TAR_BLOCK, TAR_DIR, TAR_FIFO, TAR_OTHER };

struct tar_xattr { const char *name; const void *value; size_t size; };

struct tar_entry {                     /* valid until the next tar_next */
        enum tar_type type;
        char kind;                     /* the header's letter */
        const char *path, *link;
        uint32_t mode;                 /* 07777 */
        uint64_t uid, gid;
        int64_t mtime; uint32_t mtime_ns;
        uint64_t size;                 /* of the file, holes included */
        const struct tar_xattr *xattrs; size_t n_xattrs;
};

struct tar_reader;
int tar_open(struct inflow *in, struct tar_reader **ret, struct error *e);
void tar_free(struct tar_reader *t);
/* 1 and an entry; 0 at the end; -EBADMSG, -E2BIG or what inflow_read says. */
int tar_next(struct tar_reader *t, struct tar_entry *ret, struct error *e);
/* The next piece of the file's data: bytes read, and in *ret_at the offset in the file where they belong (holes are left out). 0: all read. */
ssize_t tar_data(struct tar_reader *t, void *p, size_t n, uint64_t *ret_at, struct error *e);

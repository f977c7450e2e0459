/* Shared by the files of the tar reader; nobody else includes it. */
#pragma once
#include "archive/tar_read.h"

#define TAR_BLOCK_SIZE 512u
#define TAR_EXTRAS_MAX 8               /* extended headers before one entry */

struct tar_piece { uint64_t at, size; };       /* of a sparse file: where there is data */

struct tar_found {                     /* in the pax header; strings point into it */
        const char *path, *link, *sparse_name, *sparse_map;
        bool has_uid, has_gid, has_size, has_mtime, sparse;
        uint64_t uid, gid;
        int64_t size, mtime;
        uint32_t mtime_ns;
        int64_t sparse_major, sparse_size;
};

struct tar_reader {
        struct inflow *in;
        char name[TAR_NAME_MAX + 2], link[TAR_NAME_MAX + 2], long_name[TAR_NAME_MAX + 2], long_link[TAR_NAME_MAX + 2];
        char *pax;
        struct tar_found found;
        struct tar_xattr xattrs[TAR_XATTRS_MAX]; size_t n_xattrs;
        struct tar_piece *sparse; size_t n_sparse, piece;      /* TAR_SPARSE_MAX of them, made when first needed */
        bool sparse_file;
        uint64_t left, padding, at;    /* of the entry's data in the archive */
};

static inline uint64_t tar_padding(uint64_t size) { return (TAR_BLOCK_SIZE - size % TAR_BLOCK_SIZE) % TAR_BLOCK_SIZE; }

/* tar_pax.c: cuts the records apart in place (n bytes and a NUL). */
int tar_pax_parse(struct tar_reader *t, char *p, size_t n, struct error *e);
/* tar_sparse.c */
int tar_sparse_add(struct tar_reader *t, uint64_t at, uint64_t size, struct error *e);
int tar_sparse_open(struct tar_reader *t, const unsigned char *block, struct tar_entry *en, struct error *e);
ssize_t tar_sparse_data(struct tar_reader *t, void *p, size_t n, uint64_t *ret_at, struct error *e);

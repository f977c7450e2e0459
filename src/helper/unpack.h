/* Unpacking an archive into a sandbox's file system. Shared by the files of the verb `unpack`; see unpack.c. */
#pragma once
#include "archive/tar_read.h"

#define UNPACK_PARENTS_MAX_LINKS 40
#define UNPACK_OVERFLOW_ID 65534u      /* ids that no range of ours has become this one */

struct path_set;                       /* what this archive has written: hashes of paths, 8 bytes each */
int path_set_new(size_t max, struct path_set **ret);
void path_set_free(struct path_set *s);
/* Adds the path and every directory above it. -E2BIG over the maximum; -ENOMEM. */
int path_set_add(struct path_set *s, const char *path);
bool path_set_has(const struct path_set *s, const char *path);

struct unpack_options {
        const char *target;            /* relative to the root, "" = the root */
        bool whiteouts, set_owner;
        uint32_t uid, gid;
        uint64_t entries_max;
};

struct unpack_tree {
        const struct unpack_options *o;
        int root;                      /* of what is unpacked */
        uint64_t device[3]; unsigned n_devices;        /* file systems that may be written: what the sandbox has mounted elsewhere may not */
        struct path_set *seen;
        /* The directory that the last entry was made in, and the time it had: what is made in it must not change that. */
        char parent[TAR_NAME_MAX + 1];
        int parent_fd;
        bool parent_foreign;           /* a mount of the sandbox's */
        struct { int64_t s; uint32_t ns; } parent_time;
        uint64_t entries, skipped;
};

int unpack_tree_open(struct unpack_tree *u, const struct unpack_options *o, int root, struct error *e);
void unpack_tree_close(struct unpack_tree *u);
/* Errors are -EBADMSG (the archive's fault, with the entry's name) or the system's. */
int unpack_entry(struct unpack_tree *u, struct tar_reader *t, const struct tar_entry *en, struct error *e);

/* ---- unpack_path.c ---- */
/* "./a//b/" -> "a/b". -EBADMSG: absolute, "..", empty component too long. `what`: for the error. */
int unpack_clean(const char *name, const char *what, char ret[static TAR_NAME_MAX + 1], struct error *e);
/* Opens the directory `path` below root, links followed. -EXDEV: one leads out. */
enum unpack_open {
        UNPACK_MAKE = 1,               /* made where it is missing */
        UNPACK_ABSOLUTE = 2,           /* root is "/": absolute links begin there; else they lead out */
};
int unpack_open_dir(int root, const char *path, unsigned how);
/* Printable form of a name, for errors. */
const char *unpack_show(const char *name);

/* remove.c: as verb remove-tree, below an open directory. */
int helper_remove(int at, const char *name);

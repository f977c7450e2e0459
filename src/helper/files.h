/* The verb `files`: operations on a sandbox's files for people outside it. Shared by its files; see files.c.
 *
 * Paths are absolute or relative to "/", and mean what they mean inside: links are followed with the sandbox's root as "/", by the
 * kernel in one step (openat2, RESOLVE_IN_ROOT), so nobody can change them on the way; links of /proc that lead elsewhere are not. What
 * is worked on is the opened thing, never its path again. Opening does not block, and what is neither file nor directory is refused. */
#pragma once
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/json.h"
#include "sandbox/files_wire.h"

#define FILES_PATH_MAX 4095            /* bytes of a path */
#define FILES_LINKS_MAX 40             /* links in a row as the last part of a path that is written to */
#define FILES_LIST_MAX 10000           /* entries of one answer */
#define FILES_SCAN_MAX 200000          /* entries of one directory that are looked at */
#define FILES_DEPTH_MAX 256            /* of a walk */
#define FILES_FOUND_MAX 10000          /* results of one search */
#define FILES_SEARCH_FILE_MAX (64ull << 20)        /* bytes of a file that a search looks into */
#define FILES_LINE_MAX 512             /* bytes of a line that a search shows */

enum { FILES_FAILED = FILES_EXIT_FAILED };

struct files_args {
        const char *path, *to;
        bool parents, recursive, replace, append, follow, regex, ignore_case, mode_given, owner_given, gzip;
        mode_t mode;
        uid_t uid;
        gid_t gid;
        unsigned depth, level;
        uint64_t limit, max;
        const char *after, *name, *text;
};

typedef int (*files_operation)(const struct files_args *a);

/* Says {"error": CODE, "message": ...} and gives FILES_FAILED. `r` is -errno; `about` a path or NULL. */
int files_fail(int r, const char *about);
/* The same object, appended to b. */
int files_describe(int r, struct buf *b);
/* The head of read and pack: the object, padded; or why there is none. The latter gives FILES_FAILED. */
int files_head(struct buf *b);
int files_head_fail(int r);
/* Writes the answer. */
int files_answer(struct buf *b, struct json_writer *w);
/* A string of any bytes: KEY with what is not UTF-8 replaced, and then KEY_b64 with the bytes themselves. */
void files_put_bytes(struct json_writer *w, const char *key, const char *p, size_t n);
/* type, size, mode, uid, gid, mtime. */
void files_put_facts(struct json_writer *w, const struct stat *st);
/* The members of one entry: name or path, type, size, mode, uid, gid, mtime, target of a link. `dir` and `name` find a link's target. */
void files_put_entry(struct json_writer *w, const char *key, const char *shown, int dir, const char *name, const struct stat *st);

/* ---- files_path.c ---- */
void files_refuse_links(void);                                     /* from now on, as any part of a path: -ELOOP */
int files_open(const char *path, int flags);                       /* links followed, also the last; O_NONBLOCK and O_NOCTTY are added */
int files_open_kind(const char *path, int flags, mode_t kind);     /* and it is a S_IFREG or S_IFDIR of a real file system; else -EINVAL, -EISDIR, -ENOTDIR */
/* The directory that holds the last part of `path`, and that part, which is not "", "." or ".." (-EINVAL). With `make`: missing
 * directories are made, owned as `a` says. The last part may be anything, a link too. */
int files_open_parent(const char *path, const struct files_args *make, char ret_name[static 256]);
/* The same, but where the last part is a link, that of its target, and so on: where a write goes. */
int files_open_target(const char *path, const struct files_args *make, char ret_name[static 256]);
bool files_is_virtual(int fd);                                     /* of /proc, /sys and the like */
int files_give(int fd, const struct files_args *a);                /* owner, where one is given */

/* ---- operations ---- */
int files_stat(const struct files_args *a);
int files_list(const struct files_args *a);
int files_move(const struct files_args *a);
int files_delete(const struct files_args *a);
int files_mkdir(const struct files_args *a);
int files_chmod(const struct files_args *a);
int files_read(const struct files_args *a);
int files_write(const struct files_args *a);
int files_search(const struct files_args *a);
int files_pack(const struct files_args *a);

/* A tar archive, written as it goes (GNU format: names of any bytes and length, sizes of any size, sparse files), plain or gzip.
 * Constant memory. Helper code; one thread. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/macros.h"

struct tar_writer;

/* `fd` stays the caller's. level: 0 to 9, of gzip. `max`: bytes of the archive as it leaves, -EFBIG beyond. */
int tar_write_open(int fd, bool gzip, int level, uint64_t max, struct tar_writer **ret);
void tar_write_free(struct tar_writer *t);
/* Directory, link (target) or hard link (target, with `hard`); names of directories end with '/'. */
int tar_write_entry(struct tar_writer *t, const char *name, const struct stat *st, const char *target, bool hard);
/* A regular file, `st` its own: exactly st_size bytes, whatever becomes of it meanwhile; holes stay holes. */
int tar_write_file(struct tar_writer *t, const char *name, const struct stat *st, int fd);
int tar_write_finish(struct tar_writer *t);            /* the archive's end; 0 or -errno */

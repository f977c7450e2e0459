/* A tar archive, written to a descriptor as it goes, plain or gzip. Constant memory. Helper code; one thread.
 *
 * In the GNU format, unlike the single headers of archive/tar_write.h: this is for trees that a sandbox has made, whose files may have holes, and
 * names of any bytes, while a pax header holds UTF-8 only. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/macros.h"

struct tar_stream;

/* `fd` stays the caller's. level: 0 to 9, of gzip. `max`: bytes of the archive as it leaves, -EFBIG beyond. */
int tar_stream_open(int fd, bool gzip, int level, uint64_t max, struct tar_stream **ret);
void tar_stream_free(struct tar_stream *t);
/* Directory, link (target) or hard link (target, with `hard`); names of directories end with '/'. */
int tar_stream_entry(struct tar_stream *t, const char *name, const struct stat *st, const char *target, bool hard);
/* A regular file, `st` its own: exactly st_size bytes, whatever becomes of it meanwhile; holes stay holes. */
int tar_stream_file(struct tar_stream *t, const char *name, const struct stat *st, int fd);
int tar_stream_finish(struct tar_stream *t);            /* the archive's end; 0 or -errno */

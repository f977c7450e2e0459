/* Files on their way into a sandbox's private view (struct exec_view): one memfd with names, modes and contents, so that their
 * number is not bound by how many descriptors a message carries.
 *
 * Building copies every byte: do it on the pool, not on the loop, where it may be more than a megabyte. Any thread, one at a
 * time. Format, host-endian: for each file u32 name length, u32 mode, u64 size, the name, the bytes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FILE_PACK_FILES_MAX 4096u
#define FILE_PACK_BYTES_MAX (128ull << 20)     /* names and heads included */
#define FILE_PACK_NAME_MAX 1024u               /* bytes of one name */

struct file_pack { int fd; uint64_t bytes; unsigned n; };
#define FILE_PACK_INIT { .fd = -1 }

/* Relative, without empty, "." or ".." components and at most FILE_PACK_NAME_MAX long; components of at most 255 bytes. */
bool file_pack_name_ok(const char *name);
/* -EINVAL: the name; -E2BIG: too many files; -EFBIG: too many bytes; -errno. A name given twice: the last one stands. */
int file_pack_add(struct file_pack *p, const char *name, mode_t mode, const void *data, size_t n);
/* Seals it; p->fd, still the pack's, may then be given as pack_fd. An empty pack has fd -1. */
int file_pack_seal(struct file_pack *p);
void file_pack_release(struct file_pack *p);

/* The other side: writes the files below the directory `at`, all owned by owner:owner, directories on the way 0755. Checks everything;
 * -EBADMSG for what file_pack_add would not have made. Allocates nothing. */
int file_pack_unpack(int fd, int at, uint32_t owner);

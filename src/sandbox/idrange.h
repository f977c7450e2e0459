/* Ranges of 65,536 host ids, one per live sandbox, unique on the machine.
 *
 * Every process of Brig, of any instance, takes ranges under an open-file-description lock on one byte per range of one
 * file (IDRANGE_LOCK_FILE): the lock goes with its owner, so a range frees itself when the spawner dies. The first range
 * above the base is the store's: it owns Brig's own files and is never given to a sandbox.
 *
 * Spawner only, one thread. */
#pragma once
#include <stdint.h>

#include "base/error.h"

#define IDRANGE_SIZE 65536u
#define IDRANGE_DEFAULT_BASE 0x40000000u       /* 1,073,741,824: above what login.defs and container engines hand out */
#define IDRANGE_MAX 16384u                     /* ranges per base, the store's included */
#define IDRANGE_LOCK_FILE "/run/brig/ids"

struct idrange_allocator;

/* `base` is a multiple of 65,536, at least 65,536; the ranges end below 2^32 - 65,536. `lock_file` NULL = IDRANGE_LOCK_FILE. */
int idrange_allocator_open(uint32_t base, const char *lock_file, struct idrange_allocator **ret, struct error *e);
void idrange_allocator_close(struct idrange_allocator *a);      /* frees every range it still holds */
/* First id of the range; ranges freed last come last. -EUSERS: none left. */
int idrange_take(struct idrange_allocator *a, uint32_t *ret_first, struct error *e);
void idrange_give(struct idrange_allocator *a, uint32_t first);
/* The range that owns Brig's own files. */
uint32_t idrange_store(const struct idrange_allocator *a);

/* How full a sandbox's own file system is. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define DISK_FULL_PERMILLE 10                  /* less than this free, in blocks or inodes, counts as the limit reached */

struct disk_sample {
        uint64_t used_bytes;
        uint64_t used_inodes;
        bool full;
};

/* `fd`: any descriptor on the file system (the upper's directory). 0 or -errno. */
int disk_sample(int fd, struct disk_sample *ret);

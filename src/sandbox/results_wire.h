/* What the helper's verb `results` writes for each path it was given, in order, to standard output: this head, then `bytes` bytes.
 * Both ends are the same program: host-endian. No libuv in here, the helper reads it. */
#pragma once
#include <stdint.h>

#define RESULT_FILE_MAX (16ull << 20)          /* bytes of one file */
#define RESULT_TOTAL_MAX (64ull << 20)         /* bytes of all files of one call */
#define RESULT_FILES_MAX 256

enum result_state {
        RESULT_NONE,           /* nothing there, a link on the way, not a regular file, or not to be read */
        RESULT_FILE,
        RESULT_TOO_BIG,        /* over RESULT_FILE_MAX, or over what is left of RESULT_TOTAL_MAX */
        RESULT_STATE_MAX
};

struct result_head {
        uint32_t state;        /* enum result_state */
        uint32_t unused;
        uint64_t device, inode;
        int64_t changed_ns;    /* ctime: no process inside can set it back */
        uint64_t size, bytes;
};

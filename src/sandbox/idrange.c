#include <fcntl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/idrange.h"

struct idrange_allocator {
        int fd;                              /* every lock of this process hangs on this open file description */
        uint32_t base;
        uint32_t count;                      /* ranges, the store's included */
        uint32_t cursor;                     /* where the search begins: what was freed last comes last */
        unsigned char held[IDRANGE_MAX / 8]; /* the kernel does not keep a process from locking its own byte again */
};

static bool is_held(const struct idrange_allocator *a, uint32_t i) { return a->held[i / 8] & 1u << i % 8; }

/* The byte's number is the range's place among all ids, so that allocators with other bases agree. */
static int lock_byte(struct idrange_allocator *a, uint32_t i, short type) {
        struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(a->base / IDRANGE_SIZE + i), .l_len = 1 };
        return fcntl(a->fd, F_OFD_SETLK, &l) < 0 ? -errno : 0;
}

int idrange_allocator_open(uint32_t base, const char *lock_file, struct idrange_allocator **ret, struct error *e) {
        if (base % IDRANGE_SIZE != 0 || base < IDRANGE_SIZE || base > UINT32_MAX - 3 * IDRANGE_SIZE)
                return error_say(e, -EINVAL, "id base %u: a multiple of 65536 from 65536 on is needed", base);
        if (!lock_file) {
                lock_file = IDRANGE_LOCK_FILE;
                int r = fs_mkdir_p("/run/brig", 0755);
                if (r < 0)
                        return error_set(e, r, "make /run/brig");
        }
        struct idrange_allocator *a = calloc(1, sizeof *a);
        if (!a)
                return error_set(e, -ENOMEM, "open the id ranges");
        a->base = base;
        a->count = MIN2(IDRANGE_MAX, (UINT32_MAX - base) / IDRANGE_SIZE - 1);
        a->cursor = 1;
        a->fd = open(lock_file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (a->fd < 0) {
                int r = -errno;
                free(a);
                return error_set(e, r, "open %s", lock_file);
        }
        *ret = a;
        return 0;
}

void idrange_allocator_close(struct idrange_allocator *a) {
        if (!a)
                return;
        fd_close(a->fd);
        free(a);
}

int idrange_take(struct idrange_allocator *a, uint32_t *ret_first, struct error *e) {
        for (uint32_t n = 1; n < a->count; n++) {
                uint32_t i = a->cursor;
                a->cursor = i + 1 < a->count ? i + 1 : 1;
                if (is_held(a, i))
                        continue;
                int r = lock_byte(a, i, F_WRLCK);
                if (r == -EAGAIN || r == -EACCES)
                        continue;   /* another process's */
                if (r < 0)
                        return error_set(e, r, "lock an id range");
                a->held[i / 8] = (unsigned char)(a->held[i / 8] | 1u << i % 8);
                *ret_first = a->base + i * IDRANGE_SIZE;
                return 0;
        }
        return error_say(e, -EUSERS, "no id range is free: %u are in use", a->count - 1);
}

void idrange_give(struct idrange_allocator *a, uint32_t first) {
        uint32_t i = (first - a->base) / IDRANGE_SIZE;
        ASSERT(first >= a->base && (first - a->base) % IDRANGE_SIZE == 0 && i > 0 && i < a->count && is_held(a, i));
        a->held[i / 8] = (unsigned char)(a->held[i / 8] & ~(1u << i % 8));
        ASSERT(lock_byte(a, i, F_UNLCK) == 0);
}

uint32_t idrange_store(const struct idrange_allocator *a) {
        return a->base;
}

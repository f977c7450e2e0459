#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/clock.h"

static _Atomic int lowest_level = LOG_INFO;
static _Atomic int file_fd = -1;
static char file_path[4096];
static _Atomic uint64_t file_size, file_max;       /* 0: never turned over */
static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;
static const char *const level_names[LOG_LEVEL_MAX] = { "debug", "info", "warn", "error" };

void log_set_level(enum log_level lowest) {
        lowest_level = lowest;
}

int log_open_file(const char *path) {
        if (snprintf(file_path, sizeof file_path, "%s", path) >= (int)sizeof file_path)
                return -ENAMETOOLONG;
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (fd < 0)
                return -errno;
        struct stat st;
        file_size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
        fd_close(atomic_exchange(&file_fd, fd));
        return 0;
}

void log_limit_file(uint64_t bytes) {
        file_max = bytes;
}

/* The descriptor keeps its number, so a thread that is about to write hits the old file or the new one, never another's. */
static int turn_over(void) {
        char old[sizeof file_path + 2];
        snprintf(old, sizeof old, "%s.1", file_path);
        if (rename(file_path, old) < 0)
                return ftruncate(file_fd, 0) < 0 ? -errno : 0;  /* a directory of somebody else's: bounded all the same */
        int fd = open(file_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (fd < 0)
                return -errno; /* goes on in the old one, and tries again when it has grown as much again */
        int r = dup3(fd, file_fd, O_CLOEXEC) < 0 ? -errno : 0;
        fd_close(fd);
        return r;
}

static void count(size_t written) {
        uint64_t size = atomic_fetch_add(&file_size, written) + written, max = file_max;
        if (max == 0 || size < max)
                return;
        pthread_mutex_lock(&turning);  /* if somebody is at it we wait: else the old file would grow as long as the other is held up */
        if (file_size >= max) {
                (void)turn_over();
                file_size = 0;
        }
        pthread_mutex_unlock(&turning);
}

static void add_value(struct buf *b, const char *v) {
        size_t n = strnlen(v, LOG_VALUE_MAX);
        int plain = n > 0;
        for (size_t i = 0; i < n && plain; i++)
                plain = (unsigned char)v[i] > ' ' && v[i] != '"' && v[i] != '\\' && v[i] != 0x7f;
        if (plain) {
                buf_add(b, v, n);
                return;
        }
        buf_addc(b, '"');
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)v[i];
                if (c == '"' || c == '\\')
                        buf_printf(b, "\\%c", c);
                else if (c == '\n')
                        buf_adds(b, "\\n");
                else if (c < ' ' || c == 0x7f)
                        buf_printf(b, "\\x%02x", c);
                else
                        buf_addc(b, (char)c);
        }
        buf_addc(b, '"');
}

static void (*_Atomic observer)(enum log_level level, const char *event, va_list pairs);

void log_on_event(void (*seen)(enum log_level level, const char *event, va_list pairs)) { observer = seen; }

int log_enabled(enum log_level level) {
        return (int)level >= lowest_level;
}

void log_event(enum log_level level, const char *event, ...) {
        void (*seen)(enum log_level level, const char *event, va_list pairs) = observer;
        va_list ap;
        if (seen) {
                va_start(ap, event);
                seen(level, event, ap);
                va_end(ap);
        }
        if ((int)level < lowest_level)
                return;
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        char when[25];
        format_wall(wall_ms(), when);
        buf_printf(&b, "%s %s %s", when, level_names[level], event);
        va_start(ap, event);
        for (const char *key; (key = va_arg(ap, const char *));) {
                const char *value = va_arg(ap, const char *);
                buf_printf(&b, " %s=", key);
                add_value(&b, value ? value : "-");
        }
        va_end(ap);
        buf_addc(&b, '\n');
        int fd = file_fd;
        if (fd >= 0 && write(fd, b.data, b.len) > 0)
                count(b.len);
        if (write(STDERR_FILENO, b.data, b.len) < 0)
                return; /* nowhere left to say it */
}

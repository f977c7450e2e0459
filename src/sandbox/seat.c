#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/mounts.h"
#include "sandbox/seat.h"

const char *const plane_dir[PLANE_MAX] = { "root", "usr", "opt" };
const char *const plane_path[PLANE_MAX] = { "/", "/usr", "/opt" };

static int write_text(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        ssize_t n = write(fd, text, strlen(text));
        return n < 0 ? -errno : 0;
}

/* Child: owns the namespace while it is mapped, then forbids further ones below it and leaves. */
NORETURN static void holder(int ready) {
        char c;
        int r = read(ready, &c, 1) == 1 ? 0 : -EPIPE;
        if (r == 0)
                r = write_text("/proc/sys/user/max_user_namespaces", "0");
        _exit(r < 0 ? -r : 0);
}

static int write_maps(pid_t pid, uint32_t from, uint32_t to) {
        char path[48], line[64];
        snprintf(line, sizeof line, "%u %u %u\n", from, to, IDRANGE_SIZE);
        snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
        int r = write_text(path, line);
        snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
        return r < 0 ? r : write_text(path, line);
}

int user_ns_make(uint32_t from, uint32_t to, int *ret_fd, struct error *e) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set(e, -errno, "pipe");
        struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = 0 };
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0) {
                close(p[1]);
                holder(p[0]);
        }
        int r = pid < 0 ? error_set(e, -errno, "clone a user namespace") : 0;
        _cleanup_close_ int ready = p[1];
        close(p[0]);
        if (r < 0)
                return r;
        r = write_maps(pid, from, to);
        if (r < 0)
                error_set(e, r, "map ids %u to %u", from, to);
        char path[48];
        snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
        _cleanup_close_ int ns = open(path, O_RDONLY | O_CLOEXEC);
        if (ns < 0 && r == 0)
                r = error_set(e, -errno, "open %s", path);
        if (r == 0 && write(ready, "", 1) != 1)
                r = error_set(e, -errno, "wake the namespace's holder");
        ready = fd_close(ready);
        int status = 0;
        while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
                ;
        if (r == 0 && status != 0)
                r = error_set(e, WIFEXITED(status) ? -WEXITSTATUS(status) : -EPROTO, "forbid nested user namespaces");
        if (r == 0)
                *ret_fd = TAKE_FD(ns);
        return r;
}

int seat_new(uint32_t base, struct seat **ret, struct error *e) {
        struct seat *s = calloc(1, sizeof *s);
        if (!s)
                return error_set(e, -ENOMEM, "seat");
        s->base = base;
        for (int i = 0; i < PLANE_MAX; i++)
                s->lower[i] = -1;
        int r = user_ns_make(0, base, &s->user_ns, e);
        if (r < 0) {
                free(s);
                return r;
        }
        *ret = s;
        return 0;
}

void seat_free(struct seat *s) {
        if (!s)
                return;
        for (int i = 0; i < PLANE_MAX; i++)
                mount_release(s->lower[i]);
        for (unsigned i = 0; i < s->n_maps; i++)
                fd_close(s->map[i].user_ns);
        fd_close(s->user_ns);
        free(s);
}

int seat_map(struct seat *s, uint32_t from, int *ret_fd, struct error *e) {
        if (from == s->base) {
                *ret_fd = -1;
                return 0;
        }
        if (from == 0) {
                *ret_fd = s->user_ns;
                return 0;
        }
        for (unsigned i = 0; i < s->n_maps; i++) {
                if (s->map[i].from == from) {
                        *ret_fd = s->map[i].user_ns;
                        return 0;
                }
        }
        int fd, r = user_ns_make(from, s->base, &fd, e);
        if (r < 0)
                return r;
        unsigned slot = s->n_maps < SEAT_MAPS_MAX ? s->n_maps++ : from / IDRANGE_SIZE % SEAT_MAPS_MAX;
        if (s->n_maps == SEAT_MAPS_MAX && s->map[slot].from)
                fd_close(s->map[slot].user_ns);
        s->map[slot].from = from;
        s->map[slot].user_ns = fd;
        *ret_fd = fd;
        return 0;
}

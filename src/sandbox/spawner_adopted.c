/* Processes that an exec of a sandbox has started and that are given a group of their own.
 *
 * They are no children of the spawner's, so nobody here reaps them: what counts is the group. It is gone when the kernel says that no process is in it,
 * which is an event of the group's (EPOLLPRI of cgroup.events); while one is killed the timer looks too. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/spawner.h"

#define STATUS_MAX 8192            /* of /proc/PID/status and fdinfo */
#define LOOK_MS 3

struct adopted {
        uint64_t handle, ref;
        struct cell *cell;
        int pidfd, group;
        char name[GROUP_NAME_MAX];
        struct watch events;       /* cgroup.events */
        pid_t moving;              /* it is on its way into its group; else 0 */
        bool killing;
};

static void send_state(struct spawn *sp, const struct adopted *a, uint32_t type, uint64_t ref, const int *r) {
        _cleanup_buf_ struct buf b = BUF_INIT(32);
        if (r)
                wire_put_u32(&b, (uint32_t)*r);
        wire_put_u64(&b, (uint64_t)cgroup_sub_cpu_us(a->group));
        spawner_send(sp, type, ref, a->handle, &b, NULL, 0);
}

static void adopted_free(struct spawn *sp, struct adopted *a) {
        if (a->events.fd >= 0) {
                watch_stop(sp, &a->events);
                fd_close(a->events.fd);
        }
        if (a->handle)
                handle_drop(&sp->adopted, a->handle);
        fd_close(a->pidfd);
        fd_close(a->group);
        free(a);
}

/* By the descriptor that is watched: its event stands until it is read there. */
static bool is_empty(const struct adopted *a) {
        char text[256];
        ssize_t n = pread(a->events.fd, text, sizeof text - 1, 0);
        if (n <= 0)
                return false;
        text[n] = 0;
        const char *at = strstr(text, "populated ");
        return at && at[strlen("populated ")] == '0';
}

/* Told only when the group is removed: then nothing can be in it. */
static void look(struct spawn *sp, struct adopted *a) {
        if (!is_empty(a))
                return;
        int64_t cpu = cgroup_sub_cpu_us(a->group);
        if (cgroup_sub_remove(a->cell->cgroup, a->name) < 0) {
                a->killing = true;     /* some task is past its exit but not yet off the group */
                timer_arm(sp, 1);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        wire_put_u64(&b, (uint64_t)cpu);
        spawner_send(sp, EV_EMPTY, a->ref, a->handle, &b, NULL, 0);
        adopted_free(sp, a);
}

static void on_events(struct spawn *sp, struct watch *w, uint32_t events) { look(sp, container_of(w, struct adopted, events)); }

void adopted_tick(struct spawn *sp) {
        bool again = false;
        for (size_t i = 0; i < sp->adopted.alloc; i++) {
                struct adopted *a = sp->adopted.object[i];
                if (a && a->killing)
                        look(sp, a);
                again |= sp->adopted.object[i] && a && a->killing;
        }
        if (again)
                timer_arm(sp, LOOK_MS);
}

void adopted_release(struct spawn *sp, const struct cell *c) {
        for (size_t i = 0; i < sp->adopted.alloc; i++) {
                struct adopted *a = sp->adopted.object[i];
                if (a && a->cell == c)
                        adopted_free(sp, a);
        }
}

/* ---- whose process is it ---- */

/* "Key:" and numbers behind it, in a file of /proc. */
static int read_numbers(const struct spawn *sp, const char *path, const char *key, long *ret, size_t n) {
        _cleanup_buf_ struct buf b = BUF_INIT(STATUS_MAX);
        int r = fs_read_file(sp->own_proc, path, &b);
        if (r < 0)
                return r == -ENOENT ? -ESRCH : r;
        const char *at = strstr(buf_str(&b), key);
        if (!at)
                return -EBADMSG;
        at += strlen(key);
        for (size_t i = 0; i < n; i++) {
                char *end;
                ret[i] = strtol(at, &end, 10);
                if (end == at)
                        return -EBADMSG;
                at = end;
        }
        return 0;
}

static int same_pid_namespace(const struct spawn *sp, pid_t a, pid_t b) {
        char path[48];
        struct stat st[2];
        for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof path, "%d/ns/pid", i == 0 ? (int)a : (int)b);
                if (fstatat(sp->own_proc, path, &st[i], 0) < 0)
                        return errno == ENOENT ? -ESRCH : -errno;
        }
        return st[0].st_ino == st[1].st_ino && st[0].st_dev == st[1].st_dev ? 0 : -EPERM;
}

/* Its number, which stays its own as long as the descriptor says that it lives. */
static int check(struct spawn *sp, const struct cell *c, int pidfd, pid_t *ret) {
        char path[48];
        long pid, uid[4];
        snprintf(path, sizeof path, "self/fdinfo/%d", pidfd);
        int r = read_numbers(sp, path, "\nPid:\t", &pid, 1);
        if (r < 0 || pid <= 0)
                return r < 0 ? r : -ESRCH;
        if (pid == c->init || pid == c->launcher || proc_of_pid(sp, (pid_t)pid))
                return -EPERM;
        r = same_pid_namespace(sp, (pid_t)pid, c->init);
        if (r < 0)
                return r;
        snprintf(path, sizeof path, "%ld/status", pid);
        r = read_numbers(sp, path, "\nUid:", uid, ARRAY_SIZE(uid));
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_SIZE(uid); i++)
                if (uid[i] != (long)c->seat->base)
                        return -EPERM;
        *ret = (pid_t)pid;
        return 0;
}

static int alive(int pidfd) { return syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 ? -errno : 0; }

/* ---- operations ---- */

/* It is in its group, or (r < 0) is not. */
static void moved(struct spawn *sp, struct adopted *a, int r) {
        a->moving = 0;
        if (r == 0)
                r = alive(a->pidfd);   /* then it is the one that was meant */
        if (r == 0)
                r = watch_start(sp, &a->events, a->events.fd, EPOLLPRI, on_events);
        if (r == 0) {
                spawner_send(sp, EV_STARTED, a->ref, a->handle, NULL, NULL, 0);
                look(sp, a);
                return;
        }
        struct fault f = { 0 };
        fault_set(&f, "adopt a process", r);
        spawner_send_failed(sp, a->ref, 0, &f);
        (void)cgroup_sub_kill(a->group);
        group_drop(a->cell, a->name);
        adopted_free(sp, a);
}

void adopted_moved(struct spawn *sp, uint64_t handle, int r) {
        struct adopted *a = handle_get(&sp->adopted, handle);
        if (a && a->moving > 0)        /* else its sandbox has ended meanwhile */
                moved(sp, a, r == -EACCES ? cgroup_sub_move(a->group, a->moving) : r);
}

void adopted_move_all(struct spawn *sp) {
        for (size_t i = 0; i < sp->adopted.alloc; i++) {
                struct adopted *a = sp->adopted.object[i];
                if (a && a->moving > 0)
                        moved(sp, a, cgroup_sub_move(a->group, a->moving));
        }
}

static int prepare(struct spawn *sp, struct cell *c, struct adopted *a, pid_t *ret_pid) {
        int r = check(sp, c, a->pidfd, ret_pid);
        if (r == 0)
                r = a->group = group_make(c, a->name);
        if (r < 0)
                return r;
        a->events.fd = openat(a->group, "cgroup.events", O_RDONLY | O_CLOEXEC);
        r = a->events.fd < 0 ? -errno : handle_new(&sp->adopted, a, &a->handle);
        if (r < 0)
                group_drop(c, a->name);
        return r;
}

int op_adopt(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        pid_t pid;
        if (!c || c->state != CELL_READY || c->direct || c->killing)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        if (m->n_fds != 1)
                return fault_set(f, "check the request", -EBADMSG);
        if (c->freeze != FREEZE_NONE)
                return fault_set(f, "adopt in a sandbox that stands still", -EBUSY);
        struct adopted *a = calloc(1, sizeof *a);
        if (!a)
                return fault_set(f, "adopt", -ENOMEM);
        *a = (struct adopted){ .cell = c, .ref = m->ref, .pidfd = TAKE_FD(m->fds[0]), .group = -1, .events.fd = -1 };
        int r = prepare(sp, c, a, &pid);
        if (r < 0) {
                adopted_free(sp, a);
                return fault_set(f, "adopt a process", r);
        }
        a->moving = pid;
        if (mover_give(sp, a->handle, a->group, pid) < 0)
                moved(sp, a, cgroup_sub_move(a->group, pid));
        return 0;
}

int op_adopted(struct spawn *sp, struct message *m, struct fault *f) {
        uint32_t op = wire_get_u32(&m->wire), sig = wire_get_u32(&m->wire);
        if (m->wire.bad || op >= ADOPTED_OP_MAX || sig > 64)
                return fault_set(f, "check the request", -EBADMSG);
        struct adopted *a = handle_get(&sp->adopted, m->handle);
        if (!a)
                return fault_set(f, "find the process", -ESRCH);       /* it is empty: the event is on its way */
        int r = 0;
        if (op == ADOPTED_SIGNAL)
                r = syscall(SYS_pidfd_send_signal, a->pidfd, sig, NULL, 0) < 0 ? -errno : 0;
        else if (op == ADOPTED_KILL) {
                r = cgroup_sub_kill(a->group);
                a->killing = true;
                timer_arm(sp, LOOK_MS);
        }
        send_state(sp, a, EV_ADOPTED, m->ref, &r);
        return 0;
}

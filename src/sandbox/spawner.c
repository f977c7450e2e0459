/* The spawner: the one privileged process.
 *
 * Theory of operation
 *
 * Birth. The daemon, still root, clones this program anew (`brig spawner`) as PID 1 of a PID namespace of its own, and keeps
 * one end of a SOCK_SEQPACKET. PID 1, because the kernel kills everything in a PID namespace whose PID 1 is gone: whatever ends
 * the spawner, SIGKILL included, ends every sandbox. It has a mount namespace of its own for the same reason. It is not
 * dumpable, for its children share its memory for a moment while they already are in a sandbox's namespaces.
 *
 * Work. One thread, one epoll set: the socket, SIGCHLD, an inotify queue, a timer, and per sandbox a socket to its init, an
 * out-of-memory descriptor, a layer job. A request is decoded into plain data, checked as a whole, and then executed as a list
 * of operations; the first that fails comes back as (step, errno) and what was made is unmade. Requests name sandboxes and execs
 * by handles from our own table, places by (class, id) below directories opened at start. There is no operation that takes
 * a path of the host, but for images below the operator's roots.
 *
 * One sandbox. All namespaces but the user's belong to the initial user namespace: root inside owns files and processes in
 * its id range, and has no say over mounts, addresses, host name or limits, whatever capability it has. The user
 * namespace is part of a seat (seat.h) that is used again. Namespaces are entered by a child (child.h) in this order:
 *
 *     cgroup -> network -> mount (copy of the seed), IPC, UTS, cgroup -> mounts, pivot_root -> descriptors, limits
 *     -> user namespace -> ids, Landlock, capabilities, filter -> execve
 *
 * Files: cell*.c make the parts of a sandbox, spawner_sandbox.c and spawner_exec.c are the operations and their state
 * machines, blank.c the sandboxes made ahead, spawner_layer.c the layers', spawner_adopted.c processes that others have started, child*.c what runs in the child, launch.c and launcher.c the launchers, skeleton.c the host image's lower. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/mounts.h"
#include "sandbox/child.h"
#include "sandbox/seccomp.h"
#include "sandbox/skeleton.h"

extern const unsigned char sandbox_init_image[], sandbox_init_image_end[];
extern const unsigned char sandbox_launcher_image[], sandbox_launcher_image_end[];
extern const unsigned char sandbox_helper_image[], sandbox_helper_image_end[];

/* ---- the loop's tools ---- */

int watch_start(struct spawn *sp, struct watch *w, int fd, uint32_t events, void (*fire)(struct spawn *, struct watch *, uint32_t)) {
        struct epoll_event ev = { .events = events, .data.ptr = w };
        w->fd = fd;
        w->fire = fire;
        return epoll_ctl(sp->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void watch_stop(struct spawn *sp, struct watch *w) {
        epoll_ctl(sp->epoll, EPOLL_CTL_DEL, w->fd, NULL);
        for (int i = sp->next_event; i < sp->n_events; i++) {
                if (sp->event[i].data.ptr == w)
                        sp->event[i].data.ptr = NULL;
        }
}

int timer_arm(struct spawn *sp, uint64_t ms) {
        struct itimerspec now, want = { .it_value = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 } };
        timerfd_gettime(sp->timer_watch.fd, &now);
        bool armed = now.it_value.tv_sec > 0 || now.it_value.tv_nsec > 0;
        if (armed && (now.it_value.tv_sec < want.it_value.tv_sec ||
                      (now.it_value.tv_sec == want.it_value.tv_sec && now.it_value.tv_nsec <= want.it_value.tv_nsec)))
                return 0;
        return timerfd_settime(sp->timer_watch.fd, 0, &want, NULL) < 0 ? -errno : 0;
}

int spawner_send(struct spawn *sp, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds) {
        int r = channel_send(&sp->channel, type, ref, handle, body, fds, n_fds);
        if (r < 0)
                sp->lost = true;       /* the daemon is gone, or does not read: both end us */
        if (channel_pending(&sp->channel)) {
                struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = &sp->channel_watch };
                epoll_ctl(sp->epoll, EPOLL_CTL_MOD, sp->channel.fd, &ev);
        }
        return r;
}

void spawner_send_failed(struct spawn *sp, uint64_t ref, uint64_t handle, const struct fault *f) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        wire_put_str(&b, f->step ? f->step : "");
        wire_put_u32(&b, (uint32_t)f->error.code);
        wire_put_str(&b, f->error.text);
        spawner_send(sp, EV_FAILED, ref, handle, &b, NULL, 0);
}

/* ---- events ---- */

#define REAP_AGAIN_MS 1

static void give_up(int sig) { _exit(1); }

/* Whatever does not go in time goes with us: we are PID 1. */
static void bound_end(void) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        signal(SIGALRM, give_up);
        alarm(SPAWNER_LOST_S);
}

static int op_stop(struct spawn *sp, struct message *m, struct fault *f) {
        sp->stopping = true;
        bound_end();
        cells_end_all(sp);
        return 0;
}

static const struct { int (*run)(struct spawn *, struct message *, struct fault *); } operations[REQ_MAX] = {
        [REQ_CREATE] = { op_create },       [REQ_EXEC] = { op_exec },       [REQ_EXEC_KILL] = { op_exec_kill },
        [REQ_KILL_ALL] = { op_kill_all },   [REQ_DESTROY] = { op_destroy }, [REQ_STOP] = { op_stop },
        [REQ_LAYER] = { op_layer },       [REQ_EXEC_SIGNAL] = { op_exec_signal },
        [REQ_KILL_OTHERS] = { op_kill_others }, [REQ_FREEZE] = { op_freeze }, [REQ_NOW] = { op_now }, [REQ_SOCKET] = { op_socket },
        [REQ_MOUNT] = { op_mount }, [REQ_ADOPT] = { op_adopt }, [REQ_ADOPTED] = { op_adopted },
};

static void on_channel(struct spawn *sp, struct watch *w, uint32_t events) {
        if (events & EPOLLOUT && channel_flush(&sp->channel) == 0 && !channel_pending(&sp->channel)) {
                struct epoll_event ev = { .events = EPOLLIN, .data.ptr = w };
                epoll_ctl(sp->epoll, EPOLL_CTL_MOD, sp->channel.fd, &ev);
        }
        if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                return;
        CLEANUP(cleanup_message) struct message *m = NULL;
        int r = channel_recv(&sp->channel, &m);
        if (r < 0)
                sp->lost = true;
        if (r <= 0)
                return;
        struct fault f = { 0 };
        if (m->type >= REQ_MAX || !operations[m->type].run)
                r = fault_set(&f, "find the operation", -EOPNOTSUPP);
        else
                r = operations[m->type].run(sp, m, &f);
        if (r < 0)
                spawner_send_failed(sp, m->ref, 0, &f);
}

/* Whose is it? Reaps it if that is known. */
static bool reap_one(struct spawn *sp, pid_t pid) {
        struct proc *p = proc_of_pid(sp, pid);
        struct cell *c = cell_of_pid(sp, pid);
        bool blank = !p && !c && blank_is(sp, pid);
        int status;
        struct rusage ru;
        if ((!p && !c && !blank) || wait4(pid, &status, WNOHANG, &ru) != pid)
                return false;
        if (blank)
                blank_reaped(sp, pid);
        if (c)
                cell_reaped(sp, c, pid, status);
        /* A single command is both; it may have gone with its sandbox. */
        p = proc_of_pid(sp, pid);
        if (p)
                proc_reaped(sp, p, status, &ru);
        return true;
}

static void listen_to_launchers(struct spawn *sp) {
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                const struct proc *p = sp->procs.object[i];
                if (p && p->launching)
                        launcher_listen(sp, p->cell);
        }
}

/* Each by its number: the one at the head of the queue is not known yet, and nobody shall wait for it. */
static void reap_known(struct spawn *sp) {
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                const struct proc *p = sp->procs.object[i];
                if (p && p->pid > 0)
                        reap_one(sp, p->pid);
        }
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                const struct cell *c = sp->cells.object[i];
                pid_t launcher = c ? c->launcher : 0;
                if (c && c->init > 0)
                        reap_one(sp, c->init);
                if (launcher > 0)
                        reap_one(sp, launcher);
        }
}

/* A command of a launcher's may end before we are told that it is ours: it stays a zombie, and so keeps its number, until then. */
static void reap(struct spawn *sp) {
        for (;;) {
                siginfo_t info = { 0 };
                if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
                        return;
                if (reap_one(sp, info.si_pid))
                        continue;
                if (sp->n_launching == 0) {
                        waitpid(info.si_pid, NULL, WNOHANG);   /* an orphan of this PID namespace */
                        continue;
                }
                listen_to_launchers(sp);
                if (reap_one(sp, info.si_pid))
                        continue;
                if (sp->n_launching == 0)
                        continue;
                reap_known(sp);
                timer_arm(sp, REAP_AGAIN_MS);
                return;
        }
}

static void on_child(struct spawn *sp, struct watch *w, uint32_t events) {
        struct signalfd_siginfo info[8];
        ssize_t drained = read(w->fd, info, sizeof info);
        (void)drained;
        reap(sp);
}

static void on_unmount(struct spawn *sp, struct watch *w, uint32_t events) {
        char space[4096] __attribute__((aligned(8)));
        ssize_t n = read(w->fd, space, sizeof space);
        for (ssize_t at = 0; at < n;) {
                const struct inotify_event *ev = (const struct inotify_event *)(const void *)(space + at);
                if (ev->mask & IN_UNMOUNT && !sp->deaf)
                        cell_unmounted(sp, ev->wd);
                at += (ssize_t)(sizeof *ev + ev->len);
        }
}

static void on_timer(struct spawn *sp, struct watch *w, uint32_t events) {
        uint64_t n;
        if (read(w->fd, &n, sizeof n) != sizeof n)
                return;
        reap(sp);
        adopted_tick(sp);
        if (cells_tick(sp))
                timer_arm(sp, 100);
}

/* ---- start ---- */

/* Whoever started the daemon may have had signals ignored (a shell's background job: SIGINT, SIGQUIT; nohup: SIGHUP), and that is
 * inherited through execve down to every program in a sandbox. Here it ends. */
static void forget_signals(void) {
        for (int sig = 1; sig < NSIG; sig++)
                signal(sig, SIG_DFL);          /* fails for those that nobody can ignore */
}

static int open_loop(struct spawn *sp, int socket, struct error *e) {
        sigset_t set;
        forget_signals();
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return error_set(e, -errno, "sigprocmask");
        signal(SIGPIPE, SIG_IGN);
        sp->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (sp->epoll < 0)
                return error_set(e, -errno, "epoll");
        channel_init(&sp->channel, socket);
        int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), watcher = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (signals < 0 || watcher < 0 || timer < 0)
                return error_set(e, -errno, "open the loop's descriptors");
        int r = watch_start(sp, &sp->channel_watch, socket, EPOLLIN, on_channel);
        if (r == 0)
                r = watch_start(sp, &sp->signal_watch, signals, EPOLLIN, on_child);
        if (r == 0)
                r = watch_start(sp, &sp->inotify_watch, watcher, EPOLLIN, on_unmount);
        if (r == 0)
                r = watch_start(sp, &sp->timer_watch, timer, EPOLLIN, on_timer);
        return r < 0 ? error_set(e, r, "watch the loop's descriptors") : 0;
}

/* What the firewall will be told later is checked now, so that a wrong one stops the start and not the first sandbox. */
static int keep_allowed(struct spawn *sp, const char *const *allow, struct error *e) {
        for (size_t i = 0; allow && allow[i]; i++) {
                if (network_allow_check(allow[i]) < 0)
                        return error_say(e, -EINVAL, "network: '%.60s' is not an IPv4 range such as 10.1.0.0/16", allow[i]);
                sp->network_allow[i] = strdup(allow[i]);
                if (!sp->network_allow[i])
                        return error_set(e, -ENOMEM, "read the configuration");
        }
        return 0;
}

static int read_hello(struct spawn *sp, uint32_t *ret_id_base, struct error *e) {
        /* The only message that is waited for. */
        struct epoll_event ev;
        CLEANUP(cleanup_message) struct message *m = NULL;
        int r = 0;
        while (r == 0) {
                if (epoll_wait(sp->epoll, &ev, 1, 10000) == 0)
                        return error_set(e, -ETIME, "wait for the configuration");
                r = channel_recv(&sp->channel, &m);
        }
        if (r < 0 || m->type != REQ_HELLO)
                return error_set(e, r < 0 ? r : -EPROTO, "read the configuration");
        struct wire *w = &m->wire;
        const char *home = wire_get_str(w), *instance = wire_get_str(w);
        *ret_id_base = wire_get_u32(w);
        sp->daemon_uid = wire_get_u32(w);
        sp->daemon_gid = wire_get_u32(w);
        const char **roots;
        wire_get_strv(w, IMAGE_ROOTS_MAX, &roots);
        CLEANUP(cleanup_free) const char **owned = roots;
        const char **allow;
        wire_get_strv(w, NETWORK_ALLOW_MAX, &allow);
        CLEANUP(cleanup_free) const char **owned_allow = allow;
        if (w->bad || !home || home[0] != '/' || !instance || strlen(instance) >= sizeof sp->instance || !*instance)
                return error_set(e, -EINVAL, "read the configuration");
        snprintf(sp->home, sizeof sp->home, "%s", home);
        snprintf(sp->instance, sizeof sp->instance, "%s", instance);
        for (size_t i = 0; owned && owned[i]; i++) {
                char *root = strdup(owned[i]);
                if (!root)
                        return error_set(e, -ENOMEM, "read the configuration");
                size_t n = strlen(root);
                while (n > 1 && root[n - 1] == '/')
                        root[--n] = 0;
                sp->image_root[sp->n_image_roots++] = root;
        }
        return keep_allowed(sp, owned_allow, e);
}

/* A mount and a PID namespace of our own need a /proc to match. */
static int own_mounts(struct spawn *sp, struct error *e) {
        sp->host_mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        if (sp->host_mounts < 0)
                return error_set(e, -errno, "open the host's mount namespace");
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return error_set(e, -errno, "make the spawner's mount namespace");
        if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                return error_set(e, -errno, "mount the spawner's /proc");
        /* The first question to the table probes the kernel: only now, for the probes need the /proc of our PID namespace. */
        int r = mount_park_prepare();
        if (r < 0)
                return error_set(e, r, "make " MOUNT_PARK);
        sp->own_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (sp->own_proc < 0)
                return error_set(e, -errno, "open the spawner's /proc");
        sp->own_mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        return sp->own_mounts < 0 ? error_set(e, -errno, "open the spawner's mount namespace") : 0;
}

static bool is_empty_dir(int fd) {
        char entries[1024];
        _cleanup_close_ int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* "." and ".." take 24 bytes each. */
        return dir < 0 || getdents64(dir, entries, sizeof entries) <= 48;
}

static int open_host_image(struct spawn *sp, struct error *e) {
        int r = skeleton_fingerprint(sp->fingerprint, e);
        if (r == 0)
                r = skeleton_open(sp->home_fd, sp->fingerprint, &sp->host_lower[PLANE_ROOT], e);
        if (r < 0)
                return r;
        for (int p = PLANE_USR; p < PLANE_MAX; p++) {
                sp->host_lower[p] = open(plane_path[p], O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (sp->host_lower[p] >= 0 && is_empty_dir(sp->host_lower[p]))
                        sp->host_lower[p] = fd_close(sp->host_lower[p]);
        }
        return sp->host_lower[PLANE_USR] < 0 ? error_set(e, -ENOENT, "open /usr") : 0;
}

static int open_images(struct spawn *sp, struct error *e) {
        sp->init_image = fs_memfd("init", sandbox_init_image, (size_t)(sandbox_init_image_end - sandbox_init_image));
        sp->launcher_image = fs_memfd("launcher", sandbox_launcher_image, (size_t)(sandbox_launcher_image_end - sandbox_launcher_image));
        sp->helper_image = fs_memfd("helper", sandbox_helper_image, (size_t)(sandbox_helper_image_end - sandbox_helper_image));
        sp->null_file = open("/dev/null", O_RDWR | O_CLOEXEC);
        sp->reports = mmap(NULL, (SPAWNER_PROCS_MAX + 1) * sizeof *sp->reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int r = sp->null_file < 0 ? -errno : child_slots_reserve(sp->null_file);
        if (r < 0)
                return error_set(e, r, "reserve descriptors");
        /* Nobody inside, where they are unmapped, may read them: so the kernel makes what executes them undumpable from its first
         * instruction on, and its memory belongs to the initial user namespace. */
        if (fchmod(sp->init_image, 0111) < 0 || fchmod(sp->launcher_image, 0111) < 0)
                return error_set(e, -errno, "set up the spawner");
        if (sp->init_image < 0 || sp->helper_image < 0 || sp->null_file < 0 || sp->reports == MAP_FAILED)
                return error_set(e, -errno, "set up the spawner");
        /* Who may execute a program and not read it gets a process that is not dumpable from its first instruction: nobody inside can
         * attach to PID 1 before it has said so itself. */
        if (fchmod(sp->init_image, 0111) < 0 || fchmod(sp->helper_image, 0111) < 0)
                return error_set(e, -errno, "make the programs unreadable");
        return 0;
}

/* Names on the machine (control groups, links, layers that are being made) are the instance's, and the last spawner of it may live a
 * moment longer than its killed daemon: it removes what it had, by these names. So each holds a lock for as long as it
 * or anything of it lives, and the next one waits; how long is the daemon's to bound. */
static int stand_alone(struct spawn *sp, struct error *e) {
        sp->alone = openat(sp->home_fd, SPAWNER_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (sp->alone < 0)
                return error_set(e, -errno, "open %s/" SPAWNER_LOCK_FILE, sp->home);
        while (flock(sp->alone, LOCK_EX) < 0)
                if (errno != EINTR)
                        return error_set(e, -errno, "lock %s/" SPAWNER_LOCK_FILE, sp->home);
        return 0;
}

/* What shares a launcher's memory changes its ids: where the kernel would then call that memory dumpable, it must not. */
static bool launchers_safe(void) {
        _cleanup_buf_ struct buf b = BUF_INIT(32);
        return fs_read_file(AT_FDCWD, "/proc/sys/fs/suid_dumpable", &b) == 0 && buf_str(&b)[0] != '1';
}

static int start(struct spawn *sp, int socket, struct error *e) {
        uint32_t id_base = 0;
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        prctl(PR_SET_NAME, "brig-spawner", 0, 0, 0);
        const char *missing = getenv("BRIG_FORCE_MISSING");
        sp->no_launchers = !launchers_safe() || (missing && strstr(missing, "launcher"));
        sp->deaf = missing && strstr(missing, "unmount-events");
        struct rlimit files = { 1 << 20, 1 << 20 };
        if (setrlimit(RLIMIT_NOFILE, &files) < 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
        int r = open_loop(sp, socket, e);
        if (r == 0)
                r = own_mounts(sp, e);
        if (r == 0)
                r = read_hello(sp, &id_base, e);
        if (r < 0)
                return r;
        sp->home_fd = open(sp->home, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (sp->home_fd < 0)
                return error_set(e, -errno, "open %s", sp->home);
        r = stand_alone(sp, e);
        if (r == 0)
                r = sweeper_start(sp, e);
        if (r == 0)
                r = open_images(sp, e);
        if (r == 0)
                r = seed_make(&sp->seed_ns, e);
        if (r == 0)
                r = open_host_image(sp, e);
        if (r == 0)
                r = seccomp_prepare(e);
        if (r == 0)
                r = idrange_allocator_open(id_base, NULL, &sp->ranges, e);
        if (r == 0)
                r = cgroup_manager_open(sp->instance, &sp->cgroups, e);
        if (r == 0)
                r = netns_pool_open(&sp->net_pool, e);
        if (r == 0)
                r = netns_take(sp->net_pool, &sp->idle_net, e);
        if (r == 0 && network_sweep(sp->instance, e) < 0)
                r = e->code;
        if (r == 0)
                r = layer_images_open(sp->home_fd, idrange_store(sp->ranges), &sp->layers, e);
        return r;
}

static void say_hello(struct spawn *sp, int r, const struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        wire_put_u32(&b, (uint32_t)r);
        wire_put_str(&b, r < 0 ? e->text : cgroup_manager_describe(sp->cgroups));
        wire_put_str(&b, sp->fingerprint);
        spawner_send(sp, EV_HELLO, 0, 0, &b, NULL, 0);
}

/* Off the hot path: what the next sandboxes will take is made while nobody asks. */
#define POOL_WANT 4
#define IDLE_MS 6              /* longer than a short command: its end must not wait for us */
static bool refill(struct spawn *sp) {
        if (execs_prepare(sp))
                return true;
        if (uppers_fill(sp))
                return true;
        if (sp->n_blanks < BLANKS_WANT && !sp->no_blanks)
                return blanks_fill(sp), true;
        int groups = cgroup_pool_fill(sp->cgroups, POOL_WANT, 1), nets = netns_pool_fill(sp->net_pool, POOL_WANT, 1);
        return groups > 0 || nets > 0;
}

static void loop(struct spawn *sp) {
        bool hungry = true, lost = false;
        while (!(sp->stopping && sp->cells.n == 0)) {
                if (sp->lost && !lost) {
                        lost = sp->stopping = true;
                        epoll_ctl(sp->epoll, EPOLL_CTL_DEL, sp->channel.fd, NULL);
                        bound_end();
                        cells_end_all(sp);
                        continue;
                }
                sp->next_event = 0;
                sp->n_events = epoll_wait(sp->epoll, sp->event, SPAWNER_EVENTS, hungry && !sp->stopping ? IDLE_MS : -1);
                if (sp->n_events == 0)
                        hungry = refill(sp);
                if (sp->n_events > 0)
                        hungry = true;
                while (sp->next_event < sp->n_events) {
                        const struct epoll_event *ev = &sp->event[sp->next_event++];
                        struct watch *w = ev->data.ptr;
                        if (w && !(sp->lost && w == &sp->channel_watch))
                                w->fire(sp, w, ev->events);
                }
        }
}

static void stop(struct spawn *sp) {
        blanks_end(sp);
        uppers_end(sp);
        mover_end(sp);
        sweeper_end(sp);
        layer_images_free(sp->layers);
        network_close(sp->network);
        netns_pool_close(sp->net_pool);
        cgroup_manager_close(sp->cgroups);
        idrange_allocator_close(sp->ranges);
        spawner_send(sp, EV_STOPPED, 0, 0, NULL, NULL, 0);
        fcntl(sp->channel.fd, F_SETFL, fcntl(sp->channel.fd, F_GETFL) & ~O_NONBLOCK);
        channel_flush(&sp->channel);
}

int spawner_main(int socket_fd) {
        static struct spawn sp = {
                .epoll = -1, .home_fd = -1, .alone = -1, .seed_ns = -1, .null_file = -1, .idle_net = -1, .init_image = -1, .helper_image = -1,
                .host_lower = { -1, -1, -1 }, .lowest = -1, .cells.max = SPAWNER_CELLS_MAX, .procs.max = SPAWNER_PROCS_MAX,
                .adopted.max = SPAWNER_ADOPTED_MAX,
        };
        struct error e = { 0 };
        sandbox_limits_default(&sp.blank_limits);
        int r = start(&sp, socket_fd, &e);
        if (sp.channel.fd > 0)
                say_hello(&sp, r, &e);
        if (r < 0)
                return 1;
        loop(&sp);
        stop(&sp);
        return 0;
}

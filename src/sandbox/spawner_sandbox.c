/* Operations on sandboxes: create, kill all, destroy; and the way to "gone".
 *
 *     MAKING ──(layer jobs)──> READY ──init dies──> ENDED ──destroy──> DYING ──> freed, EV_GONE
 *        │                       └──single command ends──────────────────^
 *        └─────fault──────────────────────────────────────────────────^
 *
 * A sandbox is gone when: init and every exec are reaped (the kernel has then killed all of the PID namespace), the kernel has
 * said that a file system which only its mount namespace held is unmounted, its link is away, and its cgroups could be
 * removed. cell_advance looks at these in order and does what is next; every event about the sandbox calls it, and so does a timer as long
 * as one is being removed: no single event is relied upon. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/child.h"

#define UNMOUNT_LOOK_MS 500        /* before the event is doubted, and between looks */
#define FDINFO_MAX (4u << 20)
#define SAMPLE_MS 95               /* between looks at disk and memory: the tick's 100, with slack */

static void send_gone(struct spawn *sp, struct cell *c) {
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        wire_put(&b, &c->usage, sizeof c->usage);
        wire_put(&b, c->hit, sizeof c->hit);
        spawner_send(sp, EV_GONE, c->ref, c->handle, &b, NULL, 0);
}

/* ---- events of a ready one ---- */

static void on_control(struct spawn *sp, struct watch *w, uint32_t events) {
        struct cell *c = container_of(w, struct cell, control);
        char said;
        ssize_t n = recv(w->fd, &said, 1, MSG_DONTWAIT);
        if (n == 1 && said == 'k') {
                c->kill_answered = true;
                cell_advance(sp, c);
        } else if (n == 0)
                watch_stop(sp, w);     /* init is dying; its status follows */
}

void cell_check_oom(struct spawn *sp, struct cell *c) {
        struct cgroup_events ev;
        if (!c->cgroup)
                return;
        cgroup_read_events(c->cgroup, &ev);
        if (ev.oom > 0)
                cell_limit(sp, c, LIMIT_MEMORY);
}

static void on_oom(struct spawn *sp, struct watch *w, uint32_t events) {
        struct cell *c = container_of(w, struct cell, oom);
        cgroup_oom_clear(c->cgroup);
        cell_check_oom(sp, c);
}

void cell_limit(struct spawn *sp, struct cell *c, enum limit_kind kind) {
        if (c->hit[kind])
                return;
        c->hit[kind] = true;
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        wire_put_u32(&b, kind);
        spawner_send(sp, EV_LIMIT, c->ref, c->handle, &b, NULL, 0);
        /* The kernel killed one process of many: what is left of the run means nothing. Init stays, so that the facts can be
         * read and helpers run. */
        if (kind == LIMIT_MEMORY && c->state == CELL_READY) {
                if (c->control.fd < 0 || write(c->control.fd, "K", 1) != 1)
                        cgroup_kill(c->cgroup);
        }
}

static void watch_ready(struct spawn *sp, struct cell *c) {
        if (c->control.fd >= 0)
                watch_start(sp, &c->control, c->control.fd, EPOLLIN, on_control);
        uint32_t events = 0;
        int fd = c->cgroup ? cgroup_oom_fd(c->cgroup, &events) : -1;
        if (fd >= 0)
                watch_start(sp, &c->oom, fd, events, on_oom);
}

/* ---- create ---- */

static void cell_failed(struct spawn *sp, struct cell *c, const struct fault *f) {
        spawner_send_failed(sp, c->ref, c->handle, f);
        c->gone_wanted = true;
        cell_end(sp, c);
}

static void cell_continue(struct spawn *sp, struct cell *c);

static void on_job(struct spawn *sp, struct watch *w, uint32_t events) {
        struct cell *c = container_of(w, struct cell, job_watch);
        struct fault f = { 0 };
        watch_stop(sp, w);
        int fd = -1, r = layer_job_finish(TAKE_PTR(c->job), &fd, &f.error);
        if (fd >= 0)
                c->upper = fd;
        if (c->state == CELL_DYING) {
                cell_advance(sp, c);
                return;
        }
        if (r < 0) {
                f.step = c->upper < 0 && c->spec.upper != UPPER_TMPFS ? "make the upper's image" : "open a layer";
                cell_failed(sp, c, &f);
                return;
        }
        cell_continue(sp, c);
}

/* 1: a job runs, on_job goes on; 0: nothing to wait for. */
static int start_job(struct spawn *sp, struct cell *c, struct fault *f) {
        const struct sandbox_spec *s = &c->spec;
        int r = 0;
        if (s->upper == UPPER_TMPFS && !(s->layers && s->layers[0]))
                return 0;
        if (!sp->layers)
                return fault_set(f, "open the store of layers", -ENOENT);
        if (s->upper == UPPER_DISK && c->upper < 0)
                c->upper = uppers_take(sp, &s->limits, c->seat->base);
        if (s->upper != UPPER_TMPFS && c->upper < 0) {
                const struct layer_upper_spec u = {
                        .id = s->upper_layer, .bytes = s->limits.disk_bytes, .inodes = s->limits.inodes, .range_base = c->seat->base,
                };
                r = layer_image_make(sp->layers, &u, &c->job);
        } else {
                while (s->layers && s->layers[c->next_layer] && layer_image_is_open(sp->layers, s->layers[c->next_layer]))
                        c->next_layer++;
                if (!s->layers || !s->layers[c->next_layer])
                        return 0;
                r = layer_image_open(sp->layers, s->layers[c->next_layer++], &c->job);
        }
        if (r == 0)
                r = watch_start(sp, &c->job_watch, layer_job_fd(c->job), EPOLLIN, on_job);
        return r < 0 ? fault_set(f, "start a layer job", r) : 1;
}

static int direct_proc(struct spawn *sp, struct cell *c, struct fault *f) {
        struct proc *p;
        int r = proc_new(sp, c, &p);
        if (r < 0)
                return fault_set(f, "make the exec", r);
        p->pid = c->init;
        p->ref = c->ref;
        spawner_send(sp, EV_STARTED, c->ref, p->handle, NULL, NULL, 0);
        return 0;
}

static void cell_continue(struct spawn *sp, struct cell *c) {
        struct fault f = { 0 };
        int r = start_job(sp, c, &f);
        if (r > 0)
                return;
        if (r == 0)
                r = cell_build(sp, c, &f);
        if (r < 0) {
                cell_failed(sp, c, &f);
                return;
        }
        c->state = CELL_READY;
        message_close_fds(c->request);
        watch_ready(sp, c);
        const int sockets[] = { c->catch.tcp, c->catch.udp };
        spawner_send(sp, EV_CREATED, c->ref, c->handle, NULL, sockets, sockets[0] >= 0 ? 2 : 0);
        c->catch.tcp = fd_close(c->catch.tcp);
        c->catch.udp = fd_close(c->catch.udp);
        if (c->direct)
                r = direct_proc(sp, c, &f);
        if (r < 0)
                cell_failed(sp, c, &f);
        else
                timer_arm(sp, 100);
}

int op_create(struct spawn *sp, struct message *m, struct fault *f) {
        if (sp->stopping)
                return fault_set(f, "create while stopping", -ESHUTDOWN);
        struct cell *c = cell_new();
        if (!c)
                return fault_set(f, "create", -ENOMEM);
        c->ref = m->ref;
        int r = cell_parse(sp, c, m, f);
        if (r == 0) {
                r = handle_new(&sp->cells, c, &c->handle);
                if (r < 0)
                        fault_set(f, "create", r);
        }
        if (r < 0) {
                cell_free(sp, c);
                return r;
        }
        /* What the specification points into, and its descriptors, stay until it is built. */
        c->request = malloc(sizeof *m);
        if (c->request) {
                *c->request = *m;
                m->body = NULL;
                m->n_fds = 0;
                r = blank_claim(sp, c) ? 0 : cell_take_seat(sp, c, f);
        } else
                r = fault_set(f, "create", -ENOMEM);
        if (r < 0)
                cell_failed(sp, c, f);
        else
                cell_continue(sp, c);
        return 0;
}

/* ---- end ---- */

struct cell *cell_of_pid(struct spawn *sp, pid_t pid) {
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                struct cell *c = sp->cells.object[i];
                if (c && (c->init == pid || c->launcher == pid))
                        return c;
        }
        return NULL;
}

void cell_reaped(struct spawn *sp, struct cell *c, pid_t pid, int status) {
        if (launcher_reaped(sp, c, pid)) {
                cell_advance(sp, c);
                return;
        }
        c->init = 0;
        if (!c->facts_read)
                cell_read_facts(c);
        if (c->state == CELL_READY) {
                c->state = c->direct ? CELL_DYING : CELL_ENDED;
                c->gone_wanted |= c->direct;   /* nothing more can be asked of it: it goes by itself */
        }
        /* A single command is an exec too, and is told first; unless it never came to be one. */
        if (c->n_procs == 0 || !c->direct)
                cell_advance(sp, c);
}

void cell_unmounted(struct spawn *sp, int wd) {
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                struct cell *c = sp->cells.object[i];
                if (c && c->unmount_wd == wd) {
                        c->unmounted = true;
                        c->unmount_wd = -1;
                        /* No process is left in it but at the very end of its exit: the facts are final, and read while
                         * the kernel does the rest. */
                        if (c->init > 0 && c->state == CELL_READY && c->direct) {
                                cell_read_facts(c);
                                c->facts_read = true;
                        }
                        cell_advance(sp, c);
                        return;
                }
        }
}

void cell_swept(struct spawn *sp, uint64_t handle) {
        struct cell *c = handle_get(&sp->cells, handle);
        if (!c)
                return;
        c->sweeping = false;
        cell_advance(sp, c);
}

void cell_end(struct spawn *sp, struct cell *c) {
        if (c->state == CELL_DYING)
                return;
        if (c->state == CELL_READY)
                cell_read_facts(c);
        c->state = CELL_DYING;
        timer_arm(sp, 100);            /* cells_tick looks again, should an event stay away */
        if (c->init > 0)
                syscall(SYS_pidfd_send_signal, c->init_pidfd, SIGKILL, NULL, 0);
        /* Helpers live outside the PID namespace. */
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->cell == c && p->pid > 0)
                        kill(p->pid, SIGKILL);
        }
        cell_advance(sp, c);
}

/* The kernel takes a watch away with its file system, and lists those that are there: what an event should have said can be seen. */
static bool watch_is_gone(const struct spawn *sp, int wd) {
        char path[48], entry[32];
        _cleanup_buf_ struct buf b = BUF_INIT(FDINFO_MAX);
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", sp->inotify_watch.fd);
        snprintf(entry, sizeof entry, "inotify wd:%x ", (unsigned)wd);
        return fs_read_file(AT_FDCWD, path, &b) == 0 && !strstr(buf_str(&b), entry);
}

static bool still_mounted(struct spawn *sp, struct cell *c) {
        if (c->unmount_wd < 0 || c->unmounted)
                return false;
        uint64_t now = now_ms();
        if (c->unmount_look_ms == 0)
                c->unmount_look_ms = now + UNMOUNT_LOOK_MS;
        if (now < c->unmount_look_ms)
                return true;
        c->unmount_look_ms = now + UNMOUNT_LOOK_MS;
        if (!watch_is_gone(sp, c->unmount_wd))
                return true;
        c->unmounted = true;
        c->unmount_wd = -1;
        return false;
}

/* Every process is reaped: is the rest away too? */
static bool cell_cleared(struct spawn *sp, struct cell *c) {
        /* Closing an image takes milliseconds: it is written out. */
        bool kept = c->plane[PLANE_ROOT] >= 0 || (c->spec.upper == UPPER_DISK && c->upper >= 0);
        if (!kept)
                cell_drop_upper(sp, c);
        if (!kept || c->linked)
                c->net_ns = fd_close(c->net_ns);
        catch_close(&c->catch);
        adopted_release(sp, c);
        c->init_pidfd = fd_close(c->init_pidfd);
        c->view_ns = fd_close(c->view_ns);
        if (still_mounted(sp, c))
                return false;
        if (kept)
                cell_sweep(sp, c, c->handle);  /* beside what follows */
        if (c->linked) {
                if (network_detach(sp->network, &c->link) < 0)
                        return false;
                c->linked = false;
        }
        if (c->cgroup) {
                if (c->oom.fd >= 0)
                        watch_stop(sp, &c->oom);
                c->oom.fd = -1;
                c->init_group = fd_close(c->init_group);
                if (cgroup_destroy(c->cgroup) < 0)
                        return false;
                c->cgroup = NULL;
        }
        return !c->sweeping;
}

static void finish_kill(struct spawn *sp, struct cell *c) {
        if (c->sparing) {
                bool ended = c->state != CELL_READY;
                if (!ended && !spare_is_alone(c))
                        return;
                _cleanup_buf_ struct buf b = BUF_INIT(16);
                wire_put_u32(&b, (uint32_t)(ended ? -ESHUTDOWN : 0));
                c->killing = c->sparing = false;
                spawner_send(sp, EV_DONE, c->sparing_ref, c->handle, &b, NULL, 0);
                return;
        }
        if (!c->kill_answered || c->n_procs > 0)
                return;
        /* Init waits for its own children. What an exec started became one when that exec died, which may have been after init's
         * look, and may still be dying: once all execs are reaped there are only init's, so a second answer is true. */
        if (c->kill_again && c->init > 0 && write(c->control.fd, "K", 1) == 1) {
                c->kill_again = c->kill_answered = false;
                return;
        }
        c->killing = false;
        spawner_send(sp, EV_KILLED, c->ref, c->handle, NULL, NULL, 0);
}

void cell_advance(struct spawn *sp, struct cell *c) {
        freeze_advance(sp, c);
        if (c->killing && (c->state == CELL_READY || c->init == 0 || c->sparing))
                finish_kill(sp, c);
        if (c->state == CELL_READY || c->state == CELL_MAKING || c->init > 0 || c->launcher > 0 || c->n_procs > 0 || c->job)
                return;
        if (c->killing) {
                c->kill_answered = true;
                finish_kill(sp, c);
        }
        if (!cell_cleared(sp, c)) {
                timer_arm(sp, 5);
                return;
        }
        if (c->state == CELL_DYING && c->gone_wanted) {
                send_gone(sp, c);
                handle_drop(&sp->cells, c->handle);
                cell_free(sp, c);
        }
}

int op_destroy(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        if (!c)
                return 0;      /* it failed meanwhile: the event is on its way */
        c->gone_wanted = true;
        if (c->state == CELL_DYING)
                cell_advance(sp, c);
        else
                cell_end(sp, c);
        return 0;
}

int op_kill_others(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        const struct proc *p = handle_get(&sp->procs, wire_get_u64(&m->wire));
        if (!c || c->state != CELL_READY)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        if (m->wire.bad || !p || p->cell != c)
                return fault_set(f, "find the exec", -ENOENT);
        if (c->killing)
                return fault_set(f, "kill", -EBUSY);
        c->sparing_ref = m->ref;
        int r = kill_others(sp, c, p);
        return r < 0 ? fault_set(f, "kill", r) : 0;
}

int op_now(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        struct sandbox_now now = { -1, -1, -1, -1, -1, -1, -1, -1, -1, false };
        struct statfs s;
        if (!c || c->state != CELL_READY)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        now.frozen = c->freeze == FREEZE_STANDS;
        if (c->cgroup) {
                struct cgroup_now at;
                struct cgroup_usage use;
                cgroup_read_now(c->cgroup, &at);
                cgroup_read_usage(c->cgroup, &use);
                now.cpu_us = use.cpu_us;
                now.memory_bytes = at.memory_bytes;
                now.memory_peak_bytes = use.memory_peak_bytes;
                now.pids = at.pids;
                now.pids_peak = use.pids_peak;
        }
        if (c->upper >= 0 && fstatfs(c->upper, &s) == 0) {
                now.disk_bytes = (int64_t)((s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize);
                now.disk_free_bytes = (int64_t)(s.f_bavail * (uint64_t)s.f_bsize);
                now.inodes = (int64_t)(s.f_files - s.f_ffree);
                now.inodes_free = (int64_t)s.f_ffree;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(256);
        wire_put(&b, &now, sizeof now);
        spawner_send(sp, EV_NOW, m->ref, m->handle, &b, NULL, 0);
        return 0;
}

/* Made here, connected or bound by the daemon: that it waits for somebody inside is not ours to do. */
int op_socket(struct spawn *sp, struct message *m, struct fault *f) {
        static const int families[SOCKET_KIND_MAX] = { AF_INET, AF_INET6, AF_UNIX };
        struct cell *c = handle_get(&sp->cells, m->handle);
        uint32_t kind = wire_get_u32(&m->wire);
        _cleanup_close_ int fd = -1;
        if (m->wire.bad || kind >= SOCKET_KIND_MAX)
                return fault_set(f, "read the request", -EBADMSG);
        if (!c || c->state != CELL_READY || c->net_ns < 0)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        int r = netns_socket(sp->net_pool, c->net_ns, families[kind], &fd);
        if (r < 0)
                return fault_set(f, "make a socket inside", r);
        r = spawner_send(sp, EV_SOCKET, m->ref, m->handle, NULL, &fd, 1);
        return r < 0 ? fault_set(f, "hand a socket over", r) : 0;
}

int op_kill_all(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        if (!c)
                return fault_set(f, "find the sandbox", -ENOENT);
        if (c->state != CELL_READY || c->direct || c->killing) {
                c->killing = true;
                if (c->state == CELL_READY && c->direct && c->init > 0)
                        kill(c->init, SIGKILL);
                else if (c->init == 0)
                        cell_advance(sp, c);
                return 0;
        }
        c->killing = true;
        c->kill_answered = false;
        c->kill_again = c->n_procs > 0;
        /* Those on their way from the launcher are nobody's yet that init may kill. */
        for (size_t i = 0; i < sp->procs.alloc && sp->n_launching > 0; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->cell == c && p->launching)
                        p->kill_wanted = true;
        }
        groups_kill(c);
        if (write(c->control.fd, "K", 1) != 1)
                return fault_set(f, "ask init", -errno);
        return 0;
}

/* ---- time ---- */

/* Where the upper is in memory the kernel can only limit the sum of both: a run that writes little could take all of it for
 * its processes. So what those hold is looked at, ten times a second; the sum stays what the kernel holds a sudden one to. */
static void sample_memory(struct spawn *sp, struct cell *c) {
        uint64_t most = c->spec.limits.memory_bytes;
        if (!c->cgroup || c->spec.upper != UPPER_TMPFS || most == 0 || c->hit[LIMIT_MEMORY])
                return;
        int64_t held = cgroup_read_private_memory(c->cgroup), shared = cgroup_read_shared_memory(c->cgroup);
        struct statfs s;
        /* Shared mappings and memfds are files of no file system; those of the upper are the disk limit's. */
        if (shared > 0 && c->upper >= 0 && fstatfs(c->upper, &s) == 0)
                held += MAX2(shared - (int64_t)((s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize), (int64_t)0);
        if (held > 0 && (uint64_t)held > most)
                cell_limit(sp, c, LIMIT_MEMORY);
}

/* Disk and memory of one where something runs. */
static void sample(struct spawn *sp, struct cell *c) {
        bool before = c->hit[LIMIT_DISK];
        cell_sample_disk(c);
        if (c->hit[LIMIT_DISK] && !before) {
                c->hit[LIMIT_DISK] = false;
                cell_limit(sp, c, LIMIT_DISK);
        }
        sample_memory(sp, c);
}

bool cells_tick(struct spawn *sp) {
        uint64_t now = now_ms();
        bool again = false, time = now >= sp->sampled_ms + SAMPLE_MS;
        if (time)
                sp->sampled_ms = now;
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                struct cell *c = sp->cells.object[i];
                if (!c)
                        continue;
                if (sp->n_launching > 0)
                        launcher_listen(sp, c);
                if (c->state == CELL_READY && c->init > 0) {
                        /* What an exec left behind is looked at with the next one: a thousand idle sandboxes cost nothing. */
                        if (time && c->n_procs > 0)
                                sample(sp, c);
                        again |= c->n_procs > 0;
                        if (c->freeze == FREEZE_ASKED || c->sparing) {
                                cell_advance(sp, c);
                                if (c->freeze == FREEZE_ASKED || c->sparing)
                                        timer_arm(sp, 2);
                        }
                } else {
                        again |= c->state == CELL_DYING;
                        cell_advance(sp, c);   /* may free it */
                }
        }
        return again;
}

void cells_end_all(struct spawn *sp) {
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                struct cell *c = sp->cells.object[i];
                if (c) {
                        c->gone_wanted = true;
                        cell_end(sp, c);
                }
        }
}

/* Begin and end of a sandbox's record: what it is asked to be, what can be told of it, what is given back. */
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/child.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"
#include "sandbox/spec.h"

struct cell *cell_new(void) {
        struct cell *c = calloc(1, sizeof *c);
        if (!c)
                return NULL;
        c->init_group = c->spare_group = c->payload_group = c->launch_fd = c->view_ns = c->net_ns = c->upper = c->unmount_wd = c->init_pidfd = c->control.fd = c->oom.fd = -1;
        c->catch = (struct catch){ -1, -1, -1 };
        for (int p = 0; p < PLANE_MAX; p++)
                c->plane[p] = c->base[p] = -1;
        c->usage = (struct sandbox_usage){ -1, -1, -1, -1, -1 };
        c->started_ms = now_ms();
        return c;
}

int cell_parse(struct spawn *sp, struct cell *c, struct message *m, struct fault *f) {
        int r = sandbox_spec_decode(m, &c->spec, &c->direct);
        if (r == 0)
                r = sandbox_spec_check(&c->spec, &f->error);
        if (r < 0) {
                if (!f->error.code)
                        return fault_set(f, "check the specification", r);
                f->step = "check the specification";
                return r;
        }
        return 0;
}

const struct sock_fprog *cell_filter(const struct cell *c, bool launches) {
        if (c->spec.profile == PROFILE_RLM)
                return seccomp_program(launches ? SECCOMP_TURN_LAUNCHER : SECCOMP_TURN);
        return seccomp_program(launches ? SECCOMP_LAUNCHER : SECCOMP_STANDARD);
}

void cell_confine(const struct cell *c, bool helper, struct confine_plan *ret) {
        bool capped;
        confine_plan_init(c->spec.profile, helper, c->spec.limits.open_files, ret, &capped);
        if (!helper)
                ret->caps &= ~c->spec.cap_drop;
}

void cell_sample_disk(struct cell *c) {
        struct statfs s;
        if (c->upper < 0 || fstatfs(c->upper, &s) < 0)
                return;
        c->usage.disk_bytes = MAX2(c->usage.disk_bytes, (int64_t)((s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize));
        if (s.f_bavail < (s.f_blocks + 99) / 100 || (s.f_files > 0 && s.f_ffree < (s.f_files + 99) / 100))
                c->hit[LIMIT_DISK] = true;
}

void cell_read_facts(struct cell *c) {
        cell_sample_disk(c);
        c->usage.wall_ms = (int64_t)(now_ms() - c->started_ms);
        if (!c->cgroup)
                return;
        struct cgroup_events ev;
        struct cgroup_usage use;
        cgroup_read_events(c->cgroup, &ev);
        cgroup_read_usage(c->cgroup, &use);
        c->hit[LIMIT_MEMORY] |= ev.oom > 0;
        c->hit[LIMIT_PIDS] |= ev.pids_max > 0;
        c->usage.cpu_ms = use.cpu_us < 0 ? -1 : use.cpu_us / 1000;
        c->usage.memory_peak_bytes = use.memory_peak_bytes;
        c->usage.pids_peak = use.pids_peak;
}

void cell_drop_upper(struct spawn *sp, struct cell *c) {
        for (int p = 0; p < PLANE_MAX; p++)
                c->base[p] = fd_close(c->base[p]);
        c->upper = mount_release(c->upper);
}

void cell_sweep(struct spawn *sp, struct cell *c, uint64_t handle) {
        int fds[SWEEP_FDS_MAX];
        size_t n = 0;
        for (int p = 0; p < PLANE_MAX; p++) {
                c->base[p] = fd_close(c->base[p]);
                if (c->plane[p] >= 0)
                        fds[n++] = c->plane[p];
                c->plane[p] = -1;
        }
        if (c->net_ns >= 0)
                fds[n++] = c->net_ns;
        if (c->upper >= 0)
                fds[n++] = c->upper;
        c->sweeping = n > 0 && sweeper_give(sp, handle, fds, n) == 0 && handle != 0;
        c->net_ns = -1;
        for (size_t i = 0; i < n; i++)
                (fds[i] == c->upper ? mount_release : fd_close)(fds[i]);
        c->upper = -1;
}

void cell_free(struct spawn *sp, struct cell *c) {
        if (c->seat) {
                if (sp->n_seats < SEAT_POOL_MAX) {
                        c->seat->next = sp->seats;
                        sp->seats = c->seat;
                        sp->n_seats++;
                } else {
                        idrange_give(sp->ranges, c->seat->base);
                        seat_free(c->seat);
                }
        }
        if (c->control.fd >= 0) {
                watch_stop(sp, &c->control);
                fd_close(c->control.fd);
        }
        catch_close(&c->catch);
        fd_close(c->init_pidfd);
        fd_close(c->init_group);
        groups_release(c);
        launcher_drop(sp, c);
        fd_close(c->view_ns);
        free(c->parked);
        cell_sweep(sp, c, 0);
        sandbox_spec_release(&c->spec);
        message_free(c->request);
        free(c);
}

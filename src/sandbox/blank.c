/* Blanks: sandboxes made ahead of need, as far as they are all alike.
 *
 * A blank has a seat, cgroups, a network namespace, the upper with its directories, the host image's overlays, and a first
 * process that has entered all namespaces, mounted them, joined the user namespace and installed the filter, and now sleeps
 * (child_park). It runs nothing, has no handle and is known to nobody but this list. A request for a plain sandbox takes one, sets what
 * differs (limits, host name, network) and gives it its program; any other request makes all of its own. A blank is used once:
 * nothing of a sandbox ever comes back into one.
 *
 * They are made one at a time, when the spawner has been idle for some milliseconds, with the limits that were last asked for. */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sandbox/child.h"
#include "sandbox/facilities.h"

/* With less memory a blank's own structures, about half a megabyte, would count for too much in one. */
#define BLANK_MEMORY_MIN (16ull << 20)

static bool fits(const struct sandbox_spec *s) {
        return strcmp(s->image, IMAGE_HOST) == 0 && !(s->layers && s->layers[0]) && s->upper == UPPER_TMPFS && s->n_mounts == 0 && s->n_files == 0 &&
               s->network != NETWORK_HOST && s->profile != PROFILE_FETCH && s->limits.cpu_milli == 0 && s->limits.memory_bytes >= BLANK_MEMORY_MIN;
}

static void blank_free(struct spawn *sp, struct cell *c) {
        if (c->cgroup) {
                c->init_group = fd_close(c->init_group);
                (void)cgroup_destroy(c->cgroup);       /* what stays is swept at the next start */
                c->cgroup = NULL;
        }
        cell_free(sp, c);
}

static void blank_kill(struct spawn *sp, struct cell *c) {
        if (c->init > 0) {
                syscall(SYS_pidfd_send_signal, c->init_pidfd, SIGKILL, NULL, 0);
                while (waitpid(c->init, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        blank_free(sp, c);
}

static int blank_make(struct spawn *sp) {
        struct fault f = { 0 };
        struct cell *c = cell_new();
        if (!c)
                return -ENOMEM;
        c->spec = (struct sandbox_spec){ .image = IMAGE_HOST, .profile = PROFILE_SCORE, .limits = sp->blank_limits };
        int r = cell_take_seat(sp, c, &f);
        if (r == 0)
                r = cell_prefabricate(sp, c, &f);
        if (r < 0) {
                blank_kill(sp, c);
                return r;
        }
        c->next_blank = sp->blanks;
        sp->blanks = c;
        sp->n_blanks++;
        return 0;
}

int blanks_fill(struct spawn *sp) {
        if (sp->n_blanks >= BLANKS_WANT || sp->no_blanks)
                return 0;
        if (!facility_ok(FACILITY_DETACHED_SOURCE) || blank_make(sp) < 0) {
                sp->no_blanks = true;  /* it says why when a request makes the same and fails */
                return 0;
        }
        return (int)(BLANKS_WANT - sp->n_blanks);
}

bool blank_claim(struct spawn *sp, struct cell *c) {
        /* The filter of a blank's first process is installed: the standard one. An init of ours needs no other. */
        if (!fits(&c->spec) || (c->direct && c->spec.profile == PROFILE_RLM))
                return false;
        sp->blank_limits = c->spec.limits;
        sp->no_blanks = false;
        struct cell *from;
        while ((from = sp->blanks)) {
                sp->blanks = from->next_blank;
                sp->n_blanks--;
                if (child_is_parked(from->parked))
                        break;
                blank_kill(sp, from);
        }
        if (!from)
                return false;
        c->seat = from->seat;
        c->cgroup = from->cgroup;
        c->init_group = from->init_group;
        c->net_ns = from->net_ns;
        c->upper = from->upper;
        memcpy(c->plane, from->plane, sizeof c->plane);
        c->unmount_wd = from->unmount_wd;
        c->init = from->init;
        c->init_pidfd = from->init_pidfd;
        c->parked = from->parked;
        c->made_for = from->spec.limits;
        free(from);
        return true;
}

bool blank_is(struct spawn *sp, pid_t pid) {
        for (const struct cell *c = sp->blanks; c; c = c->next_blank)
                if (c->init == pid)
                        return true;
        return false;
}

void blank_reaped(struct spawn *sp, pid_t pid) {
        for (struct cell **at = &sp->blanks; *at; at = &(*at)->next_blank) {
                struct cell *c = *at;
                if (c->init != pid)
                        continue;
                *at = c->next_blank;
                sp->n_blanks--;
                c->init = 0;
                blank_free(sp, c);
                return;
        }
}

void blanks_end(struct spawn *sp) {
        while (sp->blanks) {
                struct cell *c = sp->blanks;
                sp->blanks = c->next_blank;
                sp->n_blanks--;
                blank_kill(sp, c);
        }
}

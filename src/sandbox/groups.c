/* The control groups of a sandbox's execs, and freezing them.
 *
 * Commands live in p/x1, p/x2, ...; helpers in h1, ... beside p, so that they run while p is frozen. A group is removed when its
 * exec's main process has ended, or, if that left something behind, some time after the last of it is gone: each end of an exec
 * tries a few of the left ones again, so their number stays that of the groups in which somebody lives. */
#include <string.h>

#include "base/clock.h"
#include "sandbox/spawner.h"

#define PAYLOAD "p"
#define LEFT_TRIES 4           /* left groups looked at each time */
#define LOOK_MS 2              /* between looks at a group that is to stand, or to be empty */

struct left_group { struct left_group *next; char name[GROUP_NAME_MAX]; };

static int payload(struct cell *c) {
        if (c->payload_group < 0) {
                int fd, r = cgroup_sub_make(c->cgroup, PAYLOAD, &fd);
                if (r < 0)
                        return r;
                c->payload_group = fd;
        }
        return 0;
}

static int make(struct cell *c, bool helper, char name[static GROUP_NAME_MAX]) {
        int fd, r = helper ? 0 : payload(c);
        if (r < 0)
                return r;
        snprintf(name, GROUP_NAME_MAX, helper ? "h%u" : PAYLOAD "/x%u", ++c->groups_made);
        r = cgroup_sub_make(c->cgroup, name, &fd);
        return r < 0 ? r : fd;
}

void group_take(struct cell *c, struct proc *p, bool helper) {
        if (!c->cgroup)
                return;
        if (!helper && c->spare_group >= 0) {
                memcpy(p->group_name, c->spare_name, sizeof p->group_name);
                p->group = c->spare_group;
                c->spare_group = -1;
        } else
                p->group = make(c, helper, p->group_name);
}

void group_make_spare(struct cell *c) {
        if (c->cgroup && c->groups_made > 0 && c->spare_group < 0)
                c->spare_group = make(c, false, c->spare_name);
}

static void drop_spare(struct cell *c) {
        if (c->spare_group < 0)
                return;
        c->spare_group = fd_close(c->spare_group);
        (void)cgroup_sub_remove(c->cgroup, c->spare_name);
}

/* The spare one must not be among them: what is born in a group that was killed is born dead. */
void groups_kill(struct cell *c) {
        if (c->payload_group < 0)
                return;
        drop_spare(c);
        (void)cgroup_sub_kill(c->payload_group);
}

/* Those in which somebody still lived go to the end of the list. */
static void retry_left(struct cell *c) {
        for (int i = 0; i < LEFT_TRIES && c->left; i++) {
                struct left_group *g = c->left, **end = &c->left;
                c->left = g->next;
                if (cgroup_sub_remove(c->cgroup, g->name) == 0) {
                        free(g);
                        continue;
                }
                while (*end)
                        end = &(*end)->next;
                *end = g;
                g->next = NULL;
        }
}

int group_make(struct cell *c, char name[static GROUP_NAME_MAX]) { return c->cgroup ? make(c, false, name) : -EOPNOTSUPP; }

void group_drop(struct cell *c, const char *name) {
        if (!c->cgroup)
                return;
        retry_left(c);
        if (cgroup_sub_remove(c->cgroup, name) == 0)
                return;
        struct left_group *g = malloc(sizeof *g);
        if (!g)
                return;        /* then it stays until the sandbox goes */
        snprintf(g->name, sizeof g->name, "%s", name);
        g->next = c->left;
        c->left = g;
}

void group_give(struct proc *p) {
        if (p->group < 0)
                return;
        p->group = fd_close(p->group);
        group_drop(p->cell, p->group_name);
}

void groups_release(struct cell *c) {
        while (c->left) {
                struct left_group *g = c->left;
                c->left = g->next;
                free(g);
        }
        c->payload_group = fd_close(c->payload_group);
        c->spare_group = fd_close(c->spare_group);
}

/* ---- freezing ---- */

static void answer(struct spawn *sp, struct cell *c, int r) {
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        wire_put_u32(&b, (uint32_t)r);
        for (size_t i = 0; i < c->n_freeze_refs; i++)
                spawner_send(sp, EV_DONE, c->freeze_ref[i], c->handle, &b, NULL, 0);
        c->n_freeze_refs = 0;
}

static void settled(struct spawn *sp, struct cell *c, enum cell_freeze to, int r) {
        c->freeze = to;
        answer(sp, c, r);
        procs_release_held(sp, c, r == 0);
}

/* Has it come to stand? */
void freeze_advance(struct spawn *sp, struct cell *c) {
        if (c->freeze != FREEZE_ASKED)
                return;
        int frozen = c->payload_group < 0 ? 1 : cgroup_sub_frozen(c->payload_group);
        if (frozen == 1) {
                settled(sp, c, FREEZE_STANDS, 0);
        } else if (frozen < 0 || c->state != CELL_READY || now_ms() >= c->freeze_until_ms) {
                (void)cgroup_freeze(c->cgroup, c->payload_group, false);
                settled(sp, c, FREEZE_NONE, c->state != CELL_READY ? -ESHUTDOWN : frozen < 0 ? frozen : -ETIMEDOUT);
        } else
                timer_arm(sp, LOOK_MS);
}

int freeze_start(struct spawn *sp, struct cell *c) {
        if (c->freeze == FREEZE_NONE) {
                int r = c->cgroup ? payload(c) : -EOPNOTSUPP;
                if (r == 0)
                        r = cgroup_freeze(c->cgroup, c->payload_group, true);
                if (r < 0)
                        return r;
                c->freeze = FREEZE_ASKED;
                c->freeze_until_ms = now_ms() + FREEZE_MAX_MS;
        }
        freeze_advance(sp, c);
        return 0;
}

int op_freeze(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        uint32_t on = wire_get_u32(&m->wire);
        if (m->wire.bad || on > 1)
                return fault_set(f, "check the request", -EBADMSG);
        if (!c || c->state != CELL_READY)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        if (c->direct)
                return fault_set(f, "freeze", -EOPNOTSUPP);
        if (c->n_freeze_refs >= ARRAY_SIZE(c->freeze_ref))
                return fault_set(f, "freeze", -EBUSY);
        int r = 0;
        if (!on && c->freeze != FREEZE_NONE) {
                r = cgroup_freeze(c->cgroup, c->payload_group, false);
                if (r == 0)
                        settled(sp, c, FREEZE_NONE, -ECANCELED);       /* of those who wanted it to stand */
        }
        if (r < 0)
                return fault_set(f, "thaw", r);
        c->freeze_ref[c->n_freeze_refs++] = m->ref;
        if (!on) {
                answer(sp, c, 0);
                cell_advance(sp, c);
                return 0;
        }
        r = c->freeze == FREEZE_STANDS ? (answer(sp, c, 0), 0) : freeze_start(sp, c);
        if (r < 0) {
                c->n_freeze_refs--;
                return fault_set(f, "freeze", r);
        }
        cell_advance(sp, c);
        return 0;
}

/* ---- killing all but one ---- */

/* No process of the others is left. */
bool spare_is_alone(struct cell *c) {
        return c->payload_group < 0 || cgroup_below_empty(c->payload_group, c->spare_only) != 0;
}

int kill_others(struct spawn *sp, struct cell *c, const struct proc *spare) {
        if (!c->cgroup || c->payload_group < 0 || spare->group < 0)
                return -EOPNOTSUPP;
        const char *name = strchr(spare->group_name, '/');
        if (!name)
                return -EINVAL;        /* a helper */
        snprintf(c->spare_only, sizeof c->spare_only, "%s", name + 1);
        drop_spare(c);
        int r = cgroup_below_kill(c->payload_group, c->spare_only);
        if (r < 0)
                return r;
        c->killing = c->sparing = true;
        timer_arm(sp, LOOK_MS);
        return 0;
}

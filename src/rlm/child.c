/* Children: sandboxes for the sub-agents of a turn, which its host runs.
 *
 * A child is a session without a row in the ledger: one turn, a root of the smaller size without network or workspace, admitted as ADMISSION_CHILD. It
 * belongs to the turn that it was made for, and is found by its id as other sessions are, so everything that is done to a turn is done to a child's
 * in the same way.
 *
 *     rlm_child_begin ──quota──> session, turn WAITING (at most RLM_CHILD_WAIT_MS) ──> OPEN ──> ... ──rlm_session_delete──> gone
 *                                          └──it does not begin──> deleted at once; the quota has its place back
 *
 * Whatever takes its turn's authority away (its end, a fence, a drain, the session's deletion) deletes it; and the parent's turn is not over, its end
 * not answered and the session's next turn not begun, before it is gone: a sandbox, a slot, confirmed.
 *
 * A child is taken out of the set from the loop, never from inside the call that ends it: whoever walks the set or the list of a turn's children
 * may end them. */
#include <string.h>

#include "base/hash.h"
#include "rlm/rlm_internal.h"

struct rlm_child_wait { struct rlm_session *child; struct rlm_begin *begin; rlm_begun done; void *user; };

/* ---- the end ----------------------------------------------------------------------------------------------------------------------------------- */

void children_end(struct rlm_turn *t) {
        t->quota.closed = true;
        for (struct rlm_session *c = t->children; c; c = c->next_child)
                (void)rlm_session_delete(t->m, c->id, NULL, NULL);
}

void child_unlink(struct rlm_session *c) {
        struct rlm_turn *t = c->parent;
        struct rlm_session *owner = c->owner;
        *c->at_child = c->next_child;
        if (c->next_child)
                c->next_child->at_child = c->at_child;
        c->parent = NULL;
        c->owner = NULL;
        owner->n_children--;
        child_quota_gone(&t->quota);
        turn_child_gone(t);
        rlm_session_settle(owner);
}

/* It never began: of a turn that would, its place in the quota is free again. */
static void not_started(struct rlm_session *c) {
        if (c->deleting || c->started)
                return;
        child_quota_not_started(&c->parent->quota);
        (void)rlm_session_delete(c->m, c->id, NULL, NULL);
}

/* ---- the beginning ---------------------------------------------------------------------------------------------------------------------------- */

static void on_begun(enum rlm_fault f, const struct error *e, struct rlm_turn *t, void *user) {
        struct rlm_child_wait *w = user;
        struct rlm_session *c = w->child;
        rlm_begun done = w->done;
        void *done_user = w->user;
        free(w);
        if (f == RLM_OK)
                c->started = true;
        else
                not_started(c);
        done(f, e, t, done_user);
}

void rlm_child_abandon(struct rlm_child_wait *w) {
        struct rlm_session *c = w->child;
        rlm_begin_abandon(w->begin);
        free(w);
        if (!c->turn)
                not_started(c);
}

static struct rlm_session *find_same(struct rlm_turn *parent, const char *key) {
        struct rlm_session *c = key ? parent->children : NULL;
        while (c && (c->deleting || !c->turn || !c->turn->key || strcmp(c->turn->key, key) != 0))
                c = c->next_child;
        return c;
}

static enum rlm_fault may_have(struct rlm_turn *parent) {
        if (parent->m->draining)
                return RLM_DRAINING;
        if (!parent->session || parent->state != TURN_OPEN)
                return parent->state == TURN_WAITING || parent->state == TURN_BEGINNING ? RLM_NOT_READY : RLM_TURN_ENDED;
        if (parent->session->owner)
                return RLM_CHILD_DEPTH;
        switch (child_quota_take(&parent->quota)) {
        case CHILD_OK: return RLM_OK;
        case CHILD_CLOSED: return RLM_TURN_ENDED;
        case CHILD_TOO_MANY: case CHILD_TOO_MANY_ALIVE: return RLM_TOO_MANY_CHILDREN;
        }
        return RLM_INTERNAL;
}

static enum rlm_fault child_new(struct rlm_turn *parent, struct rlm_session **ret) {
        char id[RLM_ID_SIZE];
        enum rlm_fault f = may_have(parent);
        if (f != RLM_OK)
                return f;
        uuid_make(id);
        struct rlm_session *c = rlm_session_new(parent->m, id, "", parent->generation);
        if (!c) {
                child_quota_not_started(&parent->quota);
                child_quota_gone(&parent->quota);
                return RLM_INTERNAL;
        }
        c->parent = parent;
        c->owner = parent->session;
        c->owner->n_children++;
        c->next_child = parent->children;
        c->at_child = &parent->children;
        if (c->next_child)
                c->next_child->at_child = &c->next_child;
        parent->children = c;
        *ret = c;
        return RLM_OK;
}

enum rlm_fault rlm_child_begin(struct rlm_turn *parent, const struct rlm_turn_spec *spec, rlm_begun done, void *user, struct rlm_child_wait **ret_wait, struct error *e) {
        struct rlm_session *c = find_same(parent, spec->key);
        struct rlm_turn_spec bounded = *spec;
        enum rlm_fault f = RLM_OK;
        bool made = !c;
        if (made)
                f = child_new(parent, &c);
        if (f != RLM_OK)
                return f;
        struct rlm_child_wait *w = malloc(sizeof *w);
        bounded.acquire_ms = MIN2(spec->acquire_ms, (uint64_t)RLM_CHILD_WAIT_MS);
        if (w) {
                *w = (struct rlm_child_wait){ .child = c, .done = done, .user = user };
                f = rlm_turn_begin(c, &bounded, on_begun, w, &w->begin, e);
        } else
                f = RLM_INTERNAL;
        if (f == RLM_OK) {
                *ret_wait = w;
                return RLM_OK;
        }
        free(w);
        if (made)
                not_started(c);
        return f;
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------------------------ */

enum rlm_fault rlm_child_find(struct rlm_turn *parent, const char *child, struct rlm_turn **ret) {
        struct rlm_session *c = parent->children;
        while (c && (c->deleting || strcmp(c->id, child) != 0))
                c = c->next_child;
        if (!c)
                return RLM_NO_SESSION;
        if (!c->turn)
                return RLM_TURN_ENDED;
        *ret = c->turn;
        return RLM_OK;
}

struct sandbox *rlm_turn_sandbox(const struct rlm_turn *t) {
        bool open = t->state == TURN_OPEN && t->root && t->root->state == ROOT_READY;
        return open ? warm_box_sandbox(t->root->box) : NULL;
}

const char *rlm_turn_session(const struct rlm_turn *t) { return t->session ? t->session->id : NULL; }

void rlm_children(const struct rlm_turn *parent, void (*each)(const struct rlm_session *c, bool ending, void *user), void *user) {
        for (const struct rlm_session *c = parent->children; c; c = c->next_child)
                each(c, c->deleting, user);
}

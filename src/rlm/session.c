/* The set of sessions: who is let in, what the ledger keeps, drain.
 *
 * A row of kind "rlm", its body the workspace's name. The row's count of attempts is the session's generation: it only grows, in one statement, and
 * what is counted is on disk before anybody hears of it (`raising`). The start counts one for every session that is there: roots do not outlive
 * the daemon, so what was said about them must not either. */
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "rlm/rlm_internal.h"

static const char *const rlm_fault_names[] = {
        "ok", "not_found", "not_found", "stale_generation", "turn_active", "turn_ended", "executing", "not_ready", "cancelled", "invalid", "code_too_large",
        "empty_code", "admission_timeout", "too_many", "draining", "disk_full", "idempotency_conflict", "start_failed", "too_many_children", "child_depth",
        "internal",
};
STRING_TABLE(rlm_fault, rlm_fault_names, RLM_FAULT_MAX)

static const char *session_key(const struct map_node *n) { return container_of(n, struct rlm_session, node)->id; }

/* ---- waiters ------------------------------------------------------------------------------------------------------------------------------ */

int waiter_add(struct waiter **list, void (*done)(void *user), void (*fenced)(uint64_t generation, void *user), void *user) {
        struct waiter *w = malloc(sizeof *w);
        if (!w)
                return -ENOMEM;
        *w = (struct waiter){ *list, done, fenced, user };
        *list = w;
        return 0;
}

void waiters_run(struct waiter **list, uint64_t generation) {
        struct waiter *w = TAKE_PTR(*list), *next;
        for (; w; w = next) {
                next = w->next;
                if (w->done)
                        w->done(w->user);
                if (w->fenced)
                        w->fenced(generation, w->user);
                free(w);
        }
}

/* ---- one of them -------------------------------------------------------------------------------------------------------------------------- */

static void unlist_later(struct rlm_session *s) {
        struct rlm_session **at = &s->m->later;
        while (s->later && *at != s)
                at = &(*at)->next_later;
        if (s->later)
                *at = s->next_later;
        s->later = false;
}

static void on_deleted(int r, void *user);

static void on_soon(uv_timer_t *timer) {
        struct rlm *m = timer->data;
        while (m->later) {
                struct rlm_session *s = m->later;
                unlist_later(s);
                if (s->row_going && s->owner)
                        on_deleted(0, s);
                else if (s->turn)
                        turn_step(s->turn);
        }
}

void rlm_session_later(struct rlm_session *s) {
        if (s->later)
                return;
        s->later = true;
        s->next_later = s->m->later;
        s->m->later = s;
        uv_timer_start(&s->m->soon, on_soon, 0, 0);
}

static void on_deleted(int r, void *user) {
        struct rlm_session *s = user;
        struct rlm *m = s->m;
        struct waiter *deleted = TAKE_PTR(s->deleted);
        unlist_later(s);
        map_remove(&m->sessions, &s->node);
        waiters_run(&s->settled, s->generation);
        if (s->owner)
                child_unlink(s);
        free(s);
        waiters_run(&deleted, 0);
        rlm_check_drained(m);
}

void rlm_session_settle(struct rlm_session *s) {
        bool busy = s->raising > 0 || s->inserting || s->n_children > 0 || (s->n_roots > (s->root ? 1u : 0u));
        if (s->turn && s->turn->state == TURN_WAITING)
                rlm_session_later(s);
        if (busy)
                return;
        if (s->settled)
                waiters_run(&s->settled, s->generation);
        if (!s->deleting || s->n_roots > 0 || s->row_going)
                return;
        s->row_going = true;
        if (s->owner)
                rlm_session_later(s);  /* child.c says why */
        else if (ledger_delete(s->m->cfg.ledger, s->id, on_deleted, s) < 0)
                on_deleted(-ENOMEM, s);
}

static void on_raised(int r, void *user) {
        struct rlm_session *s = user;
        s->raising--;
        if (r < 0)
                log_event(LOG_ERROR, "rlm.generation_lost", "session", s->id, "error", strerror(-r), NULL);
        rlm_session_settle(s);
}

void rlm_session_raise(struct rlm_session *s) {
        s->generation++;
        if (s->owner)                  /* it is in no ledger: no other daemon hears of it */
                return;
        s->raising++;
        int r = ledger_set_running(s->m->cfg.ledger, s->id, on_raised, s);
        if (r < 0) {
                s->raising--;
                log_event(LOG_ERROR, "rlm.generation_lost", "session", s->id, "error", strerror(-r), NULL);
        }
}

struct rlm_session *rlm_session_new(struct rlm *m, const char *id, const char *workspace, uint64_t generation) {
        struct rlm_session *s = calloc(1, sizeof *s);
        if (!s)
                return NULL;
        s->m = m;
        s->generation = generation;
        snprintf(s->id, sizeof s->id, "%s", id);
        snprintf(s->workspace, sizeof s->workspace, "%s", workspace);
        ASSERT(map_add(&m->sessions, &s->node) == 0);
        return s;
}

struct rlm_session *rlm_session_find(struct rlm *m, const char *id) {
        struct map_node *n = map_find(&m->sessions, id);
        struct rlm_session *s = n ? container_of(n, struct rlm_session, node) : NULL;
        return s && !s->inserting && !s->deleting ? s : NULL;
}

void rlm_session_look(const struct rlm_session *s, struct rlm_session_view *ret) {
        *ret = (struct rlm_session_view){
                .id = s->id, .workspace = s->workspace, .turn = s->turn ? s->turn->id : NULL, .generation = s->generation, .root = s->root,
                .root_ready = s->root && s->root->state == ROOT_READY, .parent = s->parent ? s->parent->id : NULL, .children = s->n_children,
        };
}

/* ---- creation and deletion ------------------------------------------------------------------------------------------------------------------ */

static bool workspace_ok(const char *name) {
        size_t n = strlen(name);
        if (n == 0 || n > RLM_WORKSPACE_MAX || strchr("._-", name[0]))
                return false;
        return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static void on_inserted(int r, void *user) {
        struct rlm_session *s = user;
        rlm_created done = TAKE_PTR(s->created);
        char id[RLM_ID_SIZE];
        memcpy(id, s->id, sizeof id);
        s->inserting = false;
        if (r < 0) {
                map_remove(&s->m->sessions, &s->node);
                rlm_check_drained(s->m);
        }
        done(r == 0 ? RLM_OK : r == -ENOSPC ? RLM_DISK_FULL : RLM_INTERNAL, id, s->created_user);
        if (r < 0)
                free(s);
        else if (s->deleting)
                rlm_session_settle(s);
}

/* A key that is known: the same request again, or another one. */
static bool repeated(struct rlm *m, const struct rlm_session_spec *spec, rlm_created done, void *user) {
        char id[37], hash[65];
        if (!spec->key || ledger_find_key(m->cfg.ledger, RLM_KIND, spec->tenant, spec->key, id, hash) < 0)
                return false;
        if (strcmp(hash, spec->hash) != 0)
                done(RLM_CONFLICT, NULL, user);
        else
                done(rlm_session_find(m, id) ? RLM_OK : RLM_NO_SESSION, id, user);
        return true;
}

void rlm_session_create(struct rlm *m, const struct rlm_session_spec *spec, rlm_created done, void *user) {
        char id[RLM_ID_SIZE], body[256];
        bool named = spec->workspace && spec->workspace[0];
        enum rlm_fault f = m->draining ? RLM_DRAINING : named && !workspace_ok(spec->workspace) ? RLM_INVALID
                           : m->sessions.n >= RLM_SESSIONS_MAX ? RLM_TOO_MANY : ledger_disk_low(m->cfg.ledger) ? RLM_DISK_FULL : RLM_OK;
        if (f != RLM_OK) {
                done(f, NULL, user);
                return;
        }
        if (repeated(m, spec, done, user))
                return;
        uuid_make(id);
        struct rlm_session *s = rlm_session_new(m, id, named ? spec->workspace : id, 0);
        if (!s) {
                done(RLM_INTERNAL, NULL, user);
                return;
        }
        s->inserting = true;
        s->created = done;
        s->created_user = user;
        int n = snprintf(body, sizeof body, "{\"workspace\":\"%s\"}", s->workspace);
        const struct ledger_job job = {
                .id = s->id, .kind = RLM_KIND, .tenant = spec->tenant, .body = body, .body_len = (size_t)n, .idempotency_key = spec->key,
                .body_hash = spec->key ? spec->hash : NULL, .created_ms = wall_ms(),
        };
        roots_wanted(m);
        int r = ledger_insert(m->cfg.ledger, &job, 1, on_inserted, s);
        if (r < 0)
                on_inserted(r, s);
}

enum rlm_fault rlm_session_delete(struct rlm *m, const char *id, void (*done)(void *user), void *user) {
        struct map_node *n = map_find(&m->sessions, id);
        struct rlm_session *s = n ? container_of(n, struct rlm_session, node) : NULL;
        if (!s || s->inserting)
                return RLM_NO_SESSION;
        if (waiter_add(&s->deleted, done, NULL, user) < 0)
                return RLM_INTERNAL;
        if (s->deleting)
                return RLM_OK;
        s->deleting = true;
        if (s->turn)
                turn_fence(s->turn);
        if (s->root)
                root_end(s->root);
        rlm_session_settle(s);
        return RLM_OK;
}

struct each { void (*each)(struct rlm_session *s, void *user); void *user; };

static void each_node(struct map_node *n, void *user) {
        struct each *e = user;
        e->each(container_of(n, struct rlm_session, node), e->user);
}

int rlm_each(struct rlm *m, void (*each)(struct rlm_session *s, void *user), void *user) {
        struct each e = { each, user };
        map_each(&m->sessions, each_node, &e);
        return 0;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------------------------------------- */

static int read_workspace(struct rlm *m, const char *id, struct buf *ret) {
        _cleanup_buf_ struct buf body = BUF_INIT(4096);
        struct json o, v;
        int r = ledger_get_body(m->cfg.ledger, id, &body);
        if (r == 0)
                r = json_parse(buf_str(&body), body.len, &o, NULL);
        if (r == 0)
                r = json_get(&o, "workspace", &v) ? json_string(&v, ret) : -EBADMSG;
        return r;
}

static int recover_row(const struct ledger_row *row, void *user) {
        struct rlm *m = user;
        _cleanup_buf_ struct buf workspace = BUF_INIT(RLM_WORKSPACE_MAX);
        if (row->state == JOB_FINISHED)
                return 0;
        int r = read_workspace(m, row->id, &workspace);
        if (r < 0)
                return r;
        struct rlm_session *s = rlm_session_new(m, row->id, buf_str(&workspace), (uint64_t)row->attempts);
        if (!s)
                return -ENOMEM;
        rlm_session_raise(s);
        return 0;
}

int rlm_open(const struct rlm_config *cfg, struct rlm **ret, struct error *e) {
        struct rlm *m = calloc(1, sizeof *m);
        if (!m)
                return error_set(e, -ENOMEM, "open the RLM sessions");
        m->cfg = *cfg;
        admission_init(&m->admission, cfg->slots, root_stop_idle);
        uv_timer_init(cfg->loop, &m->soon);
        uv_timer_init(cfg->loop, &m->unwanted);
        m->soon.data = m->unwanted.data = m;
        uv_unref((uv_handle_t *)&m->unwanted);
        m->open_handles = 2;
        int r = map_init(&m->sessions, session_key);
        if (r == 0)
                r = roots_open(m);
        if (r == 0)
                r = ledger_each_kind(cfg->ledger, RLM_KIND, 0, recover_row, m);
        if (r < 0) {
                rlm_free(m);
                return error_set(e, r, "open the RLM sessions");
        }
        if (m->sessions.n > 0) {
                char n[24];
                snprintf(n, sizeof n, "%zu", m->sessions.n);
                log_event(LOG_INFO, "rlm.recovered", "sessions", n, NULL);
        }
        *ret = m;
        return 0;
}

void rlm_set_face(struct rlm *m, const struct rlm_face *face, void *user) {
        m->face = face;
        m->face_user = user;
}

const struct rlm_config *rlm_settings(const struct rlm *m) { return &m->cfg; }

void rlm_stats(const struct rlm *m, struct rlm_stats *ret) {
        unsigned ending = 0;
        for (const struct rlm_root *r = m->roots; r; r = r->next)
                ending += r->state == ROOT_ENDING;
        *ret = (struct rlm_stats){
                .sessions = m->sessions.n, .turns = m->n_turns, .roots = m->n_roots, .waiting = m->admission.n_waiting, .slots = m->admission.slots,
                .slots_used = m->admission.used, .warm = warm_ready(m->warm, NULL), .ending = ending,
        };
}

/* Ending one may free others, that waited for its slot: from the beginning each time. */
static void end_roots(struct rlm *m, bool children) {
        for (struct rlm_root *r = m->roots; r;) {
                bool ends = r->state != ROOT_ENDING && r->child == children;
                if (ends)
                        root_end(r);
                r = ends ? m->roots : r->next;
        }
}

void rlm_check_drained(struct rlm *m) {
        if (m->draining && !m->ending_roots) {
                m->ending_roots = true;
                end_roots(m, true);
                if (m->n_child_roots == 0)
                        end_roots(m, false);
                m->ending_roots = false;
        }
        if (m->draining && m->warm_stopped && m->n_roots == 0 && m->n_turns == 0)
                waiters_run(&m->drained, 0);
}

static void drain_turn(struct rlm_session *s, void *user) {
        if (s->turn)
                (void)rlm_turn_end(s->turn, NULL, NULL);
}

static void on_warm_stopped(void *user) {
        struct rlm *m = user;
        m->warm_stopped = true;
        rlm_check_drained(m);
}

void rlm_drain(struct rlm *m, void (*done)(void *user), void *user) {
        if (!m->draining)
                warm_stop(m->warm, on_warm_stopped, m);
        m->draining = true;
        (void)waiter_add(&m->drained, done, NULL, user);
        rlm_each(m, drain_turn, NULL);
        rlm_check_drained(m);
}

static void on_closed(uv_handle_t *h) {
        struct rlm *m = h->data;
        if (--m->open_handles == 0)
                free(m);
}

void rlm_free(struct rlm *m) {
        size_t hint = 0;
        if (!m)
                return;
        m->freed = true;
        for (struct map_node *n; (n = map_any(&m->sessions, &hint));) {
                map_remove(&m->sessions, n);
                free(container_of(n, struct rlm_session, node));
        }
        map_release(&m->sessions);
        warm_free(TAKE_PTR(m->warm));
        uv_close((uv_handle_t *)&m->soon, on_closed);
        uv_close((uv_handle_t *)&m->unwanted, on_closed);
}

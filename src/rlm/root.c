/* Roots: boxes of the warm pool (warm.h: a sandbox, its interpreter, the broker's sockets), one to a session.
 *
 *     WAITING ──slot──> MAKING: a box, ready or made now ──> the broker is served ──> READY ──> ENDING: not served, box destroyed ──gone──> slot free
 *
 * The pool is filled when there is a session that may want a root, and emptied when for idle_ms none was wanted. What waits in it holds no slot.
 *
 * A root is kept from turn to turn while it is clean: READY, not tainted, its last turn's process confirmed dead. Else it is ended, and its session
 * gets another one when this one is confirmed gone. */
#include "base/log.h"
#include "rlm/rlm_internal.h"

#define WORKSPACE "/workspace"
#define KIND_ROOT "root"
#define KIND_CHILD "child"

/* ---- the end -------------------------------------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h) {
        struct rlm_root *r = h->data;
        struct rlm *m = r->m;
        m->open_handles--;
        free(r);
        if (m->freed && m->open_handles == 0)
                free(m);
}

static void close_face(struct rlm_root *r) {
        if (r->face)
                r->m->face->close(TAKE_PTR(r->face), r->m->face_user);
}

/* Nothing of it is left. */
static void free_root(struct rlm_root *r) {
        struct rlm *m = r->m;
        struct rlm_session *s = r->session;
        struct error why = r->error;
        close_face(r);
        *r->at = r->next;
        if (r->next)
                r->next->at = r->at;
        m->n_roots--;
        m->n_child_roots -= r->child;
        r->closed = true;
        uv_timer_stop(&r->idle);
        uv_close((uv_handle_t *)&r->idle, on_closed);
        if (s) {
                s->n_roots--;
                if (s->root == r)
                        s->root = NULL;
                if (s->turn && why.code)
                        turn_root_failed(s->turn, RLM_START_FAILED, &why);
        }
        admission_cancel(&m->admission, &r->ticket);
        admission_release(&m->admission, &r->ticket);
        if (s)
                rlm_session_settle(s);
        rlm_check_drained(m);
}

void root_end(struct rlm_root *r) {
        if (r->state == ROOT_ENDING)
                return;
        r->state = ROOT_ENDING;
        uv_timer_stop(&r->idle);
        if (r->session && r->session->root == r)
                r->session->root = NULL;
        close_face(r);
        if (r->box)
                warm_box_destroy(r->box);
        else
                free_root(r);
}

void root_stop_idle(struct ticket *t) {
        struct rlm_root *r = container_of(t, struct rlm_root, ticket);
        log_event(LOG_INFO, "rlm.root_stopped", "root", r->id, "why", "somebody waits for its slot", NULL);
        root_end(r);
}

static void on_idle(uv_timer_t *timer) {
        struct rlm_root *r = timer->data;
        if (r->state == ROOT_READY && !r->turn) {
                log_event(LOG_INFO, "rlm.root_stopped", "root", r->id, "why", "idle", NULL);
                root_end(r);
        }
}

void root_settle(struct rlm_root *r) {
        struct rlm_session *s = r->session;
        if (r->state != ROOT_READY)
                return;
        if (r->m->draining) {
                rlm_check_drained(r->m);       /* in its order */
                return;
        }
        bool waited_for = s && s->turn && s->turn->state == TURN_WAITING;
        if (r->tainted || !s || s->deleting || (r->child && !waited_for)) {
                root_end(r);
                return;
        }
        uv_timer_start(&r->idle, on_idle, r->m->cfg.idle_ms, 0);
        if (waited_for)
                turn_step(s->turn);
        else
                admission_idle(&r->m->admission, &r->ticket);
}

/* ---- making -------------------------------------------------------------------------------------------------------------------------------- */

static void failed(struct rlm_root *r, const char *what, const struct error *e) {
        if (r->state == ROOT_ENDING)
                return;
        if (!r->error.code)
                error_say(&r->error, e->code ? e->code : -EIO, "%.100s: %.380s", what, e->text);
        log_event(LOG_WARN, "rlm.root_failed", "root", r->id, "error", r->error.text, NULL);
        root_end(r);
}

static void serve(struct rlm_root *r) {
        struct error e = { 0 };
        int fds[2];
        warm_box_broker(r->box, fds);
        int x = r->m->face->open(r, fds, ARRAY_SIZE(fds), r->m->face_user, &r->face, &e);
        if (x < 0) {
                for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                        fd_close(fds[i]);
                failed(r, "serve the broker", &e);
                return;
        }
        r->state = ROOT_READY;
        root_settle(r);
}

static void on_ready(struct warm_box *b, void *user) {
        struct rlm_root *r = user;
        if (r->state == ROOT_MAKING)
                serve(r);
}

static void on_failed(struct warm_box *b, const char *step, const struct error *e, void *user) { failed(user, step, e); }
static void on_lost(struct warm_box *b, const struct error *e, void *user) { failed(user, "python", e); }

static void on_limit(struct warm_box *b, enum limit_kind kind, void *user) {
        struct rlm_root *r = user;
        r->out_of_memory |= kind == LIMIT_MEMORY;
        r->tainted |= kind != LIMIT_OUTPUT;
        log_event(LOG_INFO, "rlm.limit", "root", r->id, "limit", limit_kind_to_string((int)kind), NULL);
}

static void on_gone(struct warm_box *b, const struct sandbox_end *end, void *user) {
        struct rlm_root *r = user;
        r->state = ROOT_ENDING;
        r->box = NULL;
        free_root(r);
}

static const struct warm_callbacks callbacks = { .ready = on_ready, .failed = on_failed, .limit = on_limit, .lost = on_lost, .gone = on_gone };

/* ---- the pool ------------------------------------------------------------------------------------------------------------------------------- */

static enum sandbox_upper upper_for(const struct sandbox_limits *l) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        return l->disk_bytes <= memory / 2 ? UPPER_TMPFS : UPPER_DISK;
}

int roots_open(struct rlm *m) {
        static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" WORKSPACE, "USER=user", "LANG=C.UTF-8", "TZ=UTC", NULL };
        const struct rlm_config *cfg = &m->cfg;
        const struct sandbox_spec spec = {
                .id = "rlm-root", .profile = PROFILE_RLM, .image = IMAGE_HOST, .upper = upper_for(&cfg->root_limits), .network = cfg->network,
                .limits = cfg->root_limits, .user_dir = WORKSPACE,
        };
        const struct warm_kind kind = {
                .name = KIND_ROOT, .sandbox = &spec, .env = env, .broker_port = RLM_BROKER_PORT, .broker_name = RLM_BROKER_NAME, .keep = cfg->warm_roots > 0,
        };
        int x = warm_new(cfg->spawner, cfg->loop, cfg->warm_roots, WARM_BOXES_MAX, &m->warm);
        if (x < 0)
                return x;
        warm_hold_back(m->warm, true); /* until there is a session */
        x = warm_add_kind(m->warm, &kind);
        if (x < 0)
                return x;
        struct sandbox_spec child = spec;
        struct warm_kind child_kind = kind;
        child.id = "rlm-child";
        child.upper = upper_for(&cfg->child_limits);
        child.network = NETWORK_NONE;
        child.limits = cfg->child_limits;
        child_kind.name = KIND_CHILD;
        child_kind.sandbox = &child;
        child_kind.keep = false;
        return warm_add_kind(m->warm, &child_kind);
}

static void roots_unwanted(uv_timer_t *timer) {
        struct rlm *m = timer->data;
        warm_hold_back(m->warm, true);
}

void roots_wanted(struct rlm *m) {
        if (m->draining)
                return;
        warm_hold_back(m->warm, false);
        uv_timer_start(&m->unwanted, roots_unwanted, m->cfg.idle_ms, 0);
}

/* ---- making one ----------------------------------------------------------------------------------------------------------------------------- */

static void make(struct rlm_root *r) {
        struct error e = { 0 };
        r->state = ROOT_MAKING;
        if (r->session && r->session->turn)
                turn_admitted(r->session->turn);
        int x = warm_take(r->m->warm, r->child ? KIND_CHILD : KIND_ROOT, &callbacks, r, &r->box, &e);
        if (x < 0)
                failed(r, "make the sandbox", &e);
        else if (x > 0)
                serve(r);
}

static void on_granted(struct ticket *t) {
        struct rlm_root *r = container_of(t, struct rlm_root, ticket);
        if (r->m->draining)
                root_end(r);
        else
                make(r);
}

int root_request(struct rlm_session *s, struct error *e) {
        struct rlm *m = s->m;
        struct rlm_root *r = calloc(1, sizeof *r);
        if (!r)
                return error_set(e, -ENOMEM, "make a root");
        *r = (struct rlm_root){ .m = m, .session = s, .next = m->roots, .at = &m->roots, .child = s->owner };
        snprintf(r->id, sizeof r->id, "%s-r%u", s->id, ++s->made_roots);
        if (r->next)
                r->next->at = &r->next;
        m->roots = r;
        m->n_roots++;
        m->n_child_roots += r->child;
        m->open_handles++;
        s->n_roots++;
        s->root = r;
        uv_timer_init(m->cfg.loop, &r->idle);
        r->idle.data = r;
        if (!r->child)
                roots_wanted(m);
        if (admission_request(&m->admission, &r->ticket, r->child ? ADMISSION_CHILD : ADMISSION_ROOT, on_granted))
                make(r);
        return 0;
}

/* The life of a turn: begin, end, fence. */
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "rlm/rlm_internal.h"

#define SETUP_MAX (2 * RLM_BODY_MAX)

/* ---- making and freeing ---------------------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h) {
        struct rlm_turn *t = h->data;
        struct rlm *m = t->m;
        m->open_handles--;
        free(t);
        if (m->freed && m->open_handles == 0)
                free(m);
}

static void free_if_done(struct rlm_turn *t) {
        if (!t->forgotten || t->process || t->hold > 0 || t->quota.alive > 0 || t->closed)
                return;
        struct waiter *ends = TAKE_PTR(t->ends);
        uint64_t generation = t->generation;
        t->closed = true;
        t->m->n_turns--;
        calls_release(t);
        tools_release(&t->tools);
        outputs_release(&t->outputs);
        buf_release(&t->setup);
        buf_release(&t->final);
        buf_release(&t->answer);
        free(t->key);
        explicit_bzero(t->secret, sizeof t->secret);
        uv_close((uv_handle_t *)&t->timer, on_closed);
        struct rlm *m = t->m;
        waiters_run(&ends, generation);
        rlm_check_drained(m);
}

void turn_forget(struct rlm_turn *t) {
        if (t->session && t->session->turn == t)
                t->session->turn = NULL;
        t->session = NULL;
        t->forgotten = true;
        free_if_done(t);
}

void turn_child_gone(struct rlm_turn *t) { free_if_done(t); }

static void drop_hold(struct rlm_turn *t) {
        t->hold--;
        free_if_done(t);
}

/* What the driver is told; outputs in one form, whatever form they came in. */
static int write_setup(struct rlm_turn *t, const struct json *tools) {
        struct json_writer w = JSON_WRITER(&t->setup);
        json_begin_object(&w);
        json_put_key(&w, "tools");
        if (tools && tools->type == JSON_ARRAY)
                json_put_raw(&w, tools->p, tools->n);
        else
                json_put_raw(&w, "[]", 2);
        json_put_key(&w, "outputs");
        json_begin_array(&w);
        for (size_t i = 0; i < t->outputs.n; i++) {
                const struct output *o = &t->outputs.list[i];
                json_begin_object(&w);
                json_field_text(&w, "name", o->name);
                json_field_text(&w, "type", output_type_to_string((int)o->type));
                json_field_bool(&w, "required", o->required && !o->def);
                if (o->def)
                        json_field_raw(&w, "default", o->def, strlen(o->def));
                json_end_object(&w);
        }
        json_end_array(&w);
        json_end_object(&w);
        return json_finish(&w);
}

static int fill(struct rlm_turn *t, const struct rlm_turn_spec *spec, struct error *e) {
        int r = tools_parse(spec->tools, &t->tools, e);
        if (r == 0)
                r = outputs_parse(spec->outputs, &t->outputs, e);
        if (r < 0)
                return r;
        if (spec->key && !(t->key = strdup(spec->key)))
                return error_set(e, -ENOMEM, "begin a turn");
        if (spec->hash)
                snprintf(t->hash, sizeof t->hash, "%s", spec->hash);
        r = write_setup(t, spec->tools);
        if (r == 0)
                r = calls_open(t);
        return r < 0 ? error_set(e, r, "begin a turn") : 0;
}

static struct rlm_turn *turn_new(struct rlm_session *s) {
        unsigned char random[48];
        char hex[97];
        struct rlm_turn *t = calloc(1, sizeof *t);
        if (!t)
                return NULL;
        random_bytes(random, sizeof random);
        hex_encode(random, sizeof random, hex);
        t->m = s->m;
        t->generation = s->generation;
        snprintf(t->id, sizeof t->id, "g%llu-%.32s", (unsigned long long)s->generation, hex);
        snprintf(t->secret, sizeof t->secret, "%s", hex + 32);
        t->quota = (struct child_quota){ .most = s->m->cfg.children_max, .most_alive = CHILDREN_ALIVE_MAX };
        buf_init(&t->setup, SETUP_MAX);
        buf_init(&t->answer, 0);
        explicit_bzero(random, sizeof random);
        explicit_bzero(hex, sizeof hex);
        uv_timer_init(s->m->cfg.loop, &t->timer);
        t->timer.data = t;
        s->m->open_handles++;
        s->m->n_turns++;
        return t;
}

/* ---- who waits for its beginning ------------------------------------------------------------------------------------------------------- */

static void unlink_begin(struct rlm_begin *b) {
        *b->at = b->next;
        if (b->next)
                b->next->at = b->at;
}

/* Its owner hears; the turn may have been ended by one of them. */
static void tell_begins(struct rlm_turn *t, enum rlm_fault f, const struct error *e) {
        t->hold++;
        while (t->begins) {
                struct rlm_begin *b = t->begins;
                unlink_begin(b);
                b->done(f, e, f == RLM_OK ? t : NULL, b->user);
                free(b);
        }
        drop_hold(t);
}

static struct rlm_begin *add_begin(struct rlm_turn *t, rlm_begun done, void *user) {
        struct rlm_begin *b = calloc(1, sizeof *b);
        if (!b)
                return NULL;
        *b = (struct rlm_begin){ .turn = t, .done = done, .user = user, .next = t->begins, .at = &t->begins };
        if (b->next)
                b->next->at = &b->next;
        t->begins = b;
        return b;
}

/* It will not begin. A root that is being made stays: the next turn finds it. */
static void give_up(struct rlm_turn *t, enum rlm_fault f, const struct error *e) {
        struct rlm_session *s = t->session;
        t->hold++;
        uv_timer_stop(&t->timer);
        t->state = TURN_ENDING;
        calls_close(t);
        if (s && s->root && s->root->state == ROOT_WAITING)
                root_end(s->root);
        turn_forget(t);
        tell_begins(t, f, e);
        drop_hold(t);
}

void rlm_begin_abandon(struct rlm_begin *b) {
        struct rlm_turn *t = b->turn;
        unlink_begin(b);
        free(b);
        if (t->begins || t->state == TURN_OPEN)
                return;
        if (t->state == TURN_WAITING)
                give_up(t, RLM_CANCELLED, NULL);
        else if (t->state == TURN_BEGINNING)
                (void)rlm_turn_end(t, NULL, NULL);
}

void turn_root_failed(struct rlm_turn *t, enum rlm_fault f, const struct error *e) {
        if (t->state == TURN_WAITING)
                give_up(t, f, e);
}

void turn_admitted(struct rlm_turn *t) {
        if (t->state == TURN_WAITING)
                uv_timer_stop(&t->timer);
}

static void on_late(uv_timer_t *timer) {
        struct rlm_turn *t = timer->data;
        if (t->state == TURN_WAITING)
                give_up(t, RLM_ADMISSION_TIMEOUT, NULL);
        else
                action_timer(t);
}

/* ---- beginning --------------------------------------------------------------------------------------------------------------------------- */

static void on_begun(struct turn_process *p, void *user) {
        struct rlm_turn *t = user;
        if (t->state != TURN_BEGINNING)
                return;
        t->state = TURN_OPEN;
        buf_release(&t->setup);
        tell_begins(t, RLM_OK, NULL);
}

/* The kernel has confirmed that no process of it is left. */
static void on_ended(struct turn_process *p, const struct turn_end *end, void *user) {
        struct rlm_turn *t = user;
        struct rlm_root *root = t->root;
        t->hold++;
        t->process = NULL;
        if (t->state == TURN_OPEN || t->state == TURN_BEGINNING)
                log_event(LOG_INFO, "rlm.turn_ended", "turn", t->id, "why", turn_end_reason_to_string((int)end->reason), "error", end->error.text, NULL);
        if (root && (end->reason == TURN_END_PROTOCOL || end->reason == TURN_END_SUBMIT || end->reason == TURN_END_SANDBOX || end->reason == TURN_END_START))
                root->tainted = true;
        enum turn_state was = t->state;
        if (was == TURN_OPEN) {
                t->state = TURN_ENDED;
                calls_close(t);
                children_end(t);
                action_ended(t, end);
        } else if (was == TURN_BEGINNING) {
                t->state = TURN_ENDING;
                turn_forget(t);
                tell_begins(t, RLM_START_FAILED, &end->error);
        }
        t->root = NULL;
        if (root) {
                root->turn = NULL;
                root_settle(root);
        }
        drop_hold(t);
}

static const struct turn_callbacks callbacks = {
        .begun = on_begun, .output = action_output, .submit = action_submit, .done = action_done, .ended = on_ended,
};

static void start_process(struct rlm_turn *t, struct rlm_root *root) {
        const struct turn_spec spec = {
                .setup = buf_str(&t->setup), .setup_len = t->setup.len, .secret = t->secret, .broker = "unix:@" RLM_BROKER_NAME, .cwd = "/workspace",
        };
        struct error e = { 0 };
        uv_timer_stop(&t->timer);
        uv_timer_stop(&root->idle);
        int r = turn_process_start(warm_box_interpreter(root->box), &spec, &callbacks, t, &t->process, &e);
        if (r < 0) {
                root->tainted = true;
                root_end(root);
                give_up(t, RLM_START_FAILED, &e);
                return;
        }
        root->turn = t;
        t->root = root;
        t->state = TURN_BEGINNING;
}

static void go_on(struct rlm_turn *t) {
        struct rlm_session *s = t->session;
        struct error e;
        if (s->raising > 0 || s->n_children > 0)
                return;
        if (!s->root && s->n_roots > 0)
                return;                /* the old one is not confirmed gone: it blocks its replacement */
        if (!s->root && root_request(s, &e) < 0) {
                give_up(t, RLM_INTERNAL, &e);
                return;
        }
        struct rlm_root *root = t->state == TURN_WAITING ? s->root : NULL;
        if (!root || root->state != ROOT_READY || root->turn)
                return;
        if (root->ticket.state == TICKET_IDLE && !admission_busy(&t->m->admission, &root->ticket))
                return;
        start_process(t, root);
}

void turn_step(struct rlm_turn *t) {
        t->hold++;
        if (t->begins && (t->state == TURN_OPEN || t->state == TURN_ENDED))
                tell_begins(t, RLM_OK, NULL);
        else if (t->state == TURN_WAITING && t->session)
                go_on(t);
        drop_hold(t);
}

static enum rlm_fault may_begin(struct rlm_session *s, const struct rlm_turn_spec *spec, struct rlm_turn **ret_same) {
        struct rlm_turn *t = s->turn;
        *ret_same = NULL;
        if (s->m->draining)
                return RLM_DRAINING;
        if (!s->m->face)
                return RLM_INTERNAL;
        if (s->owner && s->started && !t)
                return RLM_TURN_ENDED;         /* a child has one */
        if (t && spec->key && t->key && strcmp(spec->key, t->key) == 0) {
                if (strcmp(spec->hash, t->hash) != 0)
                        return RLM_CONFLICT;
                *ret_same = t;
                return RLM_OK;
        }
        return t && (t->state != TURN_ENDED || s->owner) ? RLM_TURN_ACTIVE : RLM_OK;
}

static enum rlm_fault join(struct rlm_turn *t, rlm_begun done, void *user, struct rlm_begin **ret) {
        *ret = add_begin(t, done, user);
        if (!*ret)
                return RLM_INTERNAL;
        rlm_session_later(t->session);
        return RLM_OK;
}

enum rlm_fault rlm_turn_begin(struct rlm_session *s, const struct rlm_turn_spec *spec, rlm_begun done, void *user, struct rlm_begin **ret_wait, struct error *e) {
        struct rlm_turn *t;
        enum rlm_fault f = may_begin(s, spec, &t);
        if (f != RLM_OK || t)
                return f != RLM_OK ? f : join(t, done, user, ret_wait);
        t = turn_new(s);
        if (!t)
                return RLM_INTERNAL;
        int r = fill(t, spec, e);
        if (r == 0 && !(*ret_wait = add_begin(t, done, user)))
                r = -ENOMEM;
        if (r < 0) {
                turn_forget(t);
                return r == -EINVAL ? RLM_INVALID : RLM_INTERNAL;
        }
        if (s->turn)
                turn_forget(s->turn);
        t->session = s;
        s->turn = t;
        /* What there is to do is done from the loop: never `done` from inside this call. */
        uv_timer_start(&t->timer, on_late, MAX2(spec->acquire_ms, 1), 0);       /* later than what there is to do now */
        rlm_session_later(s);
        return RLM_OK;
}

/* ---- finding ------------------------------------------------------------------------------------------------------------------------------ */

/* "g<generation>-<32 hex digits>" */
static int parse_id(const char *id, uint64_t *ret_generation) {
        char *end;
        errno = 0;
        if (id[0] != 'g' || id[1] < '0' || id[1] > '9')
                return -EINVAL;
        unsigned long long n = strtoull(id + 1, &end, 10);
        if (errno || *end != '-' || strlen(end + 1) != 32 || strspn(end + 1, "0123456789abcdef") != 32)
                return -EINVAL;
        *ret_generation = n;
        return 0;
}

enum rlm_fault rlm_turn_find(struct rlm *m, const char *session, const char *turn, struct rlm_turn **ret) {
        struct rlm_session *s = rlm_session_find(m, session);
        uint64_t generation;
        if (!s)
                return RLM_NO_SESSION;
        if (parse_id(turn, &generation) < 0 || generation > s->generation)
                return RLM_NO_TURN;
        if (generation < s->generation)
                return RLM_STALE_GENERATION;
        if (!s->turn || strcmp(s->turn->id, turn) != 0)
                return RLM_TURN_ENDED;
        *ret = s->turn;
        return RLM_OK;
}

const char *rlm_turn_id(const struct rlm_turn *t) { return t->id; }
uint64_t rlm_turn_generation(const struct rlm_turn *t) { return t->generation; }
bool rlm_turn_is_over(const struct rlm_turn *t) { return t->state == TURN_ENDED || t->state == TURN_ENDING; }

/* ---- the end ------------------------------------------------------------------------------------------------------------------------------ */

enum rlm_fault rlm_turn_end(struct rlm_turn *t, void (*done)(void *user), void *user) {
        if (done && waiter_add(&t->ends, done, NULL, user) < 0)
                return RLM_INTERNAL;
        if (t->state == TURN_WAITING) {
                give_up(t, RLM_CANCELLED, NULL);
                return RLM_OK;
        }
        t->hold++;
        bool alive = t->state != TURN_ENDED;
        t->state = TURN_ENDING;
        calls_close(t);
        children_end(t);
        action_cancelled(t);
        tell_begins(t, RLM_CANCELLED, NULL);
        if (alive && t->process)
                turn_process_kill(t->process);
        turn_forget(t);
        drop_hold(t);
        return RLM_OK;
}

void turn_fence(struct rlm_turn *t) {
        struct rlm_session *s = t->session;
        struct rlm_root *root = t->root ? t->root : s ? s->root : NULL;
        t->hold++;
        t->state = TURN_ENDING;
        uv_timer_stop(&t->timer);
        if (s)
                rlm_session_raise(s);          /* first: whoever is told now is told of a generation that is no more */
        calls_close(t);
        children_end(t);
        turn_forget(t);
        action_cancelled(t);
        tell_begins(t, RLM_CANCELLED, NULL);
        if (t->process)
                turn_process_kill(t->process);
        if (root) {
                root->tainted = true;
                root_end(root);
        }
        drop_hold(t);
}

enum rlm_fault rlm_turn_cancel(struct rlm_turn *t, void (*done)(uint64_t generation, void *user), void *user) {
        struct rlm_session *s = t->session;
        if (!s)
                return RLM_TURN_ENDED;
        if (waiter_add(&s->settled, NULL, done, user) < 0)
                return RLM_INTERNAL;
        turn_fence(t);
        rlm_session_settle(s);
        return RLM_OK;
}

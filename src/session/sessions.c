/* The set of sessions: who is let in, who is known, recovery, drain. The life of one is session.c's. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/strv.h"
#include "session/session_internal.h"
#include "store/rundir.h"

static const char *const session_state_names[] = { "starting", "ready", "finishing", "failed", "finished", "expired" };
STRING_TABLE(session_state, session_state_names, SESSION_STATE_MAX)

static const char *session_key(const struct map_node *n) { return container_of(n, struct session, node)->id; }

int session_spec_init(const struct sessions *ss, struct session_spec *ret) {
        const struct sessions_config *cfg = &ss->cfg;
        *ret = (struct session_spec){
                .image = strdup(IMAGE_HOST), .tenant = strdup(""), .network = cfg->network, .limits = cfg->limits,
                .ttl_ms = cfg->ttl_ms, .idle_ms = cfg->idle_ms,
        };
        if (ret->image && ret->tenant)
                return 0;
        session_spec_release(ret);
        return -ENOMEM;
}

static char *copy_text(const char *s, int *r) {
        char *copy = s ? strdup(s) : NULL;
        if (s && !copy)
                *r = -ENOMEM;
        return copy;
}

static char **copy_list(char *const *list, int *r) {
        char **copy = NULL;
        for (; list && *list && *r == 0; list++)
                *r = strv_push(&copy, *list);
        return copy;
}

int session_spec_like(const struct session *s, const char *image, struct session_spec *ret) {
        int r = 0;
        struct session_spec like = s->spec;
        like.image = copy_text(image, &r);
        like.env = copy_list(s->spec.env, &r);
        like.workdir = copy_text(s->spec.workdir, &r);
        like.startup_command = copy_text(s->spec.startup_command, &r);
        like.labels = copy_list(s->spec.labels, &r);
        like.tenant = copy_text(s->spec.tenant, &r);
        like.allow = s->spec.allow ? egress_rules_ref(s->spec.allow) : NULL;
        like.idempotency_key = NULL;
        like.owner_ttl_ms = 0;
        memset(like.hash, 0, sizeof like.hash);
        if (r < 0)
                session_spec_release(&like);
        else
                *ret = like;
        return r;
}

void session_spec_release(struct session_spec *s) {
        free(s->image);
        strv_free(s->env);
        free(s->workdir);
        free(s->startup_command);
        strv_free(s->labels);
        free(s->tenant);
        free(s->idempotency_key);
        egress_rules_unref(s->allow);
        *s = (struct session_spec){ 0 };
}

/* ---- opening and closing --------------------------------------------------------------------------------------------------- */

#define LOST_REASON "daemon restarted"

struct recovery { struct sessions *ss; size_t n; };

static void logs_gone(int r, void *user) { }

static int recover_row(const struct ledger_row *row, void *user) {
        struct recovery *rec = user;
        struct ledger *l = rec->ss->cfg.ledger;
        _cleanup_buf_ struct buf summary = BUF_INIT(RECORD_MAX), record = BUF_INIT(RECORD_MAX);
        if (row->state == JOB_FINISHED)
                return 0;
        int r = ledger_get_body(l, row->id, &summary);
        if (r == 0)
                r = record_of_lost(buf_str(&summary), summary.len, LOST_REASON, &record);
        if (r == 0)
                r = ledger_finish(l, row->id, session_state_to_string(SESSION_FAILED), record.data, record.len, NULL, NULL);
        rec->n++;
        rec->ss->last_lost = row->seq;
        if (rec->ss->cfg.runs_dirfd >= 0)      /* logs of its commands, which nobody can ask for any more */
                (void)rundir_remove(rec->ss->cfg.loop, rec->ss->cfg.runs_dirfd, (const char *const *)&row->id, 1, logs_gone, NULL);
        return r;
}

static int recover(struct sessions *ss, struct error *e) {
        struct recovery rec = { .ss = ss };
        int r = ledger_each_kind(ss->cfg.ledger, SESSION_KIND, 0, recover_row, &rec);
        if (r < 0)
                return error_set(e, r, "recover the sessions of the last start");
        if (rec.n > 0) {
                char n[24];
                snprintf(n, sizeof n, "%zu", rec.n);
                log_event(LOG_INFO, "sessions.lost", "n", n, NULL);
        }
        return 0;
}

int sessions_open(const struct sessions_config *cfg, struct sessions **ret, struct error *e) {
        struct sessions *ss = calloc(1, sizeof *ss);
        if (!ss)
                return error_set(e, -ENOMEM, "open the sessions");
        ss->cfg = *cfg;
        ss->waiting_last = &ss->waiting;
        int r = map_init(&ss->map, session_key);
        if (r < 0)
                error_set(e, r, "open the sessions");
        else
                r = recover(ss, e);
        if (r < 0) {
                map_release(&ss->map);
                free(ss);
                return r;
        }
        uv_timer_init(cfg->loop, &ss->grace);
        ss->grace.data = ss;
        uv_unref((uv_handle_t *)&ss->grace);
        *ret = ss;
        return 0;
}

void sessions_check_drained(struct sessions *ss) {
        if (!ss->drained || ss->map.n > 0)
                return;
        void (*done)(void *) = ss->drained;
        ss->drained = NULL;
        uv_timer_stop(&ss->grace);
        done(ss->drained_user);
}

static void end_quietly(struct map_node *n, void *user) {
        struct session *s = container_of(n, struct session, node);
        if (s->ending || (user && s->n_active > 0))
                return;
        s->quiet = true;
        session_end(s, SESSION_FAILED, LOST_REASON);
}

static void on_grace_over(uv_timer_t *t) {
        struct sessions *ss = t->data;
        map_each(&ss->map, end_quietly, NULL);
        sessions_check_drained(ss);
}

void sessions_drain(struct sessions *ss, uint64_t grace_ms, void (*done)(void *user), void *user) {
        ss->draining = true;
        ss->drained = done;
        ss->drained_user = user;
        map_each(&ss->map, end_quietly, ss);
        /* Always from the loop, and referenced: the timer keeps it alive until then. */
        uv_timer_start(&ss->grace, on_grace_over, ss->map.n > 0 ? grace_ms : 0, 0);
        uv_ref((uv_handle_t *)&ss->grace);
}

static void on_grace_closed(uv_handle_t *h) {
        struct sessions *ss = h->data;
        map_release(&ss->map);
        free(ss);
}

void sessions_free(struct sessions *ss) {
        if (ss && !ss->freed) {
                ss->freed = true;
                uv_close((uv_handle_t *)&ss->grace, on_grace_closed);
        }
}

const struct sessions_config *sessions_settings(const struct sessions *ss) { return &ss->cfg; }

void sessions_stats(const struct sessions *ss, struct sessions_stats *ret) {
        *ret = (struct sessions_stats){ .live = ss->map.n, .starting = ss->starting, .processes = ss->inflight };
}

/* ---- coming in --------------------------------------------------------------------------------------------------------------- */

/* The first with this key: its id if it asked for the same. */
static int first_with_key(struct sessions *ss, const struct session_spec *spec, char ret_id[static SESSION_ID_SIZE]) {
        char hash[65];
        if (!spec->idempotency_key)
                return -ENOENT;
        int r = ledger_find_key(ss->cfg.ledger, SESSION_KIND, spec->tenant, spec->idempotency_key, ret_id, hash);
        return r < 0 ? r : strcmp(hash, spec->hash) == 0 ? -EEXIST : -EBUSY;
}

static int refusal(struct sessions *ss) {
        if (ss->draining)
                return -ESHUTDOWN;
        if (ledger_disk_low(ss->cfg.ledger))
                return -ENOSPC;
        return ss->map.n >= ss->cfg.live_max ? -EAGAIN : 0;
}

static void on_inserted(int r, void *user) {
        struct session *s = user;
        struct sessions *ss = s->ss;
        char id[SESSION_ID_SIZE];
        session_created done = s->created;
        void *done_user = s->created_user;
        memcpy(id, s->id, sizeof id);
        if (r == -EEXIST && s->spec.idempotency_key) {
                r = first_with_key(ss, &s->spec, id);
                if (r == -ENOENT)              /* its owner has just expired: another try will do */
                        r = -EAGAIN;
        }
        session_inserted(s, r);
        done(r, r == 0 || r == -EEXIST ? id : NULL, NULL, done_user);
}

/* The sandbox is made while the row is written: both take their time, and neither is told of before both can be. */
static int begin(struct sessions *ss, struct session_spec *spec, session_created done, void *user, struct error *e) {
        _cleanup_buf_ struct buf summary = BUF_INIT(RECORD_MAX);
        int r = record_summary(spec, &summary);
        struct session *s = r == 0 ? session_new(ss, spec) : NULL;
        if (!s)
                return error_set(e, r < 0 ? r : -ENOMEM, "create a session");
        struct ledger_job job = {
                .id = s->id, .kind = SESSION_KIND, .tenant = s->spec.tenant, .body = summary.data, .body_len = summary.len,
                .idempotency_key = s->spec.idempotency_key, .body_hash = s->spec.idempotency_key ? s->spec.hash : NULL, .created_ms = s->created_ms,
        };
        s->created = done;
        s->created_user = user;
        s->inserting = true;
        r = ledger_insert(ss->cfg.ledger, &job, 1, on_inserted, s);
        if (r < 0) {
                session_inserted(s, r);
                return error_set(e, r, "create a session");
        }
        struct error why;
        if (session_start(s, &why) < 0)
                session_end(s, SESSION_FAILED, why.text);
        return 0;
}

void session_create(struct sessions *ss, struct session_spec *spec, session_created done, void *user) {
        char id[SESSION_ID_SIZE];
        struct error e = { 0 };
        int r = first_with_key(ss, spec, id);
        if (r == -ENOENT)
                r = refusal(ss);
        if (r == 0)
                r = begin(ss, spec, done, user, &e);
        session_spec_release(spec);
        if (r < 0)
                done(r, r == -EEXIST ? id : NULL, &e, user);
}

/* ---- known sessions ------------------------------------------------------------------------------------------------------------ */

struct session *session_any(struct sessions *ss, const char *id) {
        struct map_node *n = id ? map_find(&ss->map, id) : NULL;
        return n ? container_of(n, struct session, node) : NULL;
}

struct session *session_find(struct sessions *ss, const char *id) {
        struct session *s = session_any(ss, id);
        return s && session_state_is_live(s->state) && !s->inserting && !s->removals ? s : NULL;
}

void session_view_release(struct session_view *v) {
        free(v->image);
        free(v->error);
        strv_free(v->labels);
        *v = (struct session_view){ 0 };
}

/* `text`: its body, or its record once it has finished. */
static int view_of_text(struct sessions *ss, const struct ledger_row *row, struct buf *text, struct session_view *ret) {
        struct session_view v = { .created_ms = row->created_ms, .ended_ms = row->ended_ms, .seq = row->seq };
        snprintf(v.id, sizeof v.id, "%s", row->id);
        bool finished = row->state == JOB_FINISHED;
        int st = finished ? session_state_from_string(row->outcome) : SESSION_FAILED;
        v.state = st < 0 ? SESSION_FAILED : (enum session_state)st;
        int r = record_view(buf_str(text), text->len, &v);
        /* At the start what was lost is still being recorded. */
        const char *why = row->seq <= ss->last_lost ? LOST_REASON : "its end could not be recorded";
        if (r == 0 && !finished && !v.error && !(v.error = strdup(why)))
                r = -ENOMEM;
        if (r < 0)
                session_view_release(&v);
        else
                *ret = v;
        return r;
}

/* Row and text of one moment: what the last daemon left may be recorded between two reads. */
static int view_of_recorded(struct sessions *ss, const char *id, struct session_view *ret) {
        struct ledger_row row;
        _cleanup_buf_ struct buf text = BUF_INIT(RECORD_HEAD_MAX);
        int r = record_text(ss, id, &row, &text);
        if (r < 0)
                return r;
        r = strcmp(row.kind, SESSION_KIND) == 0 ? view_of_text(ss, &row, &text, ret) : -ENOENT;
        ledger_row_release(&row);
        return r;
}

static int view_of(struct sessions *ss, const struct ledger_row *row, struct session_view *ret) {
        struct map_node *n = map_find(&ss->map, row->id);
        struct session *s = n ? container_of(n, struct session, node) : NULL;
        if (!s)
                return view_of_recorded(ss, row->id, ret);
        if (s->removals || s->inserting)
                return -ENOENT;
        int r = 0;
        view_of_live(s, ret, &r);
        ret->seq = row->seq;
        return r;
}

int session_get(struct sessions *ss, const char *id, struct session_view *ret) {
        struct map_node *n = map_find(&ss->map, id);
        if (n) {
                struct session *s = container_of(n, struct session, node);
                int r = s->removals || s->inserting ? -ENOENT : 0;
                if (r == 0)
                        view_of_live(s, ret, &r);
                return r;
        }
        return view_of_recorded(ss, id, ret);
}

/* ---- the network ----------------------------------------------------------------------------------------------------------------- */

static int network_of_record(struct sessions *ss, const char *id, struct buf *ret) {
        _cleanup_buf_ struct buf text = BUF_INIT(RECORD_HEAD_MAX);
        struct ledger_row row;
        struct json v, said;
        int r = record_text(ss, id, &row, &text);
        if (r < 0)
                return r;
        bool is_session = strcmp(row.kind, SESSION_KIND) == 0;
        ledger_row_release(&row);
        if (!is_session)
                return -ENOENT;
        r = json_parse(buf_str(&text), text.len, &v, NULL);
        if (r < 0)
                return r;
        return json_get(&v, "egress", &said) ? buf_add(ret, said.p, said.n) : -ENODATA;
}

int session_network(struct sessions *ss, const char *id, struct buf *ret) {
        struct session *s = session_any(ss, id);
        struct json_writer w = JSON_WRITER(ret);
        if (!s)
                return network_of_record(ss, id, ret);
        if (s->inserting || s->removals)
                return -ENOENT;
        if (s->network_said)
                return buf_adds(ret, s->network_said);
        struct egress_net *n = s->sandbox && s->state != SESSION_STARTING ? sandbox_egress(s->sandbox) : NULL;
        if (!n)
                return s->state == SESSION_STARTING ? -EAGAIN : -ENODATA;
        egress_net_write_json(n, &w);
        return json_finish(&w);
}

int session_set_rules(struct sessions *ss, const char *id, struct egress_rules *rules) {
        struct session *s = session_find(ss, id);
        struct sandbox *sb = s ? session_sandbox(s) : NULL;
        struct egress_net *n = sb ? sandbox_egress(sb) : NULL;
        if (!n)
                return !s ? -ENOENT : !sb ? -EAGAIN : -ENODATA;
        egress_net_set_rules(n, rules);
        egress_rules_unref(s->spec.allow);
        s->spec.allow = egress_rules_ref(rules);
        return 0;
}

/* ---- list ---------------------------------------------------------------------------------------------------------------------- */

#define LIVE_STATES (1u << SESSION_STARTING | 1u << SESSION_READY | 1u << SESSION_FINISHING)

struct listing {
        struct sessions *ss;
        const struct session_filter *f;
        int (*each)(const struct session_view *v, void *user);
        void *user;
        size_t n;
        bool more;
};

static bool is_wanted(const struct session_filter *f, const struct session_view *v) {
        if (!((f->states ? f->states : LIVE_STATES) & 1u << v->state))
                return false;
        for (char **l = f->labels; l && *l; l++)
                if (!strv_contains((const char *const *)v->labels, *l))
                        return false;
        return true;
}

static int list_row(const struct ledger_row *row, void *user) {
        struct listing *li = user;
        struct session_view v;
        /* Most records of a busy machine have ended: their text is not read where only live ones are asked for. */
        if (row->state == JOB_FINISHED && !((li->f->states ? li->f->states : LIVE_STATES) & ~LIVE_STATES))
                return 0;
        int r = view_of(li->ss, row, &v);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        if (is_wanted(li->f, &v)) {
                if (li->n == li->f->limit) {
                        li->more = true;
                        r = 1;
                } else {
                        li->n++;
                        r = li->each(&v, li->user);
                }
        }
        session_view_release(&v);
        return r;
}

int sessions_list(struct sessions *ss, const struct session_filter *f, int (*each)(const struct session_view *v, void *user), void *user,
                  bool *ret_more) {
        struct listing li = { .ss = ss, .f = f, .each = each, .user = user };
        int r = ledger_each_kind(ss->cfg.ledger, SESSION_KIND, f->after, list_row, &li);
        *ret_more = li.more;
        return li.more ? 0 : r;
}

/* ---- a record's deletion ---------------------------------------------------------------------------------------------------------- */

static void on_record_deleted(int r, void *user) {
        struct removal *c = user;
        c->done(r, c->user);
        free(c);
}

static int delete_record(struct sessions *ss, const char *id, struct removal *c) {
        struct ledger_row row;
        int r = ledger_get(ss->cfg.ledger, id, &row);
        if (r < 0)
                return r;
        r = strcmp(row.kind, SESSION_KIND) == 0 ? ledger_delete(ss->cfg.ledger, id, on_record_deleted, c) : -ENOENT;
        ledger_row_release(&row);
        return r;
}

int session_delete(struct sessions *ss, const char *id, void (*done)(int r, void *user), void *user) {
        struct map_node *n = map_find(&ss->map, id);
        struct session *s = n ? container_of(n, struct session, node) : NULL;
        if (s && (s->inserting || s->removals))
                return -ENOENT;
        struct removal *c = calloc(1, sizeof *c);
        if (!c)
                return -ENOMEM;
        *c = (struct removal){ .done = done, .user = user };
        if (!s) {
                int r = delete_record(ss, id, c);
                if (r < 0)
                        free(c);
                return r;
        }
        c->next = s->removals;
        s->removals = c;
        session_end(s, SESSION_FAILED, "deleted");
        session_settle(s);             /* it may have ended, and only wait for its record */
        return 0;
}

/* One session from its first moment to its last. See session.h for the states.
 *
 * The end has an order: whoever uses it is told; the sandbox goes; then the row gets its record (or is deleted); then the object
 * leaves the map, and is freed when the last use has let go. Each step is taken by session_settle, which may be called at any time. */
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/strv.h"
#include "session/session_internal.h"
#include "store/rundir.h"

/* ---- birth and death of the object -------------------------------------------------------------------------------------------- */

struct session *session_new(struct sessions *ss, struct session_spec *spec) {
        struct session *s = calloc(1, sizeof *s);
        if (!s)
                return NULL;
        *s = (struct session){ .ss = ss, .spec = *spec, .created_ms = wall_ms(), .created_at = now_ms(), .next_process = 1 };
        *spec = (struct session_spec){ 0 };
        s->lease_at = s->last_end_at = s->created_at;
        uuid_make(s->id);
        uv_timer_init(ss->cfg.loop, &s->timer);
        s->timer.data = s;
        uv_unref((uv_handle_t *)&s->timer);
        ASSERT(map_add(&ss->map, &s->node) == 0);
        ss->starting++;
        return s;
}

static void free_if_done(struct session *s) {
        if (!s->closed || s->n_uses > 0 || s->timer.data)
                return;
        finish_free(s->finish);
        image_lease_release(s->lease);
        session_spec_release(&s->spec);
        free(s->error);
        free(s->record);
        free(s->network_said);
        free(s);
}

static void on_timer_closed(uv_handle_t *h) {
        struct session *s = h->data;
        h->data = NULL;
        free_if_done(s);
}

static void logs_gone(int r, void *user) { }

static void answer_removals(struct session *s, int r) {
        while (s->removals) {
                struct removal *c = s->removals;
                s->removals = c->next;
                c->done(r, c->user);
                free(c);
        }
}

static void close_session(struct session *s) {
        struct sessions *ss = s->ss;
        const char *id = s->id;
        s->closed = true;
        map_remove(&ss->map, &s->node);
        if (s->has_logs)
                (void)rundir_remove(ss->cfg.loop, ss->cfg.runs_dirfd, &id, 1, logs_gone, NULL);
        processes_end_all(s);
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
        sessions_check_drained(ss);
}

static void set_state(struct session *s, enum session_state st) {
        bool started = s->state == SESSION_STARTING && st != SESSION_STARTING;
        s->ss->starting -= started;
        s->state = st;
        if (started)
                session_waits_end(s);
}

void session_set_finishing(struct session *s) { set_state(s, SESSION_FINISHING); }

/* ---- the end -------------------------------------------------------------------------------------------------------------------- */

static void on_deleted(int r, void *user) {
        struct session *s = user;
        s->recording = false;
        finish_recorded(s);
        log_event(LOG_INFO, "session.deleted", "session", s->id, NULL);
        struct removal *calls = TAKE_PTR(s->removals);
        close_session(s);
        while (calls) {
                struct removal *c = calls;
                calls = c->next;
                c->done(r == -ENOENT ? 0 : r, c->user);
                free(c);
        }
}

static void on_recorded(int r, void *user) {
        struct session *s = user;
        s->recording = false;
        if (r < 0)
                log_event(LOG_WARN, "session.record_failed", "session", s->id, "error", strerrordesc_np(-r), NULL);
        finish_recorded(s);
        if (s->removals)
                session_settle(s);
        else
                close_session(s);
}

static void write_end(struct session *s) {
        struct ledger *l = s->ss->cfg.ledger;
        _cleanup_buf_ struct buf b = BUF_INIT(RECORD_MAX);
        int r;
        s->recording = true;
        if (s->removals) {
                r = ledger_delete(l, s->id, on_deleted, s);
                if (r < 0)
                        on_deleted(r, s);
                return;
        }
        r = record_final(s, &b);
        if (r == 0)
                r = ledger_finish(l, s->id, session_state_to_string((int)s->state), b.data, b.len, on_recorded, s);
        if (r < 0)
                on_recorded(r, s);
}

void session_settle(struct session *s) {
        if (!s->ending || s->sandbox || s->inserting || s->recording || s->closed)
                return;
        if (s->refused || (s->quiet && !s->removals)) {
                finish_recorded(s);
                answer_removals(s, 0);
                close_session(s);
        } else
                write_end(s);
}

static void tell_uses(struct session *s) {
        struct session_use *u = s->uses;
        while (u) {
                if (u->told || !u->ended) {
                        u = u->next;
                        continue;
                }
                u->told = true;
                u->ended(u);           /* may end any use: begin again */
                u = s->uses;
        }
}

void session_end(struct session *s, enum session_state state, const char *why) {
        if (s->ending)
                return;
        s->ending = true;
        if (why && state != SESSION_FINISHED)
                s->error = strdup(why);
        set_state(s, state);           /* who waited is told: all else must be true by then */
        uv_timer_stop(&s->timer);
        metrics_add(METRIC_SESSIONS_ENDED, session_state_to_string((int)state), 1);
        log_event(LOG_INFO, "session.ended", "session", s->id, "state", session_state_to_string((int)state), "why", why ? why : "", NULL);
        tell_uses(s);
        if (s->acquiring)
                image_acquire_cancel(TAKE_PTR(s->acquiring));
        if (s->sandbox)
                sandbox_destroy(s->sandbox);
        else
                session_settle(s);
}

/* Once it is ready and recorded, whichever comes last. */
static void run_startup(struct session *s) {
        struct process_spec spec = { .shell = s->spec.startup_command, .login = true, .background = true, .passive = true };
        struct error e;
        if (s->spec.startup_command && process_start(s->ss, s->id, &spec, NULL, NULL, &s->startup, &e) < 0)
                log_event(LOG_WARN, "session.startup_failed", "session", s->id, "error", e.text, NULL);
}

void session_inserted(struct session *s, int r) {
        s->inserting = false;
        s->created = NULL;
        if (r == 0) {
                metrics_add(METRIC_SESSIONS_STARTED, NULL, 1);
                log_event(LOG_INFO, "session.started", "session", s->id, "image", s->spec.image, "tenant", s->spec.tenant, NULL);
                if (s->state == SESSION_READY)
                        run_startup(s);
                session_settle(s);
                return;
        }
        s->refused = true;
        if (s->ending)
                session_settle(s);
        else
                session_end(s, SESSION_FAILED, "it could not be recorded");
}

/* ---- the sandbox -------------------------------------------------------------------------------------------------------------- */

static void on_ready(struct sandbox *sb, void *user) {
        struct session *s = user;
        if (s->ending)
                return;
        s->ready_ms = s->last_used_ms = wall_ms();
        s->last_end_at = now_ms();
        set_state(s, SESSION_READY);
        session_rearm(s);
        if (!s->inserting)
                run_startup(s);
}

static void on_failed(struct sandbox *sb, const char *step, const struct error *e, void *user) {
        struct session *s = user;
        char why[SESSION_ERROR_MAX];
        if (strcmp(step, SANDBOX_STEP_IMAGE) == 0)
                snprintf(why, sizeof why, "image %.300s: %s", s->spec.image, e->code == -EPERM ? "not below a directory of the setting image.roots" : "no such image");
        else
                snprintf(why, sizeof why, "%.100s: %.350s", step, e->text);
        session_end(s, SESSION_FAILED, why);
}

static void on_limit(struct sandbox *sb, enum limit_kind kind, void *user) {
        struct session *s = user;
        log_event(LOG_INFO, "session.limit", "session", s->id, "limit", limit_kind_to_string((int)kind), NULL);
        if (kind == LIMIT_WALL)
                session_end(s, SESSION_EXPIRED, "the limit wall_s of its sandbox is over");
}

static void keep_what_network_said(struct session *s, struct sandbox *sb) {
        const struct egress_net *n = sandbox_egress(sb);
        _cleanup_buf_ struct buf b = BUF_INIT(NETWORK_SAID_MAX);
        struct json_writer w = JSON_WRITER(&b);
        if (!n)
                return;
        egress_net_write_json(n, &w);
        if (json_finish(&w) == 0)
                s->network_said = buf_steal(&b);
}

static void on_gone(struct sandbox *sb, const struct sandbox_end *end, void *user) {
        struct session *s = user;
        keep_what_network_said(s, sb);
        s->sandbox = NULL;
        if (!s->snapshot)                              /* whose configuration is the image's */
                image_lease_release(TAKE_PTR(s->lease));       /* a record needs no image */
        session_end(s, SESSION_FAILED, "the sandbox ended by itself");
        session_settle(s);
}

static const struct sandbox_callbacks callbacks = { .ready = on_ready, .failed = on_failed, .limit = on_limit, .gone = on_gone };

/* What it writes goes to memory while the machine could hold all of it, else to a disk image. */
static enum sandbox_upper upper_for(const struct sandbox_limits *l) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        return l->disk_bytes <= memory / 2 ? UPPER_TMPFS : UPPER_DISK;
}

static int create_sandbox(struct session *s, struct error *e) {
        struct sandbox_spec spec = {
                .id = s->id, .profile = PROFILE_SESSION, .image = s->spec.image, .upper = upper_for(&s->spec.limits), .network = s->spec.network, .allow = s->spec.allow,
                .limits = s->spec.limits, .cap_drop = s->spec.cap_drop,
        };
        if (s->lease) {
                spec.image = image_chain_image(s->lease->chain);
                spec.layers = image_chain_layers(s->lease->chain);
        }
        return sandbox_create(s->ss->cfg.spawner, &spec, &callbacks, s, &s->sandbox, e);
}

static void on_acquired(struct image_lease *lease, enum image_failure failure, const struct error *e, void *user) {
        struct session *s = user;
        char why[SESSION_ERROR_MAX];
        struct error mine;
        s->acquiring = NULL;
        s->lease = lease;
        if (!lease) {
                bool named = strncmp(e->text, "image", 5) == 0;
                snprintf(why, sizeof why, "%s%.200s%s%.280s", named ? "" : "image ", named ? "" : s->spec.image, named ? "" : ": ", e->text);
                session_end(s, SESSION_FAILED, why);
        } else if (create_sandbox(s, &mine) < 0)
                session_end(s, SESSION_FAILED, mine.text);
}

/* The host's image and directories are there; everything else is the store's to find, pull or build. */
int session_start(struct session *s, struct error *e) {
        struct image_acquire_options o = { .pull_timeout_ms = s->spec.pull_timeout_ms };
        session_rearm(s);
        if (strcmp(s->spec.image, IMAGE_HOST) == 0 || s->spec.image[0] == '/')
                return create_sandbox(s, e);
        if (!s->ss->cfg.images)
                return error_say(e, -ENOENT, "image %.300s: no such image", s->spec.image);
        return image_acquire(s->ss->cfg.images, s->spec.image, &o, on_acquired, s, &s->acquiring, e);
}

/* ---- time ----------------------------------------------------------------------------------------------------------------------- */

/* The nearest deadline, and what it is called; 0: none. */
static uint64_t deadline(const struct session *s, const char **ret_why) {
        uint64_t at = UINT64_MAX, ttl = s->created_at + s->spec.ttl_ms, lease = s->lease_at + s->spec.owner_ttl_ms, idle = s->last_end_at + s->spec.idle_ms;
        if (s->spec.ttl_ms > 0) {
                at = ttl;
                *ret_why = "its time to live is over";
        }
        if (s->spec.owner_ttl_ms > 0 && lease < at) {
                at = lease;
                *ret_why = "its owner has not been heard of for the time of its lease";
        }
        if (s->spec.idle_ms > 0 && s->n_active == 0 && s->state == SESSION_READY && idle < at) {
                at = idle;
                *ret_why = "nobody has used it for its idle time";
        }
        return at == UINT64_MAX ? 0 : at;
}

static void on_timer(uv_timer_t *t) {
        struct session *s = t->data;
        const char *why = "";
        uint64_t at = deadline(s, &why);
        if (at == 0)
                return;
        if (at > now_ms())
                session_rearm(s);
        else
                session_end(s, SESSION_EXPIRED, why);
}

void session_rearm(struct session *s) {
        const char *why;
        uint64_t at = s->ending ? 0 : deadline(s, &why), now = now_ms();
        if (at == 0)
                uv_timer_stop(&s->timer);
        else
                uv_timer_start(&s->timer, on_timer, at > now ? at - now : 0, 0);
}

/* ---- uses ----------------------------------------------------------------------------------------------------------------------- */

int session_use_begin(struct sessions *ss, const char *id, struct session_use *u, void (*ended)(struct session_use *u)) {
        struct session *s = session_find(ss, id);
        if (!s)
                return -ENOENT;
        if (s->state != SESSION_READY)
                return -EAGAIN;
        if (ss->draining)
                return -ESHUTDOWN;
        *u = (struct session_use){ .session = s, .ended = ended, .next = s->uses, .at = &s->uses };
        if (u->next)
                u->next->at = &u->next;
        s->uses = u;
        s->n_uses++;
        s->n_active++;
        s->last_used_ms = wall_ms();
        return 0;
}

/* The last that counts has let go. */
static void became_idle(struct session *s) {
        if (s->ss->draining && !s->ending) {
                s->quiet = true;
                session_end(s, SESSION_FAILED, "daemon restarted");
        } else
                session_rearm(s);
}

void session_use_passive(struct session_use *u) {
        struct session *s = u->session;
        if (u->passive)
                return;
        u->passive = true;
        if (--s->n_active == 0)
                became_idle(s);
}

void session_use_end(struct session_use *u) {
        struct session *s = u->session;
        bool passive = u->passive;
        if (!u->at)
                return;
        *u->at = u->next;
        if (u->next)
                u->next->at = u->at;
        *u = (struct session_use){ 0 };
        s->n_uses--;
        if (!passive) {
                s->n_active--;
                s->last_end_at = now_ms();
                s->last_used_ms = wall_ms();
        }
        if (s->closed)
                free_if_done(s);
        else if (!passive && s->n_active == 0)
                became_idle(s);
}

/* ---- questions and small changes ------------------------------------------------------------------------------------------------- */

/* Before the kernel has stopped anything: else a command could come between, and be told by the spawner. */
void session_pause_begins(struct session *s) { s->pausing++; }

void session_pause_ends(struct session *s, int r) {
        s->pausing--;
        s->paused = s->paused || r == 0;
}

void session_resumed(struct session *s) { s->paused = false; }

const char *session_stands_still(const struct session *s) {
        return s->paused || s->pausing > 0 ? "the session is paused" : s->snapshot ? "a snapshot of the session is being made" : NULL;
}

const char *session_id(const struct session *s) { return s->id; }
bool session_is_ending(const struct session *s) { return s->ending; }
bool session_snapshotting(const struct session *s) { return s->snapshot; }
enum session_state session_state(const struct session *s) { return s->state; }
struct sessions *session_set(struct session *s) { return s->ss; }

struct sandbox *session_sandbox(struct session *s) {
        return s->state == SESSION_READY || s->state == SESSION_FINISHING ? s->sandbox : NULL;
}

const char *session_workdir(const struct session *s) {
        const char *image = s->lease ? s->lease->config->workdir : NULL;
        return s->spec.workdir ? s->spec.workdir : image && image[0] == '/' ? image : "/";
}

void session_user(const struct session *s, uint32_t *ret_uid, uint32_t *ret_gid) {
        const struct image_user *image = s->lease && !s->spec.user_given ? s->lease->user : NULL;
        *ret_uid = image ? image->uid : s->spec.uid;
        *ret_gid = image ? image->gid : s->spec.gid;
}

char **session_environment(const struct session *s, uint32_t uid, const char *const *more) {
        const struct image_user *known = s->lease && s->lease->user->uid == uid ? s->lease->user : NULL;
        char home[sizeof known->home + 8], name[sizeof known->name + 8];
        snprintf(home, sizeof home, "HOME=%s", known && known->home[0] ? known->home : uid == 0 ? "/root" : "/tmp");
        snprintf(name, sizeof name, "USER=%s", known && known->name[0] ? known->name : uid == 0 ? "root" : "user");
        const char *const clean[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", home, name, "LANG=C.UTF-8", "TZ=UTC", NULL };
        char **env = NULL;
        int r = strv_merge_env(&env, clean);
        if (r == 0 && s->lease)
                r = strv_merge_env(&env, (const char *const *)s->lease->config->env);
        if (r == 0)
                r = strv_merge_env(&env, (const char *const *)s->spec.env);
        if (r == 0)
                r = strv_merge_env(&env, more);
        if (r < 0)
                return strv_free(env);
        strv_sort(env);
        return env;
}

/* What the row says from now on, as far as the patch goes. */
static int write_change(struct session *s, const struct session_patch *p, ledger_done done, void *user) {
        _cleanup_buf_ struct buf summary = BUF_INIT(RECORD_HEAD_MAX);
        struct session_spec spec = s->spec;
        if (p->labels_given)
                spec.labels = p->labels;
        if (p->ttl_given)
                spec.ttl_ms = p->ttl_ms;
        if (p->idle_given)
                spec.idle_ms = p->idle_ms;
        if (p->owner_ttl_given)
                spec.owner_ttl_ms = p->owner_ttl_ms;
        int r = record_summary(&spec, &summary);
        return r < 0 ? r : ledger_set_body(s->ss->cfg.ledger, s->id, summary.data, summary.len, done, user);
}

int session_change(struct sessions *ss, const char *id, struct session_patch *p, void (*done)(int r, void *user), void *user) {
        struct session *s = session_find(ss, id);
        int r = s ? write_change(s, p, done, user) : -ENOENT;
        if (r < 0)
                return r;
        if (p->labels_given) {
                strv_free(s->spec.labels);
                s->spec.labels = TAKE_PTR(p->labels);
        }
        if (p->ttl_given)
                s->spec.ttl_ms = p->ttl_ms;
        if (p->idle_given)
                s->spec.idle_ms = p->idle_ms;
        if (p->owner_ttl_given) {
                s->spec.owner_ttl_ms = p->owner_ttl_ms;
                s->lease_at = now_ms();
        }
        session_rearm(s);
        return 0;
}

int session_heartbeat(struct sessions *ss, const char *id) {
        struct session *s = session_find(ss, id);
        if (!s)
                return -ENOENT;
        s->lease_at = now_ms();
        return 0;
}

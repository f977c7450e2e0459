/* One object per mirror with work to do: a queue of tickets and at most one sandbox. An object without tickets is freed; what
 * must be remembered (was it ever reached with credentials?) is a file. Names below $BRIG_HOME/mirrors, which only the
 * spawner can read: the SHA-256 of the address for the mirror, and of "incoming" and the address for its quarantine. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/strv.h"
#include "sandbox/layers.h"
#include "store/git_env.h"
#include "store/mirror_private.h"
#include "store/mirror_sizes.h"

static const char *mirror_key(const struct map_node *n) {
        return container_of(n, struct mirror, node)->id;
}

static void hash_of(const char *what, const char *canonical, char ret[static 65]) {
        struct sha256 h;
        ASSERT(sha256_init(&h) == 0);
        sha256_update_str(&h, what);
        sha256_update_str(&h, canonical);
        sha256_finish(&h, ret);
}

void mirror_id(const struct repo_url *url, char ret[static 65]) {
        hash_of("mirror", url->canonical, ret);
}

/* ---- the store ---- */

int mirror_store_open(struct spawner *sp, const struct mirror_store_config *cfg, struct mirror_store **ret, struct error *e) {
        struct mirror_store *ms = calloc(1, sizeof *ms);
        if (!ms)
                return error_set(e, -ENOMEM, "mirrors");
        ms->spawner = sp;
        ms->state_fd = -1;
        ms->max_bytes = cfg->max_bytes;
        ms->home_fd = open(cfg->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ms->env = git_env(cfg->fetch_env);
        ms->ssh = cfg->ssh;
        if (ms->env && strv_push(&ms->env, mirror_ssh_command(&cfg->ssh)) < 0)
                ms->env = strv_free(ms->env);
        int r = ms->home_fd < 0 ? -errno : ms->env ? map_init(&ms->mirrors, mirror_key) : -ENOMEM;
        if (r == 0 && mkdirat(ms->home_fd, "trees", 0750) < 0 && errno != EEXIST)
                r = -errno;
        if (r == 0) {
                ms->state_fd = openat(ms->home_fd, "trees", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                r = ms->state_fd < 0 ? -errno : 0;
        }
        if (r < 0) {
                fd_close(ms->home_fd);
                strv_free(ms->env);
                free(ms);
                return error_set(e, r, "open the mirrors' state below %s", cfg->home);
        }
        *ret = ms;
        return 0;
}

static void store_maybe_free(struct mirror_store *ms) {
        if (!ms->closing || ms->mirrors.n > 0)
                return;
        void (*closed)(void *) = ms->closed;
        void *user = ms->closed_user;
        map_release(&ms->mirrors);
        fd_close(ms->home_fd);
        fd_close(ms->state_fd);
        strv_free(ms->env);
        free(ms);
        closed(user);
}

static void private_name(const char *id, char ret[static 80]) {
        snprintf(ret, 80, "%s.private", id);
}

bool mirror_is_private(struct mirror_store *ms, const struct repo_url *url) {
        char id[65], name[80];
        mirror_id(url, id);
        private_name(id, name);
        return repo_url_has_credentials(url) || faccessat(ms->state_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int mirror_mark_private(struct mirror *m) {
        char name[80];
        private_name(m->id, name);
        if (faccessat(m->store->state_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        return fs_write_atomic(m->store->state_fd, name, "", 0, 0640);
}

/* ---- tickets ---- */

static void ticket_free(struct mirror_ticket *t) {
        repo_url_release(&t->url);
        free(t->commit);
        fd_close(t->source_fd);
        free(t);
}

static bool same_secret(const char *a, const char *b) {
        return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static bool same_question(const struct mirror_ticket *a, const struct mirror_ticket *b) {
        return strcmp(a->commit, b->commit) == 0 && same_secret(a->url.username, b->url.username) && same_secret(a->url.password, b->url.password);
}

static void mirror_next(struct mirror *m);

static struct mirror_ticket *take_covered(struct mirror *m) {
        for (struct mirror_ticket **at = &m->queue; *at; at = &(*at)->next)
                if ((*at)->covered) {
                        struct mirror_ticket *t = *at;
                        *at = t->next;
                        return t;
                }
        return NULL;
}

bool mirror_is_wanted(const struct mirror *m) {
        for (const struct mirror_ticket *t = m->queue; t; t = t->next)
                if (t->covered && t->done)
                        return true;
        return false;
}

static void cleaned(int r, const struct error *e, void *user) {
        struct mirror *m = user;
        if (r < 0)
                log_event(LOG_WARN, "mirror.quarantine_not_removed", "mirror", m->id, "error", e ? e->text : "", NULL);
        m->state = MIRROR_IDLE;
        mirror_next(m);
}

/* Answers everybody whom the run covers, clears the quarantine, and goes on with the queue. Callbacks may ask again or cancel:
 * what they ask waits until all are answered, what they cancel is freed here. */
void mirror_finish(struct mirror *m, enum mirror_end end, const struct error *e) {
        struct mirror_ticket *t, *ready = NULL, **last = &ready;
        while ((t = take_covered(m))) {
                t->next = NULL;
                *last = t;
                last = &t->next;
        }
        m->lead = NULL;
        m->state = MIRROR_CLEANING;
        m->finishing = true;
        while ((t = ready)) {
                ready = t->next;
                if (t->done)
                        t->done(end, end == MIRROR_OK ? m->commit : NULL, e, t->user);
                ticket_free(t);
        }
        m->finishing = m->unwanted = false;
        if (m->dirty && mirrors_remove(m->store->spawner, m->incoming, cleaned, m) == 0) {
                m->dirty = false;
                return;
        }
        m->state = MIRROR_IDLE;
        mirror_next(m);
}

void mirror_cancel(struct mirror_ticket *t) {
        struct mirror *m = t->mirror;
        t->done = NULL;
        if (t->covered) {                        /* freed when the run ends */
                if (!m->finishing && !mirror_is_wanted(m)) {
                        m->unwanted = true;
                        if (m->box)
                                box_cancel(m->box);
                }
                return;
        }
        for (struct mirror_ticket **at = &m->queue; *at; at = &(*at)->next)
                if (*at == t) {
                        *at = t->next;
                        ticket_free(t);
                        return;
                }
}

static void trim(struct mirror_store *ms);

static void mirror_free(struct mirror *m) {
        struct mirror_store *ms = m->store;
        map_remove(&ms->mirrors, &m->node);
        free(m);
        trim(ms);
        store_maybe_free(ms);
}

/* With the words of the first ticket; all that ask the same are covered. */
static int run_start(struct mirror *m) {
        m->lead = m->queue;
        for (struct mirror_ticket *t = m->queue; t; t = t->next)
                t->covered = same_question(t, m->lead);
        return mirror_run(m);
}

/* Starts the next run, or frees a mirror without work. */
static void mirror_next(struct mirror *m) {
        if (m->state != MIRROR_IDLE || m->finishing)
                return;
        if (!m->queue) {
                if (m->holds == 0)
                        mirror_free(m);
                return;
        }
        int r = run_start(m);
        if (r < 0) {
                struct error e;
                error_set(&e, r, "make a mirror");
                mirror_finish(m, MIRROR_FAILED, &e);
        }
}

static struct mirror *mirror_new(struct mirror_store *ms, const char *id) {
        struct mirror *m = calloc(1, sizeof *m);
        if (!m)
                return NULL;
        m->store = ms;
        memcpy(m->id, id, sizeof m->id);
        ASSERT(map_add(&ms->mirrors, &m->node) == 0);
        return m;
}

static struct mirror *mirror_get(struct mirror_store *ms, const struct repo_url *url) {
        char id[65];
        mirror_id(url, id);
        struct map_node *n = map_find(&ms->mirrors, id);
        struct mirror *m = n ? container_of(n, struct mirror, node) : mirror_new(ms, id);
        if (m)
                hash_of("incoming", url->canonical, m->incoming);
        return m;
}

/* ---- the bound ---- */

struct mirror *mirror_hold(struct mirror_store *ms, const struct repo_url *url) {
        struct mirror *m = mirror_get(ms, url);
        if (m)
                m->holds++;
        return m;
}

void mirror_drop(struct mirror *m) {
        if (!m)
                return;
        m->holds--;
        mirror_next(m);
}

/* What is in the map has work to do, is held, or is being removed. */
static bool is_busy(const char *id, void *user) { return map_find(&((struct mirror_store *)user)->mirrors, id) != NULL; }

static void evicted(int r, const struct error *e, void *user) {
        struct mirror *m = user;
        log_event(r < 0 ? LOG_WARN : LOG_INFO, r < 0 ? "mirror.not_removed" : "mirror.removed", "mirror", m->id, "error", r < 0 && e ? e->text : "", NULL);
        mirror_size_forget(m->store->state_fd, m->id);
        m->state = MIRROR_IDLE;
        mirror_next(m);                          /* somebody may have asked for it meanwhile; if not, the next one goes */
}

/* Whenever a mirror comes to rest: the least recently used go, one at a time, until the rest fits. */
static void trim(struct mirror_store *ms) {
        char id[65];
        uint64_t total;
        if (ms->closing || ms->max_bytes == 0 || mirror_size_oldest(ms->state_fd, is_busy, ms, id, &total) != 1 || total <= ms->max_bytes)
                return;
        struct mirror *m = mirror_new(ms, id);
        if (!m)
                return;
        m->state = MIRROR_REMOVING;
        if (mirrors_remove(ms->spawner, id, evicted, m) < 0) {
                map_remove(&ms->mirrors, &m->node);
                free(m);
        }
}

static char *copy(const char *s, int *r) {
        char *c = s ? strdup(s) : NULL;
        if (s && !c)
                *r = -ENOMEM;
        return c;
}

static int ticket_fill(struct mirror_ticket *t, const struct repo_url *url, int source_fd, const char *commit) {
        int r = 0;
        t->source_fd = -1;
        t->url = (struct repo_url){ .kind = url->kind, .canonical = copy(url->canonical, &r), .origin = copy(url->origin, &r),
                                    .path = copy(url->path, &r), .username = copy(url->username, &r), .password = copy(url->password, &r) };
        t->commit = copy(commit, &r);
        if (r == 0 && source_fd >= 0 && (t->source_fd = fcntl(source_fd, F_DUPFD_CLOEXEC, 3)) < 0)
                r = -errno;
        if (r == 0)
                r = repo_commit_check(t->commit, &t->kind, NULL);
        for (char *c = t->commit; r == 0 && t->kind == COMMIT_HASH && *c; c++)
                if (*c >= 'A' && *c <= 'F')
                        *c = (char)(*c - 'A' + 'a');
        return r;
}

int mirror_ensure(struct mirror_store *ms, const struct repo_url *url, int source_fd, const char *commit, mirror_done done, void *user,
                  struct mirror_ticket **ret, struct error *e) {
        struct mirror_ticket *t = calloc(1, sizeof *t), **last;
        int r = !t ? -ENOMEM : ms->closing ? -ESHUTDOWN : ticket_fill(t, url, source_fd, commit);
        struct mirror *m = r < 0 ? NULL : mirror_get(ms, url);
        if (!m) {
                if (t)
                        ticket_free(t);
                return error_set(e, r < 0 ? r : -ENOMEM, "ask for a commit");
        }
        t->mirror = m;
        t->done = done;
        t->user = user;
        /* A hash means the same now as when the run began; a name may not. */
        t->covered = m->lead && !m->unwanted && t->kind == COMMIT_HASH && same_question(t, m->lead);
        for (last = &m->queue; *last; last = &(*last)->next)
                ;
        *last = t;
        if (m->state == MIRROR_IDLE && !m->finishing)
                r = run_start(m);
        if (r < 0) {                             /* it was the only one, else the mirror would not be idle */
                m->queue = NULL;
                ticket_free(t);
                mirror_next(m);
                return error_set(e, r, "ask for a commit");
        }
        *ret = t;
        return 0;
}

static void stop(struct map_node *n, void *user) {
        struct mirror *m = container_of(n, struct mirror, node);
        struct mirror_ticket **at = &m->queue;
        while (*at) {
                struct mirror_ticket *t = *at;
                t->done = NULL;
                if (t->covered)
                        at = &t->next;
                else {
                        *at = t->next;
                        ticket_free(t);
                }
        }
        if (m->box)
                box_cancel(m->box);
}

void mirror_store_close(struct mirror_store *ms, void (*done)(void *user), void *user) {
        ms->closing = true;
        ms->closed = done;
        ms->closed_user = user;
        map_each(&ms->mirrors, stop, NULL);
        store_maybe_free(ms);
}

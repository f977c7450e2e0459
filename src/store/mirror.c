/* One object per mirror with work to do: a queue of tickets and at most one sandbox. An object without tickets is freed; what
 * must be remembered (was it ever reached with credentials?) is a file. Names below $BRIG_HOME/mirrors, which only the
 * spawner can read: the SHA-256 of the address for the mirror, and of "incoming" and the address for its quarantine. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "base/strv.h"
#include "sandbox/layers.h"
#include "store/box.h"
#include "store/git_env.h"
#include "store/mirror.h"
#include "store/mirror_sizes.h"

#define MIRROR_MEMORY (2ull << 30)
#define DISK_RESERVE (64ull << 20)      /* less than this free after a failure: the disk was the reason */

struct mirror_ticket {
        struct mirror_ticket *next;
        struct mirror *mirror;
        struct repo_url url;
        char *commit;
        enum commit_kind kind;
        int source_fd;
        bool covered;              /* the present run answers it */
        mirror_done done;
        void *user;
};

enum mirror_state { MIRROR_IDLE, MIRROR_MAKING, MIRROR_FETCHING, MIRROR_JOINING, MIRROR_CLEANING, MIRROR_REMOVING };

struct mirror {
        struct map_node node;
        struct mirror_store *store;
        char id[65], incoming[65];
        enum mirror_state state;
        struct mirror_ticket *queue, *lead;    /* lead: whose words the run uses; stays in the queue as long as the run */
        struct box *box;
        unsigned holds;            /* checkouts that read it */
        bool dirty;                /* something may lie in the quarantine */
        bool finishing;            /* callbacks are being run */
        bool unwanted;             /* the run was cancelled: nobody joins it any more */
        char commit[65];           /* what the fetch found */
};

struct mirror_store {
        struct spawner *spawner;
        struct map mirrors;
        int home_fd, state_fd;
        uint64_t max_bytes;
        char **env;
        struct fetch_ssh ssh;
        bool closing;
        void (*closed)(void *user);
        void *closed_user;
};

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

#define SSH "GIT_SSH_COMMAND=ssh -F none -o BatchMode=yes -o GlobalKnownHostsFile=/dev/null "
#define KNOWN "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/run/brig/ssh_known_hosts"

static const char *ssh_command(const struct fetch_ssh *ssh) {
        if (ssh->key_fd > 0)
                return SSH KNOWN " -o IdentitiesOnly=yes -i /run/brig/ssh_key";
        return ssh->known_hosts_fd > 0 ? SSH KNOWN : SSH "-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/tmp/known_hosts";
}

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
        if (ms->env && strv_push(&ms->env, ssh_command(&cfg->ssh)) < 0)
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

static int mark_private(struct mirror *m) {
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

static bool wanted(const struct mirror *m) {
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
static void finish(struct mirror *m, enum mirror_end end, const struct error *e) {
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
                if (!m->finishing && !wanted(m)) {
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

/* ---- runs ---- */

static enum mirror_end disk_or(struct mirror *m, enum mirror_end end) {
        struct statvfs st;
        if (fstatvfs(m->store->home_fd, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < DISK_RESERVE)
                return MIRROR_DISK_FULL;
        return end;
}

static void finish_text(struct mirror *m, enum mirror_end end, const char *what, const char *err) {
        struct error e;
        char words[256];
        git_last_words(err, words, sizeof words);
        error_say(&e, end == MIRROR_DISK_FULL ? -ENOSPC : -EIO, words[0] ? "%s: %s" : "%s", what, words);
        finish(m, end, &e);
}

/* What a script's end means; MIRROR_OK for exit 0. Words for the rest. */
static enum mirror_end judge(struct mirror *m, const struct box_result *r, const char **what) {
        int code = r->end == BOX_EXITED && WIFEXITED(r->status) ? WEXITSTATUS(r->status) : -1;
        *what = "internal error while fetching";
        if (code == 0)
                return MIRROR_OK;
        if (code == SCRIPT_UNREACHABLE) {
                *what = m->lead->url.kind == REPO_LOCAL ? "the directory is not a repository whose files everybody may read" : "the repository cannot be reached";
                return disk_or(m, MIRROR_UNREACHABLE);
        }
        if (code == SCRIPT_NO_COMMIT) {
                *what = "commit not found";
                return disk_or(m, MIRROR_NO_COMMIT);
        }
        if (code == SCRIPT_UNSOUND) {
                *what = "the repository holds objects that are not sound";
                return disk_or(m, MIRROR_UNREACHABLE);
        }
        if (r->end == BOX_TIMED_OUT) {
                *what = "the repository did not answer in time";
                return MIRROR_UNREACHABLE;
        }
        if (r->end == BOX_LIMIT)
                *what = "fetching ran into a limit";
        return disk_or(m, MIRROR_FAILED);
}

/* "size KIB", the join's last word. */
static void note_size(struct mirror *m, const char *out) {
        if (strncmp(out, "size ", 5) != 0)
                return;
        int r = mirror_size_put(m->store->state_fd, m->id, strtoull(out + 5, NULL, 10));
        if (r < 0)
                log_event(LOG_WARN, "mirror.size_not_kept", "mirror", m->id, "error", strerrordesc_np(-r), NULL);
}

static void joined(const struct box_result *r, void *user) {
        struct mirror *m = user;
        const char *what;
        m->box = NULL;
        enum mirror_end end = judge(m, r, &what);
        if (r->end == BOX_FAILED)
                finish(m, disk_or(m, MIRROR_FAILED), &r->error);
        else if (end == MIRROR_OK) {
                note_size(m, r->out);
                finish(m, MIRROR_OK, NULL);
        } else
                finish_text(m, end, what, r->err);
}

#define MORE_FILES_MAX 2

static int start_box(struct mirror *m, enum git_script script, const char *const *argv, enum sandbox_network network,
                     const struct sandbox_mount *mounts, size_t n_mounts, const struct sandbox_file *more, size_t n_more, const char *const *env, box_done done,
                     struct error *e) {
        struct sandbox_file files[2 + MORE_FILES_MAX];
        char id[32];
        int r = git_files(script, files, e);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_more; i++)
                files[2 + i] = more[i];
        snprintf(id, sizeof id, "mirror-%.16s", m->id);
        struct sandbox_spec s = { .id = id, .profile = PROFILE_FETCH, .image = IMAGE_HOST, .upper = UPPER_TMPFS, .network = network,
                                  .mounts = mounts, .n_mounts = n_mounts, .files = files, .n_files = 2 + n_more };
        sandbox_limits_default(&s.limits);
        s.limits.memory_bytes = MIRROR_MEMORY;
        s.limits.disk_bytes = 256ull << 20;
        s.limits.wall_ms = MIRROR_FETCH_TIMEOUT_MS + 60000;
        struct box_spec b = { .sandbox = &s, .argv = argv, .env = env, .cwd = "/",
                              .timeout_ms = script == SCRIPT_JOIN ? MIRROR_JOIN_TIMEOUT_MS : MIRROR_FETCH_TIMEOUT_MS };
        return box_start(m->store->spawner, &b, done, m, &m->box, e);
}

static void start_join(struct mirror *m) {
        const struct sandbox_mount mounts[] = {
                { .class = MOUNT_MIRROR, .id = m->id, .fd = -1, .target = "/mirror", .writable = true },
                { .class = MOUNT_MIRROR, .id = m->incoming, .fd = -1, .target = "/incoming" },
        };
        const char *const argv[] = { "/bin/sh", "/run/brig/script", m->commit, NULL };
        struct error e = { 0 };
        char **env = git_env(NULL);
        m->state = MIRROR_JOINING;
        int r = env ? start_box(m, SCRIPT_JOIN, argv, NETWORK_NONE, mounts, 2, NULL, 0, (const char *const *)env, joined, &e)
                    : error_set(&e, -ENOMEM, "start a join");
        strv_free(env);
        if (r < 0)
                finish(m, disk_or(m, MIRROR_FAILED), &e);
}

/* "present HASH" or "new HASH": nothing else is believed. */
static bool parse_found(struct mirror *m, const char *out, bool *ret_new) {
        *ret_new = strncmp(out, "new ", 4) == 0;
        if (!*ret_new && strncmp(out, "present ", 8) != 0)
                return false;
        const char *hash = strchr(out, ' ') + 1;
        size_t n = strspn(hash, "0123456789abcdef");
        if ((n != 40 && n != 64) || strcmp(hash + n, "\n") != 0)
                return false;
        memcpy(m->commit, hash, n);
        m->commit[n] = 0;
        return true;
}

static void fetched(const struct box_result *r, void *user) {
        struct mirror *m = user;
        const char *what;
        bool is_new = false;
        m->box = NULL;
        enum mirror_end end = judge(m, r, &what);
        if (r->end == BOX_FAILED)
                finish(m, disk_or(m, MIRROR_FAILED), &r->error);
        else if (end != MIRROR_OK)
                finish_text(m, end, what, r->err);
        else if (!parse_found(m, r->out, &is_new))
                finish_text(m, MIRROR_FAILED, "the fetch ended without an answer", "");
        else if (is_new)
                start_join(m);
        else {
                m->dirty = false;
                mirror_size_used(m->store->state_fd, m->id);
                finish(m, MIRROR_OK, NULL);
        }
}

/* Credentials go to git through its own helper protocol, from a file that only this sandbox has, and only for the address's
 * own origin: never on a command line, never in the mirror's configuration, never to where a server redirects. */
static int credential_file(const struct mirror_ticket *t, struct sandbox_file *ret, char ***env, struct error *e) {
        char text[2 * REPO_URL_MAX + 64], key[REPO_URL_MAX + 64];
        int n = snprintf(text, sizeof text, "username=%s\npassword=%s\n", t->url.username ? t->url.username : "", t->url.password ? t->url.password : "");
        int fd = fs_memfd("credential", text, (size_t)n);
        explicit_bzero(text, sizeof text);
        snprintf(key, sizeof key, "GIT_CONFIG_KEY_0=credential.%s.helper", t->url.origin);
        int r = fd < 0 ? fd : strv_push(env, "GIT_CONFIG_COUNT=1");
        r = r ? r : strv_push(env, key);
        r = r ? r : strv_push(env, "GIT_CONFIG_VALUE_0=!f() { cat /run/brig/credential; }; f");
        if (r < 0) {
                fd_close(fd);
                return error_set(e, r, "pass the credentials");
        }
        *ret = (struct sandbox_file){ .name = "credential", .fd = fd, .mode = 0444 };
        return 0;
}

static size_t ssh_files(const struct fetch_ssh *ssh, struct sandbox_file ret[static MORE_FILES_MAX]) {
        size_t n = 0;
        if (ssh->key_fd > 0)
                ret[n++] = (struct sandbox_file){ .name = "ssh_key", .fd = ssh->key_fd, .mode = 0444 };
        if (ssh->known_hosts_fd > 0)
                ret[n++] = (struct sandbox_file){ .name = "ssh_known_hosts", .fd = ssh->known_hosts_fd, .mode = 0444 };
        return n;
}

static int start_fetch(struct mirror *m, struct error *e) {
        struct mirror_ticket *t = m->lead;
        bool local = t->url.kind == REPO_LOCAL, secret = repo_url_has_credentials(&t->url);
        const char *const argv[] = { "/bin/sh", "/run/brig/script", t->kind == COMMIT_HASH ? "hash" : "name", t->commit,
                                     local ? "file:///source" : t->url.canonical, mirror_is_private(m->store, &t->url) ? "yes" : "no", NULL };
        const struct sandbox_mount mounts[] = {
                { .class = MOUNT_MIRROR, .id = m->id, .fd = -1, .target = "/mirror" },
                { .class = MOUNT_MIRROR, .id = m->incoming, .fd = -1, .target = "/incoming", .writable = true },
                { .class = MOUNT_SOURCE, .fd = t->source_fd, .target = "/source" },
        };
        struct sandbox_file credential = { .fd = -1 }, more[MORE_FILES_MAX] = { 0 };
        size_t n_more = 0;
        char **env = NULL;
        int r = 0;
        for (size_t i = 0; r == 0 && m->store->env[i]; i++)
                r = strv_push(&env, m->store->env[i]);
        r = r ? error_set(e, r, "start a fetch") : secret ? credential_file(t, &credential, &env, e) : 0;
        if (secret)
                more[n_more++] = credential;
        if (t->url.kind == REPO_SSH)
                n_more = ssh_files(&m->store->ssh, more);
        if (r == 0)
                r = start_box(m, SCRIPT_FETCH, argv, local ? NETWORK_NONE : NETWORK_HOST, mounts, local ? 3 : 2, more, n_more,
                              (const char *const *)env, fetched, e);
        strv_free(env);
        fd_close(credential.fd);
        return r;
}

static void incoming_made(int r, const struct error *e, void *user) {
        struct mirror *m = user;
        struct error mine = { 0 };
        if (r == 0 && wanted(m)) {
                m->state = MIRROR_FETCHING;
                m->dirty = true;
                r = repo_url_has_credentials(&m->lead->url) ? mark_private(m) : 0;
                r = r < 0 ? error_set(&mine, r, "remember a private mirror") : start_fetch(m, &mine);
                if (r == 0)
                        return;
                e = &mine;
        }
        if (r == 0) {
                error_say(&mine, -ECANCELED, "cancelled");
                e = &mine;
        }
        finish(m, disk_or(m, MIRROR_FAILED), e);
}

static void mirror_made(int r, const struct error *e, void *user) {
        struct mirror *m = user;
        struct error mine = { 0 };
        if (r == 0) {
                r = mirrors_make(m->store->spawner, m->incoming, incoming_made, m);
                if (r == 0)
                        return;
                error_set(&mine, r, "make a quarantine");
                e = &mine;
        }
        finish(m, disk_or(m, MIRROR_FAILED), e);
}

static void trim(struct mirror_store *ms);

static void mirror_free(struct mirror *m) {
        struct mirror_store *ms = m->store;
        map_remove(&ms->mirrors, &m->node);
        free(m);
        trim(ms);
        store_maybe_free(ms);
}

static int run_start(struct mirror *m) {
        m->lead = m->queue;
        for (struct mirror_ticket *t = m->queue; t; t = t->next)
                t->covered = same_question(t, m->lead);
        m->state = MIRROR_MAKING;
        int r = mirrors_make(m->store->spawner, m->id, mirror_made, m);
        if (r < 0)
                m->state = MIRROR_IDLE;
        return r;
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
                finish(m, MIRROR_FAILED, &e);
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

/* What `brig serve` is without HTTP: the order in which things start, who is told when something dies, and the way down.
 *
 *     lock of the home ─> spawner (root, before any thread) ─> privileges dropped ─> log ─> ledger (its thread) ─> trees ─> tasks
 *
 * Down: tasks drained ─> trees closed ─> spawner told to remove everything and exit ─> ledger closed ─> lock released. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/strv.h"
#include "engine/engine.h"
#include "engine/makers.h"
#include "engine/privilege.h"
#include "engine/settings.h"
#include "engine/tasks.h"
#include "rlm/rlm.h"
#include "score/request.h"
#include "session/session.h"
#include "store/home.h"
#include "store/image_store.h"

#define LAYER_CACHE_MAX (200ull << 30)
#define MIRROR_CACHE_MAX (50ull << 30)
#define KEPT_FILE_MAX (1u << 20)
#define LOG_FILE "task_executor.log"

struct engine {
        uv_loop_t *loop;
        const struct engine_config *cfg;
        struct home home;
        struct spawner *spawner;
        struct egress *egress;
        struct ledger *ledger;
        struct tree_store *trees;
        struct image_store *images;
        struct makers *makers;
        struct tasks *tasks;
        struct sessions *sessions;
        struct rlm *rlm;
        struct score_env score;
        struct score_defaults defaults;
        int runs_dirfd, local_repo_fd, registry_fd;
        unsigned draining_left;        /* of tasks and sessions */
        struct fetch_ssh ssh;                  /* memfds */
        bool draining, fatal_told;
        void (*fatal)(const char *why, void *user);
        void *fatal_user;
        void (*drained)(void *user);
        void *drained_user;
};

/* ---- directories ---------------------------------------------------------------------------------------------------------- */

/* Makes path, and gives it to the daemon if it was made here; a directory of the operator's own keeps its owner. */
static int make_dir(const char *path, uid_t uid, gid_t gid, mode_t mode, struct error *e) {
        if (mkdir(path, mode) < 0)
                return errno == EEXIST ? 0 : error_set(e, -errno, "make %s", path);
        return lchown(path, uid, gid) < 0 ? error_set(e, -errno, "give %s to user %u", path, (unsigned)uid) : 0;
}

static void runs_path(const struct engine *en, char *ret, size_t n) {
        if (en->cfg->task_base_dir)
                snprintf(ret, n, "%s/runs-%s", en->cfg->task_base_dir, en->home.instance);
        else
                snprintf(ret, n, "%s/runs", en->cfg->home);
}

static void log_path(const struct engine *en, char *ret, size_t n) {
        snprintf(ret, n, "%s%s/" LOG_FILE, en->cfg->task_base_dir ? en->cfg->task_base_dir : en->cfg->home, en->cfg->task_base_dir ? "" : "/log");
}

/* As root: the directories outside the home's own layout, and a log file that the daemon may append to. */
static int make_places(struct engine *en, uid_t uid, gid_t gid, struct error *e) {
        char path[4096];
        int r = 0;
        if (en->cfg->task_base_dir) {
                r = access(en->cfg->task_base_dir, F_OK) < 0 ? fs_mkdir_p(en->cfg->task_base_dir, 0755) : -EEXIST;
                if (r == 0 && lchown(en->cfg->task_base_dir, uid, gid) < 0)    /* made here: the log is turned over in it */
                        r = -errno;
                if (r < 0 && r != -EEXIST)
                        return error_set(e, r, "make %s", en->cfg->task_base_dir);
                r = 0;
        } else {
                snprintf(path, sizeof path, "%s/log", en->cfg->home);
                r = make_dir(path, uid, gid, 0755, e);
        }
        if (r < 0)
                return r;
        runs_path(en, path, sizeof path);
        r = make_dir(path, uid, gid, 0700, e);
        if (r < 0)
                return r;
        log_path(en, path, sizeof path);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (fd < 0 || fchown(fd, uid, gid) < 0)
                return error_set(e, -errno, "open %s", path);
        return 0;
}

/* ---- starting --------------------------------------------------------------------------------------------------------------- */

static void spawner_lost(void *user);

static int split_commas(const char *text, char ***ret) {
        int r = 0;
        for (const char *at = text; at && *at && r == 0;) {
                size_t n = strcspn(at, ",");
                r = strv_push_n(ret, at, n);
                at += n + (at[n] == ',');
        }
        return r;
}

/* What only root may read of a file of the operator's, in memory. */
static int keep_file(const char *path, int *ret_fd, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(KEPT_FILE_MAX);
        int r = fs_read_file(AT_FDCWD, path, &b);
        if (r < 0)
                return error_set(e, r, "read %s", path);
        int fd = fs_memfd("kept", b.data, b.len);
        explicit_bzero(b.data, b.len);
        if (fd < 0)
                return error_set(e, fd, "keep %s", path);
        *ret_fd = fd;
        return 0;
}

/* As root. Everything that needs a privilege, ever, is the spawner's after this. */
static int start_privileged(struct engine *en, struct error *e) {
        const struct engine_config *cfg = en->cfg;
        uid_t uid;
        gid_t gid;
        if (geteuid() != 0)
                return error_say(e, -EPERM, "must be started as root: sandboxes are made by a small privileged process; the daemon itself gives every privilege up");
        privilege_user(cfg->user, (uid_t)cfg->uid, (gid_t)cfg->gid, &uid, &gid);
        int r = home_open(cfg->home, &en->home, e);
        if (r == 0)
                r = home_layout(&en->home, uid, gid, e);
        if (r == 0)
                r = make_places(en, uid, gid, e);
        if (r < 0)
                return r;
        _cleanup_strv_ char **allow = NULL;
        r = split_commas(cfg->network_allow, &allow);
        if (r < 0)
                return error_set(e, r, "read the setting network.allow");
        struct spawner_config sc = {
                .home = cfg->home, .image_roots = (const char *const *)cfg->image_roots, .id_base = (uint32_t)cfg->id_base,
                .daemon_uid = uid, .daemon_gid = gid, .instance = en->home.instance, .network_allow = (const char *const *)allow,
        };
        if (cfg->repo_ssh_key)
                r = keep_file(cfg->repo_ssh_key, &en->ssh.key_fd, e);
        if (r == 0 && cfg->repo_ssh_known_hosts)
                r = keep_file(cfg->repo_ssh_known_hosts, &en->ssh.known_hosts_fd, e);
        if (r == 0 && cfg->registry_credentials)
                r = keep_file(cfg->registry_credentials, &en->registry_fd, e);
        if (r < 0)
                return r;
        if (cfg->local_repo) {
                en->local_repo_fd = open(cfg->local_repo, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (en->local_repo_fd < 0)
                        return error_set(e, -errno, "open %s", cfg->local_repo);
        }
        r = spawner_start(en->loop, &sc, &en->spawner, e);
        if (r < 0)
                return r;
        spawner_on_lost(en->spawner, spawner_lost, en);
        r = privilege_drop(uid, gid, e);
        if (r == 0 && access(cfg->home, R_OK | W_OK | X_OK) < 0)
                return error_say(e, -EACCES, "user %u, which the daemon runs as, cannot reach %s: a directory above it is closed to it", (unsigned)uid, cfg->home);
        return r;
}

static int push_variable(char ***list, const char *name, const char *value) {
        char *entry;
        return asprintf(&entry, "%s=%s", name, value) < 0 ? -ENOMEM : strv_push_take(list, entry);
}

/* What git is told about the operator's proxy. */
static int fetch_env(const struct engine_config *cfg, char ***ret) {
        int r = strv_ensure(ret);
        if (r == 0 && cfg->repo_proxy)
                r = push_variable(ret, "http_proxy", cfg->repo_proxy);
        if (r == 0 && cfg->repo_proxy)
                r = push_variable(ret, "https_proxy", cfg->repo_proxy);
        if (r == 0 && cfg->repo_no_proxy)
                r = push_variable(ret, "no_proxy", cfg->repo_no_proxy);
        return r;
}

/* Unprivileged: it only connects. */
static int open_egress(struct engine *en, struct error *e) {
        const struct engine_config *cfg = en->cfg;
        _cleanup_strv_ char **allow = NULL, **deny = NULL;
        int r = split_commas(cfg->network_allow, &allow);
        if (r == 0)
                r = split_commas(cfg->network_deny, &deny);
        if (r < 0)
                return error_set(e, r, "read the settings of the network");
        const struct egress_config c = {
                .allow = (const char *const *)allow, .deny = (const char *const *)deny, .resolver = cfg->network_resolver,
        };
        r = egress_open(en->loop, &c, &en->egress, e);
        if (r == 0)
                spawner_set_egress(en->spawner, en->egress);
        return r;
}

void engine_set_own_port(struct engine *en, uint16_t port) { egress_set_own_port(en->egress, port); }

static int open_stores(struct engine *en, struct error *e) {
        const struct engine_config *cfg = en->cfg;
        struct ledger_config lc = { .home = cfg->home, .low_water_bytes = cfg->low_water_bytes, .ballast_bytes = cfg->ballast_bytes };
        _cleanup_strv_ char **git = NULL;
        int r = ledger_open(en->loop, &lc, &en->ledger, e);
        if (r < 0)
                return r;
        r = fetch_env(cfg, &git);
        if (r < 0)
                return error_set(e, r, "read the setting repo.proxy");
        struct tree_store_config tc = {
                .home = cfg->home, .max_bytes = cfg->layer_cache_bytes, .mirror_max_bytes = cfg->mirror_cache_bytes, .repo_roots = (const char *const *)cfg->repo_roots,
                .any_readable_path = !cfg->repo_roots && settings_listens_on_loopback(cfg),
                .local_repo = cfg->local_repo, .local_repo_fd = en->local_repo_fd, .fetch_env = (const char *const *)git, .ssh = en->ssh,
        };
        struct statvfs v;
        if (tc.max_bytes == 0)
                tc.max_bytes = fstatvfs(en->home.dirfd, &v) == 0 ? MIN2((uint64_t)LAYER_CACHE_MAX, (uint64_t)v.f_blocks * v.f_frsize / 2) : LAYER_CACHE_MAX;
        if (tc.mirror_max_bytes == 0)
                tc.mirror_max_bytes = fstatvfs(en->home.dirfd, &v) == 0 ? MIN2((uint64_t)MIRROR_CACHE_MAX, (uint64_t)v.f_blocks * v.f_frsize / 4) : MIRROR_CACHE_MAX;
        r = tree_store_open(en->loop, en->spawner, &tc, &en->trees, e);
        const struct image_store_config ic = { .home = cfg->home, .max_bytes = tc.max_bytes, .pull_timeout_ms = cfg->image_pull_timeout_s * 1000 };
        r = r < 0 ? r : image_store_open(en->loop, en->spawner, &ic, &en->images, e);
        return r < 0 ? r : makers_open(en->images, cfg, en->registry_fd, &en->makers, e);
}

static int run_start(void *ctx, const char *id, struct score_request *req, int log_dirfd, score_done done, void *user,
                     struct score_task **ret, struct error *e) {
        return score_task_start(ctx, id, req, log_dirfd, done, user, ret, e);
}

static void run_cancel(void *ctx, struct score_task *t) { score_task_cancel(t); }

static void fatal(const char *why, void *user) {
        struct engine *en = user;
        if (en->fatal_told)
                return;
        en->fatal_told = true;
        log_event(LOG_ERROR, "engine.fatal", "why", why, NULL);
        if (en->fatal)
                en->fatal(why, en->fatal_user);
}

static uint64_t shed(uint64_t bytes, void *user) {
        struct engine *en = user;
        uint64_t freed = tree_store_shed(en->trees, bytes);
        return freed >= bytes ? freed : freed + image_store_shed(en->images, bytes - freed);
}

static int open_tasks(struct engine *en, struct error *e) {
        char path[4096];
        runs_path(en, path, sizeof path);
        en->runs_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (en->runs_dirfd < 0)
                return error_set(e, -errno, "open %s", path);
        en->score = (struct score_env){ .loop = en->loop, .spawner = en->spawner, .trees = en->trees, .images = en->images, .collections = collections_new(en->loop, en->spawner),
                                         .record_output_max = en->cfg->record_output_bytes };
        if (!en->score.collections)
                return error_set(e, -ENOMEM, "open the tasks");
        score_defaults_init(&en->defaults);
        en->defaults.network = (enum sandbox_network)en->cfg->task_network;
        struct tasks_config tc = {
                .loop = en->loop, .ledger = en->ledger, .runner = { run_start, run_cancel, &en->score }, .defaults = &en->defaults,
                .running_max = en->cfg->running_max, .queued_max = en->cfg->queued_max, .max_age_ms = en->cfg->task_max_age_s * 1000,
                .log_urls = !en->cfg->in_process, .runs_dirfd = en->runs_dirfd, .shed = shed, .fatal = fatal, .user = en,
        };
        return tasks_open(&tc, &en->tasks, e);
}

static int open_sessions(struct engine *en, struct error *e) {
        const struct engine_config *cfg = en->cfg;
        struct sessions_config sc = {
                .loop = en->loop, .spawner = en->spawner, .ledger = en->ledger, .images = en->images, .runs_dirfd = en->runs_dirfd,
                .live_max = cfg->session_max, .execs_max = cfg->session_calls_max, .idle_ms = cfg->session_max_age_s * 1000, .ttl_ms = cfg->session_ttl_s * 1000,
                .exec_timeout_ms = cfg->session_exec_timeout_s * 1000, .output_max = cfg->session_output_max_bytes,
                .network = (enum sandbox_network)cfg->session_network,
        };
        sandbox_limits_default(&sc.limits);
        sc.limits.wall_ms = 0;         /* ttl and the idle clock bound it */
        return sessions_open(&sc, &en->sessions, e);
}

static int open_rlm(struct engine *en, struct error *e) {
        const struct engine_config *cfg = en->cfg;
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), cpus = (uint64_t)MAX2(sysconf(_SC_NPROCESSORS_ONLN), 1L);
        struct rlm_config rc = {
                .loop = en->loop, .spawner = en->spawner, .ledger = en->ledger, .slots = (unsigned)cfg->rlm_slots, .idle_ms = cfg->rlm_idle_s * 1000,
                .warm_roots = (unsigned)cfg->rlm_warm_roots,
                .limits = { (unsigned)cfg->rlm_calls_max, (unsigned)cfg->rlm_pending_max, (unsigned)cfg->rlm_prompts_max }, .network = (enum sandbox_network)cfg->rlm_network,
        };
        sandbox_limits_default(&rc.root_limits);
        rc.root_limits.cpu_milli = cfg->rlm_root_cpus < cpus ? cfg->rlm_root_cpus * 1000 : 0;     /* 0: all that there are */
        rc.root_limits.memory_bytes = MIN2(cfg->rlm_root_memory_bytes, memory);
        rc.root_limits.disk_bytes = cfg->rlm_root_disk_bytes;
        rc.root_limits.output_bytes = UINT64_MAX;      /* turns keep the head and the tail of what they write */
        rc.root_limits.wall_ms = 0;
        rc.child_limits = rc.root_limits;
        rc.child_limits.cpu_milli = cfg->rlm_child_cpus < cpus ? cfg->rlm_child_cpus * 1000 : 0;
        rc.child_limits.memory_bytes = MIN2(cfg->rlm_child_memory_bytes, memory);
        rc.child_limits.disk_bytes = cfg->rlm_child_disk_bytes;
        rc.children_max = (unsigned)cfg->rlm_children_max;
        return rlm_open(&rc, &en->rlm, e);
}

static int start(struct engine *en, struct error *e) {
        int r = start_privileged(en, e);
        if (r < 0)
                return r;
        char path[4096];
        log_path(en, path, sizeof path);
        log_set_level((enum log_level)en->cfg->log_level);
        log_limit_file(en->cfg->log_max_bytes);
        r = log_open_file(path);
        if (r < 0)
                return error_set(e, r, "open %s as user %u", path, (unsigned)getuid());
        r = open_egress(en, e);
        if (r == 0)
                r = open_stores(en, e);
        if (r == 0)
                r = open_tasks(en, e);
        if (r == 0)
                r = open_sessions(en, e);
        if (r == 0)
                r = open_rlm(en, e);
        if (r < 0)
                return r;
        log_event(LOG_INFO, "engine.started", "home", en->cfg->home, "instance", en->home.instance, NULL);
        tasks_start(en->tasks);
        return 0;
}

int engine_start(uv_loop_t *loop, const struct engine_config *cfg, struct engine **ret, struct error *e) {
        struct engine *en = calloc(1, sizeof *en);
        if (!en)
                return error_set(e, -ENOMEM, "start the engine");
        *en = (struct engine){ .loop = loop, .cfg = cfg, .home = HOME_INIT, .runs_dirfd = -1, .local_repo_fd = -1, .registry_fd = -1 };
        int r = start(en, e);
        if (r < 0) {
                engine_free(en);
                return r;
        }
        *ret = en;
        return 0;
}

void engine_on_fatal(struct engine *en, void (*cb)(const char *why, void *user), void *user) {
        en->fatal = cb;
        en->fatal_user = user;
}

/* ---- the way down --------------------------------------------------------------------------------------------------------------- */

static void lost_recorded(void *user) { fatal("the spawner died", user); }

static void spawner_lost(void *user) {
        struct engine *en = user;
        log_event(LOG_ERROR, "spawner.lost", NULL);
        if (en->tasks)
                tasks_lost(en->tasks, lost_recorded, en);
        else
                lost_recorded(en);
}

static void spawner_stopped(void *user) {
        struct engine *en = user;
        spawner_free(en->spawner);
        en->spawner = NULL;
        log_event(LOG_INFO, "engine.stopped", NULL);
        en->drained(en->drained_user);
}

static void images_closed(void *user) {
        struct engine *en = user;
        en->images = NULL;
        spawner_stop(en->spawner, spawner_stopped, en);
}

static void makers_closed(void *user) {
        struct engine *en = user;
        en->makers = NULL;
        image_store_close(en->images, images_closed, en);
}

static void trees_closed(void *user) {
        struct engine *en = user;
        en->trees = NULL;
        makers_close(en->makers, makers_closed, en);
}

static void drained_one(void *user) {
        struct engine *en = user;
        if (--en->draining_left > 0)
                return;
        sessions_free(TAKE_PTR(en->sessions));
        rlm_free(TAKE_PTR(en->rlm));
        collections_free(TAKE_PTR(en->score.collections));
        tree_store_close(en->trees, trees_closed, en);
}

void engine_drain(struct engine *en, uint64_t grace_ms, void (*done)(void *user), void *user) {
        ASSERT(!en->draining);
        en->draining = true;
        en->drained = done;
        en->drained_user = user;
        log_event(LOG_INFO, "engine.draining", NULL);
        en->draining_left = 3;
        rlm_drain(en->rlm, drained_one, en);
        tasks_drain(en->tasks, grace_ms, drained_one, en);
        sessions_drain(en->sessions, grace_ms, drained_one, en);
}

void engine_free(struct engine *en) {
        if (!en)
                return;
        tasks_free(en->tasks);         /* trees that a drain has not closed go with the process: closing them needs the loop */
        sessions_free(en->sessions);
        rlm_free(en->rlm);
        ledger_close(en->ledger);
        spawner_free(en->spawner);
        egress_close(en->egress);
        fd_close(en->runs_dirfd);
        fd_close(en->local_repo_fd);
        fd_close(en->registry_fd);
        if (en->ssh.key_fd > 0)
                fd_close(en->ssh.key_fd);
        if (en->ssh.known_hosts_fd > 0)
                fd_close(en->ssh.known_hosts_fd);
        home_release(&en->home);
        free(en);
}

/* ---- for the surfaces -------------------------------------------------------------------------------------------------------------- */

struct image_store *engine_images(struct engine *en) { return en->images; }
struct puller *engine_puller(struct engine *en) { return en->draining || !en->makers ? NULL : makers_puller(en->makers); }
struct builder *engine_builder(struct engine *en) { return en->draining || !en->makers ? NULL : makers_builder(en->makers); }
const struct score_defaults *engine_defaults(const struct engine *en) { return &en->defaults; }

int engine_check_source(struct engine *en, const char *repo_url, const char *commit, struct error *e) {
        if (!en->trees)                /* on the way down; what is submitted now is refused anyway */
                return 0;
        return tree_url_check(en->trees, repo_url, commit, e);
}

int engine_submit(struct engine *en, const struct engine_submission *s, engine_submitted done, void *user) {
        return tasks_submit(en->tasks, s, done, user);
}

int engine_task_status(struct engine *en, const char *id, enum task_status *ret) { return tasks_status(en->tasks, id, ret); }
int engine_task_record(struct engine *en, const char *id, struct buf *ret) { return tasks_record(en->tasks, id, ret); }

struct engine_wait *engine_task_wait(struct engine *en, const char *id, uint64_t wait_ms, void (*done)(int r, void *user), void *user) {
        return tasks_wait(en->tasks, id, wait_ms, done, user);
}

int engine_task_delete(struct engine *en, const char *id, void (*done)(int r, void *user), void *user) {
        return tasks_delete(en->tasks, id, done, user);
}

struct sessions *engine_sessions(struct engine *en) { return en->sessions; }
struct rlm *engine_rlm(struct engine *en) { return en->rlm; }

int engine_task_log(struct engine *en, const char *id, enum task_stream stream) {
        enum task_status st;
        char path[64];
        if (tasks_status(en->tasks, id, &st) < 0)
                return -ENOENT;
        snprintf(path, sizeof path, "%s/%s.log", id, stream == TASK_STDOUT ? "stdout" : "stderr");
        int fd = fs_open_beneath(en->runs_dirfd, path, O_RDONLY, 0);
        return fd < 0 ? -ENOENT : fd;
}

void engine_stats(struct engine *en, struct engine_stats *ret) {
        struct tasks_stats ts;
        tasks_stats(en->tasks, &ts);
        struct sessions_stats ss = { 0 };
        if (en->sessions)
                sessions_stats(en->sessions, &ss);
        *ret = (struct engine_stats){ .queued = ts.queued, .running = ts.running, .slots = en->cfg->running_max, .sessions = ss.live,
                                      .draining = en->draining, .disk_low = ledger_disk_low(en->ledger) };
}

/* One run of a mirror: what its sandboxes are given, and what their ends mean. FETCH, then JOIN if something new came; see mirror.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/strv.h"
#include "sandbox/layers.h"
#include "store/git_env.h"
#include "store/mirror_private.h"
#include "store/mirror_sizes.h"

#define MIRROR_MEMORY (2ull << 30)
#define DISK_RESERVE (64ull << 20)      /* less than this free after a failure: the disk was the reason */

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
        mirror_finish(m, end, &e);
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
                mirror_finish(m, disk_or(m, MIRROR_FAILED), &r->error);
        else if (end == MIRROR_OK) {
                note_size(m, r->out);
                mirror_finish(m, MIRROR_OK, NULL);
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
        struct box_spec b = { .sandbox = &s, .argv = argv, .env = env, .stdin_fd = -1, .fd = -1,
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
                mirror_finish(m, disk_or(m, MIRROR_FAILED), &e);
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
                mirror_finish(m, disk_or(m, MIRROR_FAILED), &r->error);
        else if (end != MIRROR_OK)
                finish_text(m, end, what, r->err);
        else if (!parse_found(m, r->out, &is_new))
                finish_text(m, MIRROR_FAILED, "the fetch ended without an answer", "");
        else if (is_new)
                start_join(m);
        else {
                m->dirty = false;
                mirror_size_used(m->store->state_fd, m->id);
                mirror_finish(m, MIRROR_OK, NULL);
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

/* ---- ssh ---- */

#define SSH "GIT_SSH_COMMAND=ssh -F none -o BatchMode=yes -o GlobalKnownHostsFile=/dev/null "
#define KNOWN "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/run/brig/ssh_known_hosts"

const char *mirror_ssh_command(const struct fetch_ssh *ssh) {
        if (ssh->key_fd > 0)
                return SSH KNOWN " -o IdentitiesOnly=yes -i /run/brig/ssh_key";
        return ssh->known_hosts_fd > 0 ? SSH KNOWN : SSH "-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/tmp/known_hosts";
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
        if (r == 0 && mirror_is_wanted(m)) {
                m->state = MIRROR_FETCHING;
                m->dirty = true;
                r = repo_url_has_credentials(&m->lead->url) ? mirror_mark_private(m) : 0;
                r = r < 0 ? error_set(&mine, r, "remember a private mirror") : start_fetch(m, &mine);
                if (r == 0)
                        return;
                e = &mine;
        }
        if (r == 0) {
                error_say(&mine, -ECANCELED, "cancelled");
                e = &mine;
        }
        mirror_finish(m, disk_or(m, MIRROR_FAILED), e);
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
        mirror_finish(m, disk_or(m, MIRROR_FAILED), e);
}

int mirror_run(struct mirror *m) {
        m->state = MIRROR_MAKING;
        int r = mirrors_make(m->store->spawner, m->id, mirror_made, m);
        if (r < 0)
                m->state = MIRROR_IDLE;
        return r;
}

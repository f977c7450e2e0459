#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "sandbox/spawner.h"
#include "sandbox/spec.h"

/* ---- wire ---- */

static int put_fd(struct buf *b, int fd, int *fds, size_t *n_fds) {
        if (fd < 0)
                return wire_put_u32(b, UINT32_MAX);
        if (*n_fds >= MESSAGE_FDS_MAX - 1)
                return -E2BIG;
        fds[*n_fds] = fd;
        return wire_put_u32(b, (uint32_t)(*n_fds)++);
}

#define TRY(call) do { int try_ = (call); if (try_ < 0) return try_; } while (0)

int sandbox_spec_encode(const struct sandbox_spec *s, bool direct, struct buf *b, int *fds, size_t *n_fds) {
        TRY(wire_put_u32(b, direct));
        TRY(wire_put_str(b, s->id));
        TRY(wire_put_u32(b, s->profile));
        TRY(wire_put_str(b, s->image));
        TRY(wire_put_strv(b, s->layers));
        TRY(wire_put_u32(b, s->upper));
        TRY(wire_put_str(b, s->upper_layer));
        TRY(wire_put_u32(b, s->network));
        TRY(wire_put(b, &s->limits, sizeof s->limits));
        TRY(wire_put_str(b, s->hostname));
        TRY(wire_put_str(b, s->user_dir));
        TRY(wire_put_u64(b, s->cap_drop));
        TRY(wire_put_u32(b, (uint32_t)s->n_mounts));
        for (size_t i = 0; i < s->n_mounts; i++) {
                TRY(wire_put_u32(b, s->mounts[i].class));
                TRY(wire_put_str(b, s->mounts[i].id));
                TRY(put_fd(b, s->mounts[i].class == MOUNT_SOURCE ? s->mounts[i].fd : -1, fds, n_fds));
                TRY(wire_put_str(b, s->mounts[i].target));
                TRY(wire_put_u32(b, s->mounts[i].writable));
        }
        TRY(wire_put_u32(b, (uint32_t)s->n_files));
        for (size_t i = 0; i < s->n_files; i++) {
                TRY(wire_put_str(b, s->files[i].name));
                TRY(put_fd(b, s->files[i].fd, fds, n_fds));
                TRY(wire_put_u32(b, s->files[i].mode));
        }
        return 0;
}

static int get_fd(struct message *m) {
        uint32_t i = wire_get_u32(&m->wire);
        return i == UINT32_MAX ? -1 : message_fd(m, i);
}

static void get_lists(struct message *m, struct sandbox_spec *s) {
        struct wire *w = &m->wire;
        s->n_mounts = wire_get_u32(w);
        if (s->n_mounts > SPEC_MOUNTS_MAX)
                w->bad = true;
        struct sandbox_mount *mounts = w->bad ? NULL : calloc(s->n_mounts + 1, sizeof *mounts);
        s->mounts = mounts;
        for (size_t i = 0; mounts && i < s->n_mounts; i++) {
                mounts[i].class = wire_get_u32(w);
                mounts[i].id = wire_get_str(w);
                mounts[i].fd = get_fd(m);
                mounts[i].target = wire_get_str(w);
                mounts[i].writable = wire_get_u32(w) != 0;
        }
        s->n_files = wire_get_u32(w);
        if (s->n_files > SPEC_FILES_MAX)
                w->bad = true;
        struct sandbox_file *files = w->bad ? NULL : calloc(s->n_files + 1, sizeof *files);
        s->files = files;
        for (size_t i = 0; files && i < s->n_files; i++) {
                files[i].name = wire_get_str(w);
                files[i].fd = get_fd(m);
                files[i].mode = wire_get_u32(w);
        }
        if (!mounts || !files)
                w->bad = true;
}

int sandbox_spec_decode(struct message *m, struct sandbox_spec *ret, bool *ret_direct) {
        struct wire *w = &m->wire;
        struct sandbox_spec s = { 0 };
        const char **layers = NULL;
        *ret_direct = wire_get_u32(w) != 0;
        s.id = wire_get_str(w);
        s.profile = wire_get_u32(w);
        s.image = wire_get_str(w);
        wire_get_strv(w, SPEC_LAYERS_MAX, &layers);
        s.layers = (const char *const *)layers;
        s.upper = wire_get_u32(w);
        s.upper_layer = wire_get_str(w);
        s.network = wire_get_u32(w);
        wire_get(w, &s.limits, sizeof s.limits);
        s.hostname = wire_get_str(w);
        s.user_dir = wire_get_str(w);
        s.cap_drop = wire_get_u64(w);
        get_lists(m, &s);
        if (w->bad) {
                sandbox_spec_release(&s);
                return -EBADMSG;
        }
        *ret = s;
        return 0;
}

void sandbox_spec_release(struct sandbox_spec *s) {
        free((void *)s->layers);
        free((void *)s->mounts);
        free((void *)s->files);
        *s = (struct sandbox_spec){ 0 };
}

/* ---- checks ---- */

static bool name_ok(const char *s, size_t max, const char *extra, bool hex) {
        size_t n = s ? strlen(s) : 0;
        for (size_t i = 0; i < n; i++) {
                unsigned char ch = (unsigned char)s[i];
                bool in = hex ? (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f') : islower(ch) || isdigit(ch) || (ch && strchr(extra, ch));
                if (!in)
                        return false;
        }
        return n >= 1 && n <= max;
}

bool spec_path_ok(const char *p) {
        if (!p || p[0] != '/' || strlen(p) >= SPEC_PATH_MAX)
                return false;
        while (*p) {
                size_t n = strcspn(++p, "/");
                if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
                p += n;
        }
        return true;
}

bool workspace_path_ok(const char *p) {
        static const char ok[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
        size_t depth = 0;
        if (!p || strlen(p) > WORKSPACE_PATH_MAX)
                return false;
        for (;; p++) {
                size_t n = strcspn(p, "/");
                if (n == 0 || n > 128 || *p == '.' || strspn(p, ok) < n || ++depth > WORKSPACE_DEPTH_MAX)
                        return false;
                p += n;
                if (!*p)
                        return true;
        }
}

static int bad(struct error *e, const char *field) { return error_say(e, -EINVAL, "%s is not valid", field); }

static int check_limits(const struct sandbox_limits *l, struct error *e) {
        if (l->memory_bytes < 1 << 20)
                return bad(e, "limits.memory_bytes");
        if (l->pids < 1 || l->pids > 1 << 22)
                return bad(e, "limits.pids");
        if (l->disk_bytes < 64 << 10 || l->disk_bytes > 1ull << 46)
                return bad(e, "limits.disk_bytes");
        if (l->inodes < 64 || l->inodes > 1ull << 30)
                return bad(e, "limits.inodes");
        if (l->open_files < 16 || l->open_files > 1 << 20)
                return bad(e, "limits.open_files");
        return 0;
}

static int check_lists(const struct sandbox_spec *s, struct error *e) {
        bool mirror = false;
        for (size_t i = 0; s->layers && s->layers[i]; i++) {
                if (i >= SPEC_LAYERS_MAX || !name_ok(s->layers[i], 64, NULL, true))
                        return bad(e, "layers");
        }
        if (s->n_mounts > SPEC_MOUNTS_MAX)
                return bad(e, "mounts");
        for (size_t i = 0; i < s->n_mounts; i++) {
                const struct sandbox_mount *m = &s->mounts[i];
                bool source = m->class == MOUNT_SOURCE;
                struct stat st;
                if (m->class >= MOUNT_CLASS_MAX || !spec_path_ok(m->target) || (source ? m->fd < 0 : !name_ok(m->id, 64, NULL, true)))
                        return bad(e, "mounts");
                if (m->writable && (source || s->profile != PROFILE_FETCH))
                        return bad(e, "mounts.writable");
                if (source && (fstat(m->fd, &st) < 0 || !S_ISDIR(st.st_mode)))
                        return bad(e, "mounts.fd");
                mirror |= m->class == MOUNT_MIRROR;
        }
        if (s->profile == PROFILE_FETCH && !mirror)
                return error_say(e, -EINVAL, "a fetch needs a mirror");
        uint64_t total = 0;
        if (s->n_files > SPEC_FILES_MAX)
                return bad(e, "files");
        for (size_t i = 0; i < s->n_files; i++) {
                struct stat st;
                const char *name = s->files[i].name;
                if (!name || !*name || strlen(name) > 255 || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                        return bad(e, "files.name");
                if (s->files[i].fd < 0 || fstat(s->files[i].fd, &st) < 0 || !S_ISREG(st.st_mode))
                        return bad(e, "files.fd");
                total += (uint64_t)st.st_size;
        }
        return total > SPEC_FILES_BYTES_MAX ? error_say(e, -EFBIG, "files are larger than %llu bytes in all", SPEC_FILES_BYTES_MAX) : 0;
}

int sandbox_spec_check(const struct sandbox_spec *s, struct error *e) {
        if (!name_ok(s->id, 64, "-", false))
                return bad(e, "id");
        if (s->profile >= PROFILE_MAX)
                return bad(e, "profile");
        if (!s->image || (strcmp(s->image, IMAGE_HOST) != 0 && strcmp(s->image, IMAGE_SCRATCH) != 0 && !spec_path_ok(s->image)))
                return bad(e, "image");
        if (s->upper >= UPPER_MAX)
                return bad(e, "upper");
        if ((s->upper == UPPER_LAYER) != (s->upper_layer != NULL) || (s->upper_layer && !name_ok(s->upper_layer, 64, NULL, true)))
                return bad(e, "upper_layer");
        if (s->network >= NETWORK_MAX)
                return bad(e, "network");
        if ((s->network == NETWORK_HOST) && s->profile != PROFILE_FETCH)
                return error_say(e, -EPERM, "only a fetch may use the host's network");
        if (s->cap_drop && s->profile != PROFILE_SESSION)
                return bad(e, "cap_drop");
        if (s->hostname && !name_ok(s->hostname, 63, "-.", false))
                return bad(e, "hostname");
        if (s->user_dir && !spec_path_ok(s->user_dir))
                return bad(e, "user_dir");
        if (s->allow && s->network != NETWORK_ALLOW)
                return bad(e, "allow");
        int r = check_limits(&s->limits, e);
        return r < 0 ? r : check_lists(s, e);
}

/* ---- execs ---- */

enum { EXEC_HELPER = 1, EXEC_TTY = 2, EXEC_IN_VIEW = 4, EXEC_FREEZE = 8, EXEC_UPPER = 16 };

/* Which descriptors 0, 1 and 2 are; -EINVAL where two things want the same. */
static int standard_fds(const struct exec_spec *x, const int far[3], int standard[3]) {
        standard[0] = far[0] >= 0 || x->tty ? far[0] : x->stdin_fd;
        standard[1] = far[1];
        standard[2] = far[2];
        for (size_t i = 0; i < x->n_fds; i++) {
                int t = x->fds[i].target;
                if (t < 3 && (t < 1 || x->tty || standard[t] >= 0))
                        return -EINVAL;
                if (t < 3)
                        standard[t] = x->fds[i].fd;
        }
        return 0;
}

int exec_spec_encode(const struct exec_spec *x, const int far[3], struct buf *b, int *fds, size_t *n_fds) {
        int standard[3];
        uint32_t extra = 0;
        if (!x->argv || !x->argv[0] || x->n_fds > EXEC_FDS_MAX)
                return -EINVAL;
        TRY(standard_fds(x, far, standard));
        TRY(wire_put_strv(b, x->argv));
        TRY(wire_put_strv(b, x->env));
        TRY(wire_put_str(b, x->cwd));
        TRY(wire_put_u32(b, x->uid));
        TRY(wire_put_u32(b, x->gid));
        TRY(wire_put_u32(b, (x->helper ? EXEC_HELPER : 0) | (x->tty ? EXEC_TTY : 0) | (x->in_view ? EXEC_IN_VIEW : 0) | (x->freeze_at_end ? EXEC_FREEZE : 0) | (x->helper_upper ? EXEC_UPPER : 0)));
        for (size_t i = 0; i < x->n_fds; i++)
                extra += x->fds[i].target >= 3;
        TRY(wire_put_u32(b, 3 + extra));
        for (int i = 0; i < 3; i++) {
                TRY(wire_put_u32(b, (uint32_t)i));
                TRY(put_fd(b, standard[i], fds, n_fds));
        }
        for (size_t i = 0; i < x->n_fds; i++) {
                if (x->fds[i].target < 3)
                        continue;
                TRY(wire_put_u32(b, (uint32_t)x->fds[i].target));
                TRY(put_fd(b, x->fds[i].fd, fds, n_fds));
        }
        TRY(wire_put_u32(b, x->tty ? (uint32_t)x->tty->rows << 16 | x->tty->cols : 0));
        TRY(wire_put_str(b, x->view ? x->view->target : NULL));
        if (x->view) {
                TRY(put_fd(b, x->view->pack_fd, fds, n_fds));
                TRY(wire_put_u64(b, x->view->bytes ? x->view->bytes : VIEW_BYTES));
                TRY(wire_put_u32(b, x->view->read_only));
                TRY(wire_put_str(b, x->view->output));
        }
        return 0;
}

void exec_request_release(struct exec_request *x) {
        free(x->argv);
        free(x->env);
        x->argv = x->env = NULL;
}

static void get_fds(struct message *m, struct exec_request *x) {
        struct wire *w = &m->wire;
        uint32_t n = wire_get_u32(w);
        bool taken[FD_TARGET_MAX + 1] = { false };
        if (n < 3 || n > 3 + EXEC_FDS_MAX)
                w->bad = true;
        for (uint32_t i = 0; i < n && !w->bad; i++) {
                uint32_t target = wire_get_u32(w), fd = wire_get_u32(w);
                if (w->bad || target > FD_TARGET_MAX || taken[target] || (i < 3) != (target < 3) || (i >= 3 && x->helper && (target < HELPER_FIRST_FREE_FD || target >= HELPER_UPPER_FD))) {
                        w->bad = true;
                        return;
                }
                taken[target] = true;
                x->fds[x->n_fds++] = (struct exec_fd){ fd == UINT32_MAX ? -1 : message_fd(m, fd), (int)target };
        }
}

/* The same place, or one below it. */
static bool is_within(const char *top, const char *path) {
        size_t n = strlen(top);
        return strncmp(top, path, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static bool exec_ok(const struct exec_request *x) {
        if (!x->argv || !x->argv[0] || !x->argv[0][0] || x->uid >= IDRANGE_SIZE || x->gid >= IDRANGE_SIZE || (x->cwd && x->cwd[0] != '/'))
                return false;
        if (x->view && (x->helper || !spec_path_ok(x->view) || x->view_bytes < VIEW_BYTES_MIN || x->view_bytes > VIEW_BYTES_MAX))
                return false;
        if (x->view_output && (!spec_path_ok(x->view_output) || is_within(x->view, x->view_output) || is_within(x->view_output, x->view)))
                return false;
        return !(x->helper && x->tty) && !(x->in_view && !x->helper);
}

int exec_request_decode(struct message *m, struct exec_request *x) {
        struct wire *w = &m->wire;
        *x = (struct exec_request){ .view_pack = -1 };
        wire_get_strv(w, ARGV_MAX, &x->argv);
        wire_get_strv(w, ENV_MAX, &x->env);
        x->cwd = wire_get_str(w);
        x->uid = wire_get_u32(w);
        x->gid = wire_get_u32(w);
        uint32_t flags = wire_get_u32(w);
        x->helper = flags & EXEC_HELPER;
        x->tty = flags & EXEC_TTY;
        x->in_view = flags & EXEC_IN_VIEW;
        x->freeze_at_end = flags & EXEC_FREEZE;
        x->helper_upper = x->helper && (flags & EXEC_UPPER);
        get_fds(m, x);
        uint32_t size = wire_get_u32(w);
        x->rows = (uint16_t)(size >> 16);
        x->cols = (uint16_t)size;
        x->view = wire_get_str(w);
        if (x->view && !w->bad) {
                x->view_pack = get_fd(m);
                x->view_bytes = wire_get_u64(w);
                x->view_read_only = wire_get_u32(w) == 1;
                x->view_output = wire_get_str(w);
        }
        if (!w->bad && exec_ok(x))
                return 0;
        exec_request_release(x);
        return w->bad ? -EBADMSG : -EINVAL;
}

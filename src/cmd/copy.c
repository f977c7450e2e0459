/* brig cp: files and directories, into a session and out of it. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cmd/local_tar.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"

struct copy_options { struct remote_options remote; bool links; };
static const struct option_row rows[] = {
        { "--links", NULL, OPTION_SWITCH, offsetof(struct copy_options, links), 0, COMPLETE_NONE, "out of a session: also links that lead out of what is copied" },
};

struct place { const char *session, *path; };      /* session NULL: here */

/* SESSION:PATH has its ':' before any '/'. The text is cut there. */
static struct place parse(char *text) {
        size_t n = strcspn(text, ":/");
        if (n == 0 || text[n] != ':')
                return (struct place){ .path = text };
        text[n] = 0;
        return (struct place){ .session = text, .path = text[n + 1] ? text + n + 1 : "." };
}

/* The last part of a path; "" where that names no entry: the top, "." and "..". */
static const char *base_of(const char *path) {
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        return strcmp(base, ".") == 0 || strcmp(base, "..") == 0 ? "" : base;
}

static void cut_slashes(char *path) {
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
                path[n - 1] = 0;
}

static int query(const struct place *p, const char *what, const char *path, char ret[static REMOTE_PATH_MAX], struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(REMOTE_PATH_MAX - 256);
        int r = buf_printf(&b, "%spath=", what);
        r = r ? r : query_encode(&b, path);
        return r < 0 ? error_say(e, -EINVAL, "the path is too long") : session_path(p->session, buf_str(&b), ret, e);
}

/* "file", "directory", ...; "" for nothing. */
static int kind_of(struct client *c, const struct place *p, char ret[static 32], struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        char path[REMOTE_PATH_MAX], code[64];
        struct json v, error;
        int status;
        ret[0] = 0;
        int r = query(p, "/files/stat?follow=true&", p->path, path, e);
        r = r ? r : client_call(c, "GET", path, NULL, 0, REMOTE_CALL_MS, &status, &answer, e);
        if (r < 0)
                return r;
        bool is_json = json_parse(buf_str(&answer), answer.len, &v, NULL) == 0;
        if (status == 200 && is_json) {
                member_show(&v, "type", ret, 32);
                return 0;
        }
        /* Nothing at that path is no fault yet; no such session is. */
        if (status == 404 && is_json && json_get(&v, "error", &error) && strstr(member_show(&error, "message", code, sizeof code), "session") == NULL)
                return 0;
        return remote_refusal(status, buf_str(&answer), answer.len, e);
}

struct course { int fd; struct packing *pack; struct unpacking *unpack; uint64_t bytes; struct buf answer; struct error *e; };

static void progress(struct course *x, size_t n) {
        uint64_t before = x->bytes >> 20;
        x->bytes += n;
        if (x->bytes >> 20 != before)
                status_line("%llu MiB", (unsigned long long)(x->bytes >> 20));
}

/* ---- into a session ------------------------------------------------------------------------------------------------------ */

static ssize_t from_here(char *p, size_t n, void *user) {
        struct course *x = user;
        ssize_t r = x->pack ? packing_read(p, n, x->pack) : read(x->fd, p, n);
        if (r < 0)
                return error_set(x->e, x->pack ? (int)r : -errno, "read");
        progress(x, (size_t)r);
        return r;
}

static int keep_answer(int status, const char *p, size_t n, void *user) { return buf_add(&((struct course *)user)->answer, p, n); }

static int send(struct client *c, struct course *x, const char *path, bool json, struct error *e) {
        int status;
        int r = client_transfer(c, &(struct client_transfer){ .method = "PUT", .path = path, .content_type = x->pack ? "application/x-tar" : "application/octet-stream",
                                                              .source = from_here, .sink = keep_answer, .user = x }, &status, e);
        if (x->pack && packing_error(x->pack, e) < 0)
                return -EIO;
        if (r < 0)
                return r;
        if (status < 200 || status > 299)
                return remote_refusal(status, buf_str(&x->answer), x->answer.len, e);
        if (json)
                printf("%s\n", buf_str(&x->answer));
        return 0;
}

/* Into a directory that is there under our own name; else it is the name. */
static int target_of(struct client *c, const struct place *to, const char *base, char ret[static REMOTE_PATH_MAX], struct error *e) {
        char kind[32];
        int r = kind_of(c, to, kind, e);
        bool into = r == 0 && base[0] && (strcmp(kind, "directory") == 0 || to->path[strlen(to->path) - 1] == '/');
        if (r == 0 && snprintf(ret, REMOTE_PATH_MAX, into ? "%s/%s" : "%s%.0s", to->path, base) >= REMOTE_PATH_MAX)
                return error_say(e, -EINVAL, "the path is too long");
        return r;
}

static int upload(struct client *c, const struct copy_options *o, char *here, const struct place *to, struct error *e) {
        struct course x = { .fd = -1, .answer = BUF_INIT(REMOTE_ANSWER_MAX), .e = e };
        char target[REMOTE_PATH_MAX], path[REMOTE_PATH_MAX], head[64];
        struct stat st = { .st_mode = S_IFREG | 0644 };
        bool standard = strcmp(here, "-") == 0;
        cut_slashes(here);
        if (!standard && stat(here, &st) < 0)
                return error_say(e, -EINVAL, "%.200s: %s", here, strerrordesc_np(errno));
        int r = target_of(c, to, standard ? "" : base_of(here), target, e);
        if (r < 0)
                return r;
        if (S_ISDIR(st.st_mode)) {
                r = query(to, "/archive?", target, path, e);
                r = r ? r : packing_start(here, false, &x.pack, e);
        } else {
                snprintf(head, sizeof head, "/files?mode=%04o&", (unsigned)(st.st_mode & 0777));
                r = query(to, head, target, path, e);
                x.fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(here, O_RDONLY | O_CLOEXEC);
                if (r == 0 && x.fd < 0)
                        r = error_set(e, -errno, "%.200s", here);
        }
        r = r ? r : send(c, &x, path, o->remote.json, e);
        packing_free(x.pack);
        fd_close(x.fd);
        buf_release(&x.answer);
        return r;
}

/* ---- out of one ---------------------------------------------------------------------------------------------------------- */

static int to_here(int status, const char *p, size_t n, void *user) {
        struct course *x = user;
        if (status < 200 || status > 299)
                return buf_add(&x->answer, p, n);
        int r = x->unpack ? unpacking_write(x->unpack, p, n) : fs_write_all(x->fd, p, n);
        if (r < 0)
                return error_set(x->e, r, "write");
        progress(x, n);
        return 0;
}

static int receive(struct client *c, struct course *x, const char *path, struct error *e) {
        int status, r = client_transfer(c, &(struct client_transfer){ .method = "GET", .path = path, .sink = to_here, .user = x }, &status, e);
        return r == 0 && (status < 200 || status > 299) ? remote_refusal(status, buf_str(&x->answer), x->answer.len, e) : r;
}

/* Into a directory under the name that it has there; else under the name that was said. */
static int download_file(struct client *c, struct course *x, const struct place *from, const char *here, struct error *e) {
        char path[REMOTE_PATH_MAX], name[REMOTE_PATH_MAX];
        struct stat st;
        bool standard = strcmp(here, "-") == 0, there = !standard && stat(here, &st) == 0, into = there && S_ISDIR(st.st_mode);
        if (into && !base_of(from->path)[0])
                return error_say(e, -EINVAL, "a name for the file is needed");
        if (snprintf(name, sizeof name, into ? "%s/%s" : "%s%.0s", here, base_of(from->path)) >= (int)sizeof name)
                return error_say(e, -EINVAL, "the path is too long");
        there = !standard && access(name, F_OK) == 0;
        x->fd = standard ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (into ? O_NOFOLLOW : 0), 0666);
        if (x->fd < 0)
                return error_set(e, -errno, "%.200s", name);
        int r = query(from, "/files?", from->path, path, e);
        r = r ? r : receive(c, x, path, e);
        if (r < 0 && !standard && !there)
                unlink(name);
        return r;
}

/* The directory that is filled; a name below one that is there is no link. */
static int open_target(const struct place *from, const char *here, struct error *e) {
        const char *base = base_of(from->path);
        _cleanup_close_ int dir = open(here, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 && errno == ENOENT) {
                if (mkdir(here, 0777) < 0)
                        return error_set(e, -errno, "%.200s", here);
                base = "";
                dir = open(here, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        if (dir < 0)
                return error_set(e, -errno, "%.200s", here);
        if (!base[0])
                return TAKE_FD(dir);
        int r = mkdirat(dir, base, 0777) < 0 && errno != EEXIST ? -errno : fs_open_beneath(dir, base, O_RDONLY | O_DIRECTORY, 0);
        return r < 0 ? error_set(e, r, "%.200s/%.100s", here, base) : r;
}

static int download_tree(struct client *c, const struct copy_options *o, struct course *x, const struct place *from, const char *here, struct error *e) {
        char path[REMOTE_PATH_MAX];
        uint64_t entries = 0, skipped = 0;
        struct error theirs = { 0 };
        x->fd = open_target(from, here, e);
        int r = x->fd < 0 ? x->fd : query(from, "/archive?", from->path, path, e);
        r = r ? r : unpacking_start(x->fd, o->links, &x->unpack, e);
        if (r < 0)
                return r;
        r = receive(c, x, path, e);
        int u = unpacking_end(x->unpack, &entries, &skipped, &theirs);
        unpacking_free(x->unpack);
        if (u < 0 && (r == 0 || r == -EPIPE)) {
                *e = theirs;
                r = u == -EINVAL ? -EIO : u;
        }
        if (r == 0 && skipped)
                fprintf(stderr, "brig cp: left out: %llu links that lead elsewhere, devices and the like\n", (unsigned long long)skipped);
        return r;
}

static int download(struct client *c, const struct copy_options *o, const struct place *from, char *here, int *status, struct error *e) {
        struct course x = { .fd = -1, .answer = BUF_INIT(REMOTE_ANSWER_MAX), .e = e };
        char kind[32];
        int r = kind_of(c, from, kind, e);
        if (r == 0 && !kind[0]) {
                fprintf(stderr, "brig cp: %s:%.200s: there is nothing\n", from->session, from->path);
                *status = 1;
                return 0;
        }
        if (r == 0 && strcmp(kind, "directory") == 0)
                r = download_tree(c, o, &x, from, here, e);
        else if (r == 0)
                r = download_file(c, &x, from, here, e);
        if (r == 0 && o->remote.json)
                printf("{\"bytes\":%llu}\n", (unsigned long long)x.bytes);
        fd_close(x.fd);
        buf_release(&x.answer);
        return r;
}

static int copy(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        struct place from = parse(arguments[0]), to = parse(arguments[1]);
        signal(SIGPIPE, SIG_IGN);
        if (!from.session == !to.session)
                return error_say(e, -EINVAL, "one of the two is SESSION:PATH, the other a path of this machine (one with a ':' is written ./...)");
        if (to.session)
                return upload(c, target, arguments[0], &to, e);
        cut_slashes((char *)(uintptr_t)from.path);
        return download(c, target, &from, arguments[1], status, e);
}

static int run(const struct command *c, int argc, char **argv) {
        struct copy_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 2, .max = 2, .go = copy }, argc, argv);
}

const struct command cmd_cp = {
        .name = "cp", .synopsis = "[OPTION...] LOCAL SESSION:PATH\n[OPTION...] SESSION:PATH LOCAL", .doc = "copy files and directories into a session or out of it",
        .text = "A directory is copied with all that is in it. Into a directory that is there a thing is copied under its own name, or, where that is '.', what is in it. "
                "LOCAL may be - for a file: standard input or output.\n\n"
                "What comes out of a session is what untrusted code made: nothing is written outside of the target, no link is followed, and devices, set-id bits and links that lead out are left out.",
        .status = "0, 1 the session has nothing at that path, 2 our fault or refused, 64 usage, 130 interrupted",
        .options = rows, .n_options = ARRAY_SIZE(rows), REMOTE_COMMON, .argument = COMPLETE_FILE, .run = run,
};

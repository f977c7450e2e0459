/* brig image ls, rm, import; brig snapshot ls, rm: what the store has. A snapshot is an image that a session's files became. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/local_tar.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"
#include "store/image_import.h"

/* ---- ls ------------------------------------------------------------------------------------------------------------------ */

struct list_options { struct remote_options remote; bool quiet; };
static const struct option_row list_rows[] = {
        { "-q", NULL, OPTION_SWITCH, offsetof(struct list_options, quiet), 0, COMPLETE_NONE, "names only, of those without one the digest" },
};

static bool is_snapshot(const struct json *image) {
        struct json origin;
        return json_get(image, "origin", &origin) && json_string_is(&origin, "snapshot");
}

/* The names of an image; its digest where it has none. */
static void each_name(const struct json *image, void (*each)(const char *name, const struct json *image, void *user), void *user) {
        struct json names, one;
        char text[SHOW_MAX];
        bool any = false;
        if (json_get(image, "names", &names))
                for (struct json_iter it = json_iter(&names); json_next_item(&it, &one);) {
                        struct buf b = BUF_INIT(SHOW_MAX);
                        if (json_string(&one, &b) == 0)
                                each(buf_str(&b), image, user);
                        buf_release(&b);
                        any = true;
                }
        if (!any)
                each(member_show(image, "digest", text, sizeof text), image, user);
}

static void put_line(const char *name, const struct json *image, void *user) { printf("%s\n", name); }

static void put_row(const char *name, const struct json *image, void *user) {
        struct table *t = user;
        char text[SHOW_MAX];
        table_cell(t, name);
        table_cell(t, member_show(image, "origin", text, sizeof text));
        member_show(image, "digest", text, 13);        /* enough to tell them apart, and to name them */
        table_cell(t, text);
        table_cell(t, member_show(image, "layers", text, sizeof text));
        table_cell(t, bytes_show(image, "bytes", text));
        table_cell(t, age_show(image, "created_at", text));
}

static int list(struct client *c, const struct list_options *o, bool snapshots, struct error *e) {
        static const char *const head[] = { "NAME", "FROM", "DIGEST", "LAYERS", "SIZE", "AGE" };
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX), out = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&out);
        struct json v, images, image;
        struct table t;
        int r = remote_call(c, "GET", "/v1/images", NULL, REMOTE_CALL_MS, &answer, &v, e);
        if (r < 0)
                return r;
        table_init(&t, head, ARRAY_SIZE(head));
        json_begin_object(&w);
        json_put_key(&w, "images");
        json_begin_array(&w);
        if (json_get(&v, "images", &images))
                for (struct json_iter it = json_iter(&images); json_next_item(&it, &image);) {
                        if (snapshots && !is_snapshot(&image))
                                continue;
                        json_put_raw(&w, image.p, image.n);
                        if (o->quiet)
                                each_name(&image, put_line, NULL);
                        else if (!o->remote.json)
                                each_name(&image, put_row, &t);
                }
        json_end_array(&w);
        json_end_object(&w);
        r = json_finish(&w);
        if (r < 0)
                error_set(e, r, "write the list");
        else if (!o->quiet && o->remote.json)
                r = puts(buf_str(&out)) < 0 ? error_set(e, -EIO, "cannot write") : 0;
        else if (!o->quiet)
                (void)table_print(&t, stdout);
        table_release(&t);
        return r;
}

static int list_images(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) { return list(c, target, false, e); }
static int list_snapshots(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) { return list(c, target, true, e); }

static int run_image_ls(const struct command *c, int argc, char **argv) {
        struct list_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .go = list_images }, argc, argv);
}
static int run_snapshot_ls(const struct command *c, int argc, char **argv) {
        struct list_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .go = list_snapshots }, argc, argv);
}

#define LIST_STATUS "0, 2 our fault, 64 usage, 130 interrupted"
const struct command cmd_image_ls = {
        .name = "image ls", .synopsis = "[OPTION...]", .doc = "list images", .status = LIST_STATUS,
        .options = list_rows, .n_options = ARRAY_SIZE(list_rows), REMOTE_COMMON, .run = run_image_ls,
};
const struct command cmd_snapshot_ls = {
        .name = "snapshot ls", .synopsis = "[OPTION...]", .doc = "list snapshots", .status = LIST_STATUS,
        .options = list_rows, .n_options = ARRAY_SIZE(list_rows), REMOTE_COMMON, .run = run_snapshot_ls,
};

/* ---- rm ------------------------------------------------------------------------------------------------------------------ */

/* A path of one segment: '/' is encoded, too. */
static int image_path(const char *ref, struct buf *b) {
        int r = buf_adds(b, "/v1/images/");
        for (; *ref && r == 0; ref++)
                r = *ref == '/' ? buf_adds(b, "%2F") : query_encode(b, (char[]){ *ref, 0 });
        return r;
}

static int remove_all(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct remote_options *o = target;
        for (int i = 0; i < n; i++) {
                _cleanup_buf_ struct buf path = BUF_INIT(REMOTE_PATH_MAX), answer = BUF_INIT(REMOTE_ANSWER_MAX);
                struct json v;
                int r = image_path(arguments[i], &path);
                r = r < 0 ? error_say(e, -EINVAL, "the name is too long") : remote_call(c, "DELETE", buf_str(&path), NULL, REMOTE_CALL_MS, &answer, &v, e);
                if (r < 0)
                        return error_prefix(e, "%.100s", arguments[i]);
                if (o->json)
                        (void)print_json(&v);
        }
        return 0;
}

static int run_rm(const struct command *c, int argc, char **argv) {
        struct remote_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 10000, .go = remove_all }, argc, argv);
}

#define RM_TEXT "A name goes, and with its last name the image; a digest takes the image with all its names. What is in use stays."
#define RM_STATUS "0, 2 one is not there or in use, 64 usage, 130 interrupted"
const struct command cmd_image_rm = {
        .name = "image rm", .synopsis = "IMAGE...", .doc = "remove images", .text = RM_TEXT, .status = RM_STATUS, REMOTE_COMMON, .argument = COMPLETE_IMAGE, .run = run_rm,
};
const struct command cmd_snapshot_rm = {
        .name = "snapshot rm", .synopsis = "SNAPSHOT...", .doc = "remove snapshots", .text = RM_TEXT, .status = RM_STATUS, REMOTE_COMMON, .argument = COMPLETE_SNAPSHOT, .run = run_rm,
};

/* ---- import ---------------------------------------------------------------------------------------------------------------- */

struct import_options { struct remote_options remote; char *name, *select; bool quiet; };
static const struct option_row import_rows[] = {
        { "--name", "NAME[:TAG]", OPTION_TEXT, offsetof(struct import_options, name), 0, COMPLETE_NONE, "of the image; without: what the archive says" },
        { "--select", "NAME", OPTION_TEXT, offsetof(struct import_options, select), 0, COMPLETE_NONE, "which, where an archive holds several" },
        { "-q", NULL, OPTION_SWITCH, offsetof(struct import_options, quiet), 0, COMPLETE_NONE, "no progress" },
};

struct importing { const struct import_options *o; struct error *e; struct packing *pack; int fd; bool done; };

static ssize_t read_archive(char *p, size_t n, void *user) {
        struct importing *m = user;
        if (m->pack)
                return packing_read(p, n, m->pack);
        ssize_t got = read(m->fd, p, n);
        return got < 0 ? error_set(m->e, -errno, "read the archive") : got;
}

static int on_event(const char *event, const struct json *v, void *user) {
        struct importing *m = user;
        struct json error;
        char text[SHOW_MAX];
        if (strcmp(event, "image") == 0) {
                m->done = true;
                status_line("%s", "");
                if (m->o->remote.json)
                        (void)print_json(v);
                else
                        each_name(v, put_line, NULL);
                return 1;
        }
        if (strcmp(event, "error") == 0)
                return error_say(m->e, -EIO, "%s", json_get(v, "error", &error) ? member_show(&error, "message", text, sizeof text) : "it failed");
        if (!m->o->quiet && strcmp(event, "progress") == 0)
                status_line("unpacking, %s", bytes_show(v, "bytes_out", text));
        return 0;
}

static int open_source(struct importing *m, const char *from) {
        struct stat st;
        if (strcmp(from, "-") == 0) {
                m->fd = dup(STDIN_FILENO);
                return m->fd < 0 ? error_set(m->e, -errno, "read standard input") : 0;
        }
        m->fd = open(from, O_RDONLY | O_CLOEXEC);
        if (m->fd < 0 || fstat(m->fd, &st) < 0)
                return error_set(m->e, -EINVAL, "open %s", from);
        return S_ISDIR(st.st_mode) ? packing_start(from, true, &m->pack, m->e) : 0;
}

static int import_image(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct import_options *o = target;
        struct importing m = { .o = o, .e = e, .fd = -1 };
        _cleanup_buf_ struct buf path = BUF_INIT(REMOTE_PATH_MAX);
        char name[IMAGE_NAME_MAX + 1];
        signal(SIGPIPE, SIG_IGN);
        /* What the daemon would refuse when it has all of the archive. */
        if (o->name && image_name_given(o->name, name, e) < 0)
                return -EINVAL;
        int r = buf_adds(&path, "/v1/images/import?stream=1");
        if (r == 0 && o->name && (r = buf_adds(&path, "&name=")) == 0)
                r = query_encode(&path, o->name);
        if (r == 0 && o->select && (r = buf_adds(&path, "&select=")) == 0)
                r = query_encode(&path, o->select);
        r = r < 0 ? error_say(e, -EINVAL, "the name is too long") : open_source(&m, arguments[0]);
        if (r == 0)
                r = remote_stream(c, &(struct remote_events){ .method = "POST", .path = buf_str(&path), .content_type = "application/x-tar", .source = read_archive,
                                                              .each = on_event, .user = &m }, e);
        if (m.pack && packing_error(m.pack, e) < 0)
                r = -EIO;
        if (r == 0 && !m.done)
                r = error_say(e, -EIO, "the daemon broke off");
        if (m.pack)
                packing_free(m.pack);
        fd_close(m.fd);
        return r;
}

static int run_import(const struct command *c, int argc, char **argv) {
        struct import_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = import_image }, argc, argv);
}

const struct command cmd_image_import = {
        .name = "image import", .synopsis = "FILE|DIRECTORY|- [OPTION...]", .doc = "import an image from an archive or a directory",
        .text = "An archive is a tar of a root file system, an OCI layout, or what docker save writes, plain or packed with gzip, xz or zstd. A directory is a root\n"
                "file system: owners, modes and hard links are kept. Prints the image's names, or its digest.",
        .status = "0, 2 it failed, 64 usage, 130 interrupted",
        .options = import_rows, .n_options = ARRAY_SIZE(import_rows), REMOTE_COMMON, .argument = COMPLETE_FILE, .run = run_import,
};

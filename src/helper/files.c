/* files OPERATION [KEY=VALUE...] PATH [TO]
 *
 *     stat list move delete mkdir chmod search     the answer, one JSON object, on standard output
 *     write        standard input until its end, then one byte on FILES_COMMIT_FD: without that byte nothing is changed; answer as above
 *     read, pack   standard output begins with FILES_HEAD_SIZE bytes of JSON, padded with spaces; see files_read.c, files_pack.c
 *
 * `nolinks`: a link as any part of the path is refused.
 *
 * Exit status 0; FILES_FAILED with {"error","message"} on standard output (in the head, where there is one); 64 for bad arguments. */
#include <string.h>

#include "base/fs.h"
#include "base/utf8.h"
#include "helper/files.h"
#include "helper/verbs.h"

/* ---- answers ---- */

static const struct { int number; const char *code; } codes[] = {
        { ENOENT, "not_found" },       { ENOTDIR, "not_a_directory" },  { EISDIR, "is_a_directory" }, { EEXIST, "exists" },
        { ENOTEMPTY, "not_empty" },    { ELOOP, "too_many_links" },     { EXDEV, "cross_device" },    { ENOSPC, "disk_full" },
        { EDQUOT, "disk_full" },       { EACCES, "denied" },            { EPERM, "denied" },          { EROFS, "read_only" },
        { ENAMETOOLONG, "name_too_long" }, { EINVAL, "not_a_file" },    { EFBIG, "too_large" },       { E2BIG, "too_many" },
        { EBUSY, "busy" },             { ETXTBSY, "busy" },             { ECANCELED, "cancelled" },   { EBADMSG, "bad_pattern" },
};

static const char *text_of(int r) {
        switch (-r) {
        case EINVAL: return "neither a regular file nor a directory";
        case E2BIG: return "too many entries";
        case EBADMSG: return "not a regular expression";
        case ECANCELED: return "the bytes did not come whole";
        default: return strerror(-r);
        }
}

static int describe(int r, const char *about, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        char message[FILES_PATH_MAX + 128];
        const char *code = "internal";
        for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
                if (codes[i].number == -r)
                        code = codes[i].code;
        snprintf(message, sizeof message, "%s%s%s", about ? about : "", about ? ": " : "", text_of(r));
        json_begin_object(&w);
        json_field_text(&w, "error", code);
        json_field_string(&w, "message", message, strlen(message));
        json_end_object(&w);
        return json_finish(&w);
}

int files_describe(int r, struct buf *b) { return describe(r, NULL, b); }

int files_fail(int r, const char *about) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        if (describe(r, about, &b) == 0)
                (void)fs_write_all(1, b.data, b.len);
        return FILES_FAILED;
}

int files_answer(struct buf *b, struct json_writer *w) {
        int r = json_finish(w);
        if (r < 0)
                return files_fail(r == -ENOSPC ? -E2BIG : r, NULL);
        return fs_write_all(1, b->data, b->len) < 0;
}

static void put_base64(struct json_writer *w, const char *p, size_t n) {
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char out[(FILES_PATH_MAX + 4) / 3 * 4 + 4];
        size_t at = 0;
        for (size_t i = 0; i < n && at + 4 < sizeof out; i += 3) {
                uint32_t v = (uint32_t)(uint8_t)p[i] << 16 | (i + 1 < n ? (uint32_t)(uint8_t)p[i + 1] << 8 : 0) | (i + 2 < n ? (uint8_t)p[i + 2] : 0);
                out[at++] = digits[v >> 18];
                out[at++] = digits[v >> 12 & 63];
                out[at++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
                out[at++] = i + 2 < n ? digits[v & 63] : '=';
        }
        json_put_string(w, out, at);
}

void files_put_bytes(struct json_writer *w, const char *key, const char *p, size_t n) {
        char other[64];
        json_field_string(w, key, p, n);
        if (utf8_valid(p, n))
                return;
        snprintf(other, sizeof other, "%s_b64", key);
        json_put_key(w, other);
        put_base64(w, p, n);
}

static const char *type_of(mode_t mode) {
        switch (mode & S_IFMT) {
        case S_IFREG: return "file";
        case S_IFDIR: return "directory";
        case S_IFLNK: return "link";
        case S_IFIFO: return "fifo";
        case S_IFSOCK: return "socket";
        case S_IFCHR: case S_IFBLK: return "device";
        default: return "unknown";
        }
}

void files_put_facts(struct json_writer *w, const struct stat *st) {
        char mode[8];
        json_field_text(w, "type", type_of(st->st_mode));
        json_field_int(w, "size", st->st_size);
        snprintf(mode, sizeof mode, "%04o", (unsigned)(st->st_mode & 07777));
        json_field_text(w, "mode", mode);
        json_field_uint(w, "uid", st->st_uid);
        json_field_uint(w, "gid", st->st_gid);
        json_field_double(w, "mtime", (double)(st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000) / 1000);
}

void files_put_entry(struct json_writer *w, const char *key, const char *shown, int dir, const char *name, const struct stat *st) {
        char target[FILES_PATH_MAX + 1];
        files_put_bytes(w, key, shown, strlen(shown));
        files_put_facts(w, st);
        if (!S_ISLNK(st->st_mode))
                return;
        ssize_t n = readlinkat(dir, name, target, sizeof target);
        if (n >= 0)
                files_put_bytes(w, "target", target, (size_t)n);
}

/* ---- arguments ---- */

static const struct { const char *name; files_operation run; bool two; } operations[] = {
        { "stat", files_stat, false },     { "list", files_list, false },   { "move", files_move, true },     { "delete", files_delete, false },
        { "mkdir", files_mkdir, false },   { "chmod", files_chmod, false }, { "read", files_read, false },    { "write", files_write, false },
        { "search", files_search, false }, { "pack", files_pack, false },
};

static bool flag(const char *arg, const char *name, bool *at) {
        if (strcmp(arg, name) != 0)
                return false;
        return *at = true;
}

static bool number(const char *arg, const char *name, unsigned base, uint64_t *at) {
        size_t n = strlen(name);
        char *end;
        if (strncmp(arg, name, n) != 0 || arg[n] != '=' || arg[n + 1] < '0' || arg[n + 1] > '9')
                return false;
        errno = 0;
        *at = strtoull(arg + n + 1, &end, (int)base);
        return *end == 0 && errno == 0;
}

static bool text(const char *arg, const char *name, const char **at) {
        size_t n = strlen(name);
        if (strncmp(arg, name, n) != 0 || arg[n] != '=')
                return false;
        *at = arg + n + 1;
        return true;
}

static bool option(const char *s, struct files_args *a) {
        uint64_t v;
        if (flag(s, "parents", &a->parents) || flag(s, "recursive", &a->recursive) || flag(s, "replace", &a->replace) || flag(s, "append", &a->append) ||
            flag(s, "follow", &a->follow) || flag(s, "regex", &a->regex) || flag(s, "ignore-case", &a->ignore_case) || flag(s, "gzip", &a->gzip))
                return true;
        if (strcmp(s, "nolinks") == 0) {
                files_refuse_links();
                return true;
        }
        if (text(s, "after", &a->after) || text(s, "name", &a->name) || text(s, "text", &a->text))
                return true;
        if (number(s, "limit", 10, &a->limit) || number(s, "max", 10, &a->max))
                return true;
        if (number(s, "mode", 8, &v)) {
                a->mode = (mode_t)v & 07777;
                return a->mode_given = true;
        }
        if (number(s, "uid", 10, &v)) {
                a->uid = (uid_t)v;
                return a->owner_given = true;
        }
        if (number(s, "gid", 10, &v)) {
                a->gid = (gid_t)v;
                return a->owner_given = true;
        }
        if (number(s, "depth", 10, &v)) {
                a->depth = (unsigned)MIN2(v, (uint64_t)FILES_DEPTH_MAX);
                return true;
        }
        if (number(s, "level", 10, &v) && v <= 9) {
                a->level = (unsigned)v;
                return true;
        }
        return false;
}

/* Options come first; "--" ends them, so that a path may look like one. */
int verb_files(int argc, char **argv) {
        struct files_args a = { .limit = UINT64_MAX, .max = UINT64_MAX, .level = 1 };
        int at = 2;
        while (at < argc && strcmp(argv[at], "--") != 0)
                if (!option(argv[at++], &a))
                        return 64;
        at++;
        for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(operations); i++) {
                if (strcmp(argv[1], operations[i].name) != 0)
                        continue;
                if (argc - at != (operations[i].two ? 2 : 1))
                        return 64;
                a.path = argv[at];
                a.to = operations[i].two ? argv[at + 1] : NULL;
                if (strlen(a.path) > FILES_PATH_MAX || (a.to && strlen(a.to) > FILES_PATH_MAX))
                        return files_fail(-ENAMETOOLONG, NULL);
                return operations[i].run(&a);
        }
        return 64;
}

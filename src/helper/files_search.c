/* search: names by a pattern, lines by a text or an expression, below a directory or in one file. */
#include <dirent.h>
#include <fnmatch.h>
#include <regex.h>
#include <string.h>

#include "base/fs.h"
#include "helper/files.h"

struct search {
        const struct files_args *a;
        struct json_writer w;
        regex_t regex;
        size_t text_len;
        uint64_t left, scanned;
        uint64_t skipped;              /* too big, unreadable, too deep */
        bool more;
        char *bytes; size_t size;      /* space of the file that is looked into */
};

static void put_match(struct search *s, const char *path, int dir, const char *name, const struct stat *st) {
        json_begin_object(&s->w);
        files_put_entry(&s->w, "path", path, dir, name, st);
        json_end_object(&s->w);
}

static void put_line(struct search *s, const char *path, uint64_t line, uint64_t column, const char *p, size_t n) {
        json_begin_object(&s->w);
        files_put_bytes(&s->w, "path", path, strlen(path));
        json_field_uint(&s->w, "line", line);
        json_field_uint(&s->w, "column", column);
        json_field_string(&s->w, "text", p, MIN2(n, (size_t)FILES_LINE_MAX));
        json_end_object(&s->w);
}

static bool take(struct search *s) {
        if (s->left == 0)
                s->more = true;
        else
                s->left--;
        return !s->more;
}

/* ---- lines ---- */

/* Where in the line the text begins, or -1. */
static ssize_t find_in(struct search *s, const char *p, size_t n) {
        if (s->a->regex) {
                regmatch_t at = { .rm_so = 0, .rm_eo = (regoff_t)n };
                return regexec(&s->regex, p, 1, &at, REG_STARTEND) == 0 ? at.rm_so : -1;
        }
        if (!s->a->ignore_case) {
                const char *at = memmem(p, n, s->a->text, s->text_len);
                return at ? at - p : -1;
        }
        for (size_t i = 0; i + s->text_len <= n; i++)
                if (strncasecmp(p + i, s->a->text, s->text_len) == 0)
                        return (ssize_t)i;
        return -1;
}

static void look_into(struct search *s, const char *path, size_t n) {
        uint64_t line = 1;
        /* Plain text of which nothing is there is the usual case. */
        if (!s->a->regex && !s->a->ignore_case && !memmem(s->bytes, n, s->a->text, s->text_len))
                return;
        for (size_t at = 0; at < n && !s->more; line++) {
                const char *p = s->bytes + at, *end = memchr(p, '\n', n - at);
                size_t len = end ? (size_t)(end - p) : n - at;
                ssize_t found = find_in(s, p, len);
                if (found >= 0 && take(s)) {
                        /* Of a long line the part around what was found. */
                        size_t from = found > FILES_LINE_MAX / 2 ? (size_t)found - FILES_LINE_MAX / 4 : 0;
                        put_line(s, path, line, (uint64_t)found + 1, p + from, len - from);
                }
                at += len + 1;
        }
}

static int read_into(struct search *s, int dir, const char *name, size_t *ret_n) {
        struct stat st;
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILES_SEARCH_FILE_MAX || files_is_virtual(fd))
                return -EFBIG;
        if ((size_t)st.st_size + 1 > s->size) {
                char *more = realloc(s->bytes, (size_t)st.st_size + 1);
                if (!more)
                        return -ENOMEM;
                s->bytes = more;
                s->size = (size_t)st.st_size + 1;
        }
        size_t n = 0;
        while (n < (size_t)st.st_size) {
                ssize_t got = read(fd, s->bytes + n, (size_t)st.st_size - n);
                if (got <= 0)
                        break;
                n += (size_t)got;
        }
        s->bytes[n] = 0;
        *ret_n = n;
        return 0;
}

static void visit(struct search *s, const char *path, int dir, const char *name, const struct stat *st) {
        size_t n = 0;
        if (s->a->name && fnmatch(s->a->name, name, 0) != 0)
                return;
        if (!s->a->text) {
                if (take(s))
                        put_match(s, path, dir, name, st);
        } else if (S_ISREG(st->st_mode)) {
                if (read_into(s, dir, name, &n) < 0)
                        s->skipped++;
                else
                        look_into(s, path, n);
        }
}

/* ---- the tree ---- */

static void walk(struct search *s, int fd, const char *prefix, unsigned depth) {
        DIR *d = fdopendir(fd);
        if (!d) {
                fd_close(fd);
                s->skipped++;
                return;
        }
        for (struct dirent *de; !s->more && (de = readdir(d));) {
                char path[FILES_PATH_MAX + 260];
                struct stat st;
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                if (s->scanned++ > 1000000) {
                        s->more = true;
                        break;
                }
                if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                snprintf(path, sizeof path, "%s%s", prefix, de->d_name);
                visit(s, path, dirfd(d), de->d_name, &st);
                if (!S_ISDIR(st.st_mode))
                        continue;
                int below = depth == 0 || strlen(path) >= FILES_PATH_MAX ? -1 : openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (below >= 0 && files_is_virtual(below)) {
                        fd_close(below);
                        continue;
                }
                snprintf(path, sizeof path, "%s%s/", prefix, de->d_name);
                if (below < 0)
                        s->skipped++;
                else
                        walk(s, below, path, depth - 1);
        }
        closedir(d);
}

static int start(struct search *s) {
        char name[256];
        struct stat st;
        int fd = files_open_kind(s->a->path, O_RDONLY, S_IFDIR);
        if (fd >= 0) {
                walk(s, fd, "", FILES_DEPTH_MAX);
                return 0;
        }
        if (fd != -ENOTDIR)
                return fd;
        _cleanup_close_ int dir = files_open_target(s->a->path, NULL, name);
        if (dir < 0)
                return dir;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        visit(s, s->a->path, dir, name, &st);
        return 0;
}

int files_search(const struct files_args *a) {
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_ANSWER_MAX);
        struct search s = { .a = a, .w = JSON_WRITER(&b), .left = MIN2(a->limit, (uint64_t)FILES_FOUND_MAX), .text_len = a->text ? strlen(a->text) : 0 };
        if (a->text && a->regex && regcomp(&s.regex, a->text, REG_EXTENDED | (a->ignore_case ? REG_ICASE : 0)) != 0)
                return files_fail(-EBADMSG, a->text);
        json_begin_object(&s.w);
        json_put_key(&s.w, "matches");
        json_begin_array(&s.w);
        int r = start(&s);
        json_end_array(&s.w);
        json_field_bool(&s.w, "more", s.more);
        json_field_uint(&s.w, "skipped", s.skipped);
        json_end_object(&s.w);
        free(s.bytes);
        if (a->text && a->regex)
                regfree(&s.regex);
        return r < 0 ? files_fail(r, a->path) : files_answer(&b, &s.w);
}

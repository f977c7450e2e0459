/* Theory of operation. One pass over the lines: text that is no header is skipped (mail headers, prose), a section starts at
 * "diff --git" or at "---" / "+++" / "@@", its extended headers and names are read into a `struct patch_file`, then its hunks
 * (patch_hunk.c) or its binary body (patch_binary.c). Names are checked as soon as they are known: a patch that names what it
 * must not is refused whole. The rules are those of `git apply`; where repair is allowed, what git would refuse is read if it
 * has one meaning. */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "score/patch_name.h"
#include "score/patch_parse.h"

#define MODE_SUBMODULE 0160000u

/* A section while its header is read. Names are as written, prefix included. */
struct section {
        char *header_old, *header_new;   /* of "diff --git", when they could be told apart */
        char *minus, *plus;              /* of "---" and "+++"; "/dev/null" as it stands */
        char *from, *to;                 /* of rename or copy: never prefixed */
        bool created, deleted, renamed, copied, git, epoch_old, epoch_new;
        uint32_t line;
};

static void section_release(struct section *s) {
        free(s->header_old); free(s->header_new);
        free(s->minus); free(s->plus);
        free(s->from); free(s->to);
}

static void file_release(struct patch_file *f) {
        free(f->old_path);
        free(f->new_path);
        free(f->binary);
}

void patch_release(struct patch *p) {
        if (!p)
                return;
        for (size_t i = 0; i < p->n_files; i++)
                file_release(&p->files[i]);
        for (size_t i = 0; i < p->n_notes; i++)
                free(p->notes[i]);
        free(p->files);
        free(p->hunks);
        free(p->lines);
        free(p->notes);
        free(p->text);
        *p = (struct patch){ 0 };
}

int patch_note(struct patch *p, const char *fmt, ...) {
        char text[PATCH_PATH_MAX + 128];
        if (p->n_notes >= PATCH_NOTES_MAX)
                return 0;
        if (!p->notes && !(p->notes = calloc(PATCH_NOTES_MAX, sizeof *p->notes)))
                return -ENOMEM;
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        char *copy = strdup(text);
        if (!copy)
                return -ENOMEM;
        p->notes[p->n_notes++] = copy;
        return 0;
}

static int bad(struct patch_reader *rd, const char *what) {
        return error_say(rd->e, -EBADMSG, "%s at line %u of the patch", what, rd->line);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* The rest of the current line behind `prefix`, without newline. */
static const char *rest_of_line(const struct patch_reader *rd, size_t skip, size_t *ret_len) {
        size_t n = reader_line_len(rd, rd->at);
        if (n > 0 && rd->text[rd->at + n - 1] == '\n')
                n--;
        *ret_len = n > skip ? n - skip : 0;
        return rd->text + rd->at + MIN2(skip, n);
}

static int name_error(struct patch_reader *rd, int r) {
        if (r == -EPERM)
                return error_say(rd->e, r, "a name with a NUL byte at line %u of the patch", rd->line);
        if (r == -EBADMSG)
                return bad(rd, "a name with broken quoting");
        return error_set(rd->e, r, "reading the patch");
}

static bool is_dev_null(const char *name) { return name && strcmp(name, "/dev/null") == 0; }

static int read_name_line(struct patch_reader *rd, size_t skip, char **ret, bool *ret_epoch) {
        size_t len, used;
        const char *p = rest_of_line(rd, skip, &len);
        size_t plain = len > 0 && p[0] != '"' && !memchr(p, '\t', len) ? name_without_timestamp(p, len) : len;
        char *name = NULL;
        int r = name_read(p, plain, true, &name, &used);
        if (r < 0)
                return name_error(rd, r);
        if (ret_epoch) {   /* diff -N marks an absent file by the epoch, in whatever time zone */
                char stamp[12] = "";
                while (used < len && (p[used] == '\t' || p[used] == ' '))
                        used++;
                memcpy(stamp, p + used, MIN2(len - used, sizeof stamp - 1));
                *ret_epoch = strncmp(stamp, "1970-01-01 ", 11) == 0 || strncmp(stamp, "1969-12-31 ", 11) == 0;
        }
        free(*ret);
        *ret = name;
        return 0;
}

/* "a/x y b/x y": the split at which both halves name the same file. With quotes the first name tells where it ends. */
static int read_git_names(struct patch_reader *rd, struct section *s) {
        size_t len, used, second = 0;
        const char *p = rest_of_line(rd, strlen("diff --git "), &len);
        if (memchr(p, 0, len))
                return name_error(rd, -EPERM);
        if (len > 0 && p[0] == '"') {
                int r = name_read(p, len, false, &s->header_old, &used);
                if (r < 0)
                        return name_error(rd, r);
                second = used + 1;
        } else {
                for (size_t i = 1; i + 1 < len && second == 0; i++) {
                        if (p[i] != ' ')
                                continue;
                        const char *a = memchr(p, '/', i), *b = memchr(p + i + 1, '/', len - i - 1);
                        bool quoted = p[i + 1] == '"';
                        bool stripped = a && b && (size_t)(p + i - a) == (size_t)(p + len - b) && memcmp(a, b, (size_t)(p + i - a)) == 0;
                        bool whole = i == len - i - 1 && memcmp(p, p + i + 1, i) == 0;
                        if (quoted || stripped || whole)
                                second = i + 1;
                }
                if (second == 0)
                        return 0;
                s->header_old = strndup(p, second - 1);
                if (!s->header_old)
                        return name_error(rd, -ENOMEM);
        }
        if (second >= len)
                return 0;
        int r = name_read(p + second, len - second, false, &s->header_new, &used);
        return r < 0 ? name_error(rd, r) : 0;
}

/* What the name means in the tree: without its first component; with repair also as it stands when both sides agree on a
 * name without `a/` `b/`. NULL when nothing would be left. */
static const char *in_tree(const struct patch_reader *rd, const char *name, const char *other) {
        if (!name || is_dev_null(name))
                return NULL;
        if (rd->level == PATCH_PARSE_REPAIR) {
                bool lettered = name[0] && name[1] == '/' && strchr("abciwo", name[0]);
                if (!lettered && (!other || is_dev_null(other) || strcmp(name, other) == 0))
                        return name;
        }
        if (name[0] == '/')     /* never strip the slash of an absolute name into innocence */
                return name;
        return name_strip(name);
}

static int set_path(struct patch_reader *rd, char **slot, const char *name) {
        if (!name)
                return 0;
        const char *why = name_refusal(name);
        if (why)   /* the line is where the section starts */
                return error_say(rd->e, -EPERM, "the patch names \"%.200s\" at line %u, which is refused: %s", name, rd->patch->files[rd->patch->n_files - 1].line, why);
        *slot = strdup(name);
        return *slot ? 0 : error_set(rd->e, -ENOMEM, "reading the patch");
}

/* ---- extended headers ------------------------------------------------------------------------------------------- */

static int read_mode(struct patch_reader *rd, size_t skip, uint32_t *ret) {
        size_t len;
        const char *p = rest_of_line(rd, skip, &len);
        uint32_t mode = 0;
        size_t i = 0;
        for (; i < len && p[i] >= '0' && p[i] <= '7' && i < 7; i++)
                mode = mode * 8 + (uint32_t)(p[i] - '0');
        for (size_t j = i; j < len; j++)
                if (!strchr(" \r\t", p[j]))
                        return bad(rd, "a bad file mode");
        if (i == 0)
                return bad(rd, "a bad file mode");
        if (mode < 01000)
                mode |= S_IFREG;
        switch (mode & S_IFMT) {
        case S_IFREG: *ret = S_IFREG | (mode & 0100 ? 0755 : 0644); return 0;
        case S_IFLNK: *ret = S_IFLNK; return 0;
        case MODE_SUBMODULE: *ret = MODE_SUBMODULE; return 0;
        default: return error_say(rd->e, -EPERM, "file mode %o at line %u of the patch is refused", mode, rd->line);
        }
}

/* "index <old>..<new>[ mode]" */
static int read_index(struct patch_reader *rd, struct patch_file *f) {
        size_t len;
        const char *p = rest_of_line(rd, strlen("index "), &len), *dots = memmem(p, len, "..", 2);
        if (!dots)
                return 0;
        size_t old_len = (size_t)(dots - p), new_len = len - old_len - 2;
        const char *space = memchr(dots, ' ', new_len + 2);
        if (space)
                new_len = (size_t)(space - dots) - 2;
        if (old_len == 40 && new_len == 40) {
                memcpy(f->old_oid, p, 40);
                memcpy(f->new_oid, dots + 2, 40);
        }
        return space && !f->old_mode ? read_mode(rd, (size_t)(space + 1 - (rd->text + rd->at)), &f->old_mode) : 0;
}

enum header { H_OLD_MODE, H_NEW_MODE, H_DELETED, H_CREATED, H_COPY_FROM, H_COPY_TO, H_RENAME_FROM, H_RENAME_TO, H_RENAME_OLD, H_RENAME_NEW,
              H_SIMILARITY, H_DISSIMILARITY, H_INDEX, H_MINUS, H_PLUS, H_MAX };
static const char *const header_prefix[H_MAX] = {
        [H_OLD_MODE] = "old mode ", [H_NEW_MODE] = "new mode ", [H_DELETED] = "deleted file mode ", [H_CREATED] = "new file mode ",
        [H_COPY_FROM] = "copy from ", [H_COPY_TO] = "copy to ", [H_RENAME_FROM] = "rename from ", [H_RENAME_TO] = "rename to ",
        [H_RENAME_OLD] = "rename old ", [H_RENAME_NEW] = "rename new ", [H_SIMILARITY] = "similarity index ",
        [H_DISSIMILARITY] = "dissimilarity index ", [H_INDEX] = "index ", [H_MINUS] = "--- ", [H_PLUS] = "+++ ",
};

static int read_extended(struct patch_reader *rd, enum header h, struct section *s, struct patch_file *f) {
        size_t skip = strlen(header_prefix[h]);
        switch (h) {
        case H_OLD_MODE: return read_mode(rd, skip, &f->old_mode);
        case H_NEW_MODE: return read_mode(rd, skip, &f->new_mode);
        case H_DELETED: s->deleted = true; return read_mode(rd, skip, &f->old_mode);
        case H_CREATED: s->created = true; return read_mode(rd, skip, &f->new_mode);
        case H_COPY_FROM: s->copied = true; return read_name_line(rd, skip, &s->from, NULL);
        case H_RENAME_FROM: case H_RENAME_OLD: s->renamed = true; return read_name_line(rd, skip, &s->from, NULL);
        case H_COPY_TO: case H_RENAME_TO: case H_RENAME_NEW: return read_name_line(rd, skip, &s->to, NULL);
        case H_INDEX: return read_index(rd, f);
        case H_MINUS: return read_name_line(rd, skip, &s->minus, &s->epoch_old);
        case H_PLUS: return read_name_line(rd, skip, &s->plus, &s->epoch_new);
        default: return 0;
        }
}

static int read_headers(struct patch_reader *rd, struct section *s, struct patch_file *f) {
        while (rd->at < rd->len) {
                enum header h = 0;
                while (h < H_MAX && !reader_starts(rd, rd->at, header_prefix[h]))
                        h++;
                if (h == H_MAX || (h == H_MINUS && s->minus) || (h == H_PLUS && s->plus))
                        return 0;
                int r = read_extended(rd, h, s, f);
                if (r < 0)
                        return r;
                reader_next(rd);
                if (h == H_PLUS)
                        return 0;
        }
        return 0;
}

/* ---- a section ------------------------------------------------------------------------------------------------------- */

/* In a plain diff both names are the same file; the shorter is right when the other only has something appended (".orig"). */
static const char *plain_name(const char *old, const char *new) {
        size_t n = strlen(old);
        return n < strlen(new) && strncmp(old, new, n) == 0 ? old : new;
}

static const char *plain_in_tree(const struct patch_reader *rd, const char *name, const char *other) {
        return is_dev_null(name) ? NULL : strchr(name, '/') ? in_tree(rd, name, other) : name;
}

static int resolve_plain(struct patch_reader *rd, struct section *s, struct patch_file *f) {
        const char *old = s->epoch_old ? NULL : plain_in_tree(rd, s->minus, s->plus), *new = s->epoch_new ? NULL : plain_in_tree(rd, s->plus, s->minus);
        f->kind = old && new ? PATCH_MODIFY : new ? PATCH_CREATE : PATCH_DELETE;
        if (!old && !new)
                return bad(rd, "a section without a file name");
        if (old && new)
                old = new = plain_name(old, new);
        f->maybe_create = f->kind == PATCH_MODIFY;   /* settled when the hunks are known */
        int r = set_path(rd, &f->old_path, old);
        return r < 0 ? r : set_path(rd, &f->new_path, new);
}

/* Names of "---" and "+++" must agree with what the header said; /dev/null only where a file appears or goes. */
static int check_git_names(struct patch_reader *rd, const struct section *s, const struct patch_file *f) {
        if (rd->level == PATCH_PARSE_REPAIR)
                return 0;
        const char *old = in_tree(rd, s->minus, s->plus), *new = in_tree(rd, s->plus, s->minus);
        if (s->minus && (f->old_path ? !old || strcmp(old, f->old_path) != 0 : !is_dev_null(s->minus)))
                return bad(rd, "an old file name that does not agree with the header");
        if (s->plus && (f->new_path ? !new || strcmp(new, f->new_path) != 0 : !is_dev_null(s->plus)))
                return bad(rd, "a new file name that does not agree with the header");
        return 0;
}

static const char *git_side(const struct patch_reader *rd, const char *line, const char *line_other, const char *header, const char *header_other) {
        const char *name = in_tree(rd, line, line_other);
        return name ? name : in_tree(rd, header, header_other);
}

static int resolve_git(struct patch_reader *rd, struct section *s, struct patch_file *f) {
        if (rd->level == PATCH_PARSE_REPAIR && !s->renamed && !s->copied) {
                s->created |= is_dev_null(s->minus) && !is_dev_null(s->plus);
                s->deleted |= is_dev_null(s->plus) && !is_dev_null(s->minus);
        }
        if (s->created + s->deleted + s->renamed + s->copied > 1)
                return bad(rd, "a section that says two different things about its file");
        f->kind = s->created ? PATCH_CREATE : s->deleted ? PATCH_DELETE : s->renamed ? PATCH_RENAME : s->copied ? PATCH_COPY : PATCH_MODIFY;
        const char *old, *new;
        if (s->renamed || s->copied) {
                old = s->from;
                new = s->to;
        } else {
                old = s->created ? NULL : git_side(rd, s->minus, s->plus, s->header_old, s->header_new);
                new = s->deleted ? NULL : git_side(rd, s->plus, s->minus, s->header_new, s->header_old);
        }
        if ((!old && !s->created) || (!new && !s->deleted))
                return bad(rd, "a section without a file name");
        if (f->kind == PATCH_MODIFY && strcmp(old, new) != 0)
                return bad(rd, "a section with two file names that is no rename");
        int r = set_path(rd, &f->old_path, old);
        if (r == 0)
                r = set_path(rd, &f->new_path, new);
        return r < 0 ? r : check_git_names(rd, s, f);
}

static struct patch_file *add_file(struct patch_reader *rd) {
        struct patch *pt = rd->patch;
        if (pt->n_files == pt->files_alloc) {
                size_t n = MAX2(pt->files_alloc * 2, (size_t)8);
                struct patch_file *grown = realloc(pt->files, n * sizeof *grown);
                if (!grown)
                        return NULL;
                pt->files = grown;
                pt->files_alloc = n;
        }
        struct patch_file *f = &pt->files[pt->n_files++];
        *f = (struct patch_file){ .line = rd->line, .first = pt->n_hunks };
        return f;
}

static void drop_file(struct patch *pt) {
        struct patch_file *f = &pt->files[--pt->n_files];
        pt->n_hunks = f->first;
        file_release(f);
}

static const char *file_name(const struct patch_file *f) { return f->new_path ? f->new_path : f->old_path; }

/* The hunks of the section against what its header says. */
static int check_hunks(struct patch_reader *rd, struct patch_file *f) {
        const struct patch_hunk *h = rd->patch->hunks + f->first;
        uint64_t old_lines = 0, new_lines = 0;
        for (size_t i = 0; i < f->n; i++) {
                old_lines += h[i].old_count;
                new_lines += h[i].new_count;
        }
        f->maybe_create = f->maybe_create && old_lines == 0 && f->n == 1;
        if (f->kind == PATCH_CREATE && old_lines > 0)
                return error_say(rd->e, -EBADMSG, "%s: the new file's section at line %u depends on old contents", file_name(f), f->line);
        if (f->kind == PATCH_DELETE && new_lines > 0)
                return error_say(rd->e, -EBADMSG, "%s: the deleted file's section at line %u leaves contents", file_name(f), f->line);
        return 0;
}

static int read_binary(struct patch_reader *rd, struct patch_file *f, bool *ret_drop) {
        if (reader_starts(rd, rd->at, "GIT binary patch")) {
                reader_next(rd);
                return patch_parse_binary(rd->text, rd->len, &rd->at, &rd->line, f, rd->e);
        }
        if (reader_starts(rd, rd->at, "Binary files ") || reader_starts(rd, rd->at, "Files ")) {
                *ret_drop = true;
                int r = patch_note(rd->patch, "%s: binary contents are not in the patch; its section was left out", file_name(f));
                return r < 0 ? error_set(rd->e, r, "reading the patch") : 0;
        }
        bool meta = f->kind != PATCH_MODIFY || (f->new_mode && f->new_mode != f->old_mode);
        return meta ? 0 : error_say(rd->e, -EBADMSG, "%s: the section at line %u changes nothing", file_name(f), f->line);
}

/* By its mode, or by its lines where the mode was lost: a submodule has no other contents. */
static bool is_submodule(const struct patch *pt, const struct patch_file *f) {
        static const char mark[] = "Subproject commit ";
        if (f->old_mode == MODE_SUBMODULE || f->new_mode == MODE_SUBMODULE)
                return true;
        if (f->n != 1)
                return false;
        const struct patch_hunk *h = &pt->hunks[f->first];
        for (size_t i = h->first; i < h->first + h->n; i++)
                if (pt->lines[i].len < sizeof mark || memcmp(pt->lines[i].p, mark, sizeof mark - 1) != 0)
                        return false;
        return h->n <= 2;
}

static int read_body(struct patch_reader *rd, struct patch_file *f) {
        const char *mark = rd->level == PATCH_PARSE_STRICT ? "@@ -" : "@@";
        bool drop = false;
        int r = 0;
        while (r == 0 && reader_starts(rd, rd->at, mark))
                r = reader_hunk(rd, file_name(f));
        if (r < 0)
                return r;
        f->n = rd->patch->n_hunks - f->first;
        r = f->n > 0 ? check_hunks(rd, f) : read_binary(rd, f, &drop);
        if (r < 0)
                return r;
        if (!drop && is_submodule(rd->patch, f)) {
                drop = true;
                r = patch_note(rd->patch, "%s: a submodule; its section was left out", file_name(f));
        }
        if (drop)
                drop_file(rd->patch);
        return r;
}

static int read_section(struct patch_reader *rd, bool git) {
        CLEANUP(section_release) struct section s = { .git = git, .line = rd->line };
        if (rd->patch->n_files >= PATCH_FILES_MAX)
                return error_say(rd->e, -EPERM, "the patch touches more than %u files (line %u)", PATCH_FILES_MAX, rd->line);
        struct patch_file *f = add_file(rd);
        if (!f)
                return error_set(rd->e, -ENOMEM, "reading the patch");
        int r = git ? read_git_names(rd, &s) : 0;
        if (r < 0)
                return r;
        if (git)
                reader_next(rd);
        size_t before = rd->at;
        r = read_headers(rd, &s, f);
        if (r < 0)
                return r;
        if (git && rd->at == before && !(rd->level == PATCH_PARSE_REPAIR && reader_starts(rd, rd->at, "@@"))) {
                drop_file(rd->patch);   /* a lone "diff --git" line is prose */
                return 0;
        }
        r = git ? resolve_git(rd, &s, f) : resolve_plain(rd, &s, f);
        return r < 0 ? r : read_body(rd, f);
}

static int read_all(struct patch_reader *rd) {
        bool any = false;
        while (rd->at < rd->len) {
                int r;
                if (reader_starts(rd, rd->at, "diff --git "))
                        r = read_section(rd, true);
                else if (reader_plain_header_at(rd, rd->at))
                        r = read_section(rd, false);
                else if (reader_starts(rd, rd->at, "@@ -"))
                        return bad(rd, "a hunk without a file header");
                else if (reader_starts(rd, rd->at, "Submodule ") && memmem(rd->text + rd->at, reader_line_len(rd, rd->at), "..", 2)) {
                        r = patch_note(rd->patch, "a submodule's log at line %u; it was left out", rd->line);
                        reader_next(rd);
                }
                else {
                        reader_next(rd);
                        continue;
                }
                if (r < 0)
                        return r;
                any |= rd->patch->n_files > 0 || rd->patch->n_notes > 0;
        }
        return any ? 0 : error_say(rd->e, -EBADMSG, "this is not a patch: no file header in %zu bytes", rd->len);
}

int patch_parse(const char *text, size_t len, enum patch_level level, struct patch *ret, struct error *e) {
        struct patch p = { 0 };
        if (len > PATCH_BYTES_MAX)
                return error_say(e, -EPERM, "the patch has more than %u bytes", PATCH_BYTES_MAX);
        int r = patch_normalise(text, len, level, &p.text, &p.len, &p.repaired);
        if (r < 0)
                return error_set(e, r, "reading the patch");
        struct patch_reader rd = { .text = p.text, .len = p.len, .line = 1, .level = level, .patch = &p, .e = e };
        r = read_all(&rd);
        if (r < 0) {
                patch_release(&p);
                return r;
        }
        *ret = p;
        return 0;
}

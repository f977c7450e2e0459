/* Hunks: the header's numbers, the body by those numbers, and, where they are wrong and repair is allowed, by its shape. */
#include <ctype.h>
#include <string.h>

#include "score/patch_parse.h"

#define BLANKS_LOST_MAX 3u       /* trailing blank context lines that may have been cut off */

size_t reader_line_len(const struct patch_reader *rd, size_t at) {
        if (at >= rd->len)
                return 0;
        const char *nl = memchr(rd->text + at, '\n', rd->len - at);
        return nl ? (size_t)(nl - (rd->text + at)) + 1 : rd->len - at;
}

bool reader_starts(const struct patch_reader *rd, size_t at, const char *prefix) {
        size_t n = strlen(prefix);
        return at <= rd->len && rd->len - at >= n && memcmp(rd->text + at, prefix, n) == 0;
}

void reader_next(struct patch_reader *rd) {
        rd->at += reader_line_len(rd, rd->at);
        rd->line++;
}

bool reader_plain_header_at(const struct patch_reader *rd, size_t at) {
        if (!reader_starts(rd, at, "--- "))
                return false;
        size_t second = at + reader_line_len(rd, at);
        if (!reader_starts(rd, second, "+++ "))
                return false;
        return reader_starts(rd, second + reader_line_len(rd, second), rd->level == PATCH_PARSE_STRICT ? "@@ -" : "@@");
}

static bool read_number(const char **p, const char *end, uint32_t *ret) {
        uint64_t v = 0;
        const char *start = *p;
        for (; *p < end && isdigit((unsigned char)**p); (*p)++) {
                v = v * 10 + (uint64_t)(**p - '0');
                if (v > INT32_MAX)
                        return false;
        }
        *ret = (uint32_t)v;
        return *p > start;
}

static bool read_range(const char **p, const char *end, char sign, uint32_t *ret_start, uint32_t *ret_count) {
        if (*p >= end || **p != sign)
                return false;
        (*p)++;
        if (!read_number(p, end, ret_start))
                return false;
        *ret_count = 1;
        if (*p < end && **p == ',') {
                (*p)++;
                return read_number(p, end, ret_count);
        }
        return true;
}

static bool read_header(const struct patch_reader *rd, struct patch_hunk *h) {
        const char *p = rd->text + rd->at, *end = p + reader_line_len(rd, rd->at);
        if (end - p < 4 || memcmp(p, "@@ ", 3) != 0)
                return false;
        p += 3;
        if (!read_range(&p, end, '-', &h->old_start, &h->old_count) || p >= end || *p++ != ' ' ||
            !read_range(&p, end, '+', &h->new_start, &h->new_count))
                return false;
        return end - p >= 3 && memcmp(p, " @@", 3) == 0;
}

static int add_line(struct patch_reader *rd, const char *p, size_t len, enum patch_line_kind kind, bool guessed) {
        struct patch *pt = rd->patch;
        if (pt->n_lines >= PATCH_LINES_MAX)
                return error_say(rd->e, -EPERM, "the patch has more than %u lines in hunks (line %u)", PATCH_LINES_MAX, rd->line);
        if (pt->n_lines == pt->lines_alloc) {
                size_t n = MAX2(pt->lines_alloc * 2, (size_t)64);
                struct patch_line *grown = realloc(pt->lines, n * sizeof *grown);
                if (!grown)
                        return error_set(rd->e, -ENOMEM, "reading the patch");
                pt->lines = grown;
                pt->lines_alloc = n;
        }
        pt->lines[pt->n_lines++] = (struct patch_line){ .p = p, .len = (uint32_t)len, .kind = (uint8_t)kind, .guessed = guessed };
        return 0;
}

/* "\ No newline at end of file" (in any language): the line before it has no newline. */
static bool is_incomplete_mark(const struct patch_reader *rd, size_t at) {
        return reader_line_len(rd, at) >= 12 && reader_starts(rd, at, "\\ ");
}

static void drop_newline(struct patch *pt, size_t first) {
        if (pt->n_lines > first) {
                struct patch_line *l = &pt->lines[pt->n_lines - 1];
                if (l->len > 0 && l->p[l->len - 1] == '\n')
                        l->len--;
        }
}

static bool is_blank(const struct patch_reader *rd, size_t at) {
        return at < rd->len && rd->text[at] == '\n';
}

/* A mail's signature: "-- ", the version, then nothing or the next mail. */
static bool is_signature(const struct patch_reader *rd, size_t at) {
        if (!reader_starts(rd, at, "-- \n") && !reader_starts(rd, at, "--\n"))
                return false;
        at += reader_line_len(rd, at);
        if (at < rd->len && !isdigit((unsigned char)rd->text[at]))
                return false;
        at += reader_line_len(rd, at);
        while (is_blank(rd, at))
                at++;
        return at >= rd->len || reader_starts(rd, at, "From ");
}

/* Does the line at `at` read as part of a hunk (blank lines apart)? */
static bool is_body(const struct patch_reader *rd, size_t at) {
        if (at >= rd->len || !memchr(" +-", rd->text[at], 3))
                return false;
        return !reader_plain_header_at(rd, at) && !is_signature(rd, at);
}

/* One body line by its first byte; false when it is none. */
static bool line_kind(char c, enum patch_line_kind *ret) {
        switch (c) {
        case ' ': case '\n': *ret = PATCH_LINE_CONTEXT; return true;
        case '-': *ret = PATCH_LINE_DELETE; return true;
        case '+': *ret = PATCH_LINE_ADD; return true;
        default: return false;
        }
}

static int take_line(struct patch_reader *rd, enum patch_line_kind kind, bool guessed) {
        const char *p = rd->text + rd->at;
        size_t len = reader_line_len(rd, rd->at);
        int r = *p == '\n' ? add_line(rd, p, 1, kind, guessed) : add_line(rd, p + 1, len - 1, kind, guessed);
        if (r == 0)
                reader_next(rd);
        return r;
}

/* The body by the header's numbers. 0, or -EBADMSG without a message: the numbers and the lines disagree. */
static int read_counted(struct patch_reader *rd, struct patch_hunk *h) {
        uint32_t old_left = h->old_count, new_left = h->new_count;
        bool changed = false;
        while (old_left > 0 || new_left > 0) {
                enum patch_line_kind kind;
                size_t len = reader_line_len(rd, rd->at);
                if (len == 0 || rd->text[rd->at + len - 1] != '\n')
                        return -EBADMSG;
                if (is_incomplete_mark(rd, rd->at)) {
                        drop_newline(rd->patch, h->first);
                        reader_next(rd);
                        continue;
                }
                if (!line_kind(rd->text[rd->at], &kind))
                        return -EBADMSG;
                if ((kind != PATCH_LINE_ADD && old_left == 0) || (kind != PATCH_LINE_DELETE && new_left == 0))
                        return -EBADMSG;
                old_left -= kind != PATCH_LINE_ADD;
                new_left -= kind != PATCH_LINE_DELETE;
                changed |= kind != PATCH_LINE_CONTEXT;
                int r = take_line(rd, kind, false);
                if (r < 0)
                        return r;
        }
        if (is_incomplete_mark(rd, rd->at)) {
                drop_newline(rd->patch, h->first);
                reader_next(rd);
        }
        /* More body behind the last counted line: git would drop it without a word. */
        size_t next = rd->at;
        while (rd->level == PATCH_PARSE_REPAIR && is_blank(rd, next))
                next++;
        return !changed || is_body(rd, next) ? -EBADMSG : 0;
}

static int add_lost_blanks(struct patch_reader *rd, struct patch_hunk *h, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                int r = add_line(rd, "\n", 1, PATCH_LINE_CONTEXT, true);
                if (r < 0)
                        return r;
        }
        h->old_count += n;
        h->new_count += n;
        return 0;
}

/* The body by its shape. Blank lines at its end may be context or mere spacing, and blank context may have been cut off:
 * both are marked as guesses, and matching decides. */
static int read_shaped(struct patch_reader *rd, struct patch_hunk *h) {
        uint32_t said_old = h->old_count, said_new = h->new_count;
        struct patch *pt = rd->patch;
        h->old_count = h->new_count = 0;
        for (;;) {
                enum patch_line_kind kind;
                if (is_incomplete_mark(rd, rd->at)) {
                        drop_newline(pt, h->first);
                        reader_next(rd);
                        continue;
                }
                if (!is_body(rd, rd->at) && !is_blank(rd, rd->at))
                        break;
                if (!line_kind(rd->text[rd->at], &kind))
                        break;
                h->old_count += kind != PATCH_LINE_ADD;
                h->new_count += kind != PATCH_LINE_DELETE;
                int r = take_line(rd, kind, false);
                if (r < 0)
                        return r;
        }
        for (size_t i = pt->n_lines; i > h->first && pt->lines[i - 1].kind == PATCH_LINE_CONTEXT && pt->lines[i - 1].len == 1 &&
                                     pt->lines[i - 1].p[0] == '\n' && (pt->lines[i - 1].p == pt->text || pt->lines[i - 1].p[-1] == '\n'); i--)
                pt->lines[i - 1].guessed = true;
        if (said_old > h->old_count && said_old - h->old_count == said_new - h->new_count && said_old - h->old_count <= BLANKS_LOST_MAX)
                return add_lost_blanks(rd, h, said_old - h->old_count);
        return 0;
}

static void count_context(const struct patch *pt, struct patch_hunk *h) {
        size_t end = h->first + h->n, i;
        for (i = h->first; i < end && pt->lines[i].kind == PATCH_LINE_CONTEXT; i++)
                h->leading++;
        for (i = end; i > h->first && pt->lines[i - 1].kind == PATCH_LINE_CONTEXT; i--)
                h->trailing++;
}

static int add_hunk(struct patch_reader *rd, const struct patch_hunk *h) {
        struct patch *pt = rd->patch;
        if (pt->n_hunks >= PATCH_HUNKS_MAX)
                return error_say(rd->e, -EPERM, "the patch has more than %u hunks (line %u)", PATCH_HUNKS_MAX, h->line);
        if (pt->n_hunks == pt->hunks_alloc) {
                size_t n = MAX2(pt->hunks_alloc * 2, (size_t)8);
                struct patch_hunk *grown = realloc(pt->hunks, n * sizeof *grown);
                if (!grown)
                        return error_set(rd->e, -ENOMEM, "reading the patch");
                pt->hunks = grown;
                pt->hunks_alloc = n;
        }
        pt->hunks[pt->n_hunks++] = *h;
        return 0;
}

int reader_hunk(struct patch_reader *rd, const char *path) {
        struct patch *pt = rd->patch;
        struct patch_hunk h = { .first = pt->n_lines, .line = rd->line };
        bool repair = rd->level == PATCH_PARSE_REPAIR, numbered = read_header(rd, &h);
        if (!numbered && !repair)
                return error_say(rd->e, -EBADMSG, "%s: bad hunk header at line %u", path, h.line);
        h.no_position = !numbered;
        reader_next(rd);
        size_t body = rd->at;
        uint32_t body_line = rd->line;
        int r = numbered ? read_counted(rd, &h) : -EBADMSG;
        if (r == -EBADMSG && repair) {
                pt->n_lines = h.first;
                rd->at = body;
                rd->line = body_line;
                h.repaired = pt->repaired = true;
                r = read_shaped(rd, &h);
        }
        if (r == -EBADMSG)
                return error_say(rd->e, r, "%s: the hunk at line %u does not have the lines its header says (line %u)", path, h.line, rd->line);
        if (r < 0)
                return r;
        h.n = pt->n_lines - h.first;
        count_context(pt, &h);
        if (h.leading == h.n)
                return error_say(rd->e, -EBADMSG, "%s: the hunk at line %u changes nothing", path, h.line);
        return add_hunk(rd, &h);
}

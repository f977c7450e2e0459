/* Theory of operation. A hunk has an old side (context and deleted lines) that must be found among the file's lines, and a list
 * of what to do there. `git apply` looks for the nearest place from the stated line outwards and takes the first; that is the
 * strict rung, kept to the letter so that both accept the same. Every other rung demands more: the stated place, or the only one
 * in the file, because a repair that could mean two things is no repair. Lines that a hunk wrote are not matched again. */
#include <string.h>

#include "score/diff.h"
#include "score/patch_image.h"

struct matcher {
        const struct patch *patch;
        const struct patch_file *file;
        struct image image;
        struct image_line *old; size_t n_old;     /* old side of the current hunk */
        bool ambiguous;                           /* the current hunk fits in several places: nothing looser may choose one */
        uint64_t *work;
        struct error *e;
};

#define NO_PLACE ((size_t)-1)
#define TWO_PLACES ((size_t)-2)

static bool spend(struct matcher *m, uint64_t steps) {
        if (*m->work < steps) {
                *m->work = 0;
                return false;
        }
        *m->work -= steps;
        return true;
}

static bool fits(struct matcher *m, size_t at, const struct image_line *old, size_t n, enum compare how) {
        if (n > m->image.n || at > m->image.n - n)
                return false;
        for (size_t i = 0; i < n; i++) {
                (void)spend(m, 1);
                if (m->image.v[at + i].patched || !image_same(&m->image.v[at + i], &old[i], how))
                        return false;
        }
        return true;
}

/* git's search: from `line` one step down, one up, and so on. */
static size_t find_nearest(struct matcher *m, size_t line, bool at_start, bool at_end) {
        size_t n = m->image.n;
        if (m->n_old > n)
                return NO_PLACE;
        if (at_start)
                line = 0;
        else if (at_end)
                line = n - m->n_old;
        line = MIN2(line, n);
        for (size_t step = 0; step <= n; step++) {
                if (!spend(m, 2))
                        return NO_PLACE;
                for (int back = 0; back < (step ? 2 : 1); back++) {
                        if (back ? step > line : line + step > n)
                                continue;
                        size_t at = back ? line - step : line + step;
                        if ((at_start && at != 0) || (at_end && at + m->n_old != n))
                                continue;
                        if (fits(m, at, m->old, m->n_old, COMPARE_EXACT))
                                return at;
                }
        }
        return NO_PLACE;
}

static size_t find_only(struct matcher *m, const struct image_line *old, size_t n, enum compare how) {
        size_t found = NO_PLACE;
        for (size_t at = 0; n > 0 && n <= m->image.n && at <= m->image.n - n; at++) {
                if (!spend(m, 1))
                        return NO_PLACE;
                if (!fits(m, at, old, n, how))
                        continue;
                if (found != NO_PLACE)
                        return TWO_PLACES;
                found = at;
        }
        return found;
}

static int load_old_side(struct matcher *m, const struct patch_hunk *h) {
        free(m->old);
        m->n_old = 0;
        m->old = calloc(h->n + 1, sizeof *m->old);
        if (!m->old)
                return -ENOMEM;
        for (size_t i = h->first; i < h->first + h->n; i++) {
                const struct patch_line *l = &m->patch->lines[i];
                if (l->kind != PATCH_LINE_ADD)
                        m->old[m->n_old++] = image_line(l->p, l->len);
        }
        return 0;
}

/* Where the hunk says it belongs in the file as earlier hunks left it. An empty new side is numbered by the line before it. */
static size_t stated_line(const struct patch_hunk *h) { return h->new_count == 0 ? h->new_start : h->new_start ? h->new_start - 1 : 0; }

/* Added lines take the file's line ends where the file has one kind only and the match ignored them. */
static uint8_t line_end_for(const struct matcher *m, enum compare how, bool old_crlf) {
        if (how != COMPARE_END)
                return LINE_AS_IS;
        return m->image.crlf ? LINE_TO_CRLF : m->image.lf && old_crlf ? LINE_TO_LF : LINE_AS_IS;
}

/* Puts the hunk's new side at `at`, leaving out `skip` lines of its start and `cut` of its end (all of them context). */
static int put(struct matcher *m, const struct patch_hunk *h, size_t at, size_t skip, size_t cut, enum compare how) {
        _cleanup_free_ struct image_line *v = calloc(h->n + 1, sizeof *v);
        size_t n = 0, from = at;
        bool crlf = false;
        if (!v)
                return error_set(m->e, -ENOMEM, "applying a hunk");
        for (size_t i = h->first; i < h->first + h->n && !crlf; i++)
                crlf = m->patch->lines[i].len >= 2 && m->patch->lines[i].p[m->patch->lines[i].len - 2] == '\r';
        for (size_t i = h->first + skip; i < h->first + h->n - cut; i++) {
                const struct patch_line *l = &m->patch->lines[i];
                if (l->kind == PATCH_LINE_CONTEXT)
                        v[n++] = m->image.v[from++];
                else if (l->kind == PATCH_LINE_DELETE)
                        from++;
                else {
                        v[n] = image_line(l->p, l->len);
                        v[n++].end = line_end_for(m, how, crlf);
                }
        }
        for (size_t i = 0; i < n; i++)
                v[i].patched = true;
        if (!spend(m, (m->image.n - from) / 16 + 1))
                return -EPERM;
        int r = image_replace(&m->image, at, from - at, v, n);
        return r < 0 ? error_set(m->e, r, "applying a hunk") : 0;
}

static int no_place(struct matcher *m, const struct patch_hunk *h, bool two) {
        const char *path = m->file->old_path ? m->file->old_path : m->file->new_path;
        if (*m->work == 0)
                return -EPERM;
        return error_say(m->e, -EBADMSG, "%s: the hunk at line %u of the patch (line %u of the file) %s", path, h->line, h->old_start,
                         two ? "fits in more than one place" : "does not apply");
}

/* git's rule: a hunk that starts at line 1 belongs to the start, one without context behind its changes to the end. One exception:
 * what has no context at all (diff -U0) goes to the end of the file for git, if it can, wherever it says it belongs. */
static size_t find_as_git(struct matcher *m, const struct patch_hunk *h) {
        size_t from = h->new_start ? h->new_start - 1 : 0, at = find_nearest(m, from, h->old_start <= 1, h->trailing == 0);
        return h->leading + h->trailing == 0 && at != stated_line(h) ? NO_PLACE : at;
}

static int hunk_strict(struct matcher *m, const struct patch_hunk *h) {
        size_t at = find_as_git(m, h);
        return at == NO_PLACE ? no_place(m, h, false) : put(m, h, at, 0, 0, COMPARE_EXACT);
}

/* Blank lines at the hunk's end that may be mere spacing. */
static size_t guessed_tail(const struct matcher *m, const struct patch_hunk *h) {
        size_t n = 0;
        while (n < h->n && m->patch->lines[h->first + h->n - 1 - n].guessed)
                n++;
        return n;
}

/* The stated place, by old or by new numbers, else the only one. */
static size_t find_stated_or_only(struct matcher *m, const struct patch_hunk *h, size_t skip, size_t n, enum compare how) {
        if (!h->no_position && n > 0) {
                size_t a = stated_line(h) + skip, b = (h->old_start ? h->old_start - 1 : 0) + skip;
                if (fits(m, a, m->old + skip, n, how))
                        return a;
                if (fits(m, b, m->old + skip, n, how))
                        return b;
        }
        return find_only(m, m->old + skip, n, how);
}

/* Nothing to be found: into an empty file, or, when the numbers hold (diff -U0), where they say. */
static int hunk_without_context(struct matcher *m, const struct patch_hunk *h) {
        size_t at = m->image.n == 0 ? 0 : stated_line(h);
        bool sure = m->image.n == 0 || (!h->repaired && at <= m->image.n);
        return sure ? put(m, h, at, 0, 0, COMPARE_EXACT) : no_place(m, h, false);
}

static int hunk_tolerant(struct matcher *m, const struct patch_hunk *h, enum compare most) {
        static const enum compare order[] = { COMPARE_EXACT, COMPARE_END, COMPARE_SPACE };
        m->ambiguous = false;
        if (!h->repaired) {
                size_t at = find_as_git(m, h);
                if (at != NO_PLACE)
                        return put(m, h, at, 0, 0, COMPARE_EXACT);
        }
        if (m->n_old == 0)
                return hunk_without_context(m, h);
        size_t guessed = guessed_tail(m, h);
        for (size_t i = 0; i < ARRAY_SIZE(order) && order[i] <= most; i++) {
                if (order[i] == COMPARE_END && !m->image.crlf && !m->image.lf)
                        continue;      /* line ends of both kinds: which one is meant cannot be known */
                for (size_t cut = 0; cut <= guessed && cut < m->n_old; cut++) {
                        size_t at = find_stated_or_only(m, h, 0, m->n_old - cut, order[i]);
                        if (at == TWO_PLACES)
                                m->ambiguous = true;
                        else if (at != NO_PLACE)
                                return put(m, h, at, 0, cut, order[i]);
                }
        }
        return no_place(m, h, m->ambiguous);
}

static int hunk_fuzzy(struct matcher *m, const struct patch_hunk *h) {
        int r = hunk_tolerant(m, h, COMPARE_SPACE);
        if (r != -EBADMSG || m->n_old == 0 || m->ambiguous)
                return r;
        for (size_t fuzz = 1; fuzz <= PATCH_FUZZ_MAX; fuzz++) {
                size_t skip = MIN2(fuzz, (size_t)h->leading), cut = MIN2(fuzz, (size_t)h->trailing);
                if (skip + cut >= m->n_old)
                        break;
                for (enum compare how = COMPARE_EXACT; how <= COMPARE_SPACE; how++) {
                        size_t at = find_stated_or_only(m, h, skip, m->n_old - skip - cut, how);
                        if (at < TWO_PLACES)
                                return put(m, h, at, skip, cut, how);
                }
        }
        return r;
}

/* ---- three-way ------------------------------------------------------------------------------------------------------ */

/* Partner in the file of each line of the old side, NO_PLACE for none: an alignment with the window around the stated place. */
static int align(struct matcher *m, const struct patch_hunk *h, size_t *partner) {
        size_t stated = MIN2(stated_line(h), m->image.n), from = stated > PATCH_MERGE_WINDOW ? stated - PATCH_MERGE_WINDOW : 0;
        size_t to = MIN2(m->image.n, stated + m->n_old + PATCH_MERGE_WINDOW), w = to - from;
        if (m->n_old > 4 * PATCH_MERGE_WINDOW)
                return -EBADMSG;
        _cleanup_free_ uint32_t *ids = calloc(m->n_old + w + 1, sizeof *ids);
        _cleanup_free_ bool *changed = calloc(m->n_old + w + 1, sizeof *changed);
        if (!ids || !changed)
                return -ENOMEM;
        for (size_t i = 0; i < m->n_old; i++)
                for (size_t k = 0; k <= i && !ids[i]; k++)
                        if (k == i || image_same(&m->old[k], &m->old[i], COMPARE_EXACT))
                                ids[i] = (uint32_t)k + 1;
        for (size_t i = 0; i < w; i++) {
                ids[m->n_old + i] = (uint32_t)(m->n_old + i) + 1;
                for (size_t k = 0; k < m->n_old && !m->image.v[from + i].patched; k++)
                        if (image_same(&m->old[k], &m->image.v[from + i], COMPARE_EXACT)) {
                                ids[m->n_old + i] = ids[k];
                                break;
                        }
        }
        (void)spend(m, (uint64_t)m->n_old * (w + 1));
        int r = diff_ids(ids, m->n_old, ids + m->n_old, w, changed, changed + m->n_old);
        for (size_t i = 0, j = 0; r == 0 && i < m->n_old; i++) {
                partner[i] = NO_PLACE;
                if (changed[i])
                        continue;
                while (changed[m->n_old + j])
                        j++;
                partner[i] = from + j++;
        }
        return r;
}

/* One run of deleted and added lines, deleted ones old[o..o+dels): where it goes, if the file's own changes do not touch it.
 * Its deleted lines lie together, and a line of context next to it lies next to it. */
static size_t group_place(const struct matcher *m, const size_t *partner, size_t o, size_t dels, bool before, bool after) {
        for (size_t i = 1; i < dels; i++)
                if (partner[o] == NO_PLACE || partner[o + i] != partner[o] + i)
                        return NO_PLACE;
        size_t up = before && o > 0 ? partner[o - 1] : NO_PLACE, down = after && o + dels < m->n_old ? partner[o + dels] : NO_PLACE;
        if (dels == 0) {   /* between two lines that still are neighbours: one line alone does not say on which side */
                bool whole = up != NO_PLACE && down != NO_PLACE && down == up + 1;
                return whole ? down : NO_PLACE;
        }
        if (partner[o] == NO_PLACE)
                return NO_PLACE;
        bool joined = (up != NO_PLACE && up + 1 == partner[o]) || (down != NO_PLACE && down == partner[o] + dels);
        return joined ? partner[o] : NO_PLACE;
}

struct group { size_t at, dels, first, n; };   /* added lines: patch lines [first, first + n) */

static int find_groups(struct matcher *m, const struct patch_hunk *h, const size_t *partner, struct group *g, size_t *ret_n) {
        const struct patch_line *l = m->patch->lines + h->first;
        size_t o = 0, n = 0, kept = 0;
        for (size_t i = 0; i < h->n;) {
                if (l[i].kind == PATCH_LINE_CONTEXT) {
                        kept += partner[o++] != NO_PLACE;
                        i++;
                        continue;
                }
                size_t start = i, dels = 0, adds = 0;
                for (; i < h->n && l[i].kind == PATCH_LINE_DELETE; i++)
                        dels++;
                size_t first_add = i;
                for (; i < h->n && l[i].kind == PATCH_LINE_ADD; i++)
                        adds++;
                bool before = start > 0 && l[start - 1].kind == PATCH_LINE_CONTEXT, after = i < h->n && l[i].kind == PATCH_LINE_CONTEXT;
                size_t at = group_place(m, partner, o, dels, before, after);
                if (at == NO_PLACE)
                        return -EBADMSG;
                g[n++] = (struct group){ at, dels, h->first + first_add, adds };
                o += dels;
                kept += dels;
        }
        *ret_n = n;
        return kept * 2 >= m->n_old ? 0 : -EBADMSG;
}

static int hunk_merge(struct matcher *m, const struct patch_hunk *h) {
        int r = hunk_tolerant(m, h, COMPARE_SPACE);
        if (r != -EBADMSG || m->n_old == 0 || m->ambiguous || h->no_position)
                return r;
        _cleanup_free_ size_t *partner = calloc(m->n_old, sizeof *partner);
        _cleanup_free_ struct group *g = calloc(h->n, sizeof *g);
        _cleanup_free_ struct image_line *v = calloc(h->n, sizeof *v);
        if (!partner || !g || !v)
                return error_set(m->e, -ENOMEM, "applying a hunk");
        size_t n = 0;
        int found = align(m, h, partner);
        if (found == 0)
                found = find_groups(m, h, partner, g, &n);
        if (found < 0)
                return found == -EBADMSG ? r : error_set(m->e, found, "applying a hunk");
        while (n-- > 0) {   /* from the back, so that places in front stay right */
                for (size_t i = 0; i < g[n].n; i++) {
                        const struct patch_line *l = &m->patch->lines[g[n].first + i];
                        v[i] = image_line(l->p, l->len);
                        v[i].patched = true;
                }
                r = image_replace(&m->image, g[n].at, g[n].dels, v, g[n].n);
                if (r < 0)
                        return error_set(m->e, r, "applying a hunk");
        }
        return 0;
}

static int apply_hunk(struct matcher *m, const struct patch_hunk *h, enum patch_rung rung) {
        int r = load_old_side(m, h);
        if (r < 0)
                return error_set(m->e, r, "applying a hunk");
        switch (rung) {
        case RUNG_STRICT: return hunk_strict(m, h);
        case RUNG_RECOUNT: return hunk_tolerant(m, h, COMPARE_END);
        case RUNG_WHITESPACE: return hunk_tolerant(m, h, COMPARE_SPACE);
        case RUNG_THREE_WAY: return hunk_merge(m, h);
        default: return hunk_fuzzy(m, h);
        }
}

int patch_match(const struct patch *p, const struct patch_file *f, enum patch_rung rung, const char *text, size_t len,
                uint64_t *work, char **ret, size_t *ret_len, struct error *e) {
        struct matcher m = { .patch = p, .file = f, .work = work, .e = e };
        int r = image_split(&m.image, text, len);
        if (r < 0)
                error_set(e, r, "applying a hunk");
        for (size_t i = f->first; i < f->first + f->n && r == 0; i++)
                r = apply_hunk(&m, &p->hunks[i], rung);
        if (r == 0) {
                r = image_join(&m.image, ret, ret_len);
                if (r == -ENOMEM)
                        error_set(e, r, "applying a hunk");
        }
        const char *path = f->new_path ? f->new_path : f->old_path;
        if (r == -EFBIG)
                r = error_say(e, -EPERM, "%s: more than %u bytes", path, PATCH_FILE_BYTES_MAX);
        else if (r == -EPERM)
                error_say(e, r, "%s: takes too long to apply", path);
        free(m.old);
        image_release(&m.image);
        return r;
}

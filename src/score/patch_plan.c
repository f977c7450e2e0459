/* Sections are worked off in order over a map of what the patch has made so far. As in git, a section reads what earlier ones
 * made of its file, but the source of a rename or copy is always the original, and a path that some section takes away may be
 * made anew by another whatever their order. Only when every section has worked are parents checked and the plan given out. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "score/patch_match.h"
#include "score/patch_plan.h"

struct planner {
        struct patch *patch;
        enum patch_rung rung;
        const struct patch_source *src;
        struct patch_plan plan;
        size_t *slots; size_t n_slots;     /* open addressing: index into items + 1 */
        char **leaving;                    /* sorted: paths that some section deletes or renames away */
        size_t n_leaving;
        uint64_t work;
        struct error *e;
};

void plan_release(struct patch_plan *p) {
        if (!p)
                return;
        for (size_t i = 0; i < p->n; i++) {
                free(p->items[i].path);
                entry_release(&p->items[i].now);
        }
        for (size_t i = 0; i < p->n_notes; i++)
                free(p->notes[i]);
        free(p->items);
        free(p->notes);
        *p = (struct patch_plan){ 0 };
}

static int by_path(const void *a, const void *b) {
        return strcmp(((const struct plan_item *)a)->path, ((const struct plan_item *)b)->path);
}

const struct plan_item *plan_find(const struct patch_plan *p, const char *path) {
        struct plan_item key = { .path = (char *)(uintptr_t)path };
        return p->n ? bsearch(&key, p->items, p->n, sizeof key, by_path) : NULL;
}

static int oom(struct planner *pl) { return error_set(pl->e, -ENOMEM, "applying the patch"); }

static size_t *slot_of(struct planner *pl, const char *path) {
        uint32_t h = 2166136261u;
        for (const char *c = path; *c; c++)
                h = (h ^ (unsigned char)*c) * 16777619u;
        size_t at = h & (pl->n_slots - 1);
        while (pl->slots[at] && strcmp(pl->plan.items[pl->slots[at] - 1].path, path) != 0)
                at = (at + 1) & (pl->n_slots - 1);
        return &pl->slots[at];
}

static struct plan_item *lookup(struct planner *pl, const char *path) {
        size_t slot = *slot_of(pl, path);
        return slot ? &pl->plan.items[slot - 1] : NULL;
}

/* Makes `now` (taken over) the state of path. */
static int assign(struct planner *pl, const char *path, struct entry *now) {
        size_t *slot = slot_of(pl, path);
        pl->plan.bytes += now->len;
        if (pl->plan.bytes > PATCH_TOTAL_BYTES_MAX)
                return error_say(pl->e, -EPERM, "%s: the patch writes more than %u bytes", path, PATCH_TOTAL_BYTES_MAX);
        if (!*slot) {
                char *copy = strdup(path);
                if (!copy)
                        return oom(pl);
                pl->plan.items[pl->plan.n] = (struct plan_item){ .path = copy };   /* two for each section were allocated */
                *slot = ++pl->plan.n;
        }
        struct plan_item *it = &pl->plan.items[*slot - 1];
        entry_release(&it->now);
        if (now->data)
                now->data[now->len] = 0;       /* every maker left room: the target of a link is a string */
        it->now = *now;
        *now = (struct entry){ 0 };
        return 0;
}

static int by_string(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_leaving(const struct planner *pl, const char *path) {
        return pl->n_leaving && bsearch(&path, pl->leaving, pl->n_leaving, sizeof *pl->leaving, by_string);
}

static int copy_entry(const struct entry *from, struct entry *ret) {
        char *data = NULL;
        if (from->data) {
                data = malloc(from->len + 1);
                if (!data)
                        return -ENOMEM;
                memcpy(data, from->data, from->len);
                data[from->len] = 0;
        }
        *ret = *from;
        ret->data = data;
        return 0;
}

/* State of path: what the patch made of it, else the tree's. */
static int current(struct planner *pl, const char *path, bool original, struct entry *ret) {
        struct plan_item *it = original ? NULL : lookup(pl, path);
        int r = it ? copy_entry(&it->now, ret) : pl->src->read(pl->src->user, path, ret);
        if (r == -EFBIG)
                return error_say(pl->e, -EPERM, "%s: more than %u bytes", path, PATCH_FILE_BYTES_MAX);
        return r < 0 ? error_set(pl->e, r, "read %s", path) : 0;
}

static const char *const in_the_way[ENTRY_TYPE_MAX] = {
        [ENTRY_ABSENT] = "does not exist", [ENTRY_FILE] = "is a file", [ENTRY_LINK] = "is a symbolic link", [ENTRY_DIR] = "is a directory",
        [ENTRY_OTHER] = "is neither file nor link", [ENTRY_BEHIND_LINK] = "lies behind a symbolic link", [ENTRY_BEHIND_FILE] = "lies below a file",
};

static int in_way(struct planner *pl, const struct patch_file *f, const char *path, const struct entry *en, const char *more) {
        return error_say(pl->e, en->type == ENTRY_BEHIND_LINK ? -EPERM : -EBADMSG, "%s: %s%s (line %u of the patch)", path, in_the_way[en->type], more, f->line);
}

static bool is_absent(enum entry_type t) { return t == ENTRY_ABSENT || t == ENTRY_BEHIND_FILE; }

/* May the section make `path`? Checked against the tree and the patch so far. */
static int check_new(struct planner *pl, const struct patch_file *f, const char *path) {
        CLEANUP(entry_release) struct entry en = { 0 };
        struct plan_item *made = lookup(pl, path);
        if (made && made->now.type != ENTRY_ABSENT)
                return error_say(pl->e, -EPERM, "%s: made twice by the patch (line %u)", path, f->line);
        if (made || is_leaving(pl, path))
                return 0;
        int r = current(pl, path, true, &en);
        if (r < 0)
                return r;
        /* A directory may yet be emptied by the patch; writing finds out. Parents are checked at the end. */
        if (is_absent(en.type) || en.type == ENTRY_DIR || en.type == ENTRY_BEHIND_LINK)
                return 0;
        return in_way(pl, f, path, &en, " already");
}

/* ---- contents ---------------------------------------------------------------------------------------------------------- */

static int apply_binary(struct planner *pl, const struct patch_file *f, const struct entry *old, struct entry *ret) {
        const char *name = f->new_path ? f->new_path : f->old_path;
        char oid[41];
        if (!f->old_oid[0])
                return error_say(pl->e, -EBADMSG, "%s: a binary patch without the full hashes of its index line (line %u)", name, f->line);
        if (f->kind != PATCH_CREATE) {
                patch_blob_oid(old->data, old->len, oid);
                if (strcmp(oid, f->old_oid) != 0)
                        return error_say(pl->e, -EBADMSG, "%s: the binary patch at line %u is for other contents (%.40s)", name, f->line, f->old_oid);
        }
        int r = 0;
        if (f->method == PATCH_BINARY_LITERAL) {
                ret->data = malloc(f->binary_len + 1);
                if (!ret->data)
                        return oom(pl);
                memcpy(ret->data, f->binary, f->binary_len);
                ret->len = f->binary_len;
        } else
                r = patch_delta_apply(f->binary, f->binary_len, old->data ? old->data : "", old->len, &ret->data, &ret->len);
        if (r == -ENOMEM)
                return oom(pl);
        if (r == 0 && f->kind != PATCH_DELETE) {
                patch_blob_oid(ret->data, ret->len, oid);
                r = strcmp(oid, f->new_oid) == 0 ? 0 : -EBADMSG;
        }
        return r < 0 ? error_say(pl->e, r, "%s: the binary patch at line %u is damaged", name, f->line) : 0;
}

static int new_contents(struct planner *pl, const struct patch_file *f, const struct entry *old, struct entry *ret) {
        if (f->method != PATCH_BINARY_NONE)
                return apply_binary(pl, f, old, ret);
        if (f->n == 0) {
                struct entry copy = { 0 };
                if (copy_entry(old, &copy) < 0)
                        return oom(pl);
                ret->data = copy.data;
                ret->len = copy.len;
                return 0;
        }
        return patch_match(pl->patch, f, pl->rung, old->data ? old->data : "", old->len, &pl->work, &ret->data, &ret->len, pl->e);
}

static int new_type(struct planner *pl, const struct patch_file *f, const struct entry *old, struct entry *ret) {
        uint32_t mode = f->new_mode ? f->new_mode : f->kind == PATCH_CREATE ? S_IFREG | 0644 : 0;
        enum entry_type said = S_ISLNK(mode) ? ENTRY_LINK : ENTRY_FILE, was = S_ISLNK(f->old_mode) ? ENTRY_LINK : ENTRY_FILE;
        if (f->kind != PATCH_CREATE && f->old_mode && was != old->type)
                return in_way(pl, f, f->old_path, old, ", the patch says otherwise");
        if (mode && f->kind != PATCH_CREATE && said != old->type)
                return in_way(pl, f, f->old_path, old, " and cannot change its type");
        ret->type = mode ? said : old->type;
        ret->exec = mode ? ret->type == ENTRY_FILE && (mode & 0100) : old->exec;
        if (ret->type == ENTRY_LINK && (ret->len == 0 || ret->len > 4095 || memchr(ret->data, 0, ret->len)))
                return error_say(pl->e, -EPERM, "%s: a link whose target is empty, too long or holds a NUL (line %u)", f->new_path, f->line);
        return 0;
}

/* ---- one section -------------------------------------------------------------------------------------------------------- */

static int plan_create(struct planner *pl, struct patch_file *f) {
        CLEANUP(entry_release) struct entry none = { 0 }, now = { 0 };
        int r = check_new(pl, f, f->new_path);
        if (r == 0) r = new_contents(pl, f, &none, &now);
        if (r == 0) r = new_type(pl, f, &none, &now);
        return r == 0 ? assign(pl, f->new_path, &now) : r;
}

static int plan_change(struct planner *pl, struct patch_file *f) {
        CLEANUP(entry_release) struct entry old = { 0 }, now = { 0 }, gone = { 0 };
        bool moves = f->kind == PATCH_RENAME || f->kind == PATCH_COPY;
        int r = current(pl, f->old_path, moves, &old);
        if (r < 0)
                return r;
        if (f->maybe_create && is_absent(old.type)) {
                f->kind = PATCH_CREATE;
                return plan_create(pl, f);
        }
        if (old.type != ENTRY_FILE && old.type != ENTRY_LINK)
                return in_way(pl, f, f->old_path, &old, "");
        if (moves && strcmp(f->old_path, f->new_path) != 0 && (r = check_new(pl, f, f->new_path)) < 0)
                return r;
        r = new_contents(pl, f, &old, &now);
        if (r == 0 && f->kind == PATCH_DELETE && now.len > 0)
                return error_say(pl->e, -EBADMSG, "%s: deleted by the patch (line %u) but has more contents than it says", f->old_path, f->line);
        if (r == 0 && f->kind != PATCH_DELETE) r = new_type(pl, f, &old, &now);
        if (r == 0 && f->kind == PATCH_RENAME && strcmp(f->old_path, f->new_path) != 0 && !lookup(pl, f->old_path)) r = assign(pl, f->old_path, &gone);
        if (r < 0)
                return r;
        return f->kind == PATCH_DELETE ? assign(pl, f->old_path, &gone) : assign(pl, f->new_path, &now);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------ */

/* Nothing may be written below a link or a file, whether the tree has it there or the patch puts it there. */
static int check_parents(struct planner *pl, const struct plan_item *it) {
        char path[PATCH_PATH_MAX + 1];
        CLEANUP(entry_release) struct entry en = { 0 };
        if (it->now.type == ENTRY_ABSENT)
                return 0;
        for (const char *slash = strchr(it->path, '/'); slash; slash = strchr(slash + 1, '/')) {
                size_t n = (size_t)(slash - it->path);
                memcpy(path, it->path, n);
                path[n] = 0;
                struct plan_item *up = lookup(pl, path);
                if (up && up->now.type != ENTRY_ABSENT)
                        return error_say(pl->e, -EPERM, "%s: the patch writes below %s, which it makes a %s", it->path, path, up->now.type == ENTRY_LINK ? "symbolic link" : "file");
                if (up)
                        return 0;      /* it was in the way and goes: nothing of the tree lies below */
        }
        int r = current(pl, it->path, true, &en);
        if (r < 0)
                return r;
        if (en.type == ENTRY_BEHIND_LINK || en.type == ENTRY_BEHIND_FILE)
                return error_say(pl->e, en.type == ENTRY_BEHIND_LINK ? -EPERM : -EBADMSG, "%s: %s", it->path, in_the_way[en.type]);
        return 0;
}

static int prepare(struct planner *pl) {
        size_t n = pl->patch->n_files;
        pl->n_slots = 16;
        while (pl->n_slots < n * 4)
                pl->n_slots *= 2;
        pl->slots = calloc(pl->n_slots, sizeof *pl->slots);
        pl->plan.items = calloc(2 * n + 1, sizeof *pl->plan.items);
        pl->leaving = calloc(n + 1, sizeof *pl->leaving);
        if (!pl->slots || !pl->plan.items || !pl->leaving)
                return oom(pl);
        for (size_t i = 0; i < n; i++) {
                const struct patch_file *f = &pl->patch->files[i];
                if (f->kind == PATCH_DELETE || f->kind == PATCH_RENAME)
                        pl->leaving[pl->n_leaving++] = f->old_path;
        }
        if (pl->n_leaving)
                qsort(pl->leaving, pl->n_leaving, sizeof *pl->leaving, by_string);
        return 0;
}

static int plan_sections(struct planner *pl) {
        int r = prepare(pl);
        for (size_t i = 0; i < pl->patch->n_files && r == 0; i++) {
                struct patch_file *f = &pl->patch->files[i];
                r = f->kind == PATCH_CREATE ? plan_create(pl, f) : plan_change(pl, f);
        }
        for (size_t i = 0; i < pl->plan.n && r == 0; i++)
                r = check_parents(pl, &pl->plan.items[i]);
        if (r == 0 && pl->plan.n)
                qsort(pl->plan.items, pl->plan.n, sizeof *pl->plan.items, by_path);
        return r;
}

/* Turns the patch around: for telling whether it has been applied before. Binary sections cannot be turned. */
static int turn_around(struct patch *p, struct error *e) {
        for (size_t i = 0; i < p->n_files; i++) {
                struct patch_file *f = &p->files[i];
                char *path = f->old_path;
                uint32_t mode = f->old_mode;
                if (f->method != PATCH_BINARY_NONE || f->kind == PATCH_COPY)
                        return error_say(e, -EBADMSG, "not reversible");
                f->old_path = f->new_path; f->new_path = path;
                f->old_mode = f->new_mode; f->new_mode = mode;
                f->kind = f->kind == PATCH_CREATE ? PATCH_DELETE : f->kind == PATCH_DELETE ? PATCH_CREATE : f->kind;
                f->maybe_create = false;
        }
        for (size_t i = 0; i < p->n_hunks; i++) {
                struct patch_hunk *h = &p->hunks[i];
                uint32_t start = h->old_start, count = h->old_count;
                h->old_start = h->new_start; h->old_count = h->new_count;
                h->new_start = start; h->new_count = count;
        }
        for (size_t i = 0; i < p->n_lines; i++)
                if (p->lines[i].kind != PATCH_LINE_CONTEXT)
                        p->lines[i].kind = p->lines[i].kind == PATCH_LINE_ADD ? PATCH_LINE_DELETE : PATCH_LINE_ADD;
        return 0;
}

int patch_plan_rung(const char *text, size_t len, enum patch_rung rung, bool reverse, const struct patch_source *src,
                    struct patch_plan *ret, struct error *e) {
        CLEANUP(patch_release) struct patch patch = { 0 };
        int r = patch_parse(text, len, rung == RUNG_STRICT ? PATCH_PARSE_STRICT : PATCH_PARSE_REPAIR, &patch, e);
        if (r == 0 && reverse)
                r = turn_around(&patch, e);
        if (r < 0)
                return r;
        struct planner pl = { .patch = &patch, .rung = rung, .src = src, .work = PATCH_WORK_MAX, .e = e };
        r = plan_sections(&pl);
        free(pl.slots);
        free(pl.leaving);
        if (r < 0) {
                plan_release(&pl.plan);
                return r;
        }
        pl.plan.rung = rung;
        pl.plan.notes = TAKE_PTR(patch.notes);
        pl.plan.n_notes = patch.n_notes;
        patch.n_notes = 0;
        *ret = pl.plan;
        return 0;
}

static bool is_empty(const char *text, size_t len) {
        for (size_t i = 0; i < len; i++)
                if (!isspace((unsigned char)text[i]))
                        return false;
        return true;
}

int patch_plan(const char *text, size_t len, enum patch_mode mode, const struct patch_source *src, struct patch_plan *ret, struct error *e) {
        static const enum patch_rung last[PATCH_MODE_MAX] = { [PATCH_STRICT] = RUNG_STRICT, [PATCH_REPAIR] = RUNG_RECOUNT, [PATCH_LADDER] = RUNG_FUZZY };
        struct error why = { 0 };
        int r = 0;
        if (is_empty(text, len)) {
                *ret = (struct patch_plan){ .rung = RUNG_STRICT };
                return 0;
        }
        for (enum patch_rung rung = RUNG_STRICT; rung <= last[mode]; rung++) {
                r = patch_plan_rung(text, len, rung, false, src, ret, &why);
                if (r != -EBADMSG)
                        break;
        }
        if (r == 0)
                return 0;
        struct patch_plan back = { 0 };
        struct error ignored;
        if (r == -EBADMSG && patch_plan_rung(text, len, mode == PATCH_STRICT ? RUNG_STRICT : RUNG_RECOUNT, true, src, &back, &ignored) == 0) {
                plan_release(&back);
                return error_say(e, r, "already applied (it applies in reverse): %s", why.text);
        }
        return error_say(e, r, "%s", why.text);
}

int patch_paths(const char *text, size_t len, char ***ret, struct error *e) {
        CLEANUP(patch_release) struct patch p = { 0 };
        _cleanup_strv_ char **v = NULL;
        size_t n = 0, out = 0;
        int r = strv_ensure(&v);
        if (r == 0 && !is_empty(text, len)) {
                r = patch_parse(text, len, PATCH_PARSE_STRICT, &p, e);
                if (r == -EBADMSG)
                        r = patch_parse(text, len, PATCH_PARSE_REPAIR, &p, e);
                if (r < 0)
                        return r;
        }
        for (size_t i = 0; i < p.n_files && r == 0; i++) {
                const struct patch_file *f = &p.files[i];
                if (f->old_path)
                        r = strv_append_take(&v, &n, strdup(f->old_path));
                if (r == 0 && f->new_path)
                        r = strv_append_take(&v, &n, strdup(f->new_path));
        }
        if (r < 0)
                return error_set(e, r, "reading the patch");
        strv_sort(v);
        for (size_t i = 0; i < n; i++) {
                if (out > 0 && strcmp(v[out - 1], v[i]) == 0)
                        free(v[i]);
                else
                        v[out++] = v[i];
        }
        v[out] = NULL;
        *ret = TAKE_PTR(v);
        return 0;
}

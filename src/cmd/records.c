#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "cmd/records.h"

struct reading {
        const char *path;
        record_problem problem; void *user;
        struct records *to;
        size_t alloc;
        const char *counted; size_t line;      /* `line` is of `counted` */
        size_t taken;                          /* parts that were JSON at all */
};

static void tell(struct reading *rd, size_t line, const char *text) { rd->problem(rd->path, line, text, rd->user); }

/* Asked for in rising order. */
static size_t line_of(struct reading *rd, const char *p) {
        for (; rd->counted < p; rd->counted++)
                rd->line += *rd->counted == '\n';
        return rd->line;
}

/* ---- ids ------------------------------------------------------------------------------------------------------------------------- */

static bool text_of(const struct json *v, const char *key, char ret[static RECORD_ID_MAX + 1]) {
        struct json m;
        _cleanup_buf_ struct buf b = BUF_INIT(RECORD_ID_MAX);
        if (!json_get(v, key, &m))
                return false;
        if (m.type == JSON_NUMBER)
                return buf_add(&b, m.p, m.n) == 0 && snprintf(ret, RECORD_ID_MAX + 1, "%s", buf_str(&b)) > 0;
        if (json_string(&m, &b) < 0 || b.len == 0 || memchr(b.data, 0, b.len))
                return false;
        snprintf(ret, RECORD_ID_MAX + 1, "%s", buf_str(&b));
        return true;
}

static bool find_id(const struct json *v, const struct json *key, char ret[static RECORD_ID_MAX + 1]) {
        char org[RECORD_ID_MAX + 1], repo[RECORD_ID_MAX + 1], number[RECORD_ID_MAX + 1];
        _cleanup_buf_ struct buf b = BUF_INIT(RECORD_ID_MAX);
        if (text_of(v, "instance_id", ret))
                return true;
        if (text_of(v, "org", org) && text_of(v, "repo", repo) && text_of(v, "number", number))
                return snprintf(ret, RECORD_ID_MAX + 1, "%s__%s-%s", org, repo, number) <= RECORD_ID_MAX;
        if (!key || json_string(key, &b) < 0 || b.len == 0 || memchr(b.data, 0, b.len))
                return false;
        snprintf(ret, RECORD_ID_MAX + 1, "%s", buf_str(&b));
        return true;
}

static int add(struct reading *rd, const struct json *v, const struct json *key) {
        struct records *to = rd->to;
        size_t line = line_of(rd, v->p);
        char id[RECORD_ID_MAX + 1];
        if (v->type != JSON_OBJECT && !(key && (v->type == JSON_STRING || v->type == JSON_NULL))) {
                tell(rd, line, "not an object");
                return 0;
        }
        if (!find_id(v, key, id)) {
                tell(rd, line, "no usable 'instance_id'");
                return 0;
        }
        if (to->n == rd->alloc) {
                size_t alloc = MAX2((size_t)256, rd->alloc * 2);
                struct record *more = reallocarray(to->v, alloc, sizeof *more);
                if (!more)
                        return -ENOMEM;
                to->v = more;
                rd->alloc = alloc;
        }
        struct record *r = &to->v[to->n];
        *r = (struct record){ .id = strdup(id), .line = line, .v = *v };
        to->n += r->id != NULL;
        return r->id ? 0 : -ENOMEM;
}

/* ---- the forms of a file ------------------------------------------------------------------------------------------------------------ */

static int add_document(struct reading *rd, const struct json *doc) {
        struct json key, item;
        struct json_iter it = json_iter(doc);
        char id[RECORD_ID_MAX + 1];
        int r = 0;
        rd->taken++;
        if (doc->type == JSON_ARRAY)
                while (r == 0 && json_next_item(&it, &item))
                        r = add(rd, &item, NULL);
        else if (doc->type != JSON_OBJECT || find_id(doc, NULL, id))
                r = add(rd, doc, NULL);
        else
                while (r == 0 && json_next_member(&it, &key, &item))
                        r = add(rd, &item, &key);
        return r;
}

static int add_lines(struct reading *rd, const char *p, size_t n) {
        struct json v;
        struct error why;
        char text[sizeof why.text + 32];
        int r = 0;
        for (const char *end = p + n; p < end && r == 0;) {
                const char *lf = memchr(p, '\n', (size_t)(end - p)), *stop = lf ? lf : end;
                size_t len = (size_t)(stop - p);
                if (strspn(p, " \t\r") >= len)
                        ;
                else if (json_parse(p, len, &v, &why) == 0) {
                        rd->taken++;
                        r = add(rd, &v, NULL);
                } else {
                        snprintf(text, sizeof text, "not JSON: %s", why.text);
                        tell(rd, line_of(rd, p), text);
                }
                p = stop + 1;
        }
        return r;
}

/* Is it one text over several lines that is broken somewhere, or are there lines? Lines are whole records. */
static bool begins_as_lines(const char *p, size_t n) {
        const char *lf = memchr(p, '\n', n), *end = p + n;
        struct json v;
        for (; p < end; p = lf ? lf + 1 : end, lf = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL)
                if (json_parse(p, (size_t)((lf ? lf : end) - p), &v, NULL) == 0 && v.type == JSON_OBJECT)
                        return true;
        return false;
}

static int add_file(struct reading *rd, struct error *e) {
        const char *p = buf_str(&rd->to->file);
        size_t n = rd->to->file.len;
        struct json doc;
        struct error why;
        if (n >= 2 && (memcmp(p, "\xff\xfe", 2) == 0 || memcmp(p, "\xfe\xff", 2) == 0))
                return error_say(e, -EINVAL, "%s: UTF-16; UTF-8 is wanted", rd->path);
        if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
                p += 3, n -= 3;
        rd->counted = p;
        rd->line = 1;
        if (json_parse(p, n, &doc, &why) == 0)
                return add_document(rd, &doc);
        if (!begins_as_lines(p, n))
                return error_say(e, -EINVAL, "%s: neither JSON nor JSON lines: %s", rd->path, why.text);
        return add_lines(rd, p, n);
}

/* ---- by id --------------------------------------------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b) {
        const struct record *x = *(struct record *const *)a, *y = *(struct record *const *)b;
        int r = strcmp(x->id, y->id);
        return r ? r : x < y ? -1 : x > y;
}

static int sort(struct records *r) {
        free(r->by_id);
        r->by_id = calloc(r->n + 1, sizeof *r->by_id);
        if (!r->by_id)
                return -ENOMEM;
        for (size_t i = 0; i < r->n; i++)
                r->by_id[i] = &r->v[i];
        qsort(r->by_id, r->n, sizeof *r->by_id, by_id);
        return 0;
}

/* Takes out all but the first of an id. */
static int keep_first(struct reading *rd) {
        struct records *r = rd->to;
        char text[RECORD_ID_MAX + 80];
        int x = sort(r);
        if (x < 0)
                return x;
        const char *first = NULL;
        size_t first_line = 0, kept = 0;
        for (size_t i = 0; i < r->n; i++) {
                struct record *at = r->by_id[i];
                if (!first || strcmp(first, at->id) != 0) {
                        first = at->id;
                        first_line = at->line;
                        continue;
                }
                snprintf(text, sizeof text, "a second record of %s (the first: line %zu)", at->id, first_line);
                tell(rd, at->line, text);
                at->line = 0;
        }
        for (size_t i = 0; i < r->n; i++) {
                if (r->v[i].line)
                        r->v[kept++] = r->v[i];
                else
                        free(r->v[i].id);
        }
        if (kept == r->n)
                return 0;
        r->n = kept;
        return sort(r);
}

int records_read(const char *path, record_problem problem, void *user, struct records *ret, struct error *e) {
        struct records to = { .file = BUF_INIT(RECORDS_FILE_MAX) };
        struct reading rd = { .path = path, .problem = problem, .user = user, .to = &to };
        int r = strcmp(path, "-") == 0 ? fs_read_fd(STDIN_FILENO, &to.file) : fs_read_file(AT_FDCWD, path, &to.file);
        r = r < 0 ? error_say(e, r == -ENOMEM ? r : -EINVAL, "%s: %s", path, strerrordesc_np(-r)) : add_file(&rd, e);
        if (r == 0)
                r = keep_first(&rd);
        if (r == 0 && to.n == 0)
                r = error_say(e, -EINVAL, "%s: no records", path);
        if (r == -ENOMEM)
                error_set(e, r, "read %s", path);
        if (r < 0)
                records_release(&to);
        else
                *ret = to;
        return r;
}

void records_release(struct records *r) {
        for (size_t i = 0; i < r->n; i++)
                free(r->v[i].id);
        free(r->v);
        free(r->by_id);
        buf_release(&r->file);
        *r = (struct records){ .file = BUF_INIT(RECORDS_FILE_MAX) };
}

static int seek(const void *id, const void *at) { return strcmp(id, (*(struct record *const *)at)->id); }

const struct record *records_find(const struct records *r, const char *id) {
        struct record **at = r->n ? bsearch(id, r->by_id, r->n, sizeof *r->by_id, seek) : NULL;
        return at ? *at : NULL;
}

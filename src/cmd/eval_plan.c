/* Which instances are to be run, with which prediction. */
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/strv.h"
#include "cmd/eval.h"

void eval_problem(struct eval *ev, const char *path, size_t line, const char *text) {
        char *whole = NULL;
        if ((line ? asprintf(&whole, "%s:%zu: %s", path, line, text) : asprintf(&whole, "%s: %s", path, text)) < 0)
                return;
        fprintf(stderr, "brig eval: %s\n", whole);
        if (ev->n_problems < EVAL_PROBLEMS_MAX)
                (void)strv_append_take(&ev->problems, &ev->n_problems, whole);
        else
                free(whole);
}

static void on_problem(const char *path, size_t line, const char *text, void *user) { eval_problem(user, path, line, text); }

/* ---- where a repository and an image are ---------------------------------------------------------------------------------------- */

/* DIR/owner/name, DIR/owner__name or DIR/name, each with ".git" or without. */
static int find_repository(const char *dir, const char *name, char **ret, struct error *e) {
        const char *slash = strrchr(name, '/');
        char flat[PATH_MAX], path[PATH_MAX], full[PATH_MAX];
        if (strstr(name, "://") || strstr(name, "..") || name[0] == '/')
                return error_say(e, -EINVAL, "'repo' of the record is no name for --repos: %.200s", name);
        if (slash)
                snprintf(flat, sizeof flat, "%.*s__%s", (int)(slash - name), name, slash + 1);
        const char *const names[] = { name, slash ? flat : name, slash ? slash + 1 : name };
        static const char *const ends[] = { "", ".git" };
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                for (size_t k = 0; k < ARRAY_SIZE(ends); k++)
                        if (snprintf(path, sizeof path, "%s/%s%s", dir, names[i], ends[k]) < (int)sizeof path && realpath(path, full)) {
                                *ret = strdup(full);
                                return *ret ? 0 : error_set(e, -ENOMEM, "find %s", path);
                        }
        return error_say(e, -EINVAL, "no repository of %.200s in %s", name, dir);
}

/* {id} is the instance's id, {docker} the same as tags of SWE-bench's images have it. */
static int expand(const char *template, const char *id, char **ret, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        int r = 0;
        for (const char *p = template; *p && r == 0;) {
                if (strncmp(p, "{id}", 4) == 0) {
                        r = buf_adds(&b, id);
                        p += 4;
                } else if (strncmp(p, "{docker}", 8) == 0) {
                        for (const char *q = id; *q && r == 0; q++) {
                                bool two = q[0] == '_' && q[1] == '_';
                                r = two ? buf_adds(&b, "_1776_") : buf_addc(&b, *q >= 'A' && *q <= 'Z' ? (char)(*q + 32) : *q);
                                q += two;
                        }
                        p += 8;
                } else
                        r = buf_addc(&b, *p++);
        }
        *ret = r == 0 ? buf_steal(&b) : NULL;
        return *ret ? 0 : error_say(e, -EINVAL, "--images gives too long a name for %s", id);
}

static int fill_image(const struct eval *ev, const struct eval_item *it, struct score_options *o, struct error *e) {
        static const char *const names[] = { "image_name", "docker_image" };
        struct json v;
        if (o->image)
                return 0;
        if (ev->o->images)
                return expand(ev->o->images, it->instance->id, &o->image, e);
        for (size_t i = 0; i < ARRAY_SIZE(names) && o->tree; i++) {
                _cleanup_buf_ struct buf b = BUF_INIT(4096);
                if (json_get(&it->instance->v, names[i], &v) && json_string(&v, &b) == 0 && b.len && !memchr(b.data, 0, b.len)) {
                        o->image = buf_steal(&b);
                        return o->image ? 0 : error_set(e, -ENOMEM, "read the record");
                }
        }
        return 0;
}

/* ---- one request ------------------------------------------------------------------------------------------------------------------ */

static bool the_patch(const struct eval *ev, const struct eval_item *it, struct json *ret) {
        return ev->gold ? score_record_gold(&it->instance->v, ret) : score_prediction_patch(&it->prediction->v, ret);
}

static int fill(const struct eval *ev, const struct eval_item *it, struct score_options *o, struct error *e) {
        _cleanup_free_ char *name = NULL;
        struct json patch;
        int r = score_options_inherit(o, &ev->o->how);
        if (r < 0)
                return error_set(e, r, "read the options");
        if (!the_patch(ev, it, &patch))
                return error_say(e, -EINVAL, ev->gold ? "the record has no 'patch'" : "the prediction has no 'model_patch'");
        r = fill_image(ev, it, o, e);
        if (r == 0)
                r = score_record_repo(&it->instance->v, &name, e);
        if (r == 0 && ev->o->repos && name && !(o->tree && strcmp(o->tree, "image") == 0))
                r = find_repository(ev->o->repos, name, &o->repo, e);
        if (r == 0)
                r = score_record_fill(o, &it->instance->v, e);
        if (r == 0)
                r = score_patch_fill(o, &patch, e);
        if (r == 0 && !o->commit && !(o->tree && strcmp(o->tree, "image") == 0))
                r = error_say(e, -EINVAL, "the record has no 'base_commit'");
        return r == 0 ? score_options_check(o, e) : r;
}

int eval_request(const struct eval *ev, const struct eval_item *it, struct buf *ret, struct error *e) {
        struct score_options o;
        score_options_init(&o);
        int r = fill(ev, it, &o, e);
        if (r == 0)
                r = score_options_request(&o, ret, e);
        score_options_release(&o);
        return r;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------------------- */

static bool is_empty(const struct json *patch) {
        _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
        return patch->type == JSON_NULL || (json_string(patch, &b) == 0 && strspn(buf_str(&b), " \t\r\n") == b.len);
}

static void unusable(struct eval *ev, struct eval_item *it, const char *path, size_t line, const char *why) {
        char text[sizeof ((struct error *)NULL)->text + RECORD_ID_MAX + 8];
        snprintf(text, sizeof text, "%s: %s", it->instance->id, why);
        it->state = EVAL_UNUSABLE;
        it->why = strdup(why);
        eval_problem(ev, path, line, text);
}

static void plan_item(struct eval *ev, struct eval_item *it) {
        _cleanup_buf_ struct buf request = BUF_INIT(4u * SCORE_FILE_MAX);
        const char *id = it->instance->id;
        struct json patch;
        struct error e;
        if (it->instance->v.type != JSON_OBJECT) {
                unusable(ev, it, ev->o->dataset, it->instance->line, "the record is not an object");
                return;
        }
        it->prediction = ev->gold ? NULL : records_find(&ev->predictions, id);
        if (!ev->gold && !it->prediction) {
                it->state = EVAL_WITHOUT;
                return;
        }
        bool ours = !ev->gold && !the_patch(ev, it, &patch);
        if (!ours && the_patch(ev, it, &patch) && is_empty(&patch)) {
                it->state = EVAL_EMPTY;
                return;
        }
        if (eval_request(ev, it, &request, &e) < 0)
                unusable(ev, it, ours ? ev->o->predictions : ev->o->dataset, ours ? it->prediction->line : it->instance->line, e.text);
        else if (sha256_hex(buf_str(&request), request.len, it->request) < 0)
                unusable(ev, it, ev->o->dataset, it->instance->line, "out of memory");
        else if (eval_store_find(ev, it))
                it->state = EVAL_HAS_RECORD;
}

static void find_model(struct eval *ev) {
        struct json v;
        snprintf(ev->model, sizeof ev->model, "%s", ev->gold ? "gold" : "none");
        for (size_t i = 0; i < ev->predictions.n; i++) {
                _cleanup_buf_ struct buf b = BUF_INIT(RECORD_ID_MAX);
                if (json_get(&ev->predictions.v[i].v, "model_name_or_path", &v) && json_string(&v, &b) == 0 && b.len) {
                        snprintf(ev->model, sizeof ev->model, "%s", buf_str(&b));
                        return;
                }
        }
}

static void tell_unknown(struct eval *ev) {
        char text[RECORD_ID_MAX + 60];
        for (size_t i = 0; i < ev->predictions.n; i++)
                if (!records_find(&ev->dataset, ev->predictions.v[i].id)) {
                        snprintf(text, sizeof text, "no such instance in the dataset: %s", ev->predictions.v[i].id);
                        eval_problem(ev, ev->o->predictions, ev->predictions.v[i].line, text);
                }
}

int eval_plan(struct eval *ev, struct error *e) {
        ev->gold = strcmp(ev->o->predictions, "gold") == 0;
        int r = records_read(ev->o->dataset, on_problem, ev, &ev->dataset, e);
        if (r == 0 && !ev->gold)
                r = records_read(ev->o->predictions, on_problem, ev, &ev->predictions, e);
        for (char **id = ev->o->only; r == 0 && id && *id; id++)
                if (!records_find(&ev->dataset, *id))
                        r = error_say(e, -EINVAL, "--only: no such instance in the dataset: %.200s", *id);
        if (r < 0)
                return r;
        find_model(ev);
        tell_unknown(ev);
        ev->items = calloc(ev->dataset.n, sizeof *ev->items);
        if (!ev->items)
                return error_set(e, -ENOMEM, "read %s", ev->o->dataset);
        for (size_t i = 0; i < ev->dataset.n; i++) {
                const struct record *rec = &ev->dataset.v[i];
                if (ev->o->only && !strv_contains((const char *const *)ev->o->only, rec->id))
                        continue;
                ev->items[ev->n].instance = rec;
                plan_item(ev, &ev->items[ev->n++]);
        }
        return 0;
}

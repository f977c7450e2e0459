#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cmd/score_replay.h"

int replay_keep(int fd, const struct buf *request, const struct buf *record) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLAY_FILE_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_raw(&w, "request", buf_str(request), request->len);
        json_field_raw(&w, "record", buf_str(record), record->len);
        json_end_object(&w);
        int r = json_finish(&w);
        if (r == 0)
                r = fs_write_all(fd, buf_str(&b), b.len);
        return r == 0 && fsync(fd) < 0 && errno != EINVAL ? -errno : r;        /* EINVAL: a pipe */
}

int replay_load(const char *path, struct buf *file, struct json *ret_request, struct json *ret_record, struct error *e) {
        struct json doc;
        struct error why;
        file->limit = REPLAY_FILE_MAX;
        int r = strcmp(path, "-") == 0 ? fs_read_fd(STDIN_FILENO, file) : fs_read_file(AT_FDCWD, path, file);
        if (r < 0)
                return error_set(e, r, "read %s", path);
        if (json_parse(buf_str(file), file->len, &doc, &why) < 0)
                return error_say(e, -EINVAL, "%s: not JSON: %s", path, why.text);
        if (!json_get(&doc, "request", ret_request) || ret_request->type != JSON_OBJECT || !json_get(&doc, "record", ret_record) || ret_record->type != JSON_OBJECT)
                return error_say(e, -EINVAL, "%s: no 'request' and 'record'; `brig score --save` and `brig eval` write such files", path);
        return 0;
}

/* ---- what differs ------------------------------------------------------------------------------------------------------------------ */

static int same_value(const struct json *a, const struct json *b, bool *ret) {
        _cleanup_buf_ struct buf x = BUF_INIT(REPLAY_FILE_MAX), y = BUF_INIT(REPLAY_FILE_MAX);
        int r = json_canonical_buf(a, &x);
        if (r == 0)
                r = json_canonical_buf(b, &y);
        *ret = r == 0 && x.len == y.len && memcmp(buf_str(&x), buf_str(&y), x.len) == 0;
        return r;
}

static void put_difference(struct json_writer *w, const char *what, const struct json *was, const struct json *now) {
        json_begin_object(w);
        json_field_text(w, "what", what);
        json_field_raw(w, "was", was->p, was->n);
        json_field_raw(w, "now", now->p, now->n);
        json_end_object(w);
}

/* A member of a member: "provenance.argv". */
static struct json find(const struct json *record, const char *path) {
        const char *dot = strchr(path, '.');
        struct json v = *record, none = { JSON_NULL, "null", 4 };
        char key[40];
        if (dot) {
                snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
                if (!json_get(record, key, &v))
                        return none;
        }
        struct json found;
        return json_get(&v, dot ? dot + 1 : path, &found) ? found : none;
}

/* Tests of `a` that `b` has otherwise; `missing` alone: only those that it does not have. */
static int compare_tests(struct json_writer *w, const struct json *a, const struct json *b, bool missing, size_t *n) {
        static const struct json none = { JSON_NULL, "null", 4 };
        struct json id, mine, theirs;
        int r = 0;
        for (struct json_iter it = json_iter(a); r == 0 && json_next_member(&it, &id, &mine);) {
                _cleanup_buf_ struct buf name = BUF_INIT(1u << 20);
                r = buf_adds(&name, "tests:");
                if (r == 0)
                        r = json_string(&id, &name);
                if (r < 0)
                        break;
                bool there = json_get(b, buf_str(&name) + strlen("tests:"), &theirs), same = false;
                if (there && !missing)
                        r = same_value(&mine, &theirs, &same);
                if (r < 0 || (there && (same || missing)))
                        continue;
                if (missing)
                        put_difference(w, buf_str(&name), &none, &mine);
                else
                        put_difference(w, buf_str(&name), &mine, there ? &theirs : &none);
                ++*n;
        }
        return r;
}

int replay_compare(const struct json *was, const struct json *now, struct buf *ret) {
        static const char *const keys[] = {
                "outcome", "exit_code", "patch_rung", "restored", "integrity", "provenance.tree_hash", "provenance.image_digest", "provenance.argv", "provenance.environment",
        };
        struct json_writer w = JSON_WRITER(ret);
        size_t n = 0;
        int r = 0;
        json_begin_object(&w);
        json_put_key(&w, "differences");
        json_begin_array(&w);
        for (size_t i = 0; i < ARRAY_SIZE(keys) && r == 0; i++) {
                struct json a = find(was, keys[i]), b = find(now, keys[i]);
                bool same;
                r = same_value(&a, &b, &same);
                if (r == 0 && !same) {
                        put_difference(&w, keys[i], &a, &b);
                        n++;
                }
        }
        struct json a = find(was, "tests"), b = find(now, "tests");
        if (r == 0)
                r = compare_tests(&w, &a, &b, false, &n);
        if (r == 0)
                r = compare_tests(&w, &b, &a, true, &n);
        json_end_array(&w);
        json_field_bool(&w, "same", n == 0);
        json_end_object(&w);
        return r < 0 ? r : json_finish(&w);
}

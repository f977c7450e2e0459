/* The output directory.
 *
 *     DIR/records/ID.json      {"instance_id", "request_sha256", "attempt", "request", "record"} (`brig score --replay` reads it);
 *                              ID with %XX for what is no plain character
 *     DIR/report.json, report.html
 *     DIR/lock                 held while a run is in it; its text belongs to the keys under which tasks are submitted, so that a run that goes on
 *                              finds the tasks of the one that was killed */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cmd/eval.h"

#define NAME_SIZE (3 * RECORD_ID_MAX + 16)
#define RECORD_FILE_MAX (600u << 20)

static void file_name(const char *id, char ret[static NAME_SIZE]) {
        char *to = ret;
        for (const unsigned char *p = (const unsigned char *)id; *p; p++) {
                bool plain = (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_' || *p == '-' || *p == '+' || (*p == '.' && to > ret);
                to += plain ? snprintf(to, 2, "%c", *p) : snprintf(to, 4, "%%%02X", *p);
        }
        snprintf(to, 6, ".json");
}

static int renew(struct eval *ev) {
        unsigned char bytes[16];
        random_bytes(bytes, sizeof bytes);
        hex_encode(bytes, sizeof bytes, ev->nonce);
        return pwrite(ev->lock, ev->nonce, 32, 0) == 32 && fsync(ev->lock) == 0 ? 0 : -errno;
}

static int open_lock(struct eval *ev, struct error *e) {
        const char *path = ev->o->output;
        ssize_t n;
        ev->lock = openat(ev->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (ev->lock < 0)
                return error_set(e, -errno, "make %s/lock", path);
        if (flock(ev->lock, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? error_say(e, -EBUSY, "another run is in %s", path) : error_set(e, -errno, "lock %s", path);
        n = pread(ev->lock, ev->nonce, 32, 0);
        ev->nonce[32] = 0;
        return n == 32 || renew(ev) == 0 ? 0 : error_set(e, -errno, "write %s/lock", path);
}

void eval_store_renew(struct eval *ev) { (void)renew(ev); }

int eval_store_open(struct eval *ev, struct error *e) {
        const char *path = ev->o->output;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
                return error_set(e, -errno, "make %s", path);
        ev->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (ev->dir < 0)
                return error_set(e, -errno, "open %s", path);
        if (mkdirat(ev->dir, "records", 0755) < 0 && errno != EEXIST)
                return error_set(e, -errno, "make %s/records", path);
        ev->records = openat(ev->dir, "records", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return ev->records < 0 ? error_set(e, -errno, "open %s/records", path) : open_lock(ev, e);
}

void eval_store_close(struct eval *ev) {
        fd_close(ev->lock);
        fd_close(ev->records);
        fd_close(ev->dir);
}

static uint64_t timing(const struct json *record, const char *key) {
        struct json v, ms;
        double d;
        return json_get(record, "timing", &v) && json_get(&v, key, &ms) && json_double(&ms, &d) == 0 && d > 0 ? (uint64_t)d : 0;
}

static void take(struct eval_item *it, const struct json *record) {
        static const char *const steps[] = { "prepare_ms", "apply_ms", "test_ms", "report_ms" };
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(sizeof it->outcome - 1);
        snprintf(it->outcome, sizeof it->outcome, "%s", json_get(record, "outcome", &v) && json_string(&v, &b) == 0 ? buf_str(&b) : "unknown");
        it->test_ms = timing(record, "test_ms");
        it->total_ms = 0;
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
                it->total_ms += timing(record, steps[i]);
}

int eval_store_load(const struct eval *ev, const struct eval_item *it, struct buf *file, struct json *ret) {
        char name[NAME_SIZE];
        struct json doc;
        file_name(it->instance->id, name);
        file->limit = RECORD_FILE_MAX;
        int r = fs_read_file(ev->records, name, file);
        if (r == 0)
                r = json_parse(buf_str(file), file->len, &doc, NULL);
        return r < 0 ? r : json_get(&doc, "record", ret) && ret->type == JSON_OBJECT ? 0 : -EBADMSG;
}

/* What was our own fault is tried again by the next run. */
bool eval_store_find(struct eval *ev, struct eval_item *it) {
        _cleanup_buf_ struct buf file = BUF_INIT(RECORD_FILE_MAX);
        struct json doc, record, v;
        int64_t attempt = 0;
        if (eval_store_load(ev, it, &file, &record) < 0 || json_parse(buf_str(&file), file.len, &doc, NULL) < 0 ||
            !json_get(&doc, "request_sha256", &v) || !json_string_is(&v, it->request))
                return false;
        if (json_get(&doc, "attempt", &v) && json_int(&v, &attempt) == 0 && attempt > 0 && attempt < 1000000)
                it->attempt = (unsigned)attempt;
        take(it, &record);
        if (strcmp(it->outcome, "infra_error") == 0 || strcmp(it->outcome, "cancelled") == 0) {
                it->attempt++;
                return false;
        }
        return it->before = true;
}

int eval_store_save(const struct eval *ev, struct eval_item *it, const struct buf *request, const struct buf *record, struct error *e) {
        _cleanup_buf_ struct buf file = BUF_INIT(RECORD_FILE_MAX);
        struct json_writer w = JSON_WRITER(&file);
        char name[NAME_SIZE];
        struct json v;
        if (json_parse(buf_str(record), record->len, &v, NULL) < 0 || v.type != JSON_OBJECT)
                return error_say(e, -EIO, "the answer is not a record");
        json_begin_object(&w);
        json_field_text(&w, "instance_id", it->instance->id);
        json_field_text(&w, "request_sha256", it->request);
        json_field_uint(&w, "attempt", it->attempt);
        json_field_raw(&w, "request", buf_str(request), request->len);
        json_field_raw(&w, "record", v.p, v.n);
        json_end_object(&w);
        int r = json_finish(&w);
        file_name(it->instance->id, name);
        if (r == 0)
                r = fs_write_atomic(ev->records, name, buf_str(&file), file.len, 0644);
        if (r < 0)
                return error_set(e, r, "write %s/records/%s", ev->o->output, name);
        take(it, &v);
        return 0;
}

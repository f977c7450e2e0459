/* Snapshots of sessions, forks, and what a session has changed (session/snapshot.h). */
#include <string.h>

#include "api/v1_image_work.h"
#include "session/snapshot.h"

/* ---- bodies ------------------------------------------------------------------------------------------------------------------ */

struct snapshot_body { char *name; uint64_t count; bool stream; };

#define AT(member) .at = offsetof(struct snapshot_body, member)

static int parse_name(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct snapshot_body *b = target;
        char *text, normal[IMAGE_NAME_MAX + 1];
        int r = field_string(f, v, IMAGE_NAME_MAX, &text, NULL, e);
        if (r < 0)
                return r;
        struct error why;
        r = image_name_given(text, normal, &why);
        free(text);
        if (r < 0)
                return field_fault(f, e, "%s", why.text);
        free(b->name);
        b->name = strdup(normal);
        return b->name ? 0 : error_set(e, -ENOMEM, "decode the request");
}

#define NAME_FIELD { .name = "name", .kind = FIELD_CUSTOM, .parse = parse_name, .type = "string", .def = "none", .doc = "of the image; without one it goes when the room is needed and nothing uses it" }

static const struct field snapshot_fields[] = {
        NAME_FIELD,
        { .name = "stream", .kind = FIELD_BOOL, AT(stream), .def = "false", .doc = "server-sent events: `image` or `error` at the end" },
};
static const struct field fork_fields[] = {
        { .name = "count", .kind = FIELD_INT, AT(count), .min = 1, .max = SNAPSHOT_FORKS_MAX, .def = "1", .doc = "sessions to start" },
        NAME_FIELD,
};

struct v1_body v1_snapshot_body(void) { return (struct v1_body){ snapshot_fields, ARRAY_SIZE(snapshot_fields) }; }
struct v1_body v1_fork_body(void) { return (struct v1_body){ fork_fields, ARRAY_SIZE(fork_fields) }; }

static bool decode(struct http_request *r, struct v1_body table, struct snapshot_body *ret) {
        struct json object;
        struct error e;
        *ret = (struct snapshot_body){ .count = 1 };
        if (!v1_body(r, true, &object))
                return false;
        int x = fields_decode(table.rows, table.n, &object, 0, ret, &e);
        if (x < 0) {
                free(ret->name);
                v1_fault(r, x, e.text, NULL);
        }
        return x == 0;
}

/* Why it did not begin. */
static void refuse(struct http_request *r, struct sessions *ss, int x, const struct error *e) {
        if (x == -ENOENT || x == -EAGAIN)
                v1_unready(ss, r, http_param(r, "id"));
        else
                v1_fault(r, x, x == -EBUSY || x == -EOPNOTSUPP ? e->text : NULL, NULL);
}

/* ---- snapshot ---------------------------------------------------------------------------------------------------------------- */

struct taking { struct image_work *work; struct snapshot *snapshot; };

static void taking_gone(void *user) {
        struct taking *t = user;
        if (t->snapshot)
                snapshot_cancel(t->snapshot);
        free(t);
}

static void taken(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct taking *t = user;
        struct image_work *w = t->work;
        free(t);
        image_work_done(w, img, failure, e);
        if (img)
                image_unuse(img);
}

void v1_post_snapshot(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct snapshot_body b;
        struct error e;
        if (!ss || !decode(r, v1_snapshot_body(), &b))
                return;
        struct taking *t = calloc(1, sizeof *t);
        int x = t ? session_snapshot(ss, http_param(r, "id"), b.name, taken, t, &t->snapshot, &e) : -ENOMEM;
        bool stream = b.stream;
        free(b.name);
        if (x < 0) {
                free(t);
                refuse(r, ss, x, &e);
                return;
        }
        t->work = image_work_new(r, stream, taking_gone, t);
        if (!t->work)                  /* answered */
                taking_gone(t);
}

/* ---- fork -------------------------------------------------------------------------------------------------------------------- */

struct forking {
        struct http_request *r;        /* NULL: the client is gone */
        struct sessions *ss;
        struct snapshot *snapshot;
        uint64_t count, asked, told;
        char ids[SNAPSHOT_FORKS_MAX][SESSION_ID_SIZE];
        char digest[SHA256_HEX], parent[SESSION_ID_SIZE];
        int r_first; struct error error;       /* of the first that was refused */
};

static void forgotten(int r, void *user) { }

static void fork_done(struct forking *f) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        bool all = f->r_first == 0 && f->r;
        for (uint64_t i = 0; !all && i < f->count; i++)        /* all or none; and nobody would know of them */
                if (f->ids[i][0])
                        session_delete(f->ss, f->ids[i], forgotten, NULL);
        if (f->r && !all)
                v1_fault(f->r, f->r_first, f->error.text, NULL);
        if (f->r && all) {
                json_begin_object(&w);
                json_field_text(&w, "snapshot", f->digest);
                json_put_key(&w, "sessions");
                json_begin_array(&w);
                for (uint64_t i = 0; i < f->count; i++)
                        json_put_text(&w, f->ids[i]);
                json_end_array(&w);
                json_end_object(&w);
                v1_reply(f->r, 201, json_finish(&w), &b);
        }
        free(f);
}

static void forked(int r, const char *id, const struct error *e, void *user) {
        struct forking *f = user;
        if (r == 0)
                snprintf(f->ids[f->told], SESSION_ID_SIZE, "%s", id);
        else if (f->r_first == 0) {
                f->r_first = r;
                if (e)
                        f->error = *e;
        }
        if (++f->told == f->count && f->asked == f->count)
                fork_done(f);
}

static void fork_all(struct forking *f) {
        char image[16 + SHA256_HEX];
        snprintf(image, sizeof image, "sha256:%s", f->digest);
        for (bool last = false; !last;) {
                struct session_spec spec;
                struct session *parent = session_find(f->ss, f->parent);
                int r = parent ? session_spec_like(parent, image, &spec) : -ENOENT;
                last = ++f->asked == f->count;         /* with the last answer, which may come from inside, f goes */
                if (r < 0)
                        forked(r, NULL, NULL, f);
                else
                        session_create(f->ss, &spec, forked, f);
        }
}

static void fork_snapshot(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct forking *f = user;
        f->snapshot = NULL;
        if (!img) {
                if (f->r)
                        v1_error(f->r, failure == IMAGE_DISK_FULL ? 503 : failure == IMAGE_TOO_LARGE ? 413 : failure == IMAGE_SESSION_ENDED ? 409 : 500, image_failure_to_string((int)failure), e->text, NULL);
                free(f);
                return;
        }
        struct image_info info;
        image_info(img, &info);
        memcpy(f->digest, info.digest, sizeof f->digest);
        image_unuse(img);
        fork_all(f);
}

static void fork_gone(void *user) {
        struct forking *f = user;
        f->r = NULL;
        if (f->snapshot) {
                snapshot_cancel(f->snapshot);
                free(f);
        }
}

void v1_post_fork(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct snapshot_body b;
        struct error e;
        if (!ss || !decode(r, v1_fork_body(), &b))
                return;
        struct forking *f = calloc(1, sizeof *f);
        int x = f ? session_snapshot(ss, http_param(r, "id"), b.name, fork_snapshot, f, &f->snapshot, &e) : -ENOMEM;
        free(b.name);
        if (x < 0) {
                free(f);
                refuse(r, ss, x, &e);
                return;
        }
        f->r = r;
        f->ss = ss;
        f->count = b.count;
        snprintf(f->parent, sizeof f->parent, "%s", http_param(r, "id"));
        http_on_close(r, fork_gone, f);
}

/* ---- changes ----------------------------------------------------------------------------------------------------------------- */

struct comparing { struct http_request *r; struct changes *changes; };

static void compared(int x, const char *json, size_t n, const struct error *e, void *user) {
        struct comparing *c = user;
        struct json v;
        if (x == 0 && (json_parse(json, n, &v, NULL) < 0 || v.type != JSON_OBJECT))
                x = -EIO;              /* our own helper's; but it has read a hostile tree */
        if (x == 0)
                http_respond(c->r, 200, "application/json", json, n);
        else
                v1_error(c->r, x == -ETIMEDOUT ? 504 : x == -ESHUTDOWN ? 409 : 500, x == -ETIMEDOUT ? "timeout" : x == -ESHUTDOWN ? "ended" : "internal", e->text[0] ? e->text : "The changes could not be read", NULL);
        free(c);
}

static void comparing_gone(void *user) {
        struct comparing *c = user;
        changes_cancel(c->changes);
        free(c);
}

void v1_get_diff(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        uint64_t offset, limit;
        struct error e;
        if (!ss || !v1_query_uint(r, "offset", 0, UINT32_MAX, &offset) || !v1_query_uint(r, "limit", 1000, CHANGES_LIMIT_MAX, &limit))
                return;
        struct comparing *c = calloc(1, sizeof *c);
        int x = c ? session_changes(ss, http_param(r, "id"), offset, MAX2(limit, (uint64_t)1), compared, c, &c->changes, &e) : -ENOMEM;
        if (x < 0) {
                free(c);
                refuse(r, ss, x, &e);
                return;
        }
        c->r = r;
        http_on_close(r, comparing_gone, c);
}

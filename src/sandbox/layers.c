/* The daemon's requests about layers and mirrors. */
#include <string.h>

#include "sandbox/client.h"
#include "sandbox/layer_wire.h"
#include "sandbox/layers.h"

struct layer_call {
        layer_done done;
        layer_published published;
        void (*each)(const struct layer_manifest *m, void *user);
        void *user;
        uint64_t ref;
};

static int read_failure(struct message *m, struct error *e) {
        const char *step = wire_get_str(&m->wire);
        int code = (int)wire_get_u32(&m->wire);
        const char *text = wire_get_str(&m->wire);
        (void)step;                              /* the text begins with it */
        if (m->wire.bad || code >= 0 || !text)
                return error_set(e, -EPROTO, "answer of the spawner");
        return error_say(e, code, "%s", text);
}

static void on_answer(struct spawner *sp, struct message *m, void *user) {
        struct layer_call *c = user;
        struct layer_manifest one = { .kind = LAYER_TREE };
        struct error e = { 0 };
        int r;
        client_ref_drop(sp, c->ref);
        if (m->type != EV_LAYER) {
                r = read_failure(m, &e);
        } else {
                r = (int)wire_get_u32(&m->wire);
                const char *text = wire_get_str(&m->wire);
                uint32_t n = wire_get_u32(&m->wire);
                if (r < 0)
                        error_say(&e, r, "%s", text ? text : "");
                for (uint32_t i = 0; r == 0 && i < n && !m->wire.bad; i++) {
                        layer_wire_get(&m->wire, &one);
                        if (!m->wire.bad && c->each)
                                c->each(&one, c->user);
                }
                if (m->wire.bad)
                        r = error_set(&e, -EPROTO, "answer of the spawner");
        }
        if (c->published)
                c->published(r, r == 0 ? &one : NULL, &e, c->user);
        else if (c->done)
                c->done(r, &e, c->user);
        free(c);
}

static int request(struct spawner *sp, enum layer_op op, const char *id, const struct layer_manifest *m, const struct layer_call *call) {
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_INLINE_MAX);
        int r = wire_put_u32(&b, op);
        if (r == 0 && id)
                r = wire_put_str(&b, id);
        if (r == 0 && m)
                r = layer_wire_put(&b, m);
        if (r < 0)
                return r;
        struct layer_call *c = calloc(1, sizeof *c);
        if (!c)
                return -ENOMEM;
        *c = *call;
        r = client_ref_new(sp, on_answer, c, &c->ref);
        if (r == 0 && (r = client_send(sp, REQ_LAYER, c->ref, 0, &b, NULL, 0)) < 0)
                client_ref_drop(sp, c->ref);
        if (r < 0)
                free(c);
        return r;
}

void layers_forget(struct spawner *sp) {
        for (size_t i = 0; i < sp->alloc_refs; i++)
                if (sp->refs[i].ref && sp->refs[i].answer == on_answer)
                        free(sp->refs[i].user);
}

int layers_publish(struct spawner *sp, const struct layer_manifest *m, layer_published done, void *user) {
        return request(sp, LAYER_OP_PUBLISH, NULL, m, &(struct layer_call){ .published = done, .user = user });
}

int layers_open(struct spawner *sp, const char *id, layer_done done, void *user) {
        return request(sp, LAYER_OP_OPEN, id, NULL, &(struct layer_call){ .done = done, .user = user });
}

int layers_close(struct spawner *sp, const char *id) {
        return request(sp, LAYER_OP_CLOSE, id, NULL, &(struct layer_call){ 0 });
}

int layers_remove(struct spawner *sp, const char *id, layer_done done, void *user) {
        return request(sp, LAYER_OP_REMOVE, id, NULL, &(struct layer_call){ .done = done, .user = user });
}

int layers_list(struct spawner *sp, void (*each)(const struct layer_manifest *m, void *user), layer_done done, void *user) {
        return request(sp, LAYER_OP_LIST, NULL, NULL, &(struct layer_call){ .each = each, .done = done, .user = user });
}

int mirrors_make(struct spawner *sp, const char *id, layer_done done, void *user) {
        return request(sp, LAYER_OP_MIRROR_MAKE, id, NULL, &(struct layer_call){ .done = done, .user = user });
}

int mirrors_remove(struct spawner *sp, const char *id, layer_done done, void *user) {
        return request(sp, LAYER_OP_MIRROR_REMOVE, id, NULL, &(struct layer_call){ .done = done, .user = user });
}

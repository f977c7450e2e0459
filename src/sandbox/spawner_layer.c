/* Operations on layers and mirrors: each starts a job (layer_image.h) and answers when it has ended, or answers at once. */
#include "sandbox/layer_wire.h"
#include "sandbox/spawner.h"

struct layer_task {
        struct watch watch;
        struct layer_job *job;
        uint64_t ref;
        enum layer_op op;
        char id[LAYER_ID_SIZE];
};

static int put_head(struct buf *b, int r, const struct error *e, uint32_t count) {
        int q = wire_put_u32(b, (uint32_t)r);
        q = q ? q : wire_put_str(b, r < 0 && e ? e->text : "");
        return q ? q : wire_put_u32(b, count);
}

/* `m` NULL: no manifest. */
static void answer(struct spawn *sp, uint64_t ref, int r, const struct error *e, const struct layer_manifest *m) {
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        if (ref == 0)
                return;
        if (put_head(&b, r, e, m ? 1 : 0) == 0 && (!m || layer_wire_put(&b, m) == 0))
                spawner_send(sp, EV_LAYER, ref, 0, &b, NULL, 0);
}

static void on_task(struct spawn *sp, struct watch *w, uint32_t events) {
        struct layer_task *t = container_of(w, struct layer_task, watch);
        struct layer_manifest m;
        struct error e = { 0 };
        watch_stop(sp, w);
        int r = layer_job_finish(t->job, NULL, &e);
        bool published = r == 0 && t->op == LAYER_OP_PUBLISH;
        if (published && (r = layer_image_stat(sp->layers, t->id, &m)) < 0)
                error_set(&e, r, "read the manifest of layer %s", t->id);
        answer(sp, t->ref, r, &e, published && r == 0 ? &m : NULL);
        free(t);
}

static int run_job(struct spawn *sp, struct message *m, enum layer_op op, const char *id, struct layer_job *job) {
        struct layer_task *t = calloc(1, sizeof *t);
        int r = t ? 0 : -ENOMEM;
        if (t) {
                *t = (struct layer_task){ .job = job, .ref = m->ref, .op = op };
                snprintf(t->id, sizeof t->id, "%s", id);
                r = watch_start(sp, &t->watch, layer_job_fd(job), EPOLLIN, on_task);
        }
        if (r < 0) {
                layer_job_finish(job, NULL, NULL);       /* waits: there is no other way to learn its end */
                free(t);
        }
        return r;
}

struct list_state { struct buf body; uint32_t n; };

static int list_one(const struct layer_manifest *m, void *user) {
        struct list_state *ls = user;
        ls->n++;
        return layer_wire_put(&ls->body, m);
}

static int list(struct spawn *sp, uint64_t ref) {
        struct list_state ls = { .body = BUF_INIT(MESSAGE_BODY_MAX - 64) };
        struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        int r = layer_images_list(sp->layers, list_one, &ls);
        r = r ? r : put_head(&b, 0, NULL, ls.n);
        r = r ? r : buf_add(&b, buf_str(&ls.body), ls.body.len);
        r = r ? r : spawner_send(sp, EV_LAYER, ref, 0, &b, NULL, 0);
        buf_release(&ls.body);
        buf_release(&b);
        return r;
}

/* 1: answered, or nothing more to do; 0: *job runs; else -errno. */
static int start(struct spawn *sp, struct message *m, enum layer_op op, const char *id, const struct layer_manifest *manifest, struct layer_job **job) {
        int r;
        switch (op) {
        case LAYER_OP_PUBLISH: return layer_image_publish(sp->layers, manifest, job);
        case LAYER_OP_OPEN:
                r = layer_image_open(sp->layers, id, job);
                break;
        case LAYER_OP_CLOSE:
                r = layer_image_close(sp->layers, id, job);
                return r == -ENOENT ? 1 : r;
        case LAYER_OP_REMOVE: return layer_image_remove(sp->layers, id, job);
        case LAYER_OP_MIRROR_REMOVE: return layer_mirror_remove(sp->layers, id, job);
        case LAYER_OP_LIST:
                r = list(sp, m->ref);
                return r < 0 ? r : 1;
        case LAYER_OP_MIRROR_MAKE:
                r = layer_mirror_make(sp->layers, id);
                break;
        default: return -EOPNOTSUPP;
        }
        if (r == -EALREADY || (r == 0 && op == LAYER_OP_MIRROR_MAKE)) {
                answer(sp, m->ref, 0, NULL, NULL);
                return 1;
        }
        return r;
}

int op_layer(struct spawn *sp, struct message *m, struct fault *f) {
        uint32_t op = wire_get_u32(&m->wire);
        struct layer_manifest manifest = { .kind = LAYER_TREE };
        struct layer_job *job = NULL;
        const char *id = "";
        if (op == LAYER_OP_PUBLISH) {
                layer_wire_get(&m->wire, &manifest);
                id = manifest.id;
        } else if (op != LAYER_OP_LIST)
                id = wire_get_str(&m->wire);
        if (m->wire.bad || !id)
                return fault_set(f, "read a layer operation", -EBADMSG);
        if (!sp->layers)
                return fault_set(f, "open the store of layers", -ENOENT);
        int r = start(sp, m, (enum layer_op)op, id, &manifest, &job);
        if (r == 0)
                r = run_job(sp, m, (enum layer_op)op, id, job);
        return r < 0 ? fault_set(f, "start a layer operation", r) : 0;
}

/* Adopted processes, the daemon's side. */
#include "sandbox/client.h"

enum adopted_state { ADOPTED_ASKED, ADOPTED_LIVES };

struct sandbox_adopted {
        struct sandbox_adopted *next, **prev;
        struct sandbox *sandbox;
        uint64_t ref, handle;
        enum adopted_state state;
        bool forgotten;
        struct adopted_callbacks cb; void *user;
        /* One question of each kind at a time waits for its answer; answers come in the order of the questions. */
        uint64_t signal_ref, usage_ref;
        void (*signalled)(struct sandbox_adopted *a, void *user);
        void (*counted)(struct sandbox_adopted *a, int64_t cpu_us, void *user);
};

static void finish(struct sandbox_adopted *a, int r, int64_t cpu_us) {
        struct spawner *sp = a->sandbox->spawner;
        client_ref_drop(sp, a->ref);
        if (a->signal_ref)
                client_ref_drop(sp, a->signal_ref);
        if (a->usage_ref)
                client_ref_drop(sp, a->usage_ref);
        *a->prev = a->next;
        if (a->next)
                a->next->prev = a->prev;
        if (!a->forgotten)
                a->cb.empty(a, r, cpu_us, a->user);
        free(a);
}

static void on_answer(struct spawner *sp, struct message *m, void *user) {
        struct sandbox_adopted *a = user;
        if (m->type == EV_STARTED && a->state == ADOPTED_ASKED) {
                a->state = ADOPTED_LIVES;
                a->handle = m->handle;
                if (a->forgotten)
                        adopted_kill(a);       /* nobody will ask for its end */
                else
                        a->cb.adopted(a, a->user);
        } else if (m->type == EV_FAILED) {
                wire_get_str(&m->wire);
                int r = (int)wire_get_u32(&m->wire);
                finish(a, r < 0 && !m->wire.bad ? r : -EPROTO, -1);
        } else if (m->type == EV_EMPTY) {
                int64_t cpu = (int64_t)wire_get_u64(&m->wire);
                finish(a, 0, m->wire.bad ? -1 : cpu);
        }
}

int sandbox_adopt(struct sandbox *s, int pidfd, const struct adopted_callbacks *cb, void *user, struct sandbox_adopted **ret) {
        if (s->state != SANDBOX_READY)
                return -ESHUTDOWN;
        struct sandbox_adopted *a = calloc(1, sizeof *a);
        if (!a)
                return -ENOMEM;
        *a = (struct sandbox_adopted){ .sandbox = s, .cb = *cb, .user = user };
        int r = client_ref_new(s->spawner, on_answer, a, &a->ref);
        if (r == 0) {
                r = client_send(s->spawner, REQ_ADOPT, a->ref, s->handle, NULL, &pidfd, 1);
                if (r < 0)
                        client_ref_drop(s->spawner, a->ref);
        }
        if (r < 0) {
                free(a);
                return r;
        }
        a->next = s->adopted;
        a->prev = &s->adopted;
        if (a->next)
                a->next->prev = &a->next;
        s->adopted = a;
        *ret = a;
        return 0;
}

/* Nobody left to ask: `empty` is on its way, and a question's answer is not awaited. */
static void on_said(struct spawner *sp, struct message *m, void *user) {
        struct sandbox_adopted *a = user;
        int64_t cpu = -1;
        if (m->type == EV_ADOPTED) {
                wire_get_u32(&m->wire);
                cpu = (int64_t)wire_get_u64(&m->wire);
        }
        bool usage = m->ref == a->usage_ref;
        client_ref_drop(sp, m->ref);
        if (usage) {
                void (*counted)(struct sandbox_adopted *, int64_t, void *) = a->counted;
                a->usage_ref = 0;
                if (counted && !a->forgotten)
                        counted(a, m->wire.bad ? -1 : cpu, a->user);
        } else {
                void (*signalled)(struct sandbox_adopted *, void *) = a->signalled;
                a->signal_ref = 0;
                if (signalled && !a->forgotten)
                        signalled(a, a->user);
        }
}

static int say(struct sandbox_adopted *a, enum adopted_op op, int sig, uint64_t *ref) {
        if (a->state != ADOPTED_LIVES)
                return -EAGAIN;
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        int r = wire_put_u32(&b, op);
        if (r == 0)
                r = wire_put_u32(&b, (uint32_t)sig);
        if (r == 0 && ref)
                r = client_ref_new(a->sandbox->spawner, on_said, a, ref);
        if (r < 0)
                return r;
        r = client_send(a->sandbox->spawner, REQ_ADOPTED, ref ? *ref : 0, a->handle, &b, NULL, 0);
        if (r < 0 && ref) {
                client_ref_drop(a->sandbox->spawner, *ref);
                *ref = 0;
        }
        return r;
}

int adopted_signal(struct sandbox_adopted *a, int sig, void (*done)(struct sandbox_adopted *a, void *user)) {
        if (sig <= 0 || sig > 64)
                return -EINVAL;
        if (a->signal_ref)
                return -EBUSY;
        a->signalled = done;
        return say(a, ADOPTED_SIGNAL, sig, &a->signal_ref);
}

int adopted_kill(struct sandbox_adopted *a) { return say(a, ADOPTED_KILL, 0, NULL); }

int adopted_usage(struct sandbox_adopted *a, void (*done)(struct sandbox_adopted *a, int64_t cpu_us, void *user)) {
        if (a->usage_ref)
                return -EBUSY;
        a->counted = done;
        return say(a, ADOPTED_USAGE, 0, &a->usage_ref);
}

void adopted_forget(struct sandbox_adopted *a) { a->forgotten = true; }

void adopted_end_all(struct sandbox *s) {
        while (s->adopted)
                finish(s->adopted, -ESHUTDOWN, -1);
}

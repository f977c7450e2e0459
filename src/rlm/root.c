/* Roots: sandboxes with an interpreter up in them and the broker listening inside, both before anything untrusted runs.
 *
 *     WAITING ──slot──> MAKING: sandbox ──> /workspace, two sockets, python ──> face ──> READY ──> ENDING: face closed, sandbox destroyed ──gone──> slot free
 *
 * A root is kept from turn to turn while it is clean: READY, not tainted, its last turn's process confirmed dead. Else it is ended, and its session
 * gets another one when this one is confirmed gone. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/log.h"
#include "rlm/rlm_internal.h"

#define WORKSPACE "/workspace"
#define LISTEN_BACKLOG 64

/* ---- the end -------------------------------------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h) {
        struct rlm_root *r = h->data;
        struct rlm *m = r->m;
        m->open_handles--;
        free(r);
        if (m->freed && m->open_handles == 0)
                free(m);
}

static void close_face(struct rlm_root *r) {
        if (r->face)
                r->m->face->close(TAKE_PTR(r->face), r->m->face_user);
        for (size_t i = 0; i < ARRAY_SIZE(r->fds); i++)
                r->fds[i] = fd_close(r->fds[i]);
}

/* Nothing of it is left. */
static void free_root(struct rlm_root *r) {
        struct rlm *m = r->m;
        struct rlm_session *s = r->session;
        struct error why = r->error;
        close_face(r);
        interpreter_free(TAKE_PTR(r->interpreter));
        *r->at = r->next;
        if (r->next)
                r->next->at = r->at;
        m->n_roots--;
        r->closed = true;
        uv_timer_stop(&r->idle);
        uv_close((uv_handle_t *)&r->idle, on_closed);
        if (s) {
                s->n_roots--;
                if (s->root == r)
                        s->root = NULL;
                if (s->turn && why.code)
                        turn_root_failed(s->turn, RLM_START_FAILED, &why);
        }
        admission_cancel(&m->admission, &r->ticket);
        admission_release(&m->admission, &r->ticket);
        if (s)
                rlm_session_settle(s);
        rlm_check_drained(m);
}

void root_end(struct rlm_root *r) {
        if (r->state == ROOT_ENDING)
                return;
        bool waiting = r->state == ROOT_WAITING;
        r->state = ROOT_ENDING;
        uv_timer_stop(&r->idle);
        if (r->session && r->session->root == r)
                r->session->root = NULL;
        close_face(r);
        if (r->sandbox)
                sandbox_destroy(r->sandbox);
        else if (waiting || !r->sandbox)
                free_root(r);
}

void root_stop_idle(struct ticket *t) {
        struct rlm_root *r = container_of(t, struct rlm_root, ticket);
        log_event(LOG_INFO, "rlm.root_stopped", "root", r->id, "why", "somebody waits for its slot", NULL);
        root_end(r);
}

static void on_idle(uv_timer_t *timer) {
        struct rlm_root *r = timer->data;
        if (r->state == ROOT_READY && !r->turn) {
                log_event(LOG_INFO, "rlm.root_stopped", "root", r->id, "why", "idle", NULL);
                root_end(r);
        }
}

void root_settle(struct rlm_root *r) {
        struct rlm_session *s = r->session;
        if (r->state != ROOT_READY)
                return;
        if (r->tainted || !s || s->deleting || r->m->draining) {
                root_end(r);
                return;
        }
        uv_timer_start(&r->idle, on_idle, r->m->cfg.idle_ms, 0);
        if (s->turn && s->turn->state == TURN_WAITING)
                turn_step(s->turn);
        else
                admission_idle(&r->m->admission, &r->ticket);
}

/* ---- making -------------------------------------------------------------------------------------------------------------------------------- */

static void failed(struct rlm_root *r, const char *what, const struct error *e) {
        if (r->state == ROOT_ENDING)
                return;
        if (!r->error.code)
                error_say(&r->error, e->code ? e->code : -EIO, "%.100s: %.380s", what, e->text);
        log_event(LOG_WARN, "rlm.root_failed", "root", r->id, "error", r->error.text, NULL);
        root_end(r);
}

static void fail(struct rlm_root *r, const char *what, int code) {
        struct error e;
        error_set(&e, code, "%s", what);
        failed(r, what, &e);
}

/* All that it needs is there, in whatever order it came. */
static void check_ready(struct rlm_root *r, bool python) {
        struct error e = { 0 };
        if (r->state != ROOT_MAKING || r->asked > 0 || !python)
                return;
        int x = r->m->face->open(r, r->fds, ARRAY_SIZE(r->fds), r->m->face_user, &r->face, &e);
        if (x < 0) {
                failed(r, "serve the broker", &e);
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(r->fds); i++)
                r->fds[i] = -1;
        r->state = ROOT_READY;
        root_settle(r);
}

static void on_python(struct interpreter *in, void *user) { check_ready(user, true); }
static void on_lost(struct interpreter *in, const struct error *e, void *user) { failed(user, "python", e); }
static const struct interpreter_callbacks python_callbacks = { .ready = on_python, .lost = on_lost };

static void start_python(struct rlm_root *r) {
        static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" WORKSPACE, "USER=user", "LANG=C.UTF-8", "TZ=UTC", NULL };
        const struct interpreter_spec spec = { .env = env, .cache = IMAGE_HOST };
        struct error e = { 0 };
        if (interpreter_start(r->sandbox, &spec, &python_callbacks, r, &r->interpreter, &e) < 0)
                failed(r, "start python", &e);
}

static int bind_inside(int fd, bool local) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(RLM_BROKER_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_un name = { .sun_family = AF_UNIX };
        memcpy(name.sun_path + 1, RLM_BROKER_NAME, sizeof RLM_BROKER_NAME - 1);
        socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof RLM_BROKER_NAME);
        int x = local ? bind(fd, (struct sockaddr *)&name, n) : bind(fd, (struct sockaddr *)&at, sizeof at);
        return x < 0 || listen(fd, LISTEN_BACKLOG) < 0 ? -errno : 0;
}

/* Bound before python is up: so nobody inside can have taken the name or the port. */
static void got_socket(struct rlm_root *r, int x, int fd, bool local) {
        if (r->state != ROOT_MAKING) {
                fd_close(fd);
                return;
        }
        if (x == 0)
                x = bind_inside(fd, local);
        if (x < 0) {
                fd_close(fd);
                fail(r, "listen inside the sandbox", x);
                return;
        }
        r->fds[local] = fd;
        if (--r->asked == 0)
                start_python(r);
}

static void got_tcp(struct sandbox *s, int x, int fd, void *user) { got_socket(user, x, fd, false); }
static void got_local(struct sandbox *s, int x, int fd, void *user) { got_socket(user, x, fd, true); }

static void on_workspace(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct rlm_root *r = user;
        if (r->state != ROOT_MAKING)
                return;
        if (!end->started || end->status != 0) {
                fail(r, "make " WORKSPACE, end->started ? -EIO : end->error.code);
                return;
        }
        r->asked = 2;
        int y = sandbox_socket(r->sandbox, SOCKET_IPV4, got_tcp, r);
        if (y == 0)
                y = sandbox_socket(r->sandbox, SOCKET_UNIX, got_local, r);
        if (y < 0)
                fail(r, "ask for sockets", y);
}

static void on_ready(struct sandbox *sb, void *user) {
        static const char *const argv[] = { "/usr/bin/install", "-d", "-o", "1000", "-g", "1000", WORKSPACE, NULL };
        static const char *const env[] = { "PATH=/usr/bin:/bin", NULL };
        const struct exec_spec x = { .argv = argv, .env = env, .cwd = "/", .stdin_fd = -1, .timeout_ms = INTERPRETER_START_MS };
        struct rlm_root *r = user;
        struct sandbox_exec *exec;
        struct error e = { 0 };
        if (r->state == ROOT_MAKING && sandbox_exec(sb, &x, on_workspace, r, &exec, &e) < 0)
                failed(r, "make " WORKSPACE, &e);
}

static void on_failed(struct sandbox *sb, const char *step, const struct error *e, void *user) { failed(user, step, e); }

static void on_limit(struct sandbox *sb, enum limit_kind kind, void *user) {
        struct rlm_root *r = user;
        r->out_of_memory |= kind == LIMIT_MEMORY;
        r->tainted |= kind != LIMIT_OUTPUT;
        log_event(LOG_INFO, "rlm.limit", "root", r->id, "limit", limit_kind_to_string((int)kind), NULL);
}

static void on_gone(struct sandbox *sb, const struct sandbox_end *end, void *user) {
        struct rlm_root *r = user;
        r->state = ROOT_ENDING;
        r->sandbox = NULL;
        free_root(r);
}

static const struct sandbox_callbacks callbacks = { .ready = on_ready, .failed = on_failed, .limit = on_limit, .gone = on_gone };

static enum sandbox_upper upper_for(const struct sandbox_limits *l) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        return l->disk_bytes <= memory / 2 ? UPPER_TMPFS : UPPER_DISK;
}

static void make(struct rlm_root *r) {
        const struct sandbox_limits *l = &r->m->cfg.root_limits;
        const struct sandbox_spec spec = {
                .id = r->id, .profile = PROFILE_RLM, .image = IMAGE_HOST, .upper = upper_for(l), .network = r->m->cfg.network, .limits = *l,
        };
        struct error e = { 0 };
        r->state = ROOT_MAKING;
        if (r->session && r->session->turn)
                turn_admitted(r->session->turn);
        if (sandbox_create(r->m->cfg.spawner, &spec, &callbacks, r, &r->sandbox, &e) < 0)
                failed(r, "make the sandbox", &e);
}

static void on_granted(struct ticket *t) {
        struct rlm_root *r = container_of(t, struct rlm_root, ticket);
        if (r->m->draining)
                root_end(r);
        else
                make(r);
}

int root_request(struct rlm_session *s, struct error *e) {
        struct rlm *m = s->m;
        struct rlm_root *r = calloc(1, sizeof *r);
        if (!r)
                return error_set(e, -ENOMEM, "make a root");
        *r = (struct rlm_root){ .m = m, .session = s, .fds = { -1, -1 }, .next = m->roots, .at = &m->roots };
        snprintf(r->id, sizeof r->id, "%s-r%u", s->id, ++s->made_roots);
        if (r->next)
                r->next->at = &r->next;
        m->roots = r;
        m->n_roots++;
        m->open_handles++;
        s->n_roots++;
        s->root = r;
        uv_timer_init(m->cfg.loop, &r->idle);
        r->idle.data = r;
        if (admission_request(&m->admission, &r->ticket, ADMISSION_ROOT, on_granted))
                make(r);
        return 0;
}

/* The interpreter of a sandbox, the daemon's side: see interpreter.h, and python/zygote.py for what runs there.
 *
 * The zygote is an exec like others: root inside, before anything untrusted. It is asked for processes over a socket of datagrams; each process comes
 * with a socket and two pipes that were made here, and speaks for itself from then on (turn_process.c). The spare one is forked SPARE_MS after a turn
 * has begun, or when one has ended: forking takes the machine as long as dozens of actions, and nobody should wait for it. */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "rlm/interpreter_internal.h"

extern const unsigned char rlm_zygote_py[], rlm_zygote_py_end[], rlm_driver_py[], rlm_driver_py_end[];

#define SPARE_MS 30            /* after a turn has begun: its first action goes first */
#define SOURCE_MAX (1u << 20)
#define SOURCE_FD 3
#define CONTROL_FD 4
#define BOOT "import os\ns=os.pread(3,1<<20,0).split(b'\\0',2)\nos.close(3)\n" \
             "exec(compile(s[0],'<brig>','exec'),{'__name__':'brig_zygote','SOURCE_DRIVER':s[1],'CACHE':s[2]})"
#define SAID_MAX (160u * 1024) /* bytes of one word of the zygote's: what it has compiled is the longest */
#define COMPILED_MAX 16        /* images whose compiled driver is kept; the oldest goes */

/* What interpreters have compiled, by what they are made of: compiling takes a quarter as long as python's whole start. */
static struct compiled { char name[SHA256_HEX]; char *p; size_t n; } compiled[COMPILED_MAX];
static unsigned compiled_next;

struct said { char kind; const char *p; size_t n; };

/* ---- the object ---- */

static void maybe_free(struct interpreter *in) {
        if (!in->freed || in->closing > 0 || in->exec)
                return;
        fd_close(in->control);
        free(in);
}

static void on_closed(uv_handle_t *h) {
        struct interpreter *in = h->data;
        in->closing--;
        maybe_free(in);
}

static void close_handle(struct interpreter *in, uv_handle_t *h) {
        h->data = in;
        in->closing++;
        uv_close(h, on_closed);
}

/* Told when nothing is left of its turns either. */
void interpreter_check_lost(struct interpreter *in) {
        if (!in->ended_exec || in->lost || in->freed || in->processes)
                return;
        in->lost = true;
        in->cb.lost(in, &in->error, in->user);
}

static void stop_listening(struct interpreter *in) {
        if (in->polled)
                close_handle(in, (uv_handle_t *)&in->poll);
        in->polled = false;
        if (in->timer_made)
                close_handle(in, (uv_handle_t *)&in->timer);
        in->timer_made = false;
}

/* The last line of what it wrote says why, if anything does. */
static void say_why(struct interpreter *in, const struct exec_end *end) {
        if (in->error.code)
                return;
        if (end && !end->started) {
                in->error = end->error;
                error_prefix(&in->error, "start python");
                return;
        }
        const char *line = strrchr(in->said, '\n');
        line = line && line[1] ? line + 1 : in->said;
        if (end && end->sandbox_ended)
                error_say(&in->error, -ESHUTDOWN, "the sandbox has ended");
        else
                error_say(&in->error, -EPIPE, "python has ended%s%s", *line ? ": " : "", line);
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct interpreter *in = user;
        in->exec = NULL;
        in->ended_exec = true;
        if (in->freed) {
                maybe_free(in);
                return;
        }
        say_why(in, end);
        stop_listening(in);
        for (struct turn_process *t = in->processes, *next; t && !in->freed; t = next) {
                next = t->next_in;
                turn_lost(t, &in->error);
        }
        if (!in->freed)
                interpreter_check_lost(in);
}

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct interpreter *in = user;
        size_t have = strlen(in->said), room = sizeof in->said - 1;
        if (n >= room) {
                memcpy(in->said, (const char *)p + n - room, room);
                have = room;
        } else {
                size_t drop = have + n > room ? have + n - room : 0;
                memmove(in->said, in->said + drop, have - drop);
                memcpy(in->said + have - drop, p, n);
                have = have - drop + n;
        }
        while (have > 0 && (in->said[have - 1] == '\n' || !in->said[have - 1]))
                have--;
        in->said[have] = 0;
        for (size_t i = 0; i < have; i++)      /* a line for people */
                if ((unsigned char)in->said[i] < ' ' && in->said[i] != '\n')
                        in->said[i] = '?';
}

/* ---- what was compiled ---- */

static struct compiled *compiled_find(const char *name) {
        for (size_t i = 0; *name && i < COMPILED_MAX; i++)
                if (strcmp(compiled[i].name, name) == 0)
                        return &compiled[i];
        return NULL;
}

/* It has the name of its own image, and was compiled before anything but that image ran. */
static void on_compiled(struct interpreter *in, const struct said *s) {
        if (!in->cache[0] || s->n < 1)
                return;
        struct compiled *c = compiled_find(in->cache);
        char *p = malloc(s->n + 1);
        if (!p)
                return;
        if (!c)
                c = &compiled[compiled_next++ % COMPILED_MAX];
        free(c->p);
        memcpy(p, s->p, s->n);
        *c = (struct compiled){ .p = p, .n = s->n };
        memcpy(c->name, in->cache, sizeof c->name);
}

/* ---- what the zygote says ---- */

static struct turn_process *find(struct interpreter *in, uint64_t ref) {
        for (struct turn_process *t = in->processes; t; t = t->next_in)
                if (t->ref == ref)
                        return t;
        return NULL;
}

static void on_ready(struct interpreter *in, const struct said *s) {
        if (in->ready)
                return;
        snprintf(in->version, sizeof in->version, "%.*s", (int)s->n, s->p);
        in->ready = true;
        uv_timer_stop(&in->timer);
        in->cb.ready(in, in->user);
}

static void on_process(struct interpreter *in, const struct said *s) {
        uint64_t ref;
        int32_t value;
        if (s->n != sizeof ref + sizeof value)
                return;
        memcpy(&ref, s->p, sizeof ref);
        memcpy(&value, s->p + sizeof ref, sizeof value);
        struct turn_process *t = find(in, ref);
        if (t && s->kind == 'f')
                turn_forked(t, value);
        else if (t)
                turn_reaped(t, value);
}

static void hear(struct interpreter *in, const struct said *s) {
        switch (s->kind) {
        case 'R': on_ready(in, s); break;
        case 'W':
                in->warm = true;
                interpreter_think(in);
                break;
        case 'E': error_say(&in->error, -EPROTO, "%.*s", (int)MIN2(s->n, (size_t)200), s->p); break;
        case 'C': on_compiled(in, s); break;
        case 'f': case 'x': on_process(in, s); break;
        default: break;
        }
}

static void on_control(uv_poll_t *p, int status, int events) {
        struct interpreter *in = p->data;
        static char space[SAID_MAX];   /* one loop thread */
        for (int i = 0; i < 16 && !in->freed && in->polled; i++) {
                ssize_t n = recv(in->control, space, sizeof space - 1, MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n <= 0) {
                        uv_poll_stop(p);       /* its end is told by the spawner */
                        return;
                }
                space[n] = 0;
                hear(in, &(struct said){ .kind = space[0], .p = space + 1, .n = (size_t)n - 1 });
        }
}

/* ---- processes ---- */

int interpreter_fork(struct interpreter *in, struct turn_process *t, const int fds[3]) {
        char text[1 + sizeof t->ref] = { 'F' };
        memcpy(text + 1, &t->ref, sizeof t->ref);
        union { struct cmsghdr align; char space[CMSG_SPACE(3 * sizeof(int))]; } control = { 0 };
        struct iovec iov = { text, sizeof text };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space };
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(3 * sizeof(int));
        memcpy(CMSG_DATA(c), fds, 3 * sizeof(int));
        return sendmsg(in->control, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void make_spare(struct interpreter *in) {
        if (in->spare || in->lost || in->ended_exec || in->freed || !in->warm || in->deaths >= SPARE_TRIES)
                return;
        struct turn_process *t;
        if (turn_new(in, &t) == 0)
                in->spare = t;
}

static void on_spare_time(uv_timer_t *h) { make_spare(h->data); }

static void on_start_timeout(uv_timer_t *h) {
        struct interpreter *in = h->data;
        error_say(&in->error, -ETIMEDOUT, "python did not answer within %u s", INTERPRETER_START_MS / 1000);
        exec_kill(in->exec);
}

void interpreter_think(struct interpreter *in) {
        if (!in->turn)
                make_spare(in);
        else if (!in->spare && in->timer_made && in->ready && !uv_is_active((uv_handle_t *)&in->timer))
                uv_timer_start(&in->timer, on_spare_time, SPARE_MS, 0);
}

static void on_gone_time(uv_timer_t *h) { interpreter_think(h->data); }

void interpreter_gone(struct interpreter *in, struct turn_process *t) {
        if (in->spare == t) {
                in->spare = NULL;
                in->deaths++;
        }
        if (in->turn == t) {
                in->turn = NULL;
                in->deaths = 0;
        }
        /* From the loop: whoever is told of this end may begin the next turn, with a process that is still to be forked. */
        if (in->timer_made && in->ready)
                uv_timer_start(&in->timer, on_gone_time, 0, 0);
}

/* ---- start and end ---- */

static int open_source(const struct interpreter *in) {
        const struct compiled *c = compiled_find(in->cache);
        _cleanup_buf_ struct buf b = BUF_INIT(SOURCE_MAX);
        int r = buf_add(&b, rlm_zygote_py, (size_t)(rlm_zygote_py_end - rlm_zygote_py));
        if (r == 0)
                r = buf_addc(&b, 0);
        if (r == 0)
                r = buf_add(&b, rlm_driver_py, (size_t)(rlm_driver_py_end - rlm_driver_py));
        if (r == 0)
                r = buf_addc(&b, 0);
        if (r == 0 && c)
                r = buf_add(&b, c->p, c->n);
        return r < 0 ? r : fs_memfd("interpreter", b.data, b.len);
}

static const char *const default_env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/", "USER=user", NULL };

static int start(struct interpreter *in, const struct interpreter_spec *spec, struct error *e) {
        int pair[2];
        _cleanup_close_ int source = open_source(in);
        if (source < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set(e, source < 0 ? source : -errno, "start python");
        in->control = pair[0];
        _cleanup_close_ int theirs = pair[1];
        const char *const argv[] = { spec->python ? spec->python : "python3", "-I", "-S", "-c", BOOT, NULL };
        const struct exec_fd fds[] = { { source, SOURCE_FD }, { theirs, CONTROL_FD } };
        const struct exec_spec x = {
                .argv = argv, .env = spec->env ? spec->env : default_env, .cwd = "/", .stdin_fd = -1, .fds = fds, .n_fds = ARRAY_SIZE(fds),
                .output = on_output, .output_bytes = UINT64_MAX,
        };
        return sandbox_exec(in->sandbox, &x, on_exited, in, &in->exec, e);
}

int interpreter_start(struct sandbox *s, const struct interpreter_spec *spec, const struct interpreter_callbacks *cb, void *user,
                      struct interpreter **ret, struct error *e) {
        struct interpreter *in = calloc(1, sizeof *in);
        if (!in)
                return error_set(e, -ENOMEM, "start python");
        *in = (struct interpreter){ .sandbox = s, .loop = sandbox_loop(s), .cb = *cb, .user = user, .control = -1 };
        if (spec->cache)
                (void)sha256_hex(spec->cache, strlen(spec->cache), in->cache);
        int r = start(in, spec, e);
        if (r < 0) {
                fd_close(in->control);
                free(in);
                return r;
        }
        uv_timer_init(in->loop, &in->timer);
        in->timer.data = in;
        in->timer_made = true;
        uv_timer_start(&in->timer, on_start_timeout, INTERPRETER_START_MS, 0);
        r = uv_poll_init(in->loop, &in->poll, in->control);
        if (r == 0) {
                in->poll.data = in;
                in->polled = true;
                r = uv_poll_start(&in->poll, UV_READABLE, on_control);
        }
        if (r < 0) {
                interpreter_free(in);
                return error_set(e, r, "listen to python");
        }
        *ret = in;
        return 0;
}

void interpreter_free(struct interpreter *in) {
        if (!in || in->freed)
                return;
        in->freed = true;
        while (in->processes)
                turn_abandon(in->processes);
        in->turn = in->spare = NULL;
        if (in->telling)
                in->telling->interpreter = NULL;
        if (in->exec)
                exec_kill(in->exec);
        stop_listening(in);
        maybe_free(in);
}

const char *interpreter_version(const struct interpreter *in) { return in->version; }
bool interpreter_is_warm(const struct interpreter *in) { return in->spare && in->spare->state == TURN_SPARE; }

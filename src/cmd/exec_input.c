/* Standard input of brig exec -i, as it comes: a thread reads it and posts it piece by piece, each once the program has taken the one before, so
 * that neither we nor the daemon ever hold more than a piece. The thread has a connection of its own. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/fs.h"
#include "cmd/exec_input.h"

#define PIECE (1u << 20)

struct exec_input {
        struct client *client;
        char path[REMOTE_PATH_MAX];
        pthread_t thread;
        int stop;                              /* eventfd: nobody wants more */
        volatile sig_atomic_t stopped;
        int r;                                 /* what broke it; 0: nothing */
        struct error e;
};

/* Until there is something to read, or its end: true. */
static bool wait_for_some(const struct exec_input *in) {
        struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = in->stop, .events = POLLIN } };
        while (poll(p, 2, -1) < 0)
                if (errno != EINTR)
                        return true;           /* read() says why */
        return !p[1].revents;
}

static int post(struct exec_input *in, const char *p, size_t n, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(CLIENT_ANSWER_MAX);
        int status, r = client_call(in->client, "POST", in->path, p, n, 0, &status, &answer, e);
        if (r < 0)
                return r;
        if (status == 404 || status == 409)
                return 1;                      /* it has ended, or reads no more */
        return status >= 200 && status <= 299 ? 0 : remote_refusal(status, buf_str(&answer), answer.len, e);
}

static int pump(struct exec_input *in, char *space, struct error *e) {
        int r = 0;
        while (r == 0) {
                if (!wait_for_some(in))
                        return 0;
                ssize_t n = read(STDIN_FILENO, space, PIECE);
                if (n < 0 && (errno == EINTR || errno == EAGAIN))
                        continue;
                if (n < 0)
                        return error_set(e, -errno, "read standard input");
                if (n <= 0) {
                        snprintf(in->path + strlen(in->path), sizeof in->path - strlen(in->path), "?close=true");
                        r = post(in, "", 0, e);
                        return MIN2(r, 0);
                }
                r = post(in, space, (size_t)n, e);
        }
        return MIN2(r, 0);
}

static void *work(void *user) {
        struct exec_input *in = user;
        char *space = malloc(PIECE);
        int r = space ? pump(in, space, &in->e) : error_set(&in->e, -ENOMEM, "read standard input");
        free(space);
        if (r < 0 && !in->stopped) {
                in->r = r;
                kill(getpid(), SIGTERM);       /* ends the call under way, and the command with it */
        }
        return NULL;
}

int exec_input_start(const char *url, const char *session, int64_t id, struct exec_input **ret, struct error *e) {
        struct exec_input *in = calloc(1, sizeof *in);
        char tail[64];
        sigset_t all, before;
        if (!in)
                return error_set(e, -ENOMEM, "read standard input");
        snprintf(tail, sizeof tail, "/commands/%lld/stdin", (long long)id);
        in->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int r = in->stop < 0 ? error_set(e, -errno, "read standard input") : session_path(session, tail, in->path, e);
        r = r ? r : remote_find(url, true, &in->client, e);
        if (r == 0) {
                client_interrupted_by(in->client, &in->stopped);
                sigfillset(&all);              /* signals are the main thread's */
                pthread_sigmask(SIG_BLOCK, &all, &before);
                int x = pthread_create(&in->thread, NULL, work, in);
                pthread_sigmask(SIG_SETMASK, &before, NULL);
                r = x ? error_set(e, -x, "read standard input") : 0;
        }
        if (r < 0) {
                client_free(in->client);
                fd_close(in->stop);
                free(in);
                return r;
        }
        *ret = in;
        return 0;
}

int exec_input_end(struct exec_input *in, struct error *e) {
        if (!in)
                return 0;
        in->stopped = 1;
        (void)eventfd_write(in->stop, 1);
        pthread_join(in->thread, NULL);
        int r = in->r;
        if (r < 0 && e)
                *e = in->e;
        client_free(in->client);
        fd_close(in->stop);
        free(in);
        return r;
}

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/protocol.h"

/* ---- bodies ---- */

int wire_put(struct buf *b, const void *p, size_t n) { return buf_add(b, p, n); }
int wire_put_u32(struct buf *b, uint32_t v) { return buf_add(b, &v, sizeof v); }
int wire_put_u64(struct buf *b, uint64_t v) { return buf_add(b, &v, sizeof v); }

#define NULL_LENGTH UINT32_MAX

int wire_put_str(struct buf *b, const char *s) {
        if (!s)
                return wire_put_u32(b, NULL_LENGTH);
        size_t n = strlen(s);
        if (n >= MESSAGE_BODY_MAX)
                return -E2BIG;
        int r = wire_put_u32(b, (uint32_t)n);
        return r < 0 ? r : buf_add(b, s, n + 1);
}

int wire_put_strv(struct buf *b, const char *const *v) {
        if (!v)
                return wire_put_u32(b, NULL_LENGTH);
        uint32_t n = 0;
        while (v[n])
                n++;
        int r = wire_put_u32(b, n);
        for (uint32_t i = 0; i < n && r == 0; i++)
                r = wire_put_str(b, v[i]);
        return r;
}

void wire_get(struct wire *w, void *p, size_t n) {
        if (w->bad || w->left < n) {
                w->bad = true;
                memset(p, 0, n);
                return;
        }
        memcpy(p, w->at, n);
        w->at += n;
        w->left -= n;
}

uint32_t wire_get_u32(struct wire *w) {
        uint32_t v;
        wire_get(w, &v, sizeof v);
        return v;
}

uint64_t wire_get_u64(struct wire *w) {
        uint64_t v;
        wire_get(w, &v, sizeof v);
        return v;
}

const char *wire_get_str(struct wire *w) {
        uint32_t n = wire_get_u32(w);
        if (!w->bad && n == NULL_LENGTH)
                return NULL;
        /* The NUL must be where the length says, and nowhere before: what is checked is what is used. */
        if (w->bad || n >= w->left || w->at[n] != 0 || memchr(w->at, 0, n)) {
                w->bad = true;
                return "";
        }
        const char *s = w->at;
        w->at += n + 1;
        w->left -= n + 1;
        return s;
}

void wire_get_strv(struct wire *w, size_t max, const char ***ret) {
        *ret = NULL;
        uint32_t n = wire_get_u32(w);
        if (w->bad || n == NULL_LENGTH)
                return;
        /* Each string takes 5 bytes at least, so a forged count cannot make us allocate much. */
        if (n > max || n > w->left / 5) {
                w->bad = true;
                return;
        }
        const char **v = calloc(n + 1, sizeof *v);
        if (!v) {
                w->bad = true;
                return;
        }
        for (uint32_t i = 0; i < n; i++) {
                v[i] = wire_get_str(w);
                if (!v[i])
                        w->bad = true;
                if (w->bad) {
                        free(v);
                        return;
                }
        }
        *ret = v;
}

/* ---- messages ---- */

struct head { uint32_t type, flags; uint64_t ref, handle; };
#define HEAD_BODY_IN_FD 1u

void message_close_fds(struct message *m) {
        for (size_t i = 0; i < m->n_fds; i++)
                fd_close(m->fds[i]);
        m->n_fds = 0;
}

void message_free(struct message *m) {
        if (!m)
                return;
        message_close_fds(m);
        free(m->body);
        free(m);
}

int message_fd(struct message *m, uint32_t i) {
        if (i >= m->n_fds || m->fds[i] < 0) {
                m->wire.bad = true;
                return -1;
        }
        return m->fds[i];
}

struct channel_item {
        struct channel_item *next;
        size_t len, n_fds;
        int fds[MESSAGE_FDS_MAX];
        char bytes[];
};

static void item_free(struct channel_item *it) {
        for (size_t i = 0; i < it->n_fds; i++)
                fd_close(it->fds[i]);
        free(it);
}

void channel_init(struct channel *c, int fd) {
        *c = (struct channel){ .fd = fd };
        c->last = &c->first;
        int size = 1 << 20;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void channel_release(struct channel *c) {
        while (c->first) {
                struct channel_item *it = c->first;
                c->first = it->next;
                item_free(it);
        }
        c->fd = fd_close(c->fd);
}

static int send_now(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)]; } control;
        struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = n_iov };
        if (n_fds > 0) {
                msg.msg_control = control.space;
                msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                struct cmsghdr *c = &control.align;
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }
        for (;;) {
                if (sendmsg(fd, &msg, MSG_NOSIGNAL) >= 0)
                        return 0;
                if (errno == ENOBUFS || errno == ETOOMANYREFS)
                        return -EAGAIN;
                if (errno == ECONNRESET)
                        return -EPIPE;
                if (errno != EINTR)
                        return -errno;
        }
}

static int enqueue(struct channel *c, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        if (c->queued >= CHANNEL_QUEUE_MAX)
                return -ENOBUFS;
        size_t len = 0;
        for (size_t i = 0; i < n_iov; i++)
                len += iov[i].iov_len;
        struct channel_item *it = calloc(1, sizeof *it + len);
        if (!it)
                return -ENOMEM;
        for (size_t i = 0; i < n_iov; i++) {
                memcpy(it->bytes + it->len, iov[i].iov_base, iov[i].iov_len);
                it->len += iov[i].iov_len;
        }
        for (size_t i = 0; i < n_fds; i++) {
                int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
                if (fd < 0) {
                        int r = -errno;
                        item_free(it);
                        return r;
                }
                it->fds[it->n_fds++] = fd;
        }
        *c->last = it;
        c->last = &it->next;
        c->queued++;
        return 0;
}

int channel_send(struct channel *c, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds) {
        struct head h = { .type = type, .ref = ref, .handle = handle };
        int all[MESSAGE_FDS_MAX];
        if (n_fds >= MESSAGE_FDS_MAX)
                return -E2BIG;
        for (size_t i = 0; i < n_fds; i++)
                all[i] = fds[i];
        struct iovec iov[2] = { { &h, sizeof h }, { NULL, 0 } };
        _cleanup_close_ int memfd = -1;
        if (body && body->len > MESSAGE_INLINE_MAX) {
                memfd = fs_memfd("brig-message", body->data, body->len);
                if (memfd < 0)
                        return memfd;
                h.flags = HEAD_BODY_IN_FD;
                all[n_fds++] = memfd;
        } else if (body && body->len > 0)
                iov[1] = (struct iovec){ body->data, body->len };
        if (!channel_pending(c)) {
                int r = send_now(c->fd, iov, 2, all, n_fds);
                if (r != -EAGAIN)
                        return r;
        }
        return enqueue(c, iov, 2, all, n_fds);
}

int channel_flush(struct channel *c) {
        while (c->first) {
                struct channel_item *it = c->first;
                struct iovec iov = { it->bytes, it->len };
                int r = send_now(c->fd, &iov, 1, it->fds, it->n_fds);
                if (r == -EAGAIN)
                        return 0;
                if (r < 0)
                        return r;
                c->first = it->next;
                if (!c->first)
                        c->last = &c->first;
                c->queued--;
                item_free(it);
        }
        return 0;
}

static int body_from_fd(struct message *m) {
        if (m->n_fds == 0)
                return -EBADMSG;
        _cleanup_close_ int fd = m->fds[--m->n_fds];
        int seals = fcntl(fd, F_GET_SEALS), want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
        struct stat st;
        if (seals < 0 || (seals & want) != want || fstat(fd, &st) < 0 || st.st_size > (off_t)MESSAGE_BODY_MAX)
                return -EBADMSG;
        m->body = malloc((size_t)st.st_size + 1);
        if (!m->body)
                return -ENOMEM;
        ssize_t n = pread(fd, m->body, (size_t)st.st_size, 0);
        if (n != st.st_size)
                return -EBADMSG;
        m->body_len = (size_t)n;
        return 0;
}

static int take_fds(struct message *m, struct msghdr *msg) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                        if (m->n_fds < MESSAGE_FDS_MAX)
                                m->fds[m->n_fds++] = fd;
                        else
                                fd_close(fd);
                }
        }
        return msg->msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EBADMSG : 0;
}

int channel_recv(struct channel *c, struct message **ret) {
        static char space[MESSAGE_MAX];    /* one thread a process uses channels */
        union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)]; } control;
        struct head h;
        struct iovec iov[2] = { { &h, sizeof h }, { space, sizeof space } };
        struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
        ssize_t n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : errno == ECONNRESET ? -EPIPE : -errno;
        if (n == 0)
                return -EPIPE;
        CLEANUP(cleanup_message) struct message *m = calloc(1, sizeof *m);
        if (!m)
                return -ENOMEM;
        int r = take_fds(m, &msg);
        if (r < 0 || n < (ssize_t)sizeof h)
                return -EBADMSG;
        m->type = h.type;
        m->ref = h.ref;
        m->handle = h.handle;
        if (h.flags & HEAD_BODY_IN_FD) {
                r = body_from_fd(m);
                if (r < 0)
                        return r;
        } else {
                m->body_len = (size_t)n - sizeof h;
                m->body = malloc(m->body_len + 1);
                if (!m->body)
                        return -ENOMEM;
                memcpy(m->body, space, m->body_len);
        }
        m->wire = (struct wire){ .at = m->body, .left = m->body_len };
        *ret = TAKE_PTR(m);
        return 1;
}

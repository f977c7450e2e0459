/* A client of a Brig daemon, for the verbs that speak to one. Blocking; one call at a time; any thread, one at a time. */
#pragma once
#include <signal.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

#define CLIENT_ANSWER_MAX (512u << 20)

struct client;

/* url: "http://host:port" (a path below it is kept) or "unix:/path". token may be NULL. Nothing is sent yet. */
int client_open(const char *url, const char *token, struct client **ret, struct error *e);
void client_free(struct client *c);
/* A call ends with -EINTR soon after *flag is set (by a signal handler). */
void client_interrupted_by(struct client *c, const volatile sig_atomic_t *flag);
/* One request. The answer's status and body, whatever they are, are success; -EIO and a text when there was no answer,
 * -EINTR, -ETIMEDOUT. body may be NULL. */
/* A body that comes from somewhere, an answer that goes somewhere. */
struct client_transfer {
        const char *method, *path;
        const char *content_type;          /* NULL: JSON */
        const char *body; size_t n;        /* NULL: none, or `source` */
        /* The next bytes of the body, at most n; 0 at its end, -errno. Sent in chunks. */
        ssize_t (*source)(char *p, size_t n, void *user);
        /* Takes all of p or gives -errno, which ends the call. Runs for an answer of any status: status is known by then. */
        int (*sink)(int status, const char *p, size_t n, void *user);
        void *user;
        uint64_t timeout_ms;               /* 0 = none */
};
/* As client_call. What `sink` or `source` gave comes back as it is, and e is then theirs. */
int client_transfer(struct client *c, const struct client_transfer *t, int *ret_status, struct error *e);
int client_call(struct client *c, const char *method, const char *path, const char *body, size_t n, uint64_t timeout_ms, int *ret_status,
                struct buf *ret_body, struct error *e);

/* The connection itself, for a protocol that HTTP makes way for. Asks for `path` with the fields in `head` (lines that end in CR LF) and our
 * own; 0 once the answer is 101, and *ret_rest has what came behind its head. Else -EIO and others: what the answer says is in *ret_rest, its
 * status in *ret_status (0: none came). */
#define CLIENT_HEAD_MAX (64u * 1024)
int client_upgrade(struct client *c, const char *path, const char *head, uint64_t timeout_ms, struct buf *ret_rest, int *ret_status, struct error *e);
int client_fd(struct client *c);                                   /* to wait for */
ssize_t client_write(struct client *c, const void *p, size_t n);    /* -EAGAIN; -EIO */
ssize_t client_read(struct client *c, void *p, size_t n);          /* 0: the end; -EAGAIN; -EIO */

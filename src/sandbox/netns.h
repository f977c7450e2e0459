/* Network namespaces: a pool of fresh, empty ones with loopback up.
 *
 * Making one takes half a millisecond, so the spawner refills the pool when idle. A namespace is used by one sandbox and
 * never comes back. It belongs to the initial user namespace, so root inside a sandbox cannot configure it; what ordinary
 * programs need is set instead: ports below 1024 may be bound and ping sockets opened by anyone inside.
 *
 * A child joins by setns(fd, CLONE_NEWNET) before it enters its user namespace.
 *
 * Spawner only, one thread: netns_make changes the thread's namespace and comes back. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define NETNS_POOL_MAX 64

struct netns_pool;

int netns_pool_open(struct netns_pool **ret, struct error *e);   /* remembers the caller's namespace as the host's */
void netns_pool_close(struct netns_pool *p);
/* Makes namespaces until `want` wait, at most `most` per call. Returns how many are missing still, or -errno. */
int netns_pool_fill(struct netns_pool *p, unsigned want, unsigned most);
/* A descriptor that the caller closes; from the pool, else made now. */
int netns_take(struct netns_pool *p, int *ret_fd, struct error *e);
/* A stream socket of that namespace (AF_INET, AF_INET6, AF_UNIX), non-blocking, neither bound nor connected: whoever holds it does that inside. */
int netns_socket(struct netns_pool *p, int netns_fd, int family, int *ret_fd);

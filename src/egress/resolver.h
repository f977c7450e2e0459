/* Names to addresses, asynchronously: a client of the name servers that the host uses, on the loop, without a thread. (The C
 * library's resolver blocks one for as long as a server likes, and the pool's threads are few: names that a sandbox chose, at
 * servers that somebody hostile runs, could stop the daemon's file work.)
 *
 * One question at a time per lookup, A then, where there is none, AAAA; each from a fresh port with a random number, by UDP, and where the answer
 * was cut and holds no address, once more by TCP; the next server
 * after RESOLVER_TRY_MS; RESOLVER_TRIES in all. Answers are kept for their time to live, RESOLVER_CACHE_MAX of them. */
#pragma once
#include <uv.h>

#include "egress/dns.h"

#define RESOLVER_SERVERS_MAX 3
#define RESOLVER_TRY_MS 2000
#define RESOLVER_TRIES 4               /* questions of one lookup and family */
#define RESOLVER_LOOKUPS_MAX 1024      /* at a time */
#define RESOLVER_CACHE_MAX 512
#define RESOLVER_TTL_MIN_S 5           /* an answer is kept this long at least, and RESOLVER_TTL_MAX_S at most */
#define RESOLVER_TTL_MAX_S 300

struct resolver;
struct lookup;

/* `server`: ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; NULL: those of /etc/resolv.conf, read again when they changed. -EINVAL. */
int resolver_open(uv_loop_t *loop, const char *server, struct resolver **ret);
void resolver_close(struct resolver *r);       /* no lookup may be left */
/* `done` runs from the loop, with r = 0 and at least one address, -ENOENT (no such name, or no address), -ETIMEDOUT, or another -errno. */
int resolver_lookup(struct resolver *r, const char *name, void (*done)(int r, const struct dns_addresses *a, void *user), void *user, struct lookup **ret);
void lookup_cancel(struct lookup *l);          /* `done` will not run */

/* Network `allow`, inside the sandbox's namespace: everything that is sent anywhere arrives at two sockets.
 *
 * There is no link but loopback. Every address is made local (one route per family), so a connection to any of them is one to
 * this machine as the namespace sees it; and a program of the kernel's socket lookup gives TCP connections to all addresses but
 * loopback's, on any port, to one listening socket, and datagrams to port 53 to another. The socket that accepts is bound to where the
 * connection was going. No packet filter, no connection tracking, no cost per packet; nothing can get round it, for there is
 * nowhere else to go: other datagrams find nobody (the sender is told), echo requests are not answered.
 *
 * Root inside cannot undo it: the namespace belongs to the initial user namespace. The program goes with `link`, or with the namespace.
 *
 * Spawner only, one thread: the caller's network namespace changes and comes back. */
#pragma once
#include "base/error.h"

struct catch { int tcp, udp, link; };

/* Three descriptors that the caller closes. -EOPNOTSUPP: this kernel has no such programs (FACILITY_SK_LOOKUP). */
int catch_open(int netns_fd, struct catch *ret, struct error *e);
void catch_close(struct catch *c);
/* Can the kernel do it? Loads a program and throws it away. 0 or -errno. */
int catch_probe(void);

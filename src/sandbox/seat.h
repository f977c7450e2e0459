/* A seat: what one sandbox at a time sits on and the next one may use again once the first is confirmed gone: a range of
 * host ids, the user namespace that maps it, and id-mapped mounts of the host image's lowers. Making one costs a process;
 * taking one from the pool costs nothing.
 *
 * Nothing of a sandbox's outlives it in a user namespace: further namespaces are refused (user.max_user_namespaces is 0),
 * key rings are filtered. Spawner only. */
#pragma once
#include "base/error.h"
#include "sandbox/idrange.h"

enum plane { PLANE_ROOT, PLANE_USR, PLANE_OPT, PLANE_MAX };
extern const char *const plane_dir[PLANE_MAX];         /* name of the plane's upper: "root", "usr", "opt" */
extern const char *const plane_path[PLANE_MAX];        /* "/", "/usr", "/opt" */

#define SEAT_POOL_MAX 64
#define SEAT_MAPS_MAX 8

struct seat {
        struct seat *next;
        uint32_t base;                     /* host id of root inside */
        int user_ns;
        int lower[PLANE_MAX];              /* of the host image; -1 = not made yet, or no such plane */
        struct { uint32_t from; int user_ns; } map[SEAT_MAPS_MAX];     /* other layers' ranges onto this one */
        unsigned n_maps;
};

/* A user namespace without processes that maps from..from+65535 inside to host ids to..to+65535. */
int user_ns_make(uint32_t from, uint32_t to, int *ret_fd, struct error *e);
int seat_new(uint32_t base, struct seat **ret, struct error *e);
void seat_free(struct seat *s);
/* A user namespace for an id-mapped mount of files that lie on disk in the range `from`; stays the seat's. -1 in *ret_fd: the
 * ranges are the same, no mapping is needed. */
int seat_map(struct seat *s, uint32_t from, int *ret_fd, struct error *e);

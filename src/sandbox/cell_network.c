/* A sandbox's network namespace, and what it reaches. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "egress/egress.h"
#include "sandbox/build.h"
#include "sandbox/facilities.h"

#define CELL_RESOLV_CONF "root/etc/resolv.conf"        /* in the upper */

/* So that it can be told from one that the sandbox has written: nobody sets a file's time of change. */
static void remember_resolv_conf(struct cell *c) {
        struct stat st;
        _cleanup_close_ int fd = fs_open_beneath(c->upper, CELL_RESOLV_CONF, O_PATH, 0);
        if (fd < 0 || fstat(fd, &st) < 0)
                return;                /* it will count as the sandbox's */
        c->resolv_conf.ino = st.st_ino;
        c->resolv_conf.changed = st.st_ctim;
}

int cell_open_resolv_conf(const struct cell *c) {
        struct stat st;
        _cleanup_close_ int fd = c->resolv_conf.ino ? fs_open_beneath(c->upper, CELL_RESOLV_CONF, O_PATH, 0) : -1;
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != c->resolv_conf.ino || st.st_ctim.tv_sec != c->resolv_conf.changed.tv_sec ||
            st.st_ctim.tv_nsec != c->resolv_conf.changed.tv_nsec)
                return -1;
        return TAKE_FD(fd);
}

static int write_resolv_conf(struct build *b, const struct buf *text) {
        int r = build_make_target(b, "etc");
        _cleanup_close_ int etc = r < 0 ? -1 : fs_open_beneath(b->cell->plane[PLANE_ROOT], "etc", O_RDONLY | O_DIRECTORY, 0);
        if (etc < 0)
                return r < 0 ? r : etc;
        unlinkat(etc, "resolv.conf", 0);
        _cleanup_close_ int fd = fs_open_beneath(etc, "resolv.conf", O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0)
                return fd;
        r = fs_write_all(fd, buf_str(text), text->len);
        if (r == 0 && fchown(fd, b->cell->seat->base, b->cell->seat->base) < 0)
                r = -errno;
        if (r == 0)
                remember_resolv_conf(b->cell);
        return r;
}

/* No way out, but to the daemon. */
static int make_caught(struct build *b) {
        _cleanup_buf_ struct buf text = BUF_INIT(256);
        int r = facility_ok(FACILITY_SK_LOOKUP) ? catch_open(b->cell->net_ns, &b->cell->catch, &b->f->error)
                                                : error_say(&b->f->error, -EOPNOTSUPP, "this kernel cannot lead connections to the daemon (see brig doctor: sk-lookup)");
        if (r == 0)
                r = buf_adds(&text, "nameserver " EGRESS_RESOLVER "\n");
        if (r == 0)
                r = write_resolv_conf(b, &text);
        if (r < 0)
                b->f->step = "open the network";
        if (r < 0 && !b->f->error.code)
                error_set(&b->f->error, r, "write /etc/resolv.conf");
        return r;
}

int build_network(struct build *b) {
        struct cell *c = b->cell;
        struct spawn *sp = b->sp;
        if (c->spec.network == NETWORK_HOST)
                return 0;
        int r = c->net_ns >= 0 ? 0 : netns_take(sp->net_pool, &c->net_ns, &b->f->error);
        if (r < 0)
                return fault_set(b->f, "make the network namespace", r);
        if (c->spec.network == NETWORK_ALLOW)
                return make_caught(b);
        if (c->spec.network != NETWORK_OPEN)
                return 0;
        if (!sp->network) {
                const struct network_config cfg = { .instance = sp->instance, .allow = (const char *const *)sp->network_allow };
                r = network_open(&cfg, &sp->network, &b->f->error);
        }
        if (r == 0)
                r = network_attach(sp->network, c->net_ns, &c->link, &b->f->error);
        if (r == 0) {
                _cleanup_buf_ struct buf text = BUF_INIT(65536);
                c->linked = true;
                r = network_resolv_conf(sp->network, &text);
                if (r == 0)
                        r = write_resolv_conf(b, &text);
        }
        if (r < 0)
                b->f->step = "open the network";
        return r;
}

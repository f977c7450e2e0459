/* The planes of a root file system: lowers, upper, overlays. */
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "sandbox/build.h"

static bool is_scratch(const struct build *b) { return strcmp(b->cell->spec.image, IMAGE_SCRATCH) == 0; }

static int image_lower(struct build *b, enum plane p) {
        struct seat *s = b->cell->seat;
        if (b->image >= 0)
                return p == PLANE_ROOT ? build_own(b, is_scratch(b) ? cell_lowest(b->sp, LOWER_ATTRS, s->user_ns) : mount_clone(b->image, "", LOWER_ATTRS, s->user_ns)) : -ENOENT;
        if (b->sp->host_lower[p] < 0)
                return -ENOENT;
        if (s->lower[p] < 0) {
                int fd = mount_clone(b->sp->host_lower[p], "", LOWER_ATTRS, s->user_ns);
                if (fd < 0)
                        return fd;
                s->lower[p] = fd;
        }
        return s->lower[p];
}

static int layer_lower(struct build *b, const char *id, enum plane p) {
        uint32_t from;
        int fd = build_own(b, layer_image_lower(b->sp->layers, id, plane_path[p], &from)), map;
        if (fd < 0)
                return fd;
        int r = seat_map(b->cell->seat, from, &map, &b->f->error);
        if (r < 0)
                return r;
        if (map >= 0) {
                struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map };
                if (mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) < 0)
                        return -errno;
        }
        return fd;
}

static int add_lowest(struct build *b) {
        int fd = build_own(b, cell_lowest(b->sp, LOWER_ATTRS, b->cell->seat->user_ns)), parked = fd < 0 ? fd : mount_park(fd);
        if (parked < 0)
                return fault_set(b->f, "attach the image", parked);
        b->lower[PLANE_ROOT][b->n_lowers[PLANE_ROOT]++] = fd;
        return 0;
}

/* Lowers of each plane, top first: layers from the last to the first, then the image. */
int build_lowers(struct build *b) {
        const char *const *layers = b->cell->spec.layers;
        size_t n = 0;
        while (layers && layers[n])
                n++;
        for (int p = 0; p < (b->image < 0 ? PLANE_MAX : PLANE_ROOT + 1); p++) {
                for (size_t i = n; i-- > 0;) {
                        int fd = layer_lower(b, layers[i], (enum plane)p);
                        if (fd == -ENOENT)
                                continue;
                        int parked = fd < 0 ? fd : mount_park(fd);
                        if (parked < 0)
                                return fault_set(b->f, "attach a layer", parked);
                        b->lower[p][b->n_lowers[p]++] = fd;
                }
                int fd = image_lower(b, (enum plane)p), parked = fd < 0 ? fd : mount_park(fd);
                if (parked < 0 && fd != -ENOENT)
                        return fault_set(b->f, "attach the image", parked);
                /* A layer made on another image may hold planes that this one has not: they are not used. */
                if (fd == -ENOENT)
                        b->n_lowers[p] = 0;
                else
                        b->lower[p][b->n_lowers[p]++] = fd;
        }
        return b->image >= 0 && !is_scratch(b) ? add_lowest(b) : 0;
}

static int base_plane(struct build *b, enum plane p) {
        const int *lower = b->lower[p];
        int fd;
        if (b->n_lowers[p] > 1)
                fd = mount_overlay(lower, b->n_lowers[p], -1, NULL, NULL, LOWER_ATTRS | MOUNT_ATTR_NOSUID);
        else if (b->n_lowers[p] == 1 && (p == PLANE_ROOT || b->all || !(b->cell->spec.layers && b->cell->spec.layers[0])))
                fd = mount_clone(lower[0], "", LOWER_ATTRS | MOUNT_ATTR_NOSUID, -1);
        else
                return 0;      /* the image's alone, beside a layer's tree: nobody compares with that */
        if (fd < 0)
                return fd;
        b->cell->base[p] = fd;
        return 0;
}

int cell_base(struct spawn *sp, struct cell *c, bool all) {
        struct fault f = { 0 };
        struct build *b = calloc(1, sizeof *b);
        if (!b)
                return -ENOMEM;
        *b = (struct build){ .sp = sp, .cell = c, .f = &f, .image = -1, .all = all };
        int r = cell_open_base(sp, c->spec.image, &b->image);
        if (r == 0)
                r = build_lowers(b);
        for (int p = 0; p < PLANE_MAX && r == 0; p++)
                if (c->base[p] < 0)
                        r = base_plane(b, (enum plane)p);
        c->base_all |= all && r == 0;
        if (r < 0)
                for (int p = 0; p < PLANE_MAX; p++)
                        c->base[p] = fd_close(c->base[p]);
        for (size_t i = 0; i < b->n_own; i++)
                mount_release(b->own[i]);
        fd_close(b->image);
        free(b);
        return r;
}

int build_make_dir(int at, const char *path, mode_t mode, uint32_t owner) {
        if (mkdirat(at, path, 0700) < 0 && errno != EEXIST)
                return -errno;
        if (fchownat(at, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(at, path, mode, 0) < 0)
                return -errno;
        return 0;
}

int build_upper_dirs(struct build *b) {
        int up = b->cell->upper;
        uint32_t base = b->cell->seat->base;
        int r = build_make_dir(up, "work", 0700, 0);
        for (int p = 0; p < PLANE_MAX && r == 0; p++) {
                if (b->n_lowers[p] == 0)
                        continue;
                char work[16];
                snprintf(work, sizeof work, "work/%s", plane_dir[p]);
                r = build_make_dir(up, plane_dir[p], 0755, base);
                if (r == 0)
                        r = build_make_dir(up, work, 0700, base);
        }
        if (r == 0)
                r = build_make_dir(up, "shm", 01777, base);
        return r < 0 ? fault_set(b->f, "make the upper's directories", r) : 0;
}

int build_planes(struct build *b) {
        for (int p = 0; p < PLANE_MAX; p++) {
                if (b->n_lowers[p] == 0)
                        continue;
                char work[16];
                snprintf(work, sizeof work, "work/%s", plane_dir[p]);
                int fd = mount_overlay(b->lower[p], b->n_lowers[p], b->cell->upper, plane_dir[p], work, MOUNT_ATTR_NODEV);
                if (fd < 0)
                        return fault_set(b->f, "mount an overlay", fd);
                b->cell->plane[p] = fd;
                int r = build_add_mount(b, fd, p == PLANE_ROOT ? "" : plane_dir[p]);
                if (r < 0)
                        return fault_set(b->f, "attach a plane", r);
        }
        return b->cell->plane[PLANE_ROOT] < 0 ? fault_set(b->f, "attach the image", -ENOENT) : 0;
}

int build_upper(struct build *b) {
        struct cell *c = b->cell;
        if (c->upper < 0)              /* else an image, mounted by a job */
                c->upper = mount_tmpfs(c->spec.limits.disk_bytes, c->spec.limits.inodes, 0755, MOUNT_ATTR_NODEV);
        int r = c->upper < 0 ? c->upper : mount_park(c->upper);
        return r < 0 ? fault_set(b->f, "mount the upper", r) : 0;
}

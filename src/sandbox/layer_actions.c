/* The slow operations on layer images: what runs in the child (action_*), and what the table learns when it has ended. */
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/layer_loop.h"
#include "sandbox/layer_manifest.h"
#include "sandbox/layer_private.h"
#include "sandbox/layer_template.h"

enum layer_action { ACTION_MAKE, ACTION_OPEN, ACTION_CLOSE, ACTION_PUBLISH, ACTION_REMOVE, ACTION_REMOVE_MIRROR, ACTION_MAX };

struct layer_job {
        struct layer_job *next;
        struct layer_images *li;
        struct job_child child;
        enum layer_action action;
        struct layer_manifest m;
        struct layer_upper_spec upper;     /* id NULL, or m.id */
        int mount_fd;                      /* publish: the entry's, borrowed */
};

static void image_name(const char *id, bool temporary, char ret[static LAYER_ID_SIZE + 8]) {
        snprintf(ret, LAYER_ID_SIZE + 8, temporary ? ".%s.tmp" : "%s.img", id);
}

/* ---- in the child ---- */

static int create_image(struct layer_job *j, const char *name) {
        if (j->upper.id) {
                int fd = openat(j->li->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
                return fd < 0 ? -errno : fd;
        }
        int fd = openat(j->li->dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        return fd < 0 ? -errno : fd;
}

/* From the template of that size; the first of a size becomes it. */
static int format(struct layer_job *j, int fd, uint64_t inodes, struct error *e) {
        int r = layer_template_copy(j->li->dir_fd, j->upper.bytes, inodes, fd);
        if (r == 0)
                return 0;
        /* Nothing, or part of it: begin anew. */
        if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)j->upper.bytes) < 0)
                return error_set(e, -errno, "size the image");
        r = layer_loop_format(fd, inodes, 0, e);
        if (r == 0)
                (void)layer_template_save(j->li->dir_fd, j->upper.bytes, inodes, fd);
        return r;
}

static int action_make(struct layer_job *j, int *ret_fd, struct error *e) {
        char name[LAYER_ID_SIZE + 8];
        image_name(j->m.id, true, name);
        _cleanup_close_ int fd = create_image(j, name);
        if (fd < 0)
                return error_set(e, fd, "create the image of layer %s", j->upper.id ? j->upper.id : "(unnamed)");
        uint64_t inodes = MIN2(MIN2(j->upper.inodes, LAYER_IMAGE_MAX_INODES), j->upper.bytes / 4096);
        int r = ftruncate(fd, (off_t)j->upper.bytes) < 0 ? error_set(e, -errno, "size the image") : 0;
        if (r == 0)
                r = format(j, fd, MAX2(inodes, (uint64_t)1024), e);
        if (r == 0)
                r = *ret_fd = layer_loop_mount(fd, false, e);
        if (r >= 0 && fchownat(*ret_fd, "", j->upper.range_base, j->upper.range_base, AT_EMPTY_PATH) < 0)
                r = error_set(e, -errno, "own the image's root");
        if (r < 0 && j->upper.id)
                unlinkat(j->li->dir_fd, name, 0);
        return MIN2(r, 0);
}

static int action_open(struct layer_job *j, int *ret_fd, struct error *e) {
        char name[LAYER_ID_SIZE + 8];
        image_name(j->m.id, false, name);
        _cleanup_close_ int fd = fs_open_beneath(j->li->dir_fd, name, O_RDONLY, 0);
        if (fd < 0)
                return error_set(e, fd, "open layer %s", j->m.id);
        int r = *ret_fd = layer_loop_mount(fd, true, e);
        return MIN2(r, 0);
}

/* The tree hides what the image below has at its place: an overlay must not merge two checkouts. */
static int set_opaque(struct layer_job *j, struct error *e) {
        char path[sizeof j->m.opaque + sizeof "root" LAYER_TREE_PREFIX];
        if (j->m.opaque[0] == 0)
                return 0;
        snprintf(path, sizeof path, "root" LAYER_TREE_PREFIX "%s", j->m.opaque);
        _cleanup_close_ int fd = fs_open_beneath(j->mount_fd, path, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0)
                return error_set(e, fd, "open the tree in its layer");
        if (fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0)
                return error_set(e, -errno, "mark the tree opaque");
        return 0;
}

/* Gives the blocks of deleted files back to the disk; a kernel that cannot is no reason to fail. */
static void trim(int mount_fd) {
        _cleanup_close_ int root = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct fstrim_range range = { .len = UINT64_MAX };
        if (root >= 0) {
                syncfs(root);
                ioctl(root, FITRIM, &range);
        }
}

static int write_manifest(struct layer_job *j, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(LAYER_MANIFEST_MAX);
        char name[LAYER_ID_SIZE + 16];
        int r = layer_manifest_encode(&j->m, &b);
        snprintf(name, sizeof name, "%s.manifest", j->m.id);
        if (r == 0)
                r = fs_write_atomic(j->li->dir_fd, name, buf_str(&b), b.len, 0600);
        return r < 0 ? error_set(e, r, "write the manifest of layer %s", j->m.id) : 0;
}

static int action_publish(struct layer_job *j, uint64_t *ret_bytes, struct error *e) {
        char tmp[LAYER_ID_SIZE + 8], final[LAYER_ID_SIZE + 8];
        struct stat st;
        image_name(j->m.id, true, tmp);
        image_name(j->m.id, false, final);
        int r = set_opaque(j, e);
        if (r < 0)
                return r;
        trim(j->mount_fd);
        r = layer_loop_seal(j->mount_fd, e);
        if (r < 0)
                return r;
        _cleanup_close_ int image = fs_open_beneath(j->li->dir_fd, tmp, O_RDONLY, 0);
        if (image < 0)
                return error_set(e, image, "open the image of layer %s", j->m.id);
        if (fsync(image) < 0 || fstat(image, &st) < 0)
                return error_set(e, -errno, "sync layer %s", j->m.id);
        j->m.bytes = *ret_bytes = (uint64_t)st.st_blocks * 512;
        r = write_manifest(j, e);
        if (r < 0)
                return r;
        if (renameat(j->li->dir_fd, tmp, j->li->dir_fd, final) < 0 || fsync(j->li->dir_fd) < 0)
                return error_set(e, -errno, "publish layer %s", j->m.id);
        return 0;
}

static int action_remove(struct layer_job *j, struct error *e) {
        char tmp[LAYER_ID_SIZE + 8], final[LAYER_ID_SIZE + 8], manifest[LAYER_ID_SIZE + 16];
        image_name(j->m.id, true, tmp);
        image_name(j->m.id, false, final);
        snprintf(manifest, sizeof manifest, "%s.manifest", j->m.id);
        unlinkat(j->li->dir_fd, tmp, 0);
        if (unlinkat(j->li->dir_fd, final, 0) < 0 && errno != ENOENT)
                return error_set(e, -errno, "remove layer %s", j->m.id);
        unlinkat(j->li->dir_fd, manifest, 0);
        return 0;
}

static int run_action(void *arg, int *ret_fd, uint64_t *ret_value, struct error *e) {
        struct layer_job *j = arg;
        int r;
        switch (j->action) {
        case ACTION_MAKE: return action_make(j, ret_fd, e);
        case ACTION_OPEN: return action_open(j, ret_fd, e);
        case ACTION_PUBLISH: return action_publish(j, ret_value, e);
        case ACTION_REMOVE: return action_remove(j, e);
        case ACTION_CLOSE: return 0;     /* the last descriptor of the mount is ours: the unmounting happens as we exit */
        case ACTION_REMOVE_MIRROR:
                r = layer_remove_tree(j->li->mirrors_fd, j->m.id);
                return r < 0 ? error_set(e, r, "remove mirror %s", j->m.id) : 0;
        case ACTION_MAX: break;
        }
        return -EINVAL;
}

/* ---- in the spawner ---- */

static int start(struct layer_images *li, enum layer_action action, const struct layer_manifest *m, const struct layer_upper_spec *upper,
                 int mount_fd, struct layer_job **ret) {
        struct layer_job *j = calloc(1, sizeof *j);
        if (!j)
                return -ENOMEM;
        j->li = li;
        j->action = action;
        j->m = *m;
        j->mount_fd = mount_fd;
        if (upper) {
                j->upper = *upper;
                j->upper.id = upper->id ? j->m.id : NULL;
        }
        int r = job_start(run_action, j, &j->child);
        if (r < 0) {
                free(j);
                return r;
        }
        j->next = li->jobs;
        li->jobs = j;
        *ret = j;
        return 0;
}

static int id_only(const char *id, struct layer_manifest *m) {
        if (!layer_id_valid(id))
                return -EINVAL;
        *m = (struct layer_manifest){ .kind = LAYER_TREE };
        memcpy(m->id, id, strlen(id) + 1);
        return 0;
}

static bool job_on(const struct layer_images *li, const char *id) {
        for (const struct layer_job *j = li->jobs; j; j = j->next)
                if (strcmp(j->m.id, id) == 0 && j->action != ACTION_REMOVE_MIRROR)
                        return true;
        return false;
}

int layer_image_make(struct layer_images *li, const struct layer_upper_spec *spec, struct layer_job **ret) {
        struct layer_manifest m = { .kind = LAYER_TREE };
        struct stat st;
        char name[LAYER_ID_SIZE + 8];
        if (spec->bytes < LAYER_IMAGE_MIN_BYTES || spec->bytes > LAYER_IMAGE_MAX_BYTES || spec->inodes == 0)
                return -EINVAL;
        if (spec->id) {
                int r = id_only(spec->id, &m);
                if (r < 0)
                        return r;
                image_name(spec->id, false, name);
                if (layer_find(li, spec->id) || job_on(li, spec->id) || fstatat(li->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        return -EEXIST;
        }
        m.range_base = spec->range_base;
        return start(li, ACTION_MAKE, &m, spec, -1, ret);
}

int layer_image_open(struct layer_images *li, const char *id, struct layer_job **ret) {
        struct layer_manifest m;
        if (!layer_id_valid(id))
                return -EINVAL;
        if (layer_find(li, id))
                return -EALREADY;
        if (job_on(li, id))
                return -EBUSY;
        int r = layer_manifest_read(li->dir_fd, id, &m);
        return r < 0 ? r : start(li, ACTION_OPEN, &m, NULL, -1, ret);
}

int layer_image_publish(struct layer_images *li, const struct layer_manifest *wanted, struct layer_job **ret) {
        struct layer_manifest m = *wanted;
        int r = layer_manifest_check(&m);
        if (r < 0)
                return r;
        const struct layer_entry *en = layer_find(li, m.id);
        if (!en || !en->making)
                return -ENOENT;
        if (job_on(li, m.id))
                return -EBUSY;
        m.range_base = en->m.range_base;
        m.made_ms = wall_ms();
        return start(li, ACTION_PUBLISH, &m, NULL, en->mount_fd, ret);
}

int layer_image_close(struct layer_images *li, const char *id, struct layer_job **ret) {
        struct layer_entry *en = layer_find(li, id);
        if (!en || en->making)
                return -ENOENT;
        if (job_on(li, id))
                return -EBUSY;
        int r = start(li, ACTION_CLOSE, &en->m, NULL, -1, ret);
        if (r == 0)
                layer_forget(li, en);
        return r;
}

int layer_image_remove(struct layer_images *li, const char *id, struct layer_job **ret) {
        struct layer_manifest m;
        int r = id_only(id, &m);
        if (r < 0)
                return r;
        if (job_on(li, id))
                return -EBUSY;
        r = start(li, ACTION_REMOVE, &m, NULL, -1, ret);
        struct layer_entry *en = layer_find(li, id);
        if (r == 0 && en)
                layer_forget(li, en);    /* the child still holds it: its exit unmounts */
        return r;
}

int layer_mirror_remove(struct layer_images *li, const char *id, struct layer_job **ret) {
        struct layer_manifest m;
        int r = id_only(id, &m);
        return r < 0 ? r : start(li, ACTION_REMOVE_MIRROR, &m, NULL, -1, ret);
}

int layer_job_fd(const struct layer_job *j) {
        return j->child.fd;
}

static void unlink_job(struct layer_job *j) {
        struct layer_job **at = &j->li->jobs;
        while (*at != j)
                at = &(*at)->next;
        *at = j->next;
}

void layer_job_abort(struct layer_job *j) {
        job_kill(&j->child);
        unlink_job(j);
        free(j);
}

/* What the table learns from a job that did its work. */
static int learn(struct layer_job *j, int *fd, uint64_t value) {
        struct layer_images *li = j->li;
        if (j->action == ACTION_OPEN)
                return layer_entry_add(li, &j->m, TAKE_FD(*fd), false);
        if (j->action == ACTION_PUBLISH) {
                struct layer_entry *en = layer_find(li, j->m.id);
                if (!en)
                        return -ENOENT;
                en->m = j->m;
                en->m.bytes = value;
                en->making = false;
        }
        if (j->action == ACTION_MAKE && j->upper.id) {
                int kept = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
                return kept < 0 ? -errno : layer_entry_add(li, &j->m, kept, true);
        }
        return 0;
}

int layer_job_finish(struct layer_job *j, int *ret_fd, struct error *e) {
        _cleanup_close_ int fd = -1;
        uint64_t value = 0;
        int r = job_finish(&j->child, &fd, &value, e);
        unlink_job(j);
        if (r == 0) {
                r = learn(j, &fd, value);
                if (r < 0)
                        error_set(e, r, "keep layer %s", j->m.id);
        }
        free(j);
        if (r == 0 && ret_fd)
                *ret_fd = TAKE_FD(fd);
        return r;
}

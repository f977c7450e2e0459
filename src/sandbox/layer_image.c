/* The table of layer images and the jobs on them; the theory is in layer_image.h. Names in $BRIG_HOME/layers:
 *
 *     <id>.img        the image; its being there under this name is the publication
 *     <id>.manifest   written before the image gets its name, removed after it lost it
 *     .<anything>     incomplete: deleted at start
 *     mnt/<id>        mount points, only on kernels that cannot clone from a detached mount */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/layer_image.h"
#include "sandbox/layer_job.h"
#include "sandbox/layer_loop.h"
#include "sandbox/layer_manifest.h"
#include "sandbox/layer_private.h"

const struct layer_plane layer_planes[] = {
        { "/", "root", "root" LAYER_TREE_PREFIX },
        { "/usr", "usr", "root" LAYER_TREE_PREFIX "/usr" },
        { "/opt", "opt", "root" LAYER_TREE_PREFIX "/opt" },
};

struct layer_entry *layer_find(struct layer_images *li, const char *id) {
        struct map_node *n = map_find(&li->entries, id);
        return n ? container_of(n, struct layer_entry, node) : NULL;
}

void layer_forget(struct layer_images *li, struct layer_entry *en) {
        map_remove(&li->entries, &en->node);
        if (en->attached) {
                char path[LAYER_ID_SIZE + 40];
                snprintf(path, sizeof path, "/proc/self/fd/%d/%s", li->mnt_fd, en->m.id);
                umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
                unlinkat(li->mnt_fd, en->m.id, AT_REMOVEDIR);
        }
        fd_close(en->mount_fd);
        free(en);
}

/* Before Linux 6.15 a detached mount cannot be cloned from: then it is attached below layers/mnt. Asked of the kernel once. */
static int attach_if_needed(struct layer_images *li, struct layer_entry *en) {
        if (li->clones_detached < 0) {
                _cleanup_close_ int probe = open_tree(en->mount_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                li->clones_detached = probe >= 0;
        }
        if (li->clones_detached)
                return 0;
        if (mkdirat(li->mnt_fd, en->m.id, 0700) < 0 && errno != EEXIST)
                return -errno;
        if (move_mount(en->mount_fd, "", li->mnt_fd, en->m.id, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return -errno;
        en->attached = true;
        return 0;
}

void layer_images_force_attach(struct layer_images *li) {
        li->clones_detached = 0;
}

int layer_entry_add(struct layer_images *li, const struct layer_manifest *m, int mount_fd, bool making) {
        struct layer_entry *en = calloc(1, sizeof *en);
        if (!en) {
                fd_close(mount_fd);
                return -ENOMEM;
        }
        en->m = *m;
        en->mount_fd = mount_fd;
        en->making = making;
        int r = map_add(&li->entries, &en->node);
        if (r < 0) {
                fd_close(mount_fd);
                free(en);
                return r;
        }
        r = attach_if_needed(li, en);
        if (r < 0)
                layer_forget(li, en);
        return r;
}

bool layer_image_is_open(struct layer_images *li, const char *id) {
        const struct layer_entry *en = layer_find(li, id);
        return en && !en->making;
}

int layer_image_lower(struct layer_images *li, const char *id, const char *plane, uint32_t *ret_range_base) {
        const struct layer_entry *en = layer_find(li, id);
        if (!en || en->making)
                return -ESTALE;
        for (size_t i = 0; i < ARRAY_SIZE(layer_planes); i++) {
                if (strcmp(layer_planes[i].plane, plane) != 0)
                        continue;
                const char *sub = en->m.kind == LAYER_TREE ? layer_planes[i].in_tree : layer_planes[i].in_setup;
                _cleanup_close_ int at = fs_open_beneath(en->mount_fd, sub, O_PATH | O_DIRECTORY, 0);
                if (at < 0)
                        return at;
                int mnt = open_tree(at, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                if (mnt < 0)
                        return -errno;
                *ret_range_base = en->m.range_base;
                return mnt;
        }
        return -EINVAL;
}

/* ---- start and end ---- */

static int open_own_dir(int dirfd, const char *name, struct error *e) {
        if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
                return error_set(e, -errno, "make %s", name);
        _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return error_set(e, -errno, "open %s", name);
        /* Images are mounted by the kernel and mirrors handed to git: nobody but root may ever have written here. */
        if (st.st_uid != geteuid() || (st.st_mode & 022))
                return error_say(e, -EPERM, "%s must belong to root and be writable by nobody else", name);
        return TAKE_FD(fd);
}

int layer_manifest_read(int dirfd, const char *id, struct layer_manifest *ret) {
        char name[LAYER_ID_SIZE + 16];
        _cleanup_buf_ struct buf b = BUF_INIT(LAYER_MANIFEST_MAX);
        struct layer_manifest m;
        snprintf(name, sizeof name, "%s.manifest", id);
        int r = fs_read_file(dirfd, name, &b);
        if (r == 0)
                r = layer_manifest_parse(buf_str(&b), b.len, &m);
        if (r == 0 && strcmp(m.id, id) != 0)
                r = -EBADMSG;
        if (r == 0)
                *ret = m;
        return r;
}

int layer_image_stat(struct layer_images *li, const char *id, struct layer_manifest *ret) {
        return layer_id_valid(id) ? layer_manifest_read(li->dir_fd, id, ret) : -EINVAL;
}

/* The id when name is <id><suffix>. */
static bool id_of(const char *name, const char *suffix, char ret[static LAYER_ID_SIZE]) {
        size_t n = strlen(name), s = strlen(suffix);
        if (n <= s || n - s >= LAYER_ID_SIZE || strcmp(name + n - s, suffix) != 0)
                return false;
        memcpy(ret, name, n - s);
        ret[n - s] = 0;
        return layer_id_valid(ret);
}

/* Is this file of layers/ part of a whole layer? */
static bool file_belongs(int dirfd, const char *name) {
        char id[LAYER_ID_SIZE], image[LAYER_ID_SIZE + 8];
        struct layer_manifest m;
        struct stat st;
        if (id_of(name, ".img", id))
                return layer_manifest_read(dirfd, id, &m) == 0;
        if (!id_of(name, ".manifest", id))
                return false;
        snprintf(image, sizeof image, "%s.img", id);
        return fstatat(dirfd, image, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static DIR *dir_again(int fd) {
        int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = again < 0 ? NULL : fdopendir(again);
        if (!d)
                fd_close(again);
        return d;
}

static int sweep(int dirfd, struct error *e) {
        DIR *d = dir_again(dirfd);
        if (!d)
                return error_set(e, -errno, "read layers");
        const struct dirent *de;
        while ((de = readdir(d))) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 || strcmp(de->d_name, "mnt") == 0)
                        continue;
                if (!file_belongs(dirfd, de->d_name))
                        unlinkat(dirfd, de->d_name, 0);
        }
        closedir(d);
        return 0;
}

static const char *entry_key(const struct map_node *n) {
        return container_of(n, struct layer_entry, node)->m.id;
}

int layer_images_open(int home_fd, uint32_t store_id, struct layer_images **ret, struct error *e) {
        struct layer_images *li = calloc(1, sizeof *li);
        if (!li)
                return error_set(e, -ENOMEM, "layers");
        li->mirrors_fd = li->mnt_fd = -1;
        li->clones_detached = -1;
        li->store_id = store_id;
        int r = map_init(&li->entries, entry_key);
        if (r == 0)
                r = li->dir_fd = open_own_dir(home_fd, "layers", e);
        if (r >= 0)
                r = li->mirrors_fd = open_own_dir(home_fd, "mirrors", e);
        if (r >= 0)
                r = li->mnt_fd = open_own_dir(li->dir_fd, "mnt", e);
        if (r >= 0)
                r = sweep(li->dir_fd, e);
        if (r < 0) {
                layer_images_free(li);
                return r;
        }
        *ret = li;
        return 0;
}

static void free_entry(struct map_node *n, void *user) {
        layer_forget(user, container_of(n, struct layer_entry, node));
}

void layer_images_free(struct layer_images *li) {
        if (!li)
                return;
        while (li->jobs)
                layer_job_abort(li->jobs);
        map_each(&li->entries, free_entry, li);
        map_release(&li->entries);
        fd_close(li->dir_fd);
        fd_close(li->mirrors_fd);
        fd_close(li->mnt_fd);
        free(li);
}

int layer_images_list(struct layer_images *li, int (*each)(const struct layer_manifest *m, void *user), void *user) {
        DIR *d = dir_again(li->dir_fd);
        if (!d)
                return -errno;
        const struct dirent *de;
        int r = 0;
        while (r == 0 && (de = readdir(d))) {
                char id[LAYER_ID_SIZE];
                struct layer_manifest m;
                if (id_of(de->d_name, ".img", id) && layer_manifest_read(li->dir_fd, id, &m) == 0)
                        r = each(&m, user);
        }
        closedir(d);
        return r;
}

/* ---- mirrors ---- */

int layer_mirror_make(struct layer_images *li, const char *id) {
        if (!layer_id_valid(id))
                return -EINVAL;
        if (mkdirat(li->mirrors_fd, id, 0700) < 0)
                return errno == EEXIST ? 0 : -errno;
        if (fchownat(li->mirrors_fd, id, li->store_id, li->store_id, AT_SYMLINK_NOFOLLOW) < 0) {
                int r = -errno;
                unlinkat(li->mirrors_fd, id, AT_REMOVEDIR);
                return r;
        }
        return 0;
}

int layer_mirror_open(struct layer_images *li, const char *id) {
        if (!layer_id_valid(id))
                return -EINVAL;
        return fs_open_beneath(li->mirrors_fd, id, O_PATH | O_DIRECTORY, 0);
}

uint32_t layer_mirror_owner(const struct layer_images *li) {
        return li->store_id;
}

/* Layer images against the real kernel: needs root and loop devices, in a mount namespace of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "sandbox/layer_template.h"
#include "sandbox/layer_private.h"

#define BASE 7000000u

struct fixture { char home[64]; int home_fd; struct layer_images *li; };

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof *f);
        snprintf(f->home, sizeof f->home, "/tmp/brig-layers.XXXXXX");
        assert_non_null(mkdtemp(f->home));
        f->home_fd = open(f->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct error e = { 0 };
        if (layer_images_open(f->home_fd, 6000000, &f->li, &e) < 0)
                fail_msg("%s", e.text);
        *state = f;
        return 0;
}

static int remove_it(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static int teardown(void **state) {
        struct fixture *f = *state;
        layer_images_free(f->li);
        close(f->home_fd);
        nftw(f->home, remove_it, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
        free(f);
        return 0;
}

static int finish(struct layer_job *j, int *fd) {
        struct error e = { 0 };
        int r = layer_job_finish(j, fd, &e);
        if (r < 0 && r != -EBUSY)
                print_message("job: %s\n", e.text);
        return r;
}

static int make(struct fixture *f, const char *id, uint64_t bytes, uint64_t inodes) {
        struct layer_upper_spec spec = { .id = id, .bytes = bytes, .inodes = inodes, .range_base = BASE };
        struct layer_job *j;
        int fd = -1;
        assert_int_equal(layer_image_make(f->li, &spec, &j), 0);
        assert_int_equal(finish(j, &fd), 0);
        assert_true(fd >= 0);
        return fd;
}

static void put(int dirfd, const char *dir, const char *file, const char *text) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, file);
        mkdirat(dirfd, dir, 0755);
        int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
        close(fd);
}

static int publish(struct fixture *f, const char *id, enum layer_kind kind, const char *opaque) {
        struct layer_manifest m = { .kind = kind, .commit = "abc", .tree_hash = "def" };
        snprintf(m.id, sizeof m.id, "%s", id);
        snprintf(m.opaque, sizeof m.opaque, "%s", opaque);
        struct layer_job *j;
        int r = layer_image_publish(f->li, &m, &j);
        return r < 0 ? r : finish(j, NULL);
}

static int count_one(const struct layer_manifest *m, void *user) {
        ++*(int *)user;
        return 0;
}

static int count(struct fixture *f) {
        int n = 0;
        assert_int_equal(layer_images_list(f->li, count_one, &n), 0);
        return n;
}

static int files_in(struct fixture *f) {
        char path[96];
        int n = 0;
        snprintf(path, sizeof path, "%s/layers", f->home);
        DIR *d = opendir(path);
        for (const struct dirent *de; (de = readdir(d));)
                n += strcmp(de->d_name, ".") && strcmp(de->d_name, "..") && strcmp(de->d_name, "mnt") && strncmp(de->d_name, ".template-", 10);
        closedir(d);
        return n;
}

static void restart(struct fixture *f) {
        struct error e;
        layer_images_free(f->li);
        assert_int_equal(layer_images_open(f->home_fd, 6000000, &f->li, &e), 0);
}

static void expect_text(int dirfd, const char *path, const char *text) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        assert_int_equal(fs_read_file(dirfd, path, &b), 0);
        assert_string_equal(buf_str(&b), text);
}

/* ---- tests ---- */

static void a_published_setup_layer_is_read_plane_by_plane(void **state) {
        struct fixture *f = *state;
        uint32_t base = 0;
        int upper = make(f, "a1", 64 << 20, 5000);
        put(upper, "root", "x", "in root");
        put(upper, "usr", "y", "in usr");
        assert_int_equal(layer_image_lower(f->li, "a1", "/", &base), -ESTALE);     /* not yet */
        assert_int_equal(count(f), 0);
        close(upper);
        assert_int_equal(publish(f, "a1", LAYER_SETUP, ""), 0);
        assert_int_equal(count(f), 1);
        assert_true(layer_image_is_open(f->li, "a1"));
        int root = layer_image_lower(f->li, "a1", "/", &base), usr = layer_image_lower(f->li, "a1", "/usr", &base);
        assert_true(root >= 0 && usr >= 0);
        assert_int_equal(base, BASE);
        expect_text(root, "x", "in root");
        expect_text(usr, "y", "in usr");
        assert_int_equal(layer_image_lower(f->li, "a1", "/opt", &base), -ENOENT);
        assert_true(openat(root, "z", O_WRONLY | O_CREAT, 0600) < 0);
        assert_int_equal(errno, EROFS);
        close(root);
        close(usr);
}

static void a_tree_layer_is_one_root_and_hides_what_is_below(void **state) {
        struct fixture *f = *state;
        uint32_t base;
        char value[8];
        int upper = make(f, "a2", 64 << 20, 5000);
        mkdirat(upper, "root", 0755);
        mkdirat(upper, "root/tree", 0755);
        mkdirat(upper, "root/tree/opt", 0755);
        put(upper, "root/tree/opt/repo", "x", "hello");
        close(upper);
        assert_int_equal(publish(f, "a2", LAYER_TREE, "/opt/repo"), 0);
        restart(f);
        struct layer_job *j;
        assert_false(layer_image_is_open(f->li, "a2"));
        assert_int_equal(layer_image_open(f->li, "a2", &j), 0);
        assert_int_equal(finish(j, NULL), 0);
        int root = layer_image_lower(f->li, "a2", "/", &base), opt = layer_image_lower(f->li, "a2", "/opt", &base);
        assert_true(root >= 0 && opt >= 0);
        assert_int_equal(base, BASE);
        expect_text(root, "opt/repo/x", "hello");
        expect_text(opt, "repo/x", "hello");
        int repo = openat(opt, "repo", O_RDONLY);
        assert_int_equal(fgetxattr(repo, "trusted.overlay.opaque", value, sizeof value), 1);
        close(repo);
        close(root);
        close(opt);
}

static void nothing_is_published_while_somebody_can_write(void **state) {
        struct fixture *f = *state;
        int upper = make(f, "a3", 64 << 20, 5000);
        /* Through a mount of its own, as an overlay has it. */
        int clone = open_tree(upper, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        int writer = openat(clone, "w", O_WRONLY | O_CREAT, 0600);
        assert_true(clone >= 0 && writer >= 0);
        close(clone);
        assert_int_equal(publish(f, "a3", LAYER_SETUP, ""), -EBUSY);
        assert_int_equal(count(f), 0);
        close(writer);
        assert_int_equal(publish(f, "a3", LAYER_SETUP, ""), 0);
        close(upper);
}

static void what_was_not_published_is_deleted_at_start(void **state) {
        struct fixture *f = *state;
        close(make(f, "a4", 64 << 20, 5000));
        int whole = make(f, "a5", 64 << 20, 5000);
        close(whole);
        assert_int_equal(publish(f, "a5", LAYER_SETUP, ""), 0);
        int dir = openat(f->home_fd, "layers", O_RDONLY);
        close(openat(dir, "ab.img", O_WRONLY | O_CREAT, 0600));             /* no manifest */
        close(openat(dir, "ac.manifest", O_WRONLY | O_CREAT, 0600));        /* no image */
        close(openat(dir, ".ad.manifest.0011", O_WRONLY | O_CREAT, 0600));  /* half written */
        close(dir);
        restart(f);
        assert_int_equal(files_in(f), 2);
        assert_int_equal(count(f), 1);
}

static int templates_in(struct fixture *f) {
        char path[96];
        int n = 0;
        snprintf(path, sizeof path, "%s/layers", f->home);
        DIR *d = opendir(path);
        for (const struct dirent *de; (de = readdir(d));)
                n += strncmp(de->d_name, ".template-", 10) == 0;
        closedir(d);
        return n;
}

static void images_of_one_size_are_formatted_once(void **state) {
        struct fixture *f = *state;
        int a = make(f, NULL, 64 << 20, 5000), b = make(f, NULL, 64 << 20, 5000);
        assert_int_equal(templates_in(f), 1);
        assert_int_equal(mkdirat(a, "x", 0700), 0);
        assert_int_not_equal(faccessat(b, "x", F_OK, 0), 0);
        struct statfs s, t;
        assert_int_equal(fstatfs(a, &s) | fstatfs(b, &t), 0);
        assert_int_equal(s.f_blocks, t.f_blocks);
        assert_int_equal(s.f_files, t.f_files);
        close(a);
        close(b);
        for (unsigned i = 0; i < LAYER_TEMPLATES_MAX + 2; i++)
                close(make(f, NULL, (65 + i) << 20, 5000));
        assert_int_equal(templates_in(f), LAYER_TEMPLATES_MAX);
        restart(f);
        assert_int_equal(templates_in(f), 0);
}

static void removal_leaves_nothing(void **state) {
        struct fixture *f = *state;
        struct layer_job *j;
        close(make(f, "a6", 64 << 20, 5000));
        assert_int_equal(layer_image_remove(f->li, "a6", &j), 0);           /* while being made */
        assert_int_equal(finish(j, NULL), 0);
        assert_int_equal(files_in(f), 0);
        close(make(f, "a6", 64 << 20, 5000));                               /* the id is free again */
        assert_int_equal(publish(f, "a6", LAYER_SETUP, ""), 0);
        assert_int_equal(layer_image_remove(f->li, "a6", &j), 0);
        assert_int_equal(finish(j, NULL), 0);
        assert_int_equal(files_in(f), 0);
        assert_false(layer_image_is_open(f->li, "a6"));
}

static void an_old_kernel_gets_attached_mounts(void **state) {
        struct fixture *f = *state;
        struct layer_job *j;
        uint32_t base;
        layer_images_force_attach(f->li);
        int upper = make(f, "a7", 64 << 20, 5000);
        put(upper, "root", "x", "text");
        close(upper);
        assert_int_equal(publish(f, "a7", LAYER_SETUP, ""), 0);
        assert_int_equal(faccessat(f->home_fd, "layers/mnt/a7/root/x", F_OK, 0), 0);
        int root = layer_image_lower(f->li, "a7", "/", &base);
        expect_text(root, "x", "text");
        close(root);
        assert_int_equal(layer_image_close(f->li, "a7", &j), 0);
        assert_int_equal(finish(j, NULL), 0);
        assert_int_not_equal(faccessat(f->home_fd, "layers/mnt/a7", F_OK, 0), 0);
}

static void the_images_size_and_inodes_are_the_quota(void **state) {
        struct fixture *f = *state;
        struct statfs st;
        int upper = make(f, NULL, 32 << 20, 2000);
        assert_int_equal(fstatfs(upper, &st), 0);
        assert_true((uint64_t)st.f_blocks * (uint64_t)st.f_bsize <= 32 << 20);
        assert_in_range(st.f_files, 2000, 2600);     /* mkfs rounds up to whole blocks of inodes per group */
        int fd = openat(upper, "big", O_WRONLY | O_CREAT, 0600);
        static const char block[1 << 20];
        int r = 0;
        for (int i = 0; i < 40 && r == 0; i++)
                r = fs_write_all(fd, block, sizeof block);
        assert_int_equal(r, -ENOSPC);
        close(fd);
        struct stat s;
        assert_int_equal(fstat(upper, &s), 0);
        assert_int_equal(s.st_uid, BASE);
        close(upper);
        assert_int_equal(files_in(f), 0);
}

static void bad_ids_and_sizes_are_refused(void **state) {
        struct fixture *f = *state;
        struct layer_job *j;
        struct layer_upper_spec spec = { .id = "../a", .bytes = 64 << 20, .inodes = 10, .range_base = BASE };
        assert_int_equal(layer_image_make(f->li, &spec, &j), -EINVAL);
        spec.id = "ab";
        spec.bytes = LAYER_IMAGE_MIN_BYTES - 1;
        assert_int_equal(layer_image_make(f->li, &spec, &j), -EINVAL);
        assert_int_equal(layer_image_open(f->li, "AB", &j), -EINVAL);
        assert_int_equal(layer_image_open(f->li, "ab", &j), -ENOENT);
        assert_int_equal(layer_image_remove(f->li, "", &j), -EINVAL);
        assert_int_equal(layer_mirror_make(f->li, "a/b"), -EINVAL);
}

static void a_directory_that_others_may_have_written_is_refused(void **state) {
        struct fixture *f = *state;
        struct layer_images *li;
        struct error e;
        layer_images_free(TAKE_PTR(f->li));
        assert_int_equal(fchmodat(f->home_fd, "layers", 0777, 0), 0);
        assert_int_equal(layer_images_open(f->home_fd, 1, &li, &e), -EPERM);
        assert_int_equal(fchmodat(f->home_fd, "layers", 0700, 0), 0);
        assert_int_equal(fchownat(f->home_fd, "mirrors", 1000, 1000, 0), 0);
        assert_int_equal(layer_images_open(f->home_fd, 1, &li, &e), -EPERM);
}

static void a_mirror_belongs_to_the_store_and_is_removed_at_any_depth(void **state) {
        struct fixture *f = *state;
        struct layer_job *j;
        struct stat st;
        assert_int_equal(layer_mirror_make(f->li, "b1"), 0);
        assert_int_equal(layer_mirror_make(f->li, "b1"), 0);
        assert_int_equal(fstatat(f->home_fd, "mirrors/b1", &st, 0), 0);
        assert_int_equal(st.st_uid, 6000000);
        int fd = openat(f->home_fd, "mirrors/b1", O_RDONLY);
        assert_int_equal(symlinkat("/etc", fd, "link"), 0);
        for (int i = 0; i < 300; i++) {
                assert_int_equal(mkdirat(fd, "d", 0700), 0);
                int next = openat(fd, "d", O_RDONLY);
                close(fd);
                fd = next;
        }
        close(fd);
        assert_int_equal(layer_mirror_remove(f->li, "b1", &j), 0);
        assert_int_equal(finish(j, NULL), 0);
        assert_int_not_equal(faccessat(f->home_fd, "mirrors/b1", F_OK, 0), 0);
        assert_int_equal(access("/etc/passwd", F_OK), 0);
}

#define WITH_HOME(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
                perror("this test needs root");
                return 1;
        }
        const struct CMUnitTest tests[] = {
                WITH_HOME(a_published_setup_layer_is_read_plane_by_plane),
                WITH_HOME(a_tree_layer_is_one_root_and_hides_what_is_below),
                WITH_HOME(nothing_is_published_while_somebody_can_write),
                WITH_HOME(what_was_not_published_is_deleted_at_start),
                WITH_HOME(images_of_one_size_are_formatted_once),
                WITH_HOME(removal_leaves_nothing),
                WITH_HOME(an_old_kernel_gets_attached_mounts),
                WITH_HOME(the_images_size_and_inodes_are_the_quota),
                WITH_HOME(bad_ids_and_sizes_are_refused),
                WITH_HOME(a_directory_that_others_may_have_written_is_refused),
                WITH_HOME(a_mirror_belongs_to_the_store_and_is_removed_at_any_depth),
        };
        return cmocka_run_group_tests_name("sandbox/layer_image", tests, NULL, NULL);
}

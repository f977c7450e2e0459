/* Directory images, and uppers on disk. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/fixture.h"

/* An image with one static program (Brig's own init would do nothing; busybox may not be there): the shell and what it loads. */
static char image[] = "/tmp/brig-image-XXXXXX";

static int image_setup(void **state) {
        char command[] = "/bin/sh";
        const char *script = "set -e; cd \"$1\"; mkdir -p bin lib64 lib etc data; cp /bin/sh bin/sh; cp /bin/cat bin/cat; "
                             "for f in $(ldd /bin/sh /bin/cat | grep -o '/[^ ]*' | grep -v :); do mkdir -p .$(dirname $f); cp -L $f .$f; done; "
                             "echo theirs > data/file; chmod 0644 data/file; ln -s /etc evil";
        if (!mkdtemp(image) || chmod(image, 0755) < 0)
                return -1;
        const char *const argv[] = { command, "-c", script, "sh", image, NULL };
        pid_t pid;
        int status;
        pid = fork();
        if (pid == 0) {
                execv(command, (char *const *)argv);
                _exit(127);
        }
        if (waitpid(pid, &status, 0) < 0 || status != 0)
                return -1;
        return fixture_setup(state);
}

static int image_teardown(void **state) {
        char command[128];
        snprintf(command, sizeof command, "%s", image);
        pid_t pid = fork();
        if (pid == 0) {
                execl("/bin/rm", "rm", "-rf", command, NULL);
                _exit(127);
        }
        waitpid(pid, NULL, 0);
        return fixture_teardown(state);
}

static void a_directory_is_an_image(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.image = image;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "cat /data/file; echo mine > /data/file; cat /data/file; cat < /proc/sys/kernel/hostname; echo x > /dev/null; echo /[a-z]*");
        assert_string_equal(run_err(&r), "");
        assert_string_equal(run_out(&r), "theirs\nmine\nbrig\n/bin /data /dev /etc /evil /lib /lib64 /proc /sys /tmp");
        run_release(&r);
        box_destroy(&b);
        char path[64];
        _cleanup_buf_ struct buf text = BUF_INIT(64);
        snprintf(path, sizeof path, "%s/data/file", image);
        assert_int_equal(fs_read_file(AT_FDCWD, path, &text), 0);
        assert_string_equal(buf_str(&text), "theirs\n");
        snprintf(path, sizeof path, "%s/dev", image);
        assert_int_equal(access(path, F_OK), -1);      /* mount points are made in the upper */
}

static void a_target_through_the_images_link_is_refused(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct error e;
        struct sandbox_spec spec = box_spec();
        int fd = open("/usr/share", O_PATH | O_DIRECTORY | O_CLOEXEC);
        const struct sandbox_mount m = { .class = MOUNT_SOURCE, .fd = fd, .target = "/evil/x" };
        spec.image = image;
        spec.mounts = &m;
        spec.n_mounts = 1;
        assert_int_equal(sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e), 0);
        fixture_until(f, &b.gone);
        assert_true(b.failed);
        assert_string_equal(b.step, "attach a mount");
        assert_true(b.error.code == -ELOOP || b.error.code == -ENOTDIR);
        close(fd);
}

static void an_upper_on_disk_is_as_large_as_asked(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.upper = UPPER_DISK;
        spec.limits.disk_bytes = 32 << 20;
        spec.limits.memory_bytes = 32 << 20;           /* what is on disk is not memory */
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "head -c 24000000 /dev/zero > /usr/big && echo fits; stat -f -c %T /tmp; head -c 24000000 /dev/zero > /tmp/more 2>/dev/null || echo full");
        assert_string_equal(run_out(&r), "fits\noverlayfs\nfull");
        run_release(&r);
        box_destroy(&b);
        assert_true(b.end.hit[LIMIT_DISK]);
        assert_false(b.end.hit[LIMIT_MEMORY]);
}

static void destroy_while_the_disk_is_being_made_leaves_nothing(void **state) {
        struct fixture *f = *state;
        struct sandbox_spec spec = box_spec();
        spec.upper = UPPER_DISK;
        spec.limits.disk_bytes = 32 << 20;
        for (int i = 0; i < 3; i++) {
                struct box b = { .f = f };
                struct error e;
                assert_int_equal(sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e), 0);
                sandbox_destroy(b.sandbox);
                fixture_until(f, &b.gone);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_directory_is_an_image),
                cmocka_unit_test(a_target_through_the_images_link_is_refused),
                cmocka_unit_test(an_upper_on_disk_is_as_large_as_asked),
                cmocka_unit_test(destroy_while_the_disk_is_being_made_leaves_nothing),
        };
        return cmocka_run_group_tests(tests, image_setup, image_teardown);
}

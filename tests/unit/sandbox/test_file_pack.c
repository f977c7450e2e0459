/* Packs of files: what goes in comes out, and nothing else does. */
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/fs.h"
#include "sandbox/file_pack.h"

static char top[] = "/tmp/brig-pack-XXXXXX";
static int dir;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) { return remove(path); }
static int setup(void **state) {
        memcpy(top, "/tmp/brig-pack-XXXXXX", sizeof top);
        if (!mkdtemp(top))
                return -1;
        dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return dir < 0 ? -1 : 0;
}
static int teardown(void **state) {
        close(dir);
        return nftw(top, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *content(const char *name) {
        static struct buf b = BUF_INIT(65536);
        buf_reset(&b);
        return fs_read_file(dir, name, &b) == 0 ? buf_str(&b) : NULL;
}

static void files_come_out_with_mode_and_owner(void **state) {
        struct file_pack p = FILE_PACK_INIT;
        assert_int_equal(file_pack_add(&p, "test.sh", 0755, "echo\n", 5), 0);
        assert_int_equal(file_pack_add(&p, "data/deep/empty", 0600, "", 0), 0);
        assert_int_equal(file_pack_seal(&p), 0);
        assert_int_equal(file_pack_unpack(p.fd, dir, 1234), 0);
        struct stat st;
        assert_int_equal(fstatat(dir, "test.sh", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0755);
        assert_int_equal(st.st_uid, 1234);
        assert_string_equal(content("test.sh"), "echo\n");
        assert_int_equal(fstatat(dir, "data/deep", &st, 0), 0);
        assert_int_equal(st.st_uid, 1234);
        assert_int_equal(fstatat(dir, "data/deep/empty", &st, 0), 0);
        assert_int_equal(st.st_size, 0);
        file_pack_release(&p);
}

static void the_last_of_one_name_stands(void **state) {
        struct file_pack p = FILE_PACK_INIT;
        assert_int_equal(file_pack_add(&p, "a", 0644, "1", 1), 0);
        assert_int_equal(file_pack_add(&p, "a", 0644, "2", 1), 0);
        assert_int_equal(file_pack_seal(&p), 0);
        assert_int_equal(file_pack_unpack(p.fd, dir, 0), 0);
        assert_string_equal(content("a"), "2");
        file_pack_release(&p);
}

static void names_that_leave_are_refused(void **state) {
        struct file_pack p = FILE_PACK_INIT;
        static const char *const bad[] = { "", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a/.", "./a" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(file_pack_add(&p, bad[i], 0644, "x", 1), -EINVAL);
        char name[FILE_PACK_NAME_MAX + 2];
        memset(name, 'n', sizeof name);
        name[256] = 0;
        assert_int_equal(file_pack_add(&p, name, 0644, "x", 1), -EINVAL);
        assert_int_equal(p.fd, -1);
}

static void number_and_bytes_are_bounded(void **state) {
        struct file_pack p = FILE_PACK_INIT;
        for (unsigned i = 0; i < FILE_PACK_FILES_MAX; i++) {
                char name[16];
                snprintf(name, sizeof name, "f%u", i);
                assert_int_equal(file_pack_add(&p, name, 0644, "x", 1), 0);
        }
        assert_int_equal(file_pack_add(&p, "more", 0644, "x", 1), -E2BIG);
        file_pack_release(&p);
        assert_int_equal(file_pack_add(&p, "big", 0644, "x", FILE_PACK_BYTES_MAX), -EFBIG);
        file_pack_release(&p);
}

/* What the other side gets from somebody who does not use file_pack_add. */
static int forged(const char *name, uint32_t name_len, uint64_t size, const char *bytes, size_t n) {
        struct { uint32_t name_len, mode; uint64_t size; } h = { name_len, 0644, size };
        _cleanup_buf_ struct buf b = BUF_INIT(65536);
        buf_add(&b, &h, sizeof h);
        buf_add(&b, name, strlen(name));
        buf_add(&b, bytes, n);
        _cleanup_close_ int fd = fs_memfd("forged", b.data, b.len);
        return file_pack_unpack(fd, dir, 0);
}

static void forged_packs_are_refused(void **state) {
        assert_int_equal(forged("../../tmp/x", 11, 1, "x", 1), -EBADMSG);
        assert_int_equal(forged("a", 1, 2, "x", 1), -EBADMSG);
        assert_int_equal(forged("a", 100, 1, "x", 1), -EBADMSG);
        assert_int_equal(forged("a", UINT32_MAX, 1, "x", 1), -EBADMSG);
        assert_int_equal(forged("a", 1, UINT64_MAX, "x", 1), -EBADMSG);
        assert_int_equal(forged("a", 1, 1, "xyz", 3), -EBADMSG);       /* half a head follows */
        _cleanup_close_ int open_fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(file_pack_unpack(open_fd, dir, 0), -EBADMSG);
}

static void a_link_in_the_way_is_not_followed(void **state) {
        assert_int_equal(mkdirat(dir, "real", 0755), 0);
        assert_int_equal(symlinkat("real", dir, "link"), 0);
        struct file_pack p = FILE_PACK_INIT;
        assert_int_equal(file_pack_add(&p, "link/x", 0644, "1", 1), 0);
        assert_int_equal(file_pack_seal(&p), 0);
        assert_true(file_pack_unpack(p.fd, dir, 0) < 0);
        assert_null(content("real/x"));
        file_pack_release(&p);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(files_come_out_with_mode_and_owner, setup, teardown),
                cmocka_unit_test_setup_teardown(the_last_of_one_name_stands, setup, teardown),
                cmocka_unit_test_setup_teardown(names_that_leave_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(number_and_bytes_are_bounded, setup, teardown),
                cmocka_unit_test_setup_teardown(forged_packs_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(a_link_in_the_way_is_not_followed, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

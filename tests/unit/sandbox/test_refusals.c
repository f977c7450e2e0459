/* What the spawner refuses, whoever asks: requests are sent past the checks of the daemon's side. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "sandbox/client.h"
#include "sandbox/fixture.h"
#include "sandbox/spec.h"

struct reply { bool came; uint32_t type; char step[128]; int code; uint64_t handle; };

static void on_reply(struct spawner *sp, struct message *m, void *user) {
        struct reply *r = user;
        if (r->came)
                return;
        r->came = true;
        r->type = m->type;
        r->handle = m->handle;
        if (m->type == EV_FAILED) {
                snprintf(r->step, sizeof r->step, "%s", wire_get_str(&m->wire));
                r->code = (int)wire_get_u32(&m->wire);
        }
}

static struct reply ask(struct fixture *f, uint32_t type, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds) {
        struct reply r = { 0 };
        uint64_t ref;
        assert_int_equal(client_ref_new(f->spawner, on_reply, &r, &ref), 0);
        assert_int_equal(client_send(f->spawner, type, ref, handle, body, fds, n_fds), 0);
        fixture_until(f, &r.came);
        client_ref_drop(f->spawner, ref);
        return r;
}

static struct reply create(struct fixture *f, const struct sandbox_spec *s) {
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        int fds[MESSAGE_FDS_MAX];
        size_t n = 0;
        assert_int_equal(sandbox_spec_encode(s, false, &b, fds, &n), 0);
        return ask(f, REQ_CREATE, 0, &b, fds, n);
}

static void refused(struct fixture *f, const struct sandbox_spec *s, int code) {
        const struct reply r = create(f, s);
        assert_int_equal(r.type, EV_FAILED);
        assert_string_equal(r.step, "check the specification");
        assert_int_equal(r.code, code);
        assert_int_equal(r.handle, 0);
}

static void garbage_is_refused(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        buf_add(&b, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10);
        struct reply r = ask(*state, REQ_CREATE, 0, &b, NULL, 0);
        assert_int_equal(r.type, EV_FAILED);
        assert_int_equal(r.code, -EBADMSG);
        r = ask(*state, REQ_CREATE, 0, NULL, NULL, 0);
        assert_int_equal(r.code, -EBADMSG);
        r = ask(*state, 63, 0, NULL, NULL, 0);
        assert_int_equal(r.code, -EOPNOTSUPP);
        r = ask(*state, REQ_HELLO, 0, NULL, NULL, 0);
        assert_int_equal(r.code, -EOPNOTSUPP);
        r = ask(*state, 0xffffffffu, 0, NULL, NULL, 0);
        assert_int_equal(r.code, -EOPNOTSUPP);
}

static void handles_that_are_nobodys_are_refused(void **state) {
        const uint64_t handles[] = { 0, 1, 77, 1ull << 32, UINT64_MAX };
        for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
                struct reply r = ask(*state, REQ_EXEC, handles[i], NULL, NULL, 0);
                assert_int_equal(r.type, EV_FAILED);
                assert_int_equal(r.code, -ENOENT);
        }
}

static void a_stale_handle_finds_nothing(void **state) {
        struct box b;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        uint64_t handle = b.sandbox->handle;
        box_destroy(&b);
        box_create(*state, &b, &spec);         /* sits in the same place of the table */
        struct reply r = ask(*state, REQ_EXEC, handle, NULL, NULL, 0);
        assert_int_equal(r.code, -ENOENT);
        box_destroy(&b);
}

static void fields_out_of_range_are_refused(void **state) {
        struct sandbox_spec s = box_spec();
        s.id = "../x";
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.profile = PROFILE_MAX;
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.image = "relative";
        refused(*state, &s, -EINVAL);
        s.image = "/tmp/../etc";
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.upper = UPPER_LAYER;
        refused(*state, &s, -EINVAL);
        s = box_spec();
        const char *const layers[] = { "../../etc", NULL };
        s.layers = layers;
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.limits.pids = 0;
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.limits.disk_bytes = UINT64_MAX;
        refused(*state, &s, -EINVAL);
        s = box_spec();
        s.hostname = "a b";
        refused(*state, &s, -EINVAL);
}

static void the_hosts_network_is_for_a_fetch_with_a_mirror_only(void **state) {
        struct sandbox_spec s = box_spec();
        s.network = NETWORK_HOST;
        refused(*state, &s, -EPERM);
        s.profile = PROFILE_SETUP;
        refused(*state, &s, -EPERM);
        s.profile = PROFILE_FETCH;
        refused(*state, &s, -EINVAL);
}

static void mounts_and_files_are_checked(void **state) {
        struct sandbox_spec s = box_spec();
        int dir = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC), file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        struct sandbox_mount m = { .class = MOUNT_SOURCE, .fd = dir, .target = "/a/../b" };
        s.mounts = &m;
        s.n_mounts = 1;
        refused(*state, &s, -EINVAL);
        m.target = "/";
        refused(*state, &s, -EINVAL);
        m.target = "/mnt";
        m.fd = file;
        refused(*state, &s, -EINVAL);
        m = (struct sandbox_mount){ .class = MOUNT_MIRROR, .id = "../x", .target = "/mnt" };
        refused(*state, &s, -EINVAL);
        m = (struct sandbox_mount){ .class = MOUNT_CLASS_MAX, .id = "aa", .target = "/mnt" };
        refused(*state, &s, -EINVAL);
        s.n_mounts = 0;
        struct sandbox_file f = { "../x", file, 0444 };
        s.files = &f;
        s.n_files = 1;
        refused(*state, &s, -EINVAL);
        f.name = "a/b";
        refused(*state, &s, -EINVAL);
        f = (struct sandbox_file){ "x", dir, 0444 };
        refused(*state, &s, -EINVAL);
        close(dir);
        close(file);
}

static void an_image_outside_the_roots_is_refused_and_nothing_stays(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct sandbox_spec s = box_spec();
        struct error e;
        s.image = "/etc";
        assert_int_equal(sandbox_create(f->spawner, &s, &box_callbacks, &b, &b.sandbox, &e), 0);
        fixture_until(f, &b.gone);
        assert_true(b.failed);
        assert_string_equal(b.step, "open the image");
        assert_int_equal(b.error.code, -EPERM);
        /* A link in the roots that leads out is none either. */
        char link[] = "/tmp/brig-link-XXXXXX";
        assert_non_null(mkdtemp(link));
        assert_int_equal(rmdir(link), 0);
        assert_int_equal(symlink("/etc", link), 0);
        s.image = link;
        b = (struct box){ .f = f };
        assert_int_equal(sandbox_create(f->spawner, &s, &box_callbacks, &b, &b.sandbox, &e), 0);
        fixture_until(f, &b.gone);
        assert_true(b.failed && (b.error.code == -ELOOP || b.error.code == -ENOTDIR));
        unlink(link);
}

static void a_bad_exec_is_refused_and_the_sandbox_goes_on(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "true", NULL };
        struct exec_spec x = { .argv = argv, .cwd = "/", .stdin_fd = -1, .uid = 65536 };
        for (int i = 0; i < 3; i++) {
                _cleanup_buf_ struct buf body = BUF_INIT(65536);
                int fds[MESSAGE_FDS_MAX];
                size_t n = 0;
                struct exec_fd extra = { 0, 300 };
                if (i == 1)
                        x = (struct exec_spec){ .argv = argv, .cwd = "relative", .stdin_fd = -1 };
                if (i == 2)
                        x = (struct exec_spec){ .argv = argv, .cwd = "/", .stdin_fd = -1, .fds = &extra, .n_fds = 1 };
                assert_int_equal(exec_spec_encode(&x, (const int[3]){ -1, -1, -1 }, &body, fds, &n), 0);
                struct reply rep = ask(*state, REQ_EXEC, b.sandbox->handle, &body, fds, n);
                assert_int_equal(rep.type, EV_FAILED);
                assert_string_equal(rep.step, "check the exec");
        }
        run_sh(&b, &r, "echo well");
        assert_string_equal(run_out(&r), "well");
        run_release(&r);
        box_destroy(&b);
}

static void a_large_request_travels_whole(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        char *big = malloc(100001);
        memset(big, 'x', 100000);
        big[100000] = 0;
        const char *const argv[] = { "sh", "-c", "echo ${#1}", "sh", big, NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "100000");
        run_release(&r);
        free(big);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(garbage_is_refused),
                cmocka_unit_test(handles_that_are_nobodys_are_refused),
                cmocka_unit_test(a_stale_handle_finds_nothing),
                cmocka_unit_test(fields_out_of_range_are_refused),
                cmocka_unit_test(the_hosts_network_is_for_a_fetch_with_a_mirror_only),
                cmocka_unit_test(mounts_and_files_are_checked),
                cmocka_unit_test(an_image_outside_the_roots_is_refused_and_nothing_stays),
                cmocka_unit_test(a_bad_exec_is_refused_and_the_sandbox_goes_on),
                cmocka_unit_test(a_large_request_travels_whole),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

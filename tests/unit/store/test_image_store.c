/* The store of images against real sandboxes. Needs root. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "sandbox/fixture.h"
#include "store/image_store.h"
#include "store/tar_make.h"

struct test {
        struct fixture *f;
        struct image_store *st;
        bool closed;
};

static struct test t;

static void open_store(uint64_t max) {
        char path[128];
        const struct image_store_config cfg = { .home = t.f->home, .max_bytes = max };
        struct error e;
        snprintf(path, sizeof path, "%s/images", t.f->home);
        mkdir(path, 0755);
        if (image_store_open(&t.f->loop, t.f->spawner, &cfg, &t.st, &e) < 0)
                fail_msg("%s", e.text);
}

static void on_closed(void *user) { t.closed = true; }

static void close_store(void) {
        t.closed = false;
        image_store_close(t.st, on_closed, NULL);
        fixture_until(t.f, &t.closed);
        t.st = NULL;
}

static int setup(void **state) {
        int r = fixture_setup(state);
        t = (struct test){ .f = *state };
        if (r == 0)
                open_store(1ull << 40);
        return r;
}

static int teardown(void **state) {
        if (t.st)
                close_store();
        return fixture_teardown(state);
}

/* ---- layers ---- */

struct made {
        struct image_unpack unpack;
        struct image_want *want;
        struct image_chain *chain;
        enum image_failure failure;
        struct error error;
        unsigned makes;
        bool done;
};

static void on_make(struct image_layer *l, void *user) {
        struct made *m = user;
        m->makes++;
        image_layer_unpack(l, &m->unpack);
}

static void on_done(struct image_chain *c, enum image_failure failure, const struct error *e, void *user) {
        struct made *m = user;
        m->chain = c;
        m->failure = failure;
        if (failure != IMAGE_OK)
                m->error = *e;
        m->done = true;
}

static const struct image_want_callbacks callbacks = { on_make, on_done };

static int key_of(const char *text, char ret[static SHA256_HEX]) { return sha256_hex(text, strlen(text), ret); }

static void start(struct made *m, struct image_chain *parent, const char *key, const struct buf *archive) {
        struct error e;
        *m = (struct made){ .unpack.fd = fs_memfd("archive", archive->data, archive->len) };
        assert_int_equal(image_layer_want(t.st, parent, key, &callbacks, m, &m->want, &e), 0);
}

static void finish(struct made *m) {
        fixture_until(t.f, &m->done);
        close(m->unpack.fd);
}

/* Unpacks the items over nothing. */
static void unpack(struct made *m, const struct tar_item *items, size_t n) {
        static unsigned serial;
        _cleanup_buf_ struct buf b = BUF_INIT(64 << 20);
        char key[SHA256_HEX], text[32];
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        tar_make(&b, items, n);
        snprintf(text, sizeof text, "serial %u", ++serial);
        key_of(text, key);
        start(m, base, key, &b);
        image_chain_unref(base);
        finish(m);
}

static void expect_refused(const struct tar_item *items, size_t n, enum image_failure failure, const char *word) {
        struct made m;
        unpack(&m, items, n);
        assert_null(m.chain);
        assert_string_equal(image_failure_to_string((int)m.failure), image_failure_to_string((int)failure));
        if (!strstr(m.error.text, word))
                fail_msg("'%s' is not in '%s'", word, m.error.text);
}

/* A shell, so that what is in an image can be looked at from inside. */
static void add_busybox(struct buf *b) {
        _cleanup_buf_ struct buf program = BUF_INIT(8 << 20);
        assert_int_equal(fs_read_file(AT_FDCWD, "/bin/busybox", &program), 0);
        char h[512] = { 0 }, zero[512] = { 0 };
        const struct tar_item dir = { '5', "bin" }, sh = { '2', "bin/sh", NULL, "busybox" };
        unsigned sum = 0;
        tar_item(b, &dir);
        memcpy(h, "bin/busybox", 11);
        tar_octal(h + 100, 8, 0755);
        tar_octal(h + 108, 8, 0);
        tar_octal(h + 116, 8, 0);
        tar_octal(h + 124, 12, program.len);
        tar_octal(h + 136, 12, 0);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        memset(h + 148, ' ', 8);
        for (int i = 0; i < 512; i++)
                sum += (unsigned char)h[i];
        snprintf(h + 148, 8, "%06o", sum);
        buf_add(b, h, 512);
        buf_add(b, program.data, program.len);
        buf_add(b, zero, (512 - program.len % 512) % 512);
        tar_item(b, &sh);
}

static struct image_chain *shell_image(void) {
        static char key[SHA256_HEX];
        _cleanup_buf_ struct buf b = BUF_INIT(16 << 20);
        struct made m;
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        add_busybox(&b);
        tar_end(&b);
        key_of("busybox", key);
        start(&m, base, key, &b);
        finish(&m);
        image_chain_unref(base);
        if (!m.chain)
                fail_msg("%s", m.error.text);
        return m.chain;
}

static struct image_chain *over(struct image_chain *below, const struct tar_item *items, size_t n) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 << 20);
        char key[SHA256_HEX], text[200];
        static unsigned serial;
        struct made m;
        tar_make(&b, items, n);
        snprintf(text, sizeof text, "over %u %s", ++serial, image_chain_key(below));
        key_of(text, key);
        start(&m, below, key, &b);
        finish(&m);
        if (!m.chain)
                fail_msg("%s", m.error.text);
        return m.chain;
}

/* What a script says in a sandbox that stands on the chain. */
static void run_in(struct image_chain *c, const char *script, const char *want) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        const char *const argv[] = { "/bin/busybox", "sh", "-c", script, NULL };
        const char *const env[] = { "PATH=/bin", NULL };
        spec.image = image_chain_image(c);
        spec.layers = image_chain_layers(c);
        box_create(t.f, &b, &spec);
        struct exec_spec x = run_spec(&r, argv);
        x.env = env;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_err(&r), "");
        assert_string_equal(run_out(&r), want);
        run_release(&r);
        box_destroy(&b);
}

/* ---- tests ---- */

static void an_archive_becomes_files(void **state) {
        const struct tar_item items[] = {
                { '5', "./", .mode = 0755 }, { '5', "./etc/", .mode = 0750, .uid = 7, .gid = 8, .mtime = 1000000000 }, { '0', "etc/hello", "world\n", .mode = 04711, .uid = 1000, .gid = 1001, .mtime = 1500000000 },
                { '2', "etc/link", NULL, "hello" }, { '1', "etc/hard", NULL, "etc/hello" }, { '0', "deep/in/there", "x" },
        };
        struct image_chain *sh = shell_image(), *c = over(sh, items, ARRAY_SIZE(items));
        run_in(c, "cd /etc; busybox cat hello link hard; busybox stat -c '%n %a %u %g %h %Y' hello /etc; busybox readlink link; busybox cat /deep/in/there",
               "world\nworld\nworld\nhello 4711 1000 1001 2 1500000000\n/etc 750 7 8 1 1000000000\nhello\nx");
        image_chain_unref(c);
        image_chain_unref(sh);
}

static void whiteouts_hide_what_is_below_and_nothing_else(void **state) {
        const struct tar_item first[] = { { '0', "a/one", "1" }, { '0', "a/two", "2" }, { '0', "b/one", "1" }, { '0', "b/sub/two", "2" }, { '0', "c", "c" } };
        const struct tar_item second[] = { { '0', "a/.wh.one", "" }, { '0', "b/new", "n" }, { '0', "b/sub/new", "n" }, { '0', "b/.wh..wh..opq", "" }, { '0', ".wh.c", "" }, { '0', ".wh.absent", "" } };
        struct image_chain *sh = shell_image(), *c1 = over(sh, first, ARRAY_SIZE(first)), *c2 = over(c1, second, ARRAY_SIZE(second));
        run_in(c2, "cd /; echo a/* b/* b/sub/*; busybox ls c 2>/dev/null || echo gone", "a/two b/new b/sub b/sub/new\ngone");
        run_in(c1, "cd /; echo a/* b/* b/sub/* c", "a/one a/two b/one b/sub b/sub/two c");
        image_chain_unref(c2);
        image_chain_unref(c1);
        image_chain_unref(sh);
}

static void of_entries_with_one_name_the_last_counts_and_is_not_followed(void **state) {
        const struct tar_item items[] = {
                { '0', "f", "first" }, { '0', "f", "second\n" }, { '2', "d", NULL, "etc" }, { '5', "d" }, { '0', "d/x", "in d\n" }, { '5', "e" }, { '0', "e/y", "y" }, { '0', "e", "file\n" },
        };
        struct image_chain *sh = shell_image(), *c = over(sh, items, ARRAY_SIZE(items));
        run_in(c, "cd /; busybox cat f d/x e; busybox ls /etc/x 2>/dev/null; echo end", "second\nin d\nfile\nend");
        image_chain_unref(c);
        image_chain_unref(sh);
}

static void links_are_followed_within_the_image_only(void **state) {
        const struct tar_item inside[] = { { '5', "real" }, { '2', "abs", NULL, "/real" }, { '0', "abs/x", "x\n" }, { '5', "s" }, { '2', "s/rel", NULL, "../real" }, { '0', "s/rel/y", "y\n" } };
        const struct tar_item outside[] = { { '2', "evil", NULL, "../../../tmp" }, { '0', "evil/pwned", "x" } };
        const struct tar_item loop[] = { { '2', "l", NULL, "l" }, { '0', "l/x", "x" } };
        struct image_chain *sh = shell_image(), *c = over(sh, inside, ARRAY_SIZE(inside));
        run_in(c, "busybox cat /real/x /real/y", "x\ny");
        image_chain_unref(c);
        image_chain_unref(sh);
        expect_refused(outside, ARRAY_SIZE(outside), IMAGE_INVALID, "leads out");
        expect_refused(loop, ARRAY_SIZE(loop), IMAGE_INVALID, "links");
}

static void hostile_names_and_kinds_are_refused(void **state) {
        const struct { struct tar_item item; const char *word; } bad[] = {
                { { '0', "/abs", "x" }, "absolute" }, { { '0', "a/../../b", "x" }, "climbs" }, { { '0', "..", "x" }, "climbs" }, { { '3', "null" }, "device" }, { { '4', "disk" }, "device" },
                { { '1', "h", NULL, "/etc/passwd" }, "absolute" }, { { '1', "h", NULL, "../x" }, "climbs" }, { { '1', "h", NULL, "absent" }, "not there" }, { { '2', "l" }, "target" },
                { { 'x', "pax", "28 SCHILY.xattr.user.x.overlay.y=1\n" }, "broken" }, { { 'M', "more", "x" }, "kind" }, { { '0', ".wh.", "" }, "whiteout" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                expect_refused(&bad[i].item, 1, IMAGE_INVALID, bad[i].word);
        const struct tar_item overlay[] = { { 'x', "pax", "36 SCHILY.xattr.trusted.overlay.x=y\n" }, { '0', "f", "x" } };
        expect_refused(overlay, 2, IMAGE_INVALID, "overlay");
}

static void what_the_sandbox_has_mounted_is_left_alone(void **state) {
        const struct tar_item items[] = { { '5', "dev" }, { '3', "dev/null" }, { '0', "proc/x", "x" }, { '0', "ok", "ok\n" } };
        struct image_chain *sh = shell_image(), *c = over(sh, items, ARRAY_SIZE(items));
        run_in(c, "busybox cat /ok; echo x > /dev/null; busybox ls /proc/x 2>/dev/null || echo none", "ok\nnone");
        image_chain_unref(c);
        image_chain_unref(sh);
}

static void a_wrong_digest_is_refused(void **state) {
        const struct tar_item items[] = { { '0', "f", "x" } };
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        char key[SHA256_HEX], diff_id[SHA256_HEX];
        struct made m;
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        tar_make(&b, items, 1);
        key_of("wrong", key);
        sha256_hex(b.data, b.len, diff_id);
        for (int right = 0; right < 2; right++) {
                start(&m, base, key, &b);
                m.unpack.diff_id = right ? diff_id : key;
                finish(&m);
                assert_int_equal(m.failure, right ? IMAGE_OK : IMAGE_INVALID);
                image_chain_unref(m.chain);
        }
        image_chain_unref(base);
}

static void too_much_is_refused(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 << 20);
        _cleanup_free_ char *big = malloc((24 << 20) + 1);
        char key[SHA256_HEX];
        struct made m;
        memset(big, 'x', 24 << 20);
        big[24 << 20] = 0;
        const struct tar_item item = { '0', "big", big };
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        tar_make(&b, &item, 1);
        key_of("big", key);
        start(&m, base, key, &b);
        m.unpack.bytes_max = 16 << 20;
        finish(&m);
        assert_int_equal(m.failure, IMAGE_TOO_LARGE);
        image_chain_unref(base);
}

static void who_wants_the_same_layer_shares_the_making(void **state) {
        const struct tar_item items[] = { { '0', "f", "x" } };
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        char key[SHA256_HEX];
        struct made m[4];
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        tar_make(&b, items, 1);
        key_of("shared", key);
        unsigned makes = 0;
        for (int i = 0; i < 4; i++)
                start(&m[i], base, key, &b);
        for (int i = 0; i < 4; i++) {
                finish(&m[i]);
                assert_int_equal(m[i].failure, IMAGE_OK);
                makes += m[i].makes;
                image_chain_unref(m[i].chain);
        }
        assert_int_equal(makes, 1);
        image_chain_unref(base);
}

static void when_the_maker_is_cancelled_the_next_one_makes_it(void **state) {
        const struct tar_item items[] = { { '0', "f", "x" } };
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        char key[SHA256_HEX];
        struct made first, second;
        struct image_chain *base = image_chain_base(t.st, IMAGE_SCRATCH);
        tar_make(&b, items, 1);
        key_of("passed on", key);
        start(&first, base, key, &b);
        start(&second, base, key, &b);
        while (first.makes == 0)
                uv_run(&t.f->loop, UV_RUN_ONCE);
        image_want_cancel(first.want);
        finish(&second);
        close(first.unpack.fd);
        assert_false(first.done);
        assert_int_equal(second.failure, IMAGE_OK);
        assert_int_equal(second.makes, 1);
        image_chain_unref(second.chain);
        image_chain_unref(base);
}

/* ---- images ---- */

struct answer { struct image *img; enum image_failure failure; struct error error; bool done; };
static void on_image(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct answer *a = user;
        a->img = img;
        a->failure = failure;
        if (failure != IMAGE_OK)
                a->error = *e;
        a->done = true;
}

static struct image *add(struct image_chain *c, enum image_origin origin, const char *name, const char *env) {
        struct image_config config = { 0 };
        struct answer a = { 0 };
        struct error e;
        image_config_set_env(&config, "X", env);
        const char *const names[] = { name, NULL };
        const struct image_add add = { .chain = c, .config = &config, .origin = origin, .names = names };
        assert_int_equal(image_store_add(t.st, &add, on_image, &a, &e), 0);
        fixture_until(t.f, &a.done);
        image_config_release(&config);
        assert_int_equal(a.failure, IMAGE_OK);
        return a.img;
}

struct leased { struct image_lease *lease; enum image_failure failure; bool done; };
static void on_lease(struct image_lease *l, enum image_failure failure, const struct error *e, void *user) {
        struct leased *a = user;
        a->lease = l;
        a->failure = failure;
        a->done = true;
}

static struct leased acquire(const char *ref) {
        static struct leased a;
        struct image_acquisition *q;
        struct error e;
        a = (struct leased){ 0 };
        assert_int_equal(image_acquire(t.st, ref, NULL, on_lease, &a, &q, &e), 0);
        fixture_until(t.f, &a.done);
        return a;
}

static void an_image_is_there_after_a_restart(void **state) {
        struct image_chain *sh = shell_image();
        struct image *img = add(sh, IMAGE_FROM_IMPORT, "shell:1", "kept");
        char digest[SHA256_HEX];
        struct image_info info;
        image_info(img, &info);
        memcpy(digest, info.digest, sizeof digest);
        image_unuse(img);
        image_chain_unref(sh);
        close_store();
        open_store(1ull << 40);
        struct leased l = acquire("shell:1");
        assert_int_equal(l.failure, IMAGE_OK);
        assert_string_equal(l.lease->digest, digest);
        assert_string_equal(image_config_env(l.lease->config, "X"), "kept");
        run_in(l.lease->chain, "echo hi", "hi");
        image_lease_release(l.lease);
        assert_int_equal(acquire("shell:2").failure, IMAGE_NOT_FOUND);
}

static void a_name_moves_and_the_last_one_takes_the_image_along(void **state) {
        struct image_chain *sh = shell_image();
        struct image *one = add(sh, IMAGE_FROM_IMPORT, "moving:1", "one"), *two = add(sh, IMAGE_FROM_IMPORT, "moving:1", "two");
        struct answer a = { 0 };
        struct error e;
        assert_ptr_not_equal(one, two);
        assert_ptr_equal(image_find(t.st, "moving:1"), two);
        assert_int_equal(image_remove(t.st, "moving:1", on_image, &a, &e), -EBUSY);
        image_unuse(two);
        assert_int_equal(image_remove(t.st, "moving:1", on_image, &a, &e), 0);
        fixture_until(t.f, &a.done);
        assert_null(image_find(t.st, "moving:1"));
        image_unuse(one);
        image_chain_unref(sh);
}

static void eviction_takes_the_least_used_and_never_what_is_used_or_imported(void **state) {
        const struct tar_item x[] = { { '0', "x", "x" } }, y[] = { { '0', "y", "y" } }, z[] = { { '0', "z", "z" } };
        struct image_chain *sh = shell_image(), *c[] = { over(sh, x, 1), over(sh, y, 1), over(sh, z, 1) };
        image_unuse(add(sh, IMAGE_FROM_IMPORT, "kept:1", "i"));
        image_unuse(add(c[0], IMAGE_FROM_PULL, "old:1", "o"));
        image_unuse(add(c[1], IMAGE_FROM_PULL, "newer:1", "n"));
        struct image *used = add(c[2], IMAGE_FROM_PULL, "used:1", "u");
        for (int i = 0; i < 3; i++)
                image_chain_unref(c[i]);
        image_chain_unref(sh);
        for (int i = 0; i < 200 && image_find(t.st, "old:1"); i++)
                assert_true(image_store_shed(t.st, 1) > 0);
        assert_null(image_find(t.st, "old:1"));
        assert_non_null(image_find(t.st, "newer:1"));
        image_store_shed(t.st, 1ull << 40);
        assert_null(image_find(t.st, "newer:1"));
        assert_non_null(image_find(t.st, "used:1"));
        assert_non_null(image_find(t.st, "kept:1"));
        image_unuse(used);
}

static void many_layers_stand_on_each_other(void **state) {
        struct image_chain *c = shell_image();
        char name[16];
        for (int i = 0; i < 40; i++) {
                snprintf(name, sizeof name, "f%d", i);
                const struct tar_item item = { '0', name, "x" };
                struct image_chain *next = over(c, &item, 1);
                image_chain_unref(c);
                c = next;
        }
        run_in(c, "set -- /f*; echo $#", "40");
        image_chain_unref(c);
}

static void names_are_normalized(void **state) {
        static const struct { const char *in, *out; } names[] = {
                { "debian", "debian:latest" }, { "debian:12", "debian:12" }, { "localhost:5000/x", "localhost:5000/x:latest" }, { "a/b@sha256:0", "a/b@sha256:0" },
                { "sha256:0123456789ab", "sha256:0123456789ab" }, { "host", "host" }, { "", NULL }, { "-x", NULL }, { "a b", NULL }, { "a//b", NULL }, { "a/", NULL }, { "\n", NULL },
        };
        char out[IMAGE_NAME_MAX + 1];
        struct error e;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                int r = image_name_normalize(names[i].in, out, &e);
                assert_int_equal(r, names[i].out ? 0 : -EINVAL);
                if (names[i].out)
                        assert_string_equal(out, names[i].out);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_archive_becomes_files),
                cmocka_unit_test(whiteouts_hide_what_is_below_and_nothing_else),
                cmocka_unit_test(of_entries_with_one_name_the_last_counts_and_is_not_followed),
                cmocka_unit_test(links_are_followed_within_the_image_only),
                cmocka_unit_test(hostile_names_and_kinds_are_refused),
                cmocka_unit_test(what_the_sandbox_has_mounted_is_left_alone),
                cmocka_unit_test(a_wrong_digest_is_refused),
                cmocka_unit_test(too_much_is_refused),
                cmocka_unit_test(who_wants_the_same_layer_shares_the_making),
                cmocka_unit_test(when_the_maker_is_cancelled_the_next_one_makes_it),
                cmocka_unit_test(an_image_is_there_after_a_restart),
                cmocka_unit_test(a_name_moves_and_the_last_one_takes_the_image_along),
                cmocka_unit_test(eviction_takes_the_least_used_and_never_what_is_used_or_imported),
                cmocka_unit_test(many_layers_stand_on_each_other),
                cmocka_unit_test(names_are_normalized),
        };
        return cmocka_run_group_tests(tests, setup, teardown);
}

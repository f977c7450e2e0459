#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "store/image_ref.h"

static const struct image_ref_default mirror = { .host = "mirror.example", .space = "library" };

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_reference_has_one_canonical_form(void **state) {
        static const struct { const char *given, *canonical; bool loopback; } cases[] = {
                { "alpine", "mirror.example/library/alpine:latest", false },
                { "mirror.example/alpine", "mirror.example/alpine:latest", false },
                { "org/app:1.0", "mirror.example/org/app:1.0", false },
                { "alpine@sha256:" HEX, "mirror.example/library/alpine@sha256:" HEX, false },
                { "alpine:3@sha256:" HEX, "mirror.example/library/alpine:3@sha256:" HEX, false },
                { "Registry.Example.COM/a/b/c:T-1_x", "registry.example.com/a/b/c:T-1_x", false },
                { "localhost/a", "localhost/a:latest", true },
                { "LOCALHOST:5000/a", "localhost:5000/a:latest", true },
                { "127.0.0.1:5000/a:b", "127.0.0.1:5000/a:b", true },
                { "[::1]:5000/a", "[::1]:5000/a:latest", true },
                { "[fe80::1]/a", "[fe80::1]/a:latest", false },
                { "host:80/a", "host:80/a:latest", false },
                { "a/b", "mirror.example/a/b:latest", false },
                { "x.y/a__b/c-d---e.f", "x.y/a__b/c-d---e.f:latest", false },
                { "127.0.0.1.example.com/a", "127.0.0.1.example.com/a:latest", false },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct image_ref ref;
                struct error e = { 0 };
                char text[IMAGE_REF_TEXT_MAX + 1];
                if (image_ref_parse(cases[i].given, &mirror, &ref, &e) < 0)
                        fail_msg("%s: %s", cases[i].given, e.text);
                image_ref_format(&ref, text);
                assert_string_equal(text, cases[i].canonical);
                assert_int_equal(ref.loopback, cases[i].loopback);
        }
}

static void what_is_no_reference_is_refused_and_the_field_is_named(void **state) {
        static const char *const bad[] = {
                "", ":", "@", "/", "/a", "a/", "a//b", "A", "a:", "a:.x", "a:-x", "a:b:c", "a@", "a@sha256:12", ("a@sha512:" HEX HEX), ("a@sha256:" HEX "0"),
                "a@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", "../a", "a/../b", "./a", "a/.", "x.y/", "x.y/A", "-a", "a-", "a..b",
                "a___b", "_a", "a b", "a\nb", "a\tb", "-x.y/a", "x-.y/a", "x..y/a", ".x/a", "x./a", "h:0/a", "h:65536/a", "h:x/a", "h:/a", "[::1/a", "[x]/a",
                "[::1]5/a", "u@h.x/a", "https://h.x/a", "h.x/a?b", "h.x/a#b", "h.x/a%2e", "a:b/c", "\xc3\xa4", "a\\b",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct image_ref ref;
                struct error e = { 0 };
                if (image_ref_parse(bad[i], &mirror, &ref, &e) != -EINVAL)
                        fail_msg("accepted: %s", bad[i]);
                assert_memory_equal(e.text, "image", 5);
        }
}

static void the_limits_are_exact(void **state) {
        char text[IMAGE_REF_MAX + 2], *p = text;
        struct image_ref ref;
        memset(text, 'a', sizeof text);
        text[0] = 'x'; text[1] = '.'; text[2] = 'y'; text[3] = '/';
        p = text + 4;
        p[IMAGE_REF_PATH_MAX] = 0;
        assert_int_equal(image_ref_parse(text, &mirror, &ref, NULL), 0);
        p[IMAGE_REF_PATH_MAX] = 'a';
        p[IMAGE_REF_PATH_MAX + 1] = 0;
        assert_int_equal(image_ref_parse(text, &mirror, &ref, NULL), -EINVAL);
        memset(text, 'a', sizeof text);
        text[1] = ':';
        text[2 + IMAGE_REF_TAG_MAX] = 0;
        assert_int_equal(image_ref_parse(text, &mirror, &ref, NULL), 0);
        assert_int_equal(strlen(ref.tag), IMAGE_REF_TAG_MAX);
        text[2 + IMAGE_REF_TAG_MAX] = 'a';
        text[3 + IMAGE_REF_TAG_MAX] = 0;
        assert_int_equal(image_ref_parse(text, &mirror, &ref, NULL), -EINVAL);
        memset(text, 'a', sizeof text);
        text[IMAGE_REF_MAX + 1] = 0;
        assert_int_equal(image_ref_parse(text, &mirror, &ref, NULL), -EINVAL);
}

static void a_default_registry_takes_names_without_a_host(void **state) {
        static const struct { const char *given, *space, *path; } cases[] = {
                { "a", "library", "library/a" },
                { "a", "team/base", "team/base/a" },
                { "a", "", "a" },
                { "a", NULL, "a" },
                { "a/b", "library", "a/b" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                const struct image_ref_default d = { .host = "Mirror.example:5000", .space = cases[i].space };
                struct image_ref ref;
                assert_int_equal(image_ref_parse(cases[i].given, &d, &ref, NULL), 0);
                assert_string_equal(ref.host, "mirror.example:5000");
                assert_string_equal(ref.path, cases[i].path);
        }
}

static void a_name_with_a_host_is_taken_as_it_is_written(void **state) {
        const struct image_ref_default d = { .host = "mirror.example:5000", .space = "library" };
        struct image_ref ref;
        assert_int_equal(image_ref_parse("mirror.example:5000/a", &d, &ref, NULL), 0);
        assert_string_equal(ref.path, "a");
        assert_int_equal(image_ref_parse("other.example/a", NULL, &ref, NULL), 0);
        assert_string_equal(ref.host, "other.example");
}

static void without_a_default_a_name_needs_a_host_and_the_setting_is_named(void **state) {
        static const struct image_ref_default none = { .host = "", .space = "library" };
        const struct image_ref_default *const cases[] = { NULL, &none };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct image_ref ref;
                struct error e = { 0 };
                assert_int_equal(image_ref_parse("debian:12", cases[i], &ref, &e), -EINVAL);
                assert_non_null(strstr(e.text, "registry.default"));
                assert_int_equal(image_ref_parse("a/b", cases[i], &ref, &e), -EINVAL);
        }
}

static void what_the_operator_sets_is_checked(void **state) {
        static const struct { struct image_ref_default d; const char *setting; } bad[] = {
                { { .host = "not a host" }, "registry.default" },
                { { .host = "https://h.example" }, "registry.default" },
                { { .space = "Library" }, "registry.namespace" },
                { { .space = "library/" }, "registry.namespace" },
                { { .space = "../a" }, "registry.namespace" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct error e = { 0 };
                assert_int_equal(image_ref_default_check(&bad[i].d, &e), -EINVAL);
                assert_non_null(strstr(e.text, bad[i].setting));
        }
        assert_int_equal(image_ref_default_check(&(struct image_ref_default){ .host = "h.example:5000", .space = "a/b" }, NULL), 0);
        assert_int_equal(image_ref_default_check(&(struct image_ref_default){ .host = "", .space = "" }, NULL), 0);
}

static void the_digest_decides(void **state) {
        struct image_ref ref;
        assert_int_equal(image_ref_parse("a:t", &mirror, &ref, NULL), 0);
        assert_string_equal(image_ref_name(&ref), "t");
        assert_int_equal(image_ref_parse("a:t@sha256:" HEX, &mirror, &ref, NULL), 0);
        assert_string_equal(image_ref_name(&ref), "sha256:" HEX);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_reference_has_one_canonical_form),
                cmocka_unit_test(what_is_no_reference_is_refused_and_the_field_is_named),
                cmocka_unit_test(the_limits_are_exact),
                cmocka_unit_test(a_default_registry_takes_names_without_a_host),
                cmocka_unit_test(a_name_with_a_host_is_taken_as_it_is_written),
                cmocka_unit_test(without_a_default_a_name_needs_a_host_and_the_setting_is_named),
                cmocka_unit_test(what_the_operator_sets_is_checked),
                cmocka_unit_test(the_digest_decides),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

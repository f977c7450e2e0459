#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "store/repo_url.h"

static void addresses_have_one_canonical_form(void **state) {
        static const struct { const char *given, *canonical; enum repo_kind kind; } cases[] = {
                { "/srv/git//a/./b/", "file:///srv/git/a/b", REPO_LOCAL },
                { "file:///srv/a", "file:///srv/a", REPO_LOCAL },
                { "FILE://localhost/srv/a", "file:///srv/a", REPO_LOCAL },
                { "https://Example.COM/Org/Repo.git/", "https://example.com/Org/Repo.git", REPO_HTTP },
                { "HTTPS://u:p@example.com:443/a", "https://example.com/a", REPO_HTTP },
                { "http://example.com:8080/a", "http://example.com:8080/a", REPO_HTTP },
                { "http://[::1]:80/a", "http://[::1]/a", REPO_HTTP },
                { "http://[fe80::2]:81/a", "http://[fe80::2]:81/a", REPO_HTTP },
                { "git://h/a", "git://h/a", REPO_GIT },
                { "ssh://git@Host:22/a/b", "ssh://git@host/a/b", REPO_SSH },
                { "git@Host:org/repo.git", "git@host:org/repo.git", REPO_SSH },
                { "host:/abs", "host:/abs", REPO_SSH },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct repo_url u;
                struct error e = { 0 };
                if (repo_url_parse(cases[i].given, &u, &e) < 0)
                        fail_msg("%s: %s", cases[i].given, e.text);
                assert_string_equal(u.canonical, cases[i].canonical);
                assert_int_equal(u.kind, cases[i].kind);
                repo_url_release(&u);
        }
}

static void dangerous_addresses_are_refused_and_the_field_is_named(void **state) {
        static const char *const bad[] = {
                "", "-u", "--upload-pack=x", "ext::sh -c x", "ext::sh", "fd::17", "foo::https://h/a", "ftp://h/a", "relative/path", "./x", "../x", "x", "/",
                "/a/../b", "https://", "https:///a", "https://h", "https://h/", "https://-h/a", "ssh://-oProxyCommand=x/a", "ssh://-o@h/a",
                "ssh://u:p@h/a", "-oProxyCommand=x:a", "u@-h:a", "h:-a", "h:", "git://u@h/a", "https://h:x/a", "https://h:/a", "https://h:123456/a",
                "https://h/a b", "https://h/a\nb", "https://u%zz:p@h/a", "https://u%0a:p@h/a", "https://u%0:p@h/a", "file://host/a", "https://h$(id)/a",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct repo_url u;
                struct error e = { 0 };
                if (repo_url_parse(bad[i], &u, &e) != -EINVAL)
                        fail_msg("accepted: %s", bad[i]);
                assert_memory_equal(e.text, "repo_url", 8);
        }
}

static void a_too_long_address_is_refused(void **state) {
        char *s = malloc(REPO_URL_MAX + 2);
        struct repo_url u;
        memset(s, 'a', REPO_URL_MAX + 1);
        s[0] = '/';
        s[REPO_URL_MAX + 1] = 0;
        assert_int_equal(repo_url_parse(s, &u, NULL), -EINVAL);
        s[REPO_URL_MAX] = 0;
        assert_int_equal(repo_url_parse(s, &u, NULL), 0);
        repo_url_release(&u);
        free(s);
}

static void credentials_are_taken_out_and_decoded(void **state) {
        struct repo_url u;
        assert_int_equal(repo_url_parse("https://us%40er:se%3Acret@h.example:8443/a", &u, NULL), 0);
        assert_string_equal(u.username, "us@er");
        assert_string_equal(u.password, "se:cret");
        assert_string_equal(u.canonical, "https://h.example:8443/a");
        assert_string_equal(u.origin, "https://h.example:8443");
        assert_true(repo_url_has_credentials(&u));
        repo_url_release(&u);
        assert_int_equal(repo_url_parse("https://token@h/a", &u, NULL), 0);
        assert_string_equal(u.username, "token");
        assert_null(u.password);
        repo_url_release(&u);
        assert_int_equal(repo_url_parse("https://h/a@b", &u, NULL), 0);
        assert_false(repo_url_has_credentials(&u));
        repo_url_release(&u);
}

static void a_refusal_does_not_repeat_the_secret(void **state) {
        struct repo_url u;
        struct error e = { 0 };
        assert_int_equal(repo_url_parse("https://user:hunter2@/a", &u, &e), -EINVAL);
        assert_null(strstr(e.text, "hunter2"));
        assert_int_equal(repo_url_parse("ssh://user:hunter2@h/a", &u, &e), -EINVAL);
        assert_null(strstr(e.text, "hunter2"));
}

static void commits_are_hashes_or_names(void **state) {
        static const char *const names[] = { "HEAD", "main", "v1.0", "refs/pull/7/head", "feature/x_y", "deadbeef", "0123456789012345678901234567890123456789a" };
        static const char *const bad[] = {
                "", "-x", "a b", "a\nb", "a..b", "HEAD~1", "HEAD^", "a:b", "a@{1}", "/a", "a/", "a//b", "a/.b", ".a", "a.lock", "a?", "a*", "a[", "a\\b", "a'b", "a.",
        };
        enum commit_kind k;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                assert_int_equal(repo_commit_check(names[i], &k, NULL), 0);
                assert_int_equal(k, COMMIT_NAME);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct error e = { 0 };
                if (repo_commit_check(bad[i], &k, &e) != -EINVAL)
                        fail_msg("accepted: %s", bad[i]);
                assert_memory_equal(e.text, "base_commit", 11);
        }
        assert_int_equal(repo_commit_check("0123456789ABCDEF0123456789abcdef01234567", &k, NULL), 0);
        assert_int_equal(k, COMMIT_HASH);
        assert_true(repo_commit_is_short_hash("deadbee"));
        assert_false(repo_commit_is_short_hash("deadbe"));
        assert_false(repo_commit_is_short_hash("main"));
}

static void a_tree_does_not_go_where_it_would_hide_the_system(void **state) {
        static const char *const bad[] = { "", "/", "x", "/proc", "/proc/x", "/dev/x", "/tmp/x", "/run/brig", "/usr", "/a/", "/a/../b", "/a//b", "/a/.", "/mirror", "/a\n" };
        static const char *const good[] = { "/testbed", "/usr/src/app", "/home/user/x", "/workspace/repo", "/opt/x", "/developer", "/runner" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (repo_path_check(bad[i], NULL) != -EINVAL)
                        fail_msg("accepted: %s", bad[i]);
        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                assert_int_equal(repo_path_check(good[i], NULL), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(addresses_have_one_canonical_form),
                cmocka_unit_test(dangerous_addresses_are_refused_and_the_field_is_named),
                cmocka_unit_test(a_too_long_address_is_refused),
                cmocka_unit_test(credentials_are_taken_out_and_decoded),
                cmocka_unit_test(a_refusal_does_not_repeat_the_secret),
                cmocka_unit_test(commits_are_hashes_or_names),
                cmocka_unit_test(a_tree_does_not_go_where_it_would_hide_the_system),
        };
        return cmocka_run_group_tests_name("store/repo_url", tests, NULL, NULL);
}

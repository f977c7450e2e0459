/* Which names and links of a session's archive may become files here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cmd/local_tar.h"

static void assert_name(const char *name, const char *want) {
        char got[LOCAL_NAME_MAX + 1] = "untouched";
        assert_int_equal(local_name(name, got), 0);
        assert_string_equal(got, want);
}

static void assert_refused(const char *name) {
        char got[LOCAL_NAME_MAX + 1];
        assert_int_equal(local_name(name, got), -EBADMSG);
}

static void names_are_made_plain(void **state) {
        assert_name("a", "a");
        assert_name("./a//b/./c/", "a/b/c");
        assert_name("...", "...");
        assert_name("..a/b..", "..a/b..");
        assert_name(".", "");
        assert_name("./", "");
}

static void names_that_lead_out_are_refused(void **state) {
        assert_refused("");
        assert_refused("/");
        assert_refused("/etc/passwd");
        assert_refused("..");
        assert_refused("../a");
        assert_refused("a/../b");
        assert_refused("a/..");
        assert_refused("./..");
}

static void a_name_may_be_so_long_and_no_longer(void **state) {
        char name[LOCAL_NAME_MAX + 10], got[LOCAL_NAME_MAX + 1];
        memset(name, 'x', sizeof name);
        name[LOCAL_NAME_MAX - 1] = 0;
        assert_name(name, name);
        name[LOCAL_NAME_MAX - 1] = 'x';
        name[LOCAL_NAME_MAX + 1] = 0;
        assert_int_equal(local_name(name, got), -EBADMSG);
        for (size_t i = 1; i < LOCAL_NAME_MAX; i += 2)         /* the same with a slash before each letter */
                name[i] = '/';
        assert_int_equal(local_name(name, got), -EBADMSG);
}

static void links_that_stay_are_kept(void **state) {
        assert_true(link_stays("a", "b"));
        assert_true(link_stays("a", "./b/c"));
        assert_true(link_stays("d/a", "../b"));
        assert_true(link_stays("d/e/a", "../../b"));
        assert_true(link_stays("d/a", "./.././b"));
        assert_true(link_stays("a", "..b"));
}

static void links_that_lead_out_are_not(void **state) {
        assert_false(link_stays("a", ""));
        assert_false(link_stays("a", "/etc/passwd"));
        assert_false(link_stays("a", ".."));
        assert_false(link_stays("a", "../b"));
        assert_false(link_stays("d/a", "../../b"));
        assert_false(link_stays("d/a", ".././../b"));
}

/* "b" may be a link itself, to somewhere deeper or less deep. */
static void climbing_is_believed_at_the_beginning_only(void **state) {
        assert_false(link_stays("d/a", "b/../c"));
        assert_false(link_stays("d/e/f/a", "../b/../c"));
        assert_false(link_stays("d/a", "b/.."));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_are_made_plain), cmocka_unit_test(names_that_lead_out_are_refused), cmocka_unit_test(a_name_may_be_so_long_and_no_longer),
                cmocka_unit_test(links_that_stay_are_kept), cmocka_unit_test(links_that_lead_out_are_not), cmocka_unit_test(climbing_is_believed_at_the_beginning_only),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

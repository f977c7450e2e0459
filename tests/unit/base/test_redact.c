#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/redact.h"

static void check(const char *url, const char *want) {
        struct buf b = BUF_INIT(1024);
        assert_int_equal(redact_url(url, &b), 0);
        assert_string_equal(buf_str(&b), want);
        buf_release(&b);
}

static void credentials_go(void **state) {
        check("https://user:secret@example.com/r.git", "https://***@example.com/r.git");
        check("https://token@example.com:8443/r.git", "https://***@example.com:8443/r.git");
        check("https://u:p@ss@example.com/r", "https://***@example.com/r");
        check("ssh://git@example.com/r", "ssh://***@example.com/r");
}

static void the_rest_stays(void **state) {
        check("https://example.com/a@b/r.git", "https://example.com/a@b/r.git");
        check("/srv/repo@2", "/srv/repo@2");
        check("git@example.com:r.git", "git@example.com:r.git");
        check("file:///srv/a?x=@", "file:///srv/a?x=@");
        check("", "");
}

int main(void) {
        const struct CMUnitTest tests[] = { cmocka_unit_test(credentials_go), cmocka_unit_test(the_rest_stays) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

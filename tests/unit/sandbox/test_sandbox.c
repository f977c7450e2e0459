/* A sandbox from create to gone. */
#include <string.h>
#include <sys/wait.h>

#include "sandbox/fixture.h"

static void output_is_captured(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo hello; echo oops >&2; exit 7");
        assert_true(r.end.started);
        assert_string_equal(run_out(&r), "hello");
        assert_string_equal(run_err(&r), "oops");
        assert_true(WIFEXITED(r.end.status));
        assert_int_equal(WEXITSTATUS(r.end.status), 7);
        run_release(&r);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(output_is_captured),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

/* What sandboxes of sessions have that others have not. */
#include <linux/capability.h>
#include <string.h>
#include <sys/wait.h>

#include "sandbox/fixture.h"

static struct sandbox_spec session_spec(void) {
        struct sandbox_spec s = box_spec();
        s.profile = PROFILE_SESSION;
        return s;
}

static void names_of_capabilities_are_understood(void **state) {
        uint64_t bits;
        assert_int_equal(sandbox_cap_parse("NET_BIND_SERVICE", &bits), 0);
        assert_int_equal(bits, 1ull << CAP_NET_BIND_SERVICE);
        assert_int_equal(sandbox_cap_parse("cap_chown", &bits), 0);
        assert_int_equal(bits, 1ull << CAP_CHOWN);
        assert_int_equal(sandbox_cap_parse("ALL", &bits), 0);
        assert_int_equal(bits, ~0ull);
        assert_int_equal(sandbox_cap_parse("FLY", &bits), -EINVAL);
        assert_int_equal(sandbox_cap_parse("", &bits), -EINVAL);
}

static void dropped_capabilities_are_gone_for_good(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = session_spec();
        spec.cap_drop = 1ull << CAP_CHOWN;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "grep -E 'CapEff|CapBnd' /proc/self/status | cut -f2; touch /tmp/a; chown 5 /tmp/a 2>/dev/null && echo chowned; chmod 600 /tmp/a && echo ok");
        assert_null(strstr(run_out(&r), "chowned"));
        assert_non_null(strstr(run_out(&r), "ok"));
        unsigned long long eff = strtoull(run_out(&r), NULL, 16);
        assert_false(eff & 1ull << CAP_CHOWN);
        assert_true(eff & 1ull << CAP_SETUID);
        run_release(&r);
        box_destroy(&b);
}

static void other_profiles_drop_nothing(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct error e = { 0 };
        struct sandbox_spec spec = box_spec();
        spec.cap_drop = 1;
        assert_int_equal(sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e), -EINVAL);
        assert_non_null(strstr(e.text, "cap_drop"));
}

static void setuid_programs_work_within(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "cp /usr/bin/id /usr/local/bin/rid && chmod 4755 /usr/local/bin/rid");
        run_release(&r);
        const char *const argv[] = { "/usr/local/bin/rid", "-u", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.uid = x.gid = 1000;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "0");
        run_release(&r);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_of_capabilities_are_understood),
                cmocka_unit_test(dropped_capabilities_are_gone_for_good),
                cmocka_unit_test(other_profiles_drop_nothing),
                cmocka_unit_test(setuid_programs_work_within),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

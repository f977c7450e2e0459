#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "registry/reach.h"

static bool allowed(const struct reach *r, const char *address, bool named) {
        struct sockaddr_in v4 = { .sin_family = AF_INET };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
        if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
                return reach_allows(r, (struct sockaddr *)&v4, named);
        if (inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
                fail_msg("%s", address);
        return reach_allows(r, (struct sockaddr *)&v6, named);
}

static void public_addresses_are_allowed(void **state) {
        static const char *const good[] = { "1.1.1.1", "8.8.8.8", "11.0.0.1", "9.255.255.255", "172.15.255.255", "172.32.0.1", "192.167.255.255", "192.169.0.1",
                "100.63.255.255", "100.128.0.1", "169.253.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1", "2a00::1", "::ffff:8.8.8.8",
                "64:ff9b::808:808", "2002:808:808::1" };
        struct reach r;
        assert_int_equal(reach_init(&r, NULL, true, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (!allowed(&r, good[i], false))
                        fail_msg("denied: %s", good[i]);
}

static void what_is_not_public_is_denied_in_every_disguise(void **state) {
        static const char *const bad[] = { "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.1.2.3", "169.254.169.254",
                "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
                "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "2001:2::1", "100::1",
                "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:a00:1::", "2002:7f00:1::1",
                "2001:0:1:2:3:4:f5ff:fffe" /* Teredo of 10.0.0.1 */ };
        struct reach r;
        assert_int_equal(reach_init(&r, NULL, true, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (allowed(&r, bad[i], false))
                        fail_msg("allowed: %s", bad[i]);
}

static void loopback_needs_a_name_that_says_so_and_the_setting(void **state) {
        struct reach with, without;
        assert_int_equal(reach_init(&with, NULL, true, NULL), 0);
        assert_int_equal(reach_init(&without, NULL, false, NULL), 0);
        assert_true(allowed(&with, "127.0.0.1", true));
        assert_true(allowed(&with, "::1", true));
        assert_false(allowed(&with, "127.0.0.1", false));
        assert_false(allowed(&without, "127.0.0.1", true));
        assert_false(allowed(&with, "10.0.0.1", true));
}

static void the_operator_s_ranges_are_allowed_and_no_more(void **state) {
        static const char *const ranges[] = { "10.1.0.0/16", "192.168.7.9", "fd00::/8", "172.16.0.0/13", NULL };
        struct reach r;
        assert_int_equal(reach_init(&r, ranges, false, NULL), 0);
        assert_true(allowed(&r, "10.1.255.255", false));
        assert_true(allowed(&r, "::ffff:10.1.0.1", false));
        assert_false(allowed(&r, "10.2.0.0", false));
        assert_true(allowed(&r, "192.168.7.9", false));
        assert_false(allowed(&r, "192.168.7.8", false));
        assert_true(allowed(&r, "fd99::1", false));
        assert_false(allowed(&r, "fc00::1", false));
        assert_true(allowed(&r, "172.23.1.1", false));
        assert_false(allowed(&r, "172.24.1.1", false));
}

static void other_families_are_denied(void **state) {
        struct sockaddr a = { .sa_family = AF_UNIX };
        struct reach r;
        assert_int_equal(reach_init(&r, NULL, true, NULL), 0);
        assert_false(reach_allows(&r, &a, true));
}

static void a_bad_range_is_named(void **state) {
        static const char *const bad[] = { "", "10.0.0.0/33", "10.0.0/8", "::/129", "x", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "10.0.0.0/ 8" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                const char *const ranges[] = { bad[i], NULL };
                struct error e = { 0 };
                struct reach r;
                if (reach_init(&r, ranges, false, &e) != -EINVAL)
                        fail_msg("accepted: %s", bad[i]);
                assert_non_null(strstr(e.text, bad[i]));
        }
}

static void there_is_a_limit_on_ranges(void **state) {
        const char *ranges[REACH_RANGES_MAX + 2] = { 0 };
        struct reach r;
        for (size_t i = 0; i < REACH_RANGES_MAX; i++)
                ranges[i] = "10.0.0.0/8";
        assert_int_equal(reach_init(&r, ranges, false, NULL), 0);
        ranges[REACH_RANGES_MAX] = "10.0.0.0/8";
        assert_int_equal(reach_init(&r, ranges, false, NULL), -E2BIG);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(public_addresses_are_allowed),
                cmocka_unit_test(what_is_not_public_is_denied_in_every_disguise),
                cmocka_unit_test(loopback_needs_a_name_that_says_so_and_the_setting),
                cmocka_unit_test(the_operator_s_ranges_are_allowed_and_no_more),
                cmocka_unit_test(other_families_are_denied),
                cmocka_unit_test(a_bad_range_is_named),
                cmocka_unit_test(there_is_a_limit_on_ranges),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/json.h"
#include "egress/rules.h"

static struct egress_rules *rules(const char *const *texts) {
        struct egress_rules *r = NULL;
        struct error e = { 0 };
        if (egress_rules_new(texts, &r, &e) < 0)
                fail_msg("%s", e.text);
        return r;
}
#define RULES(...) rules((const char *const[]){ __VA_ARGS__, NULL })

static bool address(const struct egress_rules *r, const char *text, uint16_t port) {
        struct egress_address a;
        assert_int_equal(egress_address_parse(text, &a), 0);
        return egress_rules_allow_address(r, &a, port);
}

static void a_name_is_that_name(void **state) {
        struct egress_rules *r = RULES("PyPI.org.");
        assert_string_equal(egress_rules_text(r, 0), "pypi.org");
        assert_true(egress_rules_allow_name(r, "pypi.org", 443));
        assert_false(egress_rules_allow_name(r, "www.pypi.org", 443));
        assert_false(egress_rules_allow_name(r, "xpypi.org", 443));
        assert_false(egress_rules_allow_name(r, "pypi.org.evil.test", 443));
        egress_rules_unref(r);
}

static void a_star_is_what_lies_below(void **state) {
        struct egress_rules *r = RULES("*.Example.org:443");
        assert_string_equal(egress_rules_text(r, 0), "*.example.org:443");
        assert_true(egress_rules_allow_name(r, "a.example.org", 443));
        assert_true(egress_rules_allow_name(r, "a.b.example.org", 443));
        assert_true(egress_rules_allow_name(r, "a.example.org", 0));
        assert_false(egress_rules_allow_name(r, "a.example.org", 80));
        assert_false(egress_rules_allow_name(r, "example.org", 443));
        assert_false(egress_rules_allow_name(r, ".example.org", 443));
        assert_false(egress_rules_allow_name(r, "badexample.org", 443));
        egress_rules_unref(r);
        r = RULES("*");
        assert_true(egress_rules_allow_name(r, "any.thing", 1));
        assert_false(address(r, "8.8.8.8", 53));
        egress_rules_unref(r);
}

static void ranges_hold_their_addresses(void **state) {
        struct egress_rules *r = RULES("10.0.0.0/8:8000-8100", "192.0.2.7", "[2001:db8::/32]:443", "2001:db9::1", "::ffff:1.2.3.4");
        static const char *const canonical[] = { "10.0.0.0/8:8000-8100", "192.0.2.7/32", "[2001:db8::/32]:443", "2001:db9::1/128", "1.2.3.4/32", NULL };
        assert_int_equal(egress_rules_count(r), ARRAY_SIZE(canonical) - 1);
        for (size_t i = 0; i < ARRAY_SIZE(canonical) - 1; i++)
                assert_string_equal(egress_rules_text(r, i), canonical[i]);
        assert_true(address(r, "10.255.0.1", 8000));
        assert_true(address(r, "::ffff:10.255.0.1", 8100));
        assert_false(address(r, "10.255.0.1", 8101));
        assert_false(address(r, "11.0.0.1", 8000));
        assert_true(address(r, "192.0.2.7", 1));
        assert_false(address(r, "192.0.2.6", 1));
        assert_true(address(r, "2001:db8:ffff::1", 443));
        assert_false(address(r, "2001:db8:ffff::1", 80));
        assert_true(address(r, "2001:db9::1", 80));
        assert_true(address(r, "64:ff9b::1.2.3.4", 80));
        assert_false(egress_rules_allow_name(r, "10.255.0.1", 8000));
        struct egress_rules *again = rules(canonical);
        for (size_t i = 0; i < ARRAY_SIZE(canonical) - 1; i++)
                assert_string_equal(egress_rules_text(again, i), canonical[i]);
        egress_rules_unref(again);
        egress_rules_unref(r);
}

static void what_is_no_rule_is_named(void **state) {
        static const char *const bad[] = {
                "", " ", "a b", "http://a.b", "a.b:", "a.b:0", "a.b:65536", "a.b:x", "a.b:2-1", "a.b:1-", "a..b", ".a", "*a.b", "a.*.b", "*.*", "**", "*.",
                "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0", "1.2.3.4.5", "0x7f.1", "2130706433", "a.0x7f", "[::1", "[::1]x", "[a.b]:1", "::1/129", "1:2:3",
                "m\xc3\xbcnchen.example", "a/b", "a@b", "a\nb", "::ffff:0.0.0.0/64",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct egress_rules *r = NULL;
                struct error e = { 0 };
                if (egress_rules_new((const char *const[]){ "ok.test", bad[i], NULL }, &r, &e) != -EINVAL)
                        fail_msg("'%s' is taken", bad[i]);
                assert_non_null(strstr(e.text, "rule '"));
        }
}

static void labels_and_lists_are_bounded(void **state) {
        char name[300], back[EGRESS_NAME_MAX + 1];
        memset(name, 'a', sizeof name);
        assert_int_equal(egress_name_canonical(name, 63, back), 0);
        assert_int_equal(egress_name_canonical(name, 64, back), -EINVAL);
        for (size_t i = 50; i < sizeof name; i += 51)
                name[i] = '.';
        assert_int_equal(egress_name_canonical(name, 253, back), 0);
        assert_int_equal(egress_name_canonical(name, 254, back), -EINVAL);
        const char *many[EGRESS_RULES_MAX + 2] = { 0 };
        for (size_t i = 0; i <= EGRESS_RULES_MAX; i++)
                many[i] = "a.b";
        struct egress_rules *r;
        assert_int_equal(egress_rules_new(many, &r, NULL), -E2BIG);
        many[EGRESS_RULES_MAX] = NULL;
        assert_int_equal(egress_rules_new(many, &r, NULL), 0);
        egress_rules_unref(r);
}

static int from_json(const char *text, struct egress_rules **ret) {
        struct json v;
        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return egress_rules_from_json(&v, ret, NULL);
}

static void requests_give_a_list_or_an_object(void **state) {
        static const char *const bad[] = { "{}", "{\"allow\":1}", "{\"allow\":\"a.b\"}", "[1]", "[[]]", "[null]", "[\"a\\u0000.b\"]", "[\"\"]" };
        struct egress_rules *r;
        assert_int_equal(from_json("{\"allow\":[\"a.b\",\"*.c\"]}", &r), 0);
        assert_int_equal(egress_rules_count(r), 2);
        egress_rules_unref(r);
        assert_int_equal(from_json("[]", &r), 0);
        assert_int_equal(egress_rules_count(r), 0);
        assert_false(egress_rules_allow_name(r, "a.b", 0));
        egress_rules_unref(r);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(from_json(bad[i], &r), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_is_that_name),
                cmocka_unit_test(a_star_is_what_lies_below),
                cmocka_unit_test(ranges_hold_their_addresses),
                cmocka_unit_test(what_is_no_rule_is_named),
                cmocka_unit_test(labels_and_lists_are_bounded),
                cmocka_unit_test(requests_give_a_list_or_an_object),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is decided about an address, and which name an address means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "egress/names.h"
#include "egress/policy.h"

static bool nobodys(const struct egress_address *a) { return false; }
static bool own_is_8888(const struct egress_address *a) { return a->family == 4 && memcmp(a->b, "\10\10\10\10", 4) == 0; }

static struct egress_rules *rules(const char *const *texts) {
        struct egress_rules *r = NULL;
        assert_int_equal(egress_rules_new(texts, &r, NULL), 0);
        return r;
}

/* The decision, "yes" or the reason's name. */
static const char *ask(const struct egress_policy *p, const char *const *texts, const char *name, const char *address, uint16_t port) {
        struct egress_rules *r = rules(texts);
        struct egress_address a;
        assert_int_equal(egress_address_parse(address, &a), 0);
        int reason = policy_address(p, r, name, &a, port);
        egress_rules_unref(r);
        return reason < 0 ? "yes" : egress_reason_to_string(reason);
}
#define LIST(...) (const char *const[]){ __VA_ARGS__, NULL }

static void names_lead_to_public_addresses_only(void **state) {
        const struct egress_policy p = { .is_own = nobodys };
        static const struct { const char *address, *says; } cases[] = {
                { "8.8.8.8", "yes" },                  { "2a00:1450::1", "yes" },            { "10.0.0.1", "private_address" },
                { "172.16.0.1", "private_address" },   { "172.31.255.255", "private_address" }, { "172.32.0.1", "yes" },
                { "192.168.1.1", "private_address" },  { "fd00::1", "private_address" },     { "127.0.0.1", "local_address" },
                { "127.8.9.1", "local_address" },      { "::1", "local_address" },           { "169.254.169.254", "local_address" },
                { "fe80::1", "local_address" },        { "100.64.0.1", "local_address" },    { "100.100.100.200", "local_address" },
                { "0.0.0.0", "no_address" },           { "::", "no_address" },               { "224.0.0.1", "no_address" },
                { "255.255.255.255", "no_address" },   { "ff02::1", "no_address" },          { "198.18.0.1", "no_address" },
                { "::ffff:127.0.0.1", "local_address" }, { "::ffff:10.0.0.1", "private_address" }, { "64:ff9b::169.254.169.254", "local_address" },
                { "2002:7f00:1::", "no_address" },     { "2001:0:1::", "no_address" },       { "fec0::1", "no_address" },
                { "::7f00:1", "no_address" },          { "192.0.0.192", "local_address" },   { "64:ff9b:1::1", "no_address" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                const char *says = ask(&p, LIST("*"), "a.test", cases[i].address, 443);
                if (strcmp(says, cases[i].says) != 0)
                        fail_msg("%s: %s, not %s", cases[i].address, says, cases[i].says);
        }
}

static void a_private_address_must_be_meant(void **state) {
        const struct egress_policy p = { .is_own = nobodys };
        assert_string_equal(ask(&p, LIST("a.test", "10.0.0.0/8"), "a.test", "10.1.1.1", 443), "yes");
        assert_string_equal(ask(&p, LIST("a.test", "10.1.0.0/16:443"), "a.test", "10.1.1.1", 443), "yes");
        assert_string_equal(ask(&p, LIST("a.test", "10.1.0.0/16:443"), "a.test", "10.1.1.1", 80), "private_address");
        assert_string_equal(ask(&p, LIST("0.0.0.0/0"), NULL, "10.1.1.1", 443), "private_address");
        assert_string_equal(ask(&p, LIST("8.0.0.0/5"), NULL, "10.1.1.1", 443), "private_address");
        assert_string_equal(ask(&p, LIST("0.0.0.0/0"), NULL, "8.8.8.8", 443), "yes");
        assert_string_equal(ask(&p, LIST("10.0.0.0/8"), NULL, "10.1.1.1", 443), "yes");
        assert_string_equal(ask(&p, LIST("10.0.0.0/8"), NULL, "8.8.8.8", 443), "not_allowed");
        assert_string_equal(ask(&p, LIST("a.test"), NULL, "8.8.8.8", 443), "not_allowed");
}

static void what_is_local_is_the_operators_to_give(void **state) {
        struct egress_policy p = { .is_own = own_is_8888, .n_allow = 2, .own_port = 9090 };
        assert_string_equal(ask(&(struct egress_policy){ .is_own = own_is_8888 }, LIST("127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10"), NULL, "127.0.0.1", 1), "local_address");
        assert_int_equal(egress_range_parse("127.0.0.0/8", &p.allow[0]), 0);
        assert_int_equal(egress_range_parse("8.8.8.0/24", &p.allow[1]), 0);
        assert_string_equal(ask(&p, LIST("a.test"), "a.test", "127.0.0.1", 80), "yes");
        assert_string_equal(ask(&p, LIST("a.test"), "a.test", "127.0.0.1", 9090), "local_address");
        assert_string_equal(ask(&p, LIST("a.test"), "a.test", "8.8.8.8", 80), "yes");
        assert_string_equal(ask(&p, LIST("a.test"), "a.test", "8.8.8.8", 9090), "local_address");
        assert_string_equal(ask(&p, LIST("a.test"), "a.test", "8.8.4.4", 9090), "yes");
        p.n_allow = 1;
        assert_string_equal(ask(&p, LIST("a.test", "8.8.8.8"), "a.test", "8.8.8.8", 80), "local_address");
}

static void the_operators_no_is_final(void **state) {
        struct egress_policy p = { .is_own = nobodys, .deny = rules(LIST("*.evil.test", "9.9.9.0/24:25", "half.test:25")) };
        struct egress_rules *all = rules(LIST("*", "0.0.0.0/0"));
        assert_int_equal(policy_name(&p, all, "a.evil.test", 443), REASON_OPERATOR);
        assert_int_equal(policy_name(&p, all, "half.test", 25), REASON_OPERATOR);
        assert_int_equal(policy_name(&p, all, "half.test", 443), -1);
        assert_int_equal(policy_name(&p, all, "half.test", 0), -1);
        assert_string_equal(ask(&p, LIST("*"), "a.test", "9.9.9.9", 25), "operator");
        assert_string_equal(ask(&p, LIST("0.0.0.0/0"), NULL, "9.9.9.9", 25), "operator");
        assert_string_equal(ask(&p, LIST("0.0.0.0/0"), NULL, "9.9.9.9", 26), "yes");
        egress_rules_unref(all);
        egress_rules_unref(p.deny);
}

static void an_address_means_one_name(void **state) {
        struct names n;
        struct egress_address a, b, c;
        char text[EGRESS_ADDRESS_TEXT];
        assert_int_equal(names_init(&n), 0);
        assert_int_equal(names_address(&n, "a.test", &a), 0);
        assert_int_equal(names_address(&n, "b.test", &b), 0);
        assert_int_equal(names_address(&n, "a.test", &c), 0);
        assert_true(egress_address_equal(&a, &c));
        assert_false(egress_address_equal(&a, &b));
        egress_address_format(&a, text);
        assert_string_equal(text, "198.18.1.0");
        assert_string_equal(names_find(&n, &b), "b.test");
        assert_int_equal(egress_address_parse("198.18.0.1", &c), 0);
        assert_true(names_is_ours(&c));
        assert_null(names_find(&n, &c));
        assert_int_equal(egress_address_parse("198.20.1.0", &c), 0);
        assert_false(names_is_ours(&c));
        assert_null(names_find(&n, &c));
        names_release(&n);
}

/* Three times round all the numbers: what is remembered is bounded, and no address means a name that had it before. */
static void the_oldest_names_are_forgotten(void **state) {
        struct names n;
        struct egress_address first, a;
        char name[32];
        assert_int_equal(names_init(&n), 0);
        assert_int_equal(names_address(&n, "first.test", &first), 0);
        for (unsigned i = 0; i < 3 * 130816; i++) {
                snprintf(name, sizeof name, "n%u.test", i);
                assert_int_equal(names_address(&n, name, &a), 0);
                assert_true(names_is_ours(&a));
                const char *found = names_find(&n, &a);
                if (!found || strcmp(found, name) != 0)
                        fail_msg("%s is %s", name, found ? found : "nothing");
                if (i == EGRESS_NAMES_MAX - 2)
                        assert_non_null(names_find(&n, &first));
                if (i == EGRESS_NAMES_MAX)
                        assert_null(names_find(&n, &first));
        }
        assert_true(n.by_name.n <= EGRESS_NAMES_MAX);
        names_release(&n);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_lead_to_public_addresses_only),
                cmocka_unit_test(a_private_address_must_be_meant),
                cmocka_unit_test(what_is_local_is_the_operators_to_give),
                cmocka_unit_test(the_operators_no_is_final),
                cmocka_unit_test(an_address_means_one_name),
                cmocka_unit_test(the_oldest_names_are_forgotten),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

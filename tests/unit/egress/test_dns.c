#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "egress/dns.h"

static void questions_are_read(void **state) {
        uint8_t m[DNS_QUERY_MAX];
        struct dns_question q;
        int rcode = -1;
        size_t n = dns_write_question(7, "www.example.org", DNS_TYPE_AAAA, m);
        assert_int_equal(dns_read_question(m, n, &q, &rcode), 0);
        assert_string_equal(q.name, "www.example.org");
        assert_int_equal(q.type, DNS_TYPE_AAAA);
        m[13] = 'W';
        assert_int_equal(dns_read_question(m, n, &q, &rcode), 0);
        assert_string_equal(q.name, "www.example.org");
        m[13] = ' ';                           /* no host's name: nobody's */
        assert_int_equal(dns_read_question(m, n, &q, &rcode), 0);
        assert_string_equal(q.name, "");
        for (size_t cut = 0; cut < n - 11; cut++)
                assert_true(dns_read_question(m, cut, &q, &rcode) < 0);
}

static void broken_questions_are_told_or_passed_over(void **state) {
        uint8_t m[DNS_QUERY_MAX + 1] = { 0 };
        struct dns_question q;
        int rcode;
        size_t n = dns_write_question(7, "a.b", DNS_TYPE_A, m);
        m[2] |= 0x80;
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -EBADMSG);
        m[2] = 0x10;
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -ENOTSUP);
        assert_int_equal(rcode, DNS_NOTIMP);
        m[2] = 1;
        m[5] = 2;
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -ENOTSUP);
        assert_int_equal(rcode, DNS_FORMERR);
        m[5] = 1;
        assert_int_equal(dns_read_question(m, sizeof m, &q, &rcode), -ENOTSUP);
        m[12] = 0xc0;                          /* a name that points at itself */
        m[13] = 12;
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -ENOTSUP);
        m[13] = 0;                             /* into the header */
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -ENOTSUP);
        m[12] = 0x40;
        assert_int_equal(dns_read_question(m, n, &q, &rcode), -ENOTSUP);
}

static void answers_repeat_the_question(void **state) {
        uint8_t m[DNS_QUERY_MAX], out[DNS_QUERY_MAX + 16];
        static const uint8_t address[4] = { 198, 18, 1, 0 };
        struct dns_question q;
        struct dns_addresses a;
        int rcode;
        size_t n = dns_write_question(0x1234, "a.example", DNS_TYPE_A, m);
        assert_int_equal(dns_read_question(m, n, &q, &rcode), 0);
        size_t len = dns_write_answer(m, &q, DNS_OK, address, 30, out);
        assert_int_equal(dns_read_answer(out, len, 0x1234, "a.example", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.ttl, 30);
        assert_memory_equal(a.at[0].b, address, 4);
        len = dns_write_answer(m, &q, DNS_NXDOMAIN, NULL, 0, out);
        assert_int_equal(dns_read_answer(out, len, 0x1234, "a.example", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.rcode, DNS_NXDOMAIN);
        assert_int_equal(a.n, 0);
        assert_int_equal(dns_read_answer(out, len, 0x1235, "a.example", DNS_TYPE_A, &a), -EBADMSG);
        assert_int_equal(dns_read_answer(out, len, 0x1234, "b.example", DNS_TYPE_A, &a), -EBADMSG);
        assert_int_equal(dns_read_answer(out, len, 0x1234, "a.example", DNS_TYPE_AAAA, &a), -EBADMSG);
}

/* ---- what servers say ---- */

struct answer { uint8_t m[1500]; size_t n; };

static void begin(struct answer *a, const char *name, uint16_t type) {
        a->n = dns_write_question(1, name, type, a->m) - 11;
        a->m[2] = 0x81;
        a->m[11] = 0;
}

static void add_name(struct answer *a, const char *name) {
        for (size_t label; *name; name += label + (name[label] == '.')) {
                label = strcspn(name, ".");
                a->m[a->n++] = (uint8_t)label;
                memcpy(a->m + a->n, name, label);
                a->n += label;
        }
        a->m[a->n++] = 0;
}

static void add_record(struct answer *a, const char *name, uint8_t type, uint8_t ttl, const char *target) {
        add_name(a, name);
        const uint8_t head[] = { 0, type, 0, 1, 0, 0, 0, ttl };
        memcpy(a->m + a->n, head, sizeof head);
        size_t at = a->n + sizeof head;
        a->n = at + 2;
        if (type == DNS_TYPE_CNAME)
                add_name(a, target);
        else {
                struct egress_address to;
                assert_int_equal(egress_address_parse(target, &to), 0);
                memcpy(a->m + a->n, to.b, type == DNS_TYPE_A ? 4 : 16);
                a->n += type == DNS_TYPE_A ? 4 : 16;
        }
        a->m[at] = 0;
        a->m[at + 1] = (uint8_t)(a->n - at - 2);
        a->m[7]++;
}

static void aliases_are_followed_in_any_order(void **state) {
        struct answer m;
        struct dns_addresses a;
        begin(&m, "a.test", DNS_TYPE_A);
        add_record(&m, "c.test", DNS_TYPE_A, 9, "1.2.3.4");
        add_record(&m, "b.test", DNS_TYPE_CNAME, 7, "c.test");
        add_record(&m, "A.test", DNS_TYPE_CNAME, 8, "B.test");
        add_record(&m, "other.test", DNS_TYPE_A, 1, "6.6.6.6");
        assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.at[0].b[3], 4);
        assert_int_equal(a.ttl, 7);
}

static void what_was_not_asked_is_not_taken(void **state) {
        struct answer m;
        struct dns_addresses a;
        begin(&m, "a.test", DNS_TYPE_A);
        add_record(&m, "b.test", DNS_TYPE_A, 9, "6.6.6.6");
        add_record(&m, "a.test", DNS_TYPE_AAAA, 9, "2001:db8::1");
        assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.n, 0);
}

static void circles_and_crowds_end(void **state) {
        struct answer m;
        struct dns_addresses a;
        begin(&m, "a.test", DNS_TYPE_A);
        add_record(&m, "a.test", DNS_TYPE_CNAME, 9, "b.test");
        add_record(&m, "b.test", DNS_TYPE_CNAME, 9, "a.test");
        assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.n, 0);
        begin(&m, "a.test", DNS_TYPE_A);
        for (int i = 0; i < 40; i++)
                add_record(&m, "a.test", DNS_TYPE_A, 9, "1.2.3.4");
        assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_A, &a), 0);
        assert_int_equal(a.n, DNS_ADDRESSES_MAX);
        for (size_t cut = 0; cut < m.n; cut++)
                (void)dns_read_answer(m.m, cut, 1, "a.test", DNS_TYPE_A, &a);
        /* Pointers that go round, forward, and far. */
        static const uint8_t pointers[][2] = { { 0xc0, 24 }, { 0xc0, 255 }, { 0xff, 255 }, { 0xc0, 0 } };
        for (size_t i = 0; i < ARRAY_SIZE(pointers); i++) {
                begin(&m, "a.test", DNS_TYPE_A);
                memcpy(m.m + m.n, pointers[i], 2);
                m.n += 2;
                m.m[7] = 1;
                assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_A, &a), 0);
                assert_int_equal(a.n, 0);
        }
}

static void an_ipv4_address_in_dress_is_undressed(void **state) {
        struct answer m;
        struct dns_addresses a;
        begin(&m, "a.test", DNS_TYPE_AAAA);
        add_record(&m, "a.test", DNS_TYPE_AAAA, 9, "2001:db8::1");
        memcpy(m.m + m.n - 16, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
        assert_int_equal(dns_read_answer(m.m, m.n, 1, "a.test", DNS_TYPE_AAAA, &a), 0);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.at[0].family, 4);
        assert_int_equal(a.at[0].b[0], 127);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(questions_are_read),
                cmocka_unit_test(broken_questions_are_told_or_passed_over),
                cmocka_unit_test(answers_repeat_the_question),
                cmocka_unit_test(aliases_are_followed_in_any_order),
                cmocka_unit_test(what_was_not_asked_is_not_taken),
                cmocka_unit_test(circles_and_crowds_end),
                cmocka_unit_test(an_ipv4_address_in_dress_is_undressed),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

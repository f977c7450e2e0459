/* Any bytes as a sandbox's question, as a server's answer, and as a rule. */
#include <string.h>

#include "egress/dns.h"
#include "fuzz.h"

static void as_question(const uint8_t *p, size_t n) {
        struct dns_question q;
        uint8_t out[DNS_QUERY_MAX + 16];
        int rcode = 0, r = dns_read_question(p, n, &q, &rcode);
        if (r == -EBADMSG)
                return;
        ASSERT(q.end <= MIN2(n, (size_t)DNS_QUERY_MAX));
        static const uint8_t address[4] = { 198, 18, 1, 0 };
        size_t len = dns_write_answer(p, &q, r == 0 ? DNS_OK : rcode, r == 0 ? address : NULL, 30, out);
        ASSERT(len <= sizeof out);
        if (r < 0 || !q.name[0])
                return;
        uint8_t again[DNS_QUERY_MAX];
        struct dns_question same;
        ASSERT(dns_read_question(again, dns_write_question(1, q.name, q.type, again), &same, &rcode) == 0);
        ASSERT(strcmp(same.name, q.name) == 0 && same.type == q.type);
}

static void as_rule(const uint8_t *p, size_t n) {
        struct egress_rules *rules, *again;
        char *text = strndup((const char *)p, n);
        ASSERT(text);
        if (egress_rules_new((const char *const[]){ text, NULL }, &rules, NULL) == 0) {
                ASSERT(egress_rules_new((const char *const[]){ egress_rules_text(rules, 0), NULL }, &again, NULL) == 0);
                ASSERT(strcmp(egress_rules_text(rules, 0), egress_rules_text(again, 0)) == 0);
                egress_rules_unref(again);
                egress_rules_unref(rules);
        }
        free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct dns_addresses a;
        as_question(data, size);
        as_rule(data, size);
        if (size >= 2) {
                uint16_t id = (uint16_t)(data[0] << 8 | data[1]);
                if (dns_read_answer(data, size, id, "a.test", DNS_TYPE_A, &a) == 0)
                        ASSERT(a.n <= DNS_ADDRESSES_MAX);
                dns_read_answer(data, size, id, "a.test", DNS_TYPE_AAAA, &a);
        }
        return 0;
}

#include "sandbox/fields_network.h"

int field_network(const struct field *f, const struct json *v, enum sandbox_network *ret, struct egress_rules **ret_rules, struct error *e) {
        struct error why = { 0 };
        if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) {
                struct egress_rules *rules;
                if (egress_rules_from_json(v, &rules, &why) < 0)
                        return field_fault(f, e, "%s", why.text);
                *ret = NETWORK_ALLOW;
                *ret_rules = rules;
                return 0;
        }
        if (v->type != JSON_STRING)
                return field_fault(f, e, "expected a string or a list of rules, not %s", json_type_to_string((int)v->type));
        if (!json_string_is(v, "none") && !json_string_is(v, "open") && !json_string_is(v, "host"))
                return field_fault(f, e, "must be none, open, or {\"allow\": [...]}");
        *ret = json_string_is(v, "none") ? NETWORK_NONE : NETWORK_OPEN;
        *ret_rules = NULL;
        return 0;
}

/* /v1/sessions/{id}/network: what a session with the network `allow` may reach, what it did, what was refused, also after its end; and other
 * rules for a live one from now on. */
#include "api/v1_internal.h"
#include "sandbox/fields_network.h"

static void fail(struct http_request *r, struct sessions *ss, int x) {
        if (x == -ENODATA)
                v1_error(r, 409, "not_allow", "The session's network is not `allow`: it has no rules", "start a session with \"network\": {\"allow\": [...]}");
        else
                v1_unready(ss, r, http_param(r, "id"));
}

static void answer(struct http_request *r, struct sessions *ss) {
        _cleanup_buf_ struct buf b = BUF_INIT(4u << 20);
        int x = session_network(ss, http_param(r, "id"), &b);
        if (x == -ENODATA || x == -EAGAIN || x == -ENOENT)
                fail(r, ss, x);
        else
                v1_reply(r, 200, x, &b);
}

void v1_get_network(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        if (ss)
                answer(r, ss);
}

static int parse_allow(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct egress_rules **at = target;
        struct error why = { 0 };
        struct egress_rules *rules;
        if (v->type != JSON_ARRAY)
                return field_fault(f, e, "expected a list of rules, not %s", json_type_to_string((int)v->type));
        if (egress_rules_from_json(v, &rules, &why) < 0)
                return field_fault(f, e, "%s", why.text);
        egress_rules_unref(*at);
        *at = rules;
        return 0;
}

static const struct field network_fields[] = {
        { .name = "allow", .kind = FIELD_CUSTOM, .parse = parse_allow, .type = "list of rules", .doc = "instead of those that it has; connections that these do not allow are cut" },
};
struct v1_body v1_network_body(void) { return (struct v1_body){ network_fields, ARRAY_SIZE(network_fields) }; }

void v1_put_network(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        struct egress_rules *rules = NULL;
        struct json object;
        struct error e = { 0 };
        if (!ss)
                return;
        if (!session_find(ss, id)) {
                v1_unready(ss, r, id);
                return;
        }
        if (!v1_body(r, false, &object))
                return;
        int x = fields_decode(network_fields, ARRAY_SIZE(network_fields), &object, 0, &rules, &e);
        if (x == 0 && !rules)
                x = error_say(&e, -EINVAL, "Missing required fields: ['allow']");
        if (x < 0)
                v1_fault(r, x, e.text, NULL);
        else if ((x = session_set_rules(ss, id, rules)) < 0)
                fail(r, ss, x);
        else
                answer(r, ss);
        egress_rules_unref(rules);
}

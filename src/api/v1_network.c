/* /v1/sessions/{id}/network: what a live session with the network `allow` may reach, what it did, what was refused; and other rules
 * for it from now on. */
#include "api/v1_internal.h"
#include "sandbox/fields_network.h"

/* The network of the session in the path, or the answer is given. */
static struct egress_net *find(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        struct session *s = ss ? session_find(ss, id) : NULL;
        struct sandbox *sb = s ? session_sandbox(s) : NULL;
        if (!ss)
                return NULL;
        if (!sb) {
                v1_unready(ss, r, id);
                return NULL;
        }
        struct egress_net *n = sandbox_egress(sb);
        if (!n)
                v1_error(r, 409, "not_allow", "The session's network is not `allow`: it has no rules", "start a session with \"network\": {\"allow\": [...]}");
        return n;
}

static void answer(struct http_request *r, const struct egress_net *n) {
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        struct json_writer w = JSON_WRITER(&b);
        egress_net_write_json(n, &w);
        v1_reply(r, 200, json_finish(&w), &b);
}

void v1_get_network(struct http_request *r, void *user) {
        const struct egress_net *n = find(r, user);
        if (n)
                answer(r, n);
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
        struct egress_net *n = find(r, user);
        struct egress_rules *rules = NULL;
        struct json object;
        struct error e = { 0 };
        if (!n || !v1_body(r, false, &object))
                return;
        int x = fields_decode(network_fields, ARRAY_SIZE(network_fields), &object, 0, &rules, &e);
        if (x == 0 && !rules)
                x = error_say(&e, -EINVAL, "Missing required fields: ['allow']");
        if (x == 0) {
                egress_net_set_rules(n, rules);
                answer(r, n);
        } else
                v1_fault(r, x, e.text, NULL);
        egress_rules_unref(rules);
}

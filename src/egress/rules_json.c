#include "base/json.h"
#include "base/strv.h"
#include "egress/rules.h"

int egress_rules_from_json(const struct json *v, struct egress_rules **ret, struct error *e) {
        struct json list = *v, item;
        if (v->type == JSON_OBJECT && !json_get(v, "allow", &list))
                return error_say(e, -EINVAL, "expected {\"allow\": [...]}");
        if (list.type != JSON_ARRAY)
                return error_say(e, -EINVAL, "expected a list of rules, not %s", json_type_to_string((int)list.type));
        if (json_count(&list) > EGRESS_RULES_MAX)
                return error_say(e, -E2BIG, "more than %d rules", EGRESS_RULES_MAX);
        _cleanup_strv_ char **texts = NULL;
        int r = strv_ensure(&texts);
        for (struct json_iter it = json_iter(&list); r == 0 && json_next_item(&it, &item);) {
                _cleanup_buf_ struct buf b = BUF_INIT(EGRESS_RULE_TEXT_MAX);
                if (item.type != JSON_STRING)
                        return error_say(e, -EINVAL, "a rule is a string, not %s", json_type_to_string((int)item.type));
                if (json_string_max(&item) >= EGRESS_RULE_TEXT_MAX || json_string(&item, &b) < 0)
                        return error_say(e, -EINVAL, "a rule has at most %d bytes", EGRESS_RULE_TEXT_MAX - 1);
                if (memchr(buf_str(&b), 0, b.len))
                        return error_say(e, -EINVAL, "a rule holds a zero byte");
                r = strv_push(&texts, buf_str(&b));
        }
        return r < 0 ? error_set(e, r, "read the rules") : egress_rules_new((const char *const *)texts, ret, e);
}

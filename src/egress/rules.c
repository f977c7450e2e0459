#include <ctype.h>
#include <string.h>

#include "egress/rules.h"

enum rule_kind { RULE_NAME, RULE_BELOW /* "*.name" */, RULE_EVERY_NAME, RULE_RANGE };

struct rule {
        enum rule_kind kind;
        uint16_t first_port, last_port;        /* 0 and 65535: any */
        struct egress_range range;
        char name[EGRESS_NAME_MAX + 1];
        char *text;
};

struct egress_rules { unsigned refs; size_t n; struct rule at[]; };

/* ---- names ---- */

static bool label_is_number(const char *s, size_t n) {
        bool hex = n > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
        for (size_t i = hex ? 2 : 0; i < n; i++)
                if (hex ? !isxdigit((unsigned char)s[i]) : !isdigit((unsigned char)s[i]))
                        return false;
        return n > 0;
}

int egress_name_canonical(const char *name, size_t n, char ret[static EGRESS_NAME_MAX + 1]) {
        char out[EGRESS_NAME_MAX + 1];
        if (n > 0 && name[n - 1] == '.')
                n--;
        if (n == 0 || n > EGRESS_NAME_MAX)
                return -EINVAL;
        size_t label = 0;
        for (size_t i = 0; i < n; i++) {
                unsigned char ch = (unsigned char)name[i];
                if (ch == '.') {
                        if (i == label || i - label > 63)
                                return -EINVAL;
                        label = i + 1;
                } else if (!(isascii(ch) && isalnum(ch)) && ch != '-' && ch != '_')
                        return -EINVAL;
                out[i] = (char)(isascii(ch) ? tolower(ch) : ch);
        }
        if (n == label || n - label > 63 || label_is_number(name + label, n - label))
                return -EINVAL;        /* programs take a last label that is a number for an IPv4 address */
        out[n] = 0;
        memcpy(ret, out, n + 1);
        return 0;
}

/* ---- parsing ---- */

static bool parse_port(const char *s, size_t n, uint16_t *ret) {
        unsigned v = 0;
        for (size_t i = 0; i < n; i++) {
                if (!isdigit((unsigned char)s[i]) || n > 5)
                        return false;
                v = v * 10 + (unsigned)(s[i] - '0');
        }
        if (n == 0 || v < 1 || v > 65535)
                return false;
        *ret = (uint16_t)v;
        return true;
}

static bool parse_ports(const char *s, struct rule *r) {
        size_t dash = strcspn(s, "-");
        if (!parse_port(s, dash, &r->first_port))
                return false;
        r->last_port = r->first_port;
        if (s[dash] && !parse_port(s + dash + 1, strlen(s + dash + 1), &r->last_port))
                return false;
        return r->first_port <= r->last_port;
}

/* Parts the host from the ports. A single colon, or one behind a bracket, begins them; more are an IPv6 address. */
static const char *split(const char *text, char host[static EGRESS_RULE_TEXT_MAX], const char **ret_ports) {
        const char *colon = strchr(text, ':');
        size_t n = strlen(text);
        *ret_ports = NULL;
        if (text[0] == '[') {
                const char *end = strchr(text, ']');
                if (!end || (end[1] && end[1] != ':'))
                        return "a bracket is not closed";
                if (end[1])
                        *ret_ports = end + 2;
                n = (size_t)(end - ++text);
        } else if (colon && !strchr(colon + 1, ':')) {
                *ret_ports = colon + 1;
                n = (size_t)(colon - text);
        }
        memcpy(host, text, n);
        host[n] = 0;
        return NULL;
}

static const char *parse_host(const char *host, bool bracketed, struct rule *r) {
        if (egress_range_parse(host, &r->range) == 0) {
                r->kind = RULE_RANGE;
                return NULL;
        }
        for (const char *p = host; *p; p++)
                if ((unsigned char)*p >= 0x80)
                        return "write a name of another script in its xn-- form";
        if (strchr(host, '/'))
                return "expected a range such as 10.0.0.0/8, whose bits behind the prefix are zero";
        if (bracketed || strchr(host, ':'))
                return "not an IPv6 address or range";
        if (strcmp(host, "*") == 0) {
                r->kind = RULE_EVERY_NAME;
                return NULL;
        }
        r->kind = strncmp(host, "*.", 2) == 0 ? RULE_BELOW : RULE_NAME;
        if (r->kind == RULE_BELOW)
                host += 2;
        if (strchr(host, '*'))
                return "a star stands alone or as the whole first label: *.example.org";
        return egress_name_canonical(host, strlen(host), r->name) < 0 ? "not a host name, address or range" : NULL;
}

static int write_text(struct rule *r) {
        char host[EGRESS_NAME_MAX + 8], address[EGRESS_ADDRESS_TEXT], out[sizeof host + 16];
        bool any = r->first_port == 0;
        switch (r->kind) {
        case RULE_NAME:       snprintf(host, sizeof host, "%s", r->name); break;
        case RULE_BELOW:      snprintf(host, sizeof host, "*.%s", r->name); break;
        case RULE_EVERY_NAME: snprintf(host, sizeof host, "*"); break;
        case RULE_RANGE:
                egress_address_format(&r->range.base, address);
                snprintf(host, sizeof host, !any && r->range.base.family == 6 ? "[%s/%u]" : "%s/%u", address, r->range.prefix);
        }
        if (any)
                snprintf(out, sizeof out, "%s", host);
        else if (r->first_port == r->last_port)
                snprintf(out, sizeof out, "%s:%u", host, r->first_port);
        else
                snprintf(out, sizeof out, "%s:%u-%u", host, r->first_port, r->last_port);
        r->text = strdup(out);
        return r->text ? 0 : -ENOMEM;
}

static int parse_rule(const char *text, struct rule *r, struct error *e) {
        char host[EGRESS_RULE_TEXT_MAX];
        const char *ports, *why;
        *r = (struct rule){ .last_port = 65535 };
        if (strlen(text) >= EGRESS_RULE_TEXT_MAX)
                return error_say(e, -EINVAL, "rule '%.60s...' is too long", text);
        why = strstr(text, "://") ? "write the host alone, not a URL" : split(text, host, &ports);
        if (!why)
                why = parse_host(host, text[0] == '[', r);
        if (!why && ports && !parse_ports(ports, r))
                why = "expected a port from 1 to 65535, or a range such as 8000-8100";
        if (why)
                return error_say(e, -EINVAL, "rule '%.100s': %s", text, why);
        int r2 = write_text(r);
        return r2 < 0 ? error_set(e, r2, "read the rules") : 0;
}

int egress_rules_new(const char *const *texts, struct egress_rules **ret, struct error *e) {
        size_t n = 0;
        while (texts && texts[n])
                n++;
        if (n > EGRESS_RULES_MAX)
                return error_say(e, -E2BIG, "more than %d rules", EGRESS_RULES_MAX);
        struct egress_rules *rules = calloc(1, sizeof *rules + n * sizeof rules->at[0]);
        if (!rules)
                return error_set(e, -ENOMEM, "read the rules");
        rules->refs = 1;
        for (; rules->n < n; rules->n++) {
                int r = parse_rule(texts[rules->n], &rules->at[rules->n], e);
                if (r < 0) {
                        egress_rules_unref(rules);
                        return r;
                }
        }
        *ret = rules;
        return 0;
}

struct egress_rules *egress_rules_ref(struct egress_rules *r) {
        r->refs++;
        return r;
}

struct egress_rules *egress_rules_unref(struct egress_rules *r) {
        if (!r || --r->refs > 0)
                return NULL;
        for (size_t i = 0; i < r->n; i++)
                free(r->at[i].text);
        free(r);
        return NULL;
}

size_t egress_rules_count(const struct egress_rules *r) { return r->n; }
const char *egress_rules_text(const struct egress_rules *r, size_t i) { return r->at[i].text; }

/* ---- asking ---- */

static bool port_fits(const struct rule *r, uint16_t port) {
        return port == 0 || (port >= r->first_port && port <= r->last_port);
}

static bool is_below(const char *name, const char *top) {
        size_t n = strlen(name), t = strlen(top);
        return n > t + 1 && name[n - t - 1] == '.' && memcmp(name + n - t, top, t) == 0;
}

bool egress_rules_allow_name(const struct egress_rules *rules, const char *name, uint16_t port) {
        for (size_t i = 0; i < rules->n; i++) {
                const struct rule *r = &rules->at[i];
                if (!port_fits(r, port))
                        continue;
                if (r->kind == RULE_EVERY_NAME || (r->kind == RULE_NAME && strcmp(name, r->name) == 0) || (r->kind == RULE_BELOW && is_below(name, r->name)))
                        return true;
        }
        return false;
}

bool egress_rules_allow_address(const struct egress_rules *rules, const struct egress_address *a, uint16_t port) {
        for (size_t i = 0; i < rules->n; i++) {
                const struct rule *r = &rules->at[i];
                if (r->kind == RULE_RANGE && port_fits(r, port) && egress_range_holds(&r->range, a))
                        return true;
        }
        return false;
}

bool egress_rules_name_address(const struct egress_rules *rules, const struct egress_range *within, const struct egress_address *a, uint16_t port) {
        for (size_t i = 0; i < rules->n; i++) {
                const struct rule *r = &rules->at[i];
                if (r->kind == RULE_RANGE && port_fits(r, port) && r->range.prefix >= within->prefix && egress_range_holds(within, &r->range.base) &&
                    egress_range_holds(&r->range, a))
                        return true;
        }
        return false;
}

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "store/image_ref.h"

#define DIGEST_PREFIX "sha256:"
#define LABEL_MAX 63                   /* of a host name */

static int refuse(struct error *e, const char *why) {
        return error_say(e, -EINVAL, "image: %s", why);
}

static bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool image_digest_ok(const char *s, size_t n) {
        size_t prefix = strlen(DIGEST_PREFIX);
        if (n != IMAGE_REF_DIGEST_LEN || memcmp(s, DIGEST_PREFIX, prefix) != 0)
                return false;
        for (size_t i = prefix; i < n; i++)
                if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'f'))
                        return false;
        return true;
}

/* ---- host ---- */

static bool port_ok(const char *s, size_t n) {
        unsigned v = 0;
        if (n == 0 || n > 5)
                return false;
        for (size_t i = 0; i < n; i++) {
                if (s[i] < '0' || s[i] > '9')
                        return false;
                v = v * 10 + (unsigned)(s[i] - '0');
        }
        return v > 0 && v <= 65535;
}

static bool ipv6_ok(const char *s, size_t n) {
        char text[INET6_ADDRSTRLEN];
        struct in6_addr a;
        if (n == 0 || n >= sizeof text)
                return false;
        memcpy(text, s, n);
        text[n] = 0;
        return inet_pton(AF_INET6, text, &a) == 1;
}

static bool name_ok(const char *s, size_t n) {
        size_t label = 0;
        for (size_t i = 0; i < n; i++) {
                if (s[i] == '.') {
                        if (label == 0 || s[i - 1] == '-')
                                return false;
                        label = 0;
                        continue;
                }
                if (!is_lower_or_digit((char)tolower((unsigned char)s[i])) && (s[i] != '-' || label == 0))
                        return false;
                if (++label > LABEL_MAX)
                        return false;
        }
        return label > 0 && s[n - 1] != '-';
}

bool image_host_ok(const char *s, size_t n) {
        size_t len;
        if (n == 0 || n > IMAGE_REF_HOST_MAX)
                return false;
        if (s[0] == '[') {
                const char *end = memchr(s, ']', n);
                if (!end || !ipv6_ok(s + 1, (size_t)(end - s) - 1))
                        return false;
                len = (size_t)(end - s) + 1;
        } else {
                const char *colon = memchr(s, ':', n);
                len = colon ? (size_t)(colon - s) : n;
                if (!name_ok(s, len))
                        return false;
        }
        return len == n || (s[len] == ':' && port_ok(s + len + 1, n - len - 1));
}

bool image_host_is_loopback(const char *host) {
        char name[IMAGE_REF_HOST_MAX + 1];
        struct in_addr v4;
        struct in6_addr v6;
        size_t n = host[0] == '[' ? strcspn(host + 1, "]") : strcspn(host, ":");
        if (n >= sizeof name)
                return false;
        memcpy(name, host[0] == '[' ? host + 1 : host, n);
        name[n] = 0;
        if (host[0] == '[')
                return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
        return strcasecmp(name, "localhost") == 0 || (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

/* ---- path and tag ---- */

/* [a-z0-9]+ ( ('.' | '_' | '__' | '-'+) [a-z0-9]+ )* */
static bool component_ok(const char *s, size_t n) {
        if (n == 0 || !is_lower_or_digit(s[0]) || !is_lower_or_digit(s[n - 1]))
                return false;
        for (size_t i = 0; i < n;) {
                size_t run = 1;
                if (is_lower_or_digit(s[i])) {
                        i++;
                        continue;
                }
                if (s[i] != '.' && s[i] != '_' && s[i] != '-')
                        return false;
                while (i + run < n && s[i + run] == s[i])
                        run++;
                if (!is_lower_or_digit(s[i + run]) || (s[i] == '.' && run > 1) || (s[i] == '_' && run > 2))
                        return false;
                i += run;
        }
        return true;
}

static bool path_ok(const char *s, size_t n) {
        for (size_t at = 0; at <= n;) {
                const char *slash = memchr(s + at, '/', n - at);
                size_t len = slash ? (size_t)(slash - s) - at : n - at;
                if (!component_ok(s + at, len))
                        return false;
                at += len + 1;
        }
        return true;
}

static bool tag_ok(const char *s, size_t n) {
        if (n == 0 || n > IMAGE_REF_TAG_MAX || s[0] == '.' || s[0] == '-')
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)s[i]) && s[i] != '_' && s[i] != '.' && s[i] != '-')
                        return false;
        return true;
}

/* ---- whole ---- */

static bool host_given(const char *s, size_t n) {
        return memchr(s, '.', n) || memchr(s, ':', n) || (n == 9 && strncasecmp(s, "localhost", 9) == 0);
}

static int take_digest(const char **text, size_t *n, struct image_ref *ref, struct error *e) {
        const char *at = memchr(*text, '@', *n);
        if (!at)
                return 0;
        size_t len = *n - (size_t)(at + 1 - *text);
        if (!image_digest_ok(at + 1, len))
                return refuse(e, "the digest is not sha256: and 64 lower-case hex digits");
        memcpy(ref->digest, at + 1, len);
        *n = (size_t)(at - *text);
        return 0;
}

static int take_host(const char **text, size_t *n, const char *default_host, struct image_ref *ref, bool *ret_short, struct error *e) {
        const char *slash = memchr(*text, '/', *n);
        size_t len = slash ? (size_t)(slash - *text) : 0;
        bool given = slash && host_given(*text, len);
        const char *host = given ? *text : default_host;
        size_t host_len = given ? len : host ? strlen(host) : 0;
        if (given) {
                *text += len + 1;
                *n -= len + 1;
        } else if (host_len == 0)
                return refuse(e, "the name has no registry (HOST/PATH), and the setting registry.default names none");
        if (!image_host_ok(host, host_len))
                return refuse(e, "not the host name of a registry");
        for (size_t i = 0; i < host_len; i++)
                ref->host[i] = (char)tolower((unsigned char)host[i]);
        ref->loopback = image_host_is_loopback(ref->host);
        *ret_short = !given;
        return 0;
}

static int take_tag(const char *text, size_t *n, struct image_ref *ref, struct error *e) {
        const char *colon = memrchr(text, ':', *n);
        if (!colon) {
                if (!ref->digest[0])
                        snprintf(ref->tag, sizeof ref->tag, "%s", IMAGE_REF_DEFAULT_TAG);
                return 0;
        }
        size_t len = *n - (size_t)(colon + 1 - text);
        if (!tag_ok(colon + 1, len))
                return refuse(e, "not a tag");
        memcpy(ref->tag, colon + 1, len);
        *n = (size_t)(colon - text);
        return 0;
}

int image_ref_parse(const char *text, const struct image_ref_default *d, struct image_ref *ret, struct error *e) {
        struct image_ref ref = { 0 };
        size_t n = text ? strlen(text) : 0;
        bool is_short = false;
        if (n == 0)
                return refuse(e, "empty");
        if (n > IMAGE_REF_MAX)
                return refuse(e, "longer than 1024 bytes");
        int r = take_digest(&text, &n, &ref, e);
        r = r ? r : take_host(&text, &n, d ? d->host : NULL, &ref, &is_short, e);
        r = r ? r : take_tag(text, &n, &ref, e);
        if (r < 0)
                return r;
        const char *space = is_short && d->space && !memchr(text, '/', n) ? d->space : "", *between = *space ? "/" : "";
        if (n + strlen(space) + strlen(between) > IMAGE_REF_PATH_MAX)
                return refuse(e, "the path is longer than 255 bytes");
        if (!path_ok(text, n))
                return refuse(e, "not the path of an image: lower-case letters, digits and single separators");
        snprintf(ref.path, sizeof ref.path, "%s%s%.*s", space, between, (int)n, text);
        *ret = ref;
        return 0;
}

int image_ref_default_check(const struct image_ref_default *d, struct error *e) {
        size_t host = d->host ? strlen(d->host) : 0, space = d->space ? strlen(d->space) : 0;
        if (host > 0 && !image_host_ok(d->host, host))
                return error_say(e, -EINVAL, "registry.default: not the host name of a registry");
        if (space > 0 && (space >= IMAGE_REF_PATH_MAX || !path_ok(d->space, space)))
                return error_say(e, -EINVAL, "registry.namespace: not the beginning of an image's path");
        return 0;
}

void image_ref_format(const struct image_ref *ref, char ret[static IMAGE_REF_TEXT_MAX + 1]) {
        snprintf(ret, IMAGE_REF_TEXT_MAX + 1, "%s/%s%s%s%s%s", ref->host, ref->path, ref->tag[0] ? ":" : "", ref->tag, ref->digest[0] ? "@" : "", ref->digest);
}

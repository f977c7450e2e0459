#include <openssl/evp.h>
#include <string.h>

#include "base/json.h"
#include "base/redact.h"
#include "registry/access.h"
#include "registry/credentials.h"
#include "registry/registry.h"

static int bad(struct error *e, const char *host) { return error_say(e, -EBADMSG, "the operator's credentials for %s are badly written", host); }

static int text(const struct json *v, char **ret) {
        struct buf b = BUF_INIT(ACCESS_SECRET_MAX);
        int r = json_string(v, &b);
        if (r == 0 && memchr(buf_str(&b), 0, b.len))
                r = -EINVAL;
        char *s = r == 0 ? buf_steal(&b) : NULL;
        if (b.data)
                explicit_bzero(b.data, b.alloc);
        buf_release(&b);
        if (!s)
                return r ? r : -ENOMEM;
        *ret = s;
        return 0;
}

/* base64 of "name:password". */
static int split_auth(const char *auth, char **ret_username, char **ret_password) {
        size_t n = strlen(auth);
        char *plain = malloc(n + 1);
        int len = plain && n % 4 == 0 && n > 0 ? EVP_DecodeBlock((unsigned char *)plain, (const unsigned char *)auth, (int)n) : -1;
        if (len > 0)
                len -= auth[n - 1] == '=' ? (auth[n - 2] == '=' ? 2 : 1) : 0;
        char *colon = len > 0 ? memchr(plain, ':', (size_t)len) : NULL;
        int r = -EBADMSG;
        if (colon && !memchr(plain, 0, (size_t)len)) {
                *ret_username = strndup(plain, (size_t)(colon - plain));
                *ret_password = strndup(colon + 1, (size_t)(plain + len - colon - 1));
                r = *ret_username && *ret_password ? 0 : -ENOMEM;
        }
        if (plain)
                explicit_bzero(plain, n + 1);
        free(plain);
        return r;
}

static int take_entry(const struct json *entry, char **ret_username, char **ret_password) {
        struct json v;
        if (json_get(entry, "username", &v)) {
                int r = text(&v, ret_username);
                if (r == 0)
                        r = json_get(entry, "password", &v) ? text(&v, ret_password) : -EBADMSG;
                return r;
        }
        char *auth = NULL;
        int r = json_get(entry, "auth", &v) ? text(&v, &auth) : -EBADMSG;
        r = r ? r : split_auth(auth, ret_username, ret_password);
        secret_free(auth);
        return r;
}

int credentials_parse(const char *p, size_t n, const char *host, char **ret_username, char **ret_password, struct error *e) {
        struct json doc, auths, entry;
        char *username = NULL, *password = NULL;
        if (json_parse(p, n, &doc, NULL) < 0 || doc.type != JSON_OBJECT)
                return error_say(e, -EBADMSG, "the operator's file of credentials is not valid JSON");
        if (!json_get(&doc, "auths", &auths) || !json_get(&auths, host, &entry))
                return 0;
        if (take_entry(&entry, &username, &password) < 0) {
                secret_free(username);
                secret_free(password);
                return bad(e, host);
        }
        *ret_username = username;
        *ret_password = password;
        return 1;
}

int credentials_find(int fd, const char *host, char **ret_username, char **ret_password, struct error *e) {
        char *text_ = malloc(REGISTRY_CREDENTIALS_MAX);
        ssize_t n = text_ ? pread(fd, text_, REGISTRY_CREDENTIALS_MAX, 0) : -1;
        int r = !text_ ? error_set(e, -ENOMEM, "read the operator's credentials") : n < 0 ? error_set(e, -errno, "read the operator's credentials") :
                credentials_parse(text_, (size_t)n, host, ret_username, ret_password, e);
        if (n > 0)
                explicit_bzero(text_, (size_t)n);
        free(text_);
        return r;
}

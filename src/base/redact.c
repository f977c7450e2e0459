#include <string.h>

#include "base/redact.h"

int redact_url(const char *url, struct buf *ret) {
        const char *scheme = strstr(url, "://");
        if (!scheme)
                return buf_adds(ret, url);
        const char *authority = scheme + 3;
        size_t len = strcspn(authority, "/?#");
        const char *at = memrchr(authority, '@', len);
        if (!at)
                return buf_adds(ret, url);
        int r = buf_add(ret, url, (size_t)(authority - url));
        if (r == 0)
                r = buf_adds(ret, "***");
        return r < 0 ? r : buf_adds(ret, at);
}

void secret_free(char *s) {
        if (s)
                explicit_bzero(s, strlen(s));
        free(s);
}

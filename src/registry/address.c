#include "registry/address.h"

#include <string.h>

#include "registry/curl.h"
#include "store/image_ref.h"

#define call curl_calls

static int part(CURLU *u, CURLUPart what, unsigned flags, char *ret, size_t size) {
        char *s = NULL;
        CURLUcode c = call.url_get(u, what, &s, flags);
        if (c != CURLUE_OK || !s)
                return -ENOENT;
        int n = snprintf(ret, size, "%s", s);
        call.free(s);
        return n < 0 || (size_t)n >= size ? -EBADMSG : 0;
}

static int bad(struct error *e, const char *why) { return error_say(e, -EBADMSG, "the registry sends elsewhere: %s", why); }

static int take(CURLU *u, bool registry_loopback, struct address *a, struct error *e) {
        char scheme[16], host[512], port[16], user[8];
        if (part(u, CURLUPART_USER, 0, user, sizeof user) != -ENOENT || part(u, CURLUPART_PASSWORD, 0, user, sizeof user) != -ENOENT)
                return bad(e, "a URL with a user in it");
        call.url_set(u, CURLUPART_FRAGMENT, NULL, 0);
        if (part(u, CURLUPART_SCHEME, 0, scheme, sizeof scheme) < 0 || part(u, CURLUPART_HOST, 0, host, sizeof host) < 0 ||
            part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof port) < 0 || part(u, CURLUPART_URL, 0, a->url, sizeof a->url) < 0)
                return bad(e, "not a URL, or too long a one");
        a->loopback = image_host_is_loopback(host);
        a->plain = strcmp(scheme, "http") == 0;
        if (!a->plain && strcmp(scheme, "https") != 0)
                return bad(e, "neither https nor http");
        if (a->plain && !(registry_loopback && a->loopback))
                return error_say(e, -EPROTO, "the registry sends to plain HTTP, which is for loopback only");
        snprintf(a->origin, sizeof a->origin, "%s://%s:%s", scheme, host, port);
        return 0;
}

int address_resolve(const struct address *base, const char *text, bool registry_loopback, struct address *ret, struct error *e) {
        CURLU *u = call.url();
        struct address a;
        int r = 0;
        if (!u)
                return error_set(e, -ENOMEM, "a URL");
        for (const char *c = text; *c && r == 0; c++)
                if ((unsigned char)*c <= ' ' || *c == 0x7f)
                        r = bad(e, "a URL with a space or a control character");
        if (r == 0 && base && call.url_set(u, CURLUPART_URL, base->url, 0) != CURLUE_OK)
                r = bad(e, "not a URL");
        if (r == 0 && call.url_set(u, CURLUPART_URL, text, 0) != CURLUE_OK)
                r = bad(e, "not a URL");
        r = r ? r : take(u, registry_loopback, &a, e);
        call.url_cleanup(u);
        if (r == 0)
                *ret = a;
        return r;
}

int address_add_query(struct address *a, const char *name, const char *value) {
        char pair[2048];
        CURLU *u = call.url();
        if (!u)
                return -ENOMEM;
        int n = snprintf(pair, sizeof pair, "%s=%s", name, value);
        int r = n < 0 || (size_t)n >= sizeof pair ? -ENOSPC : 0;
        if (r == 0 && (call.url_set(u, CURLUPART_URL, a->url, 0) != CURLUE_OK ||
                       call.url_set(u, CURLUPART_QUERY, pair, CURLU_APPENDQUERY | CURLU_URLENCODE) != CURLUE_OK))
                r = -ENOSPC;
        r = r ? r : part(u, CURLUPART_URL, 0, a->url, sizeof a->url) < 0 ? -ENOSPC : 0;
        call.url_cleanup(u);
        return r;
}

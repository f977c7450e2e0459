/* libcurl is loaded, not linked: with what it depends on it is thirty libraries, and every mapping of the program is copied for each
 * sandbox that the spawner, which is the same program, makes. */
#include "registry/curl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBCURL "libcurl.so.4"

struct curl_calls curl_calls;

int curl_load(struct error *e) {
        static bool loaded;
        struct curl_calls *c = &curl_calls;
        const struct { const char *name; void *at; } symbols[] = {
                { "curl_global_init", &c->global_init }, { "curl_easy_init", &c->easy_init }, { "curl_easy_cleanup", &c->easy_cleanup },
                { "curl_easy_setopt", &c->easy_setopt }, { "curl_easy_getinfo", &c->easy_getinfo }, { "curl_easy_strerror", &c->easy_strerror },
                { "curl_slist_append", &c->slist_append }, { "curl_slist_free_all", &c->slist_free_all }, { "curl_multi_init", &c->multi_init },
                { "curl_multi_cleanup", &c->multi_cleanup }, { "curl_multi_setopt", &c->multi_setopt }, { "curl_multi_add_handle", &c->multi_add_handle },
                { "curl_multi_remove_handle", &c->multi_remove_handle }, { "curl_multi_socket_action", &c->multi_socket_action },
                { "curl_multi_assign", &c->multi_assign }, { "curl_multi_info_read", &c->multi_info_read }, { "curl_url", &c->url },
                { "curl_url_cleanup", &c->url_cleanup }, { "curl_url_set", &c->url_set }, { "curl_url_get", &c->url_get }, { "curl_free", &c->free },
        };
        if (loaded)
                return 0;
        void *lib = dlopen(LIBCURL, RTLD_NOW | RTLD_LOCAL);
        if (!lib)
                return error_say(e, -ENOENT, "images cannot be pulled without %s: %s", LIBCURL, dlerror());
        for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
                void *symbol = dlsym(lib, symbols[i].name);
                if (!symbol)
                        return error_say(e, -ENOENT, "%s lacks %s", LIBCURL, symbols[i].name);
                memcpy(symbols[i].at, &symbol, sizeof symbol);
        }
        if (c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
                return error_say(e, -ENOENT, "%s does not start", LIBCURL);
        loaded = true;
        return 0;
}

/* libcurl, loaded when the first image is pulled (see curl.c). */
#pragma once
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "base/error.h"

struct curl_calls {
        CURLcode (*global_init)(long flags);
        CURL *(*easy_init)(void);
        void (*easy_cleanup)(CURL *c);
        CURLcode (*easy_setopt)(CURL *c, CURLoption option, ...);
        CURLcode (*easy_getinfo)(CURL *c, CURLINFO info, ...);
        const char *(*easy_strerror)(CURLcode code);
        struct curl_slist *(*slist_append)(struct curl_slist *list, const char *s);
        void (*slist_free_all)(struct curl_slist *list);
        CURLM *(*multi_init)(void);
        CURLMcode (*multi_cleanup)(CURLM *m);
        CURLMcode (*multi_setopt)(CURLM *m, CURLMoption option, ...);
        CURLMcode (*multi_add_handle)(CURLM *m, CURL *c);
        CURLMcode (*multi_remove_handle)(CURLM *m, CURL *c);
        CURLMcode (*multi_socket_action)(CURLM *m, curl_socket_t s, int events, int *running);
        CURLMcode (*multi_assign)(CURLM *m, curl_socket_t s, void *p);
        CURLMsg *(*multi_info_read)(CURLM *m, int *left);
        CURLU *(*url)(void);
        void (*url_cleanup)(CURLU *u);
        CURLUcode (*url_set)(CURLU *u, CURLUPart part, const char *s, unsigned flags);
        CURLUcode (*url_get)(const CURLU *u, CURLUPart part, char **ret, unsigned flags);
        void (*free)(void *p);
};
extern struct curl_calls curl_calls;
/* 0, also when it is loaded already; -ENOENT. */
int curl_load(struct error *e);

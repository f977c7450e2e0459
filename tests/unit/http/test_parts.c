#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "http/internal.h"

static void loopback_is_recognised_by_address_not_by_looks(void **state) {
        static const char *const yes[] = { "localhost", "LocalHost:1", "127.0.0.1", "127.255.255.254:9090", "[::1]", "[::1]:9090", "[0:0:0:0:0:0:0:1]" };
        static const char *const no[] = {
                "", ":", ":80", "localhost.", "xlocalhost", "localhost.example.org", "127.0.0.1.example.org", "127.1", "0127.0.0.1", "2130706433",
                "0.0.0.0", "10.0.0.1", "[::]", "[::2]", "[::1", "[::1]x", "::1", "[127.0.0.1]", "[::ffff:127.0.0.1]", "[]",
        };
        for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
                if (!auth_host_is_loopback(yes[i]))
                        fail_msg("refused %s", yes[i]);
        for (size_t i = 0; i < ARRAY_SIZE(no); i++)
                if (auth_host_is_loopback(no[i]))
                        fail_msg("accepted %s", no[i]);
}

static void decoded(const char *in, bool plus, int r, const char *out) {
        char text[64];
        size_t n = 99;
        snprintf(text, sizeof text, "%s", in);
        assert_int_equal(percent_decode(text, strlen(text), plus, &n), r);
        if (r == 0) {
                assert_string_equal(text, out);
                assert_int_equal(n, strlen(out));
        }
}

static void escapes_are_decoded_in_place(void **state) {
        decoded("", false, 0, "");
        decoded("a%2Fb%2fc", false, 0, "a/b/c");
        decoded("%25%32%35", false, 0, "%25");
        decoded("a+b%2B", true, 0, "a b+");
        decoded("a+b", false, 0, "a+b");
        decoded("%", false, -EBADMSG, NULL);
        decoded("%4", false, -EBADMSG, NULL);
        decoded("%4g", false, -EBADMSG, NULL);
        decoded("%+1", false, -EBADMSG, NULL);
        decoded("a%00", false, -EBADMSG, NULL);
}

static void unused(struct http_request *r, void *user) {}

static int starts(const struct http_route *routes, size_t n, const char *listen, struct error *e) {
        uv_loop_t loop;
        struct http_server *s;
        struct http_config cfg = { .listen = listen, .routes = routes, .n_routes = n };
        http_limits_default(&cfg.limits);
        uv_loop_init(&loop);
        int r = http_server_start(&loop, &cfg, &s, e);
        if (r == 0)
                http_server_stop(s, 0, NULL, NULL);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&loop), 0);
        return r;
}

static void impossible_routes_are_refused_at_start(void **state) {
        static const struct http_route bad[] = {
                { "GET", "no-slash", unused, false, NULL },
                { "GET", "/{a}/{b}/{c}/{d}/{e}", unused, false, NULL },
                { "GET", "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", unused, false, NULL },
        };
        static const struct http_route good = { "GET", "/{a}/{b}/{c}/{d}", unused, false, NULL };
        struct error e;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(starts(&bad[i], 1, "127.0.0.1:0", &e), -EINVAL);
        assert_int_equal(starts(&good, 1, "127.0.0.1:0", &e), 0);
}

static void addresses_that_cannot_be_are_refused_at_start(void **state) {
        static const char *const bad[] = { "", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:8x", "example.org:80",
                                           "[::1:80", "unix:relative", "300.0.0.1:80" };
        struct error e;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (starts(NULL, 0, bad[i], &e) != -EINVAL)
                        fail_msg("accepted %s", bad[i]);
        assert_int_equal(starts(NULL, 0, "[::1]:0", &e), 0);
        assert_int_equal(starts(NULL, 0, "localhost:0", &e), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(loopback_is_recognised_by_address_not_by_looks),
                cmocka_unit_test(escapes_are_decoded_in_place),
                cmocka_unit_test(impossible_routes_are_refused_at_start),
                cmocka_unit_test(addresses_that_cannot_be_are_refused_at_start),
        };
        return cmocka_run_group_tests_name("http/parts", tests, NULL, NULL);
}

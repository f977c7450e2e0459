/* What a registry says: challenges, manifests, configurations; and the operator's credentials. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/redact.h"
#include "registry/challenge.h"
#include "registry/credentials.h"
#include "registry/manifest.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" HEX
#define OTHER "sha256:" "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static int challenge(const char *s, struct challenge *c) { return challenge_parse(s, strlen(s), c); }

static void a_bearer_challenge_says_where_tokens_are(void **state) {
        struct challenge c;
        assert_int_equal(challenge("bearer  Realm = \"https://a/t?x=1\" , service=reg,scope=\"repository:a/b:pull\",error=\"x, \\\"y\"", &c), 0);
        assert_int_equal(c.kind, CHALLENGE_BEARER);
        assert_string_equal(c.realm, "https://a/t?x=1");
        assert_string_equal(c.service, "reg");
        assert_string_equal(c.scope, "repository:a/b:pull");
}

static void a_basic_challenge_needs_no_more(void **state) {
        struct challenge c;
        assert_int_equal(challenge("Basic realm=\"x\"", &c), 0);
        assert_int_equal(c.kind, CHALLENGE_BASIC);
        assert_int_equal(challenge("BASIC", &c), 0);
}

static void a_challenge_that_makes_no_sense_is_none(void **state) {
        static const char *const bad[] = { "", " ", "Bearer", "Bearer ", "Bearer realm", "Bearer realm=", "Bearer realm=\"\"", "Bearer realm=\"x", "Bearer realm=\"x\\",
                "Bearer realm=\"a\x01\"", "Digest realm=x", "Bearer =x", "Bearer service=x" };
        char big[CHALLENGE_VALUE_MAX + 64] = "Bearer realm=\"";
        struct challenge c;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (challenge(bad[i], &c) != -EBADMSG)
                        fail_msg("accepted: %s", bad[i]);
        memset(big + 14, 'x', CHALLENGE_VALUE_MAX);
        big[14 + CHALLENGE_VALUE_MAX] = '"';
        assert_int_equal(challenge(big, &c), -EBADMSG);
        big[14 + CHALLENGE_VALUE_MAX - 1] = '"';
        big[14 + CHALLENGE_VALUE_MAX] = 0;
        assert_int_equal(challenge(big, &c), 0);
}

static int manifest(const char *s, const char *type, struct manifest *m, struct error *e) { return manifest_parse(s, strlen(s), type, "amd64", m, e); }

static void an_index_gives_the_entry_for_this_machine(void **state) {
        struct manifest m;
        assert_int_equal(manifest("{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":["
                                  "{\"digest\":\"" OTHER "\",\"size\":5,\"platform\":{\"os\":\"windows\",\"architecture\":\"amd64\"}},"
                                  "{\"digest\":\"" OTHER "\",\"size\":5,\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}},"
                                  "{\"digest\":\"" DIGEST "\",\"size\":7,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}]}", NULL, &m, NULL), 0);
        assert_int_equal(m.kind, MANIFEST_INDEX);
        assert_string_equal(m.chosen.digest, DIGEST);
        assert_int_equal(m.chosen.size, 7);
}

static void what_a_text_is_may_be_said_by_its_header_or_its_members(void **state) {
        static const char *const image = "{\"config\":{\"digest\":\"" DIGEST "\",\"size\":2},\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+zstd\",\"digest\":\"" OTHER "\",\"size\":3}]}";
        static const char *const types[] = { "application/vnd.docker.distribution.manifest.v2+json", "Application/vnd.oci.image.manifest.v1+json; charset=utf-8", "application/json", NULL };
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                struct manifest m;
                assert_int_equal(manifest(image, types[i], &m, NULL), 0);
                assert_int_equal(m.kind, MANIFEST_IMAGE);
                assert_int_equal(m.n_layers, 1);
                assert_int_equal(m.layers[0].media, LAYER_TAR_ZSTD);
                assert_string_equal(m.config.digest, DIGEST);
                manifest_release(&m);
        }
}

static void a_configuration_gives_its_diff_ids(void **state) {
        static const char text[] = "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"diff_ids\":[\"" DIGEST "\",\"" OTHER "\"]}}";
        char ids[2][IMAGE_REF_DIGEST_LEN + 1];
        assert_int_equal(config_diff_ids(text, strlen(text), "amd64", 2, ids, NULL), 0);
        assert_string_equal(ids[1], OTHER);
        assert_int_equal(config_diff_ids(text, strlen(text), "amd64", 1, ids, NULL), -EBADMSG);
        assert_int_equal(config_diff_ids(text, strlen(text), "arm64", 2, ids, NULL), -ENOENT);
}

static int find(const char *text, const char *host, char **name, char **password) { return credentials_parse(text, strlen(text), host, name, password, NULL); }

static void the_operator_s_credentials_are_found_by_host(void **state) {
        static const char text[] = "{\"auths\":{\"a:5000\":{\"auth\":\"bWU6cGFzczp3b3Jk\"},\"b\":{\"username\":\"u\",\"password\":\"p\"}}}";
        char *name = NULL, *password = NULL;
        assert_int_equal(find(text, "a:5000", &name, &password), 1);
        assert_string_equal(name, "me");
        assert_string_equal(password, "pass:word");
        secret_free(name);
        secret_free(password);
        assert_int_equal(find(text, "b", &name, &password), 1);
        assert_string_equal(password, "p");
        secret_free(name);
        secret_free(password);
        assert_int_equal(find(text, "a", &name, &password), 0);
}

static void badly_written_credentials_are_an_error_that_does_not_show_them(void **state) {
        static const char *const bad[] = { "{\"auths\":{\"h\":{\"auth\":\"SECRET\"}}}", "{\"auths\":{\"h\":{\"username\":\"SECRET\"}}}", "SECRET", "{\"auths\":{\"h\":{\"auth\":1}}}",
                "{\"auths\":{\"h\":{}}}", "{\"auths\":{\"h\":{\"username\":\"a\\u0000b\",\"password\":\"SECRET\"}}}" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                char *name = NULL, *password = NULL;
                struct error e = { 0 };
                if (credentials_parse(bad[i], strlen(bad[i]), "h", &name, &password, &e) != -EBADMSG)
                        fail_msg("accepted: %s", bad[i]);
                assert_null(strstr(e.text, "SECRET"));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_bearer_challenge_says_where_tokens_are),
                cmocka_unit_test(a_basic_challenge_needs_no_more),
                cmocka_unit_test(a_challenge_that_makes_no_sense_is_none),
                cmocka_unit_test(an_index_gives_the_entry_for_this_machine),
                cmocka_unit_test(what_a_text_is_may_be_said_by_its_header_or_its_members),
                cmocka_unit_test(a_configuration_gives_its_diff_ids),
                cmocka_unit_test(the_operator_s_credentials_are_found_by_host),
                cmocka_unit_test(badly_written_credentials_are_an_error_that_does_not_show_them),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

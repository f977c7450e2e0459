#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fields.h"
#include "base/redact.h"
#include "score/request.h"

#define LEAST "\"repo_url\":\"file:///r\",\"test_command\":\"pytest\""

static int decode(const char *text, unsigned flags, struct score_request *q, struct error *e) {
        struct score_defaults d;
        score_defaults_init(&d);
        return score_request_from_json(text, strlen(text), flags, &d, q, e);
}

/* The fault of a minimal request with one more member. */
static void fault(const char *member, int code, const char *want) {
        char text[4096];
        struct score_request q;
        struct error e = { 0 };
        snprintf(text, sizeof text, "{" LEAST ",%s}", member);
        int r = decode(text, FIELDS_CHECK, &q, &e);
        if (r != code || !strstr(e.text, want))
                fail_msg("%s: %d '%s', not %d '%s'", member, r, e.text, code, want);
}

static void good(const char *member, struct score_request *q) {
        char text[4096];
        struct error e = { 0 };
        snprintf(text, sizeof text, "{" LEAST ",%s}", member);
        int r = decode(text, 0, q, &e);
        if (r < 0)
                fail_msg("%s: %s", member, e.text);
}

static void defaults_are_the_contracts(void **state) {
        struct score_request q;
        assert_int_equal(decode("{" LEAST "}", 0, &q, NULL), 0);
        assert_string_equal(q.repo_url, "file:///r");
        assert_string_equal(q.base_commit, "HEAD");
        assert_string_equal(q.patch, "");
        assert_int_equal(q.patch_len, 0);
        assert_string_equal(q.test_patch, "");
        assert_int_equal(q.timeout_ms, 300000);
        assert_string_equal(q.lint_command, "");
        assert_false(q.capture_diff);
        assert_string_equal(q.reference_patch, "");
        assert_null(q.fail_to_pass);
        assert_null(q.env);
        assert_string_equal(q.image, IMAGE_HOST);
        assert_false(q.image_given);
        assert_string_equal(q.repo_path, "/testbed");
        assert_int_equal(q.setup_network, NETWORK_OPEN);
        assert_int_equal(q.setup_timeout_ms, 1800000);
        assert_int_equal(q.network, NETWORK_NONE);
        assert_int_equal(q.uid, 0);
        assert_int_equal(q.patch_mode, PATCH_REPAIR);
        assert_int_equal(q.run, RUN_IDS);
        assert_int_equal(q.limits.memory_bytes, 4ull << 30);
        assert_int_equal(q.limits.pids, 4096);
        score_request_release(&q);
}

static void not_an_object_is_one_fault(void **state) {
        static const char *const bad[] = { "", "{", "[]", "null", "\"x\"", "3", "{\"a\":1} x", "{'a':1}", "{\"patch\":\"\xff\"}", "{\"patch\":\"\n\"}" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct score_request q;
                struct error e = { 0 };
                assert_int_equal(decode(bad[i], 0, &q, &e), -EINVAL);
                assert_string_equal(e.text, "Request body must be valid JSON");
        }
}

static void missing(const char *text, const char *want) {
        struct score_request q;
        struct error e = { 0 };
        assert_int_equal(decode(text, 0, &q, &e), -EINVAL);
        assert_string_equal(e.text, want);
}

static void missing_fields_are_listed(void **state) {
        missing("{}", "Missing required fields: ['repo_url', 'test_command']");
        missing("{\"repo_url\":\"\",\"test_command\":null}", "Missing required fields: ['repo_url', 'test_command']");
        missing("{\"repo_url\":\"x\"}", "Missing required fields: ['test_command']");
        missing("{\"test_command\":\"x\",\"timeout\":\"bad\"}", "Missing required fields: ['repo_url']");
        missing("{\"repo_url\":\"x\",\"fail_to_pass\":[]}", "Missing required fields: ['test_command']");
}

static void ids_or_a_framework_replace_the_command(void **state) {
        static const char *const good_ones[] = {
                "{\"repo_url\":\"x\",\"fail_to_pass\":[\"a.py::a\"]}", "{\"repo_url\":\"x\",\"pass_to_pass\":[\"a.py::a\"]}", "{\"repo_url\":\"x\",\"test_framework\":\"pytest\"}",
        };
        for (size_t i = 0; i < ARRAY_SIZE(good_ones); i++) {
                struct score_request q;
                assert_int_equal(decode(good_ones[i], 0, &q, NULL), 0);
                assert_string_equal(q.test_command, "");
                score_request_release(&q);
        }
}

static void every_field_refuses_the_wrong_type(void **state) {
        static const struct { const char *field; const char *values[8]; } rows[] = {
                { "repo_url", { "1", "[]", "{}", "true" } },
                { "test_command", { "1", "[]", "{}", "true" } },
                { "base_commit", { "1", "[]", "{}", "true", "\"-x\"", "\"a\\nb\"" } },
                { "patch", { "1", "[]", "{}", "false", "\"\\u0000\"" } },
                { "test_patch", { "1", "[]", "{}", "false", "\"\\u0000\"" } },
                { "reference_patch", { "1", "[]", "{}", "false" } },
                { "timeout", { "\"x\"", "[]", "{}", "true", "0", "-1", "1e300", "1.5" } },
                { "lint_command", { "1", "[]", "{}", "true" } },
                { "capture_diff", { "1", "\"true\"", "[]", "{}" } },
                { "fail_to_pass", { "1", "{}", "[1]", "\"x\"", "[null]", "[\"\\u0000\"]" } },
                { "pass_to_pass", { "1", "{}", "[1]", "\"x\"", "[[]]" } },
                { "test_framework", { "1", "[]", "{}", "true" } },
                { "run", { "1", "\"all\"", "[]", "{}" } },
                { "image", { "1", "[]", "{}", "\"a\\nb\"", "\"-x\"" } },
                { "repo_path", { "1", "[]", "\"x\"", "\"/\"", "\"/a/../b\"", "\"/proc/x\"", "\"/a//b\"", "\"/a\\u0000\"" } },
                { "setup_command", { "1", "[]", "{}", "true" } },
                { "setup_network", { "1", "\"some\"", "true", "{}", "[\"a b\"]" } },
                { "setup_timeout", { "\"x\"", "[]", "{}", "0", "-1" } },
                { "env", { "1", "\"x\"", "[]", "{\"A\":1}", "{\"\":\"x\"}", "{\"A=B\":\"x\"}", "{\"1A\":\"x\"}", "{\"A\":\"\\u0000\"}" } },
                { "user", { "-1", "65536", "1.5", "\"nobody\"", "\"1:2:3\"", "\"1:\"", "[]", "true" } },
                { "network", { "1", "\"some\"", "\"allow\"", "true", "{}", "{\"allow\":\"a.b\"}", "[1]", "[\"http://a.b\"]" } },
                { "limits", { "1", "[]", "\"x\"" } },
                { "patch_mode", { "1", "\"lax\"", "[]" } },
                { "protect", { "1", "{}", "[\"/abs\"]", "[\"a/../b\"]", "[\"\"]", "[\".\"]", "[1]" } },
                { "allow_config", { "1", "{}", "[\"/abs\"]", "[\"..\"]" } },
                { "control", { "1", "\"x\"", "true" } },
                { "gold_patch", { "1", "[]", "true" } },
                { "tree", { "1", "\"x\"", "true", "[]" } },
                { "mode", { "1", "[]", "{}", "true" } },
                { "harness_files", { "1", "[]", "\"x\"", "{\"a\":1}", "{\"../a\":\"\"}", "{\"a\":{\"b64\":\"*\"}}", "{\"a\":{}}", "{\"\":\"\"}" } },
                { "harness_mount", { "1", "[]", "{}", "true" } },
                { "output_mount", { "1", "[]", "{}", "true" } },
                { "entry_command", { "1", "[]", "{}", "true" } },
                { "result_files", { "1", "{}", "[1]", "\"x\"" } },
                { "block_network", { "1", "\"true\"", "[]", "{}" } },
                { "pull_timeout", { "\"x\"", "[]", "{}", "0", "-1" } },
        };
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                for (size_t k = 0; k < 8 && rows[i].values[k]; k++) {
                        char member[256], want[64];
                        snprintf(member, sizeof member, "\"%s\":%s", rows[i].field, rows[i].values[k]);
                        snprintf(want, sizeof want, "'%s'", rows[i].field);
                        fault(member, -EINVAL, want);
                }
        /* The rows above are the whole table. */
        size_t n;
        score_request_table(&n);
        assert_int_equal(n, ARRAY_SIZE(rows));
}

static void every_limit_has_a_range(void **state) {
        static const char *const names[] = { "memory_mb", "cpus", "pids", "disk_mb", "inodes", "output_bytes", "wall_s" };
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                static const char *const bad[] = { "-1", "1e300", "\"x\"", "[]", "true" };
                for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
                        char member[128];
                        snprintf(member, sizeof member, "\"limits\":{\"%s\":%s}", names[i], bad[k]);
                        fault(member, -EINVAL, names[i]);
                }
        }
        struct score_request q;
        good("\"limits\":{\"memory_mb\":512,\"cpus\":0.5,\"pids\":\"64\",\"wall_s\":9.0}", &q);
        assert_int_equal(q.limits.memory_bytes, 512ull << 20);
        assert_int_equal(q.limits.cpu_milli, 500);
        assert_int_equal(q.limits.pids, 64);
        assert_int_equal(q.limits.wall_ms, 9000);
        assert_int_equal(q.limits.disk_bytes, 8ull << 30);
        score_request_release(&q);
        good("\"limits\":{\"cpus\":0.0001}", &q);
        assert_int_equal(q.limits.cpu_milli, 1);   /* 0 would mean all */
        score_request_release(&q);
}

static void later_releases_are_unsupported(void **state) {
        fault("\"control\":\"require\"", -EINVAL, "require needs gold_patch");
        fault("\"tree\":\"image\",\"setup_command\":\"make\"", -EOPNOTSUPP, "'setup_command'");
        fault("\"test_framework\":\"nope\"", -EOPNOTSUPP, "'test_framework'");
        struct score_request q;
        static const struct { const char *fields; enum control_mode want; } controls[] = {
                { "\"gold_patch\":\"x\"", CONTROL_AUTO }, { "\"gold_patch\":\"x\",\"control\":\"off\"", CONTROL_OFF }, { "\"gold_patch\":\"x\",\"control\":\"require\"", CONTROL_REQUIRE },
                { "\"control\":\"auto\"", CONTROL_OFF }, { "\"gold_patch\":\"\"", CONTROL_OFF },
        };
        for (size_t i = 0; i < ARRAY_SIZE(controls); i++) {
                good(controls[i].fields, &q);
                assert_int_equal(q.control, controls[i].want);
                score_request_release(&q);
        }
        good("\"control\":\"off\",\"gold_patch\":\"\",\"tree\":\"clone\"", &q);
        score_request_release(&q);
}

static void a_tree_of_the_image_needs_no_repository(void **state) {
        struct score_request q;
        assert_int_equal(decode("{\"tree\":\"image\",\"image\":\"/i\",\"test_command\":\"pytest\",\"setup_command\":\"\"}", 0, &q, NULL), 0);
        assert_int_equal(q.tree, SOURCE_IMAGE);
        assert_string_equal(q.repo_url, "");
        score_request_release(&q);
        good("\"tree\":\"clone\"", &q);
        assert_int_equal(q.tree, SOURCE_CLONE);
        score_request_release(&q);
        missing("{\"tree\":\"image\"}", "Missing required fields: ['test_command']");
        missing("{\"tree\":\"clone\",\"test_command\":\"x\"}", "Missing required fields: ['repo_url']");
        missing("{\"tree\":\"imag\",\"test_command\":\"x\"}", "Missing required fields: ['repo_url']");
}

#define IMAGE_MODE "\"mode\":\"image\",\"image\":\"some/image:1\""

static void image_mode(const char *more, struct score_request *q) {
        char text[2048];
        struct error e = { 0 };
        snprintf(text, sizeof text, "{" IMAGE_MODE "%s%s}", *more ? "," : "", more);
        if (decode(text, 0, q, &e) < 0)
                fail_msg("%s: %s", more, e.text);
        assert_int_equal(q->mode, MODE_IMAGE);
}

static void image_mode_has_the_contracts_defaults(void **state) {
        struct score_request q;
        image_mode("", &q);
        assert_int_equal(q.tree, SOURCE_NONE);
        assert_string_equal(q.harness_mount, "/harness");
        assert_string_equal(q.output_mount, "/out");
        assert_string_equal(q.entry_command, "bash /harness/entryscript.sh");
        assert_null(q.harness);
        assert_null(q.result_files);
        assert_int_equal(q.timeout_ms, 300000);
        assert_int_equal(q.network, NETWORK_NONE);     /* the operator's, where nothing is said */
        score_request_release(&q);
        image_mode("\"harness_mount\":\"/h/\",\"output_mount\":\"\",\"entry_command\":null,\"harness_files\":{},\"pull_timeout\":5", &q);
        assert_string_equal(q.entry_command, "bash /h/entryscript.sh");
        assert_string_equal(q.output_mount, "/out");
        assert_int_equal(q.pull_timeout_ms, 5000);
        assert_null(q.harness);
        score_request_release(&q);
}

static void image_mode_needs_an_image_only(void **state) {
        missing("{\"mode\":\"image\"}", "Missing required fields: ['image']");
        missing("{\"mode\":\"image\",\"image\":\"\",\"repo_url\":\"x\",\"test_command\":\"x\"}", "Missing required fields: ['image']");
        missing("{\"mode\":\"fork\"}", "Unsupported mode: 'fork'");
        missing("{\"mode\":\"it's\"}", "Unsupported mode: \"it's\"");
        missing("{\"mode\":3}", "Invalid value for 'mode': expected a string, not number");
}

static void without_a_tree_what_needs_one_is_ignored(void **state) {
        struct score_request q;
        image_mode("\"repo_url\":\"-x\",\"base_commit\":\"-x\",\"patch\":\"p\",\"test_patch\":\"p\",\"test_command\":\"pytest\",\"lint_command\":\"ruff\",\"setup_command\":\"x\",\"capture_diff\":true", &q);
        assert_int_equal(q.patch_len + q.test_patch_len, 0);
        assert_string_equal(q.repo_url, "");
        assert_string_equal(q.test_command, "");
        assert_string_equal(q.lint_command, "");
        assert_false(q.capture_diff);
        score_request_release(&q);
}

static void a_tree_of_the_image_runs_its_tests_or_the_entry(void **state) {
        struct score_request q;
        image_mode("\"tree\":\"image\",\"test_command\":\"pytest\",\"patch\":\"p\",\"entry_command\":\"x\"", &q);
        assert_int_equal(q.tree, SOURCE_IMAGE);
        assert_int_equal(q.patch_len, 1);
        assert_string_equal(q.entry_command, "");
        score_request_release(&q);
        image_mode("\"tree\":\"image\",\"patch\":\"p\"", &q);
        assert_string_equal(q.entry_command, "bash /harness/entryscript.sh");
        score_request_release(&q);
}

static void clone_mode_has_no_harness(void **state) {
        struct score_request q;
        good("\"mode\":\"clone\",\"harness_files\":{\"a\":\"b\"},\"harness_mount\":\"x\",\"result_files\":[\"/x\"],\"entry_command\":\"x\",\"block_network\":false", &q);
        assert_null(q.harness);
        assert_null(q.result_files);
        assert_string_equal(q.entry_command, "");
        assert_int_equal(q.network, NETWORK_NONE);
        score_request_release(&q);
}

static void block_network_is_a_network_unless_one_is_named(void **state) {
        static const struct { const char *more; enum sandbox_network want; } all[] = {
                { "\"block_network\":false", NETWORK_OPEN }, { "\"block_network\":true", NETWORK_NONE },
                { "\"block_network\":true,\"network\":\"open\"", NETWORK_OPEN }, { "\"block_network\":false,\"network\":\"none\"", NETWORK_NONE },
        };
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                struct score_request q;
                image_mode(all[i].more, &q);
                assert_int_equal(q.network, all[i].want);
                score_request_release(&q);
        }
}

static void the_harness_is_packed_and_its_contents_have_a_hash(void **state) {
        static const char *const all[] = {
                "\"harness_files\":{\"a/b\":\"text\"}", "\"workspace_files\":{\"a/b\":{\"b64\":\"dGV4dA==\"}}", "\"harness_files\":{\"a/b\":\"tex\"}",
                "\"harness_files\":{\"a/c\":\"text\"}",
        };
        char first[65] = "";
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                struct score_request q;
                image_mode(all[i], &q);
                assert_int_equal(q.harness->n, 1);
                assert_int_equal(strlen(q.harness_hash), 64);
                if (i == 0)
                        memcpy(first, q.harness_hash, sizeof first);
                assert_int_equal(strcmp(first, q.harness_hash) == 0, i < 2);
                score_request_release(&q);
        }
}

static void places_of_image_mode_are_checked(void **state) {
        static const char *const bad[] = {
                "\"harness_mount\":\"x\"", "\"harness_mount\":\"/\"", "\"harness_mount\":\"/a/../b\"", "\"harness_mount\":\"/proc\"", "\"output_mount\":\"/run/x\"",
                "\"output_mount\":\"/harness\"", "\"output_mount\":\"/harness/out\"", "\"harness_mount\":\"/out/h\"", "\"result_files\":[\"../x\"]", "\"result_files\":[\"/x\"]",
                "\"result_files\":[\"\"]", "\"result_files\":[\"a/./b\"]", "\"harness_files\":{\"/abs\":\"\"}", "\"image\":\"-x\"", "\"tree\":\"image\",\"setup_command\":\"x\"",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                char text[512], name[32];
                struct score_request q;
                struct error e = { 0 };
                snprintf(text, sizeof text, "{" IMAGE_MODE ",%s}", bad[i]);
                int r = decode(text, FIELDS_CHECK, &q, &e);
                snprintf(name, sizeof name, "'%.*s'", (int)strcspn(bad[i] + 1, "\""), bad[i] + 1);
                if (strcmp(name, "'tree'") == 0)
                        snprintf(name, sizeof name, "'setup_command'");
                else if (i == 7)
                        snprintf(name, sizeof name, "'output_mount'");
                if ((r != -EINVAL && r != -EOPNOTSUPP) || !strstr(e.text, name))
                        fail_msg("%s: %d %s", bad[i], r, e.text);
        }
}

static void the_wires_host_is_open(void **state) {
        struct score_request q;
        good("\"network\":\"host\",\"setup_network\":\"none\"", &q);
        assert_int_equal(q.network, NETWORK_OPEN);
        assert_int_equal(q.setup_network, NETWORK_NONE);
        score_request_release(&q);
}

static void a_list_of_rules_is_allow(void **state) {
        struct score_request q;
        good("\"network\":{\"allow\":[\"PyPI.org\",\"10.0.0.0/8:80\"]},\"setup_network\":[\"*.example.org\"]", &q);
        assert_int_equal(q.network, NETWORK_ALLOW);
        assert_int_equal(egress_rules_count(q.allow), 2);
        assert_string_equal(egress_rules_text(q.allow, 0), "pypi.org");
        assert_int_equal(q.setup_network, NETWORK_ALLOW);
        assert_string_equal(egress_rules_text(q.setup_allow, 0), "*.example.org");
        score_request_release(&q);
        good("\"network\":[\"a.b\"],\"network\":\"none\"", &q);
        assert_int_equal(q.network, NETWORK_NONE);
        assert_null(q.allow);
        score_request_release(&q);
        good("\"network\":{\"allow\":[]}", &q);
        assert_int_equal(egress_rules_count(q.allow), 0);
        score_request_release(&q);
}

static void env_is_sorted_and_the_last_wins(void **state) {
        struct score_request q;
        good("\"env\":{\"B\":\"1\",\"A\":\"=x\",\"B\":\"2\"}", &q);
        assert_string_equal(q.env[0], "A==x");
        assert_string_equal(q.env[1], "B=2");
        assert_null(q.env[2]);
        score_request_release(&q);
}

static void users_come_in_three_forms(void **state) {
        static const struct { const char *text; uint32_t uid, gid; } rows[] = {
                { "1000", 1000, 1000 }, { "\"1000\"", 1000, 1000 }, { "\"1000:7\"", 1000, 7 }, { "\"root\"", 0, 0 }, { "65535", 65535, 65535 },
        };
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct score_request q;
                char member[64];
                snprintf(member, sizeof member, "\"user\":%s", rows[i].text);
                good(member, &q);
                assert_int_equal(q.uid, rows[i].uid);
                assert_int_equal(q.gid, rows[i].gid);
                score_request_release(&q);
        }
}

static void empty_text_is_the_default(void **state) {
        struct score_request q;
        good("\"base_commit\":\"\",\"image\":\"\",\"repo_path\":\"\",\"test_framework\":\"\"", &q);
        assert_string_equal(q.base_commit, "HEAD");
        assert_string_equal(q.image, IMAGE_HOST);
        assert_false(q.image_given);
        assert_string_equal(q.repo_path, "/testbed");
        score_request_release(&q);
}

static void lists_and_paths_decode(void **state) {
        struct score_request q;
        good("\"fail_to_pass\":[\"a b\"],\"pass_to_pass\":\"[\\\"c\\\"]\",\"protect\":[\"a/b/\"],\"repo_path\":\"/w/t/\",\"image\":\"/i\",\"unknown\":1", &q);
        assert_string_equal(q.fail_to_pass[0], "a b");
        assert_string_equal(q.pass_to_pass[0], "c");
        assert_string_equal(q.protect[0], "a/b/");
        assert_string_equal(q.repo_path, "/w/t");
        assert_true(q.image_given);
        score_request_release(&q);
}

static void patches_keep_their_bytes(void **state) {
        struct score_request q;
        good("\"patch\":\"a\\r\\n\\ud83d\\ude00\\t\",\"test_patch\":\"x\"", &q);
        assert_int_equal(q.patch_len, 8);
        assert_memory_equal(q.patch, "a\r\n\xf0\x9f\x98\x80\t", 8);
        assert_int_equal(q.test_patch_len, 1);
        score_request_release(&q);
}

static void the_operators_defaults_hold(void **state) {
        struct score_defaults d;
        struct score_request q;
        static const char text[] = "{" LEAST "}";
        score_defaults_init(&d);
        d.network = NETWORK_OPEN;
        d.limits.pids = 99;
        assert_int_equal(score_request_from_json(text, strlen(text), 0, &d, &q, NULL), 0);
        assert_int_equal(q.network, NETWORK_OPEN);
        assert_int_equal(q.limits.pids, 99);
        score_request_release(&q);
}

/* ---- hiding -------------------------------------------------------------------------------------------------------------- */

static char *hidden(const char *body, struct buf *b) {
        char *url = (char *)"unset";
        buf_reset(b);
        assert_int_equal(buf_adds(b, body), 0);
        assert_int_equal(score_request_hide(b, &url), 0);
        return url;
}

static void credentials_are_taken_out_of_a_body(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        char *url = hidden("{\"a\":1,\"repo_url\":\"https://user:long-password@h/r\",\"z\":2}", &b);
        assert_string_equal(url, "https://user:long-password@h/r");
        assert_string_equal(buf_str(&b), "{\"a\":1,\"repo_url\":\"https://***@h/r\",\"z\":2}");
        secret_free(url);
        url = hidden("{\"repo_url\":\"HTTP://t@h/\\u0022r\"}", &b);      /* the hidden form is the longer one */
        assert_string_equal(url, "HTTP://t@h/\"r");
        assert_string_equal(buf_str(&b), "{\"repo_url\":\"HTTP://***@h/\\\"r\"}");
        secret_free(url);
        url = hidden("{\"repo_url\":\"https://***@h/r\"}", &b);            /* somebody's real name */
        assert_string_equal(url, "https://***@h/r");
        secret_free(url);
}

static void a_body_without_credentials_stays_as_it_is(void **state) {
        static const char *const urls[] = { "https://h/r", "https://h/a@b", "ssh://git@h/r", "git@h:r", "/srv/a@b", "file:///srv/a@b" };
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
                char body[128];
                snprintf(body, sizeof body, "{\"repo_url\":\"%s\"}", urls[i]);
                assert_null(hidden(body, &b));
                assert_string_equal(buf_str(&b), body);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults_are_the_contracts), cmocka_unit_test(not_an_object_is_one_fault), cmocka_unit_test(missing_fields_are_listed),
                cmocka_unit_test(ids_or_a_framework_replace_the_command), cmocka_unit_test(every_field_refuses_the_wrong_type),
                cmocka_unit_test(every_limit_has_a_range), cmocka_unit_test(later_releases_are_unsupported), cmocka_unit_test(a_tree_of_the_image_needs_no_repository), cmocka_unit_test(image_mode_has_the_contracts_defaults), cmocka_unit_test(image_mode_needs_an_image_only),
                cmocka_unit_test(without_a_tree_what_needs_one_is_ignored), cmocka_unit_test(a_tree_of_the_image_runs_its_tests_or_the_entry), cmocka_unit_test(clone_mode_has_no_harness),
                cmocka_unit_test(block_network_is_a_network_unless_one_is_named), cmocka_unit_test(the_harness_is_packed_and_its_contents_have_a_hash),
                cmocka_unit_test(places_of_image_mode_are_checked), cmocka_unit_test(the_wires_host_is_open), cmocka_unit_test(a_list_of_rules_is_allow),
                cmocka_unit_test(env_is_sorted_and_the_last_wins), cmocka_unit_test(users_come_in_three_forms), cmocka_unit_test(empty_text_is_the_default),
                cmocka_unit_test(lists_and_paths_decode), cmocka_unit_test(patches_keep_their_bytes), cmocka_unit_test(the_operators_defaults_hold),
                cmocka_unit_test(credentials_are_taken_out_of_a_body), cmocka_unit_test(a_body_without_credentials_stays_as_it_is),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

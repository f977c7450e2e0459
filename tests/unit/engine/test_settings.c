#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "engine/settings_table.h"

/* Settings out of variables and flags; ok: must be accepted, with settings_check. */
static int load(struct engine_config *cfg, char **env, char **args, struct error *e) {
        int argc = 0;
        while (args && args[argc])
                argc++;
        settings_init(cfg);
        int r = settings_from_env(cfg, env, e);
        if (r == 0)
                r = settings_from_args(cfg, argc, args, e);
        return r < 0 ? r : settings_check(cfg, e);
}
#define ENV(...) ((char **)(const char *[]){ __VA_ARGS__ __VA_OPT__(,) NULL })
#define ARGS(...) ((char **)(const char *[]){ "serve", __VA_ARGS__ __VA_OPT__(,) NULL })

static void accepted(struct engine_config *cfg, char **env, char **args) {
        struct error e = { 0 };
        if (load(cfg, env, args, &e) < 0)
                fail_msg("%s", e.text);
}

/* Refused, and the message holds each of the words. */
static void refused(char **env, char **args, const char *word, const char *word2) {
        struct engine_config cfg;
        struct error e = { 0 };
        assert_int_equal(load(&cfg, env, args, &e), -EINVAL);
        if (!strstr(e.text, word) || !strstr(e.text, word2))
                fail_msg("'%s' lacks '%s' or '%s'", e.text, word, word2);
        settings_release(&cfg);
}

static void defaults_are_the_contracts(void **state) {
        struct engine_config c;
        accepted(&c, ENV(), ARGS());
        assert_string_equal(c.home, "/var/lib/brig");
        assert_string_equal(c.listen, "127.0.0.1:9090");
        assert_int_equal(c.queued_max, 100000);
        assert_int_equal(c.task_max_age_s, 3600);
        assert_int_equal(c.task_network, NETWORK_NONE);
        assert_int_equal(c.record_output_bytes, 1 << 20);
        assert_int_equal(c.ballast_bytes, 64 << 20);
        assert_int_equal(c.session_calls_max, 0);
        assert_int_equal(c.session_max_age_s, 1800);
        assert_int_equal(c.session_exec_timeout_s, 60);
        assert_int_equal(c.session_output_max_bytes, 65536);
        assert_int_equal(c.image_pull_timeout_s, 1800);
        assert_null(c.repo_proxy);
        assert_true(c.running_max >= 1);
        assert_null(c.repo_roots);
        assert_true(settings_listens_on_loopback(&c));
        settings_release(&c);
}

static void a_token_opens_the_address(void **state) {
        struct engine_config c;
        accepted(&c, ENV("API_TOKEN=secret", "API_PORT=8000"), ARGS());
        assert_string_equal(c.listen, "0.0.0.0:8000");
        assert_false(settings_listens_on_loopback(&c));
        settings_release(&c);
}

static void compatibility_names_are_read(void **state) {
        struct engine_config c;
        accepted(&c, ENV("API_PORT=0", "TASK_BASE_DIR=/srv/tasks", "TASK_MAX_AGE=60", "BRIG_HOME=/srv/brig", "BRIG_TASK_NETWORK=open",
                         "BRIG_REPO_ROOTS=/a:/b c:", "BRIG_ID_BASE=131072", "DOCKYARD_SANDBOX_IMAGE_CACHE_MAX_GB=3"), ARGS());
        assert_string_equal(c.listen, "127.0.0.1:0");
        assert_string_equal(c.task_base_dir, "/srv/tasks");
        assert_int_equal(c.task_max_age_s, 60);
        assert_string_equal(c.home, "/srv/brig");
        assert_int_equal(c.task_network, NETWORK_OPEN);
        assert_string_equal(c.repo_roots[0], "/a");
        assert_string_equal(c.repo_roots[1], "/b c");
        assert_null(c.repo_roots[2]);
        assert_int_equal(c.id_base, 131072);
        assert_int_equal(c.layer_cache_bytes, 3ull << 30);
        settings_release(&c);
        accepted(&c, ENV("DOCKYARD_TASK_EXECUTOR_THREADS=8", "DOCKYARD_SESSION_MAX_AGE=5", "DOCKYARD_SESSION_EXEC_TIMEOUT=6",
                         "DOCKYARD_SESSION_OUTPUT_MAX_BYTES=100", "DOCKYARD_SANDBOX_IMAGE_PULL_TIMEOUT=7"), ARGS());
        assert_int_equal(c.session_calls_max, 8);
        assert_int_equal(c.session_max_age_s, 5);
        assert_int_equal(c.session_exec_timeout_s, 6);
        assert_int_equal(c.session_output_max_bytes, 100);
        assert_int_equal(c.image_pull_timeout_s, 7);
        settings_release(&c);
}

static void flags_win_over_variables_and_own_names_over_others(void **state) {
        struct engine_config c;
        accepted(&c, ENV("API_PORT=1", "BRIG_HTTP_PORT=2"), ARGS());
        assert_int_equal(c.port, 2);
        settings_release(&c);
        accepted(&c, ENV("API_PORT=1", "BRIG_HTTP_PORT=2"), ARGS("--port=3"));
        assert_int_equal(c.port, 3);
        settings_release(&c);
}

static void an_empty_variable_is_absent(void **state) {
        struct engine_config c;
        accepted(&c, ENV("API_TOKEN=", "API_PORT=", "BRIG_HTTP_PORT=", "TASK_MAX_AGE="), ARGS());
        assert_null(c.token);
        assert_int_equal(c.port, 9090);
        settings_release(&c);
}

static void flags_take_their_value_either_way(void **state) {
        struct engine_config c;
        accepted(&c, ENV(), ARGS("--port", "7", "--low-water=2M", "--insecure-open", "--listen", "0.0.0.0:7"));
        assert_int_equal(c.port, 7);
        assert_int_equal(c.low_water_bytes, 2 << 20);
        assert_true(c.insecure_open);
        settings_release(&c);
}

static void sizes_take_suffixes(void **state) {
        struct engine_config c;
        accepted(&c, ENV(), ARGS("--low-water=1GiB", "--ballast=512k", "--record-output=65536", "--layer-cache=2T"));
        assert_int_equal(c.low_water_bytes, 1u << 30);
        assert_int_equal(c.ballast_bytes, 512 << 10);
        assert_int_equal(c.record_output_bytes, 65536);
        assert_int_equal(c.layer_cache_bytes, 2ull << 40);
        settings_release(&c);
}

static void a_bad_value_names_the_setting_and_its_source(void **state) {
        refused(ENV("API_PORT=eighty"), ARGS(), "http.port", "API_PORT");
        refused(ENV("API_PORT=65536"), ARGS(), "65535", "API_PORT");
        refused(ENV("API_PORT=-1"), ARGS(), "http.port", "-1");
        refused(ENV("TASK_MAX_AGE=1e3"), ARGS(), "task.max_age", "TASK_MAX_AGE");
        refused(ENV("TASK_MAX_AGE=99999999999999999999"), ARGS(), "task.max_age", "TASK_MAX_AGE");
        refused(ENV("BRIG_QUEUE_QUEUED_MAX=0"), ARGS(), "queue.queued_max", "BRIG_QUEUE_QUEUED_MAX");
        refused(ENV("BRIG_TASK_NETWORK=host"), ARGS(), "none, open", "BRIG_TASK_NETWORK");
        refused(ENV("BRIG_HOME=relative"), ARGS(), "absolute", "BRIG_HOME");
        refused(ENV("BRIG_REPO_ROOTS=/ok:bad"), ARGS(), "repo.roots", "BRIG_REPO_ROOTS");
        refused(ENV("BRIG_ID_BASE=100000"), ARGS(), "sandbox.id_base", "65536");
        refused(ENV(), ARGS("--low-water=16777217T"), "store.low_water", "--low-water");
        refused(ENV(), ARGS("--low-water=1X"), "store.low_water", "1X");
        refused(ENV(), ARGS("--insecure-open=perhaps"), "true or false", "perhaps");
        refused(ENV(), ARGS("--prot=1"), "unknown option", "--prot=1");
        refused(ENV(), ARGS("extra"), "unknown option", "extra");
        refused(ENV(), ARGS("--port"), "needs a value", "--port");
}

static void an_ssh_key_is_for_known_servers_only(void **state) {
        struct engine_config c;
        refused(ENV("BRIG_REPO_SSH_KEY=/k"), ARGS(), "repo.ssh_key", "repo.ssh_known_hosts");
        accepted(&c, ENV("BRIG_REPO_SSH_KEY=/k", "BRIG_REPO_SSH_KNOWN_HOSTS=/h"), ARGS());
        settings_release(&c);
        accepted(&c, ENV("BRIG_REPO_SSH_KNOWN_HOSTS=/h"), ARGS());
        settings_release(&c);
}

static void an_open_address_needs_a_token_or_a_word(void **state) {
        struct engine_config c;
        refused(ENV("BRIG_LISTEN=0.0.0.0:9090"), ARGS(), "token", "--insecure-open");
        refused(ENV("BRIG_LISTEN=127.example.org:9090"), ARGS(), "token", "127.example.org");
        refused(ENV("BRIG_LISTEN=nonsense"), ARGS(), "http.listen", "nonsense");
        accepted(&c, ENV("BRIG_LISTEN=0.0.0.0:9090", "API_TOKEN=t"), ARGS());
        settings_release(&c);
        accepted(&c, ENV("BRIG_LISTEN=0.0.0.0:9090"), ARGS("--insecure-open"));
        settings_release(&c);
        accepted(&c, ENV("BRIG_LISTEN=[::1]:9090"), ARGS());
        settings_release(&c);
        accepted(&c, ENV("BRIG_LISTEN=unix:/run/brig.sock"), ARGS());
        settings_release(&c);
}

static void the_token_is_shown_nowhere_and_is_no_flag(void **state) {
        struct engine_config c;
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        refused(ENV(), ARGS("--token=secret"), "unknown option", "--token");
        accepted(&c, ENV("API_TOKEN=hunter2", "BRIG_REPO_PROXY=http://u:hunter2@10.0.0.1:3128"), ARGS());
        assert_int_equal(settings_document(&c, SETTINGS_TEXT, &b), 0);
        assert_null(strstr(buf_str(&b), "hunter2"));
        settings_release(&c);
}

static void the_document_says_where_a_value_comes_from(void **state) {
        struct engine_config c;
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        accepted(&c, ENV("TASK_MAX_AGE=61", "BRIG_STORE_BALLAST=0"), ARGS("--port=7"));
        assert_int_equal(settings_document(&c, SETTINGS_TEXT, &b), 0);
        assert_non_null(strstr(buf_str(&b), "TASK_MAX_AGE\n"));
        assert_non_null(strstr(buf_str(&b), "BRIG_STORE_BALLAST\n"));
        assert_non_null(strstr(buf_str(&b), "--port\n"));
        settings_release(&c);
}

static int count_flag(const char *flag, const char *value, const char *doc, void *user) {
        size_t *n = user;
        assert_true(*flag && *doc);
        if (strcmp(flag, "drain-grace") == 0)
                assert_string_equal(value, "VALUE");
        if (strcmp(flag, "insecure-open") == 0)
                assert_null(value);
        ++*n;
        return strcmp(flag, "drain-grace") == 0 ? 7 : 0;
}

static void flags_come_with_their_sentence_until_somebody_has_enough(void **state) {
        size_t n = 0;
        assert_int_equal(settings_flags(count_flag, &n), 7);
        assert_true(n > 5);
}

/* docs/settings.md is what the table says. */
static void the_reference_page_is_up_to_date(void **state) {
        struct engine_config c;
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20), page = BUF_INIT(1 << 20);
        settings_init(&c);
        assert_int_equal(settings_document(&c, SETTINGS_MARKDOWN, &b), 0);
        assert_int_equal(fs_read_file(AT_FDCWD, SOURCE_ROOT "/docs/settings.md", &page), 0);
        assert_string_equal(buf_str(&b), buf_str(&page));
        settings_release(&c);
}

static void flags_and_variables_are_unique(void **state) {
        for (size_t i = 0; i < settings_count; i++)
                for (size_t k = 0; k < i; k++) {
                        const struct setting *a = &settings_table[i], *b = &settings_table[k];
                        assert_true(!a->flag || !b->flag || strcmp(a->flag, b->flag) != 0);
                        assert_true(strcmp(a->section, b->section) != 0 || strcmp(a->key, b->key) != 0);
                        assert_true(!a->alias[0] || !b->alias[0] || strcmp(a->alias[0], b->alias[0]) != 0);
                }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults_are_the_contracts),
                cmocka_unit_test(a_token_opens_the_address),
                cmocka_unit_test(compatibility_names_are_read),
                cmocka_unit_test(flags_win_over_variables_and_own_names_over_others),
                cmocka_unit_test(an_empty_variable_is_absent),
                cmocka_unit_test(flags_take_their_value_either_way),
                cmocka_unit_test(sizes_take_suffixes),
                cmocka_unit_test(a_bad_value_names_the_setting_and_its_source),
                cmocka_unit_test(an_ssh_key_is_for_known_servers_only),
                cmocka_unit_test(an_open_address_needs_a_token_or_a_word),
                cmocka_unit_test(the_token_is_shown_nowhere_and_is_no_flag),
                cmocka_unit_test(the_document_says_where_a_value_comes_from),
                cmocka_unit_test(flags_come_with_their_sentence_until_somebody_has_enough),
                cmocka_unit_test(the_reference_page_is_up_to_date),
                cmocka_unit_test(flags_and_variables_are_unique),
        };
        return cmocka_run_group_tests_name("engine/settings", tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fake_spawner.h"
#include "store/mirror.h"

#define HASH "0123456789012345678901234567890123456789"
#define OTHER "1123456789012345678901234567890123456789"

static struct mirror_store *store;
static char home[64];
static struct repo_url url;
static unsigned fetches, joins;
static char last_proof[8], last_argv[4096], last_env[4096];
static const char *fetch_says = "new " HASH "\n", *join_says = "";
static int fetch_status, join_status;
static bool hang;

static void git(struct fake_command *c) {
        bool join = strcmp(c->writable, "/mirror") == 0;
        assert_int_equal(c->profile, PROFILE_FETCH);
        if (join) {
                assert_int_equal(c->network, NETWORK_NONE);
                joins++;
                c->err = join_says;
                c->status = join_status;
                return;
        }
        assert_string_equal(c->writable, "/incoming");
        fetches++;
        snprintf(last_proof, sizeof last_proof, "%s", c->argv[5]);
        last_argv[0] = last_env[0] = 0;
        for (size_t i = 0, n = 0; c->argv[i]; i++)
                n += (size_t)snprintf(last_argv + n, sizeof last_argv - n, "%s ", c->argv[i]);
        for (size_t i = 0, n = 0; c->env[i]; i++)
                n += (size_t)snprintf(last_env + n, sizeof last_env - n, "%s ", c->env[i]);
        c->out = fetch_status ? "" : fetch_says;
        c->err = "remote: noise\nfatal: the reason\n";
        c->status = fetch_status;
        c->hang = hang;
}

struct answer { unsigned n; enum mirror_end end; char commit[65], text[512]; };

static void on_done(enum mirror_end end, const char *commit, const struct error *e, void *user) {
        struct answer *a = user;
        a->n++;
        a->end = end;
        snprintf(a->commit, sizeof a->commit, "%s", commit ? commit : "");
        snprintf(a->text, sizeof a->text, "%s", e ? e->text : "");
}

static struct mirror_ticket *ask(struct answer *a, const char *commit) {
        struct mirror_ticket *t;
        *a = (struct answer){ 0 };
        assert_int_equal(mirror_ensure(store, &url, -1, commit, on_done, a, &t, NULL), 0);
        return t;
}

static int setup(void **state) {
        struct mirror_store_config cfg = { .home = home };
        snprintf(home, sizeof home, "/tmp/brig-mirror.XXXXXX");
        assert_non_null(mkdtemp(home));
        fake_reset();
        fake.exec = git;
        fetches = joins = 0;
        fetch_status = join_status = 0;
        fetch_says = "new " HASH "\n";
        hang = false;
        assert_int_equal(repo_url_parse("https://h.example/a", &url, NULL), 0);
        return mirror_store_open(fake_spawner(), &cfg, &store, NULL);
}

static bool closed;
static void on_closed(void *user) { closed = true; }

static int teardown(void **state) {
        char path[128];
        if (store) {
                closed = false;
                mirror_store_close(store, on_closed, NULL);
                fake_run();
                assert_true(closed);
                assert_int_equal(fake.live, 0);
        }
        repo_url_release(&url);
        snprintf(path, sizeof path, "%s/trees", home);
        DIR *d = opendir(path);
        for (const struct dirent *de; (de = readdir(d));)
                unlinkat(dirfd(d), de->d_name, 0);
        closedir(d);
        rmdir(path);
        return rmdir(home);
}

static void a_new_commit_is_joined_and_the_quarantine_removed(void **state) {
        struct answer a;
        ask(&a, HASH);
        assert_int_equal(a.n, 0);                /* never from inside the call */
        fake_run();
        assert_int_equal(a.n, 1);
        assert_int_equal(a.end, MIRROR_OK);
        assert_string_equal(a.commit, HASH);
        assert_int_equal(joins, 1);
        assert_int_equal(fake.mirror_removes, 1);
}

static void what_the_mirror_has_is_not_joined(void **state) {
        struct answer a;
        fetch_says = "present " HASH "\n";
        ask(&a, HASH);
        fake_run();
        assert_int_equal(a.end, MIRROR_OK);
        assert_int_equal(joins, 0);
}

static void the_same_hash_shares_a_run_and_another_waits(void **state) {
        struct answer a, b, c;
        hang = true;
        ask(&a, HASH);
        ask(&b, HASH);
        fake_run();
        ask(&c, OTHER);
        fake_run();
        assert_int_equal(fetches, 1);
        hang = false;
        fake_release();
        fake_run();
        assert_int_equal(a.n + b.n + c.n, 3);
        assert_int_equal(fetches, 2);
}

static void a_name_is_resolved_by_a_run_that_began_later(void **state) {
        struct answer a, b;
        hang = true;
        ask(&a, "main");
        fake_run();
        ask(&b, "main");
        fake_run();
        hang = false;
        fake_release();
        fake_run();
        assert_int_equal(a.n + b.n, 2);
        assert_int_equal(fetches, 2);
}

static void cancelling_one_leaves_the_run_to_the_others(void **state) {
        struct answer a, b;
        hang = true;
        struct mirror_ticket *t = ask(&a, HASH);
        ask(&b, HASH);
        fake_run();
        mirror_cancel(t);
        fake_run();
        assert_int_equal(fake.live, 1);
        fake_release();
        fake_run();
        assert_int_equal(a.n, 0);
        assert_int_equal(b.n, 1);
        assert_int_equal(b.end, MIRROR_OK);
}

static void cancelling_all_ends_the_run(void **state) {
        struct answer a, b;
        hang = true;
        mirror_cancel(ask(&a, HASH));            /* before anything runs */
        struct mirror_ticket *t = ask(&b, HASH);
        fake_run();
        mirror_cancel(t);
        fake_run();
        assert_int_equal(fake.live, 0);
        assert_int_equal(a.n + b.n, 0);
        hang = false;
        ask(&b, HASH);
        fake_run();
        assert_int_equal(b.end, MIRROR_OK);
}

static void the_scripts_status_decides_and_gits_words_are_told(void **state) {
        static const struct { int status; enum mirror_end end; } cases[] = {
                { 20, MIRROR_UNREACHABLE }, { 21, MIRROR_NO_COMMIT }, { 22, MIRROR_FAILED }, { 128, MIRROR_FAILED },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct answer a;
                fetch_status = cases[i].status;
                ask(&a, HASH);
                fake_run();
                assert_int_equal(a.end, cases[i].end);
                assert_non_null(strstr(a.text, "fatal: the reason"));
        }
        struct answer a;
        fetch_status = 0;
        join_status = 23;
        join_says = "bad object";
        ask(&a, HASH);
        fake_run();
        assert_int_equal(a.end, MIRROR_UNREACHABLE);
        assert_non_null(strstr(a.text, "bad object"));
}

static void an_answer_out_of_form_is_not_believed(void **state) {
        static const char *const bad[] = { "", "new\n", "new xyz\n", "new " HASH, "new " HASH "\nmore\n", "new -x" HASH "\n", "old " HASH "\n", "present 01\n" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct answer a;
                fetch_says = bad[i];
                ask(&a, HASH);
                fake_run();
                assert_int_equal(a.end, MIRROR_FAILED);
        }
        assert_int_equal(joins, 0);
}

static void credentials_stay_off_the_command_line_and_make_the_mirror_private(void **state) {
        struct answer a;
        ask(&a, HASH);
        fake_run();
        assert_string_equal(last_proof, "no");
        assert_false(mirror_is_private(store, &url));
        repo_url_release(&url);
        assert_int_equal(repo_url_parse("https://user:hunter2@h.example/a", &url, NULL), 0);
        ask(&a, HASH);
        fake_run();
        assert_string_equal(last_proof, "yes");
        assert_null(strstr(last_argv, "hunter2"));
        assert_null(strstr(last_env, "hunter2"));
        assert_non_null(strstr(last_env, "credential.https://h.example.helper"));
        repo_url_release(&url);
        assert_int_equal(repo_url_parse("https://h.example/a", &url, NULL), 0);
        assert_true(mirror_is_private(store, &url));
        ask(&a, HASH);
        fake_run();
        assert_string_equal(last_proof, "yes");
}

static void other_credentials_do_not_share_a_run(void **state) {
        struct answer a, b;
        struct mirror_ticket *t;
        struct repo_url other;
        ask(&a, HASH);
        assert_int_equal(repo_url_parse("https://user:x@h.example/a", &other, NULL), 0);
        b = (struct answer){ 0 };
        assert_int_equal(mirror_ensure(store, &other, -1, HASH, on_done, &b, &t, NULL), 0);
        fake_run();
        assert_int_equal(fetches, 2);
        assert_int_equal(a.n + b.n, 2);
        repo_url_release(&other);
}

static void a_sandbox_that_cannot_be_made_is_our_fault(void **state) {
        struct answer a;
        fake.create_error = -ENOMEM;
        ask(&a, HASH);
        fake_run();
        assert_int_equal(a.end, MIRROR_FAILED);
        assert_non_null(strstr(a.text, "fake step"));
}

static void closing_waits_for_the_sandbox_and_tells_nobody(void **state) {
        struct answer a, b;
        hang = true;
        ask(&a, HASH);
        fake_run();
        ask(&b, OTHER);
        closed = false;
        mirror_store_close(store, on_closed, NULL);
        assert_false(closed);
        fake_run();
        assert_true(closed);
        assert_int_equal(a.n + b.n, 0);
        store = NULL;
}

#define WITH_STORE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                WITH_STORE(a_new_commit_is_joined_and_the_quarantine_removed),
                WITH_STORE(what_the_mirror_has_is_not_joined),
                WITH_STORE(the_same_hash_shares_a_run_and_another_waits),
                WITH_STORE(a_name_is_resolved_by_a_run_that_began_later),
                WITH_STORE(cancelling_one_leaves_the_run_to_the_others),
                WITH_STORE(cancelling_all_ends_the_run),
                WITH_STORE(the_scripts_status_decides_and_gits_words_are_told),
                WITH_STORE(an_answer_out_of_form_is_not_believed),
                WITH_STORE(credentials_stay_off_the_command_line_and_make_the_mirror_private),
                WITH_STORE(other_credentials_do_not_share_a_run),
                WITH_STORE(a_sandbox_that_cannot_be_made_is_our_fault),
                WITH_STORE(closing_waits_for_the_sandbox_and_tells_nobody),
        };
        return cmocka_run_group_tests_name("store/mirror", tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "fake_spawner.h"
#include "store/tree.h"

#define HASH "0123456789012345678901234567890123456789"
#define OTHER "1123456789012345678901234567890123456789"
#define TREE "2223456789012345678901234567890123456789"

static uv_loop_t loop;
static struct tree_store *store;
static char home[64], repo[64];
static unsigned checkouts, setups;
static int setup_status;
static bool hang_setup;
static char found[128];

static void command(struct fake_command *c) {
        if (c->profile == PROFILE_FETCH) {
                snprintf(found, sizeof found, "present %s\n", c->argv[3]);
                c->out = found;
        } else if (strcmp(c->argv[1], "/run/brig/setup") == 0) {
                setups++;
                c->status = setup_status;
                c->err = "first line\nlast line\n";
                c->hang = hang_setup;
        } else {
                checkouts++;
                assert_int_equal(c->network, NETWORK_NONE);
                c->out = "tree " TREE "\ntime 1234\n";
        }
}

static void run(void) {
        do
                uv_run(&loop, UV_RUN_NOWAIT);
        while (fake_step() || uv_loop_alive(&loop));
}

static void open_store(uint64_t max_bytes) {
        struct tree_store_config cfg = { .home = home, .max_bytes = max_bytes, .any_readable_path = true };
        struct error e;
        if (tree_store_open(&loop, fake_spawner(), &cfg, &store, &e) < 0)
                fail_msg("%s", e.text);
}

static int setup(void **state) {
        uv_loop_init(&loop);
        snprintf(home, sizeof home, "/tmp/brig-tree-unit.XXXXXX");
        assert_non_null(mkdtemp(home));
        snprintf(repo, sizeof repo, "/tmp/brig-tree-repo.XXXXXX");
        assert_non_null(mkdtemp(repo));
        fake_reset();
        fake.exec = command;
        checkouts = setups = 0;
        setup_status = 0;
        hang_setup = false;
        store = NULL;
        return 0;
}

static bool closed;
static void on_closed(void *user) { closed = true; }

static void close_store(void) {
        closed = false;
        tree_store_close(store, on_closed, NULL);
        run();
        assert_true(closed);
        assert_int_equal(fake.live, 0);
        store = NULL;
}

static int remove_it(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static int teardown(void **state) {
        if (store)
                close_store();
        assert_int_equal(uv_loop_close(&loop), 0);
        nftw(repo, remove_it, 8, FTW_DEPTH | FTW_PHYS);
        return nftw(home, remove_it, 8, FTW_DEPTH | FTW_PHYS);
}

struct answer { unsigned n; struct tree *tree; enum tree_failure failure; char text[512]; struct tree_ticket *ticket, *cancel_too; };

static void on_tree(struct tree *t, enum tree_failure failure, const struct error *e, void *user) {
        struct answer *a = user;
        a->n++;
        a->tree = t;
        a->failure = failure;
        snprintf(a->text, sizeof a->text, "%s", e ? e->text : "");
        if (a->cancel_too)
                tree_cancel(a->cancel_too);
}

static void ask(struct answer *a, const char *commit, const char *setup_command) {
        struct tree_request q = { .repo_url = repo, .commit = commit, .repo_path = "/testbed", .setup_command = setup_command,
                                  .setup_network = NETWORK_OPEN, .setup_timeout_ms = 1000 };
        struct error e;
        sandbox_limits_default(&q.limits);
        *a = (struct answer){ 0 };
        if (tree_acquire(store, &q, on_tree, a, &a->ticket, &e) < 0)
                fail_msg("%s", e.text);
        assert_int_equal(a->n, 0);
}

static void get(struct answer *a, const char *commit, const char *setup_command) {
        ask(a, commit, setup_command);
        run();
        if (a->n != 1 || a->failure != TREE_OK)
                fail_msg("%u answers, %s: %s", a->n, tree_failure_to_string((int)a->failure), a->text);
}

static void release(struct answer *a) {
        tree_release(store, a->tree);
        run();
}

/* ---- tests ---- */

static void a_tree_is_made_once_and_found_again(void **state) {
        struct answer a, b;
        open_store(1 << 20);
        get(&a, HASH, "");
        assert_string_equal(a.tree->commit, HASH);
        assert_string_equal(a.tree->tree_hash, TREE);
        assert_int_equal(a.tree->commit_time, 1234);
        assert_false(a.tree->cached);
        unsigned boxes = fake.creates;
        get(&b, HASH, "");
        assert_true(b.tree->cached);
        assert_int_equal(fake.creates, boxes);           /* nobody was asked anything */
        assert_string_equal(a.tree->layers[0], b.tree->layers[0]);
        release(&a);
        release(&b);
}

static void a_setup_is_a_layer_of_its_own(void **state) {
        struct answer a, b, c;
        open_store(1 << 20);
        get(&a, HASH, "make x");
        get(&b, HASH, "make y");
        get(&c, HASH, "make x");
        assert_int_equal(checkouts, 1);
        assert_int_equal(setups, 2);
        assert_string_equal(a.tree->layers[0], b.tree->layers[0]);
        assert_string_not_equal(a.tree->layers[1], b.tree->layers[1]);
        assert_string_equal(a.tree->layers[1], c.tree->layers[1]);
        release(&a);
        release(&b);
        release(&c);
}

static void a_failed_setup_is_remembered_for_its_own_key(void **state) {
        struct answer a, b, c;
        open_store(1 << 20);
        setup_status = 3;
        ask(&a, HASH, "make x");
        run();
        assert_int_equal(a.failure, TREE_SETUP_FAILED);
        assert_non_null(strstr(a.text, "status 3"));
        assert_non_null(strstr(a.text, "first line|last line"));
        setup_status = 0;
        ask(&b, HASH, "make x");
        run();
        assert_int_equal(b.failure, TREE_SETUP_FAILED);
        assert_string_equal(a.text, b.text);
        assert_int_equal(setups, 1);
        assert_int_equal(fake.removes, 1);
        get(&c, HASH, "make y");
        release(&c);
}

static void our_own_failure_is_not_remembered(void **state) {
        struct answer a;
        open_store(1 << 20);
        fake.publish_error = -EIO;
        ask(&a, HASH, "");
        run();
        assert_int_equal(a.failure, TREE_INTERNAL);
        assert_int_equal(fake.removes, 1);
        fake.publish_error = -ENOSPC;
        ask(&a, HASH, "");
        run();
        assert_int_equal(a.failure, TREE_DISK_FULL);
        fake.publish_error = 0;
        get(&a, HASH, "");
        release(&a);
}

static void cancelling_one_leaves_the_build_to_the_others(void **state) {
        struct answer a, b;
        open_store(1 << 20);
        hang_setup = true;
        ask(&a, HASH, "make");
        ask(&b, HASH, "make");
        run();
        tree_cancel(a.ticket);
        run();
        assert_int_equal(fake.live, 1);
        fake_release();
        run();
        assert_int_equal(a.n, 0);
        assert_int_equal(b.failure, TREE_OK);
        assert_int_equal(setups, 1);
        release(&b);
}

static void cancelling_all_removes_it_and_a_newcomer_gets_its_own(void **state) {
        struct answer a, b;
        open_store(1 << 20);
        hang_setup = true;
        ask(&a, HASH, "make");
        run();
        tree_cancel(a.ticket);
        hang_setup = false;
        ask(&b, HASH, "make");                           /* while the first is being taken down */
        run();
        assert_int_equal(a.n, 0);
        assert_int_equal(b.n, 1);
        assert_int_equal(b.failure, TREE_OK);
        assert_int_equal(setups, 2);
        assert_int_equal(fake.removes, 1);
        release(&b);
}

static void a_callback_may_cancel_another_that_waits_for_the_same(void **state) {
        struct answer a, b;
        open_store(1 << 20);
        setup_status = 1;
        ask(&a, HASH, "make");
        ask(&b, HASH, "make");
        a.cancel_too = b.ticket;
        b.cancel_too = a.ticket;
        run();
        assert_int_equal(a.n + b.n, 1);
}

static void the_least_used_goes_first_and_no_tree_under_a_setup(void **state) {
        struct answer a, b;
        open_store(2500);                                /* two layers of 1000 bytes */
        get(&a, HASH, "make");
        release(&a);
        assert_int_equal(fake.removes, 0);
        get(&b, OTHER, "");
        assert_int_equal(fake.removes, 0);               /* eviction happens when something is given back */
        release(&b);
        assert_int_equal(fake.removes, 1);
        get(&a, HASH, "make");                           /* the set-up went, its tree stayed */
        assert_int_equal(checkouts, 2);
        assert_int_equal(setups, 2);
        release(&a);
}

static void what_is_in_use_stays_whatever_the_limit(void **state) {
        struct answer a, b, c;
        open_store(1);
        get(&a, HASH, "make");
        get(&b, HASH, "make");
        release(&b);
        assert_int_equal(fake.removes, 0);
        get(&c, OTHER, "");
        release(&c);                                     /* newer than those in use, and the one that goes */
        assert_int_equal(fake.removes, 1);
        get(&b, HASH, "make");
        assert_true(b.tree->cached);
        release(&b);
        release(&a);
        assert_int_equal(fake.removes, 3);
}

static void unused_layers_are_closed_beyond_a_number(void **state) {
        struct answer a;
        open_store(1 << 20);
        for (int i = 0; i < 40; i++) {
                char commit[41];
                snprintf(commit, sizeof commit, "%040d", i);
                get(&a, commit, "");
                release(&a);
        }
        assert_int_equal(fake.closes, 40 - 32);
        unsigned opens = fake.opens;
        get(&a, "0000000000000000000000000000000000000000", "");    /* closed, not gone */
        assert_true(a.tree->cached);
        assert_int_equal(fake.opens, opens + 1);
        release(&a);
}

static void list_one(const char *id, const char *key, enum layer_kind kind, const char *parent, int64_t made_ms) {
        struct layer_manifest *m = &fake.listed[fake.n_listed++];
        *m = (struct layer_manifest){ .kind = kind, .bytes = 10, .made_ms = made_ms };
        snprintf(m->id, sizeof m->id, "%s", id);
        snprintf(m->key, sizeof m->key, "%s", key);
        snprintf(m->parent, sizeof m->parent, "%s", parent);
}

static void orphans_and_doubles_are_removed_at_start(void **state) {
        struct answer a;
        list_one("a1", "aa", LAYER_TREE, "", 1);
        list_one("a2", "bb", LAYER_SETUP, "a1", 2);
        list_one("a3", "cc", LAYER_SETUP, "ff", 3);      /* its parent is gone */
        list_one("a4", "aa", LAYER_TREE, "", 4);         /* the same key again */
        list_one("a5", "", LAYER_TREE, "", 5);           /* of no key */
        open_store(1 << 20);
        get(&a, HASH, "");                               /* waits for the list */
        assert_int_equal(fake.removes, 3);
        release(&a);
}

static void a_layer_that_cannot_be_mounted_is_made_again(void **state) {
        struct answer a;
        open_store(1 << 20);
        get(&a, HASH, "");
        struct layer_manifest m = { .kind = LAYER_TREE, .bytes = 10 };
        snprintf(m.id, sizeof m.id, "%s", a.tree->layers[0]);
        release(&a);
        close_store();
        /* As after a restart: on disk under the same key, and broken. The key is what the first one was published with. */
        snprintf(m.key, sizeof m.key, "%s", fake.published_key);
        fake.listed[fake.n_listed++] = m;
        fake.open_error = -EUCLEAN;
        open_store(1 << 20);
        ask(&a, HASH, "");
        run();
        assert_int_equal(a.failure, TREE_INTERNAL);
        assert_int_equal(fake.removes, 1);
        fake.open_error = 0;
        get(&a, HASH, "");
        assert_false(a.tree->cached);
        release(&a);
}

static void closing_ends_what_runs_and_tells_nobody(void **state) {
        struct answer a, b;
        open_store(1 << 20);
        hang_setup = true;
        ask(&a, HASH, "make");
        run();
        ask(&b, OTHER, "");
        close_store();
        assert_int_equal(a.n + b.n, 0);
        assert_int_equal(fake.removes, 1);
}

static void a_tree_of_an_image_is_named_by_image_and_path(void **state) {
        struct tree *a, *b;
        open_store(1 << 20);
        assert_int_equal(tree_of_image(store, "d1", "/a", &a), 0);
        assert_int_equal(tree_of_image(store, "d1", "/b", &b), 0);
        assert_string_equal(a->image_digest, b->image_digest);
        assert_string_not_equal(a->tree_hash, b->tree_hash);
        assert_string_equal(a->commit, "");
        char first[SHA256_HEX];
        snprintf(first, sizeof first, "%s", a->tree_hash);
        assert_null(a->layers[0]);
        tree_release(store, a);
        tree_release(store, b);
        assert_int_equal(tree_of_image(store, "d2", "/a", &a), 0);
        assert_string_equal(a->image_digest, "d2");
        assert_string_not_equal(a->tree_hash, first);
        tree_release(store, a);
        assert_int_equal(fake.creates, 0);
}

static void a_directory_that_was_opened_beforehand_is_allowed_and_no_other(void **state) {
        char given[80], beside[80];
        snprintf(given, sizeof given, "%s/given", repo);
        snprintf(beside, sizeof beside, "%s/beside", repo);
        assert_int_equal(mkdir(given, 0700) + mkdir(beside, 0700), 0);
        int fd = open(given, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct tree_store_config cfg = { .home = home, .max_bytes = 1, .local_repo = given, .local_repo_fd = fd };
        assert_int_equal(tree_store_open(&loop, fake_spawner(), &cfg, &store, NULL), 0);
        close(fd);
        assert_int_equal(tree_url_check(store, given, "HEAD", NULL), 0);
        struct error e = { 0 };
        assert_int_equal(tree_url_check(store, beside, "HEAD", &e), -EINVAL);
        assert_non_null(strstr(e.text, "repo.roots"));
        assert_int_equal(tree_url_check(store, repo, "HEAD", NULL), -EINVAL);
        run();
}

#define WITH_HOME(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                WITH_HOME(a_tree_is_made_once_and_found_again),
                WITH_HOME(a_setup_is_a_layer_of_its_own),
                WITH_HOME(a_failed_setup_is_remembered_for_its_own_key),
                WITH_HOME(our_own_failure_is_not_remembered),
                WITH_HOME(cancelling_one_leaves_the_build_to_the_others),
                WITH_HOME(cancelling_all_removes_it_and_a_newcomer_gets_its_own),
                WITH_HOME(a_callback_may_cancel_another_that_waits_for_the_same),
                WITH_HOME(the_least_used_goes_first_and_no_tree_under_a_setup),
                WITH_HOME(what_is_in_use_stays_whatever_the_limit),
                WITH_HOME(unused_layers_are_closed_beyond_a_number),
                WITH_HOME(orphans_and_doubles_are_removed_at_start),
                WITH_HOME(a_layer_that_cannot_be_mounted_is_made_again),
                WITH_HOME(closing_ends_what_runs_and_tells_nobody),
                WITH_HOME(a_tree_of_an_image_is_named_by_image_and_path), 
                WITH_HOME(a_directory_that_was_opened_beforehand_is_allowed_and_no_other),
        };
        return cmocka_run_group_tests_name("store/tree", tests, NULL, NULL);
}

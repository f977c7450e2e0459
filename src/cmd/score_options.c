#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "cmd/score_options.h"

#define AT(member) offsetof(struct score_options, member)

const struct option_row score_rows[SCORE_ROWS] = {
        { "--repo", "URL|DIR", OPTION_TEXT, AT(repo), 0, COMPLETE_DIRECTORY, "the repository" },
        { "--commit", "SHA", OPTION_TEXT, AT(commit), 0, COMPLETE_NONE, "the base commit (HEAD)" },
        { "--patch", "FILE", OPTION_FILE, AT(patch), AT(has_patch), COMPLETE_FILE, "the agent's patch; - is standard input" },
        { "--test-patch", "FILE", OPTION_FILE, AT(test_patch), AT(has_test_patch), COMPLETE_FILE, "the gold test patch" },
        { "--gold-patch", "FILE", OPTION_FILE, AT(gold_patch), AT(has_gold_patch), COMPLETE_FILE, "the patch that is known to be right, for control runs" },
        { "--fail-to-pass", "ID...", OPTION_LIST, AT(fail_to_pass), 0, COMPLETE_NONE, "tests that must pass" },
        { "--pass-to-pass", "ID...", OPTION_LIST, AT(pass_to_pass), 0, COMPLETE_NONE, "tests that must still pass" },
        { "--diff", NULL, OPTION_SWITCH, AT(diff), 0, COMPLETE_NONE, "report the agent's changes" },
        { "--instance", "FILE", OPTION_TEXT, AT(instance), 0, COMPLETE_FILE, "a record of the SWE-bench family: JSON, a list of them, or JSON lines" },
        { "--prediction", "FILE|gold", OPTION_TEXT, AT(prediction), 0, COMPLETE_FILE, "its prediction: a list, an object by id, or JSON lines" },
        { "--id", "INSTANCE_ID", OPTION_TEXT, AT(instance_id), 0, COMPLETE_NONE, "which record, where the file holds several" },
        { "--save", "FILE", OPTION_TEXT, AT(save), 0, COMPLETE_FILE, "keeps the record together with what was asked, for --replay" },
        { "--replay", "FILE", OPTION_TEXT, AT(replay), 0, COMPLETE_FILE, "asks again what a kept verdict asked (--save, or a record of `brig eval`), and says what differs" },
        { "--url", "URL", OPTION_TEXT, AT(url), 0, COMPLETE_NONE, "the daemon (BRIG_URL); else the local one, else none is needed" },
        { "--quiet", NULL, OPTION_SWITCH, AT(quiet), 0, COMPLETE_NONE, "no progress" },
        { "-o", "json|text", OPTION_OUTPUT, AT(json), 0, COMPLETE_NONE, "the whole record, or a table (text)" },
};

const struct option_row score_run_rows[SCORE_RUN_ROWS] = {
        { "--command", "CMD", OPTION_TEXT, AT(command), 0, COMPLETE_NONE, "what runs in the tree; without it the ids decide" },
        { "--framework", "NAME", OPTION_TEXT, AT(framework), 0, COMPLETE_NONE, "whose ids and output these are: pytest, unittest, django, go, cargo, node, jest, maven and others (docs/frameworks.md)" },
        { "--run", "ids|files", OPTION_TEXT, AT(run), 0, COMPLETE_WORDS, "run the listed ids, or their whole files" },
        { "--image", "IMAGE", OPTION_TEXT, AT(image), 0, COMPLETE_IMAGE, "host, a stored image, a name that a registry knows, or a directory" },
        { "--tree", "clone|image", OPTION_TEXT, AT(tree), 0, COMPLETE_WORDS, "where the tree comes from: image is what the image has at --repo-path, and needs no --repo" },
        { "--repo-path", "PATH", OPTION_TEXT, AT(repo_path), 0, COMPLETE_NONE, "where the tree stands in the sandbox (/testbed)" },
        { "--setup", "CMD", OPTION_TEXT, AT(setup_command), 0, COMPLETE_NONE, "prepares the tree, once" },
        { "--env", "NAME=VALUE", OPTION_APPEND, AT(env), 0, COMPLETE_NONE, "a variable of the tests; may be repeated" },
        { "--timeout", "S", OPTION_TEXT, AT(timeout), 0, COMPLETE_NONE, "seconds for the command (300)" },
        { "--network", "none|open|allow", OPTION_TEXT, AT(network), 0, COMPLETE_WORDS, "network while tests run; `allow`: what --allow names" },
        { "--allow", "RULE", OPTION_APPEND, AT(allow), 0, COMPLETE_NONE, "a name, address or range they may reach, e.g. pypi.org:443; may be repeated" },
        { "--patch-mode", "MODE", OPTION_TEXT, AT(patch_mode), 0, COMPLETE_NONE, "repair, strict or ladder" },
        { "--protect", "PATH", OPTION_APPEND, AT(protect), 0, COMPLETE_NONE, "one more path that is reset to base; may be repeated" },
        { "--allow-config", "PATH", OPTION_APPEND, AT(allow_config), 0, COMPLETE_NONE, "a configuration file that stays as patched; may be repeated" },
        { "--control", "off|auto|require", OPTION_TEXT, AT(control), 0, COMPLETE_WORDS, "run at base and with the gold patch first, once for each instance (auto where there is a gold patch)" },
        { "--lint", "CMD", OPTION_TEXT, AT(lint), 0, COMPLETE_NONE, "a linter, run after the tests" },
};

void score_options_init(struct score_options *o) {
        *o = (struct score_options){ .patch = BUF_INIT(SCORE_FILE_MAX), .test_patch = BUF_INIT(SCORE_FILE_MAX), .gold_patch = BUF_INIT(SCORE_FILE_MAX) };
}

void score_options_release(struct score_options *o) {
        option_rows_release(score_rows, SCORE_ROWS, o);
        option_rows_release(score_run_rows, SCORE_RUN_ROWS, o);
        score_options_init(o);
}

int score_options_inherit(struct score_options *o, const struct score_options *from) {
        for (size_t i = 0; i < SCORE_RUN_ROWS; i++) {
                const char *at = (const char *)from + score_run_rows[i].at;
                char *to = (char *)o + score_run_rows[i].at;
                if (score_run_rows[i].kind == OPTION_TEXT && *(char *const *)at && !(*(char **)to = strdup(*(char *const *)at)))
                        return -ENOMEM;
                for (char *const *v = score_run_rows[i].kind == OPTION_APPEND ? *(char **const *)at : NULL; v && *v; v++)
                        if (strv_push((char ***)to, *v) < 0)
                                return -ENOMEM;
        }
        return 0;
}

int score_read_file(const char *path, struct buf *b, struct error *e) {
        int r = strcmp(path, "-") == 0 ? fs_read_fd(STDIN_FILENO, b) : fs_read_file(AT_FDCWD, path, b);
        return r < 0 ? error_set(e, r, "read %s", path) : 0;
}

static int set_text(char **at, const char *value, struct error *e) {
        char *copy = strdup(value);
        if (!copy)
                return error_set(e, -ENOMEM, "read the options");
        free(*at);
        *at = copy;
        return 0;
}

/* An address has a scheme, or git's short form "HOST:PATH". */
static bool is_address(const char *repo) { return strstr(repo, "://") || repo[strcspn(repo, ":/")] == ':'; }

/* A path on this machine must mean the same to a daemon that stands elsewhere in it. Of an absolute one that is not here the daemon decides: it may be on another machine. */
static int absolute(char **repo, struct error *e) {
        char full[PATH_MAX];
        if (is_address(*repo) || (**repo == '/' && access(*repo, F_OK) < 0))
                return 0;
        if (!realpath(*repo, full))
                return error_say(e, -EINVAL, "--repo: %s: %s", *repo, strerrordesc_np(errno));
        return set_text(repo, full, e);
}

int score_options_check(struct score_options *o, struct error *e) {
        if (o->replay)
                return o->repo || o->instance || o->has_patch || o->save ? error_say(e, -EINVAL, "--replay has all that is asked in its file") : 0;
        if (o->prediction && !o->instance)
                return error_say(e, -EINVAL, "--prediction needs --instance");
        int r = o->instance ? score_instance_load(o, e) : 0;
        if (r < 0)
                return r;
        if (!o->repo && !(o->tree && strcmp(o->tree, "image") == 0))
                return error_say(e, -EINVAL, "--repo is missing");
        if (!o->has_patch)
                return error_say(e, -EINVAL, "%s is missing", o->instance ? "--prediction (or --patch)" : "--patch");
        if (!o->command && !o->framework && !o->fail_to_pass && !o->pass_to_pass)
                return error_say(e, -EINVAL, "nothing to run: give --command, --framework or ids");
        if (o->allow && o->network && strcmp(o->network, "allow") != 0)
                return error_say(e, -EINVAL, "--allow goes with --network allow only");
        for (char **v = o->env; v && *v; v++)
                if (!strchr(*v, '=') || **v == '=')
                        return error_say(e, -EINVAL, "--env wants NAME=VALUE, not '%.100s'", *v);
        return o->repo ? absolute(&o->repo, e) : 0;
}

static void field_list(struct json_writer *w, const char *key, char *const *list) {
        if (!list)
                return;
        json_put_key(w, key);
        json_put_texts(w, list);
}

static void field_optional(struct json_writer *w, const char *key, const char *value) {
        if (value)
                json_field_text(w, key, value);
}

static void put_env(struct json_writer *w, char *const *env) {
        if (!env)
                return;
        json_put_key(w, "env");
        json_begin_object(w);
        for (; *env; env++) {
                char name[256];
                size_t n = strcspn(*env, "=");
                snprintf(name, sizeof name, "%.*s", (int)MIN2(n, sizeof name - 1), *env);
                json_field_text(w, name, *env + n + 1);
        }
        json_end_object(w);
}

static void put_network(struct json_writer *w, const struct score_options *o) {
        if (!o->allow && !(o->network && strcmp(o->network, "allow") == 0)) {
                field_optional(w, "network", o->network);
                return;
        }
        json_put_key(w, "network");
        json_begin_object(w);
        json_put_key(w, "allow");
        json_begin_array(w);
        for (char **a = o->allow; a && *a; a++)
                json_put_text(w, *a);
        json_end_array(w);
        json_end_object(w);
}

int score_options_request(const struct score_options *o, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        field_optional(&w, "repo_url", o->repo);
        field_optional(&w, "base_commit", o->commit);
        json_field_string(&w, "patch", buf_str(&o->patch), o->patch.len);
        json_field_string(&w, "test_patch", buf_str(&o->test_patch), o->test_patch.len);
        if (o->has_gold_patch)
                json_field_string(&w, "gold_patch", buf_str(&o->gold_patch), o->gold_patch.len);
        field_optional(&w, "control", o->control);
        field_optional(&w, "test_command", o->command);
        field_optional(&w, "test_framework", o->framework);
        field_optional(&w, "run", o->run);
        field_list(&w, "fail_to_pass", o->fail_to_pass);
        field_list(&w, "pass_to_pass", o->pass_to_pass);
        field_optional(&w, "image", o->image);
        field_optional(&w, "tree", o->tree);
        field_optional(&w, "repo_path", o->repo_path);
        field_optional(&w, "setup_command", o->setup_command);
        field_optional(&w, "lint_command", o->lint);
        put_network(&w, o);
        field_optional(&w, "patch_mode", o->patch_mode);
        field_optional(&w, "timeout", o->timeout);
        field_list(&w, "protect", o->protect);
        field_list(&w, "allow_config", o->allow_config);
        put_env(&w, o->env);
        if (o->diff)
                json_field_bool(&w, "capture_diff", true);
        json_end_object(&w);
        int r = json_finish(&w);
        return r < 0 ? error_set(e, r, "write the request") : 0;
}

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "cmd/score_options.h"

enum kind { KIND_TEXT, KIND_FILE, KIND_LIST, KIND_APPEND, KIND_SWITCH };

struct flag {
        const char *name, *value;          /* "--repo", "URL|DIR" */
        enum kind kind;
        size_t at;                         /* char *, struct buf, char **, bool */
        size_t given_at;                   /* KIND_FILE: bool */
        const char *doc;
};

#define AT(member) offsetof(struct score_options, member)

static const struct flag flags[] = {
        { "--repo", "URL|DIR", KIND_TEXT, AT(repo), 0, "the repository" },
        { "--commit", "SHA", KIND_TEXT, AT(commit), 0, "the base commit (HEAD)" },
        { "--patch", "FILE", KIND_FILE, AT(patch), AT(has_patch), "the agent's patch; - is standard input" },
        { "--test-patch", "FILE", KIND_FILE, AT(test_patch), AT(has_test_patch), "the gold test patch" },
        { "--fail-to-pass", "ID...", KIND_LIST, AT(fail_to_pass), 0, "tests that must pass" },
        { "--pass-to-pass", "ID...", KIND_LIST, AT(pass_to_pass), 0, "tests that must still pass" },
        { "--command", "CMD", KIND_TEXT, AT(command), 0, "what runs in the tree; without it the ids decide" },
        { "--framework", "NAME", KIND_TEXT, AT(framework), 0, "pytest or unittest" },
        { "--run", "ids|files", KIND_TEXT, AT(run), 0, "run the listed ids, or their whole files" },
        { "--image", "IMAGE", KIND_TEXT, AT(image), 0, "host, or a directory that is a root file system" },
        { "--repo-path", "PATH", KIND_TEXT, AT(repo_path), 0, "where the tree stands in the sandbox (/testbed)" },
        { "--setup", "CMD", KIND_TEXT, AT(setup_command), 0, "prepares the tree, once" },
        { "--env", "NAME=VALUE", KIND_APPEND, AT(env), 0, "a variable of the tests; may be repeated" },
        { "--timeout", "S", KIND_TEXT, AT(timeout), 0, "seconds for the command (300)" },
        { "--network", "none|open", KIND_TEXT, AT(network), 0, "network while tests run" },
        { "--patch-mode", "MODE", KIND_TEXT, AT(patch_mode), 0, "repair, strict or ladder" },
        { "--protect", "PATH", KIND_APPEND, AT(protect), 0, "one more path that is reset to base; may be repeated" },
        { "--allow-config", "PATH", KIND_APPEND, AT(allow_config), 0, "a configuration file that stays as patched; may be repeated" },
        { "--lint", "CMD", KIND_TEXT, AT(lint), 0, "a linter, run after the tests" },
        { "--diff", NULL, KIND_SWITCH, AT(diff), 0, "report the agent's changes" },
        { "--instance", "FILE", KIND_TEXT, AT(instance), 0, "a record of the SWE-bench family: JSON, a list of them, or JSON lines" },
        { "--prediction", "FILE|gold", KIND_TEXT, AT(prediction), 0, "its prediction: a list, an object by id, or JSON lines" },
        { "--id", "INSTANCE_ID", KIND_TEXT, AT(instance_id), 0, "which record, where the file holds several" },
        { "--url", "URL", KIND_TEXT, AT(url), 0, "the daemon (BRIG_URL); else the local one, else none is needed" },
        { "--quiet", NULL, KIND_SWITCH, AT(quiet), 0, "no progress" },
        { "--help", NULL, KIND_SWITCH, AT(help), 0, "this text" },
};

void score_options_init(struct score_options *o) {
        *o = (struct score_options){ .patch = BUF_INIT(SCORE_FILE_MAX), .test_patch = BUF_INIT(SCORE_FILE_MAX) };
}

void score_options_release(struct score_options *o) {
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
                char *at = (char *)o + flags[i].at;
                if (flags[i].kind == KIND_TEXT)
                        free(*(char **)at);
                else if (flags[i].kind == KIND_FILE)
                        buf_release((struct buf *)at);
                else if (flags[i].kind != KIND_SWITCH)
                        strv_free(*(char ***)at);
        }
        score_options_init(o);
}

void score_options_help(FILE *to) {
        fprintf(to, "usage: brig score --repo URL|DIR --commit SHA --patch FILE [--test-patch FILE] --fail-to-pass ID... [OPTION...]\n"
                    "       brig score --instance FILE --repo DIR --prediction FILE [OPTION...]\n\n"
                    "Scores one patch and prints the verdict. Exit status: 0 resolved, 1 any other verdict, 2 our fault, 64 usage, 130 interrupted.\n\n");
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
                char left[64];
                snprintf(left, sizeof left, "%s%s%s", flags[i].name, flags[i].value ? " " : "", flags[i].value ? flags[i].value : "");
                fprintf(to, "  %-26s %s\n", left, flags[i].doc);
        }
        fprintf(to, "  %-26s %s\n", "-o json|text", "the whole record, or a table (text)");
}

int score_read_file(const char *path, struct buf *b, struct error *e) {
        int r;
        if (strcmp(path, "-") == 0)
                r = fs_read_fd(STDIN_FILENO, b);
        else
                r = fs_read_file(AT_FDCWD, path, b);
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

static int take_list(char ***at, int argc, char **argv, int *i, struct error *e) {
        if (strv_ensure(at) < 0)
                return error_set(e, -ENOMEM, "read the options");
        for (; *i < argc && argv[*i][0] != '-'; ++*i)
                if (strv_push(at, argv[*i]) < 0)
                        return error_set(e, -ENOMEM, "read the options");
        return 0;
}

static int take_flag(struct score_options *o, const struct flag *f, int argc, char **argv, int *i, struct error *e) {
        char *at = (char *)o + f->at;
        ++*i;
        if (f->kind == KIND_SWITCH) {
                *(bool *)at = true;
                return 0;
        }
        if (f->kind == KIND_LIST)
                return take_list((char ***)at, argc, argv, i, e);
        if (*i >= argc)
                return error_say(e, -EINVAL, "%s wants %s", f->name, f->value);
        const char *value = argv[(*i)++];
        if (f->kind == KIND_TEXT)
                return set_text((char **)at, value, e);
        if (f->kind == KIND_APPEND)
                return strv_push((char ***)at, value) < 0 ? error_set(e, -ENOMEM, "read the options") : 0;
        *((bool *)((char *)o + f->given_at)) = true;
        buf_reset((struct buf *)at);
        return score_read_file(value, (struct buf *)at, e);
}

static int take_output(struct score_options *o, int argc, char **argv, int *i, struct error *e) {
        const char *value = *i + 1 < argc ? argv[*i + 1] : "";
        if (strcmp(value, "json") != 0 && strcmp(value, "text") != 0)
                return error_say(e, -EINVAL, "-o wants json or text");
        o->json = strcmp(value, "json") == 0;
        *i += 2;
        return 0;
}

/* A path on this machine must mean the same to a daemon that stands elsewhere in it. */
static int absolute(char **repo, struct error *e) {
        char full[PATH_MAX];
        if (strstr(*repo, "://") || access(*repo, F_OK) < 0)
                return 0;
        if (!realpath(*repo, full))
                return error_set(e, -errno, "find %s", *repo);
        return set_text(repo, full, e);
}

static int check(struct score_options *o, struct error *e) {
        if (o->prediction && !o->instance)
                return error_say(e, -EINVAL, "--prediction needs --instance");
        int r = o->instance ? score_instance_load(o, e) : 0;
        if (r < 0)
                return r;
        if (!o->repo)
                return error_say(e, -EINVAL, "--repo is missing");
        if (!o->has_patch)
                return error_say(e, -EINVAL, "%s is missing", o->instance ? "--prediction (or --patch)" : "--patch");
        if (!o->command && !o->framework && !o->fail_to_pass && !o->pass_to_pass)
                return error_say(e, -EINVAL, "nothing to run: give --command, --framework or ids");
        for (char **v = o->env; v && *v; v++)
                if (!strchr(*v, '=') || **v == '=')
                        return error_say(e, -EINVAL, "--env wants NAME=VALUE, not '%.100s'", *v);
        return absolute(&o->repo, e);
}

int score_options_parse(struct score_options *o, int argc, char **argv, struct error *e) {
        int r = 0;
        for (int i = 1; i < argc && r == 0;) {
                if (strcmp(argv[i], "-o") == 0) {
                        r = take_output(o, argc, argv, &i, e);
                        continue;
                }
                const struct flag *f = NULL;
                for (size_t k = 0; k < ARRAY_SIZE(flags) && !f; k++)
                        if (strcmp(flags[k].name, argv[i]) == 0)
                                f = &flags[k];
                r = f ? take_flag(o, f, argc, argv, &i, e) : error_say(e, -EINVAL, "unknown option '%.100s'; --help lists them all", argv[i]);
        }
        return r < 0 || o->help ? r : check(o, e);
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

int score_options_request(const struct score_options *o, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        json_field_text(&w, "repo_url", o->repo);
        field_optional(&w, "base_commit", o->commit);
        json_field_string(&w, "patch", buf_str(&o->patch), o->patch.len);
        json_field_string(&w, "test_patch", buf_str(&o->test_patch), o->test_patch.len);
        field_optional(&w, "test_command", o->command);
        field_optional(&w, "test_framework", o->framework);
        field_optional(&w, "run", o->run);
        field_list(&w, "fail_to_pass", o->fail_to_pass);
        field_list(&w, "pass_to_pass", o->pass_to_pass);
        field_optional(&w, "image", o->image);
        field_optional(&w, "repo_path", o->repo_path);
        field_optional(&w, "setup_command", o->setup_command);
        field_optional(&w, "lint_command", o->lint);
        field_optional(&w, "network", o->network);
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

/* Reads a command line by a verb's tables (command.h). */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "cmd/command.h"

static const struct option_row *find_row(const struct command *c, const char *name) {
        for (size_t i = 0; i < c->n_options; i++)
                if (strcmp(c->options[i].name, name) == 0)
                        return &c->options[i];
        for (size_t i = 0; i < c->n_common; i++)
                if (strcmp(c->common[i].name, name) == 0)
                        return &c->common[i];
        return NULL;
}

static int no_memory(struct error *e) {
        return error_set(e, -ENOMEM, "read the options");
}

static int take_text(char **at, const char *value, struct error *e) {
        char *copy = strdup(value);
        if (!copy)
                return no_memory(e);
        free(*at);
        *at = copy;
        return 0;
}

static int take_file(const struct option_row *o, void *target, const char *path, struct error *e) {
        struct buf *b = (struct buf *)((char *)target + o->at);
        *(bool *)((char *)target + o->given_at) = true;
        buf_reset(b);
        b->limit = OPTION_FILE_MAX;
        int r = strcmp(path, "-") == 0 ? fs_read_fd(STDIN_FILENO, b) : fs_read_file(AT_FDCWD, path, b);
        return r < 0 ? error_set(e, r, "read %s", path) : 0;
}

static int take_list(char ***at, int argc, char **argv, int *i, struct error *e) {
        if (strv_ensure(at) < 0)
                return no_memory(e);
        for (; *i < argc && argv[*i][0] != '-'; ++*i)
                if (strv_push(at, argv[*i]) < 0)
                        return no_memory(e);
        return 0;
}

static int take_value(const struct option_row *o, void *target, const char *value, struct error *e) {
        char *at = (char *)target + o->at;
        switch (o->kind) {
        case OPTION_TEXT:
                return take_text((char **)at, value, e);
        case OPTION_APPEND:
                return strv_push((char ***)at, value) < 0 ? no_memory(e) : 0;
        case OPTION_FILE:
                return take_file(o, target, value, e);
        case OPTION_OUTPUT:
                if (strcmp(value, "json") != 0 && strcmp(value, "text") != 0)
                        return error_say(e, -EINVAL, "%s wants json or text", o->name);
                *(bool *)at = strcmp(value, "json") == 0;
                return 0;
        default:
                ASSERT(false);
                return -EINVAL;
        }
}

/* argv[*i] is an option: takes it, and what belongs to it. "--name=value" and "--name value" are the same. */
static int take_option(const struct command *c, void *target, int argc, char **argv, int *i, struct error *e) {
        char *word = argv[(*i)++], *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        if (equals)
                *equals = 0;
        const struct option_row *o = find_row(c, word);
        if (!o)
                return error_say(e, -EINVAL, "unknown option '%.100s'; --help lists them all", word);
        if (o->kind == OPTION_SWITCH) {
                if (equals)
                        return error_say(e, -EINVAL, "%s takes no value", o->name);
                *(bool *)((char *)target + o->at) = true;
                return 0;
        }
        if (o->kind == OPTION_LIST && !equals)
                return take_list((char ***)((char *)target + o->at), argc, argv, i, e);
        if (o->kind == OPTION_LIST)
                return strv_push((char ***)((char *)target + o->at), equals + 1) < 0 ? no_memory(e) : 0;
        if (!equals && *i >= argc)
                return error_say(e, -EINVAL, "%s wants %s", o->name, o->value);
        return take_value(o, target, equals ? equals + 1 : argv[(*i)++], e);
}

int options_parse(const struct command *c, void *target, int argc, char **argv, char ***ret, int *ret_argc, bool *ret_help, struct error *e) {
        int n = 0, i = 1;              /* arguments are gathered at argv[0..n): what they overwrite has been read */
        bool options = true;
        *ret_help = false;
        while (i < argc) {
                char *word = argv[i];
                if (options && strcmp(word, "--help") == 0) {
                        *ret_help = true;
                        return 0;
                }
                if (options && strcmp(word, "--") == 0) {
                        options = false;
                        i++;
                } else if (options && word[0] == '-' && word[1]) {
                        int r = take_option(c, target, argc, argv, &i, e);
                        if (r < 0)
                                return r;
                } else {
                        argv[n++] = word;
                        i++;
                        if (c->stops && n == 1)
                                options = i < argc && strcmp(argv[i], "--") == 0;      /* "exec ID -- cmd": that -- is ours */
                }
        }
        *ret = argv;
        *ret_argc = n;
        return 0;
}

void option_rows_release(const struct option_row *rows, size_t n, void *target) {
        for (size_t i = 0; i < n; i++) {
                char *at = (char *)target + rows[i].at;
                if (rows[i].kind == OPTION_TEXT) {
                        free(*(char **)at);
                        *(char **)at = NULL;
                } else if (rows[i].kind == OPTION_FILE)
                        buf_release((struct buf *)at);
                else if (rows[i].kind == OPTION_APPEND || rows[i].kind == OPTION_LIST) {
                        strv_free(*(char ***)at);
                        *(char ***)at = NULL;
                }
        }
}

void options_release(const struct command *c, void *target) {
        option_rows_release(c->options, c->n_options, target);
        option_rows_release(c->common, c->n_common, target);
}

#include <string.h>

#include "cmd/command.h"

#define DOCUMENT_MAX (1u << 20)        /* bytes of help, a manual page, completions */

const struct command *command_find(int argc, char **argv, int *ret_words) {
        char two[128];
        if (argc > 1 && snprintf(two, sizeof two, "%s %s", argv[0], argv[1]) < (int)sizeof two)
                for (size_t i = 0; commands[i]; i++)
                        if (strcmp(commands[i]->name, two) == 0) {
                                *ret_words = 2;
                                return commands[i];
                        }
        for (size_t i = 0; argc > 0 && commands[i]; i++)
                if (strcmp(commands[i]->name, argv[0]) == 0) {
                        *ret_words = 1;
                        return commands[i];
                }
        return NULL;
}

int command_fail(const struct command *c, int r, const struct error *e) {
        fprintf(stderr, "brig %s: %s\n", c->name, e->text);
        return r == -EINTR ? EXIT_INTERRUPTED : r == -EINVAL ? EXIT_USAGE : EXIT_OUR_FAULT;
}

static int print(const struct command *c, int r, const struct buf *b) {
        if (r == 0 && (fwrite(buf_str(b), 1, b->len, stdout) != b->len || fflush(stdout) != 0))
                r = -EIO;
        if (r < 0)
                fprintf(stderr, "brig %s: cannot write: %s\n", c->name, strerrordesc_np(-r));
        return r < 0 ? EXIT_OUR_FAULT : 0;
}

bool command_begin(const struct command *c, void *target, int argc, char **argv, char ***ret_arguments, int *ret_n, int *ret_status) {
        struct error e = { 0 };
        bool help;
        int r = options_parse(c, target, argc, argv, ret_arguments, ret_n, &help, &e);
        if (r < 0) {
                /* A file that cannot be read was named wrongly: that is usage too. */
                fprintf(stderr, "brig %s: %s\n", c->name, e.text);
                *ret_status = r == -ENOMEM ? EXIT_OUR_FAULT : EXIT_USAGE;
                return false;
        }
        if (!help)
                return true;
        _cleanup_buf_ struct buf b = BUF_INIT(DOCUMENT_MAX);
        *ret_status = print(c, command_help(c, &b), &b);
        return false;
}

int command_print(const struct command *c, int (*document)(struct buf *ret)) {
        _cleanup_buf_ struct buf b = BUF_INIT(DOCUMENT_MAX);
        return print(c, document(&b), &b);
}

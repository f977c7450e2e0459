/* brig completion: what a shell needs to complete brig's command lines. brig manual: pages for man(1), for whoever installs them. */
#include <string.h>

#include "cmd/verbs.h"

static const struct { const char *shell; int (*document)(struct buf *ret); } shells[] = {
        { "bash", commands_complete_bash }, { "zsh", commands_complete_zsh }, { "fish", commands_complete_fish },
};

static int run_completion(const struct command *c, int argc, char **argv) {
        char **arguments;
        int n, status;
        if (!command_begin(c, NULL, argc, argv, &arguments, &n, &status))
                return status;
        for (size_t i = 0; n == 1 && i < ARRAY_SIZE(shells); i++)
                if (strcmp(arguments[0], shells[i].shell) == 0)
                        return command_print(c, shells[i].document);
        struct error e;
        return command_fail(c, error_say(&e, -EINVAL, "wants bash, zsh or fish"), &e);
}

const struct command cmd_completion = {
        .name = "completion", .synopsis = "bash|zsh|fish", .doc = "print a shell's completions",
        .text = "For bash: source <(brig completion bash). For fish: brig completion fish > ~/.config/fish/completions/brig.fish.\n"
                "For zsh: brig completion zsh > _brig, in a directory of fpath.",
        .status = "0, or 64 for usage", .run = run_completion,
};

static const struct command *asked;
static int document(struct buf *ret) { return asked ? command_manual(asked, ret) : commands_manual(ret); }

static int run_manual(const struct command *c, int argc, char **argv) {
        char **arguments;
        int n, status, words = 0;
        if (!command_begin(c, NULL, argc, argv, &arguments, &n, &status))
                return status;
        asked = command_find(n, arguments, &words);
        if (n != words || (asked && asked->hidden)) {
                struct error e;
                return command_fail(c, error_say(&e, -EINVAL, "there is no verb '%.100s'", arguments[0]), &e);
        }
        return command_print(c, document);
}

const struct command cmd_manual = {
        .name = "manual", .synopsis = "[VERB]", .doc = "print a manual page", .text = "brig manual score | man -l - shows it.",
        .status = "0, or 64 for usage", .run = run_manual,
};

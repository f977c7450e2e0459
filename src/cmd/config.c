/* brig config: the settings in effect, or the reference page. */
#include <string.h>

#include "cmd/verbs.h"
#include "engine/settings.h"

extern char **environ;

static int load(struct engine_config *cfg, int argc, char **argv, enum settings_format *format, struct error *e) {
        int r = settings_from_env(cfg, environ, e);
        for (int i = 1; r >= 0 && i < argc;) {
                if (strcmp(argv[i], "--markdown") == 0) {
                        *format = SETTINGS_MARKDOWN;
                        i++;
                        continue;
                }
                r = settings_flag(cfg, argc, argv, &i, e);
                if (r == 0)
                        return error_say(e, -EINVAL, "unknown option '%.100s'; --help lists them all", argv[i]);
        }
        return r < 0 ? r : settings_check(cfg, e);
}

static int run(const struct command *c, int argc, char **argv) {
        if (argc > 1 && strcmp(argv[1], "--help") == 0)
                return command_begin(c, NULL, argc, argv, &argv, &argc, &argc) ? 0 : argc;
        struct engine_config cfg;
        struct error e = { 0 };
        enum settings_format format = SETTINGS_TEXT;
        settings_init(&cfg);
        int r = load(&cfg, argc, argv, &format, &e);
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        if (r >= 0)
                r = settings_document(&cfg, format, &b);
        if (r >= 0)
                fputs(buf_str(&b), stdout);
        else
                fprintf(stderr, "brig config: %s\n", e.text);
        settings_release(&cfg);
        return r < 0 ? EXIT_USAGE : 0;
}

static const struct option_row options[] = {
        { "--markdown", NULL, OPTION_SWITCH, 0, 0, COMPLETE_NONE, "the reference page" },
};

const struct command cmd_config = {
        .name = "config", .synopsis = "[--markdown] [SETTING...]", .doc = "show the settings in effect",
        .text = "They are those that brig serve would use with this environment and these flags.",
        .status = "0, or 64 for a setting that is wrong", .options = options, .n_options = ARRAY_SIZE(options), .settings = settings_rows, .run = run,
};

/* brig doctor: what this machine's kernel offers, and what Brig loses where it does not. */
#include <string.h>

#include "cmd/verbs.h"
#include "sandbox/facilities.h"

#define TABLE_MAX (64 * 1024)

struct target { bool json; };

static int run(const struct command *c, int argc, char **argv) {
        struct target t = { 0 };
        char **arguments;
        int n, status;
        struct error e;
        if (!command_begin(c, &t, argc, argv, &arguments, &n, &status))
                return status;
        if (n)
                return command_fail(c, error_say(&e, -EINVAL, "unknown argument '%.100s'", arguments[0]), &e);
        const struct facilities *f = facilities_get();
        _cleanup_buf_ struct buf b = BUF_INIT(TABLE_MAX);
        int r = facilities_print(f, t.json, &b);
        if (r < 0) {
                fprintf(stderr, "brig doctor: %s\n", strerrordesc_np(-r));
                return 1;
        }
        fputs(buf_str(&b), stdout);
        return facilities_sufficient(f) ? 0 : 1;
}

static const struct option_row options[] = {
        { "-o", "json|text", OPTION_OUTPUT, offsetof(struct target, json), 0, COMPLETE_NONE, "one document, or a table (text)" },
};

const struct command cmd_doctor = {
        .name = "doctor", .synopsis = "[-o json]", .doc = "say what this machine's kernel offers and lacks",
        .text = "Prints one row a facility: ok, degraded or missing, and what is lost. Run it as root: what only root can do cannot be\n"
                "tried otherwise.",
        .status = "0 if sandboxes can run here, 1 if something required is missing, 64 usage",
        .options = options, .n_options = ARRAY_SIZE(options), .run = run,
};

/* The program: picks the verb and hands over. One file per verb (src/cmd/). */
#include <string.h>

#include "base/macros.h"
#include "cmd/verbs.h"

struct verb {
        const char *name;
        int (*run)(int argc, char **argv);
        const char *doc;           /* NULL: hidden, for Brig's own use */
};

static const struct verb verbs[] = {
        { "serve", cmd_serve, "run the daemon" },
        { "score", cmd_score, "score one patch" },
        { "config", cmd_config, "show the settings in effect" },
        { "doctor", cmd_doctor, "say what this machine's kernel offers and lacks" },
        { "spawner", cmd_spawner, NULL },
};

static int usage(FILE *to, int status) {
        fprintf(to, "usage: brig VERB [OPTION...]\n\n");
        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
                if (verbs[i].doc)
                        fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].doc);
        fprintf(to, "\nbrig VERB --help says more; brig --version prints the version.\n");
        return status;
}

int main(int argc, char **argv) {
        if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
                printf("brig %s\n", BRIG_VERSION);
                return 0;
        }
        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
                return usage(stdout, 0);
        for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++)
                if (strcmp(argv[1], verbs[i].name) == 0)
                        return verbs[i].run(argc - 1, argv + 1);
        if (argc > 1)
                fprintf(stderr, "brig: there is no verb '%.100s'\n", argv[1]);
        return usage(stderr, EXIT_USAGE);
}

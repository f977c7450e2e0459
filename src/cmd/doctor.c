/* brig doctor: what this machine's kernel offers, and what Brig loses where it does not. */
#include <string.h>

#include "cmd/verbs.h"
#include "sandbox/facilities.h"

#define TABLE_MAX (64 * 1024)

static int usage(FILE *to, int status) {
        fprintf(to, "usage: brig doctor [-o json]\n\n"
                    "Prints one row a facility: ok, degraded or missing, and what is lost. Run it as root: what only root can do\n"
                    "cannot be tried otherwise. Exit status: 0 if sandboxes can run here, 1 if something required is missing.\n");
        return status;
}

int cmd_doctor(int argc, char **argv) {
        bool json = false;
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--help") == 0)
                        return usage(stdout, 0);
                if (strcmp(argv[i], "-o") == 0 && i + 1 < argc && strcmp(argv[i + 1], "json") == 0) {
                        json = true;
                        i++;
                } else {
                        fprintf(stderr, "brig doctor: unknown option '%.100s'\n", argv[i]);
                        return usage(stderr, EXIT_USAGE);
                }
        }
        const struct facilities *f = facilities_get();
        _cleanup_buf_ struct buf b = BUF_INIT(TABLE_MAX);
        int r = facilities_print(f, json, &b);
        if (r < 0) {
                fprintf(stderr, "brig doctor: %s\n", strerror(-r));
                return 1;
        }
        fputs(buf_str(&b), stdout);
        return facilities_sufficient(f) ? 0 : 1;
}

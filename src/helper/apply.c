#include <string.h>

#include "helper/verbs.h"
#include "score/apply_job.h"
#include "score/apply_wire.h"

int verb_recheck(int argc, char **argv) {
        const char *rule = argc == 2 ? argv[1] : "";
        if (argc > 2 || (argc == 2 && strcmp(rule, RECHECK_NO_BYTECODE) != 0 && strcmp(rule, RECHECK_LAUNCHED) != 0))
                return 64;
        return recheck_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }, rule);
}

int verb_apply(int argc, char **argv) {
        return argc == 1 ? apply_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }) : 64;
}

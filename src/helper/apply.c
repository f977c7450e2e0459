#include <string.h>

#include "helper/verbs.h"
#include "score/apply_job.h"
#include "score/apply_wire.h"

int verb_recheck(int argc, char **argv) {
        bool no_bytecode = argc == 2 && strcmp(argv[1], RECHECK_NO_BYTECODE) == 0;
        if (argc != 1 && !no_bytecode)
                return 64;
        return recheck_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }, no_bytecode);
}

int verb_apply(int argc, char **argv) {
        return argc == 1 ? apply_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }) : 64;
}

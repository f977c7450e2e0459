#include "helper/verbs.h"
#include "score/apply_job.h"

int verb_recheck(int argc, char **argv) {
        return argc == 1 ? recheck_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }) : 64;
}

int verb_apply(int argc, char **argv) {
        return argc == 1 ? apply_verb(HELPER_ROOT_FD, (const struct apply_base){ HELPER_BASE_FD, HELPER_BASE_USR_FD, HELPER_BASE_OPT_FD }) : 64;
}

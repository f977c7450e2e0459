#include "helper/verbs.h"
#include "score/apply_job.h"

int verb_apply(int argc, char **argv) {
        return argc == 1 ? apply_verb(HELPER_ROOT_FD, HELPER_BASE_FD) : 64;
}

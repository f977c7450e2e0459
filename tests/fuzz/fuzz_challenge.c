/* Any bytes as a registry's challenge. */
#include <string.h>

#include "fuzz.h"
#include "registry/challenge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct challenge c;
        if (challenge_parse((const char *)data, size, &c) == 0) {
                ASSERT(strlen(c.realm) < CHALLENGE_VALUE_MAX && strlen(c.service) < CHALLENGE_VALUE_MAX && strlen(c.scope) < CHALLENGE_VALUE_MAX);
                ASSERT(c.kind == CHALLENGE_BASIC || c.realm[0]);
        }
        return 0;
}

/* Operations on layers and mirrors. */
#include "sandbox/spawner.h"

int op_layer(struct spawn *sp, struct message *m, struct fault *f) {
        return fault_set(f, "layer operation", -EOPNOTSUPP);
}

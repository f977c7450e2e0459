/* A request to create a sandbox, and the exec behind it, as the spawner decodes and checks them. */
#include <string.h>

#include "fuzz.h"
#include "sandbox/spawner.h"
#include "sandbox/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct message *m = calloc(1, sizeof *m);
        struct sandbox_spec spec;
        struct exec_request exec;
        struct error e;
        bool direct;
        m->body = malloc(size + 1);
        memcpy(m->body, data, size);
        m->body_len = size;
        m->wire = (struct wire){ .at = m->body, .left = size };
        if (sandbox_spec_decode(m, &spec, &direct) == 0) {
                if (sandbox_spec_check(&spec, &e) == 0)
                        ASSERT(spec.profile < PROFILE_MAX && spec.upper < UPPER_MAX && spec.network < NETWORK_MAX && spec.image);
                sandbox_spec_release(&spec);
                if (exec_request_decode(m, &exec) == 0) {
                        ASSERT(exec.argv && exec.argv[0] && exec.n_fds >= 3 && (!exec.cwd || exec.cwd[0] == '/'));
                        exec_request_release(&exec);
                }
        }
        message_free(m);
        return 0;
}

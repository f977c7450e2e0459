/* Runs a command in a fresh session: example_session URL IMAGE COMMAND
 *
 * Exit status: the command's, or 125 when there was none. */
#include <brig/brig.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
        if (argc != 4) {
                fprintf(stderr, "usage: %s URL IMAGE COMMAND\n", argv[0]);
                return 64;
        }
        struct brig_client *c = NULL;
        struct brig_error e;
        struct brig_exec_result r;
        char spec[4096], *id = NULL;
        int status = 125;
        /* A name of an image needs no escapes; anything else should be written by a JSON library. */
        snprintf(spec, sizeof spec, "{\"image\":\"%s\"}", argv[2]);
        if (brig_client_new(argv[1], NULL, &c, &e) < 0 || brig_start_session(c, spec, NULL, &id, &e) < 0 ||
            brig_session_exec(c, id, argv[3], NULL, &r, &e) < 0)
                fprintf(stderr, "%s\n", e.message);
        else {
                fputs(r.out, stdout);
                fputs(r.err, stderr);
                status = r.exit_code;
                brig_exec_result_release(&r);
        }
        if (id)
                brig_delete_session(c, id, NULL);
        free(id);
        brig_client_free(c);
        return status;
}

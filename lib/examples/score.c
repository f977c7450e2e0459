/* Scores one task: example_score URL SPEC.json
 *
 * Exit status: 0 resolved, 1 any other verdict, 2 no verdict. */
#include <brig/brig.h>
#include <stdio.h>
#include <stdlib.h>

static char *read_file(const char *path) {
        FILE *f = fopen(path, "rbe");
        char *text = NULL;
        long n = -1;
        if (f && fseek(f, 0, SEEK_END) == 0)
                n = ftell(f);
        if (n >= 0 && (text = malloc((size_t)n + 1)) != NULL) {
                rewind(f);
                text[fread(text, 1, (size_t)n, f)] = 0;
        }
        if (f)
                fclose(f);
        return text;
}

int main(int argc, char **argv) {
        if (argc != 3) {
                fprintf(stderr, "usage: %s URL SPEC.json\n", argv[0]);
                return 64;
        }
        struct brig_client *c;
        struct brig_error e;
        struct brig_task_result r;
        char *spec = read_file(argv[2]);
        if (!spec) {
                perror(argv[2]);
                return 2;
        }
        if (brig_client_new(argv[1], NULL, &c, &e) < 0) {
                fprintf(stderr, "%s\n", e.message);
                free(spec);
                return 2;
        }
        int code = brig_run_task(c, spec, NULL, &r, &e);
        free(spec);
        brig_client_free(c);
        if (code < 0) {
                fprintf(stderr, "%s\n", e.message);
                return 2;
        }
        printf("%s: exit code %d, %ld passed, %ld failed\n", r.outcome, r.exit_code, r.tests_passed, r.tests_failed);
        int status = r.resolved ? 0 : 1;
        brig_task_result_release(&r);
        return status;
}

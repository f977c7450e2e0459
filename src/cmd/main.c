/* The program: picks the verb and hands over. One file per verb (src/cmd/). */
#include <string.h>

#include "base/macros.h"

int main(int argc, char **argv) {
        if (argc > 1 && strcmp(argv[1], "--version") == 0) {
                printf("brig %s\n", BRIG_VERSION);
                return 0;
        }
        fprintf(stderr, "usage: brig VERB [OPTION...]\n");
        return 64;
}

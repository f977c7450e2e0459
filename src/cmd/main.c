/* The program: picks the verb and hands over. One file per verb (src/cmd/). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cmd/command.h"

static bool is_group(const char *word) {
        size_t n = strlen(word);
        for (size_t i = 0; commands[i]; i++)
                if (!commands[i]->hidden && strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ')
                        return true;
        return false;
}

static int usage(FILE *to, const char *group, int status) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        return commands_help(group, &b) < 0 || fputs(buf_str(&b), to) < 0 ? EXIT_OUR_FAULT : status;
}

static int help(int argc, char **argv) {
        int words;
        const struct command *c = command_find(argc, argv, &words);
        if (!c)
                return usage(stdout, argc > 0 && is_group(argv[0]) ? argv[0] : NULL, 0);
        char *ask[] = { argv[0], (char[]){ "--help" }, NULL };
        return c->run(c, 2, ask);
}

/* A standard stream that we were started without would be the number of the next descriptor: a socket of ours, say, that is then written to. */
static void open_streams(void) {
        for (int fd = 0; fd <= 2; fd++)
                if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
                        _exit(EXIT_OUR_FAULT);
}

int main(int argc, char **argv) {
        int words;
        open_streams();
        if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
                printf("brig %s\n", BRIG_VERSION);
                return 0;
        }
        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
                return help(argc - 2, argv + 2);
        const struct command *c = argc > 1 ? command_find(argc - 1, argv + 1, &words) : NULL;
        if (c)
                return c->run(c, argc - words, argv + words);
        if (argc > 1 && is_group(argv[1])) {
                if (argc > 2 && strcmp(argv[2], "--help") == 0)
                        return usage(stdout, argv[1], 0);
                if (argc > 2)
                        fprintf(stderr, "brig %s: there is no verb '%.100s'\n", argv[1], argv[2]);
                return usage(stderr, argv[1], EXIT_USAGE);
        }
        if (argc > 1)
                fprintf(stderr, "brig: there is no verb '%.100s'\n", argv[1]);
        return usage(stderr, NULL, EXIT_USAGE);
}

/* Any bytes as a run's output, and as a test command: cleaning gives text without escapes, every parser reads it, the splitter's
 * words are no longer than the text. */
#include "score/command.h"
#include "fuzz.h"

static void parse_all(const char *text) {
        const struct framework *f;
        for (size_t i = 0; (f = framework_at(i)); i++) {
                struct test_results t = {0};
                int r = f->parse(text, &(struct sink){.tests = &t});
                ASSERT(r == 0 || r == -ENOSPC);
                for (size_t k = 0; k < t.n; k++) {
                        char *form = framework_canonical(f, t.items[k].id);
                        ASSERT(form && t.items[k].id[0]);
                        free(form);
                }
                test_results_release(&t);
        }
        framework_of_output(text);
        framework_of_command(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char *clean = framework_clean((const char *)data, size);
        ASSERT(clean && !strchr(clean, '\x1b'));
        parse_all(clean);
        struct redirect redirects[COMMAND_REDIRECTS_MAX];
        char **words, *with;
        const struct framework *f;
        for (size_t i = 0; (f = framework_at(i)); i++)
                if (command_with_options(clean, f, &with) > 0) {
                        ASSERT(strlen(with) > strlen(clean) && strstr(with, f->options));
                        free(with);
                }
        size_t n = 0, length = 0;
        if (command_split(clean, &words, redirects, &n) == 0) {
                for (size_t i = 0; words[i]; i++)
                        length += strlen(words[i]);
                ASSERT(length <= strlen(clean));
                for (size_t i = 0; i < n; i++)
                        free(redirects[i].target);
                strv_free(words);
        }
        free(clean);
        return 0;
}

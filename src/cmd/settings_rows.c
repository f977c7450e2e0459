#include <string.h>

#include "cmd/command.h"
#include "engine/settings.h"

#define ROWS_MAX 128

static struct option_row rows[ROWS_MAX];
static size_t n_rows;

static int add(const char *flag, const char *value, const char *doc, void *user) {
        char *name;
        ASSERT(n_rows < ROWS_MAX);
        if (asprintf(&name, "--%s", flag) < 0)
                return -ENOMEM;
        rows[n_rows++] = (struct option_row){ .name = name, .value = value, .kind = value ? OPTION_TEXT : OPTION_SWITCH, .doc = doc };
        return 0;
}

const struct option_row *settings_rows(size_t *ret_n) {
        if (n_rows == 0)
                settings_flags(add, NULL);         /* without memory a row is missing from a help text */
        *ret_n = n_rows;
        return rows;
}

/* The table of settings, private to settings*.c. */
#pragma once
#include "engine/settings.h"

enum setting_type { SETTING_TEXT, SETTING_PATH, SETTING_PATHS, SETTING_NUMBER, SETTING_BYTES, SETTING_BOOL, SETTING_CHOICE };

struct setting {
        const char *section, *key;         /* BRIG_<SECTION>_<KEY> */
        const char *flag;                  /* NULL: by variable only (a secret has no place in a list of processes) */
        const char *alias[3];              /* more variables, in order of precedence */
        enum setting_type type;
        size_t offset;                     /* in struct engine_config */
        const char *unit;                  /* for people; "" without */
        const char *fallback;              /* the default, as text; NULL = absent */
        uint64_t min, max;                 /* NUMBER, BYTES */
        const char *const *choices;        /* CHOICE: NULL-terminated */
        bool secret;
        const char *doc;                   /* one sentence, or a few */
};

extern const struct setting settings_table[];
extern const size_t settings_count;

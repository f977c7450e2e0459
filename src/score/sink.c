/* Spellings of tests: see sink.h. */
#include "score/sink.h"

#include <stdio.h>
#include <string.h>

int sink_put(struct sink *s, const char *const *spellings, enum test_status st) {
        bool found = false;
        int r = ++s->n_puts > SINK_PUTS_MAX ? -ENOSPC : 0;
        for (size_t i = 0; s->wanted && r == 0 && spellings[i]; i++) {
                bool again = false;
                for (size_t k = 0; k < i; k++)
                        again |= strcmp(spellings[k], spellings[i]) == 0;
                /* `wanted` holds every id as passed: what it does not hold is missing. */
                if (again || test_results_get(s->wanted, spellings[i]) == TEST_MISSING)
                        continue;
                found = true;
                r = test_results_put(s->tests, spellings[i], st);
        }
        return r < 0 || found || !spellings[0] || !spellings[0][0] ? r : test_results_put(s->tests, spellings[0], st);
}

/* Appends what fits. */
static void add(char *to, size_t *at, const char *text) {
        size_t n = strlen(text), left = SINK_NAME_MAX - 1 - *at;
        n = n < left ? n : left;
        memcpy(to + *at, text, n);
        *at += n;
        to[*at] = 0;
}

static void spell(const struct test_name *name, enum name_form form, char *to) {
        bool path = form == NAME_PATH || form == NAME_FILE_PATH;
        size_t at = 0;
        to[0] = 0;
        if (name->file && (form == NAME_FILE_PATH || form == NAME_FILE_FULL)) {
                add(to, &at, name->file);
                add(to, &at, path ? " > " : " | ");
        }
        for (size_t i = 0; i < name->n_groups && form != NAME_TITLE; i++) {
                add(to, &at, name->groups[i]);
                add(to, &at, path ? " > " : " ");
        }
        add(to, &at, name->title);
}

int sink_put_name(struct sink *s, const struct test_name *name, enum name_form own, enum test_status st) {
        char space[NAME_FORM_MAX][SINK_NAME_MAX];
        const char *spellings[NAME_FORM_MAX + 1] = {space[0]};
        size_t n = 1;
        spell(name, own, space[0]);
        for (enum name_form form = 0; s->wanted && s->wanted->n > 0 && form < NAME_FORM_MAX; form++) {
                if (form == own)
                        continue;
                spell(name, form, space[n]);
                spellings[n] = space[n];
                n++;
        }
        return sink_put(s, spellings, st);
}

int sink_put_method(struct sink *s, const char *class, const char *method, enum test_status st) {
        enum { N = 7 };
        char space[N][SINK_NAME_MAX];
        const char *dot = strrchr(class, '.'), *simple = dot ? dot + 1 : class;
        const struct { const char *a, *between, *b, *end; } forms[N] = {
                {class, ".", method, ""}, {class, "#", method, ""}, {class, ":", method, ""}, {class, " > ", method, ""},
                {simple, ".", method, ""}, {method, "(", class, ")"}, {"", "", method, ""},
        };
        const char *spellings[N + 1] = {NULL};
        size_t first = class[0] ? 0 : N - 1, n = 0;
        for (size_t i = first; i < N; i++) {
                char *to = space[i];
                size_t at = 0;
                add(to, &at, forms[i].a);
                add(to, &at, forms[i].between);
                add(to, &at, forms[i].b);
                add(to, &at, forms[i].end);
                spellings[n++] = to;
        }
        return sink_put(s, spellings, st);
}

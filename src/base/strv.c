#include "base/strv.h"

char **strv_free(char **v) {
        if (v)
                for (char **p = v; *p; p++)
                        free(*p);
        free(v);
        return NULL;
}

size_t strv_len(const char *const *v) {
        size_t n = 0;
        if (v)
                while (v[n])
                        n++;
        return n;
}

/* Slots, with the terminator, that a list of n strings has: a power of two, at least 4. */
static size_t slots_of(size_t n) {
        size_t slots = 4;
        while (slots < n + 1)
                slots *= 2;
        return slots;
}

int strv_append_take(char ***v, size_t *count, char *s) {
        size_t n = *count;
        if (!s)
                return -ENOMEM;
        if (!*v || slots_of(n + 1) != slots_of(n)) {
                char **grown = realloc(*v, slots_of(n + 1) * sizeof **v);
                if (!grown) {
                        free(s);
                        return -ENOMEM;
                }
                *v = grown;
        }
        (*v)[n] = s;
        (*v)[n + 1] = NULL;
        *count = n + 1;
        return 0;
}

int strv_push_take(char ***v, char *s) {
        size_t n = strv_len((const char *const *)*v);
        return strv_append_take(v, &n, s);
}

int strv_push(char ***v, const char *s) {
        return strv_push_take(v, strdup(s));
}

int strv_push_n(char ***v, const char *s, size_t n) {
        return strv_push_take(v, strndup(s, n));
}

int strv_ensure(char ***v) {
        if (*v)
                return 0;
        *v = calloc(slots_of(0), sizeof **v);
        return *v ? 0 : -ENOMEM;
}

bool strv_contains(const char *const *v, const char *s) {
        for (; v && *v; v++)
                if (strcmp(*v, s) == 0)
                        return true;
        return false;
}

int strv_merge_env(char ***env, const char *const *more) {
        int r = 0;
        for (; r == 0 && more && *more; more++) {
                size_t len = strcspn(*more, "=") + 1;
                char **at = *env;
                while (at && *at && strncmp(*at, *more, len) != 0)
                        at++;
                if (!at || !*at) {
                        r = strv_push(env, *more);
                        continue;
                }
                char *copy = strdup(*more);
                if (!copy)
                        return -ENOMEM;
                free(*at);
                *at = copy;
        }
        return r;
}

static int by_bytes(const void *a, const void *b) {
        return strcmp(*(char *const *)a, *(char *const *)b);
}

void strv_sort(char **v) {
        size_t n = strv_len((const char *const *)v);
        if (n > 1)
                qsort(v, n, sizeof *v, by_bytes);
}

#include <string.h>

#include "score/record.h"

static const char *const integrity_names[] = { "clean", "suspect", "violated" };
STRING_TABLE(integrity, integrity_names, INTEGRITY_MAX)

static int copy_cut(const char *s, char **ret) {
        *ret = s ? strndup(s, FINDING_TEXT_MAX) : NULL;
        return s && !*ret ? -ENOMEM : 0;
}

static void finding_release(struct finding *f) {
        free(f->kind);
        free(f->path);
        free(f->detail);
}

int findings_add(struct findings *f, enum integrity weight, const char *kind, const char *path, const char *detail) {
        /* The weight counts even when the entry finds no room: a flood must not hide a violation. */
        f->verdict = MAX2(f->verdict, weight);
        if (f->n >= FINDINGS_MAX)
                return 0;
        if (f->n == f->alloc) {
                size_t grown = f->alloc ? f->alloc * 2 : 8;
                struct finding *p = realloc(f->items, grown * sizeof *p);
                if (!p)
                        return -ENOMEM;
                f->items = p;
                f->alloc = grown;
        }
        struct finding new = { 0 };
        if (copy_cut(kind, &new.kind) < 0 || copy_cut(path, &new.path) < 0 || copy_cut(detail, &new.detail) < 0) {
                finding_release(&new);
                return -ENOMEM;
        }
        f->items[f->n++] = new;
        return 0;
}

void findings_release(struct findings *f) {
        if (!f)
                return;
        for (size_t i = 0; i < f->n; i++)
                finding_release(&f->items[i]);
        free(f->items);
        *f = (struct findings){ 0 };
}

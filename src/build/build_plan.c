/* Which stages there are, what each stands on, and which are needed. */
#include <string.h>

#include "base/strv.h"
#include "build/build_private.h"
#include "registry/manifest.h"

int build_find_stage(const struct build *b, const char *name, size_t before) {
        for (size_t i = before; i-- > 0;)        /* the nearest of a name */
                if (b->stages[i].name && strcasecmp(b->stages[i].name, name) == 0)
                        return (int)i;
        if (*name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 4) {
                size_t n = strtoul(name, NULL, 10);
                return n < before ? (int)n : -1;
        }
        return -1;
}

/* The variables that every Dockerfile may ask for. */
static int usual_arguments(struct build *b) {
        static const char *const names[] = { "TARGETPLATFORM", "BUILDPLATFORM", "TARGETARCH", "BUILDARCH", "TARGETOS", "BUILDOS" };
        int r = 0;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
                char *entry;
                bool platform = strstr(names[i], "PLATFORM"), arch = strstr(names[i], "ARCH");
                if (asprintf(&entry, "%s=%s%s", names[i], arch ? "" : platform ? "linux/" : "linux", arch || platform ? manifest_architecture : "") < 0)
                        return -ENOMEM;
                r = strv_push_take(&b->global.args, entry);
        }
        return r;
}

static bool stage_name_ok(const char *s) {
        size_t n = strlen(s);
        if (n == 0 || n > 128 || !((s[0] >= 'a' && s[0] <= 'z') || (s[0] >= 'A' && s[0] <= 'Z')))
                return false;
        for (size_t i = 0; i < n; i++)
                if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= 'A' && s[i] <= 'Z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-' && s[i] != '_' && s[i] != '.')
                        return false;
        return true;
}

static int check_platform(struct build *b, const struct instruction *i, struct error *e) {
        const char *flag = instruction_flag(i, "platform");
        char here[64];
        char *platform = NULL;
        if (!flag)
                return 0;
        int r = stage_expand(&b->global, i, flag, true, &platform, e);
        snprintf(here, sizeof here, "linux/%s", manifest_architecture);
        if (r == 0 && strcmp(platform, here) != 0 && strcmp(platform, manifest_architecture) != 0)
                r = instruction_fault(i, e, "FROM --platform=%.64s: this machine builds for %s only", platform, here);
        free(platform);
        return r;
}

static int add_stage(struct build *b, size_t at, struct error *e) {
        const struct instruction *i = &b->file.instructions[at];
        struct build_stage *s = &b->stages[b->n_stages];
        *s = (struct build_stage){ .from = at, .base_stage = -1 };
        int r = check_platform(b, i, e);
        r = r ? r : stage_expand(&b->global, i, i->words[0], true, &s->base, e);
        if (r < 0)
                return r;
        s->base_stage = build_find_stage(b, s->base, b->n_stages);
        if (s->base_stage >= 0 && s->base[0] >= '0' && s->base[0] <= '9')
                s->base_stage = -1;              /* FROM knows names only */
        if (!s->base[0])
                r = instruction_fault(i, e, "FROM: the name of the image becomes empty");
        if (r == 0 && i->words[1]) {
                if (!stage_name_ok(i->words[2]))
                        r = instruction_fault(i, e, "'%.64s' cannot be a stage's name", i->words[2]);
                else if (!(s->name = strdup(i->words[2])))
                        r = error_set(e, -ENOMEM, "build");
        }
        b->n_stages++;
        return r;
}

static int find_stages(struct build *b, struct error *e) {
        for (size_t at = 0; at < b->file.n; at++) {
                const struct instruction *i = &b->file.instructions[at];
                int r = 0;
                if (i->kind == INSTRUCTION_FROM) {
                        if (b->n_stages > 0)
                                b->stages[b->n_stages - 1].end = at;
                        r = add_stage(b, at, e);
                } else if (b->n_stages == 0)
                        r = stage_apply(&b->global, i, e);
                if (r < 0)
                        return r;
        }
        b->stages[b->n_stages - 1].end = b->file.n;
        return 0;
}

/* Stages lead to earlier ones only, so one pass from above finds all. */
static int mark_needed(struct build *b, size_t wanted, struct error *e) {
        b->stages[wanted].needed = true;
        for (size_t k = wanted + 1; k-- > 0;) {
                const struct build_stage *s = &b->stages[k];
                if (!s->needed)
                        continue;
                b->steps += (unsigned)(s->end - s->from);
                if (s->base_stage >= 0)
                        b->stages[s->base_stage].needed = true;
                for (size_t at = s->from; at < s->end; at++) {
                        const struct instruction *i = &b->file.instructions[at];
                        const char *from = i->kind == INSTRUCTION_COPY ? instruction_flag(i, "from") : NULL;
                        int stage = from ? build_find_stage(b, from, k) : -1;
                        if (stage >= 0)
                                b->stages[stage].needed = true;
                        else if (from && (!*from || strchr(from, '$') || strspn(from, "0123456789") == strlen(from)))
                                return instruction_fault(i, e, "COPY --from=%.64s: no such earlier stage", from);
                }
        }
        return 0;
}

int build_plan(struct build *b, struct error *e) {
        size_t n = 0;
        for (size_t at = 0; at < b->file.n; at++)
                n += b->file.instructions[at].kind == INSTRUCTION_FROM;
        b->stages = calloc(n, sizeof *b->stages);
        b->global = (struct stage){ .given = (const char *const *)b->args, .escape = b->file.escape };
        int r = b->stages ? usual_arguments(b) : -ENOMEM;
        if (r < 0)
                return error_set(e, r, "build");
        b->n_stages = 0;
        r = find_stages(b, e);
        if (r < 0)
                return r;
        int wanted = b->target ? build_find_stage(b, b->target, b->n_stages) : (int)b->n_stages - 1;
        if (wanted < 0)
                return error_say(e, -EINVAL, "target: the Dockerfile has no stage '%.64s'", b->target);
        return mark_needed(b, (size_t)wanted, e);
}

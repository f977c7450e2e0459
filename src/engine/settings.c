#include <ctype.h>
#include <limits.h>
#include <strings.h>
#include <sys/sysinfo.h>

#include "base/strv.h"
#include "engine/settings_table.h"
#include "rlm/admission.h"

#define GIB (1ull << 30)
#define MEMORY_PER_TASK (2 * GIB)

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static void *field(struct engine_config *cfg, const struct setting *s) { return (char *)cfg + s->offset; }
static const void *cfield(const struct engine_config *cfg, const struct setting *s) { return (const char *)cfg + s->offset; }

static int parse_number(const struct setting *s, const char *text, uint64_t scale, uint64_t *ret) {
        if (!isdigit((unsigned char)text[0]))
                return -EINVAL;
        char *end;
        errno = 0;
        unsigned long long v = strtoull(text, &end, 10);
        if (errno != 0)
                return -ERANGE;
        static const char suffixes[] = "KMGT";
        if (s->type == SETTING_BYTES && *end) {
                const char *at = strchr(suffixes, toupper((unsigned char)*end));
                if (!at)
                        return -EINVAL;
                scale = 1ull << (10 * (at - suffixes + 1));
                end++;
                if (strcasecmp(end, "iB") == 0)
                        end += 2;
        }
        if (*end)
                return -EINVAL;
        if (scale > 1 && v > ULLONG_MAX / scale)
                return -ERANGE;
        v *= scale;
        if (v < s->min || v > s->max)
                return -ERANGE;
        *ret = v;
        return 0;
}

static int parse_bool(const char *text, bool *ret) {
        static const char *const yes[] = { "true", "1", "yes", "on" }, *const no[] = { "false", "0", "no", "off" };
        for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
                if (strcasecmp(text, yes[i]) == 0) {
                        *ret = true;
                        return 0;
                }
                if (strcasecmp(text, no[i]) == 0) {
                        *ret = false;
                        return 0;
                }
        }
        return -EINVAL;
}

static int parse_choice(const struct setting *s, const char *text, int *ret) {
        for (int i = 0; s->choices[i]; i++)
                if (strcmp(s->choices[i], text) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static int parse_paths(const char *text, char ***ret) {
        char **list = NULL;
        int r = strv_ensure(&list);
        for (const char *at = text; r == 0 && *at;) {
                size_t n = strcspn(at, ":");
                if (n > 0)
                        r = *at == '/' ? strv_push_n(&list, at, n) : -EINVAL;
                at += n + (at[n] == ':');
        }
        if (r < 0) {
                strv_free(list);
                return r;
        }
        strv_free(*ret);
        *ret = list;
        return 0;
}

static int set_text(const char *text, char **ret) {
        char *copy = strdup(text);
        if (!copy)
                return -ENOMEM;
        free(*ret);
        *ret = copy;
        return 0;
}

static int assign(struct engine_config *cfg, const struct setting *s, const char *text, uint64_t scale) {
        switch (s->type) {
        case SETTING_TEXT: return set_text(text, field(cfg, s));
        case SETTING_PATH: return text[0] == '/' && strlen(text) < 3000 ? set_text(text, field(cfg, s)) : -EINVAL;
        case SETTING_PATHS: return parse_paths(text, field(cfg, s));
        case SETTING_NUMBER: case SETTING_BYTES: return parse_number(s, text, scale, field(cfg, s));
        case SETTING_BOOL: return parse_bool(text, field(cfg, s));
        case SETTING_CHOICE: return parse_choice(s, text, field(cfg, s));
        }
        return -EINVAL;
}

static int describe_expected(const struct setting *s, struct buf *b) {
        switch (s->type) {
        case SETTING_TEXT: return buf_adds(b, "a text");
        case SETTING_PATH: return buf_adds(b, "an absolute path");
        case SETTING_PATHS: return buf_adds(b, "absolute paths separated by colons");
        case SETTING_NUMBER: return buf_printf(b, "an integer from %llu to %llu", (unsigned long long)s->min, (unsigned long long)s->max);
        case SETTING_BYTES:
                return buf_printf(b, "bytes, or a number with K, M, G or T, from %llu to %llu bytes", (unsigned long long)s->min, (unsigned long long)s->max);
        case SETTING_BOOL: return buf_adds(b, "true or false");
        case SETTING_CHOICE: break;
        }
        int r = buf_adds(b, "one of");
        for (size_t i = 0; s->choices && s->choices[i]; i++)
                r = buf_printf(b, "%s %s", i ? "," : "", s->choices[i]);
        return r;
}

static int set(struct engine_config *cfg, const struct setting *s, const char *text, const char *from, bool flag, uint64_t scale, struct error *e) {
        int r = assign(cfg, s, text, scale);
        if (r == -ENOMEM)
                return error_set(e, r, "setting %s.%s", s->section, s->key);
        if (r < 0) {
                _cleanup_buf_ struct buf want = BUF_INIT(400);
                describe_expected(s, &want);
                return error_say(e, -EINVAL, "setting %s.%s: '%.100s' (from %s) is not valid: expected %s", s->section, s->key,
                                 s->secret ? "..." : text, from, buf_str(&want));
        }
        cfg->origin[s - settings_table] = (struct setting_origin){ .name = from, .flag = flag };
        return 0;
}

/* ---- defaults, variables, flags ------------------------------------------------------------------------------------------ */

void settings_init(struct engine_config *cfg) {
        *cfg = (struct engine_config){ 0 };
        for (size_t i = 0; i < settings_count; i++)
                if (settings_table[i].fallback)
                        ASSERT(assign(cfg, &settings_table[i], settings_table[i].fallback, 1) == 0);
}

void settings_release(struct engine_config *cfg) {
        free(cfg->local_repo);
        cfg->local_repo = NULL;
        for (size_t i = 0; i < settings_count; i++) {
                const struct setting *s = &settings_table[i];
                if (s->type == SETTING_TEXT || s->type == SETTING_PATH) {
                        char **p = field(cfg, s);
                        free(*p);
                        *p = NULL;
                } else if (s->type == SETTING_PATHS) {
                        char ***p = field(cfg, s);
                        *p = strv_free(*p);
                }
        }
}

static void variable_name(const struct setting *s, char ret[static 64]) {
        int n = snprintf(ret, 64, "BRIG_%s_%s", s->section, s->key);
        for (int i = 0; i < n && i < 63; i++)
                ret[i] = (char)toupper((unsigned char)ret[i]);
}

/* The entry itself, "NAME=value": its name outlives us, because the environment does. */
static const char *lookup(char *const *env, const char *name) {
        size_t n = strlen(name);
        for (; env && *env; env++)
                if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
                        return (*env)[n + 1] ? *env + n + 1 : NULL;
        return NULL;
}

static bool counts_gib(const char *name) {
        size_t n = strlen(name);
        return n > 3 && strcmp(name + n - 3, "_GB") == 0;
}

int settings_from_env(struct engine_config *cfg, char *const *env, struct error *e) {
        for (size_t i = 0; i < settings_count; i++) {
                const struct setting *s = &settings_table[i];
                char own[64];
                variable_name(s, own);
                const char *from = own, *value = lookup(env, own);
                for (size_t a = 0; !value && a < ARRAY_SIZE(s->alias) && s->alias[a]; a++)
                        value = lookup(env, from = s->alias[a]);
                if (!value)
                        continue;
                int r = set(cfg, s, value, from, false, counts_gib(from) ? GIB : 1, e);
                if (r < 0)
                        return r;
                if (from == own)
                        cfg->origin[i].name = "";      /* its own variable: settings_document makes the name */
        }
        return 0;
}

int settings_flag(struct engine_config *cfg, int argc, char *const *argv, int *i, struct error *e) {
        const char *arg = argv[*i];
        if (strncmp(arg, "--", 2) != 0)
                return 0;
        size_t n = strcspn(arg + 2, "=");
        for (size_t k = 0; k < settings_count; k++) {
                const struct setting *s = &settings_table[k];
                if (!s->flag || strlen(s->flag) != n || strncmp(s->flag, arg + 2, n) != 0)
                        continue;
                const char *value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
                if (!value && s->type == SETTING_BOOL)
                        value = "true";
                else if (!value && *i + 1 < argc)
                        value = argv[++*i];
                if (!value)
                        return error_say(e, -EINVAL, "--%s needs a value", s->flag);
                ++*i;
                char from[64];
                snprintf(from, sizeof from, "--%s", s->flag);
                int r = set(cfg, s, value, from, true, 1, e);
                cfg->origin[k].name = s->flag;
                return r < 0 ? r : 1;
        }
        return 0;
}

int settings_from_args(struct engine_config *cfg, int argc, char *const *argv, struct error *e) {
        for (int i = 1; i < argc;) {
                int r = settings_flag(cfg, argc, argv, &i, e);
                if (r < 0)
                        return r;
                if (r == 0)
                        return error_say(e, -EINVAL, "unknown option '%.100s'; --help lists them all", argv[i]);
        }
        return 0;
}

/* ---- what depends on more than one value ---------------------------------------------------------------------------------- */

static bool loopback(const char *listen) {
        if (strncmp(listen, "unix:", 5) == 0 || strncmp(listen, "[::1]:", 6) == 0 || strncmp(listen, "localhost:", 10) == 0)
                return true;
        return strncmp(listen, "127.", 4) == 0 && strspn(listen, "0123456789.:") == strlen(listen);
}

bool settings_listens_on_loopback(const struct engine_config *cfg) { return loopback(cfg->listen); }

static int check_listen(struct engine_config *cfg, struct error *e) {
        if (!cfg->listen && asprintf(&cfg->listen, "%s:%u", cfg->token ? "0.0.0.0" : "127.0.0.1", (unsigned)cfg->port) < 0) {
                cfg->listen = NULL;
                return error_set(e, -ENOMEM, "setting http.listen");
        }
        if (!strchr(cfg->listen, ':'))
                return error_say(e, -EINVAL, "setting http.listen: '%s' is not valid: expected HOST:PORT, [ADDRESS]:PORT or unix:PATH", cfg->listen);
        if (!cfg->token && !loopback(cfg->listen) && !cfg->insecure_open)
                return error_say(e, -EINVAL, "setting http.listen: '%s' can be reached by others and there is no token: set API_TOKEN, or "
                                 "listen on 127.0.0.1, or say --insecure-open", cfg->listen);
        return 0;
}

static uint64_t running_by_machine(void) {
        struct sysinfo si;
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        uint64_t by_cores = cores > 0 ? (uint64_t)cores : 1;
        uint64_t by_memory = sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit / MEMORY_PER_TASK : 1;
        return MAX2((uint64_t)1, MIN2(by_cores, by_memory));
}

/* More sandboxes than the seed's range are a deliberate act: a flag, not something that an environment brought along. */
static int check_slots(const struct engine_config *cfg, struct error *e) {
        if (cfg->rlm_slots <= ADMISSION_SLOTS_SEED_MAX)
                return 0;
        for (size_t i = 0; i < settings_count; i++)
                if (settings_table[i].offset == offsetof(struct engine_config, rlm_slots) && !cfg->origin[i].flag)
                        return error_say(e, -EINVAL, "setting runtime.max_active_leases: more than %u only by --max-active-leases", ADMISSION_SLOTS_SEED_MAX);
        return 0;
}

int settings_check(struct engine_config *cfg, struct error *e) {
        int r = check_slots(cfg, e);
        if (r < 0)
                return r;
        if (cfg->id_base % 65536 != 0)
                return error_say(e, -EINVAL, "setting sandbox.id_base: %llu is not a multiple of 65536", (unsigned long long)cfg->id_base);
        if (cfg->repo_ssh_key && !cfg->repo_ssh_known_hosts)
                return error_say(e, -EINVAL, "setting repo.ssh_key: needs repo.ssh_known_hosts, which says which servers may be shown the key");
        if (cfg->running_max == 0)
                cfg->running_max = running_by_machine();
        return check_listen(cfg, e);
}

/* ---- documents --------------------------------------------------------------------------------------------------------------- */

static int format_value(const struct engine_config *cfg, const struct setting *s, struct buf *b) {
        const void *p = cfield(cfg, s);
        switch (s->type) {
        case SETTING_TEXT: case SETTING_PATH: {
                const char *v = *(char *const *)p;
                return buf_adds(b, !v ? "-" : s->secret ? "(hidden)" : v);
        }
        case SETTING_PATHS: {
                char **v = *(char **const *)p;
                int r = v ? 0 : buf_adds(b, "-");
                for (size_t i = 0; v && v[i]; i++)
                        r = buf_printf(b, "%s%s", i ? ":" : "", v[i]);
                return r;
        }
        case SETTING_NUMBER: case SETTING_BYTES: return buf_printf(b, "%llu", (unsigned long long)*(const uint64_t *)p);
        case SETTING_BOOL: return buf_adds(b, *(const bool *)p ? "true" : "false");
        case SETTING_CHOICE: return buf_adds(b, s->choices[*(const int *)p]);
        }
        return -EINVAL;
}

static int text_line(const struct engine_config *cfg, const struct setting *s, struct buf *b) {
        const struct setting_origin *o = &cfg->origin[s - settings_table];
        _cleanup_buf_ struct buf value = BUF_INIT(8192);
        char own[64], name[64];
        variable_name(s, own);
        snprintf(name, sizeof name, "%s.%s", s->section, s->key);
        int r = format_value(cfg, s, &value);
        if (r < 0)
                return r;
        if (!o->name)
                return buf_printf(b, "%-22s %-30s default\n", name, buf_str(&value));
        return buf_printf(b, "%-22s %-30s %s%s\n", name, buf_str(&value), o->flag ? "--" : "", *o->name ? o->name : own);
}

static const char *const type_names[] = { "text", "path", "paths", "integer", "bytes", "boolean", "choice" };

static int markdown_row(const struct setting *s, struct buf *b) {
        char own[64];
        variable_name(s, own);
        buf_printf(b, "| `%s.%s` | ", s->section, s->key);
        if (s->flag)
                buf_printf(b, "`--%s`", s->flag);
        buf_printf(b, " | `%s`", own);
        for (size_t i = 0; i < ARRAY_SIZE(s->alias) && s->alias[i]; i++)
                buf_printf(b, ", `%s`", s->alias[i]);
        buf_printf(b, " | %s%s%s | %s", type_names[s->type], *s->unit && strcmp(s->unit, "bytes") != 0 ? ", " : "",
                   strcmp(s->unit, "bytes") != 0 ? s->unit : "", s->fallback ? s->fallback : "");
        if (s->type == SETTING_NUMBER || s->type == SETTING_BYTES)
                buf_printf(b, " | %llu – %llu", (unsigned long long)s->min, (unsigned long long)s->max);
        else if (s->type == SETTING_CHOICE) {
                buf_adds(b, " | ");
                for (size_t i = 0; s->choices[i]; i++)
                        buf_printf(b, "%s`%s`", i ? ", " : "", s->choices[i]);
        } else
                buf_adds(b, " |");
        return buf_printf(b, " | %s |\n", s->doc);
}

static const char markdown_head[] =
        "# Settings\n\n"
        "Written by `brig config --markdown`; do not edit. There is no configuration file: a setting is a flag of `brig serve` or a\n"
        "variable of its environment. A flag wins over a variable, and the `BRIG_` variable over the names read for compatibility.\n"
        "An empty variable counts as absent. Sizes take K, M, G and T (powers of 1,024). `brig config` shows the values in effect.\n\n"
        "| setting | flag | variables | type | default | range | meaning |\n| - | - | - | - | - | - | - |\n";

int settings_document(const struct engine_config *cfg, enum settings_format format, struct buf *ret) {
        int r = format == SETTINGS_MARKDOWN ? buf_adds(ret, markdown_head) : 0;
        for (size_t i = 0; i < settings_count && r >= 0; i++)
                r = format == SETTINGS_MARKDOWN ? markdown_row(&settings_table[i], ret) : text_line(cfg, &settings_table[i], ret);
        return r;
}

int settings_flags(int (*each)(const char *flag, const char *value, const char *doc, void *user), void *user) {
        int r = 0;
        for (size_t i = 0; i < settings_count && r == 0; i++)
                if (settings_table[i].flag)
                        r = each(settings_table[i].flag, settings_table[i].type == SETTING_BOOL ? NULL : "VALUE", settings_table[i].doc, user);
        return r;
}

#include "build/stage.h"

#include <string.h>

#include "base/buf.h"
#include "base/strv.h"
#include "build/expand.h"

/* Arguments that are in scope without ARG. */
static const char *const usual_args[] = { "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy" };

void stage_release(struct stage *s) {
        image_config_release(&s->config);
        s->args = strv_free(s->args);
}

static int lists(const struct instruction *i, struct error *e, int r) {
        if (r == -ENOMEM)
                return error_set(e, r, "dockerfile line %u", i->line);
        return r;
}

/* ---- variables ---- */

static const char *find(const char *const *list, const char *name, size_t n) {
        for (size_t k = 0; list && list[k]; k++)
                if (strncmp(list[k], name, n) == 0 && list[k][n] == '=')
                        return list[k] + n + 1;
        return NULL;
}

static bool usual(const char *name, size_t n) {
        for (size_t k = 0; k < ARRAY_SIZE(usual_args); k++)
                if (strlen(usual_args[k]) == n && memcmp(usual_args[k], name, n) == 0)
                        return true;
        return false;
}

static const char usual_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static const char *lookup(const char *name, size_t n, void *user) {
        const struct stage *s = user;
        const char *v = find((const char *const *)s->config.env, name, n);
        v = v ? v : find((const char *const *)s->args, name, n);
        if (!v && usual(name, n))
                v = find(s->given, name, n);
        if (!v && n == 4 && memcmp(name, "PATH", n) == 0)
                v = usual_path;                  /* what a RUN has: PATH=/more:$PATH must not lose it */
        return v;
}

int stage_expand(const struct stage *s, const struct instruction *i, const char *word, bool quotes, char **ret, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(EXPAND_BYTES_MAX + 1);
        struct error why;
        int r = expand_word(word, s->escape, quotes, lookup, (void *)(uintptr_t)s, &b, &why);
        if (r < 0)
                return r == -ENOMEM ? lists(i, e, r) : instruction_fault(i, e, "%s", why.text);
        char *text = buf_steal(&b);
        if (!text)
                return lists(i, e, -ENOMEM);
        *ret = text;
        return 0;
}

static bool is_name(const char *s, size_t n) {
        if (n == 0 || (s[0] >= '0' && s[0] <= '9'))
                return false;
        for (size_t k = 0; k < n; k++)
                if (!(s[k] >= 'a' && s[k] <= 'z') && !(s[k] >= 'A' && s[k] <= 'Z') && !(s[k] >= '0' && s[k] <= '9') && s[k] != '_')
                        return false;
        return true;
}

static int check_size(const struct stage *s, const struct instruction *i, struct error *e) {
        char *const *lists_[] = { s->config.env, s->args, s->config.labels };
        uint64_t bytes = 0;
        for (size_t l = 0; l < ARRAY_SIZE(lists_); l++) {
                size_t n = strv_len((const char *const *)lists_[l]);
                if (n > STAGE_VARIABLES_MAX)
                        return instruction_fault(i, e, "more than %u variables or labels", STAGE_VARIABLES_MAX);
                for (size_t k = 0; k < n; k++)
                        bytes += strlen(lists_[l][k]);
        }
        return bytes > STAGE_ENV_BYTES_MAX ? instruction_fault(i, e, "variables and labels of more than %u bytes", STAGE_ENV_BYTES_MAX) : 0;
}

static int set_arg(struct stage *s, const char *name, size_t n, const char *value) {
        char *entry;
        if (asprintf(&entry, "%.*s=%s", (int)n, name, value) < 0)
                return -ENOMEM;
        for (size_t k = 0; s->args && s->args[k]; k++)
                if (strncmp(s->args[k], name, n) == 0 && s->args[k][n] == '=') {
                        free(s->args[k]);
                        s->args[k] = entry;
                        return 0;
                }
        return strv_push_take(&s->args, entry);
}

/* NAME, or NAME=default: the request's value wins; without a value that of the global one of the name. */
static int apply_arg(struct stage *s, const struct instruction *i, const char *word, struct error *e) {
        size_t n = strcspn(word, "=");
        if (!is_name(word, n))
                return instruction_fault(i, e, "ARG: '%.64s' is not the name of a variable", word);
        const char *value = find(s->given, word, n);
        if (!value && !word[n] && s->global)
                value = find((const char *const *)s->global->args, word, n);
        if (value)
                return lists(i, e, set_arg(s, word, n, value));
        if (!word[n])
                return 0;
        char *expanded = NULL;
        int r = stage_expand(s, i, word + n + 1, true, &expanded, e);
        r = r ? r : lists(i, e, set_arg(s, word, n, expanded));
        free(expanded);
        return r;
}

/* NAME=value for each word, or the old form NAME value value... All of one instruction see what was before it. */
static int apply_pairs(struct stage *s, const struct instruction *i, bool env, struct error *e) {
        const char *what = env ? "ENV" : "LABEL";
        _cleanup_strv_ char **done = NULL;
        int r = 0;
        bool old = !strchr(i->words[0], '=');
        if (old && !i->words[1])
                return instruction_fault(i, e, "%s %.64s has no value", what, i->words[0]);
        for (size_t k = 0; r == 0 && i->words[k]; k++) {
                char *pair = NULL, *joined = NULL;
                const char *word = i->words[k];
                if (old) {
                        const char *rest = i->rest + strcspn(i->rest, " \t");
                        rest += strspn(rest, " \t");
                        if (asprintf(&joined, "%s=%s", word, rest) < 0)
                                return lists(i, e, -ENOMEM);
                        word = joined;
                } else if (!strchr(word, '=') || *word == '=')
                        return instruction_fault(i, e, "%s: '%.64s' is not name=value", what, word);
                r = stage_expand(s, i, word, true, &pair, e);
                free(joined);
                r = r ? r : lists(i, e, strv_push_take(&done, pair));
                if (old)
                        break;
        }
        for (size_t k = 0; r == 0 && done && done[k]; k++) {
                char *value = strchr(done[k], '=');
                if (!value || value == done[k])
                        return instruction_fault(i, e, "%s: a name becomes empty", what);
                *value++ = 0;
                r = lists(i, e, env ? image_config_set_env(&s->config, done[k], value) : image_config_set_label(&s->config, done[k], value));
        }
        return r;
}

/* ---- other instructions ---- */

static int replace(char **at, char *value) {
        free(*at);
        *at = value;
        return 0;
}

static int copy_words(char *const *words, char ***ret) {
        char **copy = NULL;
        int r = strv_ensure(&copy);
        for (; r == 0 && *words; words++)
                r = strv_push(&copy, *words);
        if (r < 0) {
                strv_free(copy);
                return r;
        }
        strv_free(*ret);
        *ret = copy;
        return 0;
}

static int shell_of(const struct stage *s, char ***ret) {
        static char sh[] = "/bin/sh", c[] = "-c";
        char *const usual_shell[] = { sh, c, NULL };
        return copy_words(s->config.shell && s->config.shell[0] ? s->config.shell : usual_shell, ret);
}

/* CMD and ENTRYPOINT: the shell form goes behind SHELL. */
static int apply_command(struct stage *s, const struct instruction *i, char ***at) {
        if (i->json)
                return copy_words(i->words, at);
        char **list = NULL;
        int r = shell_of(s, &list);
        r = r ? r : strv_push(&list, i->rest);
        if (r < 0) {
                strv_free(list);
                return r;
        }
        strv_free(*at);
        *at = list;
        return 0;
}

static int apply_list(struct stage *s, const struct instruction *i, char ***at, struct error *e) {
        for (char **w = i->words; *w; w++) {
                char *word;
                int r = i->json ? ((word = strdup(*w)) ? 0 : -ENOMEM) : stage_expand(s, i, *w, true, &word, e);
                if (r < 0)
                        return lists(i, e, r);
                if (!*word || strv_len((const char *const *)*at) >= STAGE_VARIABLES_MAX) {
                        bool empty = !*word;
                        free(word);
                        return instruction_fault(i, e, empty ? "an empty argument" : "too many of them");
                }
                if (strv_contains((const char *const *)*at, word))
                        free(word);
                else if ((r = strv_push_take(at, word)) < 0)
                        return lists(i, e, r);
        }
        return 0;
}

int stage_path(const struct stage *s, const struct instruction *i, const char *path, char **ret, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        const char *parts[2] = { path[0] == '/' ? "" : s->config.workdir ? s->config.workdir : "/", path };
        int r = 0;
        for (size_t k = 0; k < 2; k++)
                for (const char *p = parts[k]; *p && r == 0;) {
                        size_t n = strcspn(p, "/");
                        if (n == 2 && p[0] == '.' && p[1] == '.') {
                                while (b.len > 0 && b.data[--b.len] != '/')
                                        ;
                                if (b.data)
                                        b.data[b.len] = 0;
                        } else if (n > 255)
                                return instruction_fault(i, e, "a path with a component of more than 255 bytes");
                        else if (n > 0 && !(n == 1 && p[0] == '.')) {
                                r = buf_addc(&b, '/');
                                r = r ? r : buf_add(&b, p, n);
                        }
                        p += n + (p[n] == '/');
                }
        size_t n = strlen(path);
        bool slash = n > 0 && (path[n - 1] == '/' || strcmp(path, ".") == 0 || (n > 1 && strcmp(path + n - 2, "/.") == 0));
        if (r == 0 && (slash || b.len == 0))
                r = buf_addc(&b, '/');
        if (r == -ENOSPC)
                return instruction_fault(i, e, "a path of more than 4095 bytes");
        char *text = r == 0 ? buf_steal(&b) : NULL;
        if (!text)
                return lists(i, e, -ENOMEM);
        *ret = text;
        return 0;
}

static int apply_workdir(struct stage *s, const struct instruction *i, struct error *e) {
        char *given = NULL, *path = NULL;
        int r = stage_expand(s, i, i->rest, true, &given, e);
        if (r == 0 && !*given)
                r = instruction_fault(i, e, "WORKDIR becomes empty");
        r = r ? r : stage_path(s, i, given, &path, e);
        free(given);
        if (r < 0)
                return r;
        size_t n = strlen(path);
        if (n > 1 && path[n - 1] == '/')
                path[n - 1] = 0;
        return replace(&s->config.workdir, path);
}

static int apply_text(struct stage *s, const struct instruction *i, char **at, struct error *e) {
        char *text;
        int r = stage_expand(s, i, i->words[0], true, &text, e);
        if (r == 0 && (!*text || strlen(text) > IMAGE_CONFIG_USER_MAX)) {
                bool empty = !*text;
                free(text);
                return instruction_fault(i, e, empty ? "%s becomes empty" : "%s is too long", instruction_kind_to_string((int)i->kind));
        }
        return r ? r : replace(at, text);
}

int stage_apply(struct stage *s, const struct instruction *i, struct error *e) {
        int r = 0;
        switch (i->kind) {
        case INSTRUCTION_ARG:
                for (char **w = i->words; r == 0 && *w; w++)
                        r = apply_arg(s, i, *w, e);
                break;
        case INSTRUCTION_ENV: r = apply_pairs(s, i, true, e); break;
        case INSTRUCTION_LABEL: r = apply_pairs(s, i, false, e); break;
        case INSTRUCTION_USER: r = apply_text(s, i, &s->config.user, e); break;
        case INSTRUCTION_STOPSIGNAL: r = apply_text(s, i, &s->config.stop_signal, e); break;
        case INSTRUCTION_WORKDIR: r = apply_workdir(s, i, e); break;
        case INSTRUCTION_SHELL:
                if (!i->words[0])
                        return instruction_fault(i, e, "SHELL needs a program");
                r = lists(i, e, copy_words(i->words, &s->config.shell));
                break;
        case INSTRUCTION_CMD:
                r = lists(i, e, apply_command(s, i, &s->config.cmd));
                s->cmd_given = true;
                break;
        case INSTRUCTION_ENTRYPOINT:
                r = lists(i, e, apply_command(s, i, &s->config.entrypoint));
                if (!s->cmd_given)
                        s->config.cmd = strv_free(s->config.cmd);
                break;
        case INSTRUCTION_EXPOSE: r = apply_list(s, i, &s->config.exposed, e); break;
        case INSTRUCTION_VOLUME: r = apply_list(s, i, &s->config.volumes, e); break;
        case INSTRUCTION_HEALTHCHECK: case INSTRUCTION_MAINTAINER: return 0;     /* nothing here honours them */
        default: return instruction_fault(i, e, "%s is not expected here", instruction_kind_to_string((int)i->kind));
        }
        return r ? r : check_size(s, i, e);
}

/* ---- RUN ---- */

char **stage_environment(const struct stage *s) {
        char path[sizeof usual_path + 5];
        snprintf(path, sizeof path, "PATH=%s", usual_path);
        const char *const usual_env[] = { path, NULL };
        const char *const *sources[] = { usual_env, s->given, (const char *const *)s->args, (const char *const *)s->config.env };
        struct image_config c = { 0 };
        int r = strv_ensure(&c.env);
        for (size_t k = 0; r == 0 && k < ARRAY_SIZE(sources); k++)
                for (const char *const *v = sources[k]; r == 0 && v && *v; v++) {
                        size_t n = strcspn(*v, "=");
                        _cleanup_free_ char *name = strndup(*v, n);
                        if (k == 1 && !usual(*v, n))
                                continue;
                        r = name ? image_config_set_env(&c, name, (*v)[n] ? *v + n + 1 : "") : -ENOMEM;
                }
        return r < 0 ? strv_free(c.env) : c.env;
}

/* "<<EOF" and nothing else: the document is the program. */
static bool only_heredoc(const struct instruction *i) {
        return i->n_heredocs == 1 && strncmp(i->rest, "<<", 2) == 0 && strcspn(i->rest, " \t") == strlen(i->rest);
}

char **stage_command(const struct stage *s, const struct instruction *i, const struct heredoc **ret_script) {
        _cleanup_buf_ struct buf b = BUF_INIT(2 * DOCKERFILE_BYTES_MAX);
        char **list = NULL;
        int r;
        *ret_script = NULL;
        if (i->json)
                return copy_words(i->words, &list) == 0 ? list : NULL;
        if (only_heredoc(i) && strncmp(i->heredocs[0].text, "#!", 2) == 0) {
                *ret_script = &i->heredocs[0];
                return strv_push(&list, STAGE_SCRIPT) == 0 ? list : NULL;
        }
        if (only_heredoc(i))
                r = buf_add(&b, i->heredocs[0].text, i->heredocs[0].len);
        else {
                r = buf_adds(&b, i->rest);
                for (size_t k = 0; r == 0 && k < i->n_heredocs; k++)
                        r = buf_printf(&b, "\n%s%s", i->heredocs[k].text, i->heredocs[k].name);
                if (r == 0 && i->n_heredocs > 0)
                        r = buf_addc(&b, '\n');
        }
        r = r ? r : shell_of(s, &list);
        r = r ? r : strv_push(&list, buf_str(&b));
        return r < 0 ? strv_free(list) : list;
}

bool dockerfile_declares(const struct dockerfile *d, const char *name, size_t n) {
        if (usual(name, n))
                return true;
        for (size_t k = 0; k < d->n; k++)
                for (char **w = d->instructions[k].words; d->instructions[k].kind == INSTRUCTION_ARG && *w; w++)
                        if (strncmp(*w, name, n) == 0 && ((*w)[n] == '=' || !(*w)[n]))
                                return true;
        return false;
}

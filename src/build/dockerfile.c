#include "build/dockerfile.h"

#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "base/strv.h"
#include "build/dockerfile_lines.h"

static const char *const kind_names[] = {
        [INSTRUCTION_FROM] = "FROM", [INSTRUCTION_ARG] = "ARG", [INSTRUCTION_RUN] = "RUN", [INSTRUCTION_COPY] = "COPY", [INSTRUCTION_ADD] = "ADD",
        [INSTRUCTION_ENV] = "ENV", [INSTRUCTION_WORKDIR] = "WORKDIR", [INSTRUCTION_USER] = "USER", [INSTRUCTION_SHELL] = "SHELL", [INSTRUCTION_LABEL] = "LABEL",
        [INSTRUCTION_CMD] = "CMD", [INSTRUCTION_ENTRYPOINT] = "ENTRYPOINT", [INSTRUCTION_EXPOSE] = "EXPOSE", [INSTRUCTION_STOPSIGNAL] = "STOPSIGNAL",
        [INSTRUCTION_VOLUME] = "VOLUME", [INSTRUCTION_HEALTHCHECK] = "HEALTHCHECK", [INSTRUCTION_MAINTAINER] = "MAINTAINER", [INSTRUCTION_ONBUILD] = "ONBUILD",
};
STRING_TABLE(instruction_kind, kind_names, INSTRUCTION_KIND_MAX)

/* What each takes: its flags, whether the JSON form and here-documents are looked for, how many words. */
static const struct rule { const char *flags[5]; bool json, heredoc; size_t min, max; } rules[INSTRUCTION_KIND_MAX] = {
        [INSTRUCTION_FROM] = { { "platform" }, false, false, 1, 3 },
        [INSTRUCTION_ARG] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_RUN] = { { "network" }, true, true, 1, SIZE_MAX },
        [INSTRUCTION_COPY] = { { "from", "chown", "chmod", "link" }, true, true, 1, SIZE_MAX },
        [INSTRUCTION_ADD] = { { "chown", "chmod", "link" }, true, true, 1, SIZE_MAX },
        [INSTRUCTION_ENV] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_WORKDIR] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_USER] = { { NULL }, false, false, 1, 1 },
        [INSTRUCTION_SHELL] = { { NULL }, true, false, 1, SIZE_MAX },
        [INSTRUCTION_LABEL] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_CMD] = { { NULL }, true, false, 0, SIZE_MAX },
        [INSTRUCTION_ENTRYPOINT] = { { NULL }, true, false, 0, SIZE_MAX },
        [INSTRUCTION_EXPOSE] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_STOPSIGNAL] = { { NULL }, false, false, 1, 1 },
        [INSTRUCTION_VOLUME] = { { NULL }, true, false, 1, SIZE_MAX },
        [INSTRUCTION_HEALTHCHECK] = { { "interval", "timeout", "start-period", "start-interval", "retries" }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_MAINTAINER] = { { NULL }, false, false, 1, SIZE_MAX },
        [INSTRUCTION_ONBUILD] = { { NULL }, false, false, 0, SIZE_MAX },
};

int instruction_fault(const struct instruction *i, struct error *e, const char *fmt, ...) {
        char text[ERROR_TEXT_MAX];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        return error_say(e, -EINVAL, "dockerfile line %u: %s", i->line, text);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

static void instruction_release(struct instruction *i) {
        strv_free(i->flags);
        strv_free(i->words);
        free(i->rest);
        for (size_t k = 0; k < i->n_heredocs; k++) {
                free(i->heredocs[k].name);
                free(i->heredocs[k].text);
        }
        free(i->heredocs);
}

void dockerfile_release(struct dockerfile *d) {
        for (size_t k = 0; k < d->n; k++)
                instruction_release(&d->instructions[k]);
        free(d->instructions);
        *d = (struct dockerfile){ 0 };
}

const char *instruction_flag(const struct instruction *i, const char *name) {
        size_t n = strlen(name);
        for (size_t k = 0; i->flags && i->flags[k]; k++)
                if (strncmp(i->flags[k] + 2, name, n) == 0 && (i->flags[k][n + 2] == '=' || i->flags[k][n + 2] == 0))
                        return i->flags[k][n + 2] ? i->flags[k] + n + 3 : "";
        return NULL;
}

/* ---- words ---- */

/* The end of the word at p: quotes and escapes hold blanks together. */
static const char *word_end(const char *p, char escape) {
        char quote = 0;
        for (; *p && (quote || !is_blank(*p)); p++) {
                if (*p == escape && quote != '\'' && p[1])
                        p++;
                else if (quote)
                        quote = *p == quote ? 0 : quote;
                else if (*p == '"' || *p == '\'')
                        quote = *p;
        }
        return p;
}

static int split(struct instruction *i, char escape, struct error *e) {
        size_t n = 0;
        int r = strv_ensure(&i->words);
        for (const char *p = i->rest; r == 0;) {
                while (is_blank(*p))
                        p++;
                if (!*p)
                        break;
                const char *end = word_end(p, escape);
                if (n == DOCKERFILE_WORDS_MAX) {
                        instruction_fault(i, e, "more than %u words", DOCKERFILE_WORDS_MAX);
                        return -E2BIG;
                }
                r = strv_append_take(&i->words, &n, strndup(p, (size_t)(end - p)));
                p = end;
        }
        return r;
}

/* 1: it is a list of strings, and they are the words; 0: not JSON, so the shell form. */
static int json_words(struct instruction *i, struct error *e) {
        struct json doc, item;
        size_t n = 0;
        const char *p = i->rest;
        while (is_blank(*p))
                p++;
        if (*p != '[' || json_parse(p, strlen(p), &doc, NULL) < 0 || doc.type != JSON_ARRAY)
                return 0;
        for (struct json_iter it = json_iter(&doc); json_next_item(&it, &item);)
                if (item.type != JSON_STRING)
                        return 0;
        int r = strv_ensure(&i->words);
        for (struct json_iter it = json_iter(&doc); r == 0 && json_next_item(&it, &item);) {
                struct buf b = BUF_INIT(DOCKERFILE_BYTES_MAX);
                if (n == DOCKERFILE_WORDS_MAX) {
                        instruction_fault(i, e, "more than %u words", DOCKERFILE_WORDS_MAX);
                        return -E2BIG;
                }
                r = json_string(&item, &b);
                if (r == 0 && memchr(buf_str(&b), 0, b.len))
                        r = instruction_fault(i, e, "a word with a NUL byte");
                if (r == 0)
                        r = strv_append_take(&i->words, &n, buf_steal(&b));
                buf_release(&b);
        }
        i->json = r == 0;
        return r < 0 ? r : 1;
}

/* ---- flags ---- */

static int take_flags(struct instruction *i, char escape, const char **rest, struct error *e) {
        size_t n = 0;
        for (;;) {
                while (is_blank(**rest))
                        (*rest)++;
                if (strncmp(*rest, "--", 2) != 0)
                        return 0;
                const char *end = word_end(*rest, escape);
                size_t len = strcspn(*rest + 2, "= \t");
                bool known = false;
                if (end - *rest == 2) {                  /* "--" alone ends them */
                        *rest = end;
                        return 0;
                }
                for (size_t k = 0; k < ARRAY_SIZE(rules[0].flags) && rules[i->kind].flags[k]; k++)
                        known |= strlen(rules[i->kind].flags[k]) == len && strncmp(rules[i->kind].flags[k], *rest + 2, len) == 0;
                if (!known)
                        return instruction_fault(i, e, "%s %.*s is not supported", instruction_kind_to_string((int)i->kind), (int)MIN2(len + 2, 64u), *rest);
                if (++n > DOCKERFILE_FLAGS_MAX)
                        return instruction_fault(i, e, "too many flags");
                int r = strv_push_n(&i->flags, *rest, (size_t)(end - *rest));
                if (r < 0)
                        return r;
                *rest = end;
        }
}

/* ---- here-documents ---- */

/* At "<<": its word, into name. 0: it is none (such as "<<<" or arithmetic). */
static int heredoc_word(const char *p, char name[static 256], bool *ret_expand, bool *ret_strip) {
        size_t n = 0;
        p += 2;
        *ret_strip = *p == '-';
        p += *ret_strip;
        char quote = *p == '"' || *p == '\'' ? *p++ : 0;
        while (n < 255 && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_' || *p == '.' || *p == '-'))
                name[n++] = *p++;
        name[n] = 0;
        *ret_expand = !quote;
        return n > 0 && (!quote || *p == quote) && (quote || !*p || strchr(" \t;|&>)", *p)) && name[0] > '9';     /* 1<<2 is arithmetic */
}

static int add_heredoc(struct instruction *i, struct lines *l, const char *name, bool expand, bool strip, struct error *e) {
        struct buf b = BUF_INIT(DOCKERFILE_BYTES_MAX);
        if (i->n_heredocs == DOCKERFILE_HEREDOCS_MAX)
                return instruction_fault(i, e, "more than %u here-documents", DOCKERFILE_HEREDOCS_MAX);
        int r = lines_heredoc(l, name, strip, &b);
        struct heredoc *more = r < 0 ? NULL : reallocarray(i->heredocs, i->n_heredocs + 1, sizeof *more);
        if (more) {
                i->heredocs = more;
                struct heredoc h = { .name = strdup(name), .len = b.len, .expand = expand };
                h.text = buf_steal(&b);
                i->heredocs[i->n_heredocs++] = h;
                r = h.name && h.text ? 0 : -ENOMEM;
        } else if (r == 0)
                r = -ENOMEM;
        buf_release(&b);
        return r == -EINVAL ? instruction_fault(i, e, "the here-document %s does not end", name) : r;
}

static int take_heredocs(struct instruction *i, struct lines *l, struct error *e) {
        char quote = 0;
        for (const char *p = i->rest; *p; p++) {
                char name[256];
                bool expand, strip;
                if (*p == l->escape && quote != '\'' && p[1]) {
                        p++;
                        continue;
                }
                if (quote || *p == '"' || *p == '\'') {
                        quote = quote ? (*p == quote ? 0 : quote) : *p;
                        continue;
                }
                if (p[0] != '<' || p[1] != '<')
                        continue;
                if (p[2] == '<') {                       /* a here-string */
                        p += 2;
                        continue;
                }
                if (!heredoc_word(p, name, &expand, &strip))
                        continue;
                int r = add_heredoc(i, l, name, expand, strip, e);
                if (r < 0)
                        return r;
                p++;
        }
        return 0;
}

/* ---- instructions ---- */

static bool remote(const char *s) {
        return strncasecmp(s, "http://", 7) == 0 || strncasecmp(s, "https://", 8) == 0 || strncasecmp(s, "git://", 6) == 0 || strncasecmp(s, "ssh://", 6) == 0 ||
               strncmp(s, "git@", 4) == 0;
}

static int check(struct instruction *i, struct error *e) {
        const struct rule *rule = &rules[i->kind];
        const char *name = instruction_kind_to_string((int)i->kind);
        size_t n = strv_len((const char *const *)i->words);
        if (i->kind == INSTRUCTION_ONBUILD)
                return instruction_fault(i, e, "ONBUILD is not supported: write its instruction into the Dockerfile that builds on this one");
        if (i->kind == INSTRUCTION_HEALTHCHECK && (n != 1 || strcasecmp(i->words[0], "NONE") != 0))
                return instruction_fault(i, e, "HEALTHCHECK is not supported, nothing here would run it: leave it out, or write HEALTHCHECK NONE");
        if (n < rule->min)
                return instruction_fault(i, e, "%s needs an argument", name);
        if (n > rule->max)
                return instruction_fault(i, e, "%s takes at most %zu arguments", name, rule->max);
        if (i->kind == INSTRUCTION_SHELL && !i->json)
                return instruction_fault(i, e, "SHELL takes a JSON list: SHELL [\"/bin/sh\", \"-c\"]");
        if ((i->kind == INSTRUCTION_COPY || i->kind == INSTRUCTION_ADD) && n < 2)
                return instruction_fault(i, e, "%s needs a source and a destination", name);
        if (i->kind == INSTRUCTION_FROM && n != 1 && (n != 3 || strcasecmp(i->words[1], "as") != 0))
                return instruction_fault(i, e, "FROM is written FROM image [AS name]");
        for (size_t k = 0; i->kind == INSTRUCTION_ADD && k + 1 < n; k++)
                if (remote(i->words[k]))
                        return instruction_fault(i, e, "ADD of an address is not supported: fetch it in a RUN, or put the file into the build context");
        const char *network = instruction_flag(i, "network");
        if (network && strcmp(network, "none") != 0 && strcmp(network, "default") != 0)
                return instruction_fault(i, e, "RUN --network=%.64s is not supported: none or default", network);
        return 0;
}

static int keyword(struct instruction *i, const char **text, struct error *e) {
        size_t n = 0;
        char name[16];
        while ((*text)[n] && !is_blank((*text)[n]))
                n++;
        for (size_t k = 0; k < n && k < sizeof name - 1; k++)
                name[k] = (char)((*text)[k] >= 'a' && (*text)[k] <= 'z' ? (*text)[k] - 'a' + 'A' : (*text)[k]);
        name[MIN2(n, sizeof name - 1)] = 0;
        int kind = n < sizeof name ? instruction_kind_from_string(name) : -1;
        if (kind < 0)
                return instruction_fault(i, e, "unknown instruction: %.*s", (int)MIN2(n, 64u), *text);
        i->kind = (enum instruction_kind)kind;
        *text += n;
        return 0;
}

static int parse_one(struct instruction *i, struct lines *l, const char *text, struct error *e) {
        int r = keyword(i, &text, e);
        r = r ? r : take_flags(i, l->escape, &text, e);
        if (r < 0)
                return r;
        while (is_blank(*text))
                text++;
        i->rest = strdup(text);
        if (!i->rest)
                return -ENOMEM;
        if (rules[i->kind].json)
                r = json_words(i, e);
        if (r == 0)
                r = split(i, l->escape, e);
        if (r < 0)
                return r;
        if (rules[i->kind].heredoc && !i->json)
                r = take_heredocs(i, l, e);
        return r < 0 ? r : check(i, e);
}

static int check_order(const struct dockerfile *d, struct error *e) {
        size_t stages = 0;
        for (size_t k = 0; k < d->n; k++) {
                const struct instruction *i = &d->instructions[k];
                if (i->kind == INSTRUCTION_FROM && ++stages > DOCKERFILE_STAGES_MAX)
                        return instruction_fault(i, e, "more than %u stages", DOCKERFILE_STAGES_MAX);
                if (stages == 0 && i->kind != INSTRUCTION_ARG)
                        return instruction_fault(i, e, "%s before the first FROM", instruction_kind_to_string((int)i->kind));
        }
        return stages > 0 ? 0 : error_say(e, -EINVAL, "dockerfile: there is no FROM");
}

static int parse(struct lines *l, struct dockerfile *d, struct error *e) {
        _cleanup_buf_ struct buf text = BUF_INIT(DOCKERFILE_BYTES_MAX);
        unsigned line = 0;
        int r = lines_directives(l, e);
        d->escape = l->escape;
        while (r == 0 && (r = lines_logical(l, &text, &line)) > 0) {
                if (d->n == DOCKERFILE_INSTRUCTIONS_MAX)
                        return error_say(e, -E2BIG, "dockerfile line %u: more than %u instructions", line, DOCKERFILE_INSTRUCTIONS_MAX);
                struct instruction *i = &d->instructions[d->n++];
                i->line = line;
                r = parse_one(i, l, buf_str(&text), e);
        }
        return r < 0 ? r : check_order(d, e);
}

int dockerfile_parse(const char *p, size_t n, struct dockerfile *ret, struct error *e) {
        struct dockerfile d = { 0 };
        struct lines l = { .p = p, .end = p + n, .escape = '\\' };
        if (n > DOCKERFILE_BYTES_MAX)
                return error_say(e, -E2BIG, "dockerfile: larger than %u bytes", DOCKERFILE_BYTES_MAX);
        if (memchr(p, 0, n))
                return error_say(e, -EINVAL, "dockerfile: holds a NUL byte");
        d.instructions = calloc(DOCKERFILE_INSTRUCTIONS_MAX, sizeof *d.instructions);
        int r = d.instructions ? parse(&l, &d, e) : -ENOMEM;
        if (r < 0) {
                dockerfile_release(&d);
                return r == -ENOMEM ? error_set(e, r, "dockerfile") : r;
        }
        *ret = d;
        return 0;
}

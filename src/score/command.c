/* Classification of test commands: see command.h. The splitter is a small part of a POSIX shell's: it gives up (returns 1) at
 * the first thing that a shell would act upon, so what it does accept means the same to a shell, word for word. */
#include "score/command.h"

#include <ctype.h>

#include "score/patch_name.h"

static const char *const command_kind_names[] = {
        [COMMAND_LAUNCHED] = "launched", [COMMAND_VERBATIM] = "verbatim", [COMMAND_BUILT] = "built",
        [COMMAND_ENTRY] = "entry",
};
STRING_TABLE(command_kind, command_kind_names, COMMAND_KIND_MAX)

static void redirects_free(struct redirect *r, size_t n) {
        for (size_t i = 0; i < n; i++)
                free(r[i].target);
}

/* ---- splitting ------------------------------------------------------------------------------------------------ */

#define SHELL_SYNTAX 1

struct splitter {
        const char *p;                  /* the next byte */
        struct buf word;
        bool quoted;                    /* the word had quotes: it exists even when empty */
        bool pattern;                   /* an unquoted bracket: fine in a test id only */
        char **words; size_t n, alloc;
        struct redirect *redirects; size_t n_redirects;
};

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool ends_word(char c) { return !c || is_blank(c) || c == '\n' || c == '\r' || strchr("|&;()<>", c); }

static int single_quoted(struct splitter *s) {
        const char *end = strchr(s->p, '\'');
        if (!end)
                return SHELL_SYNTAX;
        int r = buf_add(&s->word, s->p, (size_t)(end - s->p));
        s->p = end + 1;
        return r;
}

static int double_quoted(struct splitter *s) {
        for (;;) {
                char c = *s->p++;
                if (!c || c == '$' || c == '`')
                        return SHELL_SYNTAX;
                if (c == '"')
                        return 0;
                if (c == '\\') {
                        if (*s->p == '\n') {
                                s->p++;
                                continue;
                        }
                        if (*s->p && strchr("$`\"\\", *s->p))
                                c = *s->p++;
                }
                int r = buf_addc(&s->word, c);
                if (r < 0)
                        return r;
        }
}

/* One unquoted character, already taken. */
static int unquoted(struct splitter *s, char c) {
        if (c == '\\') {
                if (!*s->p)
                        return SHELL_SYNTAX;
                if (*s->p == '\n') {
                        s->p++;
                        return 0;
                }
                s->quoted = true;
                return buf_addc(&s->word, *s->p++);
        }
        if (strchr("$`*?", c))
                return SHELL_SYNTAX;
        if (c == '[')
                s->pattern = true;
        if (s->word.len == 0 && !s->quoted && strchr("~#", c))
                return SHELL_SYNTAX;
        return buf_addc(&s->word, c);
}

/* Reads one word into s->word; s->p stands at its first byte. */
static int read_word(struct splitter *s) {
        int r = 0;
        buf_reset(&s->word);
        s->quoted = s->pattern = false;
        while (r == 0 && !ends_word(*s->p)) {
                char c = *s->p++;
                if (c == '\'') {
                        s->quoted = true;
                        r = single_quoted(s);
                } else if (c == '"') {
                        s->quoted = true;
                        r = double_quoted(s);
                } else
                        r = unquoted(s, c);
        }
        if (r == 0 && s->pattern && !strstr(buf_str(&s->word), "::"))
                return SHELL_SYNTAX;
        return r;
}

static int push_word(struct splitter *s) {
        if (s->n + 2 > s->alloc) {
                size_t want = s->alloc ? s->alloc * 2 : 16;
                char **grown = realloc(s->words, want * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                s->words = grown;
                s->alloc = want;
        }
        if (s->n >= COMMAND_WORDS_MAX)
                return SHELL_SYNTAX;
        char *w = strdup(buf_str(&s->word));
        if (!w)
                return -ENOMEM;
        s->words[s->n++] = w;
        s->words[s->n] = NULL;
        return 0;
}

static bool is_number(const char *w) {
        return *w && strspn(w, "0123456789") == strlen(w) && strlen(w) <= 2;
}

/* At `<` or `>`; `fd` is the number that stood before it, or -1. */
static int read_redirect(struct splitter *s, int fd) {
        struct redirect r = {.op = REDIRECT_READ, .fd = fd >= 0 ? fd : *s->p == '>'};
        if (s->n_redirects == COMMAND_REDIRECTS_MAX)
                return SHELL_SYNTAX;
        if (*s->p++ == '>') {
                r.op = *s->p == '>' ? REDIRECT_APPEND : *s->p == '&' ? REDIRECT_DUP : REDIRECT_WRITE;
                if (r.op != REDIRECT_WRITE || *s->p == '|')
                        s->p++;
        } else if (*s->p == '<' || *s->p == '>' || *s->p == '&')
                return SHELL_SYNTAX;
        while (is_blank(*s->p))
                s->p++;
        int q = read_word(s);
        if (q != 0)
                return q;
        if (s->word.len == 0 || (r.op == REDIRECT_DUP && !is_number(s->word.data)) || r.fd > 2)
                return SHELL_SYNTAX;
        r.target = strdup(s->word.data);
        if (!r.target)
                return -ENOMEM;
        s->redirects[s->n_redirects++] = r;
        return 0;
}

static int split_words(struct splitter *s) {
        for (;;) {
                while (is_blank(*s->p) || (s->p[0] == '\\' && s->p[1] == '\n'))
                        s->p += *s->p == '\\' ? 2 : 1;
                if (!*s->p)
                        return 0;
                if (*s->p == '\n' || *s->p == '\r')             /* only white space may follow: else it is a second command */
                        return s->p[strspn(s->p, " \t\r\n")] ? SHELL_SYNTAX : 0;
                int r;
                if (*s->p == '<' || *s->p == '>')
                        r = read_redirect(s, -1);
                else if (ends_word(*s->p))
                        return SHELL_SYNTAX;
                else {
                        r = read_word(s);
                        if (r == 0 && !s->quoted && (*s->p == '<' || *s->p == '>') && is_number(buf_str(&s->word)))
                                r = read_redirect(s, (int)strtol(s->word.data, NULL, 10));
                        else if (r == 0)
                                r = push_word(s);
                }
                if (r != 0)
                        return r;
        }
}

int command_split(const char *text, char ***ret, struct redirect redirects[static COMMAND_REDIRECTS_MAX], size_t *ret_n) {
        struct splitter s = {.p = text + strspn(text, " \t\r\n"), .redirects = redirects};
        buf_init(&s.word, strlen(text) + 2);
        int r = split_words(&s);
        buf_release(&s.word);
        /* An assignment before the program is the shell's business. */
        if (r == 0 && (s.n == 0 || strchr(s.words[0], '=') || strcmp(s.words[0], "!") == 0 || strcmp(s.words[0], "{") == 0))
                r = SHELL_SYNTAX;
        if (r != 0) {
                redirects_free(redirects, s.n_redirects);
                strv_free(s.words);
                return r;
        }
        *ret = s.words;
        *ret_n = s.n_redirects;
        return 0;
}

/* ---- which runner ----------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

/* Our reporter needs Python 3. */
static bool is_python(const char *program) {
        const char *b = base_name(program);
        if (strncmp(b, "python", 6) != 0)
                return false;
        b += 6;
        return !*b || (b[0] == '3' && strspn(b, "0123456789.") == strlen(b));
}

/* Interpreter options that may stand before -m: those that change neither what -m means nor where modules come from. */
static bool is_plain_option(const char *w) {
        return w[0] == '-' && w[1] && strspn(w + 1, "BbdOquv") == strlen(w + 1);
}
static bool takes_value(const char *w) { return strcmp(w, "-W") == 0 || strcmp(w, "-X") == 0; }

/* The runner that these words start under our launcher, or NULL. */
static const struct framework *runner_of(char **argv, size_t *ret_at, bool *ret_console) {
        const char *b = base_name(argv[0]);
        if (strcmp(b, "pytest") == 0 || strcmp(b, "py.test") == 0) {
                *ret_at = 0;
                *ret_console = true;
                return &framework_pytest;
        }
        if (!is_python(argv[0]))
                return NULL;
        size_t i = 1;
        while (argv[i] && (is_plain_option(argv[i]) || takes_value(argv[i]) || strncmp(argv[i], "-W", 2) == 0 || strncmp(argv[i], "-X", 2) == 0)) {
                if (takes_value(argv[i]) && !argv[++i])
                        return NULL;
                i++;
        }
        if (!argv[i] || strncmp(argv[i], "-m", 2) != 0)
                return NULL;
        const char *module = argv[i][2] ? argv[i] + 2 : argv[++i];
        const struct framework *f = !module ? NULL : strcmp(module, "pytest") == 0 || strcmp(module, "py.test") == 0 ? &framework_pytest
                : strcmp(module, "unittest") == 0 ? &framework_unittest : NULL;
        *ret_at = i;
        *ret_console = false;
        return f;
}

static int parse_text(const struct score_request *q, struct command *c) {
        size_t n;
        int r = command_split(q->test_command, &c->argv, c->redirects, &n);
        if (r < 0)
                return r;
        if (r == 0) {
                c->n_redirects = n;
                c->framework = runner_of(c->argv, &c->runner_at, &c->console);
                if (c->framework)
                        return 0;
                c->argv = strv_free(c->argv);
                redirects_free(c->redirects, c->n_redirects);
                c->n_redirects = 0;
        }
        c->kind = COMMAND_VERBATIM;
        const struct framework *f = c->framework = q->test_framework[0] ? framework_by_name(q->test_framework) : framework_of_command(q->test_command);
        r = command_with_options(q->test_command, f, &c->run_text);
        c->reports = f && f->report && (r > 0 || f->collect);
        return r < 0 ? r : 0;
}

static bool is_given(const struct score_request *q) {
        return q->test_command[strspn(q->test_command, " \t\r\n")];
}

/* For a request without a command; NULL: there is none that we could launch. */
static const struct framework *framework_to_build(const struct score_request *q) {
        const char *const *first = (const char *const *)(strv_len((const char *const *)q->fail_to_pass) ? q->fail_to_pass : q->pass_to_pass);
        const struct framework *f = q->test_framework[0] ? framework_by_name(q->test_framework) : first ? framework_of_ids(first) : NULL;
        return f && f->launched ? f : NULL;
}

bool command_is_known(const struct score_request *q) {
        return is_given(q) || framework_to_build(q);
}

/* Words for ids without a command. The ids themselves go in the plan's list, not here: see run.h. */
static int build(const struct score_request *q, struct command *c) {
        c->kind = COMMAND_BUILT;
        c->framework = framework_to_build(q);
        if (!c->framework)
                return -EINVAL;
        const char *const words[] = {"python3", "-m", c->framework->name};
        c->argv = calloc(ARRAY_SIZE(words) + 1, sizeof(*c->argv));
        for (size_t i = 0; c->argv && i < ARRAY_SIZE(words); i++)
                if (!(c->argv[i] = strdup(words[i])))
                        return -ENOMEM;
        c->runner_at = 2;
        return c->argv ? 0 : -ENOMEM;
}

static int parse_entry(const struct score_request *q, struct command *c) {
        c->kind = COMMAND_ENTRY;
        c->framework = q->test_framework[0] ? framework_by_name(q->test_framework) : NULL;
        int r = strv_push(&c->argv, "/bin/bash");
        r = r < 0 ? r : strv_push(&c->argv, "-c");
        return r < 0 ? r : strv_push(&c->argv, q->entry_command);
}

int command_parse(const struct score_request *q, struct command *ret, struct error *e) {
        struct command c = {.kind = COMMAND_LAUNCHED, .text = strdup(q->test_command)};
        int r = c.text ? 0 : -ENOMEM;
        if (r == 0)
                r = q->mode == MODE_IMAGE && q->entry_command[0] ? parse_entry(q, &c) : is_given(q) ? parse_text(q, &c) : build(q, &c);
        if (r < 0) {
                command_release(&c);
                return r == -EINVAL ? error_say(e, r, "test_command: missing, and no test_framework or ids to build one from")
                                    : error_set(e, r, "test_command");
        }
        *ret = c;
        return 0;
}

const char *command_config(const struct command *c) {
        if (!command_has_reporter(c) || c->framework != &framework_pytest)
                return NULL;
        const char *path = NULL;
        for (char **w = c->argv + c->runner_at + 1; *w; w++) {
                if ((strcmp(*w, "-c") == 0 || strcmp(*w, "--config-file") == 0) && w[1])
                        path = *++w;
                else if (strncmp(*w, "--config-file=", 14) == 0)
                        path = *w + 14;
                else if (strncmp(*w, "-c", 2) == 0)
                        path = *w + 2;
        }
        while (path && strncmp(path, "./", 2) == 0)
                path += 2;
        return path && !name_refusal(path) ? path : NULL;
}

void command_release(struct command *c) {
        free(TAKE_PTR(c->text));
        free(TAKE_PTR(c->run_text));
        c->argv = strv_free(c->argv);
        redirects_free(c->redirects, c->n_redirects);
        c->n_redirects = 0;
}

/* Options behind a framework's words in the text of a command: see command.h.
 *
 * The text is read as a shell would as far as it takes to tell where a command begins: at the start, and behind `;`, `&`, newlines, `(` and
 * `{`. Before the words may stand assignments, interpreters and what fetches programs (`CI=1 npx jest`, `python3 manage.py test`). Where
 * the output goes into a pipe, or the text holds what this cannot read, nothing is put in. */
#include <ctype.h>

#include "score/command.h"
#include "score/text.h"

#define OPTIONS_PLACES_MAX 16           /* more of a text's commands than this stay as they are */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool begins_command(char c) { return c == ';' || c == '&' || c == '\n' || c == '|' || c == '(' || c == '{' || c == '!'; }

/* The end of the word at p; NULL: a quote stays open. */
static const char *word_end(const char *p) {
        for (; *p && !is_blank(*p) && !strchr(";&|\n()<>", *p); p++) {
                if (*p == '\\' && p[1])
                        p++;
                else if (*p == '\'' || *p == '"') {
                        char quote = *p++;
                        for (; *p && *p != quote; p++)
                                if (quote == '"' && *p == '\\' && p[1])
                                        p++;
                        if (!*p)
                                return NULL;
                }
        }
        return p;
}

static bool is_one_of(struct slice w, const char *const *all) {
        for (; *all; all++)
                if (slice_is(w, *all))
                        return true;
        return false;
}

static struct slice base_of(struct slice w) {
        const char *slash = memrchr(w.p, '/', w.n);
        return slash ? slice_from(w, (size_t)(slash - w.p) + 1) : w;
}

/* May the command's own word follow this one? */
static bool is_before(struct slice w, bool first) {
        static const char *const all[] = {"npx", "yarn", "pnpm", "bunx", "exec", "run", "env", "time", "nice", "then", "do", "else", "if", "xvfb-run", NULL};
        size_t name = 0;
        while (name < w.n && (isalnum((unsigned char)w.p[name]) || w.p[name] == '_'))
                name++;
        if (name && name < w.n && w.p[name] == '=')
                return true;
        return is_one_of(w, all) || slice_starts(base_of(w), "python") || (!first && w.n && w.p[0] == '-');
}

/* Behind `phrase` if its words stand at p; the first may have directories before it. NULL: they do not. */
static const char *phrase_end(const char *p, const char *phrase) {
        for (bool first = true;; first = false) {
                size_t n = strcspn(phrase, " ");
                const char *end = word_end(p);
                struct slice w = {p, end ? (size_t)(end - p) : 0};
                if (first)
                        w = base_of(w);
                if (!end || w.n != n || memcmp(w.p, phrase, n) != 0)
                        return NULL;
                if (!phrase[n])
                        return end;
                phrase += n + 1;
                for (p = end; is_blank(*p); p++)
                        ;
        }
}

static const char *any_phrase_end(const char *p, const char *const *words) {
        const char *end = NULL;
        for (; !end && *words; words++)
                end = phrase_end(p, *words);
        return end;
}

/* Where options go in the text. */
static size_t find_places(const char *text, const char *const *words, const char *places[static OPTIONS_PLACES_MAX]) {
        enum { START, BEFORE, ARGUMENTS } at = START;
        size_t n = 0;
        for (const char *p = text; *p && n < OPTIONS_PLACES_MAX;) {
                if (begins_command(*p) && !(p > text && p[-1] == '>')) {
                        at = START;
                        p++;
                } else if (is_blank(*p) || strchr(")<>", *p))
                        p++;
                else if (*p == '#')
                        p += strcspn(p, "\n");
                else {
                        const char *end = word_end(p), *behind = end && at != ARGUMENTS ? any_phrase_end(p, words) : NULL;
                        if (!end)
                                return n;
                        if (behind)
                                places[n++] = behind;
                        at = !behind && at != ARGUMENTS && is_before((struct slice){p, (size_t)(end - p)}, at == START) ? BEFORE : ARGUMENTS;
                        p = behind ? behind : end > p ? end : p + 1;
                }
        }
        return n;
}

static bool has_pipe(const char *text) {
        for (; (text = strchr(text, '|')); text += 2)
                if (text[1] != '|')
                        return true;
        return false;
}

static bool is_given(const char *text, const struct framework *f) {
        for (const char *const *w = f->unless; w && *w; w++)
                if (text_has_word(text, *w))
                        return true;
        return false;
}

int command_with_options(const char *text, const struct framework *f, char **ret) {
        const char *places[OPTIONS_PLACES_MAX];
        if (!f || !f->options || is_given(text, f) || has_pipe(text) || strstr(text, "<<") || strlen(text) > COMMAND_OPTIONS_TEXT_MAX)
                return 0;
        size_t n = find_places(text, f->words, places);
        if (n == 0 || (n > 1 && f->report))     /* several commands would write over one report */
                return 0;
        _cleanup_buf_ struct buf b = BUF_INIT(strlen(text) + n * (strlen(f->options) + 1) + 1);
        const char *from = text;
        int r = 0;
        for (size_t i = 0; r == 0 && i < n; i++) {
                r = buf_add(&b, from, (size_t)(places[i] - from));
                if (r == 0)
                        r = buf_addc(&b, ' ');
                if (r == 0)
                        r = buf_add(&b, f->options, strlen(f->options));
                from = places[i];
        }
        if (r == 0)
                r = buf_add(&b, from, strlen(from));
        char *made = r == 0 ? strndup(buf_str(&b), b.len) : NULL;
        if (!made)
                return -ENOMEM;
        *ret = made;
        return 1;
}

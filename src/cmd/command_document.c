/* What the tables of the verbs say, for people (--help), man(1) and shells. */
#include <string.h>

#include "cmd/command.h"

#define HELP_WIDTH 120
#define HELP_LEFT 28

static const struct option_row help_row = { "--help", NULL, OPTION_SWITCH, 0, 0, COMPLETE_NONE, "this text" };

static size_t n_rows(const struct command *c) {
        size_t n = 0;
        if (c->settings)
                c->settings(&n);
        return c->n_options + c->n_common + n + 1;
}

static const struct option_row *row(const struct command *c, size_t i) {
        if (i < c->n_options)
                return &c->options[i];
        i -= c->n_options;
        if (i < c->n_common)
                return &c->common[i];
        i -= c->n_common;
        size_t n = 0;
        const struct option_row *settings = c->settings ? c->settings(&n) : NULL;
        return i < n ? &settings[i] : &help_row;
}

/* The synopsis line by line: false at its end. */
static bool next_line(const char **at, const char **ret, int *ret_len) {
        if (!*at)
                return false;
        const char *end = strchr(*at, '\n');
        *ret = *at;
        *ret_len = end ? (int)(end - *at) : (int)strlen(*at);
        *at = end ? end + 1 : NULL;
        return true;
}

/* Words of a text to HELP_WIDTH columns, lines after the first indented. */
static void wrapped(struct buf *b, const char *text, size_t indent) {
        size_t column = indent;
        for (const char *p = text; *p;) {
                size_t n = strcspn(p, " ");
                if (column > indent && column + 1 + n > HELP_WIDTH) {
                        buf_printf(b, "\n%*s", (int)indent, "");
                        column = indent;
                } else if (column > indent) {
                        buf_addc(b, ' ');
                        column++;
                }
                buf_add(b, p, n);
                column += n;
                p += n;
                p += strspn(p, " ");
        }
        buf_addc(b, '\n');
}

int command_help(const struct command *c, struct buf *ret) {
        const char *at = c->synopsis, *line, *lead = "usage:";
        int n;
        while (next_line(&at, &line, &n)) {
                buf_printf(ret, "%s brig %s%s%.*s\n", lead, c->name, n ? " " : "", n, line);
                lead = "      ";
        }
        buf_printf(ret, "\n%c%s.\n", c->doc[0] - ('a' <= c->doc[0] && c->doc[0] <= 'z' ? 32 : 0), c->doc + 1);
        if (c->text)
                buf_printf(ret, "%s\n", c->text);
        buf_adds(ret, "\n");
        for (size_t i = 0; i < n_rows(c); i++) {
                const struct option_row *o = row(c, i);
                char left[96];
                snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
                buf_printf(ret, "  %-*s ", HELP_LEFT, left);
                if (strlen(left) > HELP_LEFT)
                        buf_printf(ret, "\n%*s", HELP_LEFT + 3, "");
                wrapped(ret, o->doc, HELP_LEFT + 3);
        }
        return buf_printf(ret, "\nExit status: %s.\n", c->status);
}

static bool in_group(const struct command *c, const char *group) {
        size_t n = strlen(group);
        return strncmp(c->name, group, n) == 0 && c->name[n] == ' ';
}

int commands_help(const char *group, struct buf *ret) {
        buf_printf(ret, "usage: brig %s%sVERB [OPTION...]\n\n", group ? group : "", group ? " " : "");
        for (size_t i = 0; commands[i]; i++)
                if (!commands[i]->hidden && (!group || in_group(commands[i], group)))
                        buf_printf(ret, "  %-16s %s\n", commands[i]->name, commands[i]->doc);
        return buf_printf(ret, "\nbrig VERB --help says more%s.\n", group ? "" : "; brig --version prints the version");
}

/* ---- man(1) ------------------------------------------------------------------------------------------------------------- */

/* Text as roff takes it: no line begins with a request, no escape. */
static int roff(struct buf *b, const char *s, size_t n) {
        bool start = true;
        int r = 0;
        for (size_t i = 0; i < n && r == 0; i++) {
                if (start && (s[i] == '.' || s[i] == '\''))
                        r = buf_adds(b, "\\&");
                if (r == 0)
                        r = s[i] == '\\' ? buf_adds(b, "\\e") : s[i] == '-' ? buf_adds(b, "\\-") : buf_addc(b, s[i]);
                start = s[i] == '\n';
        }
        return r;
}

static void roff_text(struct buf *b, const char *s) {
        while (*s) {                   /* paragraphs */
                const char *end = strstr(s, "\n\n");
                size_t n = end ? (size_t)(end - s) : strlen(s);
                roff(b, s, n);
                buf_adds(b, "\n");
                s += n;
                if (end) {
                        buf_adds(b, ".PP\n");
                        s += 2;
                }
        }
}

static void roff_name(struct buf *b, const char *name) {
        buf_adds(b, "brig\\-");
        for (const char *p = name; *p; p++)
                buf_adds(b, *p == ' ' || *p == '-' ? "\\-" : (char[]){ *p, 0 });
}

static void manual_head(struct buf *b, const char *title) {
        buf_printf(b, ".TH \"%s\" 1 \"\" \"Brig %s\" \"Brig\"\n.SH NAME\n", title, BRIG_VERSION);
}

int command_manual(const struct command *c, struct buf *ret) {
        char title[64];
        snprintf(title, sizeof title, "BRIG-%s", c->name);
        for (char *p = title; *p; p++)
                *p = (char)(*p == ' ' ? '-' : *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
        manual_head(ret, title);
        roff_name(ret, c->name);
        buf_printf(ret, " \\- %s\n.SH SYNOPSIS\n", c->doc);
        const char *at = c->synopsis, *line;
        int n;
        while (next_line(&at, &line, &n)) {
                buf_printf(ret, ".B brig %s\n", c->name);
                roff(ret, line, (size_t)n);
                buf_adds(ret, "\n.br\n");
        }
        if (c->text) {
                buf_adds(ret, ".SH DESCRIPTION\n");
                roff_text(ret, c->text);
        }
        buf_adds(ret, ".SH OPTIONS\n");
        for (size_t i = 0; i < n_rows(c); i++) {
                const struct option_row *o = row(c, i);
                buf_adds(ret, ".TP\n\\fB");
                roff(ret, o->name, strlen(o->name));
                buf_adds(ret, "\\fR");
                if (o->value) {
                        buf_adds(ret, " \\fI");
                        roff(ret, o->value, strlen(o->value));
                        buf_adds(ret, "\\fR");
                }
                buf_adds(ret, "\n");
                roff(ret, o->doc, strlen(o->doc));
                buf_adds(ret, "\n");
        }
        buf_adds(ret, ".SH EXIT STATUS\n");
        roff(ret, c->status, strlen(c->status));
        return buf_adds(ret, ".\n.SH SEE ALSO\n.BR brig (1)\n");
}

int commands_manual(struct buf *ret) {
        manual_head(ret, "BRIG");
        buf_adds(ret, "brig \\- a sandbox fleet: code that nobody trusts, and facts about it\n.SH SYNOPSIS\n.B brig\n\\fIVERB\\fR [\\fIOPTION\\fR...]\n.SH VERBS\n");
        for (size_t i = 0; commands[i]; i++) {
                if (commands[i]->hidden)
                        continue;
                buf_adds(ret, ".TP\n.BR ");
                roff_name(ret, commands[i]->name);
                buf_printf(ret, " (1)\n%s\n", commands[i]->doc);
        }
        return buf_adds(ret, ".SH ENVIRONMENT\n.TP\nBRIG_URL\nThe daemon that verbs speak to; http://127.0.0.1:9090 without.\n"
                             ".TP\nBRIG_API_TOKEN\nIts token; API_TOKEN without.\n");
}

/* ---- shells -------------------------------------------------------------------------------------------------------------- */

/* Words that a value may be, between spaces; "" when it is something else. */
static const char *words_of(const struct option_row *o, char *ret, size_t size) {
        ret[0] = 0;
        if (o->complete == COMPLETE_WORDS || o->kind == OPTION_OUTPUT)
                snprintf(ret, size, "%s", o->value);
        for (char *p = ret; *p; p++)
                if (*p == '|')
                        *p = ' ';
        return ret;
}

/* Shell words that print what a value may be: ids of sessions come from the daemon, by the program itself. */
static const char *lister(enum complete how) {
        switch (how) {
        case COMPLETE_SESSION: return "brig session ls -q 2>/dev/null";
        case COMPLETE_IMAGE: return "brig image ls -q 2>/dev/null";
        case COMPLETE_SNAPSHOT: return "brig snapshot ls -q 2>/dev/null";
        default: return NULL;
        }
}

static void bash_values(struct buf *b, const struct option_row *o, const char *verb) {
        char words[256];
        if (!o->value)
                return;
        buf_printf(b, "        '%s:%s') ", verb, o->name);
        if (words_of(o, words, sizeof words)[0])
                buf_printf(b, "COMPREPLY=($(compgen -W '%s' -- \"$cur\"))", words);
        else if (lister(o->complete))
                buf_printf(b, "COMPREPLY=($(compgen -W \"$(%s)\" -- \"$cur\"))", lister(o->complete));
        else
                buf_printf(b, "COMPREPLY=($(compgen -%c -- \"$cur\"))", o->complete == COMPLETE_DIRECTORY ? 'd' : 'f');
        buf_adds(b, "; return ;;\n");
}

static void bash_options(struct buf *b, const struct command *c) {
        buf_printf(b, "        '%s') words='", c->name);
        for (size_t i = 0; i < n_rows(c); i++)
                buf_printf(b, "%s%s", i ? " " : "", row(c, i)->name);
        buf_adds(b, "'");
        if (lister(c->argument))
                buf_printf(b, "; more=$(%s)", lister(c->argument));
        else if (c->argument == COMPLETE_FILE)
                buf_adds(b, "; files=1");
        buf_adds(b, " ;;\n");
}

/* Groups, each once, in the order of the table. */
static const char *group_at(size_t i, char *ret, size_t size) {
        const char *space = strchr(commands[i]->name, ' ');
        if (!space || commands[i]->hidden)
                return NULL;
        snprintf(ret, size, "%.*s", (int)(space - commands[i]->name), commands[i]->name);
        for (size_t k = 0; k < i; k++)
                if (in_group(commands[k], ret) && !commands[k]->hidden)
                        return NULL;
        return ret;
}

static void bash_verbs(struct buf *b, const char *group) {
        char first[64];
        for (size_t i = 0; commands[i]; i++) {
                const char *name = commands[i]->name, *space = strchr(name, ' ');
                if (commands[i]->hidden)
                        continue;
                if (group && in_group(commands[i], group))
                        buf_printf(b, "%s ", space + 1);
                else if (!group && (!space || group_at(i, first, sizeof first)))
                        buf_printf(b, "%s ", space ? first : name);
        }
}

int commands_complete_bash(struct buf *ret) {
        char group[64];
        buf_adds(ret, "# bash completion of brig\n_brig() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words='' more='' files=''\n"
                      "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '");
        bash_verbs(ret, NULL);
        buf_adds(ret, "--help --version' -- \"$cur\")); return; fi\n    case $verb in\n");
        for (size_t i = 0; commands[i]; i++) {
                if (!group_at(i, group, sizeof group))
                        continue;
                buf_printf(ret, "    %s) if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W '", group);
                bash_verbs(ret, group);
                buf_adds(ret, "--help' -- \"$cur\")); return; fi; verb=\"$verb ${COMP_WORDS[2]}\" ;;\n");
        }
        buf_adds(ret, "    esac\n    case \"$verb:$prev\" in\n");
        for (size_t i = 0; commands[i]; i++)
                for (size_t k = 0; !commands[i]->hidden && k < n_rows(commands[i]); k++)
                        bash_values(ret, row(commands[i], k), commands[i]->name);
        buf_adds(ret, "    esac\n    case $verb in\n");
        for (size_t i = 0; commands[i]; i++)
                if (!commands[i]->hidden)
                        bash_options(ret, commands[i]);
        return buf_adds(ret, "    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
                             "    *) if [ -n \"$files\" ]; then COMPREPLY=($(compgen -f -- \"$cur\")); else COMPREPLY=($(compgen -W \"$more\" -- \"$cur\")); fi ;;\n"
                             "    esac\n}\ncomplete -F _brig brig\n");
}

/* zsh reads bash's completions. */
int commands_complete_zsh(struct buf *ret) {
        buf_adds(ret, "#compdef brig\nautoload -U +X bashcompinit && bashcompinit\n");
        return commands_complete_bash(ret);
}

static void fish_quote(struct buf *b, const char *s) {
        buf_addc(b, '\'');
        for (; *s; s++)
                if (*s == '\'' || *s == '\\')
                        buf_printf(b, "\\%c", *s);
                else
                        buf_addc(b, *s);
        buf_addc(b, '\'');
}

static void fish_condition(struct buf *b, const char *name) {
        const char *space = strchr(name, ' ');
        buf_printf(b, " -n '__fish_seen_subcommand_from %.*s%s%s'", (int)(space ? (size_t)(space - name) : strlen(name)), name,
                   space ? "; and __fish_seen_subcommand_from" : "", space ? space : "");
}

static void fish_option(struct buf *b, const struct command *c, const struct option_row *o) {
        char words[256];
        buf_adds(b, "complete -c brig");
        fish_condition(b, c->name);
        buf_printf(b, o->name[1] == '-' ? " -l %s" : " -s %s", o->name + (o->name[1] == '-' ? 2 : 1));
        if (o->value)
                buf_adds(b, o->complete == COMPLETE_FILE || o->complete == COMPLETE_DIRECTORY ? " -r -F" : " -x");
        if (o->value && words_of(o, words, sizeof words)[0])
                buf_printf(b, " -a '%s'", words);
        else if (lister(o->complete))
                buf_printf(b, " -a '(%s)'", lister(o->complete));
        buf_adds(b, " -d ");
        fish_quote(b, o->doc);
        buf_adds(b, "\n");
}

int commands_complete_fish(struct buf *ret) {
        char group[64];
        buf_adds(ret, "# fish completion of brig\ncomplete -c brig -f\n");
        for (size_t i = 0; commands[i]; i++) {
                const struct command *c = commands[i];
                const char *space = strchr(c->name, ' ');
                if (c->hidden)
                        continue;
                if (group_at(i, group, sizeof group))
                        buf_printf(ret, "complete -c brig -n __fish_use_subcommand -a %s\n", group);
                if (space)
                        buf_printf(ret, "complete -c brig -n '__fish_seen_subcommand_from %.*s' -a %s -d ", (int)(space - c->name), c->name, space + 1);
                else
                        buf_printf(ret, "complete -c brig -n __fish_use_subcommand -a %s -d ", c->name);
                fish_quote(ret, c->doc);
                buf_adds(ret, "\n");
                if (lister(c->argument)) {
                        buf_adds(ret, "complete -c brig");
                        fish_condition(ret, c->name);
                        buf_printf(ret, " -a '(%s)'\n", lister(c->argument));
                }
                for (size_t k = 0; k < n_rows(c); k++)
                        fish_option(ret, c, row(c, k));
        }
        return buf_adds(ret, "");
}

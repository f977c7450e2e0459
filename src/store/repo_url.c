#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "store/repo_url.h"

#define FIELD "repo_url"

static int refuse(struct error *e, const char *why) {
        return error_say(e, -EINVAL, FIELD ": %s", why);
}

static bool has_control(const char *s) {
        for (; *s; s++)
                if ((unsigned char)*s < ' ' || *s == 0x7f)
                        return true;
        return false;
}

static int add_lower(struct buf *b, const char *s, size_t n) {
        int r = 0;
        for (size_t i = 0; i < n && r == 0; i++)
                r = buf_addc(b, (char)tolower((unsigned char)s[i]));
        return r;
}

/* Hosts, users: nothing that a program's argument parser or a shell could take for something else. */
static bool word_ok(const char *s, size_t n) {
        if (n == 0 || s[0] == '-' || s[0] == '.')
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)s[i]) && !strchr("-._", s[i]))
                        return false;
        return true;
}

static bool host_ok(const char *s, size_t n) {
        if (n > 2 && s[0] == '[' && s[n - 1] == ']')      /* an IPv6 address */
                return strspn(s + 1, "0123456789abcdefABCDEF:.") == n - 2;
        return word_ok(s, n);
}

static int hex_value(char c) {
        if (c >= '0' && c <= '9')
                return c - '0';
        c = (char)tolower((unsigned char)c);
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decoded copy. -EINVAL for a bad escape or one that decodes to a control byte: credentials travel in lines. */
static int decode(const char *s, size_t n, char **ret) {
        char *out = malloc(n + 1);
        size_t k = 0;
        if (!out)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                int c = (unsigned char)s[i];
                if (c == '%') {
                        int hi = i + 2 < n ? hex_value(s[i + 1]) : -1;
                        int lo = i + 2 < n ? hex_value(s[i + 2]) : -1;
                        if (hi < 0 || lo < 0) {
                                free(out);
                                return -EINVAL;
                        }
                        c = hi * 16 + lo;
                        i += 2;
                }
                if (c < ' ' || c == 0x7f) {
                        free(out);
                        return -EINVAL;
                }
                out[k++] = (char)c;
        }
        out[k] = 0;
        *ret = out;
        return 0;
}

static void wipe(char **s) {
        if (*s) {
                explicit_bzero(*s, strlen(*s));
                free(*s);
        }
        *s = NULL;
}

void repo_url_release(struct repo_url *u) {
        free(u->canonical);
        free(u->origin);
        free(u->path);
        wipe(&u->username);
        wipe(&u->password);
        *u = (struct repo_url){ 0 };
}

/* ---- local ---- */

/* Without "." components, doubled and trailing slashes. ".." stays out: what it means depends on links. */
static int parse_local(const char *path, struct repo_url *u, struct error *e) {
        struct buf b = BUF_INIT(REPO_URL_MAX + 1), url = BUF_INIT(REPO_URL_MAX + 16);
        int r = 0;
        for (const char *c = path; *c && r == 0; c += strcspn(c, "/")) {
                c += strspn(c, "/");
                size_t n = strcspn(c, "/");
                if (n == 2 && c[0] == '.' && c[1] == '.')
                        r = refuse(e, "a local path may not contain '..'");
                else if (n > 0 && !(n == 1 && c[0] == '.')) {
                        r = buf_addc(&b, '/');
                        r = r ? r : buf_add(&b, c, n);
                }
        }
        if (r == 0 && b.len == 0)
                r = refuse(e, "the root directory is not a repository");
        if (r == 0)
                r = buf_printf(&url, "file://%s", buf_str(&b));
        if (r == 0) {
                u->path = buf_steal(&b);
                u->canonical = buf_steal(&url);
                r = u->path && u->canonical ? 0 : -ENOMEM;
        }
        buf_release(&b);
        buf_release(&url);
        return r;
}

/* ---- with a scheme ---- */

static const struct scheme { const char *name; enum repo_kind kind; const char *port; } schemes[] = {
        { "http", REPO_HTTP, "80" }, { "https", REPO_HTTP, "443" }, { "git", REPO_GIT, "9418" }, { "ssh", REPO_SSH, "22" },
};

struct authority { const char *user, *host, *port; size_t user_len, host_len, port_len; const char *password; size_t password_len; };

static void split_authority(const char *s, size_t n, struct authority *a) {
        const char *at = memrchr(s, '@', n), *colon;
        *a = (struct authority){ 0 };
        if (at) {
                a->user = s;
                a->user_len = (size_t)(at - s);
                colon = memchr(s, ':', a->user_len);
                if (colon) {
                        a->password = colon + 1;
                        a->password_len = (size_t)(at - colon) - 1;
                        a->user_len = (size_t)(colon - s);
                }
                n -= (size_t)(at + 1 - s);
                s = at + 1;
        }
        a->host = s;
        a->host_len = n;
        size_t search = n;
        while (search > 0 && s[search - 1] != ']' && s[search - 1] != ':')
                search--;
        if (search > 0 && s[search - 1] == ':') {
                a->host_len = search - 1;
                a->port = s + search;
                a->port_len = n - search;
        }
}

static int check_authority(const struct scheme *sc, const struct authority *a, struct error *e) {
        if (!host_ok(a->host, a->host_len))
                return refuse(e, "not a host name");
        if (a->port && (a->port_len == 0 || a->port_len > 5 || strspn(a->port, "0123456789") < a->port_len))
                return refuse(e, "not a port number");
        if (sc->kind == REPO_GIT && a->user)
                return refuse(e, "git:// takes no user");
        if (sc->kind == REPO_SSH && a->password)
                return refuse(e, "ssh:// takes no password");
        if (sc->kind == REPO_SSH && a->user && !word_ok(a->user, a->user_len))
                return refuse(e, "not a user name");
        return 0;
}

static int add_origin(struct buf *b, const struct scheme *sc, const struct authority *a) {
        int r = buf_printf(b, "%s://", sc->name);
        if (r == 0 && sc->kind == REPO_SSH && a->user) {
                r = buf_add(b, a->user, a->user_len);
                r = r ? r : buf_addc(b, '@');
        }
        if (r == 0)
                r = add_lower(b, a->host, a->host_len);
        bool usual = a->port_len == strlen(sc->port) && a->port && memcmp(a->port, sc->port, a->port_len) == 0;
        if (r == 0 && a->port && !usual) {
                r = buf_addc(b, ':');
                r = r ? r : buf_add(b, a->port, a->port_len);
        }
        return r;
}

static int take_credentials(const struct authority *a, struct repo_url *u, struct error *e) {
        int r = 0;
        if (a->user_len > 0)
                r = decode(a->user, a->user_len, &u->username);
        if (r == 0 && a->password_len > 0)
                r = decode(a->password, a->password_len, &u->password);
        return r == -EINVAL ? refuse(e, "badly encoded credentials") : r;
}

static int parse_remote(const struct scheme *sc, const char *rest, struct repo_url *u, struct error *e) {
        struct buf b = BUF_INIT(REPO_URL_MAX + 16), origin = BUF_INIT(REPO_URL_MAX + 16);
        struct authority a;
        size_t n = strcspn(rest, "/?#");
        const char *path = rest + n;
        size_t path_len = strlen(path);
        split_authority(rest, n, &a);
        int r = check_authority(sc, &a, e);
        while (path_len > 0 && path[path_len - 1] == '/')
                path_len--;
        if (r == 0 && (path_len == 0 || path[0] != '/'))
                r = refuse(e, "no path behind the host");
        if (r == 0 && sc->kind == REPO_HTTP)
                r = take_credentials(&a, u, e);
        r = r ? r : add_origin(&origin, sc, &a);
        r = r ? r : buf_add(&b, buf_str(&origin), origin.len);
        r = r ? r : buf_add(&b, path, path_len);
        if (r == 0) {
                u->kind = sc->kind;
                u->canonical = buf_steal(&b);
                if (sc->kind == REPO_HTTP)
                        u->origin = buf_steal(&origin);
                r = u->canonical && (u->origin || sc->kind != REPO_HTTP) ? 0 : -ENOMEM;
        }
        buf_release(&b);
        buf_release(&origin);
        return r;
}

/* [user@]host:path, as git reads it: a colon before the first slash. */
static int parse_scp(const char *text, struct repo_url *u, struct error *e) {
        const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
        if (!colon || (slash && slash < colon))
                return refuse(e, "neither a URL nor an absolute path");
        const char *at = memchr(text, '@', (size_t)(colon - text)), *host = at ? at + 1 : text, *path = colon + 1;
        size_t path_len = strlen(path);
        struct buf b = BUF_INIT(REPO_URL_MAX + 16);
        while (path_len > 0 && path[path_len - 1] == '/')
                path_len--;
        if ((at && !word_ok(text, (size_t)(at - text))) || !word_ok(host, (size_t)(colon - host)))
                return refuse(e, "not a user and host");
        if (path_len == 0 || path[0] == '-' || path[0] == ':')
                return refuse(e, "no path behind the host");
        /* Not rewritten to ssh://: there a path without a leading slash would mean another directory. */
        int r = buf_add(&b, text, (size_t)(host - text));
        r = r ? r : add_lower(&b, host, (size_t)(colon - host));
        r = r ? r : buf_addc(&b, ':');
        r = r ? r : buf_add(&b, path, path_len);
        if (r == 0) {
                u->kind = REPO_SSH;
                u->canonical = buf_steal(&b);
                r = u->canonical ? 0 : -ENOMEM;
        }
        buf_release(&b);
        return r;
}

static int parse(const char *text, struct repo_url *u, struct error *e) {
        if (text[0] == '/')
                return parse_local(text, u, e);
        const char *sep = strstr(text, "://"), *helper = strstr(text, "::");
        /* "::" is also part of an IPv6 address: that one stands behind a scheme. */
        if (helper && (!sep || helper < sep))
                return refuse(e, "transport helpers ('name::address') are not allowed");
        if (!sep)
                return parse_scp(text, u, e);
        size_t n = (size_t)(sep - text);
        if (n == 4 && strncasecmp(text, "file", 4) == 0) {
                const char *path = sep + 3;
                if (strncasecmp(path, "localhost/", 10) == 0)
                        path += 9;
                return path[0] == '/' ? parse_local(path, u, e) : refuse(e, "file:// needs an absolute path");
        }
        for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
                if (strlen(schemes[i].name) == n && strncasecmp(text, schemes[i].name, n) == 0)
                        return parse_remote(&schemes[i], sep + 3, u, e);
        return refuse(e, "the scheme must be file, http, https, git or ssh");
}

int repo_url_parse(const char *text, struct repo_url *ret, struct error *e) {
        struct repo_url u = { 0 };
        if (!text || text[0] == 0)
                return refuse(e, "empty");
        if (strlen(text) > REPO_URL_MAX)
                return refuse(e, "too long");
        if (text[0] == '-')
                return refuse(e, "begins with '-'");
        if (has_control(text) || strchr(text, ' '))
                return refuse(e, "holds a space or a control character");
        int r = parse(text, &u, e);
        if (r < 0) {
                repo_url_release(&u);
                return r == -ENOSPC ? refuse(e, "too long") : r;
        }
        *ret = u;
        return 0;
}

/* ---- commits and paths ---- */

int repo_commit_check(const char *commit, enum commit_kind *ret, struct error *e) {
        size_t n = commit ? strlen(commit) : 0;
        if (n == 0 || n > REPO_COMMIT_MAX)
                return error_say(e, -EINVAL, "base_commit: empty or longer than %d bytes", REPO_COMMIT_MAX);
        if ((n == 40 || n == 64) && strspn(commit, "0123456789abcdefABCDEF") == n) {
                *ret = COMMIT_HASH;
                return 0;
        }
        /* git's own rules for names of references (check-ref-format), less what would make them expressions */
        if (commit[0] == '-' || commit[0] == '/' || commit[n - 1] == '/' || commit[n - 1] == '.' || has_control(commit) ||
            strpbrk(commit, " ~^:?*[\\'\"") || strstr(commit, "..") || strstr(commit, "@{") || strstr(commit, "//") || strstr(commit, "/.") ||
            commit[0] == '.' || (n > 5 && strcmp(commit + n - 5, ".lock") == 0))
                return error_say(e, -EINVAL, "base_commit: neither a commit hash nor the name of a branch or tag");
        *ret = COMMIT_NAME;
        return 0;
}

bool repo_commit_is_short_hash(const char *commit) {
        size_t n = strlen(commit);
        return n >= 7 && n < 40 && strspn(commit, "0123456789abcdef") == n;
}

int repo_path_check(const char *path, struct error *e) {
        static const char *const taken[] = { "proc", "sys", "dev", "run", "tmp", "tree", "mirror", "source", "incoming", "etc", "bin", "lib", "lib64", "sbin" };
        size_t n = path ? strlen(path) : 0, first;
        if (n < 2 || n > 512 || path[0] != '/' || path[n - 1] == '/' || has_control(path))
                return error_say(e, -EINVAL, "repo_path: not an absolute path of at most 512 bytes");
        for (const char *c = path; c; c = strchr(c + 1, '/')) {
                size_t len = strcspn(c + 1, "/");
                if (len == 0 || len > 255 || (len == 1 && c[1] == '.') || (len == 2 && c[1] == '.' && c[2] == '.'))
                        return error_say(e, -EINVAL, "repo_path: empty, '.', '..' or too long a component");
        }
        first = strcspn(path + 1, "/");
        for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
                if (strlen(taken[i]) == first && memcmp(path + 1, taken[i], first) == 0)
                        return error_say(e, -EINVAL, "repo_path: /%s is not available", taken[i]);
        if (path[first + 1] == 0 && (strcmp(path, "/usr") == 0 || strcmp(path, "/opt") == 0 || strcmp(path, "/var") == 0 || strcmp(path, "/root") == 0 || strcmp(path, "/home") == 0))
                return error_say(e, -EINVAL, "repo_path: would hide %s of the image", path);
        return 0;
}

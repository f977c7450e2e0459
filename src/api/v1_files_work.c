/* What all requests about files have in common. See v1_files.h. */
#include <stdarg.h>
#include <string.h>

#include "api/v1_files.h"

/* ---- life ---------------------------------------------------------------------------------------------------------------------- */

struct files_work *files_work_new(struct http_request *r, void *user, int status) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        if (!ss)
                return NULL;
        struct files_work *w = calloc(1, sizeof *w);
        int x = w ? session_use_begin(ss, id, &w->use, NULL) : -ENOMEM;
        if (x < 0) {
                free(w);
                if (x == -ENOENT || x == -EAGAIN)
                        v1_unready(ss, r, id);
                else
                        v1_fault(r, x, NULL, NULL);
                return NULL;
        }
        w->r = r;
        w->api = user;
        w->fd = -1;
        w->status = status;
        return w;
}

void files_work_free(struct files_work *w) {
        if (w->r)
                http_on_close(w->r, NULL, NULL);
        if (w->call)
                files_cancel(w->call);
        session_use_end(&w->use);
        for (size_t i = 0; i < w->n_owned; i++)
                free(w->owned[i]);
        fd_close(w->fd);
        free(w->early);
        free(w);
}

void files_work_closed(void *user) {
        struct files_work *w = user;
        w->r = NULL;
        files_work_free(w);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------------ */

static const struct { const char *code; int status; const char *hint; } refusals[] = {
        { "not_found", 404, NULL },
        { "not_a_directory", 409, NULL },
        { "is_a_directory", 409, "use recursive, or the archive" },
        { "not_a_file", 409, "only regular files and directories can be worked on" },
        { "exists", 409, "say replace" },
        { "not_empty", 409, "say recursive" },
        { "too_many_links", 409, NULL },
        { "cross_device", 409, "a directory cannot be moved to another file system: copy it through an archive" },
        { "busy", 409, NULL },
        { "cancelled", 409, NULL },
        { "denied", 403, NULL },
        { "read_only", 403, NULL },
        { "bad_archive", 400, NULL },
        { "bad_pattern", 400, NULL },
        { "name_too_long", 400, NULL },
        { "too_large", 413, NULL },
        { "too_many", 413, "ask for less at a time" },
        { "disk_full", 507, "delete something, or start the session with a larger limits.disk_mb" },
};

void files_work_refuse(struct files_work *w, const struct files_result *res) {
        struct http_request *r = w->r;
        w->call = NULL;
        if (res->x != -EREMOTEIO) {
                files_work_fail(w, res->x);
                return;
        }
        int status = 500;
        const char *hint = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
                if (strcmp(refusals[i].code, res->code) == 0) {
                        status = refusals[i].status;
                        hint = refusals[i].hint;
                }
        http_on_close(r, NULL, NULL);
        v1_error(r, status, res->code, res->message[0] ? res->message : res->code, hint);
        w->r = NULL;
        files_work_free(w);
}

void files_work_fail(struct files_work *w, int x) {
        struct http_request *r = TAKE_PTR(w->r);
        http_on_close(r, NULL, NULL);
        if (x == -ESHUTDOWN)
                v1_error(r, 409, "ended", "The session has ended", NULL);
        else if (x == -ETIME)
                v1_error(r, 504, "timeout", "It took too long", "ask for less at a time");
        else if (x == -EFBIG || x == -E2BIG)
                v1_error(r, 413, "too_many", "The answer is too large", "ask for less at a time");
        else
                v1_fault(r, x, NULL, NULL);
        files_work_free(w);
}

static bool invalid(struct files_work *w, const char *field, const char *why) {
        char text[160];
        struct http_request *r = TAKE_PTR(w->r);
        http_on_close(r, NULL, NULL);
        snprintf(text, sizeof text, "Invalid value for '%.40s': %.80s", field, why);
        v1_error(r, 400, "invalid", text, NULL);
        files_work_free(w);
        return false;
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------------- */

void files_arg(struct files_work *w, const char *text) {
        if (w->argc < FILES_ARGS_MAX)
                w->argv[w->argc] = text;
        w->argc++;
}

void files_argf(struct files_work *w, const char *fmt, ...) {
        char *text = NULL;
        va_list ap;
        va_start(ap, fmt);
        if (vasprintf(&text, fmt, ap) < 0)
                text = NULL;
        va_end(ap);
        if (w->n_owned == FILES_ARGS_MAX || !text) {
                free(text);
                w->argc = FILES_ARGS_MAX + 1;
                return;
        }
        w->owned[w->n_owned++] = text;
        files_arg(w, text);
}

bool files_path_arg(struct files_work *w, const char *prefix, const char *path, const char *field) {
        const char *base = path[0] == '/' ? "" : session_workdir(w->use.session);
        if (!path[0])
                return invalid(w, field, "empty");
        if (strlen(base) + 1 + strlen(path) > FILES_PATH_MAX)
                return invalid(w, field, "longer than 4095 bytes");
        files_argf(w, "%s%s%s%s", prefix, base, base[0] ? "/" : "", path);
        return true;
}

bool files_query_flag(struct files_work *w, const char *key, const char *arg) {
        const char *s = http_query(w->r, key);
        if (!s || strcmp(s, "0") == 0 || strcmp(s, "false") == 0)
                return true;
        if (*s && strcmp(s, "1") != 0 && strcmp(s, "true") != 0)
                return invalid(w, key, "expected true or false");
        files_arg(w, arg);
        return true;
}

bool files_query_number(struct files_work *w, const char *key, uint64_t absent, uint64_t max, const char *arg) {
        uint64_t v;
        const char *s = http_query(w->r, key);
        if (s && (s[0] < '0' || s[0] > '9' || strspn(s, "0123456789") != strlen(s) || strlen(s) > 18))
                return invalid(w, key, "expected a number");
        v = s ? strtoull(s, NULL, 10) : absent;
        files_argf(w, "%s=%llu", arg, (unsigned long long)MIN2(v, max));
        return true;
}

bool files_query_mode(struct files_work *w) {
        const char *s = http_query(w->r, "mode");
        if (!s)
                return true;
        if (!*s || strlen(s) > 5 || strspn(s, "01234567") != strlen(s) || strtoul(s, NULL, 8) > 07777)
                return invalid(w, "mode", "expected octal digits such as 0644");
        files_argf(w, "mode=%s", s);
        return true;
}

bool files_query_path(struct files_work *w, const char *absent, const char *prefix) {
        const char *s = http_query(w->r, "path");
        if (!s)
                s = absent;
        if (!s)
                return invalid(w, "path", "missing");
        return files_path_arg(w, prefix, s, "path");
}

void files_owner_args(struct files_work *w) {
        uint32_t uid, gid;
        session_user(w->use.session, &uid, &gid);
        files_argf(w, "uid=%u", uid);
        files_argf(w, "gid=%u", gid);
}

/* ---- an answer ----------------------------------------------------------------------------------------------------------------- */

static void answered(const struct files_result *res, void *user) {
        struct files_work *w = user;
        w->call = NULL;
        if (res->x < 0) {
                files_work_refuse(w, res);
                return;
        }
        struct http_request *r = TAKE_PTR(w->r);
        http_on_close(r, NULL, NULL);
        http_respond(r, w->status, "application/json", res->json, res->n);
        files_work_free(w);
}

void files_work_ask(struct files_work *w) {
        struct sandbox *sb = session_sandbox(w->use.session);
        int x = w->argc > FILES_ARGS_MAX ? -ENOMEM : !sb ? -ESHUTDOWN : files_ask(sb, w->argv, answered, w, &w->call);
        if (x < 0)
                files_work_fail(w, x);
        else
                http_on_close(w->r, files_work_closed, w);
}

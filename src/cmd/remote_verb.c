/* What the verbs that speak to a daemon have in common beyond its calls: their course, and what they show. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmd/remote.h"

static int check_count(const struct remote_verb *v, int n, struct error *e) {
        if (n < v->min)
                return error_say(e, -EINVAL, "too few arguments; usage: brig %s %.*s", v->command->name, (int)strcspn(v->command->synopsis, "\n"), v->command->synopsis);
        if (n > v->max)
                return error_say(e, -EINVAL, "too many arguments; usage: brig %s %.*s", v->command->name, (int)strcspn(v->command->synopsis, "\n"), v->command->synopsis);
        return 0;
}

static int run(const struct remote_verb *v, char **arguments, int n, int *status, struct error *e) {
        const struct remote_options *o = v->target;
        struct client *c = NULL;
        int r = check_count(v, n, e);
        if (r == 0)
                r = remote_find(o->url, true, &c, e);
        if (r < 0)
                return r;
        remote_interruptible(c);
        r = v->go(c, v->target, arguments, n, status, e);
        client_free(c);
        if (r == 0 && (fflush(stdout) != 0 || ferror(stdout)))
                return error_set(e, -EIO, "cannot write");
        return r;
}

int remote_verb(const struct remote_verb *v, int argc, char **argv) {
        struct error e = { 0 };
        char **arguments;
        int n, status = 0;
        if (command_begin(v->command, v->target, argc, argv, &arguments, &n, &status)) {
                int r = run(v, arguments, n, &status, &e);
                status_line("%s", "");
                if (r < 0) {
                        status = command_fail(v->command, r, &e);
                        if (v->failed && r != -EINTR)
                                status = v->failed;
                }
        } else if (status && v->failed)
                status = v->failed;
        options_release(v->command, v->target);
        return status;
}

int remote_print(struct client *c, const char *method, const char *path, const struct buf *body, uint64_t timeout_ms, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v;
        int r = remote_call(c, method, path, body, timeout_ms, &answer, &v, e);
        if (r == 0 && print_json(&v) < 0)
                r = error_set(e, -EIO, "cannot write");
        return r;
}

/* ---- what is shown ------------------------------------------------------------------------------------------------------- */

int64_t member_number(const struct json *object, const char *key, int64_t absent) {
        struct json v;
        int64_t n;
        double d;
        if (!json_get(object, key, &v))
                return absent;
        if (json_int(&v, &n) == 0)
                return n;
        return json_double(&v, &d) == 0 ? (int64_t)d : absent;
}

bool member_true(const struct json *object, const char *key) {
        struct json v;
        bool b;
        return json_get(object, key, &v) && json_bool(&v, &b) == 0 && b;
}

const char *age_show(const struct json *object, const char *key, char ret[static SHOW_MAX]) {
        struct tm tm = { 0 };
        char text[SHOW_MAX];
        ret[0] = 0;
        if (!strptime(member_show(object, key, text, sizeof text), "%Y-%m-%dT%H:%M:%S", &tm))
                return ret;
        int64_t s = MAX2(wall_ms() / 1000 - (int64_t)timegm(&tm), (int64_t)0);
        snprintf(ret, SHOW_MAX, "%lld %s", (long long)(s < 120 ? s : s < 7200 ? s / 60 : s < 172800 ? s / 3600 : s / 86400),
                 s < 120 ? "s" : s < 7200 ? "min" : s < 172800 ? "h" : "d");
        return ret;
}

const char *bytes_show(const struct json *object, const char *key, char ret[static SHOW_MAX]) {
        static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
        int64_t n = member_number(object, key, -1);
        double v = (double)n;
        size_t i = 0;
        ret[0] = 0;
        if (n < 0)
                return ret;
        for (; v >= 1024 && i + 1 < ARRAY_SIZE(units); i++)
                v /= 1024;
        snprintf(ret, SHOW_MAX, "%.*f %s", i && v < 100 ? 1 : 0, v, units[i]);
        return ret;
}

void status_line(const char *fmt, ...) {
        static bool shown;
        char text[160];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        if (!isatty(STDERR_FILENO) || (!shown && !text[0]))
                return;
        for (char *p = text; *p; p++)
                if ((unsigned char)*p < ' ' || *p == 0x7f)
                        *p = '?';
        fprintf(stderr, "\r%.79s\033[K", text);
        fflush(stderr);
        shown = text[0];
}

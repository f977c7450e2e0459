#include <string.h>

#include "base/strv.h"
#include "store/image_config.h"

static int too_much(struct error *e, const char *what) { return error_say(e, -E2BIG, "the image's configuration: too much in %s", what); }
static int bad(struct error *e, const char *what) { return error_say(e, -EBADMSG, "the image's configuration: %s is not valid", what); }

void image_config_release(struct image_config *c) {
        strv_free(c->env);
        strv_free(c->entrypoint);
        strv_free(c->cmd);
        strv_free(c->shell);
        strv_free(c->labels);
        strv_free(c->exposed);
        strv_free(c->volumes);
        strv_free(c->on_build);
        free(c->workdir);
        free(c->user);
        free(c->stop_signal);
        free(c->architecture);
        free(c->os);
        free(c->created);
        *c = (struct image_config){ 0 };
}

static int copy_text(const char *from, char **ret) {
        return !from || (*ret = strdup(from)) ? 0 : -ENOMEM;
}

static int copy_list(char *const *from, char ***ret) {
        int r = from ? strv_ensure(ret) : 0;
        for (size_t i = 0; r == 0 && from && from[i]; i++)
                r = strv_push(ret, from[i]);
        return r;
}

int image_config_copy(const struct image_config *from, struct image_config *ret) {
        struct image_config c = { 0 };
        const struct { char *const *from; char ***to; } lists[] = {
                { from->env, &c.env }, { from->entrypoint, &c.entrypoint }, { from->cmd, &c.cmd }, { from->shell, &c.shell },
                { from->labels, &c.labels }, { from->exposed, &c.exposed }, { from->volumes, &c.volumes }, { from->on_build, &c.on_build },
        };
        const struct { const char *from; char **to; } texts[] = {
                { from->workdir, &c.workdir }, { from->user, &c.user }, { from->stop_signal, &c.stop_signal },
                { from->architecture, &c.architecture }, { from->os, &c.os }, { from->created, &c.created },
        };
        int r = 0;
        for (size_t i = 0; i < ARRAY_SIZE(lists) && r == 0; i++)
                r = copy_list(lists[i].from, lists[i].to);
        for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++)
                r = copy_text(texts[i].from, texts[i].to);
        if (r < 0)
                image_config_release(&c);
        else
                *ret = c;
        return r;
}

/* ---- "name=value" lists ---- */

static char **entry_of(char **list, const char *name) {
        size_t n = strlen(name);
        for (char **v = list; v && *v; v++)
                if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
                        return v;
        return NULL;
}

const char *image_config_env(const struct image_config *c, const char *name) {
        char **v = entry_of(c->env, name);
        return v ? *v + strlen(name) + 1 : NULL;
}

static int set(char ***list, const char *name, const char *value) {
        char *entry;
        if (asprintf(&entry, "%s=%s", name, value) < 0)
                return -ENOMEM;
        char **v = entry_of(*list, name);
        if (!v)
                return strv_push_take(list, entry);
        free(*v);
        *v = entry;
        return 0;
}

int image_config_set_env(struct image_config *c, const char *name, const char *value) { return set(&c->env, name, value); }
int image_config_set_label(struct image_config *c, const char *name, const char *value) { return set(&c->labels, name, value); }

/* ---- reading ---- */

/* A member of any case of its first letter is not accepted: names are exact. Null and absence are the same. */
static bool member(const struct json *o, const char *name, struct json *v) {
        return json_get(o, name, v) && v->type != JSON_NULL;
}

static int text_of(const struct json *v, const char *what, char **ret, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_CONFIG_TEXT_MAX);
        if (v->type != JSON_STRING)
                return bad(e, what);
        int r = json_string(v, &b);
        if (r < 0)
                return r == -ENOSPC ? too_much(e, what) : error_set(e, r, "read the image's configuration");
        if (memchr(buf_str(&b), 0, b.len))
                return bad(e, what);
        char *s = strdup(buf_str(&b));
        if (!s)
                return error_set(e, -ENOMEM, "read the image's configuration");
        free(*ret);
        *ret = s;
        return 0;
}

static int text_member(const struct json *o, const char *name, char **ret, struct error *e) {
        struct json v;
        return member(o, name, &v) ? text_of(&v, name, ret, e) : 0;
}

static int push(char ***list, size_t *n, char *s, const char *what, struct error *e) {
        if (*n >= IMAGE_CONFIG_ITEMS_MAX) {
                free(s);
                return too_much(e, what);
        }
        int r = strv_append_take(list, n, s);
        return r < 0 ? error_set(e, r, "read the image's configuration") : 0;
}

static int list_member(const struct json *o, const char *name, char ***ret, struct error *e) {
        struct json v, item;
        if (!member(o, name, &v))
                return 0;
        if (v.type == JSON_STRING && strcmp(name, "Env") != 0) {       /* some old ones give a command as one text, for the shell */
                char *s = NULL;
                size_t n = 0;
                int r = text_of(&v, name, &s, e);
                return r < 0 ? r : push(ret, &n, s, name, e);
        }
        if (v.type != JSON_ARRAY)
                return bad(e, name);
        int r = strv_ensure(ret);
        if (r < 0)
                return error_set(e, r, "read the image's configuration");
        size_t n = 0;
        for (struct json_iter it = json_iter(&v); r == 0 && json_next_item(&it, &item);) {
                char *s = NULL;
                r = text_of(&item, name, &s, e);
                if (r == 0)
                        r = push(ret, &n, s, name, e);
        }
        return r;
}

/* {"name": "value"} or, for sets, {"name": {}}. */
static int map_member(const struct json *o, const char *name, bool values, char ***ret, struct error *e) {
        struct json v, key, value;
        if (!member(o, name, &v))
                return 0;
        if (v.type != JSON_OBJECT)
                return bad(e, name);
        size_t n = 0;
        int r = 0;
        for (struct json_iter it = json_iter(&v); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_free_ char *k = NULL, *text = NULL;
                char *entry = NULL;
                r = text_of(&key, name, &k, e);
                if (r == 0 && strlen(k) > IMAGE_CONFIG_KEY_MAX)
                        r = too_much(e, name);
                if (r == 0 && values)
                        r = text_of(&value, name, &text, e);
                if (r == 0 && values && asprintf(&entry, "%s=%s", k, text) < 0)
                        r = error_set(e, -ENOMEM, "read the image's configuration");
                if (r == 0)
                        r = push(ret, &n, values ? entry : TAKE_PTR(k), name, e);
        }
        if (*ret)
                strv_sort(*ret);
        return r;
}

static int check_env(char **env, struct error *e) {
        for (char **v = env; v && *v; v++) {
                const char *equals = strchr(*v, '=');
                if (!equals || equals == *v)
                        return bad(e, "Env");
        }
        return 0;
}

static int read_config(const struct json *o, struct image_config *c, struct error *e) {
        int r = list_member(o, "Env", &c->env, e);
        r = r ? r : check_env(c->env, e);
        r = r ? r : list_member(o, "Entrypoint", &c->entrypoint, e);
        r = r ? r : list_member(o, "Cmd", &c->cmd, e);
        r = r ? r : list_member(o, "Shell", &c->shell, e);
        r = r ? r : map_member(o, "Labels", true, &c->labels, e);
        r = r ? r : map_member(o, "ExposedPorts", false, &c->exposed, e);
        r = r ? r : map_member(o, "Volumes", false, &c->volumes, e);
        r = r ? r : list_member(o, "OnBuild", &c->on_build, e);
        r = r ? r : text_member(o, "WorkingDir", &c->workdir, e);
        r = r ? r : text_member(o, "User", &c->user, e);
        r = r ? r : text_member(o, "StopSignal", &c->stop_signal, e);
        if (r == 0 && c->workdir && c->workdir[0] != '/' && c->workdir[0])
                r = bad(e, "WorkingDir");
        if (r == 0 && c->user && strlen(c->user) > IMAGE_CONFIG_USER_MAX)
                r = bad(e, "User");
        return r;
}

static int read_diff_ids(const struct json *doc, char ***ret, struct error *e) {
        struct json rootfs, ids, item;
        size_t n = 0;
        int r = strv_ensure(ret);
        if (r < 0)
                return error_set(e, r, "read the image's configuration");
        if (!member(doc, "rootfs", &rootfs) || !member(&rootfs, "diff_ids", &ids))
                return 0;
        if (ids.type != JSON_ARRAY)
                return bad(e, "rootfs.diff_ids");
        for (struct json_iter it = json_iter(&ids); r == 0 && json_next_item(&it, &item);) {
                _cleanup_free_ char *s = NULL;
                r = text_of(&item, "rootfs.diff_ids", &s, e);
                if (r == 0 && (strncmp(s, "sha256:", 7) != 0 || strlen(s) != 71 || strspn(s + 7, "0123456789abcdef") != 64))
                        r = bad(e, "rootfs.diff_ids");
                if (r == 0) {
                        char *id = strdup(s + 7);
                        r = id ? push(ret, &n, id, "rootfs.diff_ids", e) : error_set(e, -ENOMEM, "read the image's configuration");
                }
        }
        return r;
}

int image_config_parse(const struct json *doc, struct image_config *ret, char ***ret_diff_ids, struct error *e) {
        struct image_config c = { 0 };
        _cleanup_strv_ char **ids = NULL;
        struct json config;
        if (doc->type != JSON_OBJECT)
                return bad(e, "the document");
        if (doc->n > IMAGE_CONFIG_BYTES_MAX)
                return too_much(e, "the document");
        int r = text_member(doc, "architecture", &c.architecture, e);
        r = r ? r : text_member(doc, "os", &c.os, e);
        r = r ? r : text_member(doc, "created", &c.created, e);
        if (r == 0 && member(doc, "config", &config))
                r = config.type == JSON_OBJECT ? read_config(&config, &c, e) : bad(e, "config");
        if (r == 0 && ret_diff_ids)
                r = read_diff_ids(doc, &ids, e);
        if (r < 0) {
                image_config_release(&c);
                return r;
        }
        *ret = c;
        if (ret_diff_ids)
                *ret_diff_ids = TAKE_PTR(ids);
        return 0;
}

/* ---- writing ---- */

static void put_list(struct json_writer *w, const char *name, char *const *list) {
        if (!list)
                return;
        json_put_key(w, name);
        json_put_texts(w, list);
}

static void put_map(struct json_writer *w, const char *name, char *const *list, bool values) {
        if (!list || !*list)
                return;
        json_put_key(w, name);
        json_begin_object(w);
        for (; *list; list++) {
                char key[IMAGE_CONFIG_KEY_MAX + 1];
                const char *equals = values ? strchr(*list, '=') : NULL;
                size_t n = equals ? (size_t)(equals - *list) : strlen(*list);
                n = MIN2(n, sizeof key - 1);
                memcpy(key, *list, n);
                key[n] = 0;
                json_put_key(w, key);
                if (values)
                        json_put_text(w, equals ? equals + 1 : "");
                else {
                        json_begin_object(w);
                        json_end_object(w);
                }
        }
        json_end_object(w);
}

static void put_text(struct json_writer *w, const char *name, const char *s) {
        if (s)
                json_field_text(w, name, s);
}

void image_config_write(const struct image_config *c, struct json_writer *w) {
        json_begin_object(w);
        put_text(w, "User", c->user);
        put_map(w, "ExposedPorts", c->exposed, false);
        put_list(w, "Env", c->env);
        put_list(w, "Entrypoint", c->entrypoint);
        put_list(w, "Cmd", c->cmd);
        put_map(w, "Volumes", c->volumes, false);
        put_text(w, "WorkingDir", c->workdir);
        put_map(w, "Labels", c->labels, true);
        if (c->on_build && c->on_build[0])
                put_list(w, "OnBuild", c->on_build);
        put_text(w, "StopSignal", c->stop_signal);
        put_list(w, "Shell", c->shell);
        json_end_object(w);
}

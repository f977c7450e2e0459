/* What a task stands on: the image, found or pulled and in use until the task ends, and what its maker wants of whoever runs it. */
#include <string.h>

#include "base/strv.h"
#include "score/task_internal.h"

/* ---- failures ----------------------------------------------------------------------------------------------------------- */

/* Nothing here is ever the patch's doing: it has not been looked at. */
static const char *code_of(enum image_failure failure) {
        switch (failure) {
        case IMAGE_DISK_FULL: return "disk_full";
        case IMAGE_INTERNAL: case IMAGE_CANCELLED: return "internal";
        default: return "image_not_found";     /* nobody has it, or it cannot be had: the text says which */
        }
}

static void set_failure(struct score_task *t, enum image_failure failure, const struct error *e) {
        char text[2 * ERROR_TEXT_MAX];
        bool named = strncmp(e->text, "image", 5) == 0;
        snprintf(text, sizeof(text), "%s%.200s%s%s", named ? "" : "image ", named ? "" : t->req.image, named ? "" : ": ", e->text);
        task_set_error(t, code_of(failure), text);
}

/* ---- the image's wishes ---------------------------------------------------------------------------------------------------- */

static int push_named(char ***env, const char *name, const char *value) {
        char *s;
        return value[0] ? asprintf(&s, "%s=%s", name, value) < 0 ? -ENOMEM : strv_push_take(env, s) : 0;
}

/* The request's environment becomes what the image gives (its user's home and name, then its ENV) and over it what the request gives. */
static int take_environment(struct score_task *t) {
        const struct image_user *u = t->lease->user;
        char **env = NULL;
        int r = strv_ensure(&env);
        if (r == 0 && t->req.uid != 0 && u->uid == t->req.uid) {
                r = push_named(&env, "HOME", u->home);
                r = r < 0 ? r : push_named(&env, "USER", u->name);
        }
        if (r == 0)
                r = strv_merge_env(&env, (const char *const *)t->lease->config->env);
        if (r == 0)
                r = strv_merge_env(&env, (const char *const *)t->req.env);
        if (r < 0) {
                strv_free(env);
                return r;
        }
        strv_sort(env);
        strv_free(t->req.env);
        t->req.env = env;
        return 0;
}

static void on_acquired(struct image_lease *lease, enum image_failure failure, const struct error *e, void *user) {
        struct score_task *t = user;
        t->acquiring = NULL;
        t->lease = lease;
        if (!lease) {
                set_failure(t, failure, e);
                task_end(t);
                return;
        }
        if (!t->req.user_given) {
                t->req.uid = lease->user->uid;
                t->req.gid = lease->user->gid;
        }
        if (take_environment(t) < 0) {
                task_set_error(t, "internal", "no memory for the environment");
                task_end(t);
        } else
                task_tree(t);
}

int task_image(struct score_task *t, struct error *e) {
        struct image_acquire_options o = {.pull_timeout_ms = t->req.pull_timeout_ms};
        t->state = STATE_IMAGE;
        return image_acquire(t->env.images, t->req.image, &o, on_acquired, t, &t->acquiring, e);
}

const char *task_workdir(const struct score_task *t) {
        const char *dir = t->lease->config->workdir;
        return dir && dir[0] == '/' ? dir : "/";
}

/* ---- layers ------------------------------------------------------------------------------------------------------------------ */

int task_layers(struct score_task *t) {
        size_t n = image_chain_count(t->lease->chain), m = 0;
        while (t->tree && t->tree->layers[m])
                m++;
        t->layers = calloc(n + m + 1, sizeof(*t->layers));
        for (size_t i = 0; t->layers && i < n; i++)
                t->layers[i] = image_chain_layers(t->lease->chain)[i];
        for (size_t i = 0; t->layers && i < m; i++)
                t->layers[n + i] = t->tree->layers[i];
        return t->layers ? 0 : -ENOMEM;
}

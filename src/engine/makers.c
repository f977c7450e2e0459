#include "engine/makers.h"

#include <string.h>

#include "base/strv.h"
#include "build/recipe.h"
#include "engine/settings.h"
#include "registry/pull.h"

struct makers {
        struct puller *puller;
        struct builder *builder;
        void (*done)(void *user);
        void *user;
};

static int ranges(const char *text, char ***ret) {
        int r = strv_ensure(ret);
        for (const char *at = text; at && *at && r == 0;) {
                size_t n = strcspn(at, ",");
                if (n > 0)
                        r = strv_push_n(ret, at, n);
                at += n + (at[n] == ',');
        }
        return r;
}

int makers_open(struct image_store *st, const struct engine_config *cfg, int credentials_fd, struct makers **ret, struct error *e) {
        _cleanup_strv_ char **allow = NULL;
        _cleanup_free_ struct makers *m = calloc(1, sizeof *m);
        char directory[4096];
        int r = m ? ranges(cfg->registry_allow, &allow) : -ENOMEM;
        if (r < 0)
                return error_set(e, r, "pulls and builds");
        snprintf(directory, sizeof directory, "%s/images", cfg->home);
        const struct puller_config pc = {
                .registry = { .directory = directory, .allow = (const char *const *)allow, .loopback = settings_listens_on_loopback(cfg),
                              .ca_file = cfg->registry_ca_file, .credentials_fd = credentials_fd },
                .defaults = { .host = cfg->registry_default, .space = strcmp(cfg->registry_namespace, "-") == 0 ? NULL : cfg->registry_namespace }, .timeout_ms = cfg->image_pull_timeout_s * 1000,
        };
        struct builder_config bc = { .directory = directory };
        sandbox_limits_default(&bc.limits);
        r = puller_new(st, &pc, &m->puller, e);
        if (r < 0)
                return error_prefix(e, "read the settings of registries");
        r = builder_new(st, &bc, &m->builder, e);
        if (r < 0)
                return r;                        /* the daemon does not start: what was made goes with the process */
        const struct image_puller registry = puller_hook(m->puller), hook = builder_hook(m->builder, &registry);
        image_store_set_puller(st, &hook);
        *ret = TAKE_PTR(m);
        return 0;
}

struct puller *makers_puller(struct makers *m) { return m->puller; }
struct builder *makers_builder(struct makers *m) { return m->builder; }

static void puller_closed(void *user) {
        struct makers *m = user;
        void (*done)(void *) = m->done;
        void *done_user = m->user;
        free(m);
        done(done_user);
}

static void builder_closed(void *user) {
        struct makers *m = user;
        puller_close(m->puller, puller_closed, m);
}

void makers_close(struct makers *m, void (*done)(void *user), void *user) {
        m->done = done;
        m->user = user;
        builder_close(m->builder, builder_closed, m);
}

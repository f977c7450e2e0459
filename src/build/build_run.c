/* RUN and WORKDIR. */
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "build/build_private.h"

static void output(const char *p, size_t n, void *user) { build_event(user, BUILD_OUTPUT, p, n); }

static enum sandbox_network network_of(const struct build *b, const struct instruction *i) {
        const char *flag = instruction_flag(i, "network");
        return flag && strcmp(flag, "none") == 0 ? NETWORK_NONE : b->network;
}

static void hash_list(struct sha256 *h, char *const *list) {
        for (; list && *list; list++)
                sha256_update_str(h, *list);
        sha256_update_str(h, "");
}

static void run_key(struct build *b, const struct instruction *i, char *const *argv, char *const *env, const struct heredoc *script, char ret[static SHA256_HEX]) {
        struct sha256 h;
        unsigned char salt[16];
        build_key_begin(&h, b, "run");
        hash_list(&h, argv);
        hash_list(&h, env);
        sha256_update_str(&h, b->stage.config.user ? b->stage.config.user : "");
        sha256_update_str(&h, b->stage.config.workdir ? b->stage.config.workdir : "");
        sha256_update_str(&h, sandbox_network_to_string((int)network_of(b, i)));
        if (script)
                sha256_update(&h, script->text, script->len);
        if (b->no_cache) {
                random_bytes(salt, sizeof salt);
                sha256_update(&h, salt, sizeof salt);
        }
        sha256_finish(&h, ret);
}

static void make_run(struct build *b, struct image_layer *l) {
        const struct instruction *i = build_instruction(b);
        const struct heredoc *script;
        struct error e;
        _cleanup_strv_ char **argv = stage_command(&b->stage, i, &script), **env = stage_environment(&b->stage);
        _cleanup_close_ int fd = script ? fs_memfd("script", script->text, script->len) : -1;
        const struct sandbox_file file = { .name = STAGE_SCRIPT_NAME, .fd = fd, .mode = 0555 };
        if (!argv || !env || (script && fd < 0)) {
                error_set(&e, -ENOMEM, "RUN");
                image_layer_abandon(l, IMAGE_INTERNAL, &e);
                return;
        }
        const struct sandbox_spec s = { .id = "build-run", .profile = PROFILE_SETUP, .network = network_of(b, i), .limits = b->builder->limits,
                                        .files = script ? &file : NULL, .n_files = script ? 1 : 0 };
        const struct image_run run = { .sandbox = &s, .argv = (const char *const *)argv, .env = (const char *const *)env,
                                       .cwd = b->stage.config.workdir ? b->stage.config.workdir : "/", .user = b->stage.config.user,
                                       .timeout_ms = build_remaining(b), .output = output, .output_user = b };
        image_layer_run(l, &run);
}

void build_run(struct build *b, const struct instruction *i) {
        const struct heredoc *script;
        char key[SHA256_HEX];
        _cleanup_strv_ char **argv = stage_command(&b->stage, i, &script), **env = stage_environment(&b->stage);
        struct error e;
        if (!argv || !env) {
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "RUN");
                return;
        }
        if (!argv[0] || !argv[0][0]) {
                instruction_fault(i, &e, "RUN needs a program");
                build_fault(b, &e);
                return;
        }
        run_key(b, i, argv, env, script, key);
        build_layer(b, b->chain, key, make_run, build_take_layer);
}

/* ---- WORKDIR ---- */

static void make_workdir(struct build *b, struct image_layer *l) {
        static const char nothing[1024];         /* an archive's end */
        struct error e;
        _cleanup_close_ int fd = fs_memfd("workdir", nothing, sizeof nothing);
        const struct image_unpack u = { .fd = fd, .target = b->stage.config.workdir, .no_whiteouts = true };
        if (fd < 0) {
                error_set(&e, fd, "WORKDIR");
                image_layer_abandon(l, IMAGE_INTERNAL, &e);
        } else
                image_layer_unpack(l, &u);
}

void build_workdir(struct build *b, const struct instruction *i) {
        struct sha256 h;
        char key[SHA256_HEX];
        struct error e;
        if (stage_apply(&b->stage, i, &e) < 0) {
                build_fault(b, &e);
                return;
        }
        if (strcmp(b->stage.config.workdir, "/") == 0) {
                build_next(b);
                return;
        }
        build_key_begin(&h, b, "workdir");
        sha256_update_str(&h, b->stage.config.workdir);
        sha256_finish(&h, key);
        build_layer(b, b->chain, key, make_workdir, build_take_layer);
}

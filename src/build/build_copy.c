/* COPY and ADD:
 *
 *     sources are found (context, stage, image) ─> LOOK at the destination, where that matters ─> TAKE: the helper writes what is copied
 *     to an unnamed file, and its hash ─> the layer of that hash, unpacked unless it is known */
#include <string.h>

#include "archive/tar_write.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/strv.h"
#include "build/build_private.h"

void copy_step_release(struct copy_step *c) {
        strv_free(c->sources);
        free(c->to);
        free(c->chown);
        free(c->mode);
        free(c->target);
        image_chain_unref(c->source);
        fd_close(c->fd);
        *c = (struct copy_step){ .fd = -1 };
}

static void fault(struct build *b, const char *why) {
        struct error e;
        instruction_fault(b->copy.i, &e, "%s: %s", instruction_kind_to_string((int)b->copy.i->kind), why);
        build_fault(b, &e);
}

static void out_of_memory(struct build *b) { build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "COPY"); }

/* ---- the instruction ---- */

static int take_flag(struct build *b, const char *name, char **ret, struct error *e) {
        const char *flag = instruction_flag(b->copy.i, name);
        return flag ? stage_expand(&b->stage, b->copy.i, flag, true, ret, e) : 0;
}

static bool octal(const char *s) {
        size_t n = strlen(s);
        return n >= 3 && n <= 4 && strspn(s, "01234567") == n;
}

static int take_words(struct build *b, struct error *e) {
        struct copy_step *c = &b->copy;
        const struct instruction *i = c->i;
        size_t n = strv_len((const char *const *)i->words);
        char *given = NULL;
        for (size_t k = 0; k + 1 < n; k++) {
                char *word = NULL;
                if (i->n_heredocs > 0 && strncmp(i->words[k], "<<", 2) != 0)
                        return instruction_fault(i, e, "files and here-documents in one instruction");
                if (i->n_heredocs > 0)
                        continue;
                int r = i->json && !strchr(i->words[k], '$') ? ((word = strdup(i->words[k])) ? 0 : -ENOMEM) : stage_expand(&b->stage, i, i->words[k], !i->json, &word, e);
                if (r == 0 && !*word)
                        r = instruction_fault(i, e, "a source becomes empty");
                r = r < 0 ? r : strv_append_take(&c->sources, &c->n_sources, TAKE_PTR(word));
                free(word);
                if (r < 0)
                        return r;
        }
        size_t sources = i->n_heredocs > 0 ? i->n_heredocs : c->n_sources;
        int r = stage_expand(&b->stage, i, i->words[n - 1], !i->json, &given, e);
        if (r == 0 && !*given)
                r = instruction_fault(i, e, "the destination becomes empty");
        r = r ? r : stage_path(&b->stage, i, given, &c->to, e);
        free(given);
        if (r < 0)
                return r;
        c->directory = c->to[strlen(c->to) - 1] == '/';
        if (sources > 1 && !c->directory)
                return instruction_fault(i, e, "with several sources the destination must be a directory, and end with '/'");
        return 0;
}

static int take_owner(struct build *b, struct error *e) {
        struct copy_step *c = &b->copy;
        unsigned long uid, gid;
        char *end;
        if (!c->chown)
                return 0;
        if (!*c->chown || strlen(c->chown) > IMAGE_CONFIG_USER_MAX)
                return instruction_fault(c->i, e, "--chown takes user[:group]");
        c->set_owner = true;
        uid = gid = strtoul(c->chown, &end, 10);
        if (end != c->chown && *end == ':' && end[1] >= '0' && end[1] <= '9')
                gid = strtoul(end + 1, &end, 10);
        if (end == c->chown || *end)
                return 0;                        /* names: the image knows */
        if (uid > 65535 || gid > 65535)
                return instruction_fault(c->i, e, "--chown: ids are at most 65535");
        c->uid = (uint32_t)uid;
        c->gid = (uint32_t)gid;
        free(c->chown);
        c->chown = NULL;
        return 0;
}

static int take_all(struct build *b, struct error *e) {
        struct copy_step *c = &b->copy;
        int r = take_words(b, e);
        r = r ? r : take_flag(b, "chown", &c->chown, e);
        r = r ? r : take_flag(b, "chmod", &c->mode, e);
        r = r ? r : take_owner(b, e);
        if (r == 0 && c->mode && !octal(c->mode))
                r = instruction_fault(c->i, e, "--chmod takes three or four octal digits");
        return r == -ENOMEM ? error_set(e, r, "COPY") : r;
}

/* ---- the layer ---- */

static void make_copy(struct build *b, struct image_layer *l) {
        const struct copy_step *c = &b->copy;
        struct error e;
        const struct image_unpack u = { .fd = c->fd, .target = c->target, .no_whiteouts = true, .set_owner = c->set_owner,
                                        .owner_uid = c->uid, .owner_gid = c->gid, .bytes_max = 0 };
        if (lseek(c->fd, 0, SEEK_SET) < 0) {
                error_set(&e, -errno, "COPY");
                image_layer_abandon(l, IMAGE_INTERNAL, &e);
        } else
                image_layer_unpack(l, &u);
}

static void copied(struct build *b, struct image_chain *c) {
        copy_step_release(&b->copy);
        build_take_layer(b, c);
}

static void want_layer(struct build *b) {
        struct copy_step *c = &b->copy;
        struct sha256 h;
        char key[SHA256_HEX], text[64];
        const char *slash = strrchr(c->to, '/');
        bool under_its_name = c->one_file && !c->directory && !c->is_dir;
        c->target = under_its_name ? strndup(c->to, slash > c->to ? (size_t)(slash - c->to) : 1) : strdup(c->to);
        if (!c->target) {
                out_of_memory(b);
                return;
        }
        build_key_begin(&h, b, c->archive ? "add" : "copy");
        sha256_update_str(&h, c->hash);
        sha256_update_str(&h, c->target);
        snprintf(text, sizeof text, "%d %u %u", c->set_owner, c->uid, c->gid);
        sha256_update_str(&h, text);
        sha256_finish(&h, key);
        build_layer(b, b->chain, key, make_copy, copied);
}

/* ---- here-documents ---- */

static int put(struct copy_step *c, struct sha256 *h, struct buf *head, const char *name, const char *text, size_t len) {
        static const char zeros[TAR_WRITE_BLOCK];
        const struct tar_item it = { .path = name, .kind = TAR_WRITE_FILE, .mode = c->mode ? (uint32_t)strtoul(c->mode, NULL, 8) : 0644, .size = len,
                                     .mtime = wall_ms() / 1000 };
        char mode[16];
        snprintf(mode, sizeof mode, "%o", it.mode);
        sha256_update_str(h, name);
        sha256_update_str(h, mode);
        sha256_update(h, text, len);
        sha256_update_str(h, "");
        buf_reset(head);
        int r = tar_write_header(head, &it);
        r = r ? r : fs_write_all(c->fd, head->data, head->len);
        r = r ? r : fs_write_all(c->fd, text, len);
        return r ? r : fs_write_all(c->fd, zeros, tar_write_padding(len));
}

static int write_heredocs(struct build *b, struct error *e) {
        static const char end[TAR_WRITE_END];
        struct copy_step *c = &b->copy;
        struct sha256 h;
        _cleanup_buf_ struct buf head = BUF_INIT(TAR_WRITE_HEADER_MAX);
        int r = c->fd = build_unnamed_file(b->builder);
        if (r >= 0)
                r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "COPY");
        c->one_file = c->i->n_heredocs == 1;
        for (size_t k = 0; r == 0 && k < c->i->n_heredocs; k++) {
                const struct heredoc *d = &c->i->heredocs[k];
                const char *name = c->one_file && !c->directory && !c->is_dir ? strrchr(c->to, '/') + 1 : d->name;
                char *text = NULL;
                if (d->expand && (r = stage_expand(&b->stage, c->i, d->text, false, &text, e)) < 0) {
                        sha256_release(&h);
                        return r;
                }
                r = put(c, &h, &head, name, text ? text : d->text, text ? strlen(text) : d->len);
                free(text);
        }
        r = r ? r : fs_write_all(c->fd, end, sizeof end);
        sha256_finish(&h, c->hash);
        return r < 0 ? error_set(e, r, "COPY") : 0;
}

/* ---- files ---- */

/* "file|tree|archive HASH ENTRIES BYTES\n" */
static void taken(struct build *b, const struct box_result *r) {
        struct copy_step *c = &b->copy;
        if (build_helper_ok(b, r, "COPY") < 0)
                return;
        const char *space = strchr(r->out, ' ');
        if (!space || strspn(space + 1, "0123456789abcdef") != SHA256_HEX - 1) {
                build_fail_text(b, IMAGE_INTERNAL, -EIO, "COPY: the helper's answer");
                return;
        }
        memcpy(c->hash, space + 1, SHA256_HEX - 1);
        c->archive = strncmp(r->out, "archive ", 8) == 0;
        c->one_file = strncmp(r->out, "file ", 5) == 0;
        want_layer(b);
}

static int push_option(char ***list, const char *name, const char *value) {
        char *s;
        return asprintf(&s, "%s=%s", name, value) < 0 ? -ENOMEM : strv_push_take(list, s);
}

static int take_argv(struct build *b, char ***argv) {
        struct copy_step *c = &b->copy;
        char number[32];
        int r = strv_push(argv, "copy-out");
        if (r == 0 && c->from_context)
                r = push_option(argv, "top", BUILD_CONTEXT_TOP);
        if (r == 0 && c->from_context)
                r = strv_push(argv, "ignore");
        if (r == 0 && c->from_context)
                r = strv_push(argv, "root");
        if (r == 0 && c->mode)
                r = push_option(argv, "mode", c->mode);
        if (r == 0 && c->i->kind == INSTRUCTION_ADD)
                r = strv_push(argv, "archive");
        if (r == 0 && !c->directory && !c->is_dir)
                r = push_option(argv, "leaf", strrchr(c->to, '/') + 1);
        snprintf(number, sizeof number, "%llu", BUILD_COPY_BYTES_MAX);
        r = r ? r : push_option(argv, "bytes", number);
        snprintf(number, sizeof number, "%llu", BUILD_COPY_ENTRIES_MAX);
        r = r ? r : push_option(argv, "entries", number);
        r = r ? r : strv_push(argv, "--");
        for (char **s = c->sources; r == 0 && s && *s; s++)
                r = strv_push(argv, *s);
        return r;
}

static void take(struct build *b) {
        struct copy_step *c = &b->copy;
        struct error e;
        _cleanup_strv_ char **argv = NULL;
        if (c->i->n_heredocs > 0) {
                if (write_heredocs(b, &e) < 0)
                        build_fail_at(b, c->i, e.code == -EINVAL ? IMAGE_INVALID : IMAGE_INTERNAL, &e);
                else
                        want_layer(b);
                return;
        }
        c->fd = build_unnamed_file(b->builder);
        if (c->fd < 0 || take_argv(b, &argv) < 0) {
                build_fail_text(b, IMAGE_INTERNAL, c->fd < 0 ? c->fd : -ENOMEM, "COPY");
                return;
        }
        build_helper(b, c->source, (const char *const *)argv, c->fd, taken);
}

/* ---- the destination ---- */

static void looked(struct build *b, const struct box_result *r) {
        struct copy_step *c = &b->copy;
        char *end;
        if (build_helper_ok(b, r, "look at the destination") < 0)
                return;
        unsigned long uid = strtoul(r->out, &end, 10), gid = strtoul(end, &end, 10);
        if (c->chown) {
                c->uid = (uint32_t)MIN2(uid, 65535u);
                c->gid = (uint32_t)MIN2(gid, 65535u);
        }
        c->is_dir = strncmp(end, " dir", 4) == 0;
        take(b);
}

static void look(struct build *b) {
        struct copy_step *c = &b->copy;
        char user[IMAGE_CONFIG_USER_MAX + 8], path[4200];
        bool nothing = image_chain_count(b->chain) == 0 && strcmp(image_chain_image(b->chain), IMAGE_SCRATCH) == 0;
        if (nothing && c->chown) {
                fault(b, "an empty image knows no users; --chown takes numbers");
                return;
        }
        /* Whether it is a directory matters where nobody said so and one file may come. */
        bool ask = !nothing && (c->chown || (!c->directory && (c->i->n_heredocs == 1 || c->n_sources == 1)));
        if (!ask) {
                take(b);
                return;
        }
        snprintf(user, sizeof user, "user=%s", c->chown ? c->chown : "0:0");
        snprintf(path, sizeof path, "path=%s", c->to);
        const char *const argv[] = { "look", user, path, NULL };
        build_helper(b, b->chain, argv, -1, looked);
}

/* ---- the source ---- */

static void context_there(struct build *b) {
        b->copy.source = image_chain_ref(b->context_chain);
        look(b);
}

static void image_there(struct build *b, struct image_lease *lease) {
        b->copy.source = image_chain_ref(lease->chain);
        image_lease_release(lease);
        look(b);
}

void build_copy(struct build *b, const struct instruction *i) {
        struct error e;
        const char *from = i->kind == INSTRUCTION_COPY ? instruction_flag(i, "from") : NULL;
        copy_step_release(&b->copy);
        b->copy.i = i;
        if (take_all(b, &e) < 0) {
                build_fault(b, &e);
                return;
        }
        if (i->n_heredocs > 0) {
                look(b);
                return;
        }
        if (!from && b->context < 0) {
                fault(b, "there is no build context to copy from");
                return;
        }
        b->copy.from_context = !from;
        if (!from) {
                build_need_context(b, context_there);
                return;
        }
        int stage = build_find_stage(b, from, b->at_stage);
        if (stage >= 0) {
                b->copy.source = image_chain_ref(b->stages[stage].chain);
                look(b);
        } else
                build_acquire(b, from, image_there);
}

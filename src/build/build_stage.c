/* A stage of a build, from its base to its chain of layers and its configuration, which later stages and the image take.
 *
 * Stages nobody needs are skipped. A base that is an image is acquired, which may mean that it is pulled: the build goes on when it is there. */
#include "build/build_private.h"

#include <string.h>

#define STEP_SHOWN 200                 /* bytes of an instruction in an event */

void build_stage_release(struct build_stage *s) {
        free(s->name);
        free(s->base);
        image_chain_unref(s->chain);
        image_config_release(&s->config);
}

const struct instruction *build_instruction(const struct build *b) {
        const struct build_stage *s = &b->stages[b->at_stage];
        return &b->file.instructions[MIN2(b->at, s->end - 1)];
}

void build_tell_step(struct build *b, const struct instruction *i) {
        char text[STEP_SHOWN + 16];
        int n = snprintf(text, sizeof text, "%s ", instruction_kind_to_string((int)i->kind));
        size_t at = (size_t)n;
        for (char **f = i->flags; f && *f && at < STEP_SHOWN; f++)
                at += (size_t)snprintf(text + at, sizeof text - at, "%.*s ", (int)MIN2(strlen(*f), STEP_SHOWN - at), *f);
        for (const char *p = i->rest; *p && at < STEP_SHOWN; p++)
                text[at++] = (unsigned char)*p < ' ' ? ' ' : *p;
        b->step++;
        build_event(b, BUILD_STEP, text, MIN2(at, sizeof text));
}

static void begin_with(struct build *b, struct image_chain *chain, const struct image_config *config) {
        struct build_stage *s = &b->stages[b->at_stage];
        b->stage = (struct stage){ .given = (const char *const *)b->args, .global = &b->global, .escape = b->file.escape };
        b->chain = chain;
        if (config && image_config_copy(config, &b->stage.config) < 0) {
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "begin a stage");
                return;
        }
        b->at = s->from + 1;
        build_advance(b);
}

/* Left out they would be missed late, and where nobody looks. */
static bool refuse_triggers(struct build *b, const struct image_config *c) {
        struct error e = { 0 };
        if (!c->on_build || !c->on_build[0])
                return false;
        error_say(&e, -EINVAL, "the base image has ONBUILD instructions, which are not supported: '%.100s'", c->on_build[0]);
        build_fail_at(b, build_instruction(b), IMAGE_INVALID, &e);
        return true;
}

static void base_acquired(struct build *b, struct image_lease *lease) {
        if (refuse_triggers(b, lease->config)) {
                image_lease_release(lease);
                return;
        }
        struct image_chain *c = image_chain_ref(lease->chain);
        struct image_config config = { 0 };
        int r = image_config_copy(lease->config, &config);
        image_lease_release(lease);              /* the chain keeps the layers */
        if (r < 0) {
                image_chain_unref(c);
                build_fail_text(b, IMAGE_INTERNAL, r, "begin a stage");
                return;
        }
        begin_with(b, c, &config);
        image_config_release(&config);
}

bool build_stage_begin(struct build *b) {
        while (b->at_stage < b->n_stages && !b->stages[b->at_stage].needed)
                b->at_stage++;
        if (b->at_stage == b->n_stages)
                return false;
        struct build_stage *s = &b->stages[b->at_stage];
        b->at = s->from;
        build_tell_step(b, build_instruction(b));
        if (s->base_stage >= 0)
                begin_with(b, image_chain_ref(b->stages[s->base_stage].chain), &b->stages[s->base_stage].config);
        else if (strcmp(s->base, IMAGE_SCRATCH) == 0) {
                struct image_chain *c = image_chain_base(b->builder->store, IMAGE_SCRATCH);
                if (c)
                        begin_with(b, c, NULL);
                else
                        build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "begin a stage");
        } else
                build_acquire(b, s->base, base_acquired);
        return true;
}

void build_stage_end(struct build *b) {
        struct build_stage *s = &b->stages[b->at_stage];
        s->chain = TAKE_PTR(b->chain);
        s->config = b->stage.config;
        b->stage.config = (struct image_config){ 0 };
        stage_release(&b->stage);
        b->at_stage++;
}

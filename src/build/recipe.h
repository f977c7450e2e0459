/* Builds that begin when their image is asked for: a session with `mode: "build"` has an image's name like any other, and the store, which
 * does not know it, turns to the hook below. A recipe is used once; what nobody asked for is dropped when RECIPES_MAX others came. */
#pragma once
#include "build/build.h"

#define RECIPES_MAX 256u
#define RECIPE_PREFIX "brig.build/"

/* Keeps what the specification says (copied; `once` is set) and gives the image's name. -EINVAL as build_start; -ENOMEM. */
int recipe_add(struct builder *b, const struct build_spec *spec, char ret_name[static IMAGE_NAME_MAX + 1], struct error *e);
void recipe_drop(struct builder *b, const char *name);     /* it will not be asked for; nothing if it was */
/* For image_store_set_puller: recipes are built, everything else goes to `rest`, which may be empty. */
struct image_puller builder_hook(struct builder *b, const struct image_puller *rest);

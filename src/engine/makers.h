/* Where images come from that the store does not have: the registries' client and the builder, wired to the store. Loop thread only. */
#pragma once
#include "base/error.h"
#include "store/image_store.h"

struct engine_config;
struct makers;
struct puller;
struct builder;

/* `credentials_fd`: the operator's file (registry.credentials), -1 without; stays the caller's, as long as this lives. */
int makers_open(struct image_store *st, const struct engine_config *cfg, int credentials_fd, struct makers **ret, struct error *e);
/* Gives up what is pulled and built; `done` from the loop when nothing of it is left. Before the image store is closed. */
void makers_close(struct makers *m, void (*done)(void *user), void *user);
struct puller *makers_puller(struct makers *m);
struct builder *makers_builder(struct makers *m);

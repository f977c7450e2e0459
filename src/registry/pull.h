/* Pulling an image into the store: the registry client (registry/registry.h) brings layers, the store unpacks them.
 *
 *     manifest, configuration ─> which layers are known? ─> the others are fetched, several at a time, and
 *     each is wanted, unpacked and verified (diff id) above the one below as soon as it is there ─> the image, under its name
 *
 * A layer that the store knows by its chain id is not fetched. Pulls of one reference with the same credentials at the same time are one
 * pull, which ends when nobody wants it any more. Loop thread only. */
#pragma once
#include "registry/registry.h"
#include "store/image_store.h"

#define PULLS_MAX 256u                     /* that are wanted at a time; more are refused with -EAGAIN */

struct puller;
struct pull;                               /* what one caller waits for */

struct puller_config {
        struct registry_config registry;
        struct image_ref_default defaults; /* of names without a host */
        uint64_t timeout_ms;               /* where the request does not say */
};
int puller_new(struct image_store *st, const struct puller_config *cfg, struct puller **ret, struct error *e);
/* Ends what runs as IMAGE_CANCELLED, frees, calls done. Before the image store is closed. */
void puller_close(struct puller *p, void (*done)(void *user), void *user);

struct pull_request {
        const char *name;                  /* as the client wrote it; the image gets it, normal, as a name */
        const char *username, *password;   /* NULL: the operator's, else none */
        uint64_t timeout_ms;               /* 0: the default */
};
struct pull_progress {
        struct registry_progress fetched;
        size_t layers, layers_done;        /* of the image; in the store */
};
struct pull_callbacks {
        void (*progress)(const struct pull_progress *p, void *user);       /* may be NULL */
        /* img in use, the callee's; NULL: the failure. Exactly once, unless cancelled. */
        void (*done)(struct image *img, enum image_failure failure, const struct error *e, void *user);
};
/* -EINVAL: no reference (the text begins with "image"), or one that may not be pulled; -EAGAIN; -ENOMEM. */
int pull_start(struct puller *p, const struct pull_request *req, const struct pull_callbacks *cb, void *user, struct pull **ret, struct error *e);
void pull_cancel(struct pull *x);          /* NULL is nothing */
/* For image_store_set_puller: the store then has pulled what it does not know. */
struct image_puller puller_hook(struct puller *p);

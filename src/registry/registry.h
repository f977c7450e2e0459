/* Pulling an image from a registry: which layers it has, and their bytes, verified.
 *
 *     manifest (or index -> manifest) -> configuration -> resolved() says which layers are needed -> those, REGISTRY_PARALLEL at a
 *     time -> layer() for each, as they come -> done()
 *
 * Every byte is checked against a digest: the manifest's against the reference's (where it has one) or the index's, the configuration's
 * and the layers' against the manifest's; sizes against what the manifest says and against limits. Nothing is unpacked here, and nothing
 * of a layer is looked at: it goes to an unnamed file (O_TMPFILE), which is gone with its descriptor, whatever ends the daemon. A pull
 * that is cut goes on where it was; what it has is thrown away when it fails for good. Credentials: the request's, else the operator's
 * file (registry.credentials), else none; never logged, never written.
 *
 * Loop thread only; callbacks come from the loop. */
#pragma once
#include "registry/get.h"
#include "registry/manifest.h"

#define REGISTRY_PARALLEL 4u               /* layers of one pull that are fetched at a time */
#define REGISTRY_PULLS_MAX 8u              /* pulls at a time; more wait */
#define REGISTRY_CREDENTIALS_MAX (1u << 20)

struct registry;
struct registry_pull;

struct registry_config {
        const char *directory;             /* where unnamed files are made; on the disk, not a tmpfs */
        const char *const *allow;          /* ranges of addresses beyond the public ones; NULL-terminated, may be NULL */
        bool loopback;                     /* references with a loopback host may be pulled */
        const char *ca_file;               /* more certificates; NULL */
        int credentials_fd;                /* -1 = none; the caller's, as long as this lives: {"auths": {"host[:port]": {"username", "password"} or {"auth": base64}}} */
};
int registry_new(uv_loop_t *loop, const struct registry_config *cfg, struct registry **ret, struct error *e);
/* Cancels what runs (no callback), then frees; `done` from the loop. */
void registry_close(struct registry *r, void (*done)(void *user), void *user);

struct registry_image {
        char digest[IMAGE_REF_DIGEST_LEN + 1];             /* of the manifest that was chosen */
        const char *config; size_t config_len;             /* its JSON */
        const struct blob_ref *layers; size_t n_layers;    /* bottom first */
        const char (*diff_ids)[IMAGE_REF_DIGEST_LEN + 1];  /* n_layers */
};
struct registry_progress { size_t layers_done, layers_wanted; uint64_t bytes_done, bytes_wanted; };

struct registry_callbacks {
        /* What there is. Returns how many layers at the bottom are not needed (0..n_layers), or -errno with its
         * reason, which ends the pull. `image` and what it points at live until done() returns. */
        int (*resolved)(const struct registry_image *image, void *user, struct error *e);
        /* Layer `index` is whole and verified; `fd` (offset 0) is taken over. In any order. */
        void (*layer)(size_t index, int fd, void *user);
        void (*progress)(const struct registry_progress *p, void *user);   /* at most 10 a second; may be NULL */
        void (*done)(enum registry_failure f, const struct error *e, void *user);
};
struct registry_pull_spec {
        const struct image_ref *ref;
        const char *username, *password;   /* NULL: the operator's, else none */
        uint64_t timeout_ms;               /* for everything, waiting included */
};
/* -EINVAL: a loopback host where that is not allowed, or too long a name or password; else only for want of means. */
int registry_pull_start(struct registry *r, const struct registry_pull_spec *spec, const struct registry_callbacks *cb, void *user,
                        struct registry_pull **ret, struct error *e);
void registry_pull_cancel(struct registry_pull *p);        /* no callback any more. NULL is nothing */

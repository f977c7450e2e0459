/* One thing of a registry, whole and verified: authentication, redirects, waiting when asked to, resuming when cut.
 *
 *   - 401: access_renew, then again; twice in a row is a denial.
 *   - 301, 302, 303, 307, 308: at most GET_REDIRECTS_MAX, where address_resolve lets them; credentials stay with the registry's origin.
 *   - 429, 5xx: again, after Retry-After (at most GET_RETRY_AFTER_MAX_S) or a growing while; GET_ATTEMPTS_MAX in all.
 *   - cut, stalled or short: from where it was cut (Range); a server that begins anew has what is known skipped. An attempt that brought
 *     GET_PROGRESS bytes does not count.
 *   - more bytes than `size`: refused at the first byte too many; another digest: refused.
 *
 * Bytes are hashed as they come, in pieces of at most 16 KiB, and written to `fd` or into `into`. `done` runs once, from the loop, and
 * the get is freed after it; after get_cancel it does not run. Loop thread only. */
#pragma once
#include "base/buf.h"
#include "registry/access.h"

#define GET_REDIRECTS_MAX 5u
#define GET_ATTEMPTS_MAX 5u
#define GET_PROGRESS (1u << 20)
#define GET_RETRY_AFTER_MAX_S 60
#define GET_BACKOFF_MS 200                 /* doubles */
#define GET_JUNK_MAX (64u * 1024)          /* of the body of an answer that is not the thing */

enum registry_failure {
        REGISTRY_OK,
        REGISTRY_NOT_FOUND,                /* no such image, or none for this machine */
        REGISTRY_DENIED,                   /* it needs credentials, or others */
        REGISTRY_UNREACHABLE,              /* no answer, or not now; an address that may not be reached */
        REGISTRY_INVALID,                  /* what it sent is not what it must be: digest, size, form, redirect */
        REGISTRY_TIMEOUT,
        REGISTRY_DISK_FULL,
        REGISTRY_INTERNAL,
        REGISTRY_FAILURE_MAX,
};
STRING_TABLE_DECLARE(registry_failure);

struct get;
struct get_spec {
        uv_loop_t *loop;
        struct fetcher *fetcher;
        struct access *access;
        const char *what;                  /* "manifests/latest", "blobs/sha256:..." */
        const char *accept;
        const char *digest;                /* "" or NULL: unknown */
        uint64_t size; bool exact;         /* at most, or exactly, so many bytes */
        int fd;                            /* -1: into */
        struct buf *into;
        void (*progress)(uint64_t got, void *user);        /* may be NULL */
        void (*done)(enum registry_failure f, const struct error *e, void *user);
        void *user;
};
/* Copies the spec; `into` and the descriptor stay the caller's. */
int get_start(const struct get_spec *spec, struct get **ret, struct error *e);
void get_cancel(struct get *g);            /* NULL is nothing */
/* Valid in done(). */
const char *get_digest(const struct get *g);       /* "sha256:..." of what came */
const char *get_content_type(const struct get *g);

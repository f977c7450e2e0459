/* References to images in a registry: [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]. Pure functions, no ownership, any thread.
 *
 * The first component is a host if it holds a '.' or a ':', or is "localhost", and something follows it: then the reference is taken as
 * it is written. Else it means the registry that the operator has set, if any, and there a path of one component means SPACE/PATH.
 * No registry is known by name here. Without tag and digest the tag is "latest"; with a digest
 * the tag is only remembered: the digest decides. Refused, with a reason that begins with "image": everything that the grammar of the
 * distribution API does not hold (upper case in a path, empty components, '..', control bytes), other digests than sha256, and more
 * than the limits below. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define IMAGE_REF_MAX 1024             /* bytes of a reference as it is given */
#define IMAGE_REF_HOST_MAX 255
#define IMAGE_REF_PATH_MAX 255
#define IMAGE_REF_TAG_MAX 128
#define IMAGE_REF_DIGEST_LEN 71        /* "sha256:" and 64 hex digits */
#define IMAGE_REF_TEXT_MAX (IMAGE_REF_HOST_MAX + IMAGE_REF_PATH_MAX + IMAGE_REF_TAG_MAX + IMAGE_REF_DIGEST_LEN + 4)

#define IMAGE_REF_DEFAULT_TAG "latest"

struct image_ref {
        char host[IMAGE_REF_HOST_MAX + 1];         /* lower case, with ":port" where one was given */
        char path[IMAGE_REF_PATH_MAX + 1];
        char tag[IMAGE_REF_TAG_MAX + 1];           /* "" where only a digest was given */
        char digest[IMAGE_REF_DIGEST_LEN + 1];     /* "sha256:<64 hex>", or "" */
        bool loopback;                             /* the host is written as localhost, 127.x.x.x or [::1]: plain HTTP is possible */
};

/* What a reference without a host means: settings registry.default and registry.namespace. Not owned. */
struct image_ref_default {
        const char *host;                          /* NULL or "": such a reference is refused */
        const char *space;                         /* before a path of one component; NULL or "": nothing */
};
/* -EINVAL: not a host, or not the beginning of a path. */
int image_ref_default_check(const struct image_ref_default *d, struct error *e);

/* `d` NULL: no default. -EINVAL with the reason. */
int image_ref_parse(const char *text, const struct image_ref_default *d, struct image_ref *ret, struct error *e);
/* The whole of it, canonical: what is the same image has the same text. */
void image_ref_format(const struct image_ref *ref, char ret[static IMAGE_REF_TEXT_MAX + 1]);
/* What stands behind the last slash of an API's URL: the digest, else the tag. */
static inline const char *image_ref_name(const struct image_ref *ref) { return ref->digest[0] ? ref->digest : ref->tag; }
/* Is it "sha256:" and 64 lower-case hex digits, n bytes in all? */
bool image_digest_ok(const char *s, size_t n);
/* Is it a host (with a port, perhaps) as a reference may name it? Upper case is accepted. */
bool image_host_ok(const char *s, size_t n);
/* localhost, 127.x.x.x, [::1]: with a port, perhaps. */
bool image_host_is_loopback(const char *host);

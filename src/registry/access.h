/* Who a pull is at its registry: where the API is, and what goes into the Authorization header.
 *
 * A registry that wants to know answers 401 with a challenge. Bearer: a token is fetched at the realm, with the name and password if
 * there are any, for `repository:<path>:pull` of this image and nothing else; Basic: the name and password themselves. The value is for
 * the registry's own origin only. All requests of a pull share it: while a token is being fetched the others wait for it, and a token
 * that has expired is fetched again. Passwords and tokens are wiped when freed, and in no error, log or file. Loop thread only. */
#pragma once
#include "registry/address.h"
#include "store/image_ref.h"

#define ACCESS_TOKEN_MAX (16u * 1024)
#define ACCESS_ANSWER_MAX (64u * 1024)     /* of a token server's answer */
#define ACCESS_RENEWALS_MAX 100u           /* of one pull */
#define ACCESS_SECRET_MAX 4096u            /* of a name or a password */

struct access;
struct access_wait { struct access_wait *next; void (*done)(int r, const struct error *e, void *user); void *user; };

/* `username` NULL: nobody. */
int access_new(struct fetcher *f, const struct image_ref *ref, const char *username, const char *password, struct access **ret, struct error *e);
void access_free(struct access *a);        /* nobody waits any more */

/* The registry's own address: "https://host/v2/<path>/". Loopback may turn out to speak plain HTTP: then access_use_plain. */
const struct address *access_base(const struct access *a);
bool access_is_loopback(const struct access *a);
int access_use_plain(struct access *a, struct error *e);
/* NULL: none yet. `ret_generation` for access_renew. */
const char *access_authorization(const struct access *a, unsigned *ret_generation);
/* The registry answered 401 to a request of that generation. 1: there is a newer one already, try again; 0: `w->done` will say
 * (0: try again); -EACCES: there is nothing more to offer, and other errors. */
int access_renew(struct access *a, const char *challenge, unsigned generation, struct access_wait *w, struct error *e);
void access_leave(struct access *a, struct access_wait *w);

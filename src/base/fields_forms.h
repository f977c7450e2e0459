/* Forms of fields that several requests share: variables, users, labels. For a row's parse(), or on their own. Faults as in
 * base/fields.h; what is returned is the caller's, and untouched on failure. */
#pragma once
#include "base/fields.h"

#define FIELD_ENV_MAX 1000                     /* variables */
#define FIELD_ENV_VALUE_MAX (120u * 1024)      /* one variable; the kernel takes 128 KiB */
#define FIELD_ENV_TOTAL_MAX (1u << 20)         /* all of them */
#define FIELD_USER_MAX 65535                   /* a sandbox owns a range of 65,536 ids */
#define FIELD_LABELS_MAX 64
#define FIELD_LABEL_TEXT_MAX 255u              /* bytes of a label's name and of its value */

/* An object of strings: "K=V", sorted, NULL-terminated. */
int field_env(const struct field *f, const struct json *v, char ***ret, struct error *e);
/* A number, "UID", "UID:GID" or "root" (or ""): a number alone counts for both. */
int field_user(const struct field *f, const struct json *v, uint32_t *ret_uid, uint32_t *ret_gid, struct error *e);
/* An object of strings: "name=value", sorted. A name must not hold '='. */
int field_labels(const struct field *f, const struct json *v, char ***ret, struct error *e);
/* The value of a label, NULL without. */
const char *labels_get(char *const *labels, const char *name);

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
/* The two as a row's parse(): a char ** at its `at`, replaced; a uint32_t each at its `at` (the user) and `with_at` (the group). */
int parse_field_env(const struct field *f, const struct json *v, void *target, struct error *e);
int parse_field_user(const struct field *f, const struct json *v, void *target, struct error *e);
/* An object of strings: "name=value", sorted. A name must not hold '='. */
int field_labels(const struct field *f, const struct json *v, char ***ret, struct error *e);
/* Text, or {"b64": text} for any bytes: appended, at most what the buffer takes. No fault is said: -EBADMSG is another type, -EINVAL what is no
 * base64, -ENOSPC too much, -ENOMEM. */
int field_content(const struct json *v, struct buf *ret);
/* A `mode`: the index of one of `names`. Its fault has a form of its own: "Unsupported mode: 'x'", as Python shows a string. */
int field_mode(const struct json *v, const char *const *names, size_t n, int *ret, struct error *e);
/* The value of a label, NULL without. */
const char *labels_get(char *const *labels, const char *name);

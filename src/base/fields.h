/* Tables of request fields: one row a field says its name, type, range, default and meaning. The same table decodes and checks
 * a request, and documents it, so that the three cannot disagree.
 *
 * Rules of decoding (the executor's contract): null is absence; an integer may come as an integral float or a decimal string;
 * unknown members are ignored; of a member given twice the last counts; a string must not hold NUL. A fault is -EINVAL
 * (or -EOPNOTSUPP where the value is right but of a later release) with a text that names the field; the target may then be
 * half filled and is the caller's to release. No state, any thread. */
#pragma once
#include <stdbool.h>

#include "base/json.h"

#define FIELD_ITEM_MAX (64u * 1024)             /* bytes of one string of a list */
#define FIELD_LIST_TEXT_MAX (64u << 20)         /* bytes of a list that comes as JSON text */

#define FIELDS_MAX 64u

enum field_kind {
        FIELD_STRING,      /* char *, owned; at most `max` bytes */
        FIELD_BYTES,       /* char * and size_t at with_at; may be big: FIELDS_CHECK does not copy it, and fills only the length's bound */
        FIELD_INT,         /* uint64_t, = value * scale (default 1); min <= value <= max */
        FIELD_SIGNED,      /* int; min <= value <= max */
        FIELD_NUMBER,      /* uint64_t, = value * scale, value may have a fraction; min <= value <= max */
        FIELD_BOOL,        /* bool */
        FIELD_LIST,        /* char **: strings, at most `max`; also a JSON text in a string that holds such a list */
        FIELD_ENUM,        /* int-sized enum: index in `names` */
        FIELD_OBJECT,      /* the rows of `sub`, same target */
        FIELD_CUSTOM,      /* parse() does it all */
        FIELD_KIND_MAX,
};

struct field {
        const char *name;
        const char *alias;             /* another name of it, NULL = none; `name` wins */
        enum field_kind kind;
        size_t at, with_at;            /* offsets in the target: of the value, and of what belongs with it, such as its length */
        size_t given_at;               /* offset of a bool, set when the field is present and not null; 0 = none */
        int64_t min, max;
        uint64_t scale;                /* 0 = 1 */
        const char *const *names; size_t n_names;
        const struct field *sub; size_t n_sub;
        int (*parse)(const struct field *f, const struct json *v, void *target, struct error *e);
        const char *type;              /* for documentation, where the kind does not say it */
        const char *def;               /* default, for documentation; the target is filled beforehand */
        const char *doc;
};

enum { FIELDS_CHECK = 1 };             /* the caller wants the faults, not the big strings */

/* The span of each row's member, in one pass over the object; type JSON_NULL where it is absent or null. */
void fields_collect(const struct field *table, size_t n, const struct json *object, struct json *ret /* n */);
int fields_decode_found(const struct field *table, size_t n, const struct json *found, unsigned flags, void *target, struct error *e);
/* Both in one; at most FIELDS_MAX rows. */
int fields_decode(const struct field *table, size_t n, const struct json *object, unsigned flags, void *target, struct error *e);
/* "Invalid value for 'name': <why>": -EINVAL. */
int field_fault(const struct field *f, struct error *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "Unsupported value for 'name': <why>": -EOPNOTSUPP. */
int field_unsupported(const struct field *f, struct error *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* For parse(): the string decoded, owned by the caller; faults for another type, NUL, more than max bytes. */
int field_string(const struct field *f, const struct json *v, size_t max, char **ret, size_t *ret_len, struct error *e);
/* Rows of a Markdown table: name, type, default, meaning. */
int fields_document(const struct field *table, size_t n, const char *prefix, struct buf *ret);

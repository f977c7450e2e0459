/* The envelope of a task: what the surface decides with, around the scoring request itself (score/request.h). */
#pragma once
#include "base/fields.h"

#define LABELS_MAX 64                  /* members of `labels` */
#define LABEL_TEXT_MAX 255u            /* bytes of a label's name and of its value */
#define IDEMPOTENCY_KEY_MAX 255u
#define TASK_PRIORITY_MAX 100

struct envelope {
        char *tenant;                  /* labels.tenant, "" without */
        char *idempotency_key;         /* NULL without */
        int priority;
};
void envelope_release(struct envelope *v);
/* -EINVAL or -EOPNOTSUPP with the wire's text ("Unsupported mode: 'x'"); *ret is filled on success only. `header_key`: the
 * Idempotency-Key header, NULL without; it and the field must not disagree. */
int envelope_decode(const struct json *object, const char *header_key, struct envelope *ret, struct error *e);
/* Appends what Python's repr() says of a string. */
int python_repr(const char *s, size_t n, struct buf *ret);
const struct field *envelope_table(size_t *ret_n);

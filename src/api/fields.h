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
/* -EINVAL with the wire's text; *ret is filled on success only. `header_key`: the
 * Idempotency-Key header, NULL without; it and the field must not disagree. */
int envelope_decode(const struct json *object, const char *header_key, struct envelope *ret, struct error *e);
/* A key that is used as an idempotency key, for tables of other requests: a char * at the row's `at`, replaced; not empty. */
int parse_idempotency_key(const struct field *f, const struct json *v, void *target, struct error *e);
/* The key of the header (NULL without) goes where none came in the body; -EINVAL when the two differ. *key is the caller's. */
int take_header_key(char **key, const char *header_key, struct error *e);
const struct field *envelope_table(size_t *ret_n);

/* Request fields that hold files: {name: text | {"b64": text}, ...}, decoded into a pack (sandbox/file_pack.h). Any thread; what is decoded
 * may be many megabytes. */
#pragma once
#include "base/fields.h"
#include "base/hash.h"
#include "sandbox/file_pack.h"

#define FIELD_PACK_TYPE "object: name → text or `{\"b64\"}`"

/* All of them, executable, into `pack`, which the caller seals. `hash`, where not NULL, takes names and contents in order. -EINVAL with the
 * field's name in the text: what a value is, a name that leaves its directory, or more than a pack holds. */
int field_pack(const struct field *f, const struct json *v, struct file_pack *pack, struct sha256 *hash, struct error *e);

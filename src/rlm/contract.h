/* What a turn's host promises its code: tools by name, outputs by type. Both come as JSON, are checked here once, and are never changed. No
 * input or output; any thread. */
#pragma once
#include "base/json.h"

#define TOOLS_MAX 128u
#define OUTPUTS_MAX 64u
#define CONTRACT_NAME_MAX 64u              /* bytes of a tool's or output's name: a Python identifier of ASCII */
#define SUBMIT_BYTES_MAX (2u << 20)        /* of all outputs together, as JSON */

/* A name that Python takes for one of its own (no keyword), and that a turn does not use itself. */
bool contract_name_ok(const char *name, size_t n);
bool contract_name_reserved(const char *name);     /* llm_query, llm_query_batched, SUBMIT, print */

struct tools { char **names; size_t n; };
/* `v`: an array of objects with a "name"; NULL or JSON null: none. -EINVAL with a text that says which. */
int tools_parse(const struct json *v, struct tools *ret, struct error *e);
void tools_release(struct tools *t);
bool tools_have(const struct tools *t, const struct json *name);

enum output_type { OUTPUT_ANY, OUTPUT_STR, OUTPUT_INT, OUTPUT_FLOAT, OUTPUT_BOOL, OUTPUT_LIST, OUTPUT_DICT, OUTPUT_TYPE_MAX };
STRING_TABLE_DECLARE(output_type);         /* "any", "str", ...; "string", "integer", "number", "boolean", "array", "object" are read too */

struct output {
        char *name;
        enum output_type type, item;       /* item: of a list's items, or a dict's values ("list[str]") */
        bool nullable, required;
        char *def;                         /* JSON of the default; NULL without */
};
struct outputs { struct output *list; size_t n; };
/* `v`: an array of {"name", "type"?, "required"? (true unless there is a default), "default"?}, or an object of name to type; NULL or
 * JSON null: none, and SUBMIT takes whatever it is given. */
int outputs_parse(const struct json *v, struct outputs *ret, struct error *e);
void outputs_release(struct outputs *o);
/* What SUBMIT was called with, a JSON object. 0: the final answer, defaults filled in, in the order of the outputs, is appended to `ret`.
 * -EINVAL, -EFBIG: a text for the code, which may try again. */
int outputs_check(const struct outputs *o, const struct json *given, struct buf *ret, struct error *e);

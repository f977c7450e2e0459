/* JSON without a tree.
 *
 * Reading: json_parse() validates a whole text once (RFC 8259; strict UTF-8; at most JSON_DEPTH_MAX levels; numbers of at most
 * JSON_NUMBER_MAX characters) and gives the span of its value. From then on everything is spans of the caller's bytes: iterating
 * finds the next member's span, nothing is copied or allocated until a string is decoded into a buffer. A 100 MiB string costs
 * one pass and no memory.
 *
 *     struct json doc, v;
 *     if (json_parse(body, n, &doc, &e) < 0 || doc.type != JSON_OBJECT) ...
 *     if (json_get(&doc, "timeout", &v) && json_int(&v, &timeout) < 0) ...
 *
 *     struct json key, value;
 *     for (struct json_iter it = json_iter(&doc); json_next_member(&it, &key, &value);) ...
 *
 * The same key twice: json_get() and the canonical form take the last one; json_next_member() shows both, in order.
 * A lone surrogate escape ("\ud800") is legal JSON that no UTF-8 can hold: it decodes to U+FFFD.
 * A span stays valid as long as the bytes that were parsed. Nothing here keeps state; any thread.
 *
 * Writing: struct json_writer puts commas and quotes into a buffer; errors stick and come out of json_finish(). Bytes that are not
 * UTF-8 are written as U+FFFD, so that any bytes give a valid text. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

#define JSON_DEPTH_MAX 64
#define JSON_NUMBER_MAX 1024            /* characters of one number */
#define JSON_MEMBERS_MAX (1024 * 1024)  /* members of one object, in the canonical form only (it must sort them) */

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT, JSON_TYPE_MAX };
const char *json_type_to_string(int t);      /* "null", "boolean", "number", "string", "array", "object" */

/* One valid value: its bytes, without white space around it; a string with its quotes. */
struct json { enum json_type type; const char *p; size_t n; };

/* -EBADMSG, with the byte's position and the reason in e; -E2BIG for the limits on depth and numbers. */
int json_parse(const char *p, size_t n, struct json *ret, struct error *e);

struct json_iter { const char *p, *end; };
struct json_iter json_iter(const struct json *v);                      /* of an array or object; empty for anything else */
bool json_next_item(struct json_iter *it, struct json *ret);           /* arrays */
bool json_next_member(struct json_iter *it, struct json *ret_key, struct json *ret_value);
bool json_get(const struct json *object, const char *key, struct json *ret);   /* false: no such member, or not an object */
size_t json_count(const struct json *v);                               /* items or members; 0 for anything else */

/* Values. -EINVAL for another type. */
int json_string(const struct json *v, struct buf *b);                  /* appends the decoded bytes, which may hold NUL; -ENOSPC */
bool json_string_is(const struct json *v, const char *s);              /* is it the string s? No allocation */
size_t json_string_max(const struct json *v);                          /* upper bound of the decoded length */
int json_bool(const struct json *v, bool *ret);
int json_double(const struct json *v, double *ret);                    /* -ERANGE: too big for a double */
int json_int(const struct json *v, int64_t *ret);                      /* 3, 3.0, 3e2; -EINVAL: not whole; -ERANGE */
int json_int_loose(const struct json *v, int64_t *ret);                /* json_int, or a string of a decimal integer: "3" */

struct json_writer { struct buf *out; int r; unsigned depth; bool comma; };
#define JSON_WRITER(buf_) { .out = (buf_) }

void json_begin_object(struct json_writer *w);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w);
void json_end_array(struct json_writer *w);
void json_put_key(struct json_writer *w, const char *key);
void json_put_string(struct json_writer *w, const char *p, size_t n);
void json_put_text(struct json_writer *w, const char *s);              /* NULL: null */
void json_put_int(struct json_writer *w, int64_t v);
void json_put_uint(struct json_writer *w, uint64_t v);
void json_put_double(struct json_writer *w, double v);                 /* shortest that reads back the same; null when not finite */
void json_put_bool(struct json_writer *w, bool v);
void json_put_null(struct json_writer *w);
void json_put_raw(struct json_writer *w, const char *p, size_t n);     /* a value that is known to be valid JSON */
void json_put_texts(struct json_writer *w, char *const *list);         /* an array of strings from a NULL-terminated list; NULL: null */
int json_finish(struct json_writer *w);                                /* 0, or the first error of the buffer */

/* Key and value in one. */
static inline void json_field_text(struct json_writer *w, const char *k, const char *s) { json_put_key(w, k); json_put_text(w, s); }
static inline void json_field_string(struct json_writer *w, const char *k, const char *p, size_t n) { json_put_key(w, k); json_put_string(w, p, n); }
static inline void json_field_int(struct json_writer *w, const char *k, int64_t v) { json_put_key(w, k); json_put_int(w, v); }
static inline void json_field_uint(struct json_writer *w, const char *k, uint64_t v) { json_put_key(w, k); json_put_uint(w, v); }
static inline void json_field_double(struct json_writer *w, const char *k, double v) { json_put_key(w, k); json_put_double(w, v); }
static inline void json_field_bool(struct json_writer *w, const char *k, bool v) { json_put_key(w, k); json_put_bool(w, v); }
static inline void json_field_null(struct json_writer *w, const char *k) { json_put_key(w, k); json_put_null(w); }
static inline void json_field_raw(struct json_writer *w, const char *k, const char *p, size_t n) { json_put_key(w, k); json_put_raw(w, p, n); }

/* RFC 8785: keys sorted by UTF-16 code units, numbers as ECMAScript writes them, no white space. Goes to `sink` piece by piece (a
 * hash needs no copy of a big body); a sink's negative answer ends it. -ERANGE: a number that no double holds; -E2BIG: an object
 * of more than JSON_MEMBERS_MAX members; -ENOMEM. */
int json_canonical(const struct json *v, int (*sink)(const void *p, size_t n, void *user), void *user);
int json_canonical_buf(const struct json *v, struct buf *b);
/* "1e+21" and the like: ECMAScript's Number::toString of a finite double. Returns the length. */
#define JSON_DOUBLE_TEXT 32
size_t json_format_double(double v, char ret[static JSON_DOUBLE_TEXT]);

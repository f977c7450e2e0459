/* Parsers of single fields of a scoring request, for the table in request.c; see `parse` in base/fields.h. */
#pragma once
#include "base/fields.h"
#include "score/request.h"

int parse_mode(const struct field *f, const struct json *v, void *target, struct error *e);
int parse_harness(const struct field *f, const struct json *v, void *target, struct error *e);
int parse_network(const struct field *f, const struct json *v, void *target, struct error *e);      /* writes at f->at, the rules at f->with_at */
int parse_framework(const struct field *f, const struct json *v, void *target, struct error *e);
int parse_paths(const struct field *f, const struct json *v, void *target, struct error *e);        /* writes at f->at */

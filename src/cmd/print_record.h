/* A result record as a table for a person. Everything in a record that comes from the scored code (test ids, output, paths) is
 * shown without control bytes: a test must not be able to write to the reader's terminal. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"

/* record: a JSON object. `output`: also the end of the test command's output, unless it is resolved. */
void print_record(FILE *to, const struct json *record, bool output);
/* What replay_compare found: a line for each difference, the first DIFFERENCES_SHOWN of them. */
#define DIFFERENCES_SHOWN 50
void print_differences(FILE *to, const struct json *comparison);
/* The exit status of a verdict: 0 resolved, 2 infra_error, 1 any other. */
int record_exit_status(const struct json *record);

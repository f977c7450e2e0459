/* Structured logs: one line an event, to standard error and, once opened, to a file.
 *
 *     log_event(LOG_INFO, "task.finished", "task", id, "outcome", outcome_to_string(o), NULL);
 *     -> 2026-01-02T03:04:05.678Z info task.finished task=9f.. outcome=resolved
 *
 * Keys and values alternate, NULL ends. Values with spaces, quotes or control bytes are quoted and escaped, so a
 * value cannot forge a line. Values longer than LOG_VALUE_MAX are cut. Thread-safe (one write per line).
 * Never pass a secret: tokens and URLs with credentials are redacted by whoever holds them. */
#pragma once
#include <stdarg.h>
#include <stdint.h>

#include "base/macros.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_MAX };
#define LOG_VALUE_MAX 1024

void log_set_level(enum log_level lowest);
int log_enabled(enum log_level level);    /* would log_event write? For lines whose values cost something */
int log_open_file(const char *path);      /* appends; 0 or -errno; the previous file is closed. Before any other thread logs */
/* A file that has grown to so many bytes becomes <path>.1, in place of the one before, and a new one begins: at most twice as
 * much, and a line, is on disk. Where the directory may not be written the file is emptied instead. 0: no limit. */
void log_limit_file(uint64_t bytes);
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));
/* Whoever wants to hear of every event too, whatever the lowest level is; on the thread that says it. Keys and values alternate, NULL ends. NULL: nobody. */
void log_on_event(void (*seen)(enum log_level level, const char *event, va_list pairs));

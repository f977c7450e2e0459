/* Inside of the patch parser: shared by patch_parse.c (sections), patch_hunk.c (hunks) and patch_text.c (normalising). */
#pragma once
#include "score/patch.h"

struct patch_reader {
        const char *text; size_t len;
        size_t at;                   /* start of the current line */
        uint32_t line;               /* its number, 1-based */
        enum patch_level level;
        struct patch *patch;
        struct error *e;
};

/* Bytes of the line at `at`, newline included; 0 at the end of the text. */
size_t reader_line_len(const struct patch_reader *rd, size_t at);
bool reader_starts(const struct patch_reader *rd, size_t at, const char *prefix);
void reader_next(struct patch_reader *rd);
/* Is there a "--- " / "+++ " / "@@" header at `at`? */
bool reader_plain_header_at(const struct patch_reader *rd, size_t at);
/* Reads the hunk whose header is the current line and adds it to the patch. */
int reader_hunk(struct patch_reader *rd, const char *path);
/* A copy of the text; PATCH_PARSE_REPAIR: fence and CRLF removed, final newline added, *ret_changed says so. */
int patch_normalise(const char *text, size_t len, enum patch_level level, char **ret, size_t *ret_len, bool *ret_changed);

/* A unified diff, parsed: as git writes them and as models mangle them.
 *
 * `patch_parse` reads bytes that nobody trusts and gives a list of file sections with their hunks. It touches no file system.
 * Two levels:
 *   - PATCH_PARSE_STRICT accepts what `git apply` accepts (leading one path component is dropped, counts are right);
 *   - PATCH_PARSE_REPAIR also repairs what has one meaning only: a markdown fence, CRLF transport, a missing final newline,
 *     wrong hunk counts, lost blank context lines, missing `a/` `b/`, a mail signature, `--- /dev/null` without its mode line.
 *
 * Errors: -EPERM for a refusal of the rules (escape, `.git`, a cap), -EBADMSG for what is not a patch; both name path and
 * line in `e`. -ENOMEM is ours. Bytes of lines point into the patch's own copy of the text and live until patch_release. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

/* Caps; going over one is a refusal that names it. */
#define PATCH_BYTES_MAX (64u * 1024 * 1024)        /* text of a patch */
#define PATCH_FILES_MAX 10000u                     /* file sections */
#define PATCH_HUNKS_MAX 200000u
#define PATCH_LINES_MAX 4000000u                   /* lines in hunks */
#define PATCH_PATH_MAX 1024u                       /* bytes of a path */
#define PATCH_COMPONENT_MAX 255u
#define PATCH_DEPTH_MAX 64u                        /* components of a path */
#define PATCH_FILE_BYTES_MAX (128u * 1024 * 1024)  /* one file before or after */
#define PATCH_TOTAL_BYTES_MAX (512u * 1024 * 1024) /* everything written by one patch */
#define PATCH_NOTES_MAX 100u

enum patch_kind { PATCH_MODIFY, PATCH_CREATE, PATCH_DELETE, PATCH_RENAME, PATCH_COPY, PATCH_KIND_MAX };
enum patch_line_kind { PATCH_LINE_CONTEXT, PATCH_LINE_DELETE, PATCH_LINE_ADD };
enum patch_level { PATCH_PARSE_STRICT, PATCH_PARSE_REPAIR };
enum patch_binary_method { PATCH_BINARY_NONE, PATCH_BINARY_LITERAL, PATCH_BINARY_DELTA };

/* p[0..len) without the leading sign; includes its newline unless the patch says that there is none. */
struct patch_line { const char *p; uint32_t len; uint8_t kind; bool guessed; /* blank context that may have been lost */ };

struct patch_hunk {
        uint32_t old_start, old_count, new_start, new_count;
        size_t first, n;             /* in patch.lines */
        uint32_t leading, trailing;  /* context lines before the first and after the last change */
        uint32_t line;               /* of the patch, 1-based */
        bool repaired;               /* counts were wrong or missing: the position alone is no evidence */
        bool no_position;            /* "@@" without numbers */
};

struct patch_file {
        enum patch_kind kind;
        char *old_path, *new_path;   /* owned; NULL on the side that does not exist */
        uint32_t old_mode, new_mode; /* 0 = not said; regular ones masked to 0100644 or 0100755 */
        bool maybe_create;           /* a plain diff that only adds: creates the file if it is not there */
        size_t first, n;             /* in patch.hunks */
        uint32_t line;
        char old_oid[41], new_oid[41];       /* full hashes of the index line, or "" */
        enum patch_binary_method method;
        char *binary; size_t binary_len;     /* inflated; owned */
};

struct patch {
        struct patch_file *files; size_t n_files, files_alloc;
        struct patch_hunk *hunks; size_t n_hunks, hunks_alloc;
        struct patch_line *lines; size_t n_lines, lines_alloc;
        char **notes; size_t n_notes;        /* sections left out: "Binary files differ", submodules */
        char *text; size_t len;              /* owned copy, normalised */
        bool repaired;                       /* a repair was needed to read it */
};

int patch_parse(const char *text, size_t len, enum patch_level level, struct patch *ret, struct error *e);
void patch_release(struct patch *p);
int patch_note(struct patch *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Reads a "GIT binary patch" body that starts at *at (behind its headline), forward part only; moves *at behind both parts. */
int patch_parse_binary(const char *text, size_t len, size_t *at, uint32_t *line, struct patch_file *f, struct error *e);
/* Applies git's delta to `base`. The result is malloc'ed. -EBADMSG when it does not fit, -EPERM over PATCH_FILE_BYTES_MAX. */
int patch_delta_apply(const char *delta, size_t delta_len, const char *base, size_t base_len, char **ret, size_t *ret_len);
/* Hash of a blob, as git names it (SHA-1), 40 hex digits. For comparing with what a patch says, never for trust. */
void patch_blob_oid(const void *p, size_t n, char ret[static 41]);

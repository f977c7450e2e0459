/* Between the files of /v1/sessions/{id}/files and /archive. */
#pragma once
#include "api/v1_internal.h"
#include "session/files.h"

#define FILES_ARGS_MAX 24
#define FILES_PATH_MAX 4095u

/* One request at work on a session's files. Holds the session in use; freed by files_work_free. */
struct files_work {
        struct http_request *r;        /* NULL: answered, or the client is gone */
        struct session_use use;
        struct files_call *call;       /* NULL: over */
        struct api *api;
        const char *argv[FILES_ARGS_MAX + 1]; size_t argc;
        char *owned[FILES_ARGS_MAX]; size_t n_owned;
        int fd;                        /* of an upload: the pipe's end; or -1 */
        int status;                    /* of success */
        bool sending, sent, ended;     /* a download: its pipe is being sent; is sent; the helper has ended well */
        struct files_result *early;    /* what the helper said before the upload was over */
        int result;                    /* of the download's other half */
        const char *media;             /* of a download */
};

/* Begins: the session is READY and in use, argv is empty; or the answer is given (NULL). `passive`: does not count as use. */
struct files_work *files_work_new(struct http_request *r, void *user, int status);
void files_work_free(struct files_work *w);
/* Adds one argument of the helper; the formatted one is kept. After too many, or without memory, starting fails. */
void files_arg(struct files_work *w, const char *text);
void files_argf(struct files_work *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The path as the sandbox has it: relative ones begin at the session's working directory. False: 400 is answered and w freed. */
bool files_path_arg(struct files_work *w, const char *prefix, const char *path, const char *field);
/* Parameters of the query. False as above. */
bool files_query_flag(struct files_work *w, const char *key, const char *arg);
bool files_query_number(struct files_work *w, const char *key, uint64_t absent, uint64_t max, const char *arg);
bool files_query_mode(struct files_work *w);
bool files_query_path(struct files_work *w, const char *absent, const char *prefix);
/* Who owns what is made: the session's user. */
void files_owner_args(struct files_work *w);
/* Fails with an errno, or with what the helper said, and frees w. */
void files_work_fail(struct files_work *w, int x);
void files_work_refuse(struct files_work *w, const struct files_result *res);
/* Runs it as one that has an answer. */
void files_work_ask(struct files_work *w);
void files_work_closed(void *user);    /* the client is gone: for http_on_close */

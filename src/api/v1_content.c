/* /v1/sessions/{id}/files and /archive: bytes of any number, both ways, in constant memory. They go from a pipe of the helper's to the
 * client's connection, or the other way round, no faster than the slower of the two.
 *
 * A download has two ends: the pipe's, which is all that was sent, and the helper's, which says whether that was all there is. The
 * answer ends well when both did. */
#include <string.h>

#include "api/v1_files.h"
#include "http/send.h"
#include "http/upload.h"

/* ---- down ---------------------------------------------------------------------------------------------------------------------- */

/* Both ends have come. */
static void download_over(struct files_work *w) {
        if (!w->sent || !w->ended)
                return;
        if (w->r && w->result == 0)
                http_stream_end(w->r);
        else if (w->r)
                http_stream_abort(w->r);
        w->r = NULL;
        files_work_free(w);
}

static void gone(void *user) { ((struct files_work *)user)->r = NULL; }

static void download_sent(int x, void *user) {
        struct files_work *w = user;
        w->sent = true;
        if (x == -ECANCELED)
                w->r = NULL;
        else if (x < 0)
                w->result = x;
        if (x < 0 && w->call) {
                files_cancel(TAKE_PTR(w->call));
                w->ended = true;
        }
        if (w->r && !w->ended)
                http_on_close(w->r, gone, w);
        download_over(w);
}

static void download_done(const struct files_result *res, void *user) {
        struct files_work *w = user;
        w->call = NULL;
        if (!w->sending) {
                /* It ended before there was anything to send. */
                struct files_result none = *res;
                if (none.x == 0)
                        none.x = -EIO;
                files_work_refuse(w, &none);
                return;
        }
        w->ended = true;
        if (res->x < 0)
                w->result = res->x;
        download_over(w);
}

static void send_content(struct files_work *w, int status, uint64_t from, int64_t count) {
        int fd = files_content(w->call, from, count < 0 ? 0 : (uint64_t)count);
        w->sending = true;
        http_send_pipe(w->r, status, fd, count, w->media, download_sent, w);
}

static void download_opened(int64_t size, void *user) {
        struct files_work *w = user;
        uint64_t from = 0, count = 0;
        if (size < 0) {
                send_content(w, 200, 0, -1);
                return;
        }
        int part = http_range(w->r, (uint64_t)size, &from, &count);
        if (part == -ERANGE) {
                struct http_request *r = TAKE_PTR(w->r);
                http_on_close(r, NULL, NULL);
                http_range_refuse(r, (uint64_t)size);
                files_work_free(w);
                return;
        }
        if (part == 1)
                http_range_header(w->r, (uint64_t)size, from, count);
        else
                http_respond_header(w->r, "Accept-Ranges", "bytes");
        send_content(w, part == 1 ? 206 : 200, from, part == 1 ? (int64_t)count : size);
}

static void download(struct files_work *w) {
        struct sandbox *sb = session_sandbox(w->use.session);
        int x = w->argc > FILES_ARGS_MAX ? -ENOMEM : !sb ? -ESHUTDOWN : files_get(w->api->loop, sb, w->argv, download_opened, download_done, w, &w->call);
        if (x < 0)
                files_work_fail(w, x);
        else
                http_on_close(w->r, files_work_closed, w);
}

void v1_get_file(struct http_request *r, void *user) {
        struct files_work *w = files_work_new(r, user, 200);
        if (!w)
                return;
        files_arg(w, "files");
        files_arg(w, "read");
        files_arg(w, "--");
        w->media = "application/octet-stream";
        if (files_query_path(w, NULL, ""))
                download(w);
}

void v1_get_archive(struct http_request *r, void *user) {
        const char *format = http_query(r, "format");
        bool gzip = format && strcmp(format, "tar.gz") == 0;
        if (format && !gzip && strcmp(format, "tar") != 0) {
                v1_error(r, 400, "invalid", "Invalid value for 'format': must be tar or tar.gz", NULL);
                return;
        }
        struct files_work *w = files_work_new(r, user, 200);
        if (!w)
                return;
        files_arg(w, "files");
        files_arg(w, "pack");
        if (gzip)
                files_arg(w, "gzip");
        files_arg(w, "--");
        w->media = gzip ? "application/gzip" : "application/x-tar";
        if (files_query_path(w, ".", ""))
                download(w);
}

/* ---- up ------------------------------------------------------------------------------------------------------------------------ */

static void upload_answer(struct files_work *w, const struct files_result *res) {
        struct http_request *r = w->r;
        if (res->x < 0) {
                files_work_refuse(w, res);
                return;
        }
        w->r = NULL;
        http_on_close(r, NULL, NULL);
        if (strncmp(res->json, "done ", 5) == 0) {
                unsigned long long in, out, entries, skipped;
                char body[256];
                int n = sscanf(res->json, "done %*64s %llu %llu %llu %llu", &in, &out, &entries, &skipped) == 4
                        ? snprintf(body, sizeof body, "{\"bytes\":%llu,\"unpacked_bytes\":%llu,\"entries\":%llu,\"skipped\":%llu}", in, out, entries, skipped) : 0;
                http_respond(r, w->status, "application/json", n > 0 ? body : "{}", n > 0 ? (size_t)n : 2);
        } else
                http_respond(r, w->status, "application/json", res->json, res->n);
        files_work_free(w);
}

/* The helper has ended. While the body still comes in, the answer waits for the pipe to be found closed: then the request is ours again. */
static void upload_done(const struct files_result *res, void *user) {
        struct files_work *w = user;
        w->call = NULL;
        if (!w->r) {
                files_work_free(w);
                return;
        }
        if (w->sent) {
                upload_answer(w, res);
                return;
        }
        /* Early: only a refusal ends before its input does. */
        struct files_result *kept = malloc(sizeof *kept);
        if (kept) {
                *kept = *res;
                kept->json = NULL;
                kept->n = 0;
                if (kept->x == 0)
                        kept->x = -EIO;
        }
        w->early = kept;
        w->ended = true;
}

static void upload_sent(int x, void *user) {
        struct files_work *w = user;
        w->sent = true;
        if (x == -ECANCELED) {
                /* Not whole: the end of the pipe without a word says so. The helper ends by itself, and nobody hears its answer. */
                w->r = NULL;
                w->fd = fd_close(w->fd);
                if (w->call)
                        files_abort(w->call);
                else
                        files_work_free(w);
                return;
        }
        if (w->ended) {
                static const struct files_result unknown = { .x = -ENOMEM };
                upload_answer(w, w->early ? w->early : &unknown);
                return;
        }
        if (x == 0)
                files_commit(w->call);
        w->fd = fd_close(w->fd);
        /* Now only its answer is missing, also where it would not read on. */
        http_on_close(w->r, gone, w);
}

static void upload(struct files_work *w) {
        struct sandbox *sb = session_sandbox(w->use.session);
        int x = w->argc > FILES_ARGS_MAX ? -ENOMEM : !sb ? -ESHUTDOWN : files_put(sb, w->argv, upload_done, w, &w->call, &w->fd);
        if (x == 0)
                x = http_upload_to_pipe(w->r, w->fd, upload_sent, w);
        if (x < 0)
                files_work_fail(w, x);
}

void v1_put_file(struct http_request *r, void *user) {
        struct files_work *w = files_work_new(r, user, 200);
        if (!w)
                return;
        files_arg(w, "files");
        files_arg(w, "write");
        const char *create = http_query(r, "create");
        if (!create || strcmp(create, "0") == 0 || strcmp(create, "false") == 0)
                files_arg(w, "replace");
        if (!files_query_flag(w, "append", "append") || !files_query_flag(w, "parents", "parents") || !files_query_mode(w))
                return;
        files_owner_args(w);
        files_arg(w, "--");
        if (files_query_path(w, NULL, ""))
                upload(w);
}

void v1_put_archive(struct http_request *r, void *user) {
        struct files_work *w = files_work_new(r, user, 200);
        if (!w)
                return;
        files_arg(w, "unpack");
        files_arg(w, "plain");
        files_owner_args(w);
        if (files_query_path(w, ".", "target="))
                upload(w);
}

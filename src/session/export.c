/* See export.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/json.h"
#include "sandbox/capture.h"
#include "sandbox/files_wire.h"
#include "session/export.h"
#include "session/session_internal.h"

#define SAID_MAX 1024

struct export {
        struct session_use use;
        struct output_capture err;
        int fd;
        session_exported done;
        void *user;
};

static void finish(struct export *x, int r, uint64_t size, const struct error *e) {
        session_use_end(&x->use);
        x->done(r, r == 0 ? TAKE_FD(x->fd) : -1, FILES_HEAD_SIZE, size, e, x->user);
        capture_release(&x->err);
        fd_close(x->fd);
        free(x);
}

/* The head says why there is no archive; our own helper wrote it, but it read a hostile tree. */
static int head_fault(int fd, struct error *e) {
        char head[FILES_HEAD_SIZE];
        struct json v, code, message;
        _cleanup_buf_ struct buf text = BUF_INIT(FILES_HEAD_SIZE);
        if (pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head || json_parse(head, sizeof head, &v, NULL) < 0 || !json_get(&v, "error", &code))
                return 0;
        if (json_get(&v, "message", &message))
                (void)json_string(&message, &text);
        return error_say(e, json_string_is(&code, "not_found") || json_string_is(&code, "not_a_directory") ? -ENOENT : -EIO, "%s", buf_str(&text));
}

static void on_exited(struct sandbox_exec *exec, const struct exec_end *end, void *user) {
        struct export *x = user;
        struct error e = { 0 };
        struct stat st = { 0 };
        int r = fstat(x->fd, &st) < 0 ? -errno : 0;
        if (end->timed_out)
                r = error_say(&e, -ETIMEDOUT, "the export did not end in time");
        else if (!end->started)
                r = error_say(&e, -EIO, "%s", end->error.text);
        else if (r == 0 && end->status != 0) {
                r = head_fault(x->fd, &e);
                if (r == 0)
                        r = error_say(&e, -EIO, "%s", x->err.head.len > 0 ? buf_str(&x->err.head) : "the export broke off");
        } else if (r == 0 && st.st_size <= FILES_HEAD_SIZE)
                r = error_say(&e, -EIO, "the export is empty");
        size_t n = strlen(e.text);
        if (n > 0 && e.text[n - 1] == '\n')
                e.text[n - 1] = 0;
        finish(x, r, (uint64_t)st.st_size - FILES_HEAD_SIZE, &e);
}

int session_export(struct sessions *ss, const char *id, const char *path, uint64_t timeout_ms, session_exported done, void *user, struct error *e) {
        char max[48], level[16];
        struct export *x = calloc(1, sizeof *x);
        if (!x)
                return error_set(e, -ENOMEM, "export");
        *x = (struct export){ .done = done, .user = user };
        capture_init(&x->err, SAID_MAX, 0, UINT64_MAX, -1);
        x->fd = openat(ss->cfg.runs_dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        int r = x->fd < 0 ? error_set(e, -errno, "make a file for the export") : session_use_begin(ss, id, &x->use, NULL);
        snprintf(max, sizeof max, "max=%llu", (unsigned long long)EXPORT_BYTES_MAX);
        snprintf(level, sizeof level, "level=%d", EXPORT_LEVEL);
        struct sandbox *sb = r == 0 ? session_sandbox(x->use.session) : NULL;
        const struct exec_fd fds[] = { { x->fd, 1 } };
        struct exec_spec spec = {
                .argv = (const char *const[]){ "files", "pack", "gzip", level, max, "--", path, NULL }, .env = (const char *const[]){ NULL }, .stdin_fd = -1, .helper = true,
                .err = &x->err, .output_bytes = UINT64_MAX, .fds = fds, .n_fds = 1, .timeout_ms = timeout_ms,
        };
        if (r == 0)
                r = sb ? sandbox_exec(sb, &spec, on_exited, x, NULL, e) : error_say(e, -ESHUTDOWN, "the session has ended");
        if (r < 0) {
                session_use_end(&x->use);
                capture_release(&x->err);
                fd_close(x->fd);
                free(x);
        }
        return r;
}

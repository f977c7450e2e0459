/* Theory of operation. Request and patches go in as sealed memfds, the report comes back in a plain one, which is read when the
 * helper has ended: nobody else ever held it, so nothing of it can still change. A helper that was killed (the sandbox's memory
 * limit, the time limit) while it worked on the agent's patch is the patch's doing, not ours: a second one puts the patch's
 * paths back to base and goes on without it. If that ends badly too, it is our fault. */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/capture.h"
#include "score/apply_report.h"
#include "score/apply_wire.h"

#define APPLY_TIMEOUT_MS (120u * 1000)
#define APPLY_STDERR_MAX 4096u

struct apply_call {
        struct sandbox *sandbox;
        enum patch_mode mode;
        struct buf request;
        int patch_fd, test_patch_fd, report_fd;
        int seal_fd, watch_fd;                 /* the caller's */
        struct output_capture err;
        bool undone;
        apply_done done;
        void *user;
};

static void call_free(struct apply_call *c) {
        if (!c)
                return;
        buf_release(&c->request);
        fd_close(c->patch_fd);
        fd_close(c->test_patch_fd);
        fd_close(c->report_fd);
        capture_release(&c->err);
        free(c);
}

static int start(struct apply_call *c, struct error *e);

static int read_report(struct apply_call *c, struct apply_result *ret, struct error *e) {
        struct stat st;
        if (fstat(c->report_fd, &st) < 0)
                return error_set(e, -errno, "read the helper's report");
        if (st.st_size == 0)
                return error_say(e, -EBADMSG, "the helper left no report");
        if ((uint64_t)st.st_size > (uint64_t)APPLY_REPORT_MAX + APPLY_DIFF_MAX + 64)
                return error_say(e, -EBADMSG, "the helper's report is too long");
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, c->report_fd, 0);
        if (p == MAP_FAILED)
                return error_set(e, -errno, "read the helper's report");
        int r = apply_report_read(p, (size_t)st.st_size, c->mode, ret, e);
        munmap(p, (size_t)st.st_size);
        return r;
}

static int start_undo(struct apply_call *c, const struct exec_end *end, struct error *e) {
        c->undone = true;
        int r = frame_adds(&c->request, FRAME_UNDO, end->timed_out ? "the patch takes too long to apply" : "the patch takes more memory to apply than the sandbox has");
        return r < 0 ? error_set(e, r, "apply") : start(c, e);
}

static int judge(struct apply_call *c, const struct exec_end *end, struct apply_result *res, struct error *e) {
        if (end->sandbox_ended)
                return error_say(e, -ECANCELED, "the sandbox ended while patches were applied");
        if (!end->started)
                return error_say(e, -EIO, "start the helper: %.300s", end->error.text);
        if (end->timed_out || WIFSIGNALED(end->status))
                return error_say(e, -EIO, "the helper was killed while it applied patches%s", end->timed_out ? " (time limit)" : "");
        return read_report(c, res, e);
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct apply_call *c = user;
        struct apply_result res = { 0 };
        struct error e = { 0 };
        bool killed = end->started && !end->sandbox_ended && (end->timed_out || WIFSIGNALED(end->status));
        if (killed && !c->undone && start_undo(c, end, &e) == 0)
                return;
        int r = judge(c, end, &res, &e);
        c->done(r, r == 0 ? &res : NULL, r < 0 ? &e : NULL, c->user);
        apply_result_release(&res);
        call_free(c);
}

static int start(struct apply_call *c, struct error *e) {
        static const char *const argv[] = { "apply", NULL }, *const env[] = { NULL };
        struct sandbox_exec *x;
        _cleanup_close_ int request = fs_memfd("apply-request", c->request.data, c->request.len);
        if (request < 0)
                return error_set(e, request, "apply");
        fd_close(c->report_fd);
        c->report_fd = memfd_create("apply-report", MFD_CLOEXEC);
        if (c->report_fd < 0)
                return error_set(e, -errno, "apply");
        /* A first helper may have begun to write it. */
        if (c->seal_fd >= 0 && (ftruncate(c->seal_fd, 0) < 0 || lseek(c->seal_fd, 0, SEEK_SET) < 0))
                return error_set(e, -errno, "apply");
        struct exec_fd fds[6] = {
                { request, APPLY_REQUEST_FD }, { c->patch_fd, APPLY_PATCH_FD }, { c->test_patch_fd, APPLY_TEST_PATCH_FD }, { c->report_fd, APPLY_REPORT_FD },
        };
        size_t n_fds = 4;
        if (c->seal_fd >= 0)
                fds[n_fds++] = (struct exec_fd){ c->seal_fd, APPLY_SEAL_FD };
        if (c->seal_fd >= 0 && c->watch_fd >= 0)
                fds[n_fds++] = (struct exec_fd){ c->watch_fd, APPLY_WATCH_FD };
        const struct exec_spec spec = {
                .argv = argv, .env = env, .cwd = "/", .stdin_fd = -1, .err = &c->err, .fds = fds, .n_fds = n_fds,
                .timeout_ms = APPLY_TIMEOUT_MS, .helper = true,
        };
        return sandbox_exec(c->sandbox, &spec, on_exited, c, &x, e);
}

static int add_list(struct buf *b, enum apply_frame type, const char *const *list) {
        int r = 0;
        for (; list && *list && r == 0; list++)
                r = frame_adds(b, type, *list);
        return r;
}

static int make_request(const struct apply_spec *s, struct buf *b) {
        char mode[4], diff[24], memory[24];
        snprintf(mode, sizeof mode, "%d", s->mode);
        snprintf(diff, sizeof diff, "%zu", MIN2(s->diff_max, (size_t)APPLY_DIFF_MAX));
        /* A patch that takes the sandbox's memory would end the sandbox: the helper has three quarters of it and runs out first. */
        snprintf(memory, sizeof memory, "%llu", (unsigned long long)MAX2(s->memory_bytes / 4 * 3, APPLY_MEMORY_MIN));
        int r = frame_adds(b, FRAME_REPO_PATH, s->repo_path);
        if (r == 0) r = frame_adds(b, FRAME_MODE, mode);
        if (r == 0 && s->memory_bytes) r = frame_adds(b, FRAME_MEMORY, memory);
        if (r == 0) r = add_list(b, FRAME_PROTECT, s->protect);
        if (r == 0) r = add_list(b, FRAME_ALLOW, s->allow_config);
        if (r == 0 && s->command && strlen(s->command) < APPLY_REQUEST_MAX / 4) r = frame_adds(b, FRAME_COMMAND, s->command);
        /* What finds no room is only not looked at. */
        for (const char *const *n = s->seal_fd >= 0 ? s->named : NULL; r == 0 && n && *n && b->len + strlen(*n) < APPLY_REQUEST_MAX / 2; n++)
                r = frame_adds(b, FRAME_NAMED, *n);
        if (r == 0 && s->capture_diff) r = frame_adds(b, FRAME_DIFF_MAX, diff);
        return r;
}

int score_apply(const struct apply_spec *spec, apply_done done, void *user, struct error *e) {
        struct apply_call *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "apply");
        *c = (struct apply_call){ .sandbox = spec->sandbox, .mode = spec->mode, .patch_fd = -1, .test_patch_fd = -1, .report_fd = -1,
                                  .seal_fd = spec->seal_fd, .watch_fd = spec->watch_fd, .done = done, .user = user };
        buf_init(&c->request, APPLY_REQUEST_MAX);
        int r = capture_init(&c->err, APPLY_STDERR_MAX, APPLY_STDERR_MAX, 256 * APPLY_STDERR_MAX, -1);
        if (r == 0)
                r = make_request(spec, &c->request);
        if (r == 0)
                r = c->patch_fd = fs_memfd("patch", spec->patch, spec->patch_len);
        if (r >= 0)
                r = c->test_patch_fd = fs_memfd("test-patch", spec->test_patch, spec->test_patch_len);
        if (r < 0)
                error_set(e, r, "apply");
        else
                r = start(c, e);
        if (r < 0)
                call_free(c);
        return r < 0 ? r : 0;
}

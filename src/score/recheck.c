#include "score/recheck.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "score/apply_report.h"
#include "score/apply_wire.h"

struct recheck { int report_fd; recheck_done done; void *user; };

static void release(struct recheck *c) {
        fd_close(c->report_fd);
        free(c);
}

static int read_report(int fd, struct findings *ret, struct error *e) {
        struct stat st;
        if (fstat(fd, &st) < 0 || st.st_size <= 0 || (uint64_t)st.st_size > (uint64_t)APPLY_REPORT_MAX + 64)
                return error_say(e, -EBADMSG, "the helper left no report that could be read");
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
                return error_set(e, -errno, "read the helper's report");
        int r = apply_findings_read(p, (size_t)st.st_size, ret, e);
        munmap(p, (size_t)st.st_size);
        return r;
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct recheck *c = user;
        struct findings f = { 0 };
        struct error e = { 0 };
        int r;
        if (end->sandbox_ended || !end->started || end->timed_out || !WIFEXITED(end->status))
                r = error_say(&e, -EIO, "the helper that looks at the tree %s", end->timed_out ? "took too long" : "was ended");
        else
                r = read_report(c->report_fd, &f, &e);
        c->done(r, &f, &e, c->user);
        findings_release(&f);
        release(c);
}

int recheck_start(struct sandbox *s, int seal_fd, int watch_fd, const char *rule, recheck_done done, void *user, struct error *e) {
        static const char *const env[] = { NULL };
        const char *const argv[] = { "recheck", rule, NULL };
        struct sandbox_exec *x;
        struct recheck *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "look at the tree again");
        *c = (struct recheck){ .report_fd = memfd_create("recheck-report", MFD_CLOEXEC), .done = done, .user = user };
        const struct exec_fd fds[] = { { seal_fd, RECHECK_SEAL_FD }, { c->report_fd, RECHECK_REPORT_FD }, { watch_fd, RECHECK_WATCH_FD } };
        const struct exec_spec spec = {
                .argv = argv, .env = env, .cwd = "/", .stdin_fd = -1, .fds = fds, .n_fds = watch_fd >= 0 ? 3 : 2, .timeout_ms = RECHECK_TIMEOUT_MS,
                .helper = true, .helper_upper = true,
        };
        int r = c->report_fd < 0 ? error_set(e, -errno, "look at the tree again") : sandbox_exec(s, &spec, on_exited, c, &x, e);
        if (r < 0)
                release(c);
        return r;
}

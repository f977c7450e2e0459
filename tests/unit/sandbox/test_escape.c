/* Attempts to get out of a sandbox, made by its root (escape.py), by profile; and sandboxes against each other. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <arpa/inet.h>

#include "base/fs.h"
#include "sandbox/fixture.h"

#define ATTEMPTS_MIN 85

struct host { char mark[64], abstract[32], port[8]; int loopback, abstract_fd; };

static void host_open(struct host *h) {
        snprintf(h->mark, sizeof h->mark, "/tmp/brig-escape-mark-%d", (int)getpid());
        int fd = open(h->mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        fd_close(fd);
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof in;
        h->loopback = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(h->loopback, (void *)&in, sizeof in) | listen(h->loopback, 4) | getsockname(h->loopback, (void *)&in, &n), 0);
        snprintf(h->port, sizeof h->port, "%u", ntohs(in.sin_port));
        struct sockaddr_un un = { .sun_family = AF_UNIX };
        int len = snprintf(h->abstract, sizeof h->abstract, "brig-escape-%d", (int)getpid());
        memcpy(un.sun_path + 1, h->abstract, (size_t)len);
        h->abstract_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(h->abstract_fd, (void *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) | listen(h->abstract_fd, 4), 0);
}

static void host_close(struct host *h) {
        unlink(h->mark);
        fd_close(h->loopback);
        fd_close(h->abstract_fd);
}

static void try_to_escape(struct fixture *f, enum sandbox_profile profile, const char *name) {
        struct host h;
        struct box b;
        struct run r;
        host_open(&h);
        _cleanup_buf_ struct buf script = BUF_INIT(65536);
        assert_int_equal(fs_read_file(AT_FDCWD, SOURCE_ROOT "/tests/unit/sandbox/escape.py", &script), 0);
        const struct sandbox_file file = { .name = "escape.py", .fd = fs_memfd("escape", buf_str(&script), script.len), .mode = 0444 };
        struct sandbox_spec spec = box_spec();
        spec.profile = profile;
        spec.files = &file;
        spec.n_files = 1;
        box_create(f, &b, &spec);
        const char *const argv[] = { "python3", "-I", "/run/brig/escape.py", h.mark, h.port, h.abstract, name, NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        const char *out = run_out(&r), *last = strrchr(out, '\n');
        if (strstr(out, "ESCAPED") || !WIFEXITED(r.end.status) || WEXITSTATUS(r.end.status) != 0) {
                print_error("%s\n", out);
                fail_msg("%s", run_err(&r));
        }
        assert_true(strtol(last ? last + 1 : out, NULL, 10) >= ATTEMPTS_MIN);
        run_release(&r);
        box_destroy(&b);
        fd_close(file.fd);
        host_close(&h);
}

static void root_of_a_score_does_not_get_out(void **state) { try_to_escape(*state, PROFILE_SCORE, "score"); }
static void root_of_a_setup_does_not_get_out(void **state) { try_to_escape(*state, PROFILE_SETUP, "setup"); }

#define LISTEN_ABSTRACT "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0meet'); s.listen(); print('up',flush=True); time.sleep(100)"
#define REACH_ABSTRACT "import socket; s=socket.socket(socket.AF_UNIX); s.connect('\\0meet'); print('reached')"

static void sandboxes_share_no_abstract_sockets_processes_or_memory(void **state) {
        struct box a, b;
        struct run listener, r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &a, &spec);
        box_create(*state, &b, &spec);
        const char *const argv[] = { "python3", "-c", LISTEN_ABSTRACT, NULL };
        const struct exec_spec x = run_spec(&listener, argv);
        run_start(&a, &listener, &x);
        run_sh(&a, &r, "touch /dev/shm/mine /tmp/mine; ipcmk -M 100 >/dev/null; until python3 -c \"" REACH_ABSTRACT "\" 2>/dev/null; do :; done");
        assert_string_equal(run_out(&r), "reached");
        run_release(&r);
        run_sh(&b, &r, "ls /dev/shm/mine /tmp/mine 2>/dev/null; ipcs -m | grep -c 0x; python3 -c \"" REACH_ABSTRACT "\" 2>/dev/null; ls -d /proc/[0-9]* | wc -l | grep -vE '^[1-6]$'; true");
        assert_string_equal(run_out(&r), "0");
        run_release(&r);
        box_destroy(&a);
        assert_true(listener.exited);
        run_release(&listener);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(root_of_a_score_does_not_get_out),
                cmocka_unit_test(root_of_a_setup_does_not_get_out),
                cmocka_unit_test(sandboxes_share_no_abstract_sockets_processes_or_memory),
        };
        return cmocka_run_group_tests_name("sandbox/escape", tests, fixture_setup, fixture_teardown);
}

/* The network `allow`, from a real sandbox to servers on this machine's loopback. A child of the test is the name server and the
 * servers behind the names; the operator allows 127.0.0.5 alone. */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/json.h"
#include "egress/dns.h"
#include "sandbox/fixture.h"

static pid_t servers;
static uint16_t dns_port, port;
static struct egress *egress;

/* ---- the servers ---- */

static int bound(int type, const char *address, uint16_t *p) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(*p) };
        socklen_t n = sizeof at;
        int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;
        inet_pton(AF_INET, address, &at.sin_addr);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
        *p = ntohs(at.sin_port);
        if (type == SOCK_STREAM)
                assert_int_equal(listen(fd, 1024), 0);     /* all that a test opens: one that does not fit comes seconds later */
        return fd;
}

static const struct { const char *name, *address; } zone[] = {
        { "good.test", "127.0.0.5" },         { "other.test", "127.0.0.5" },          { "deep.down.good.test", "127.0.0.5" },
        { "rebind.test", "127.0.0.1" },       { "metadata.test", "169.254.169.254" }, { "private.test", "10.99.1.2" },
        { "ours.test", "198.18.0.1" },        { "forbidden.test", "127.0.0.5" },      { "closed.test", "127.0.0.5" },
};

static void answer_dns(int fd) {
        uint8_t in[512], out[600];
        struct sockaddr_in from;
        socklen_t n = sizeof from;
        ssize_t got = recvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&from, &n);
        struct dns_question q;
        struct egress_address a;
        int rcode = DNS_NXDOMAIN;
        if (got < 0 || dns_read_question(in, (size_t)got, &q, &rcode) < 0)
                return;
        rcode = DNS_NXDOMAIN;
        for (size_t i = 0; i < ARRAY_SIZE(zone); i++)
                if (strcmp(zone[i].name, q.name) == 0 && egress_address_parse(zone[i].address, &a) == 0)
                        rcode = DNS_OK;
        for (size_t i = 0; i < ARRAY_SIZE(zone); i++)
                if (strcmp(zone[i].name, q.name) == 0)
                        egress_address_parse(zone[i].address, &a);
        size_t len = dns_write_answer(in, &q, rcode, rcode == DNS_OK && q.type == DNS_TYPE_A ? a.b : NULL, 1, out);
        sendto(fd, out, len, 0, (struct sockaddr *)&from, n);
}

/* Says who it is, then gives back what it is sent until the end of that. */
static void serve(int fd) {
        char space[65536];
        static const char hello[] = "hello\n";
        ssize_t n = write(fd, hello, sizeof hello - 1);
        while (n > 0 && (n = read(fd, space, sizeof space)) > 0)
                for (ssize_t at = 0; at < n;) {
                        ssize_t w = write(fd, space + at, (size_t)(n - at));
                        if (w <= 0)
                                _exit(1);
                        at += w;
                }
        _exit(0);
}

static void run_servers(int dns, int tcp) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        struct pollfd p[] = { { .fd = dns, .events = POLLIN }, { .fd = tcp, .events = POLLIN } };
        for (;;) {
                poll(p, 2, -1);
                if (p[0].revents)
                        answer_dns(dns);
                if (p[1].revents) {
                        int fd = accept(tcp, NULL, NULL);
                        if (fork() == 0)
                                serve(fd);
                        close(fd);
                }
        }
}

static int setup(void **state) {
        int dns = bound(SOCK_DGRAM, "127.0.0.1", &dns_port), tcp = bound(SOCK_STREAM, "127.0.0.5", &port);
        servers = fork();
        if (servers == 0)
                run_servers(dns, tcp);
        close(dns);
        close(tcp);
        if (fixture_setup(state) < 0)
                return -1;
        struct fixture *f = *state;
        char server[32];
        struct error e;
        snprintf(server, sizeof server, "127.0.0.1:%u", dns_port);
        const struct egress_config cfg = {
                .allow = (const char *const[]){ "127.0.0.5/32", NULL }, .deny = (const char *const[]){ "forbidden.test", NULL }, .resolver = server,
        };
        assert_int_equal(egress_open(&f->loop, &cfg, &egress, &e), 0);
        spawner_set_egress(f->spawner, egress);
        return 0;
}

static int teardown(void **state) {
        egress_close(egress);
        int r = fixture_teardown(state);
        kill(servers, SIGKILL);
        waitpid(servers, NULL, 0);
        return r;
}

/* ---- boxes ---- */

static void create(void **state, struct box *b, const char *const *rules) {
        struct egress_rules *r;
        struct error e = { 0 };
        assert_int_equal(egress_rules_new(rules, &r, &e), 0);
        struct sandbox_spec spec = box_spec();
        spec.network = NETWORK_ALLOW;
        spec.allow = r;
        box_create(*state, b, &spec);
        egress_rules_unref(r);
}
#define RULES(...) (const char *const[]){ __VA_ARGS__, NULL }

/* $1 host: says what the server said, or "no". */
static const char *ask(struct box *b, struct run *r, const char *host, unsigned to_port) {
        char script[512];
        snprintf(script, sizeof script, "exec 2>/dev/null; (exec 3<>/dev/tcp/%s/%u; read -t 10 -u 3 line && echo $line) || echo no", host, to_port);
        const char *const argv[] = { "/bin/bash", "-c", script, NULL };
        struct exec_spec x = run_spec(r, argv);
        run_start(b, r, &x);
        run_wait(b, r);
        return run_out(r);
}

static void check(struct box *b, const char *host, unsigned to_port, const char *expected) {
        struct run r;
        const char *said = ask(b, &r, host, to_port);
        if (strcmp(said, expected) != 0)
                fail_msg("%s:%u: '%s', not '%s'", host, to_port, said, expected);
        run_release(&r);
}

static const struct egress_denial *last_denial(struct box *b) {
        const struct egress_net *n = sandbox_egress(b->sandbox);
        if (egress_net_log_count(n) == 0)
                fail_msg("nothing was denied");
        return egress_net_log_at(n, egress_net_log_count(n) - 1);
}

static void check_denied(struct box *b, const char *host, unsigned to_port, enum egress_reason reason) {
        check(b, host, to_port, "no");
        const struct egress_denial *d = last_denial(b);
        assert_string_equal(egress_reason_to_string((int)d->reason), egress_reason_to_string((int)reason));
        assert_string_equal(d->target, host);
}

/* ---- tests ---- */

static void an_allowed_name_is_reached(void **state) {
        struct box b;
        create(state, &b, RULES("good.test"));
        check(&b, "good.test", port, "hello");
        check(&b, "GOOD.test.", port, "hello");
        const struct egress_counters *c = egress_net_counters(sandbox_egress(b.sandbox));
        assert_int_equal(c->connections, 2);
        assert_int_equal(c->bytes_down, 12);
        assert_int_equal(c->denied, 0);
        box_destroy(&b);
        assert_true(b.end.has_network);
        assert_int_equal(b.end.network.connections, 2);
}

static void other_names_do_not_exist(void **state) {
        struct box b;
        struct run r;
        create(state, &b, RULES("good.test", "*.below.test:1"));
        check_denied(&b, "other.test", port, REASON_NOT_ALLOWED);
        assert_int_equal(last_denial(&b)->port, 0);
        check_denied(&b, "deep.down.good.test", port, REASON_NOT_ALLOWED);
        run_sh(&b, &r, "getent hosts other.test || echo $?; getent ahostsv4 a.below.test | head -1 | cut -c1-7");
        assert_string_equal(run_out(&r), "2\n198.18.");
        run_release(&r);
        box_destroy(&b);
}

static void ports_count(void **state) {
        struct box b;
        char rule[64];
        snprintf(rule, sizeof rule, "good.test:%u", port);
        create(state, &b, RULES(rule));
        check(&b, "good.test", port, "hello");
        check_denied(&b, "good.test", 81, REASON_NOT_ALLOWED);
        assert_int_equal(last_denial(&b)->port, 81);
        box_destroy(&b);
}

static void names_do_not_lead_to_this_host_or_its_network(void **state) {
        struct box b;
        create(state, &b, RULES("*.test", "*"));
        check_denied(&b, "rebind.test", port, REASON_LOCAL_ADDRESS);
        assert_string_equal(last_denial(&b)->address, "127.0.0.1");
        check_denied(&b, "metadata.test", 80, REASON_LOCAL_ADDRESS);
        check_denied(&b, "private.test", 80, REASON_PRIVATE_ADDRESS);
        check_denied(&b, "ours.test", 80, REASON_NO_ADDRESS);
        check_denied(&b, "forbidden.test", port, REASON_OPERATOR);
        check(&b, "good.test", port, "hello");
        check(&b, "nobody.test", port, "no");
        assert_int_equal(egress_net_counters(sandbox_egress(b.sandbox))->failed, 1);
        box_destroy(&b);
}

static void addresses_need_a_range(void **state) {
        struct box b;
        create(state, &b, RULES("127.0.0.0/8", "192.0.2.0/24", "good.test"));
        check_denied(&b, "198.18.77.77", port, REASON_UNKNOWN_NAME);
        check_denied(&b, "10.1.2.3", port, REASON_NOT_ALLOWED);
        check_denied(&b, "192.0.2.1", port, REASON_NO_ADDRESS);
        check_denied(&b, "2001:db8::1", port, REASON_NOT_ALLOWED);
        check_denied(&b, "169.254.169.254", 80, REASON_NOT_ALLOWED);
        box_destroy(&b);
}

static void loopback_is_the_sandboxs_own(void **state) {
        struct box b;
        struct run r;
        create(state, &b, RULES("127.0.0.0/8"));
        check(&b, "127.0.0.5", port, "no");
        run_sh(&b, &r, "python3 -c 'import socket; s=socket.create_server((\"127.0.0.1\",7000)); c=socket.create_connection((\"127.0.0.1\",7000)); "
                       "a,_=s.accept(); a.send(b\"own\"); print(c.recv(9).decode())'");
        assert_string_equal(run_out(&r), "own");
        assert_int_equal(egress_net_log_count(sandbox_egress(b.sandbox)), 0);
        run_release(&r);
        box_destroy(&b);
}

static void nothing_but_connections_gets_anywhere(void **state) {
        struct box b;
        struct run r;
        create(state, &b, RULES("*", "0.0.0.0/0", "::/0"));
        run_sh(&b, &r,
               "python3 - <<'E'\n"
               "import socket\n"
               "def datagram(family, to):\n"
               "    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(0.2)\n"
               "    try:\n"
               "        s.connect(to); s.send(b'x'); return s.recv(9)\n"
               "    except OSError as e:\n"
               "        return type(e).__name__\n"
               "print(datagram(socket.AF_INET, ('8.8.8.8', 123)), datagram(socket.AF_INET6, ('2001:4860::8', 123)))\n"
               "p = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); p.settimeout(0.2)\n"
               "p.sendto(bytes([8,0,0xf7,0xff,0,0,0,0]), ('8.8.8.8', 0))\n"
               "try: print(p.recv(99))\n"
               "except OSError as e: print(type(e).__name__)\n"
               "try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('raw')\n"
               "except OSError as e: print(type(e).__name__)\n"
               "E\n"
               "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '");
        assert_string_equal(run_out(&r), "ConnectionRefusedError ConnectionRefusedError\nTimeoutError\nPermissionError\nlo");
        run_release(&r);
        box_destroy(&b);
}

static void much_goes_both_ways_whole(void **state) {
        struct box b;
        struct run r;
        char script[1024];
        create(state, &b, RULES("good.test"));
        snprintf(script, sizeof script,
                 "python3 - <<'E'\n"
                 "import socket, threading, hashlib, os\n"
                 "c = socket.create_connection(('good.test', %u)); data = os.urandom(1 << 20) * 24\n"
                 "def send():\n"
                 "    c.sendall(data); c.shutdown(socket.SHUT_WR)\n"
                 "t = threading.Thread(target=send); t.start()\n"
                 "got = b''.join(iter(lambda: c.recv(1 << 16), b''))\n"
                 "t.join(); print(got == b'hello\\n' + data)\n"
                 "E", port);
        run_sh(&b, &r, script);
        assert_string_equal(run_out(&r), "True");
        run_release(&r);
        const struct egress_counters *c = egress_net_counters(sandbox_egress(b.sandbox));
        assert_int_equal(c->bytes_up, 24 << 20);
        assert_int_equal(c->bytes_down, (24 << 20) + 6);
        box_destroy(&b);
        assert_int_equal(b.end.network.open, 0);
}

static void new_rules_cut_what_they_forbid(void **state) {
        struct box b;
        struct run r;
        char script[512];
        struct egress_rules *rules;
        struct error e;
        create(state, &b, RULES("good.test", "other.test"));
        snprintf(script, sizeof script,
                 "python3 - <<'E'\n"
                 "import socket\n"
                 "a = socket.create_connection(('good.test', %u)); b = socket.create_connection(('other.test', %u))\n"
                 "a.recv(9); b.recv(9); print('up', flush=True)\n"
                 "try: print(a.recv(9))\n"
                 "except OSError as e: print(type(e).__name__)\n"
                 "b.send(b'still'); print(b.recv(9))\n"
                 "E", port, port);
        const char *const argv[] = { "/bin/sh", "-c", script, NULL };
        struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        struct fixture *f = *state;
        while (egress_net_counters(sandbox_egress(b.sandbox))->bytes_down < 12)
                uv_run(&f->loop, UV_RUN_ONCE);
        assert_int_equal(egress_rules_new(RULES("other.test"), &rules, &e), 0);
        egress_net_set_rules(sandbox_egress(b.sandbox), rules);
        egress_rules_unref(rules);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "up\nConnectionResetError\nb'still'");
        run_release(&r);
        box_destroy(&b);
}

static void the_proxy_obeys_the_same_rules(void **state) {
        struct box b;
        struct run r;
        char script[1024];
        create(state, &b, RULES("good.test"));
        snprintf(script, sizeof script,
                 "python3 - <<'E'\n"
                 "import socket\n"
                 "def say(text):\n"
                 "    s = socket.create_connection(('198.18.0.1', 3128)); s.settimeout(10); s.sendall(text.encode())\n"
                 "    got = b''\n"
                 "    while b'hello' not in got:\n"
                 "        more = s.recv(999)\n"
                 "        if not more: break\n"
                 "        got += more\n"
                 "    return got.split(b' ')[1].decode(), b'hello' in got\n"
                 "print(say('CONNECT good.test:%u HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'), say('CONNECT other.test:%u HTTP/1.1\\r\\n\\r\\n'))\n"
                 "print(say('CONNECT 127.0.0.1:%u HTTP/1.1\\r\\n\\r\\n'), say('GET http://good.test/ HTTP/1.1\\r\\n\\r\\n'))\n"
                 "E", port, port, port);
        run_sh(&b, &r, script);
        assert_string_equal(run_out(&r), "('200', True) ('403', False)\n('403', False) ('400', False)");
        run_release(&r);
        box_destroy(&b);
}

static void many_connections_are_bounded(void **state) {
        struct box b;
        struct run r;
        char script[1024];
        create(state, &b, RULES("good.test"));
        snprintf(script, sizeof script,
                 "python3 - <<'E'\n"
                 "import socket, resource\n"
                 "resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))\n"
                 "at = socket.gethostbyname('good.test'); all = []; good = bad = 0\n"
                 "for _ in range(300):\n"
                 "    try: all.append(socket.create_connection((at, %u)))\n"
                 "    except ConnectionError: bad += 1\n"       /* the reset may come before connect() has returned */
                 "for s in all:\n"
                 "    try:\n"
                 "        good += s.recv(9) == b'hello\\n'\n"
                 "    except OSError: bad += 1\n"
                 "print(good, bad)\n"
                 "E", port);
        run_sh(&b, &r, script);
        assert_string_equal(run_out(&r), "256 44");
        assert_int_equal(last_denial(&b)->reason, REASON_TOO_MANY);
        run_release(&r);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_allowed_name_is_reached),
                cmocka_unit_test(other_names_do_not_exist),
                cmocka_unit_test(ports_count),
                cmocka_unit_test(names_do_not_lead_to_this_host_or_its_network),
                cmocka_unit_test(addresses_need_a_range),
                cmocka_unit_test(loopback_is_the_sandboxs_own),
                cmocka_unit_test(nothing_but_connections_gets_anywhere),
                cmocka_unit_test(much_goes_both_ways_whole),
                cmocka_unit_test(new_rules_cut_what_they_forbid),
                cmocka_unit_test(the_proxy_obeys_the_same_rules),
                cmocka_unit_test(many_connections_are_bounded),
        };
        return cmocka_run_group_tests(tests, setup, teardown);
}

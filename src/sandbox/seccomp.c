/* Builds the filters: a search tree over ranges of numbers with the same answer, then the checks of arguments.
 *
 * libseccomp knows the numbers; its own programs, one comparison a call, take the kernel about twice as long to install
 * (0.3 ms against 0.15), and installing is on the path of every exec. */
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "sandbox/seccomp.h"
#include "sandbox/seccomp_table.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this architecture's audit number"
#endif

#define NUMBERS_MAX 1024        /* calls above are ENOSYS; x32 begins at 0x40000000 */
#define PROGRAM_MAX 512
#define RANGES_MAX 256

struct program { struct sock_filter code[PROGRAM_MAX]; unsigned n; };
struct range { uint32_t first; uint16_t action; };

static struct program programs[SECCOMP_KIND_MAX];
static struct sock_fprog exported[SECCOMP_KIND_MAX];

#define CLONE_NEW_ALL (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define ARG_LOW(i) (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (i))   /* little-endian: the low half first */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "argument halves");

/* ---- emitting ---- */

static void emit(struct program *p, uint16_t code, uint32_t k, unsigned jt, unsigned jf) {
        ASSERT(p->n < PROGRAM_MAX && jt < 256 && jf < 256);
        p->code[p->n++] = (struct sock_filter){ .code = code, .jt = (uint8_t)jt, .jf = (uint8_t)jf, .k = k };
}

static void emit_return(struct program *p, unsigned err) {
        emit(p, BPF_RET | BPF_K, err == 0 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | err, 0, 0);
}

static void emit_load_arg(struct program *p, int i) {
        emit(p, BPF_LD | BPF_W | BPF_ABS, ARG_LOW(i), 0, 0);
}

/* Is the loaded word one of `values`? Then `yes`, else `no`; both are returned errnos (0 = allow). */
static void emit_one_of(struct program *p, const uint32_t *values, unsigned n, unsigned yes, unsigned no) {
        for (unsigned i = 0; i < n; i++)
                emit(p, BPF_JMP | BPF_JEQ | BPF_K, values[i], n - i, 0);
        emit_return(p, no);
        emit_return(p, yes);
}

static void emit_flags(struct program *p, uint32_t mask) {
        emit_load_arg(p, 0);
        emit(p, BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1);
        emit_return(p, EPERM);
        emit_return(p, 0);
}

/* Netlink carries much of the kernel's configuration; ordinary programs list links and sockets and hear of devices. */
static void emit_socket(struct program *p) {
        static const uint32_t families[] = { AF_UNIX, AF_INET, AF_INET6 };
        static const uint32_t protocols[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT };
        emit_load_arg(p, 0);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, ARRAY_SIZE(protocols) + 3);
        emit_load_arg(p, 2);
        emit_one_of(p, protocols, ARRAY_SIZE(protocols), 0, EPROTONOSUPPORT);
        emit_one_of(p, families, ARRAY_SIZE(families), 0, EAFNOSUPPORT);
}

static void emit_check(struct program *p, unsigned action) {
        static const uint32_t unix_only[] = { AF_UNIX };
        /* gdb turns address randomisation off; setarch asks for the 32-bit and old-name personalities. */
        static const uint32_t personalities[] = { 0, PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26, ADDR_NO_RANDOMIZE, 0xffffffff };
        static const uint32_t terminals[] = { TIOCSTI, TIOCLINUX, TIOCSETD };
        switch ((enum seccomp_action)action) {
        case ACTION_CHECK_CLONE:
                emit_flags(p, CLONE_NEW_ALL);
                return;
        case ACTION_CHECK_UNSHARE:
                emit_flags(p, CLONE_NEW_ALL | 0x80 /* CLONE_NEWTIME */);
                return;
        case ACTION_CHECK_SOCKET:
                emit_socket(p);
                return;
        case ACTION_CHECK_SOCKETPAIR:
                emit_load_arg(p, 0);
                emit_one_of(p, unix_only, ARRAY_SIZE(unix_only), 0, EAFNOSUPPORT);
                return;
        case ACTION_CHECK_PERSONALITY:
                emit_load_arg(p, 0);
                emit_one_of(p, personalities, ARRAY_SIZE(personalities), 0, EPERM);
                return;
        case ACTION_CHECK_IOCTL:
                emit_load_arg(p, 1);
                emit_one_of(p, terminals, ARRAY_SIZE(terminals), EPERM, 0);
                return;
        case ACTION_ALLOW:
                break;
        }
        ASSERT(false);
}

/* Left half, then right half; each leaf answers at once. */
static void emit_tree(struct program *p, const struct range *r, unsigned n) {
        if (n == 1) {
                if (r->action < ACTION_CHECK_CLONE)
                        emit_return(p, r->action);
                else
                        emit_check(p, r->action);
                return;
        }
        unsigned half = n / 2, at = p->n;
        emit(p, BPF_JMP | BPF_JGE | BPF_K, r[half].first, 0, 0);
        emit_tree(p, r, half);
        unsigned over = p->n - at - 1;
        /* A conditional jump reaches 255 instructions; over a bigger half go by an unconditional one. */
        if (over < 256) {
                p->code[at].jt = (uint8_t)over;
        } else {
                memmove(&p->code[at + 2], &p->code[at + 1], over * sizeof p->code[0]);
                ASSERT(++p->n < PROGRAM_MAX);
                p->code[at].jf = 1;
                p->code[at + 1] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, over);
        }
        emit_tree(p, r + half, n - half);
}

/* ---- from the table ---- */

static uint16_t action_of(enum seccomp_kind kind, const struct seccomp_rule *rule, int number) {
        bool launches = kind == SECCOMP_LAUNCHER || kind == SECCOMP_TURN_LAUNCHER, turn = kind == SECCOMP_TURN || kind == SECCOMP_TURN_LAUNCHER;
        if (launches && (number == SYS_clone3 || number == SYS_setns))
                return ACTION_ALLOW;
        if (kind == SECCOMP_NESTED)
                return rule->nested;
        return turn && rule->turn ? rule->turn : rule->action;
}

static int fill_actions(enum seccomp_kind kind, uint16_t actions[static NUMBERS_MAX], struct error *e) {
        for (unsigned i = 0; i < NUMBERS_MAX; i++)
                actions[i] = ENOSYS;
        for (unsigned i = 0; i < seccomp_rules_n; i++) {
                const struct seccomp_rule *rule = &seccomp_rules[i];
                int number = rule->number >= 0 ? rule->number : seccomp_syscall_resolve_name(rule->name);
                if (number == __NR_SCMP_ERROR)
                        return error_say(e, -EINVAL, "seccomp: the library does not know the call %s", rule->name);
                if (number < 0)
                        continue;   /* not on this architecture */
                if (number >= NUMBERS_MAX)
                        return error_say(e, -EINVAL, "seccomp: call %s has number %d", rule->name, number);
                actions[number] = action_of(kind, rule, number);
        }
        return 0;
}

static int build(enum seccomp_kind kind, struct error *e) {
        uint16_t actions[NUMBERS_MAX];
        struct range ranges[RANGES_MAX];
        unsigned n = 0;
        int r = fill_actions(kind, actions, e);
        if (r < 0)
                return r;
        for (unsigned i = 0; i < NUMBERS_MAX; i++) {
                /* A check has its own arguments: never shared, even by neighbours. */
                if (i > 0 && actions[i] == actions[i - 1] && actions[i] < ACTION_CHECK_CLONE)
                        continue;
                ASSERT(n < RANGES_MAX);
                ranges[n++] = (struct range){ .first = i, .action = actions[i] };
        }
        ASSERT(ranges[n - 1].action == ENOSYS);   /* all higher numbers, x32 with them */
        struct program *p = &programs[kind];
        p->n = 0;
        emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
        emit_return(p, ENOSYS);
        emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
        emit_tree(p, ranges, n);
        exported[kind] = (struct sock_fprog){ .len = (unsigned short)p->n, .filter = p->code };
        return 0;
}

int seccomp_prepare(struct error *e) {
        for (int kind = 0; kind < SECCOMP_KIND_MAX; kind++) {
                int r = exported[kind].len ? 0 : build(kind, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

const struct sock_fprog *seccomp_program(enum seccomp_kind kind) {
        ASSERT(exported[kind].len > 0);
        return &exported[kind];
}

int seccomp_install(const struct sock_fprog *prog) {
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, prog) < 0 ? -errno : 0;
}

/* ---- evaluating ---- */

int seccomp_evaluate(const struct sock_fprog *prog, uint32_t arch, int nr, const uint64_t args[6]) {
        struct seccomp_data data = { .nr = nr, .arch = arch };
        memcpy(data.args, args, sizeof data.args);
        uint32_t a = 0;
        for (unsigned pc = 0; pc < prog->len; pc++) {
                const struct sock_filter *i = &prog->filter[pc];
                bool jump = false;
                switch (i->code) {
                case BPF_LD | BPF_W | BPF_ABS:
                        ASSERT(i->k + sizeof a <= sizeof data);
                        memcpy(&a, (const char *)&data + i->k, sizeof a);
                        continue;
                case BPF_RET | BPF_K:
                        return i->k == SECCOMP_RET_ALLOW ? 0 : (int)(i->k & SECCOMP_RET_DATA);
                case BPF_JMP | BPF_JA:
                        pc += i->k;
                        continue;
                case BPF_JMP | BPF_JEQ | BPF_K: jump = a == i->k; break;
                case BPF_JMP | BPF_JGE | BPF_K: jump = a >= i->k; break;
                case BPF_JMP | BPF_JSET | BPF_K: jump = a & i->k; break;
                default: ASSERT(false);
                }
                pc += jump ? i->jt : i->jf;
        }
        ASSERT(false);
}

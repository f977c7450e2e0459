/* System call filters.
 *
 * An allow-list: what the table does not name is ENOSYS, as on a kernel that lacks it, so that libraries fall back; what
 * is refused on purpose is EPERM. Foreign ABIs (i386, x32) are ENOSYS. Programs are built once by seccomp_prepare, in the
 * spawner; a child then needs one system call. See the table in seccomp_table.c.
 *
 * No io_uring, keyctl, bpf, userfaultfd, perf, kexec, modules, swap, clocks, mounts, setns, unshare or clone with
 * CLONE_NEW*, AF_VSOCK, AF_ALG, TIOCSTI. ptrace is allowed: the namespaces confine it. */
#pragma once
#include <linux/filter.h>
#include <stdbool.h>

#include "base/error.h"

enum seccomp_kind {
        SECCOMP_STANDARD,   /* every profile */
        SECCOMP_LAUNCHER,   /* standard, and what starting a process needs; launcher.c takes that away again from what it starts */
        SECCOMP_TURN,       /* standard without System V and POSIX message queues, memory and semaphores: they would outlive who made them. ENOSYS */
        SECCOMP_TURN_LAUNCHER,      /* that, and what SECCOMP_LAUNCHER has beyond the standard */
        SECCOMP_NESTED,     /* also namespaces and mounts, for sandboxes that may make sandboxes */
        SECCOMP_KIND_MAX,
};

int seccomp_prepare(struct error *e);                              /* builds the programs; idempotent */
/* Static storage once seccomp_prepare succeeded. */
const struct sock_fprog *seccomp_program(enum seccomp_kind kind);
/* In the child, last before execve: one system call, no allocation. Needs no_new_privs or CAP_SYS_ADMIN in its user namespace. */
int seccomp_install(const struct sock_fprog *prog);
/* What a filter answers for one call: 0 allowed, else the errno (> 0), by running the program. Tests and doctor. */
int seccomp_evaluate(const struct sock_fprog *prog, uint32_t arch, int nr, const uint64_t args[6]);

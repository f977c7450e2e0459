/* What a process of a sandbox may still do: capabilities, no_new_privs, resource limits, Landlock.
 *
 * Data, then action: confine_plan_init (spawner) fills a plain struct; the child applies it with calls that allocate
 * nothing and touch no lock, so they may run between clone and execve. Order in the child:
 *
 *     confine_rlimits                                      root of the machine: only that may raise a hard limit
 *     setns(user namespace)
 *     confine_bounding, confine_landlock, seccomp_install  root inside, all capabilities
 *     setgroups, setresgid, setresuid (the filter allows them)
 *     confine_privileges, execve
 *
 * A user other than root keeps no capability: the kernel clears them at setresuid, confine_privileges makes sure. Landlock and seccomp need CAP_SYS_ADMIN in the user namespace (or no_new_privs), so both come before the ids change. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/error.h"
#include "sandbox/sandbox.h"

struct confine_plan {
        uint64_t caps;             /* permitted, effective and bounding; everything else is dropped for good */
        bool no_new_privs;
        unsigned securebits;
        struct rlimit nofile, core, memlock, nproc;
        /* Signals and abstract sockets stay inside: for helpers (outside the PID namespace) and PROFILE_FETCH (in the host's
         * network), where the kernel has Landlock ABI 6. Not for payloads: each exec would be a domain of its own, and one
         * could not signal or trace what another started. -1 = none; shared by all plans, never closed. */
        int landlock_fd;
};

/* Capabilities that a profile keeps at most, as a mask of 1 << CAP_x. Helpers: CHOWN, DAC_OVERRIDE, FOWNER, and SETFCAP, because files of an
 * image may carry capabilities (which mean nothing outside the user namespace that set them). */
uint64_t confine_profile_caps(enum sandbox_profile profile);
#define CONFINE_HELPER_CAPS ((1ull << 0) | (1ull << 1) | (1ull << 3) | (1ull << 31))

/* `open_files` as in sandbox_limits. Where root lacks CAP_SYS_RESOURCE, limits are capped at the present hard limit and
 * *ret_capped is true. */
void confine_plan_init(enum sandbox_profile profile, bool helper, uint64_t open_files, struct confine_plan *ret, bool *ret_capped);

/* All: 0 or -errno. */
int confine_rlimits(const struct confine_plan *p);
int confine_landlock(const struct confine_plan *p);
int confine_bounding(const struct confine_plan *p);
/* uid is the one inside: other than 0 keeps no capability. Sets no_new_privs, securebits and the sets. */
int confine_privileges(const struct confine_plan *p, uint32_t uid);

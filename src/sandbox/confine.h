/* What a process of a sandbox may still do: capabilities, no_new_privs, resource limits, Landlock.
 *
 * Data, then action: confine_plan_init (spawner, once per profile or sandbox) fills a plain struct; the child applies it
 * with calls that allocate nothing and touch no lock, so they may run between clone and execve. Order in the child:
 *
 *     confine_rlimits, (setgroups, setresgid, setresuid by the caller), confine_landlock, confine_bounding,
 *     seccomp_install [needs CAP_SYS_ADMIN or no_new_privs], confine_privileges, execve
 *
 * confine_privileges allows what follows in the filter (capset, prctl), so it comes after seccomp_install. */
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
        int landlock_fd;           /* a ruleset shared by all sandboxes, owned by confine_init's caller process; -1 = none */
};

/* Capabilities that a profile keeps at most, as a mask of 1 << CAP_x. Helpers: CHOWN, DAC_OVERRIDE, FOWNER. */
uint64_t confine_profile_caps(enum sandbox_profile profile);
#define CONFINE_HELPER_CAPS ((1ull << 0) | (1ull << 1) | (1ull << 3))

/* `open_files` as in sandbox_limits. Where root lacks CAP_SYS_RESOURCE, limits are capped at the present hard limit and
 * *ret_capped is true. */
void confine_plan_init(enum sandbox_profile profile, bool helper, uint64_t open_files, struct confine_plan *ret, bool *ret_capped);

/* All: 0 or -errno. */
int confine_rlimits(const struct confine_plan *p);
int confine_landlock(const struct confine_plan *p);
int confine_bounding(const struct confine_plan *p);
/* uid is the one inside: other than 0 keeps no capability. Sets no_new_privs, securebits and the sets. */
int confine_privileges(const struct confine_plan *p, uint32_t uid);

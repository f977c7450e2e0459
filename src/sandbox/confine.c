#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "sandbox/confine.h"
#include "sandbox/facilities.h"

#define CAP(c) (1ull << CAP_##c)
#define CAPS_FILES (CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER))
#define CAPS_SCORE (CAPS_FILES | CAP(SETUID) | CAP(SETGID) | CAP(KILL))
/* What a container runtime gives, without MKNOD and NET_RAW. AUDIT_WRITE reaches nothing from a user namespace; left out. */
#define CAPS_CONTAINER (CAPS_SCORE | CAP(FSETID) | CAP(SETPCAP) | CAP(NET_BIND_SERVICE) | CAP(SYS_CHROOT) | CAP(SETFCAP))
#define CAPS_KNOWN_MAX 63

#define MIB (1024ull * 1024)
#define MEMLOCK_BYTES (64 * MIB)

/* Newer than Debian 12's headers. */
#define SCOPE_ABSTRACT_UNIX_SOCKET 1ull
#define SCOPE_SIGNAL 2ull
struct ruleset_attr { uint64_t handled_access_fs, handled_access_net, scoped; };

uint64_t confine_profile_caps(enum sandbox_profile profile) {
        switch (profile) {
        case PROFILE_SCORE: case PROFILE_RLM: return CAPS_SCORE;
        case PROFILE_SETUP: case PROFILE_SESSION: return CAPS_CONTAINER;
        case PROFILE_FETCH: return 0;      /* Brig's own git, as its own user */
        case PROFILE_MAX: break;
        }
        ASSERT(false);
}

static struct rlimit capped(int which, uint64_t soft, uint64_t hard, bool *ret_capped) {
        struct rlimit now;
        ASSERT(getrlimit(which, &now) == 0);
        struct rlimit want = { .rlim_cur = soft, .rlim_max = hard };
        if (now.rlim_max < hard && !facility_ok(FACILITY_SYS_RESOURCE)) {
                want.rlim_max = now.rlim_max;
                want.rlim_cur = MIN2(want.rlim_cur, now.rlim_max);
                if (ret_capped)
                        *ret_capped = true;
        }
        return want;
}

static int landlock_ruleset(void) {
        static int ruleset = -1;
        if (ruleset >= 0 || !facility_ok(FACILITY_LANDLOCK) || facility_value(FACILITY_LANDLOCK) < 6)
                return ruleset;
        struct ruleset_attr attr = { .scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL };
        ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);   /* the kernel makes it CLOEXEC */
        return ruleset;
}

void confine_plan_init(enum sandbox_profile profile, bool helper, uint64_t open_files, struct confine_plan *ret, bool *ret_capped) {
        *ret_capped = false;
        *ret = (struct confine_plan){
                .caps = helper ? CONFINE_HELPER_CAPS : confine_profile_caps(profile),
                .no_new_privs = helper || profile == PROFILE_SCORE || profile == PROFILE_RLM || profile == PROFILE_FETCH,
                .landlock_fd = helper || profile == PROFILE_FETCH ? landlock_ruleset() : -1,
        };
        /* Where nothing can be gained, ambient capabilities must not carry anything past an execve either. */
        if (ret->no_new_privs)
                ret->securebits = SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
        ret->nofile = capped(RLIMIT_NOFILE, open_files, open_files, ret_capped);
        ret->memlock = capped(RLIMIT_MEMLOCK, MEMLOCK_BYTES, MEMLOCK_BYTES, NULL);
        ret->core = (struct rlimit){ 0, 0 };
        /* Counted by user over the whole machine: the cgroup's pids limit is the one that means something. */
        ret->nproc = capped(RLIMIT_NPROC, RLIM_INFINITY, RLIM_INFINITY, NULL);
}

/* ---- in the child ---- */

static int set_limit(int which, const struct rlimit *l) {
        return syscall(SYS_prlimit64, 0, which, l, NULL) < 0 ? -errno : 0;
}

int confine_rlimits(const struct confine_plan *p) {
        int r = set_limit(RLIMIT_NOFILE, &p->nofile);
        if (r == 0)
                r = set_limit(RLIMIT_CORE, &p->core);
        if (r == 0)
                r = set_limit(RLIMIT_MEMLOCK, &p->memlock);
        return r == 0 ? set_limit(RLIMIT_NPROC, &p->nproc) : r;
}

int confine_landlock(const struct confine_plan *p) {
        if (p->landlock_fd < 0)
                return 0;
        return syscall(SYS_landlock_restrict_self, p->landlock_fd, 0) < 0 ? -errno : 0;
}

int confine_bounding(const struct confine_plan *p) {
        for (int cap = 0; cap <= CAPS_KNOWN_MAX; cap++) {
                if (p->caps & 1ull << cap)
                        continue;
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
                        return errno == EINVAL && cap > 0 ? 0 : -errno;   /* above the kernel's last one */
        }
        return 0;
}

int confine_privileges(const struct confine_plan *p, uint32_t uid) {
        if (p->securebits && prctl(PR_SET_SECUREBITS, p->securebits, 0, 0, 0) < 0)
                return -errno;
        uint64_t keep = uid == 0 ? p->caps : 0;
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = {
                { .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
                { .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
        };
        if (syscall(SYS_capset, &head, data) < 0)
                return -errno;
        if (p->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return 0;
}

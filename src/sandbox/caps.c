/* Names of capabilities, for cap_drop. */
#include <linux/capability.h>
#include <string.h>
#include <strings.h>

#include "sandbox/sandbox.h"

#define N(c) [CAP_##c] = #c
static const char *const names[] = {
        N(CHOWN), N(DAC_OVERRIDE), N(DAC_READ_SEARCH), N(FOWNER), N(FSETID), N(KILL), N(SETGID), N(SETUID), N(SETPCAP),
        N(LINUX_IMMUTABLE), N(NET_BIND_SERVICE), N(NET_BROADCAST), N(NET_ADMIN), N(NET_RAW), N(IPC_LOCK), N(IPC_OWNER), N(SYS_MODULE),
        N(SYS_RAWIO), N(SYS_CHROOT), N(SYS_PTRACE), N(SYS_PACCT), N(SYS_ADMIN), N(SYS_BOOT), N(SYS_NICE), N(SYS_RESOURCE), N(SYS_TIME),
        N(SYS_TTY_CONFIG), N(MKNOD), N(LEASE), N(AUDIT_WRITE), N(AUDIT_CONTROL), N(SETFCAP), N(MAC_OVERRIDE), N(MAC_ADMIN), N(SYSLOG),
        N(WAKE_ALARM), N(BLOCK_SUSPEND), N(AUDIT_READ), N(PERFMON), N(BPF), N(CHECKPOINT_RESTORE),
};

int sandbox_cap_parse(const char *name, uint64_t *ret) {
        if (!name)
                return -EINVAL;
        if (strncasecmp(name, "CAP_", 4) == 0)
                name += 4;
        if (strcasecmp(name, "ALL") == 0) {
                *ret = ~0ull;
                return 0;
        }
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                if (strcasecmp(name, names[i]) == 0) {
                        *ret = 1ull << i;
                        return 0;
                }
        }
        return -EINVAL;
}

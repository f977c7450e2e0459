#include <string.h>

#include "sandbox/sandbox.h"

static const char *const limit_names[] = { "oom", "pids_limit", "disk_limit", "output_limit", "timeout" };
STRING_TABLE(limit_kind, limit_names, LIMIT_KIND_MAX)

static const char *const network_names[] = { "none", "open", "host", "allow" };
STRING_TABLE(sandbox_network, network_names, NETWORK_MAX)

void sandbox_limits_default(struct sandbox_limits *ret) {
        *ret = (struct sandbox_limits){
                .memory_bytes = 4ull << 30,
                .cpu_milli = 0,
                .pids = 4096,
                .disk_bytes = 8ull << 30,
                .inodes = 1000 * 1000,
                .output_bytes = 64ull << 20,
                .open_files = 4096,
                .wall_ms = 4ull * 3600 * 1000,
        };
}

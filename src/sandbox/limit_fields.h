/* Rows of a field table for a `struct sandbox_limits` at offset `base_` of the target. */
#pragma once
#include "base/fields.h"
#include "sandbox/sandbox.h"

#define LIMIT_WALL_MAX_S (7 * 86400)
#define LIMIT_AT(base_, member) .at = (base_) + offsetof(struct sandbox_limits, member)
#define LIMIT_FIELDS(base_) \
        { .name = "memory_mb", .kind = FIELD_INT, LIMIT_AT(base_, memory_bytes), .min = 16, .max = 4 << 20, .scale = 1 << 20, .def = "4096", .doc = "memory, MiB" }, \
        { .name = "cpus", .kind = FIELD_NUMBER, LIMIT_AT(base_, cpu_milli), .min = 0, .max = 4096, .scale = 1000, .def = "all", .doc = "cores, may have a fraction; 0 = all" }, \
        { .name = "pids", .kind = FIELD_INT, LIMIT_AT(base_, pids), .min = 8, .max = 4 << 20, .def = "4096", .doc = "processes and threads" }, \
        { .name = "disk_mb", .kind = FIELD_INT, LIMIT_AT(base_, disk_bytes), .min = 4, .max = 16 << 20, .scale = 1 << 20, .def = "8192", .doc = "what a run may write, MiB" }, \
        { .name = "inodes", .kind = FIELD_INT, LIMIT_AT(base_, inodes), .min = 256, .max = 1 << 30, .def = "1000000", .doc = "files it may make" }, \
        { .name = "output_bytes", .kind = FIELD_INT, LIMIT_AT(base_, output_bytes), .min = 1, .max = 1ll << 40, .def = "67108864", .doc = "bytes of each output stream" }, \
        { .name = "wall_s", .kind = FIELD_INT, LIMIT_AT(base_, wall_ms), .min = 1, .max = LIMIT_WALL_MAX_S, .scale = 1000, .def = "14400", .doc = "life of the sandbox, s" }

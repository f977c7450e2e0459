/* Clocks. Durations and deadlines are monotonic; wall time is for records only. */
#pragma once
#include "base/macros.h"

#define MS_PER_S 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

uint64_t now_ns(void);            /* CLOCK_MONOTONIC, ns */
static inline uint64_t now_ms(void) { return now_ns() / NS_PER_MS; }
int64_t wall_ms(void);            /* CLOCK_REALTIME, ms since the epoch */
/* "2026-01-02T03:04:05.678Z" into buf (25 bytes at least). */
void format_wall(int64_t ms, char buf[static 25]);

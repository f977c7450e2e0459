#include <time.h>

#include "base/clock.h"

uint64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

int64_t wall_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void format_wall(int64_t ms, char buf[static 25]) {
        time_t s = ms / 1000;
        struct tm tm;
        gmtime_r(&s, &tm);
        size_t n = strftime(buf, 25, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(buf + n, 25 - n, ".%03dZ", (int)(ms % 1000));
}

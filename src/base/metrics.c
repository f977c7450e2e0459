#include <fcntl.h>


#include "base/fs.h"
#include "base/json.h"
#include "base/metrics.h"

enum metric_type { TYPE_GAUGE, TYPE_COUNTER, TYPE_HISTOGRAM };

/* Seconds. From a warm sandbox (a few ms) to a long suite. */
static const double fast[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30 };
static const double slow[] = { 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600 };

struct metric {
        const char *name, *help, *label;
        enum metric_type type;
        const double *bounds; size_t n_bounds;
        /* state */
        double value;                                  /* gauge; sum of a histogram */
        uint64_t count[METRIC_VALUES_MAX];             /* by label value, or by bucket */
        char values[METRIC_VALUES_MAX][METRIC_VALUE_MAX];
        size_t n_values;
};

#define GAUGE(n, h) { .name = n, .help = h, .type = TYPE_GAUGE }
#define COUNTER(n, l, h) { .name = n, .help = h, .label = l, .type = TYPE_COUNTER }
#define HISTOGRAM(n, b, h) { .name = n, .help = h, .type = TYPE_HISTOGRAM, .bounds = b, .n_bounds = ARRAY_SIZE(b) }

static struct metric table[METRIC_MAX] = {
        [METRIC_TASKS_QUEUED] = GAUGE("brig_tasks_queued", "Tasks that wait for a place."),
        [METRIC_TASKS_RUNNING] = GAUGE("brig_tasks_running", "Tasks that have a place."),
        [METRIC_TASKS_SUBMITTED] = COUNTER("brig_tasks_submitted_total", NULL, "Tasks accepted on disk."),
        [METRIC_TASKS_FINISHED] = COUNTER("brig_tasks_finished_total", "outcome", "Tasks recorded, by outcome."),
        [METRIC_INFRA_ERRORS] = COUNTER("brig_infra_errors_total", "code", "Tasks that failed through no fault of their patch, by code."),
        [METRIC_QUEUE_WAIT] = HISTOGRAM("brig_task_queued_seconds", slow, "From accepted to started."),
        [METRIC_CREATE] = HISTOGRAM("brig_sandbox_create_seconds", fast, "A sandbox, from asked for to ready."),
        [METRIC_EXEC] = HISTOGRAM("brig_exec_seconds", slow, "A test command, from started to ended."),
        [METRIC_SCORE] = HISTOGRAM("brig_score_seconds", slow, "A task, from started to its record."),
        [METRIC_HTTP_REQUESTS] = COUNTER("brig_http_requests_total", "code", "HTTP requests answered, by status code."),
        [METRIC_HTTP_CONNECTIONS] = GAUGE("brig_http_connections", "Open HTTP connections."),
        [METRIC_SESSIONS] = GAUGE("brig_sessions", "Sessions that live."),
        [METRIC_SESSIONS_STARTED] = COUNTER("brig_sessions_started_total", NULL, "Sessions accepted on disk."),
        [METRIC_SESSIONS_ENDED] = COUNTER("brig_sessions_ended_total", "state", "Sessions that have ended, by the state they ended in; a deleted one is `failed`."),
        [METRIC_RLM_SESSIONS] = GAUGE("brig_rlm_sessions", "Sessions of the RLM runtime, children among them."),
        [METRIC_RLM_TURNS] = GAUGE("brig_rlm_turns", "Their turns that are not over."),
        [METRIC_RLM_SLOTS] = GAUGE("brig_rlm_slots", "Slots for sandboxes of the RLM runtime."),
        [METRIC_RLM_SLOTS_USED] = GAUGE("brig_rlm_slots_used", "Slots that are held."),
        [METRIC_RLM_WAITING] = GAUGE("brig_rlm_waiting", "Who waits for a slot."),
        [METRIC_RLM_SANDBOXES] = GAUGE("brig_rlm_sandboxes", "Roots and children that are not confirmed gone."),
        [METRIC_RLM_ENDING] = GAUGE("brig_rlm_sandboxes_ending", "Roots and children that are being deleted, and not confirmed gone."),
};
_Static_assert(ARRAY_SIZE(fast) < METRIC_VALUES_MAX && ARRAY_SIZE(slow) < METRIC_VALUES_MAX, "a histogram has more buckets than cells");

static struct metric *get(enum metric_id id, enum metric_type type) {
        ASSERT(id >= 0 && id < METRIC_MAX && table[id].type == type);
        return &table[id];
}

void metrics_set(enum metric_id id, double value) {
        get(id, TYPE_GAUGE)->value = value;
}

static size_t find_value(struct metric *m, const char *label) {
        size_t last = METRIC_VALUES_MAX - 1;
        if (!label || strlen(label) >= METRIC_VALUE_MAX)
                label = m->label ? "other" : "";
        for (size_t i = 0; i < m->n_values; i++)
                if (strcmp(m->values[i], label) == 0)
                        return i;
        if (m->n_values >= last)       /* the last cell is kept for those that find no place */
                label = "other";
        size_t at = MIN2(m->n_values, last);
        snprintf(m->values[at], sizeof m->values[at], "%s", label);
        m->n_values = at + 1;
        return at;
}

void metrics_add(enum metric_id id, const char *label, uint64_t n) {
        struct metric *m = get(id, TYPE_COUNTER);
        m->count[find_value(m, label)] += n;
}

void metrics_observe(enum metric_id id, double seconds) {
        struct metric *m = get(id, TYPE_HISTOGRAM);
        size_t i = 0;
        if (!(seconds > 0))
                seconds = 0;
        while (i < m->n_bounds && seconds > m->bounds[i])
                i++;
        m->count[i]++;
        m->value += seconds;
}

static void add_double(struct buf *b, double v) {
        char text[JSON_DOUBLE_TEXT];
        buf_add(b, text, json_format_double(v, text));
}

/* A label's value: backslash, quote and line feed are escaped, whatever else stays. */
static void add_escaped(struct buf *b, const char *s) {
        for (; *s; s++) {
                if (*s == '\n')
                        buf_adds(b, "\\n");
                else {
                        if (*s == '\\' || *s == '"')
                                buf_addc(b, '\\');
                        buf_addc(b, *s);
                }
        }
}

static void write_counter(const struct metric *m, struct buf *b) {
        if (!m->label)
                buf_printf(b, "%s %llu\n", m->name, (unsigned long long)m->count[0]);
        for (size_t i = 0; m->label && i < m->n_values; i++) {
                buf_printf(b, "%s{%s=\"", m->name, m->label);
                add_escaped(b, m->values[i]);
                buf_printf(b, "\"} %llu\n", (unsigned long long)m->count[i]);
        }
}

static void write_histogram(const struct metric *m, struct buf *b) {
        unsigned long long sum = 0;
        for (size_t i = 0; i <= m->n_bounds; i++) {
                sum += m->count[i];
                buf_printf(b, "%s_bucket{le=\"", m->name);
                if (i < m->n_bounds)
                        add_double(b, m->bounds[i]);
                else
                        buf_adds(b, "+Inf");
                buf_printf(b, "\"} %llu\n", sum);
        }
        buf_printf(b, "%s_sum ", m->name);
        add_double(b, m->value);
        buf_printf(b, "\n%s_count %llu\n", m->name, sum);
}

/* Pages, from /proc; 0 where it cannot be read. */
static double resident_bytes(void) {
        _cleanup_buf_ struct buf b = BUF_INIT(256);
        if (fs_read_file(AT_FDCWD, "/proc/self/statm", &b) < 0)
                return 0;
        const char *space = strchr(buf_str(&b), ' ');
        return space ? (double)strtoul(space + 1, NULL, 10) * (double)sysconf(_SC_PAGESIZE) : 0;
}

static void head(struct buf *b, const char *name, const char *help, const char *type) {
        buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

int metrics_write(struct buf *ret) {
        static const char *const types[] = { "gauge", "counter", "histogram" };
        for (size_t i = 0; i < METRIC_MAX; i++) {
                const struct metric *m = &table[i];
                head(ret, m->name, m->help, types[m->type]);
                if (m->type == TYPE_COUNTER)
                        write_counter(m, ret);
                else if (m->type == TYPE_HISTOGRAM)
                        write_histogram(m, ret);
                else {
                        buf_printf(ret, "%s ", m->name);
                        add_double(ret, m->value);
                        buf_addc(ret, '\n');
                }
        }
        head(ret, "process_resident_memory_bytes", "Memory of the daemon.", "gauge");
        buf_adds(ret, "process_resident_memory_bytes ");
        add_double(ret, resident_bytes());
        buf_addc(ret, '\n');
        head(ret, "brig_build_info", "The version that runs.", "gauge");
        /* The last one tells whether all of them found room. */
        return buf_printf(ret, "brig_build_info{version=\"%s\"} 1\n", BRIG_VERSION);
}

void metrics_reset(void) {
        for (size_t i = 0; i < METRIC_MAX; i++) {
                table[i].value = 0;
                table[i].n_values = 0;
                memset(table[i].count, 0, sizeof table[i].count);
        }
}

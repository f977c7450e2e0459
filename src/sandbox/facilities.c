/* The table of kernel facilities: names, what each loss means, printing. The probes are in facilities_probe*.c. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "sandbox/facilities_probe.h"

static const char *const facility_names[] = {
        [FACILITY_USER_NS] = "user-ns", [FACILITY_CLONE3] = "clone3", [FACILITY_CLONE_INTO_CGROUP] = "clone-into-cgroup",
        [FACILITY_PIDFD] = "pidfd", [FACILITY_CLOSE_RANGE] = "close-range", [FACILITY_OPENAT2] = "openat2",
        [FACILITY_MOUNT_API] = "mount-api", [FACILITY_IDMAP_MOUNT] = "idmap-mount", [FACILITY_OVERLAY_IDMAP] = "overlay-idmap",
        [FACILITY_DETACHED_SOURCE] = "detached-source", [FACILITY_OVERLAY_APPEND] = "overlay-append", [FACILITY_LOOP] = "loop",
        [FACILITY_SECCOMP] = "seccomp", [FACILITY_LANDLOCK] = "landlock", [FACILITY_CGROUP] = "cgroup",
        [FACILITY_CGROUP_KILL] = "cgroup-kill", [FACILITY_MEMORY_PEAK] = "memory-peak", [FACILITY_PIDS_PEAK] = "pids-peak",
        [FACILITY_SWAP_LIMIT] = "swap-limit", [FACILITY_CPU_QUOTA] = "cpu-quota", [FACILITY_NET_NS] = "net-ns",
        [FACILITY_VETH] = "veth", [FACILITY_NFT] = "nft", [FACILITY_SK_LOOKUP] = "sk-lookup", [FACILITY_SYS_RESOURCE] = "sys-resource",
};
STRING_TABLE(facility, facility_names, FACILITY_MAX);

static const char *const state_names[] = { "ok", "degraded", "missing" };
STRING_TABLE(facility_state, state_names, FACILITY_STATE_MAX);

static const struct { bool required; const char *loss; } facts[] = {
        [FACILITY_USER_NS] = { true, "no sandbox can be made" },
        [FACILITY_CLONE3] = { true, "no sandbox can be made" },
        [FACILITY_CLONE_INTO_CGROUP] = { false, "processes join their cgroup by cgroup.procs after they start" },
        [FACILITY_PIDFD] = { true, "no process can be followed without a race" },
        [FACILITY_CLOSE_RANGE] = { true, "no descriptor can be kept from a sandbox" },
        [FACILITY_OPENAT2] = { true, "no hostile path can be opened safely" },
        [FACILITY_MOUNT_API] = { true, "no root file system can be assembled" },
        [FACILITY_IDMAP_MOUNT] = { true, "no image can be shown under a sandbox's own ids" },
        [FACILITY_OVERLAY_IDMAP] = { true, "no image can be shared between sandboxes" },
        [FACILITY_OVERLAY_APPEND] = { false, "images of many layers are mounted by the old call" },
        [FACILITY_DETACHED_SOURCE] = { false, "mounts are attached in the spawner's own namespace while they are built on" },
        [FACILITY_LOOP] = { false, "no disk-backed sandboxes and no prepared layers" },
        [FACILITY_SECCOMP] = { true, "system calls cannot be filtered" },
        [FACILITY_LANDLOCK] = { false, "no second line behind the namespaces for sockets and signals" },
        [FACILITY_CGROUP] = { true, "no limit on memory or processes can be kept" },
        [FACILITY_CGROUP_KILL] = { false, "groups are frozen and killed process by process" },
        [FACILITY_MEMORY_PEAK] = { false, "memory_peak_bytes is null" },
        [FACILITY_PIDS_PEAK] = { false, "pids_peak is null" },
        [FACILITY_SWAP_LIMIT] = { false, "a sandbox may use swap beyond its memory limit" },
        [FACILITY_CPU_QUOTA] = { false, "limits.cpus is refused" },
        [FACILITY_NET_NS] = { true, "sandboxes cannot be kept off the network" },
        [FACILITY_VETH] = { false, "network \"open\" is refused" },
        [FACILITY_NFT] = { false, "network \"open\" is refused" },
        [FACILITY_SK_LOOKUP] = { false, "network \"allow\" is refused" },
        [FACILITY_SYS_RESOURCE] = { false, "limits such as open files stop at the present hard limits" },
};
_Static_assert(ARRAY_SIZE(facts) == FACILITY_MAX, "a facility without its facts");

bool facility_required(enum facility f) { return facts[f].required; }
const char *facility_loss(enum facility f) { return facts[f].loss; }

void facility_set(struct facilities *f, enum facility which, enum facility_state s, int value, const char *fmt, ...) {
        struct facility_row *row = &f->row[which];
        row->state = s;
        row->value = value;
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(row->detail, sizeof row->detail, fmt, ap);
        va_end(ap);
}

void facility_tried(struct facilities *f, enum facility which, int r, const char *what) {
        char why[64];
        if (r >= 0)
                facility_set(f, which, FACILITY_OK, 0, "%s", "");
        else
                facility_set(f, which, FACILITY_MISSING, 0, "%s: %s", what, strerror_r(-r, why, sizeof why));
}

/* ---- probing ---- */

/* A probe gets a process of its own: it may enter namespaces, and a kernel that kills it costs only its rows. */
static void run_probe(struct facilities *shared, void (*probe)(struct facilities *f)) {
        pid_t pid = fork();
        if (pid == 0) {
                probe(shared);
                _exit(0);
        }
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

static void force_missing(struct facilities *f) {
        const char *list = getenv("BRIG_FORCE_MISSING");
        char copy[512], *save = NULL;
        if (!list || snprintf(copy, sizeof copy, "%s", list) >= (int)sizeof copy)
                return;
        for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
                int which = facility_from_string(name);
                if (which < 0)
                        continue;
                facility_set(f, (enum facility)which, FACILITY_MISSING, 0, "forced by BRIG_FORCE_MISSING");
                f->row[which].forced = true;
        }
}

static void probe_all(struct facilities *ret) {
        struct facilities *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
                shared = ret;
        struct utsname u;
        if (uname(&u) == 0)
                snprintf(shared->kernel, sizeof shared->kernel, "%.64s %.24s", u.release, u.machine);
        shared->root = geteuid() == 0;
        for (int i = 0; i < FACILITY_MAX; i++)
                facility_set(shared, i, FACILITY_MISSING, 0, "the probe did not answer");
        run_probe(shared, facilities_probe_processes);
        run_probe(shared, facilities_probe_mounts);
        run_probe(shared, facilities_probe_cgroups);
        run_probe(shared, facilities_probe_network);
        if (shared != ret) {
                *ret = *shared;
                munmap(shared, sizeof *shared);
        }
        force_missing(ret);
}

static struct facilities table;
static bool probed;

const struct facilities *facilities_get(void) {
        if (!probed) {
                probe_all(&table);
                probed = true;
        }
        return &table;
}

void facilities_forget(void) {
        probed = false;
        memset(&table, 0, sizeof table);
}

bool facility_ok(enum facility f) {
        return facilities_get()->row[f].state != FACILITY_MISSING;
}

int facility_value(enum facility f) {
        return facilities_get()->row[f].value;
}

bool facilities_sufficient(const struct facilities *f) {
        for (int i = 0; i < FACILITY_MAX; i++)
                if (facts[i].required && f->row[i].state == FACILITY_MISSING)
                        return false;
        return true;
}

/* ---- printing ---- */

/* Details are our own text and strerror's: quotes and backslashes are all that JSON minds. */
static int add_json_string(struct buf *b, const char *s) {
        int r = buf_addc(b, '"');
        for (; r == 0 && *s; s++) {
                if (*s == '"' || *s == '\\')
                        r = buf_addc(b, '\\');
                if (r == 0)
                        r = buf_addc(b, (unsigned char)*s < ' ' ? ' ' : *s);
        }
        return r < 0 ? r : buf_addc(b, '"');
}

static int print_json(const struct facilities *f, struct buf *b) {
        int r = buf_adds(b, "{\"kernel\":");
        r = r < 0 ? r : add_json_string(b, f->kernel);
        r = r < 0 ? r : buf_printf(b, ",\"root\":%s,\"sufficient\":%s,\"facilities\":[", f->root ? "true" : "false",
                                   facilities_sufficient(f) ? "true" : "false");
        for (int i = 0; r == 0 && i < FACILITY_MAX; i++) {
                const struct facility_row *row = &f->row[i];
                r = buf_printf(b, "%s{\"name\":\"%s\",\"state\":\"%s\",\"required\":%s,\"forced\":%s,\"value\":%d,\"detail\":",
                               i ? "," : "", facility_to_string(i), facility_state_to_string(row->state),
                               facts[i].required ? "true" : "false", row->forced ? "true" : "false", row->value);
                r = r < 0 ? r : add_json_string(b, row->detail);
                r = r < 0 ? r : buf_adds(b, ",\"lost\":");
                r = r < 0 ? r : row->state == FACILITY_OK ? buf_adds(b, "null") : add_json_string(b, facts[i].loss);
                r = r < 0 ? r : buf_addc(b, '}');
        }
        return r < 0 ? r : buf_adds(b, "]}\n");
}

int facilities_print(const struct facilities *f, bool json, struct buf *b) {
        if (json)
                return print_json(f, b);
        int r = buf_printf(b, "kernel %s%s\n\n%-19s %-9s %s\n", f->kernel, f->root ? "" : " (not root: run as root to know)",
                           "FACILITY", "STATE", "FOUND, AND WHAT IS LOST");
        for (int i = 0; r == 0 && i < FACILITY_MAX; i++) {
                const struct facility_row *row = &f->row[i];
                r = buf_printf(b, "%-19s %-9s %s", facility_to_string(i), facility_state_to_string(row->state), row->detail);
                if (r == 0 && row->state != FACILITY_OK)
                        r = buf_printf(b, "%s%s%s", row->detail[0] ? "; " : "", facts[i].loss,
                                       facts[i].required && row->state == FACILITY_MISSING ? " (required)" : "");
                r = r < 0 ? r : buf_addc(b, '\n');
        }
        return r < 0 ? r : buf_printf(b, "\n%s\n", facilities_sufficient(f) ? "This machine can run sandboxes."
                                                                           : "This machine cannot run sandboxes: something required is missing.");
}

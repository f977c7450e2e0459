#include "engine/settings_table.h"
#include "sandbox/idrange.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)
#define AT(member) offsetof(struct engine_config, member)

static const char *const networks[] = { "none", "open", NULL };                    /* enum sandbox_network */
static const char *const levels[] = { "debug", "info", "warn", "error", NULL };    /* enum log_level */

const struct setting settings_table[] = {
        { "brig", "home", "home", { "BRIG_HOME" }, SETTING_PATH, AT(home), "", "/var/lib/brig", 0, 0, NULL, false,
          "Where everything lives: the ledger, layers, mirrors, run directories. One daemon per home." },
        { "brig", "user", "user", { NULL }, SETTING_TEXT, AT(user), "", "brig", 0, 0, NULL, false,
          "The user that the daemon becomes once the spawner is up. If there is no such user, `brig.uid` and `brig.gid` are used." },
        { "brig", "uid", "uid", { NULL }, SETTING_NUMBER, AT(uid), "", "64321", 1, 65533, NULL, false,
          "User id of the daemon where the user does not exist." },
        { "brig", "gid", "gid", { NULL }, SETTING_NUMBER, AT(gid), "", "64321", 1, 65533, NULL, false,
          "Group id of the daemon where the user does not exist." },
        { "log", "level", "log-level", { NULL }, SETTING_CHOICE, AT(log_level), "", "info", 0, 0, levels, false,
          "The least important events that are logged." },
        { "log", "max", "log-max", { NULL }, SETTING_BYTES, AT(log_max_bytes), "bytes", "64M", 0, TIB, NULL, false,
          "When `task_executor.log` has grown to this size it becomes `task_executor.log.1`, in place of the one before, and a new one begins. 0 = never." },
        { "http", "port", "port", { "API_PORT" }, SETTING_NUMBER, AT(port), "", "9090", 0, 65535, NULL, false,
          "Port of the default address; 0 takes any free one, and the `ready` line says which." },
        { "http", "listen", "listen", { "BRIG_LISTEN" }, SETTING_TEXT, AT(listen), "", NULL, 0, 0, NULL, false,
          "`HOST:PORT`, `[ADDRESS]:PORT` or `unix:PATH`. By default `127.0.0.1:PORT` without a token and `0.0.0.0:PORT` with one." },
        { "http", "token", NULL, { "API_TOKEN" }, SETTING_TEXT, AT(token), "", NULL, 0, 0, NULL, true,
          "When set, every request but `/healthz` and `/readyz` needs `Authorization: Bearer TOKEN`." },
        { "http", "insecure_open", "insecure-open", { NULL }, SETTING_BOOL, AT(insecure_open), "", "false", 0, 0, NULL, false,
          "Allows an address that others can reach without a token. Whoever reaches it can run code in sandboxes and read every result." },
        { "queue", "running_max", "running-max", { NULL }, SETTING_NUMBER, AT(running_max), "tasks", "0", 0, 10000, NULL, false,
          "How many tasks run at a time; 0 = one per core, but at most one per 2 GiB of memory." },
        { "queue", "queued_max", "queued-max", { NULL }, SETTING_NUMBER, AT(queued_max), "tasks", "100000", 1, 10000000, NULL, false,
          "How many tasks may wait before a submission is answered 503 with `Retry-After`." },
        { "task", "base_dir", "task-base-dir", { "TASK_BASE_DIR" }, SETTING_PATH, AT(task_base_dir), "", NULL, 0, 0, NULL, false,
          "Where `task_executor.log` and the tasks' run directories (`runs-<instance>/<id>`) go. By default `log/` and `runs/` below the home." },
        { "task", "max_age", "task-max-age", { "TASK_MAX_AGE" }, SETTING_NUMBER, AT(task_max_age_s), "s", "3600", 1, 31536000, NULL, false,
          "How long a result is kept, counted from the end of the task. An idempotency key lives as long, and as long after a DELETE." },
        { "task", "network", "task-network", { NULL }, SETTING_CHOICE, AT(task_network), "", "none", 0, 0, networks, false,
          "The network of tests where the task does not say. `open` is the public network through NAT, never the host's own or private addresses." },
        { "task", "record_output", "record-output", { NULL }, SETTING_BYTES, AT(record_output_bytes), "bytes", "1M", 4 * KIB, 64 * MIB, NULL, false,
          "How much of the beginning, and of the end, of each output stream the record carries. The whole stream is in the run directory's log." },
        { "session", "max", "session-max", { NULL }, SETTING_NUMBER, AT(session_max), "sessions", "2000", 1, 10000, NULL, false,
          "How many sessions may live at a time; one more is answered 503 with `Retry-After`." },
        { "session", "ttl", "session-ttl", { NULL }, SETTING_NUMBER, AT(session_ttl_s), "s", "86400", 0, 31536000, NULL, false,
          "How long a session lives in all where the request does not say. 0 = for ever." },
        { "session", "network", "session-network", { NULL }, SETTING_CHOICE, AT(session_network), "", "open", 0, 0, networks, false,
          "The network of a session where the request does not say." },
        { "repo", "roots", "repo-roots", { NULL }, SETTING_PATHS, AT(repo_roots), "", NULL, 0, 0, NULL, false,
          "Directories, separated by colons, below which a `repo_url` may name a local repository. By default any path that the daemon's user can read outside the home when listening on loopback only, none otherwise." },
        { "repo", "proxy", NULL, { NULL }, SETTING_TEXT, AT(repo_proxy), "", NULL, 0, 0, NULL, true,
          "Address of the proxy through which repositories are fetched by http and https, such as `http://user:password@10.0.0.1:3128`. The daemon's own `https_proxy` is not read." },
        { "repo", "no_proxy", "repo-no-proxy", { NULL }, SETTING_TEXT, AT(repo_no_proxy), "", NULL, 0, 0, NULL, false,
          "Hosts and domains, separated by commas, that are fetched from without the proxy." },
        { "image", "roots", "image-roots", { NULL }, SETTING_PATHS, AT(image_roots), "", NULL, 0, 0, NULL, false,
          "Directories, separated by colons, below which an `image` may be a directory. The built-in image `host` needs none." },
        { "image", "pull_timeout", "image-pull-timeout", { "DOCKYARD_SANDBOX_IMAGE_PULL_TIMEOUT" }, SETTING_NUMBER, AT(image_pull_timeout_s), "s", "1800", 1, 604800, NULL, false,
          "How long getting an image may take where the request does not say." },
        { "session", "calls_max", "session-calls-max", { "DOCKYARD_TASK_EXECUTOR_THREADS" }, SETTING_NUMBER, AT(session_calls_max), "calls", "0", 0, 100000, NULL, false,
          "How many `exec` and `finish` calls of sessions run at a time; more of them wait. 0 = bounded by admission alone. Waiting calls cost no thread." },
        { "session", "max_age", "session-max-age", { "DOCKYARD_SESSION_MAX_AGE" }, SETTING_NUMBER, AT(session_max_age_s), "s", "1800", 1, 31536000, NULL, false,
          "A session that nobody has used for this long is removed; counted from the end of the last use." },
        { "session", "exec_timeout", "session-exec-timeout", { "DOCKYARD_SESSION_EXEC_TIMEOUT" }, SETTING_NUMBER, AT(session_exec_timeout_s), "s", "60", 1, 604800, NULL, false,
          "How long a command in a session may take where the request does not say." },
        { "session", "output_max", "session-output-max", { "DOCKYARD_SESSION_OUTPUT_MAX_BYTES" }, SETTING_BYTES, AT(session_output_max_bytes), "bytes", "64K", 1, 64 * MIB, NULL, false,
          "How much of each output stream the answer of a command in a session carries where the request does not say, or says 0 or less." },
        { "network", "allow", "network-allow", { NULL }, SETTING_TEXT, AT(network_allow), "", NULL, 0, 0, NULL, false,
          "IPv4 ranges such as `10.1.0.0/16,192.168.7.9/32`, separated by commas, at most 64, that sandboxes with the network `open` may reach although they are private. By default none." },
        { "store", "layer_cache", "layer-cache", { "DOCKYARD_SANDBOX_IMAGE_CACHE_MAX_GB" }, SETTING_BYTES, AT(layer_cache_bytes), "bytes", "0", 0, 1024 * TIB, NULL, false,
          "Bytes of prepared layers to keep; beyond it the least recently used go. 0 = 200 GiB or half of the file system, whichever is less. (The compatibility name counts GiB.)" },
        { "store", "mirror_cache", "mirror-cache", { NULL }, SETTING_BYTES, AT(mirror_cache_bytes), "bytes", "0", 0, 1024 * TIB, NULL, false,
          "Bytes of repositories' mirrors to keep; beyond it the least recently used go, never one in use. 0 = 50 GiB or a quarter of the file system, whichever is less." },
        { "store", "low_water", "low-water", { NULL }, SETTING_BYTES, AT(low_water_bytes), "bytes", "256M", 0, TIB, NULL, false,
          "Below this much free space in the home nothing is admitted: 503 `disk_full`." },
        { "store", "ballast", "ballast", { NULL }, SETTING_BYTES, AT(ballast_bytes), "bytes", "64M", 0, 64 * GIB, NULL, false,
          "Size of a file that is given up when the disk is full, so that what runs can be recorded." },
        { "sandbox", "id_base", "id-base", { "BRIG_ID_BASE" }, SETTING_NUMBER, AT(id_base), "", "1073741824", 65536, 0xbfff0000ull, NULL, false,
          "First host user and group id of the sandboxes' ranges, a multiple of 65,536. Every id above it, up to base + 1,073,741,824, belongs to Brig." },
        { "drain", "grace", "drain-grace", { NULL }, SETTING_NUMBER, AT(drain_grace_s), "s", "30", 0, 86400, NULL, false,
          "How long a stopping daemon lets running tasks go on. What still runs then is stopped and runs again after the next start." },
};
const size_t settings_count = ARRAY_SIZE(settings_table);
_Static_assert(ARRAY_SIZE(settings_table) <= SETTINGS_MAX, "SETTINGS_MAX is too small");
_Static_assert(IDRANGE_DEFAULT_BASE == 1073741824u, "the table's default is the allocator's");

/* Settings: one table (settings_table.c) that generates the flags (`--listen`), the variables (`BRIG_<SECTION>_<KEY>` and the
 * names read for compatibility), their checks, `brig config` and docs/settings.md. No file format.
 *
 *     struct engine_config cfg;
 *     settings_init(&cfg);
 *     r = settings_from_env(&cfg, environ, &e);
 *     if (r == 0) r = settings_from_args(&cfg, argc, argv, &e);
 *     if (r == 0) r = settings_check(&cfg, &e);
 *     ...
 *     settings_release(&cfg);
 *
 * A flag wins over a variable, `BRIG_<SECTION>_<KEY>` over a compatibility name. An empty variable counts as absent. A bad
 * value is -EINVAL and a message that names the setting, where it came from, and what would be right. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "sandbox/sandbox.h"

#define SETTINGS_MAX 64

struct setting_origin { const char *name; bool flag; };    /* name NULL: the default */

/* Values. Texts are owned; lists are NULL-terminated; durations are in the unit their name says. */
struct engine_config {
        char *home;
        char *task_base_dir;               /* NULL: below home */
        char *listen;                      /* NULL until settings_check */
        uint64_t port;
        char *token;                       /* NULL = none */
        bool insecure_open;
        uint64_t running_max;              /* never 0 after settings_check */
        uint64_t queued_max;
        uint64_t task_max_age_s;
        uint64_t drain_grace_s;
        uint64_t session_max;              /* that live at a time */
        uint64_t session_ttl_s;            /* 0 = none */
        int session_network;               /* enum sandbox_network */
        int task_network;                  /* enum sandbox_network */
        uint64_t record_output_bytes;
        char **repo_roots;                 /* NULL = the default rule */
        char *local_repo;                  /* no setting: the directory that `brig score` was given, which root opens and which is
                                            * allowed whatever the roots say; NULL without */
        char *repo_proxy, *repo_no_proxy;  /* for fetches by http(s); NULL = none */
        char *repo_ssh_key, *repo_ssh_known_hosts;         /* files that root reads; NULL = none; never a key without known hosts */
        bool in_process;                   /* no setting: nobody serves what the engine keeps, so records have no address of it */
        char **image_roots;                /* NULL = none */
        uint64_t image_pull_timeout_s;
        char *registry_default, *registry_namespace, *registry_allow, *registry_credentials, *registry_ca_file;     /* NULL = none */
        uint64_t session_calls_max;        /* exec and finish in flight; 0 = no bound of its own */
        uint64_t session_max_age_s;        /* idle, since the end of the last use */
        uint64_t session_exec_timeout_s;
        uint64_t session_output_max_bytes; /* of each stream */
        char *network_deny, *network_resolver;     /* NULL = none */
        char *network_allow;               /* IPv4 ranges separated by commas, which the spawner checks; NULL = none */
        uint64_t layer_cache_bytes;        /* 0 = by the disk, see settings_layer_cache */
        uint64_t mirror_cache_bytes;       /* 0 = by the disk */
        uint64_t low_water_bytes, ballast_bytes;
        uint64_t rlm_slots;                /* runtime.max_active_leases */
        uint64_t rlm_idle_s, rlm_warm_roots, rlm_calls_max, rlm_pending_max, rlm_prompts_max;
        uint64_t rlm_root_cpus, rlm_root_memory_bytes, rlm_root_disk_bytes;
        uint64_t rlm_children_max, rlm_child_cpus, rlm_child_memory_bytes, rlm_child_disk_bytes;
        int rlm_network;                   /* enum sandbox_network */
        uint64_t id_base;
        char *user;
        uint64_t uid, gid;                 /* when there is no such user */
        int log_level;                     /* enum log_level */
        uint64_t log_max_bytes;            /* 0 = no limit */
        struct setting_origin origin[SETTINGS_MAX];
};

void settings_init(struct engine_config *cfg);              /* the defaults */
void settings_release(struct engine_config *cfg);
int settings_from_env(struct engine_config *cfg, char *const *env, struct error *e);
/* Every argument must be a setting's flag; argv[0] is skipped. */
int settings_from_args(struct engine_config *cfg, int argc, char *const *argv, struct error *e);
/* One flag at argv[*i]: 1 and *i moved past it (and its value), 0 if it is not a setting's flag, -EINVAL. For verbs that have
 * flags of their own. */
int settings_flag(struct engine_config *cfg, int argc, char *const *argv, int *i, struct error *e);
/* What depends on more than one value: the address to listen on, the size of the running set. */
int settings_check(struct engine_config *cfg, struct error *e);
bool settings_listens_on_loopback(const struct engine_config *cfg);    /* or on a Unix socket; after settings_check */

enum settings_format { SETTINGS_TEXT, SETTINGS_MARKDOWN };
/* TEXT: name, value in effect, where it comes from (secrets hidden). MARKDOWN: the reference page. */
int settings_document(const struct engine_config *cfg, enum settings_format format, struct buf *ret);
/* Every setting that has a flag, in the table's order: "port", "VALUE" (NULL: a switch), its sentence. each() != 0 ends it. */
int settings_flags(int (*each)(const char *flag, const char *value, const char *doc, void *user), void *user);

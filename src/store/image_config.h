/* The configuration of an image: what its maker wants of whoever runs it, as in an OCI image configuration, reduced to what Brig
 * honours. Parsed from hostile JSON; every list and string has a limit. No state, any thread. */
#pragma once
#include "base/error.h"
#include "base/json.h"

#define IMAGE_CONFIG_BYTES_MAX (4u << 20)      /* of a configuration's JSON */
#define IMAGE_CONFIG_ITEMS_MAX 4096            /* of any of its lists */
#define IMAGE_CONFIG_TEXT_MAX (256u * 1024)    /* of one string */
#define IMAGE_CONFIG_USER_MAX 255
#define IMAGE_CONFIG_KEY_MAX 511               /* of a label, a port, a volume */

struct image_config {              /* all owned; NULL = not given */
        char **env;                /* "NAME=value" */
        char *workdir;             /* absolute */
        char *user;                /* "name", "uid", "name:group", "uid:gid" */
        char **entrypoint, **cmd, **shell;
        char **labels;             /* "name=value" */
        char **exposed;            /* "8080/tcp" */
        char **volumes;            /* absolute paths */
        char **on_build;           /* instructions for who builds on it, which no build here runs */
        char *stop_signal;
        char *architecture, *os;
        char *created;             /* RFC 3339, as given */
};

void image_config_release(struct image_config *c);
int image_config_copy(const struct image_config *from, struct image_config *ret);      /* -ENOMEM */

/* The value of NAME in env, or NULL. */
const char *image_config_env(const struct image_config *c, const char *name);
/* Sets or replaces. */
int image_config_set_env(struct image_config *c, const char *name, const char *value);
int image_config_set_label(struct image_config *c, const char *name, const char *value);

/* Reads an OCI or Docker image configuration. `ret_diff_ids` (may be NULL): rootfs.diff_ids without "sha256:", checked to be 64 hex digits each.
 * -EBADMSG with a reason for what is not one; -E2BIG for the limits. */
int image_config_parse(const struct json *doc, struct image_config *ret, char ***ret_diff_ids, struct error *e);
/* The member "config" of one, in the OCI spelling (Env, WorkingDir, ...), keys in fixed order: the same configuration gives the same bytes. */
void image_config_write(const struct image_config *c, struct json_writer *w);

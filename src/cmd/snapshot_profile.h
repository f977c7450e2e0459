/* Snapshots with a profile: images of the RLM runtime's kinds of sandbox, made once under a name that never means another, and checked. */
#pragma once
#include "cmd/remote.h"

#define SNAPSHOT_NAME_MAX 128u

struct snapshot_profile {
        const char *word;              /* "session" */
        const char *name;              /* of the snapshot, where nobody says another */
        const char *build_env, *env;   /* who may say another: while it is made, and whenever */
        unsigned cpus, memory_gib, disk_gib;
};
/* NULL: there is no such profile. */
const struct snapshot_profile *snapshot_profile_find(const char *word);
/* `given`, or the environment's, or the profile's own: -EINVAL unless it is [a-z0-9][a-z0-9-]*-v[1-9][0-9]*. */
int snapshot_profile_name(const struct snapshot_profile *p, const char *given, const char **ret, struct error *e);
/* Makes it of the image `base`, unless it is there. Prints the manifest with `json`, else the name. */
int snapshot_profile_create(struct client *c, const struct snapshot_profile *p, const char *name, const char *base, bool json, struct error *e);
/* Starts a session of it, compares what that is with its manifest, deletes it and sees it gone. *status is 1 where they differ or it is not there. */
int snapshot_profile_check(struct client *c, const struct snapshot_profile *p, const char *name, bool json, int *status, struct error *e);

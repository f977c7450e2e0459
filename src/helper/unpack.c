/* unpack: an archive from standard input becomes files below HELPER_ROOT_FD.
 *
 * It runs in a sandbox whose upper is the layer being made, so a whiteout of a layer is a plain removal there, and the overlay records it.
 * Standard output says how far it is, one line a time, and how it ended:
 *
 *     progress BYTES_IN BYTES_OUT ENTRIES
 *     done DIFF_ID BYTES_IN BYTES_OUT ENTRIES SKIPPED
 *     failed CLASS TEXT                              CLASS: invalid, large, full or internal
 *
 * Exit status 0, 3 (the archive's fault), 4 (a limit) or 1 (ours). */
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "helper/unpack.h"
#include "helper/verbs.h"

#define PROGRESS_MS 250

struct unpack {
        struct unpack_options o;
        uint64_t stream_max;
        const char *diff_id;
        struct unpack_tree tree;
        uint64_t said_ms;
};

static int usage(void) {
        fprintf(stderr, "unpack: bad arguments\n");
        return 64;
}

static int number(const char *s, uint64_t *ret) {
        char *end;
        errno = 0;
        *ret = strtoull(s, &end, 10);
        return errno || end == s || *end ? -EINVAL : 0;
}

static int parse(int argc, char **argv, struct unpack *u) {
        uint64_t v;
        u->o = (struct unpack_options){ .target = "", .whiteouts = true, .entries_max = 1 << 20 };
        u->stream_max = UINT64_MAX;
        for (int i = 1; i < argc; i++) {
                const char *value = strchr(argv[i], '=');
                size_t n = value ? (size_t)(value - argv[i]) : strlen(argv[i]);
                value = value ? value + 1 : "";
                if (n == 6 && strncmp(argv[i], "target", n) == 0) {
                        while (*value == '/')
                                value++;
                        u->o.target = value;
                } else if (n == 5 && strncmp(argv[i], "plain", n) == 0)
                        u->o.whiteouts = false;
                else if (n == 7 && strncmp(argv[i], "diff-id", n) == 0 && strlen(value) == 64)
                        u->diff_id = value;
                else if (n == 7 && strncmp(argv[i], "entries", n) == 0 && number(value, &v) == 0)
                        u->o.entries_max = v;
                else if (n == 6 && strncmp(argv[i], "stream", n) == 0 && number(value, &v) == 0)
                        u->stream_max = v;
                else if (n == 3 && strncmp(argv[i], "uid", n) == 0 && number(value, &v) == 0)
                        u->o.uid = (uint32_t)v, u->o.set_owner = true;
                else if (n == 3 && strncmp(argv[i], "gid", n) == 0 && number(value, &v) == 0)
                        u->o.gid = (uint32_t)v;
                else
                        return -EINVAL;
        }
        return 0;
}

static void say(struct unpack *u, const struct inflow *in) {
        uint64_t now = now_ms();
        if (now - u->said_ms < PROGRESS_MS)
                return;
        u->said_ms = now;
        printf("progress %llu %llu %llu\n", (unsigned long long)inflow_bytes_in(in), (unsigned long long)inflow_bytes_out(in), (unsigned long long)u->tree.entries);
        fflush(stdout);
}

static int read_entries(struct unpack *u, struct inflow *in, struct error *e) {
        struct tar_reader *t;
        struct tar_entry en;
        int r = tar_open(in, &t, e);
        if (r < 0)
                return r;
        while ((r = tar_next(t, &en, e)) > 0) {
                r = unpack_entry(&u->tree, t, &en, e);
                if (r < 0)
                        break;
                say(u, in);
        }
        tar_free(t);
        return r;
}

static int unpack(struct unpack *u, struct error *e) {
        struct inflow *in;
        char hash[65];
        int r = inflow_open(0, u->stream_max, &in, e);
        if (r < 0)
                return r;
        r = unpack_tree_open(&u->tree, &u->o, HELPER_ROOT_FD, e);
        if (r == 0)
                r = read_entries(u, in, e);
        unpack_tree_close(&u->tree);
        if (r == 0 && inflow_bytes_in(in) == 0)
                r = error_say(e, -EBADMSG, "the archive has no bytes: even an empty one has an end");
        if (r == 0)
                r = inflow_finish(in, hash, e);
        if (r == 0 && u->diff_id && strcmp(u->diff_id, hash) != 0)
                r = error_say(e, -EBADMSG, "the archive's contents have the digest sha256:%s, not sha256:%s as was said", hash, u->diff_id);
        if (r == 0)
                printf("done %s %llu %llu %llu %llu\n", hash, (unsigned long long)inflow_bytes_in(in), (unsigned long long)inflow_bytes_out(in),
                       (unsigned long long)u->tree.entries, (unsigned long long)u->tree.skipped);
        inflow_free(in);
        return r;
}

int verb_unpack(int argc, char **argv) {
        static struct unpack u;
        struct error e = { 0 };
        if (parse(argc, argv, &u) < 0)
                return usage();
        int r = unpack(&u, &e);
        if (r == 0)
                return fflush(stdout) == 0 ? 0 : 1;
        bool invalid = r == -EBADMSG, large = r == -E2BIG || r == -EFBIG, full = r == -ENOSPC || r == -EDQUOT;
        printf("failed %s %s\n", invalid ? "invalid" : large ? "large" : full ? "full" : "internal", e.text);
        fflush(stdout);
        return invalid ? 3 : large || full ? 4 : 1;
}

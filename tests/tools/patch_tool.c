/* For tests only: the patch code on directories, by command line.
 *
 *     patch_tool apply strict|repair|ladder DIR <PATCH     prints the rung; exit 0 applied, 1 does not apply, 2 refused, 3 failed
 *     patch_tool reset DIR BASE PATH                       prints "changed" or "same"
 *     patch_tool diff PATH OLDFILE NEWFILE                 unified diff, either file may be absent
 *     patch_tool similarity A B                            ratio, or "null" */
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "score/apply_tree.h"
#include "score/diff.h"
#include "score/similarity.h"

static const char *const rungs[] = { "none", "strict", "recount", "whitespace", "three_way", "fuzzy" };

static int fail(const struct error *e, int r) {
        fprintf(stderr, "%s\n", e->text);
        return r == -EBADMSG ? 1 : r == -EPERM ? 2 : 3;
}

static int do_apply(const char *mode, const char *path) {
        struct buf b = BUF_INIT(1u << 30);
        struct patch_plan plan = { 0 };
        struct error e = { 0 };
        int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct patch_source src = { tree_source_read, &dir };
        enum patch_mode m = strcmp(mode, "strict") == 0 ? PATCH_STRICT : strcmp(mode, "repair") == 0 ? PATCH_REPAIR : PATCH_LADDER;
        if (dir < 0 || fs_read_fd(0, &b) < 0)
                return 3;
        int r = patch_plan(buf_str(&b), b.len, m, &src, &plan, &e);
        if (r == 0)
                r = tree_write(dir, &plan, &e);
        if (r < 0)
                return fail(&e, r);
        printf("%s\n", rungs[plan.rung]);
        plan_release(&plan);
        buf_release(&b);
        close(dir);
        return 0;
}

static int do_reset(const char *live, const char *base, const char *path) {
        struct error e = { 0 };
        bool changed = false;
        int a = open(live, O_RDONLY | O_DIRECTORY | O_CLOEXEC), b = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = tree_reset(a, b, path, &changed, &e);
        if (r < 0)
                return fail(&e, r);
        puts(changed ? "changed" : "same");
        return 0;
}

static void load(const char *path, struct diff_side *s, struct buf *b) {
        struct stat st;
        s->exists = stat(path, &st) == 0 && fs_read_file(AT_FDCWD, path, b) == 0;
        s->mode = s->exists && (st.st_mode & 0100) ? 0100755 : 0100644;
        s->data = buf_str(b);
        s->len = b->len;
}

static int do_pair(bool diff, const char *name, const char *old, const char *new) {
        _cleanup_buf_ struct buf x = BUF_INIT(1u << 30), y = BUF_INIT(1u << 30), out = BUF_INIT(1u << 30);
        struct diff_side a, b;
        load(old, &a, &x);
        load(new, &b, &y);
        if (diff) {
                if (diff_file(name, &a, &b, &out) < 0)
                        return 3;
                return fwrite(buf_str(&out), 1, out.len, stdout) == out.len ? 0 : 3;
        }
        double v = patch_similarity(a.data, a.len, b.data, b.len);
        if (v < 0)
                puts("null");
        else
                printf("%.17g\n", v);
        return 0;
}

int main(int argc, char **argv) {
        if (argc == 4 && strcmp(argv[1], "apply") == 0)
                return do_apply(argv[2], argv[3]);
        if (argc == 5 && strcmp(argv[1], "reset") == 0)
                return do_reset(argv[2], argv[3], argv[4]);
        if (argc == 5 && strcmp(argv[1], "diff") == 0)
                return do_pair(true, argv[2], argv[3], argv[4]);
        if (argc == 4 && strcmp(argv[1], "similarity") == 0)
                return do_pair(false, "", argv[2], argv[3]);
        return 64;
}

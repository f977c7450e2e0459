/* The helper that looks at the tree again, when every process of the run is dead. Its seal comes from the first helper, by a memfd that nobody
 * in the sandbox ever held. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "score/apply_wire.h"
#include "score/seal.h"

static int check(int root, struct apply_base base, const char *rule, struct buf *out, struct error *e) {
        struct stat st;
        struct seal_view v = {
                .root = root, .base = base, .watch_fd = fcntl(RECHECK_WATCH_FD, F_GETFD) >= 0 ? RECHECK_WATCH_FD : -1,
                .no_bytecode = strcmp(rule, RECHECK_NO_BYTECODE) == 0, .launched = strcmp(rule, RECHECK_LAUNCHED) == 0,
                .upper = { SEAL_UPPER_FD, SEAL_UPPER_FD + 1, SEAL_UPPER_FD + 2 },
        };
        if (fstat(RECHECK_SEAL_FD, &st) < 0 || st.st_size <= 0)
                return error_say(e, -EBADMSG, "there is no seal");
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, RECHECK_SEAL_FD, 0);
        if (p == MAP_FAILED)
                return error_set(e, -errno, "read the seal");
        return seal_check(p, (size_t)st.st_size, &v, out, e);
}

int recheck_verb(int root, struct apply_base base, const char *rule) {
        struct buf out = BUF_INIT(APPLY_REPORT_MAX);
        struct error e = { 0 };
        int r = check(root, base, rule, &out, &e);
        if (r < 0) {
                buf_reset(&out);
                frame_adds(&out, FRAME_FAULT, e.text);
        }
        frame_adds(&out, FRAME_END, "");
        r = fs_write_all(RECHECK_REPORT_FD, out.data, out.len);
        buf_release(&out);
        return r < 0 ? 1 : 0;
}

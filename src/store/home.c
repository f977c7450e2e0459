#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "store/home.h"

static const char *const subdirs[] = { "images", "snapshots", "trees", "workspaces", "runs", "spool" };

/* Who holds the lock, for the message: best effort, because the holder may be just about to write it. */
static int say_holder(int lock_fd, const char *path, struct error *e) {
        char text[32] = "";
        ssize_t n = pread(lock_fd, text, sizeof text - 1, 0);
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        if (pid > 0)
                return error_say(e, -EWOULDBLOCK, "%s is in use by another brig, process %ld", path, pid);
        return error_say(e, -EWOULDBLOCK, "%s is in use by another brig", path);
}

static int take_lock(int dirfd, const char *path, struct error *e) {
        _cleanup_close_ int fd = openat(dirfd, HOME_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return error_set(e, -errno, "open %s/%s", path, HOME_LOCK_FILE);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno == EWOULDBLOCK)
                        return say_holder(fd, path, e);
                return error_set(e, -errno, "lock %s/%s", path, HOME_LOCK_FILE);
        }
        char pid[32];
        int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
        /* The lock is what counts; on a full disk it has no name in it. */
        if (ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)n, 0) < 0)
                errno = 0;
        return TAKE_FD(fd);
}

static int read_instance(int dirfd, char ret[static HOME_INSTANCE_LEN + 1]) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        int r = fs_read_file(dirfd, HOME_INSTANCE_FILE, &b);
        if (r < 0)
                return r;
        const char *s = buf_str(&b);
        if (strspn(s, "0123456789abcdef") != HOME_INSTANCE_LEN)
                return -EBADMSG;
        memcpy(ret, s, HOME_INSTANCE_LEN);
        ret[HOME_INSTANCE_LEN] = 0;
        return 0;
}

static int load_instance(int dirfd, char ret[static HOME_INSTANCE_LEN + 1]) {
        int r = read_instance(dirfd, ret);
        if (r != -ENOENT)
                return r;
        unsigned char raw[HOME_INSTANCE_LEN / 2];
        char text[HOME_INSTANCE_LEN + 2];
        random_bytes(raw, sizeof raw);
        hex_encode(raw, sizeof raw, text);
        text[HOME_INSTANCE_LEN] = '\n';
        r = fs_write_atomic(dirfd, HOME_INSTANCE_FILE, text, HOME_INSTANCE_LEN + 1, 0644);
        return r < 0 ? r : read_instance(dirfd, ret);
}

int home_open(const char *path, struct home *ret, struct error *e) {
        struct home h = HOME_INIT;
        if (path[0] != '/')
                return error_say(e, -EINVAL, "BRIG_HOME must be an absolute path, not '%s'", path);
        int r = fs_mkdir_p(path, 0755);
        if (r < 0)
                return error_set(e, r, "make %s", path);
        h.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (h.dirfd < 0)
                return error_set(e, -errno, "open %s", path);
        r = h.lock_fd = take_lock(h.dirfd, path, e);
        if (r >= 0) {
                r = load_instance(h.dirfd, h.instance);
                if (r < 0)
                        error_set(e, r, "instance id in %s/%s", path, HOME_INSTANCE_FILE);
        }
        if (r < 0) {
                home_release(&h);
                return r;
        }
        *ret = h;
        return 0;
}

static int give(int dirfd, const char *name, uid_t uid, gid_t gid) {
        struct stat st;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (st.st_uid == uid && st.st_gid == gid)
                return 0;
        return fchownat(dirfd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Files that an earlier start as another user may have left: the daemon must be able to write them. */
static const char *const files[] = { ".", HOME_LOCK_FILE, HOME_INSTANCE_FILE, "brig.db", "brig.db-wal", "brig.db-shm", "ballast" };

int home_layout(const struct home *h, uid_t uid, gid_t gid, struct error *e) {
        for (size_t i = 0; i < ARRAY_SIZE(subdirs); i++) {
                if (mkdirat(h->dirfd, subdirs[i], 0755) < 0 && errno != EEXIST)
                        return error_set(e, -errno, "make directory %s", subdirs[i]);
                int r = give(h->dirfd, subdirs[i], uid, gid);
                if (r < 0)
                        return error_set(e, r, "give directory %s to user %u", subdirs[i], (unsigned)uid);
        }
        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                int r = give(h->dirfd, files[i], uid, gid);
                if (r < 0)
                        return error_set(e, r, "give %s to user %u", files[i], (unsigned)uid);
        }
        return 0;
}

void home_release(struct home *h) {
        h->lock_fd = fd_close(h->lock_fd);
        h->dirfd = fd_close(h->dirfd);
}

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/skeleton.h"

/* What a program needs from /etc to find its libraries, users, names, certificates and interpreters. Prefixes end in '*'. */
static const char *const etc_names[] = {
        "adduser.conf", "alternatives", "apt", "bash.bashrc", "bash_completion.d", "bindresvport.blacklist", "ca-certificates",
        "ca-certificates.conf", "dbus-1", "debconf.conf", "debian_version", "default", "deluser.conf", "dpkg", "environment.d",
        "fonts", "gai.conf", "glvnd", "groff", "group", "gss", "gtk-*", "host.conf", "init.d", "inputrc", "issue", "java*",
        "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libaudit.conf", "locale.alias", "locale.conf", "locale.gen", "localtime",
        "login.defs", "logrotate.d", "lsb-release", "magic", "magic.mime", "manpath.config", "maven", "mime.types", "mke2fs.conf",
        "mtab", "networks", "nsswitch.conf", "opt", "os-release", "pam.conf", "pam.d", "passwd", "perl", "profile", "profile.d",
        "protocols", "python*", "rc?.d", "rpc", "security", "services", "sgml", "shells", "skel", "ssl", "systemd", "terminfo",
        "timezone", "ucf.conf", "update-motd.d", "vim", "X11", "xattr.conf", "xdg", "xml", "OpenCL", "emacs", "ghc", "R", "php*", "ruby*",
};
static const char *const var_lib_names[] = { "dpkg", "pam", "ucf", "sgml-base", "xml-core", "systemd", "python", "vim", "emacsen-common" };
/* Below what is copied: credentials of the package manager, and what a running package manager holds. */
static const char *const never[] = { "auth.conf", "auth.conf.d", "private", "lock", "lock-frontend", "random-seed", "credential.secret" };

struct copy { uint64_t bytes; };

static bool in_list(const char *const *list, size_t n, const char *name) {
        for (size_t i = 0; i < n; i++) {
                const char *p = list[i], *s = name;
                for (; *p && *p != '*' && (*p == *s || (*p == '?' && *s)); p++, s++)
                        ;
                if (*p == '*' || (*p == 0 && *s == 0))
                        return true;
        }
        return false;
}

static int copy_file(struct copy *c, int from_dir, int to_dir, const char *name, const struct stat *st) {
        c->bytes += (uint64_t)st->st_size;
        if (c->bytes > SKELETON_BYTES_MAX)
                return -EFBIG;
        _cleanup_close_ int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (from < 0)
                return -errno;
        _cleanup_close_ int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (to < 0)
                return -errno;
        for (off_t left = st->st_size; left > 0;) {
                ssize_t n = sendfile(to, from, NULL, (size_t)MIN2(left, (off_t)1 << 20));
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                left -= n;
        }
        const struct timespec times[2] = { st->st_mtim, st->st_mtim };
        if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 0777) < 0 || futimens(to, times) < 0)
                return -errno;
        return 0;
}

static int copy_entry(struct copy *c, int from_dir, int to_dir, const char *name, unsigned depth);

static int copy_children(struct copy *c, int from, int to, const char *const *list, size_t n_list, unsigned depth) {
        int dup = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = dup < 0 ? NULL : fdopendir(dup);
        if (!d) {
                fd_close(dup);
                return -errno;
        }
        int r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                if (list ? in_list(list, n_list, de->d_name) : !in_list(never, ARRAY_SIZE(never), de->d_name))
                        r = copy_entry(c, from, to, de->d_name, depth);
        }
        closedir(d);
        return r;
}

static int copy_dir(struct copy *c, int from_dir, int to_dir, const char *name, const struct stat *st, unsigned depth) {
        if (depth >= SKELETON_DEPTH_MAX)
                return -ELOOP;
        _cleanup_close_ int from = openat(from_dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (from < 0 || mkdirat(to_dir, name, 0700) < 0)
                return -errno;
        _cleanup_close_ int to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (to < 0)
                return -errno;
        int r = copy_children(c, from, to, NULL, 0, depth + 1);
        if (r < 0)
                return r;
        return fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 01777) < 0 ? -errno : 0;
}

/* Copies what everybody on the machine may read; anything else, and anything that vanishes meanwhile, is left out. */
static int copy_entry(struct copy *c, int from_dir, int to_dir, const char *name, unsigned depth) {
        struct stat st;
        if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        int r = 0;
        if (S_ISLNK(st.st_mode)) {
                char target[4096];
                ssize_t n = readlinkat(from_dir, name, target, sizeof target - 1);
                if (n < 0)
                        return -errno;
                target[n] = 0;
                r = symlinkat(target, to_dir, name) < 0 ? -errno : 0;
        } else if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005)
                r = copy_dir(c, from_dir, to_dir, name, &st, depth);
        else if (S_ISREG(st.st_mode) && (st.st_mode & 0004))
                r = copy_file(c, from_dir, to_dir, name, &st);
        return r == -ENOENT ? 0 : r;
}

static int copy_listed(struct copy *c, const char *from_path, int to_dir, const char *to_path, const char *const *list, size_t n) {
        _cleanup_close_ int from = open(from_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (from < 0)
                return errno == ENOENT ? 0 : -errno;
        _cleanup_close_ int to = openat(to_dir, to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (to < 0)
                return -errno;
        return copy_children(c, from, to, list, n, 0);
}

struct made { const char *path; mode_t mode; };
static const struct made directories[] = {
        { "etc", 0755 }, { "usr", 0755 }, { "opt", 0755 }, { "proc", 0555 }, { "sys", 0555 }, { "dev", 0755 }, { "run", 0755 },
        { "run/lock", 01777 }, { "run/brig", 0755 }, { "root", 0700 }, { "home", 0755 }, { "tmp", 01777 }, { "mnt", 0755 },
        { "media", 0755 }, { "srv", 0755 }, { "var", 0755 }, { "var/lib", 0755 }, { "var/lib/apt", 0755 },
        { "var/lib/apt/lists", 0755 }, { "var/lib/apt/lists/partial", 0755 }, { "var/lib/apt/periodic", 0755 }, { "var/cache", 0755 },
        { "var/cache/apt", 0755 }, { "var/cache/apt/archives", 0755 }, { "var/cache/apt/archives/partial", 0755 },
        { "var/cache/debconf", 0755 }, { "var/cache/ldconfig", 0700 }, { "var/log", 0755 }, { "var/log/apt", 0755 }, { "var/mail", 0755 },
        { "var/spool", 0755 }, { "var/tmp", 01777 }, { "var/local", 0755 }, { "var/opt", 0755 }, { "var/backups", 0755 },
        { "sys/devices", 0555 }, { "sys/devices/system", 0555 }, { "sys/devices/system/cpu", 0555 }, { "sys/fs", 0555 },
        { "sys/fs/cgroup", 0555 }, { "sys/class", 0555 }, { "sys/class/net", 0555 }, { "sys/kernel", 0555 }, { "sys/block", 0555 },
};
static const char *const top_links[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32" };

static int make_directories(int root) {
        for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
                if (mkdirat(root, directories[i].path, 0755) < 0 || fchmodat(root, directories[i].path, directories[i].mode, 0) < 0)
                        return -errno;
        }
        if (symlinkat("/run", root, "var/run") < 0 || symlinkat("/run/lock", root, "var/lock") < 0)
                return -errno;
        for (size_t i = 0; i < ARRAY_SIZE(top_links); i++) {
                char path[16], target[256];
                snprintf(path, sizeof path, "/%s", top_links[i]);
                ssize_t n = readlink(path, target, sizeof target - 1);
                if (n < 0)
                        continue;
                target[n] = 0;
                if (symlinkat(target, root, top_links[i]) < 0)
                        return -errno;
        }
        return 0;
}

static int write_file(int root, const char *path, const char *text) {
        _cleanup_close_ int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        return fd < 0 ? -errno : fs_write_all(fd, text, strlen(text));
}

static int copy_text(int root, const char *from, const char *to) {
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        int r = fs_read_file(AT_FDCWD, from, &b);
        return r < 0 ? (r == -ENOENT ? 0 : r) : write_file(root, to, buf_str(&b));
}

static int fill(int root) {
        struct copy c = { 0 };
        int r = make_directories(root);
        if (r == 0)
                r = copy_listed(&c, "/etc", root, "etc", etc_names, ARRAY_SIZE(etc_names));
        if (r == 0)
                r = copy_listed(&c, "/var/lib", root, "var/lib", var_lib_names, ARRAY_SIZE(var_lib_names));
        if (r == 0)
                r = copy_listed(&c, "/etc/skel", root, "root", (const char *const[]){ ".*" }, 1);
        if (r == 0)
                r = copy_text(root, "/etc/resolv.conf", "etc/resolv.conf");
        if (r == 0)
                r = write_file(root, "etc/hosts", "127.0.0.1\tlocalhost brig\n::1\tlocalhost ip6-localhost\n");
        if (r == 0)
                r = write_file(root, "etc/hostname", "brig\n");
        static const char *const cpu[] = { "online", "possible", "present" };
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(cpu); i++) {
                char path[64];
                snprintf(path, sizeof path, "/sys/devices/system/cpu/%s", cpu[i]);
                r = copy_text(root, path, path + 1);
        }
        return r;
}

static void hash_stat(struct sha256 *h, const char *path, bool identity) {
        struct stat st;
        char line[256];
        if (lstat(path, &st) < 0)
                snprintf(line, sizeof line, "absent");
        else if (identity)
                snprintf(line, sizeof line, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
        else
                snprintf(line, sizeof line, "%llu:%lld.%ld:%llu", (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec,
                         st.st_mtim.tv_nsec, (unsigned long long)st.st_size);
        sha256_update_str(h, path);
        sha256_update_str(h, line);
}

int skeleton_fingerprint(char ret[static SHA256_HEX], struct error *e) {
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "fingerprint of the host image");
        char format[16];
        snprintf(format, sizeof format, "skeleton %d", SKELETON_FORMAT);
        sha256_update_str(&h, format);
        static const char *const places[] = { "/usr", "/opt", "/bin", "/lib", "/usr/local" };
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
                hash_stat(&h, places[i], true);
        static const char *const changing[] = {
                "/usr/lib/os-release", "/var/lib/dpkg/status", "/etc", "/etc/passwd", "/etc/group", "/etc/ld.so.cache",
                "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/alternatives", "/etc/ssl/certs", "/etc/apt", "/etc/profile.d",
        };
        for (size_t i = 0; i < ARRAY_SIZE(changing); i++)
                hash_stat(&h, changing[i], false);
        _cleanup_buf_ struct buf release = BUF_INIT(65536);
        if (fs_read_file(AT_FDCWD, "/usr/lib/os-release", &release) == 0)
                sha256_update(&h, buf_str(&release), release.len);
        sha256_finish(&h, ret);
        return 0;
}

/* Deletes a half-made skeleton. Ours alone: nobody else writes below images/. */
static void remove_tree(int dirfd, const char *name, unsigned depth) {
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *de; d && depth < SKELETON_DEPTH_MAX + 4 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                if (unlinkat(fd, de->d_name, 0) < 0)
                        remove_tree(fd, de->d_name, depth + 1);
        }
        if (d)
                closedir(d);
        else
                fd_close(fd);
        unlinkat(dirfd, name, AT_REMOVEDIR);
}

static int make(int images, const char *tmp, struct error *e) {
        remove_tree(images, tmp, 0);
        if (mkdirat(images, tmp, 0755) < 0)
                return error_set(e, -errno, "mkdir images/%s", tmp);
        _cleanup_close_ int top = openat(images, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top < 0 || mkdirat(top, "root", 0755) < 0)
                return error_set(e, -errno, "mkdir images/%s/root", tmp);
        _cleanup_close_ int root = openat(top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return error_set(e, -errno, "open images/%s/root", tmp);
        int r = fill(root);
        if (r == 0 && syncfs(root) < 0)
                r = -errno;
        return r < 0 ? error_set(e, r, "copy the host's /etc and package database") : 0;
}

int skeleton_open(int home_fd, const char *fingerprint, int *ret_fd, struct error *e) {
        char name[32], tmp[40], path[48];
        snprintf(name, sizeof name, "host-%.16s", fingerprint);
        snprintf(tmp, sizeof tmp, ".%s.tmp", name);
        snprintf(path, sizeof path, "%s/root", name);
        if (mkdirat(home_fd, "images", 0755) < 0 && errno != EEXIST)
                return error_set(e, -errno, "mkdir images");
        _cleanup_close_ int images = openat(home_fd, "images", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (images < 0)
                return error_set(e, -errno, "open images");
        mode_t mask = umask(0);
        int fd = fs_open_beneath(images, path, O_PATH | O_DIRECTORY, 0), r = 0;
        if (fd == -ENOENT) {
                r = make(images, tmp, e);
                if (r == 0 && renameat(images, tmp, images, name) < 0)
                        r = error_set(e, -errno, "rename images/%s", name);
                if (r == 0)
                        fd = fs_open_beneath(images, path, O_PATH | O_DIRECTORY, 0);
                else
                        remove_tree(images, tmp, 0);
        }
        umask(mask);
        if (r < 0)
                return r;
        if (fd < 0)
                return error_set(e, fd, "open images/%s", path);
        *ret_fd = fd;
        return 0;
}

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/sandbox.h"
#include "store/image.h"

static const char *const host_directories[] = { "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/opt" };
static const char *const host_files[] = { "/etc/os-release", "/var/lib/dpkg/status" };
#define IMAGE_FORMAT 1

static void add_identity(struct sha256 *h, const char *path) {
        struct stat st;
        char text[256] = "absent";
        if (stat(path, &st) == 0)
                snprintf(text, sizeof text, "%llu:%llu:%lld.%09ld:%lld.%09ld:%lld", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec,
                         S_ISREG(st.st_mode) ? (long long)st.st_size : -1ll);
        sha256_update_str(h, path);
        sha256_update_str(h, text);
}

/* The package database is half a megabyte: its identity changes whenever its contents do, and costs one stat. */
static void add_host(struct sha256 *h) {
        for (size_t i = 0; i < ARRAY_SIZE(host_files); i++)
                add_identity(h, host_files[i]);
        for (size_t i = 0; i < ARRAY_SIZE(host_directories); i++)
                add_identity(h, host_directories[i]);
}

int image_digest(const char *image, char ret_hex[static SHA256_HEX], struct error *e) {
        struct sha256 h;
        struct stat st;
        char text[32];
        if (strcmp(image, IMAGE_HOST) != 0 && (image[0] != '/' || stat(image, &st) < 0 || !S_ISDIR(st.st_mode)))
                return error_say(e, -ENOENT, "image %s: no such image", image);
        int r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "digest of image %s", image);
        snprintf(text, sizeof text, "brig image %d", IMAGE_FORMAT);
        sha256_update_str(&h, text);
        if (strcmp(image, IMAGE_HOST) == 0)
                add_host(&h);
        else
                add_identity(&h, image);
        sha256_finish(&h, ret_hex);
        return 0;
}

#include <string.h>
#include <sys/stat.h>

#include "sandbox/sandbox.h"
#include "store/image.h"

#define IMAGE_FORMAT 1

int image_digest(const struct spawner *sp, const char *image, char ret_hex[static SHA256_HEX], struct error *e) {
        struct sha256 h;
        struct stat st;
        char text[256];
        if (strcmp(image, IMAGE_HOST) == 0) {
                snprintf(ret_hex, SHA256_HEX, "%s", spawner_image_digest(sp));
                return 0;
        }
        if (image[0] != '/' || stat(image, &st) < 0 || !S_ISDIR(st.st_mode))
                return error_say(e, -ENOENT, "image %s: no such image", image);
        int r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "digest of image %s", image);
        snprintf(text, sizeof text, "brig image %d %llu:%llu:%lld.%09ld:%lld.%09ld", IMAGE_FORMAT, (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
        sha256_update_str(&h, text);
        sha256_update_str(&h, image);
        sha256_finish(&h, ret_hex);
        return 0;
}

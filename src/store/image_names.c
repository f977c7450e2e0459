/* Names of images: their shape, the table, and the file that keeps them ($BRIG_HOME/images/names: "DIGEST NAME" a line, replaced
 * as a whole, so that a name that moves is never in two places). */
#include <ctype.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/strv.h"
#include "store/image_store_private.h"

#define NAMES_FILE "names"
#define NAMES_BYTES_MAX (IMAGE_NAMES_MAX * (IMAGE_NAME_MAX + SHA256_HEX + 2ull))

const char *image_name_node_key(const struct map_node *n) { return container_of(n, struct image_name, node)->name; }

/* ---- shape ---- */

static bool only(const char *s, const char *extra) {
        for (; *s; s++)
                if (!isalnum((unsigned char)*s) && !strchr(extra, *s))
                        return false;
        return true;
}

static bool is_digest(const char *name) {
        const char *hex = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
        size_t n = strlen(hex);
        return n >= 12 && n <= 64 && strspn(hex, "0123456789abcdef") == n;
}

int image_name_normalize(const char *name, char ret[static IMAGE_NAME_MAX + 1], struct error *e) {
        size_t n = strlen(name);
        const char *last = strrchr(name, '/');
        last = last ? last + 1 : name;
        bool plain = strchr(last, ':') || strchr(last, '@') || is_digest(name) || name[0] == '/' || strcmp(name, IMAGE_HOST) == 0 || strcmp(name, IMAGE_SCRATCH) == 0;
        if (name[0] != '/' && (n == 0 || !only(name, "._-/:@") || !isalnum((unsigned char)name[0]) || !*last || strstr(name, "//")))
                return error_say(e, -EINVAL, "'%.100s' is no name of an image", name);
        if (n + (plain ? 0 : 7) > IMAGE_NAME_MAX)
                return error_say(e, -EINVAL, "the name of an image has at most %d bytes", IMAGE_NAME_MAX);
        snprintf(ret, IMAGE_NAME_MAX + 1, "%s%s", name, plain ? "" : ":latest");
        return 0;
}

int image_name_given(const char *name, char ret[static IMAGE_NAME_MAX + 1], struct error *e) {
        char whole[IMAGE_NAME_MAX + 1];
        int r = image_name_normalize(name, whole, e);
        if (r < 0)
                return r;
        if (whole[0] == '/' || strcmp(whole, IMAGE_HOST) == 0 || strcmp(whole, IMAGE_SCRATCH) == 0 || strchr(whole, '@') || is_digest(whole))
                return error_say(e, -EINVAL, "an image cannot be named '%.100s'", whole);
        snprintf(ret, IMAGE_NAME_MAX + 1, "%s", whole);
        return 0;
}

/* ---- the table ---- */

void image_name_drop(struct image_store *st, const char *name) {
        struct map_node *n = map_find(&st->names, name);
        if (!n)
                return;
        struct image_name *in = container_of(n, struct image_name, node);
        size_t k = 0;
        for (char **v = in->image->names; v && *v; v++) {
                if (strcmp(*v, name) == 0)
                        free(*v);
                else
                        in->image->names[k++] = *v;
        }
        if (in->image->names)
                in->image->names[k] = NULL;
        map_remove(&st->names, n);
        st->n_names--;
        free(in->name);
        free(in);
}

int image_name_set(struct image_store *st, const char *name, struct image *img) {
        image_name_drop(st, name);
        struct image_name *in = calloc(1, sizeof *in);
        if (!in || !(in->name = strdup(name)) || strv_push(&img->names, name) < 0) {
                if (in)
                        free(in->name);
                free(in);
                return -ENOMEM;
        }
        in->image = img;
        int r = map_add(&st->names, &in->node);
        if (r == 0)
                st->n_names++;
        return r;
}

/* ---- the file ---- */

struct names_text { struct buf *b; const char *const *set; const struct image *gone; int r; };

static void add_line(struct map_node *n, void *user) {
        struct names_text *t = user;
        const struct image_name *in = container_of(n, struct image_name, node);
        if (t->r == 0 && in->image != t->gone && !strv_contains(t->set, in->name))
                t->r = buf_printf(t->b, "%s %s\n", in->image->digest, in->name);
}

int image_names_text(struct image_store *st, const char *const *names, const struct image *img, const struct image *gone, struct buf *b) {
        struct names_text t = { .b = b, .set = names, .gone = gone };
        map_each(&st->names, add_line, &t);
        for (size_t i = 0; img && names && names[i] && t.r == 0; i++)
                t.r = buf_printf(b, "%s %s\n", img->digest, names[i]);
        return t.r;
}

int image_names_read(struct image_store *st) {
        _cleanup_buf_ struct buf b = BUF_INIT(NAMES_BYTES_MAX);
        int r = fs_read_file(st->dir_fd, NAMES_FILE, &b);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        for (char *at = b.data; at && *at;) {
                char digest[SHA256_HEX], name[IMAGE_NAME_MAX + 1], *end = strchr(at, '\n');
                if (!end)
                        break;
                *end = 0;
                struct map_node *n = NULL;
                if (sscanf(at, "%64[0-9a-f] %255s", digest, name) == 2)
                        n = map_find(&st->images, digest);
                if (n && image_name_set(st, name, container_of(n, struct image, node)) < 0)
                        return -ENOMEM;
                at = end + 1;
        }
        return 0;
}

/* For tests only: the registry client by command line. Nothing is unpacked; what comes is said as lines of JSON:
 *
 *     registry_tool [-u NAME:PASSWORD] [-t TIMEOUT_MS] [-s SKIP] [-a RANGE] [-c CREDENTIALS] [-C CA] [-n] [-p CANCEL_AFTER_MS] DIRECTORY REFERENCE...
 *
 *     {"resolved": digest, "layers": N, "config": N bytes}     {"layer": I, "size": N, "sha256": hex}
 *     {"progress": [layers_done, layers_wanted, bytes_done, bytes_wanted]}     {"done": failure, "error": text}
 *
 * All references are pulled at the same time; each line carries "ref". -n: loopback is not allowed. Exit 0 if all went well. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "registry/registry.h"

struct pull { const char *name; struct registry_pull *pull; bool over; };

static struct registry *registry;
static int skip, left, failures;
static uint64_t cancel_after;

static void say(struct buf *b) {
        buf_addc(b, '\n');
        ASSERT(fs_write_all(1, buf_str(b), b->len) == 0);
        buf_release(b);
}

static int resolved(const struct registry_image *image, void *user, struct error *e) {
        const struct pull *p = user;
        struct buf b = BUF_INIT(65536);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "ref", p->name);
        json_field_text(&w, "resolved", image->digest);
        json_field_uint(&w, "layers", image->n_layers);
        json_field_uint(&w, "config", image->config_len);
        json_end_object(&w);
        say(&b);
        return skip;
}

static void layer(size_t index, int fd, void *user) {
        const struct pull *p = user;
        struct stat st;
        struct sha256 h;
        char hex[SHA256_HEX], piece[65536];
        struct buf b = BUF_INIT(65536);
        struct json_writer w = JSON_WRITER(&b);
        ASSERT(fstat(fd, &st) == 0 && st.st_nlink == 0 && sha256_init(&h) == 0);
        for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
                sha256_update(&h, piece, (size_t)n);
        sha256_finish(&h, hex);
        close(fd);
        json_begin_object(&w);
        json_field_text(&w, "ref", p->name);
        json_field_uint(&w, "layer", index);
        json_field_uint(&w, "size", (uint64_t)st.st_size);
        json_field_text(&w, "sha256", hex);
        json_end_object(&w);
        say(&b);
}

static void closed(void *user) {}

static void progress(const struct registry_progress *p, void *user) {
        struct pull *pull = user;
        struct buf b = BUF_INIT(65536);
        buf_printf(&b, "{\"ref\":\"%s\",\"progress\":[%zu,%zu,%llu,%llu]}", pull->name, p->layers_done, p->layers_wanted,
                   (unsigned long long)p->bytes_done, (unsigned long long)p->bytes_wanted);
        say(&b);
}

static void done(enum registry_failure f, const struct error *e, void *user) {
        struct pull *p = user;
        struct buf b = BUF_INIT(65536);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "ref", p->name);
        json_field_text(&w, "done", registry_failure_to_string((int)f));
        json_field_text(&w, "error", f == REGISTRY_OK ? NULL : e->text);
        json_end_object(&w);
        say(&b);
        p->over = true;
        failures += f != REGISTRY_OK;
        if (--left == 0)
                registry_close(registry, closed, NULL);
}

static void cancel(uv_timer_t *t) {
        struct pull *p = t->data;
        registry_pull_cancel(p->pull);
        registry_close(registry, closed, NULL);
        uv_close((uv_handle_t *)t, NULL);
}

int main(int argc, char **argv) {
        struct registry_config cfg = { .loopback = true, .credentials_fd = -1 };
        struct registry_pull_spec spec = { .timeout_ms = 20000 };
        const char *allow[2] = { NULL, NULL };
        struct error e;
        uv_loop_t *loop = uv_default_loop();
        uv_timer_t timer;
        for (int o; (o = getopt(argc, argv, "u:t:s:a:c:C:np:")) != -1;)
                switch (o) {
                case 'u': spec.username = strsep(&optarg, ":"); spec.password = optarg; break;
                case 't': spec.timeout_ms = strtoull(optarg, NULL, 10); break;
                case 's': skip = (int)strtol(optarg, NULL, 10); break;
                case 'a': allow[0] = optarg; break;
                case 'c': cfg.credentials_fd = open(optarg, O_RDONLY | O_CLOEXEC); break;
                case 'C': cfg.ca_file = optarg; break;
                case 'n': cfg.loopback = false; break;
                case 'p': cancel_after = strtoull(optarg, NULL, 10); break;
                default: return 64;
                }
        if (argc - optind < 2)
                return 64;
        cfg.directory = argv[optind++];
        cfg.allow = allow;
        if (registry_new(loop, &cfg, &registry, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return 2;
        }
        struct pull *pulls = calloc((size_t)(argc - optind), sizeof *pulls);
        const struct registry_callbacks cb = { resolved, layer, progress, done };
        ASSERT(pulls);
        for (int i = 0; i < argc - optind; i++) {
                struct image_ref ref;
                pulls[i].name = argv[optind + i];
                spec.ref = &ref;
                if (image_ref_parse(pulls[i].name, NULL, &ref, &e) < 0 || registry_pull_start(registry, &spec, &cb, &pulls[i], &pulls[i].pull, &e) < 0) {
                        fprintf(stderr, "%s\n", e.text);
                        return 2;
                }
                left++;
        }
        if (cancel_after > 0) {
                uv_timer_init(loop, &timer);
                timer.data = &pulls[0];
                uv_timer_start(&timer, cancel, cancel_after, 0);
        }
        uv_run(loop, UV_RUN_DEFAULT);
        free(pulls);
        return failures ? 1 : 0;
}

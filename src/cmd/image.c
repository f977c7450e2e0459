/* brig image pull, brig image build. */
#include <signal.h>
#include <string.h>

#include "base/fs.h"
#include "cmd/local_tar.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"

#define SECRET_MAX (64u << 10)         /* bytes of a password */

/* ---- long work ------------------------------------------------------------------------------------------------------------ */

struct work { const struct remote_options *remote; struct error *e; struct packing *pack; bool done, quiet; };

static void show_step(const char *mark, const struct json *v) {
        char text[SHOW_MAX];
        status_line("%s", "");
        fprintf(stderr, "[%lld/%lld]%s %s\n", (long long)member_number(v, "step", 0), (long long)member_number(v, "steps", 0), mark, member_show(v, "text", text, sizeof text));
}

/* What a build's programs print, without what could steer the reader's terminal. */
static void show_output(const struct json *v) {
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        struct json text;
        if (!json_get(v, "text", &text) || json_string(&text, &b) < 0)
                return;
        for (size_t i = 0; i < b.len; i++) {
                unsigned char c = (unsigned char)b.data[i];
                bool c1 = c == 0xc2 && i + 1 < b.len && (unsigned char)b.data[i + 1] < 0xa0;
                if (c1)
                        i++;
                fputc(c1 || (c < ' ' && c != '\n' && c != '\t') || c == 0x7f ? '?' : c, stderr);
        }
}

static int on_event(const char *event, const struct json *v, void *user) {
        struct work *w = user;
        char a[SHOW_MAX], b[SHOW_MAX];
        if (strcmp(event, "image") == 0) {
                w->done = true;
                status_line("%s", "");
                if (w->remote->json)
                        (void)print_json(v);
                else
                        printf("%s\n", member_show(v, "digest", a, sizeof a));
                return 1;
        }
        if (strcmp(event, "error") == 0) {
                struct json error;
                (void)json_get(v, "error", &error);
                return error_say(w->e, -EIO, "%s", member_show(&error, "message", a, sizeof a));
        }
        if (w->quiet)
                return 0;
        if (strcmp(event, "progress") == 0)
                status_line("layers %lld/%lld, %s of %s", (long long)member_number(v, "layers_done", 0), (long long)member_number(v, "layers", 0),
                            bytes_show(v, "bytes", a), bytes_show(v, "bytes_wanted", b));
        else if (strcmp(event, "pull") == 0)
                status_line("pulling, %s", bytes_show(v, "bytes", a));
        else if (strcmp(event, "step") == 0)
                show_step("", v);
        else if (strcmp(event, "cached") == 0)
                show_step(" cached", v);
        else if (strcmp(event, "output") == 0)
                show_output(v);
        return 0;
}

static int work(struct client *c, struct remote_events *ev, struct work *w) {
        ev->each = on_event;
        int r = remote_stream(c, ev, w->e);
        return r == 0 && !w->done ? error_say(w->e, -EIO, "the daemon broke off") : r;
}

/* ---- pull ---------------------------------------------------------------------------------------------------------------- */

struct pull_options { struct remote_options remote; char *user, *timeout; bool password, quiet; };
#define PULL(member) offsetof(struct pull_options, member)
static const struct option_row pull_rows[] = {
        { "--username", "NAME", OPTION_TEXT, PULL(user), 0, COMPLETE_NONE, "who asks the registry" },
        { "--password-stdin", NULL, OPTION_SWITCH, PULL(password), 0, COMPLETE_NONE, "their password, or a token, from standard input" },
        { "--timeout", "SECONDS", OPTION_TEXT, PULL(timeout), 0, COMPLETE_NONE, "for all of it" },
        { "-q", NULL, OPTION_SWITCH, PULL(quiet), 0, COMPLETE_NONE, "no progress" },
};

static int put_auth(struct json_writer *w, const struct pull_options *o, struct error *e) {
        _cleanup_buf_ struct buf secret = BUF_INIT(SECRET_MAX);
        if (!o->user != !o->password)
                return error_say(e, -EINVAL, "--username and --password-stdin go together");
        if (!o->user)
                return 0;
        int r = fs_read_fd(STDIN_FILENO, &secret);
        if (r < 0)
                return error_set(e, r, "read the password");
        json_put_key(w, "auth");
        json_begin_object(w);
        json_field_text(w, "username", o->user);
        json_field_string(w, "password", buf_str(&secret), strcspn(buf_str(&secret), "\r\n"));
        json_end_object(w);
        return 0;
}

static int pull(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct pull_options *o = target;
        _cleanup_buf_ struct buf body = BUF_INIT(4 * SECRET_MAX);
        struct json_writer w = JSON_WRITER(&body);
        json_begin_object(&w);
        json_field_text(&w, "name", arguments[0]);
        json_field_bool(&w, "stream", true);
        int r = put_auth(&w, o, e);
        r = r ? r : put_number(&w, "timeout", o->timeout, "--timeout", e);
        json_end_object(&w);
        int x = json_finish(&w);
        if (r < 0 || x < 0)
                return r < 0 ? r : error_set(e, x, "write the request");
        struct work k = { .remote = &o->remote, .e = e, .quiet = o->quiet };
        return work(c, &(struct remote_events){ .method = "POST", .path = "/v1/images/pull", .body = &body, .user = &k }, &k);
}

static int run_pull(const struct command *c, int argc, char **argv) {
        struct pull_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = pull }, argc, argv);
}

const struct command cmd_image_pull = {
        .name = "image pull", .synopsis = "[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST] [OPTION...]", .doc = "pull an image from a registry",
        .text = "Prints its digest. What is in the store already is not fetched again.", .status = "0, 2 it failed, 64 usage, 130 interrupted",
        .options = pull_rows, .n_options = ARRAY_SIZE(pull_rows), REMOTE_COMMON, .run = run_pull,
};

/* ---- build --------------------------------------------------------------------------------------------------------------- */

struct build_options {
        struct remote_options remote;
        struct buf dockerfile; bool has_dockerfile;
        char *path, *stage, *network, *timeout;
        char **names, **arguments;
        bool no_cache, quiet;
};
#define BUILD(member) offsetof(struct build_options, member)
static const struct option_row build_rows[] = {
        { "--name", "NAME[:TAG]", OPTION_APPEND, BUILD(names), 0, COMPLETE_NONE, "a name that the image gets (repeat)" },
        { "--file", "FILE", OPTION_FILE, BUILD(dockerfile), BUILD(has_dockerfile), COMPLETE_FILE, "the Dockerfile; without: the one of the context" },
        { "--path", "PATH", OPTION_TEXT, BUILD(path), 0, COMPLETE_NONE, "the Dockerfile in the context (Dockerfile)" },
        { "--build-arg", "K=V", OPTION_APPEND, BUILD(arguments), 0, COMPLETE_NONE, "a value of ARG (repeat)" },
        { "--target", "STAGE", OPTION_TEXT, BUILD(stage), 0, COMPLETE_NONE, "the stage that is wanted" },
        { "--network", "none|open", OPTION_TEXT, BUILD(network), 0, COMPLETE_WORDS, "of RUN (open)" },
        { "--timeout", "SECONDS", OPTION_TEXT, BUILD(timeout), 0, COMPLETE_NONE, "for all of it" },
        { "--no-cache", NULL, OPTION_SWITCH, BUILD(no_cache), 0, COMPLETE_NONE, "run every RUN again" },
        { "-q", NULL, OPTION_SWITCH, BUILD(quiet), 0, COMPLETE_NONE, "no progress" },
};

static void put_text(struct json_writer *w, const char *key, const char *text) {
        if (text)
                json_field_text(w, key, text);
}

static int write_options(const struct build_options *o, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        json_field_bool(&w, "stream", true);
        if (o->has_dockerfile)
                json_field_string(&w, "dockerfile", buf_str(&o->dockerfile), o->dockerfile.len);
        put_text(&w, "path", o->path);
        put_text(&w, "target", o->stage);
        put_text(&w, "network", o->network);
        if (o->names) {
                json_put_key(&w, "names");
                json_put_texts(&w, o->names);
        }
        int r = put_pairs(&w, "build_args", o->arguments, "--build-arg", e);
        r = r ? r : put_number(&w, "timeout", o->timeout, "--timeout", e);
        if (o->no_cache)
                json_field_bool(&w, "no_cache", true);
        json_end_object(&w);
        int x = json_finish(&w);
        return r < 0 ? r : x < 0 ? error_set(e, x == -ENOSPC ? -EINVAL : x, "the options are too long") : 0;
}

static ssize_t read_context(char *p, size_t n, void *user) { return packing_read(p, n, ((struct work *)user)->pack); }

static int build(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct build_options *o = target;
        _cleanup_buf_ struct buf options = BUF_INIT(REMOTE_PATH_MAX), path = BUF_INIT(4 * REMOTE_PATH_MAX);
        struct packing *pack = NULL;
        struct work k = { .remote = &o->remote, .e = e, .quiet = o->quiet };
        signal(SIGPIPE, SIG_IGN);
        int r = write_options(o, &options, e);
        if (r == 0 && (buf_adds(&path, "/v1/images/build?options=") < 0 || query_encode(&path, buf_str(&options)) < 0))
                r = error_say(e, -EINVAL, "the options are too long; put the Dockerfile into the context and name it with --path");
        r = r ? r : packing_start(arguments[0], false, &pack, e);
        if (r < 0)
                return r;
        k.pack = pack;
        r = work(c, &(struct remote_events){ .method = "POST", .path = buf_str(&path), .content_type = "application/x-tar", .source = read_context, .user = &k }, &k);
        if (packing_error(pack, e) < 0)
                r = -EIO;
        packing_free(pack);
        return r;
}

static int run_build(const struct command *c, int argc, char **argv) {
        struct build_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = build }, argc, argv);
}

const struct command cmd_image_build = {
        .name = "image build", .synopsis = "DIRECTORY [OPTION...]", .doc = "build an image from a Dockerfile",
        .text = "DIRECTORY is the context; its .dockerignore is honoured. What the steps print goes to standard error, the image's digest to standard output.",
        .status = "0, 2 it failed, 64 usage, 130 interrupted",
        .options = build_rows, .n_options = ARRAY_SIZE(build_rows), REMOTE_COMMON, .argument = COMPLETE_DIRECTORY, .run = run_build,
};

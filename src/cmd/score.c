/* brig score: one patch becomes one verdict, by a daemon that answers or by the engine inside this process. */
#include <fcntl.h>
#include <string.h>

#include "base/json.h"
#include "cmd/print_record.h"
#include "cmd/remote.h"
#include "cmd/score_options.h"
#include "cmd/score_replay.h"
#include "cmd/score_run.h"
#include "cmd/verbs.h"

static const char *local_directory(const char *repo) {
        if (repo && strncmp(repo, "file:///", 8) == 0)
                repo += 7;
        return repo && repo[0] == '/' ? repo : NULL;
}

/* What is asked for, as text: made of the options, or what was kept. `repo`: of it, NULL where it has none. */
struct asked { struct buf file, request; struct json record; char *repo; int save; };

static void asked_release(struct asked *a) {
        buf_release(&a->file);
        buf_release(&a->request);
        free(a->repo);
        fd_close(a->save);
}

static int ask_again(const struct score_options *o, struct asked *a, struct error *e) {
        struct json request, repo;
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        int r = replay_load(o->replay, &a->file, &request, &a->record, e);
        if (r < 0)
                return r;
        r = buf_add(&a->request, request.p, request.n);
        if (r == 0 && json_get(&request, "repo_url", &repo) && json_string(&repo, &b) == 0)
                a->repo = buf_steal(&b);
        return r < 0 ? error_set(e, r, "read %s", o->replay) : 0;
}

static int ask(const struct score_options *o, struct asked *a, struct error *e) {
        int r = o->replay ? ask_again(o, a, e) : score_options_request(o, &a->request, e);
        if (r == 0 && !o->replay && o->repo && !(a->repo = strdup(o->repo)))
                r = error_set(e, -ENOMEM, "read the options");
        /* Now: the engine in this process gives up the right to. */
        if (r == 0 && o->save && (a->save = open(o->save, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0)
                r = error_say(e, -EINVAL, "--save: %s: %s", o->save, strerrordesc_np(errno));
        return r;
}

static int run(const struct score_options *o, const struct asked *a, struct buf *ret, struct error *e) {
        struct client *c = NULL;
        int r = remote_find(o->url, false, &c, e);
        if (r < 0)
                return r;
        struct score_run how = {
                .request = buf_str(&a->request), .request_len = a->request.len, .local_repo = local_directory(a->repo),
                .progress = !o->quiet && isatty(STDERR_FILENO),
        };
        if (c)
                score_interruptible();
        r = c ? score_remote(c, &how, ret, e) : score_local(&how, ret, e);
        client_free(c);
        return r;
}

/* ---- the answer ----------------------------------------------------------------------------------------------------------------- */

static int written(void) {
        if (fflush(stdout) == 0)
                return 0;
        fprintf(stderr, "brig score: cannot write the record: %s\n", strerrordesc_np(errno));
        return EXIT_OUR_FAULT;
}

static int show_record(const struct score_options *o, const struct json *v) {
        if (o->json) {
                fwrite(v->p, 1, v->n, stdout);
                fputc('\n', stdout);
        } else
                print_record(stdout, v, true);
        int status = written();
        return status ? status : record_exit_status(v);
}

static int show_replay(const struct score_options *o, const struct json *was, const struct json *now) {
        _cleanup_buf_ struct buf b = BUF_INIT(SCORE_RECORD_MAX);
        struct json doc, same;
        bool is_same = false;
        if (replay_compare(was, now, &b) < 0 || json_parse(buf_str(&b), b.len, &doc, NULL) < 0 || !json_get(&doc, "same", &same) || json_bool(&same, &is_same) < 0) {
                fprintf(stderr, "brig score: the records cannot be compared\n");
                return EXIT_OUR_FAULT;
        }
        if (o->json)
                printf("%s\n", buf_str(&b));
        else
                print_differences(stdout, &doc);
        int status = written();
        return status ? status : is_same ? 0 : 1;
}

static int show(const struct score_options *o, const struct asked *a, const struct buf *record) {
        struct json v;
        struct error e;
        if (json_parse(buf_str(record), record->len, &v, &e) < 0 || v.type != JSON_OBJECT) {
                fprintf(stderr, "brig score: the answer is not a record\n");
                return EXIT_OUR_FAULT;
        }
        int r = a->save >= 0 ? replay_keep(a->save, &a->request, record) : 0;
        if (r < 0) {
                fprintf(stderr, "brig score: write %s: %s\n", o->save, strerrordesc_np(-r));
                return EXIT_OUR_FAULT;
        }
        return o->replay ? show_replay(o, &a->record, &v) : show_record(o, &v);
}

static int score(const struct command *c, int argc, char **argv) {
        struct score_options o;
        struct error e = { 0 };
        _cleanup_buf_ struct buf record = BUF_INIT(SCORE_RECORD_MAX);
        struct asked a = { .file = BUF_INIT(REPLAY_FILE_MAX), .request = BUF_INIT(4u * SCORE_FILE_MAX), .save = -1 };
        char **arguments;
        int n, status;
        score_options_init(&o);
        if (command_begin(c, &o, argc, argv, &arguments, &n, &status)) {
                int r = n ? error_say(&e, -EINVAL, "unknown argument '%.100s'", arguments[0]) : score_options_check(&o, &e);
                if (r < 0 && r != -ENOMEM)     /* a file that cannot be read was named wrongly: that is usage too */
                        r = -EINVAL;
                if (r == 0)
                        r = ask(&o, &a, &e);
                if (r == 0)
                        r = run(&o, &a, &record, &e);
                status = r < 0 ? command_fail(c, r, &e) : show(&o, &a, &record);
        }
        asked_release(&a);
        score_options_release(&o);
        return status;
}

const struct command cmd_score = {
        .name = "score",
        .synopsis = "--repo URL|DIR --commit SHA --patch FILE [--test-patch FILE] --fail-to-pass ID... [OPTION...]\n"
                    "--instance FILE --repo DIR --prediction FILE [OPTION...]\n"
                    "--replay FILE",
        .doc = "score one patch", .text = "Prints the verdict: by the daemon that answers, else by the engine inside this process.",
        .status = "0 resolved (--replay: nothing differs), 1 any other verdict (something differs), 2 our fault, 64 usage, 130 interrupted",
        .options = score_rows, .n_options = SCORE_ROWS, .common = score_run_rows, .n_common = SCORE_RUN_ROWS, .run = score,
};

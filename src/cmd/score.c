/* brig score: one patch becomes one verdict, by a daemon that answers or by the engine inside this process. */
#include <string.h>

#include "base/json.h"
#include "cmd/print_record.h"
#include "cmd/remote.h"
#include "cmd/score_options.h"
#include "cmd/score_run.h"
#include "cmd/verbs.h"

static const char *local_directory(const char *repo) {
        if (repo && strncmp(repo, "file:///", 8) == 0)
                repo += 7;
        return repo && repo[0] == '/' ? repo : NULL;
}

static int run(const struct score_options *o, struct buf *ret, struct error *e) {
        _cleanup_buf_ struct buf request = BUF_INIT(4u * SCORE_FILE_MAX);
        struct client *c = NULL;
        int r = score_options_request(o, &request, e);
        if (r == 0)
                r = remote_find(o->url, false, &c, e);
        if (r < 0)
                return r;
        struct score_run how = {
                .request = buf_str(&request), .request_len = request.len, .local_repo = local_directory(o->repo),
                .progress = !o->quiet && isatty(STDERR_FILENO),
        };
        if (c)
                score_interruptible();
        r = c ? score_remote(c, &how, ret, e) : score_local(&how, ret, e);
        client_free(c);
        return r;
}

static int show(const struct score_options *o, const struct buf *record) {
        struct json v;
        struct error e;
        if (json_parse(buf_str(record), record->len, &v, &e) < 0 || v.type != JSON_OBJECT) {
                fprintf(stderr, "brig score: the answer is not a record\n");
                return EXIT_OUR_FAULT;
        }
        if (o->json) {
                fwrite(v.p, 1, v.n, stdout);
                fputc('\n', stdout);
        } else
                print_record(stdout, &v, true);
        if (fflush(stdout) != 0) {
                fprintf(stderr, "brig score: cannot write the record: %s\n", strerrordesc_np(errno));
                return EXIT_OUR_FAULT;
        }
        return record_exit_status(&v);
}

static int score(const struct command *c, int argc, char **argv) {
        struct score_options o;
        struct error e = { 0 };
        _cleanup_buf_ struct buf record = BUF_INIT(SCORE_RECORD_MAX);
        char **arguments;
        int n, status;
        score_options_init(&o);
        if (command_begin(c, &o, argc, argv, &arguments, &n, &status)) {
                int r = n ? error_say(&e, -EINVAL, "unknown argument '%.100s'", arguments[0]) : score_options_check(&o, &e);
                if (r < 0 && r != -ENOMEM)     /* a file that cannot be read was named wrongly: that is usage too */
                        r = -EINVAL;
                if (r == 0)
                        r = run(&o, &record, &e);
                status = r < 0 ? command_fail(c, r, &e) : show(&o, &record);
        }
        score_options_release(&o);
        return status;
}

const struct command cmd_score = {
        .name = "score",
        .synopsis = "--repo URL|DIR --commit SHA --patch FILE [--test-patch FILE] --fail-to-pass ID... [OPTION...]\n"
                    "--instance FILE --repo DIR --prediction FILE [OPTION...]",
        .doc = "score one patch", .text = "Prints the verdict: by the daemon that answers, else by the engine inside this process.",
        .status = "0 resolved, 1 any other verdict, 2 our fault, 64 usage, 130 interrupted",
        .options = score_rows, .n_options = SCORE_ROWS, .common = score_run_rows, .n_common = SCORE_RUN_ROWS, .run = score,
};

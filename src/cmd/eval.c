/* brig eval: a benchmark's instances and their predictions become verdicts, a report, and a page. */
#include <string.h>

#include "cmd/eval.h"
#include "cmd/verbs.h"

#define OUTPUT_DEFAULT "brig-eval"
#define AT(member) offsetof(struct eval_options, member)

static const struct option_row rows[] = {
        { "--dataset", "FILE", OPTION_TEXT, AT(dataset), 0, COMPLETE_FILE, "the instances: a JSON list, an object by id, or JSON lines; - is standard input" },
        { "--predictions", "FILE|gold", OPTION_TEXT, AT(predictions), 0, COMPLETE_FILE, "the patches, in the same forms; gold: the dataset's own" },
        { "--output", "DIR", OPTION_TEXT, AT(output), 0, COMPLETE_DIRECTORY, "where verdicts, report.json and report.html go (" OUTPUT_DEFAULT "); a run in the same directory goes on" },
        { "--repos", "DIR", OPTION_TEXT, AT(repos), 0, COMPLETE_DIRECTORY, "where the repositories are: owner/name, owner__name or name, with .git or without" },
        { "--images", "TEMPLATE", OPTION_TEXT, AT(images), 0, COMPLETE_NONE, "the image of each instance: {id} is its id, {docker} the id as tags have it (__ is _1776_, lower case)" },
        { "--only", "ID...", OPTION_LIST, AT(only), 0, COMPLETE_NONE, "these instances" },
        { "--jobs", "N", OPTION_TEXT, AT(jobs), 0, COMPLETE_NONE, "tasks in flight (twice what the endpoints run at once)" },
        { "--endpoints", "URL,...", OPTION_TEXT, AT(endpoints), 0, COMPLETE_NONE, "the daemons (BRIG_URL, else the local one)" },
        { "--quiet", NULL, OPTION_SWITCH, AT(quiet), 0, COMPLETE_NONE, "no progress" },
        { "-o", "json|text", OPTION_OUTPUT, AT(json), 0, COMPLETE_NONE, "the counts as JSON, or for people (text)" },
};

static int check(struct eval_options *o, struct error *e) {
        if (!o->dataset || !o->predictions)
                return error_say(e, -EINVAL, "%s is missing", o->dataset ? "--predictions" : "--dataset");
        if (strcmp(o->dataset, "-") == 0 && strcmp(o->predictions, "-") == 0)
                return error_say(e, -EINVAL, "only one of --dataset and --predictions can be standard input");
        if (!o->output && !(o->output = strdup(OUTPUT_DEFAULT)))
                return error_set(e, -ENOMEM, "read the options");
        return 0;
}

static void print(const struct eval *ev) {
        struct eval_counts c;
        size_t before = 0;
        eval_count(ev, &c);
        for (size_t i = 0; i < ev->n; i++)
                before += ev->items[i].before;
        if (ev->o->json) {
                printf("{\"total\":%zu,\"submitted\":%zu,\"completed\":%zu,\"resolved\":%zu,\"unresolved\":%zu,\"empty_patch\":%zu,\"error\":%zu,\"incomplete\":%zu,"
                       "\"from_before\":%zu,\"problems\":%zu,\"wall_ms\":%llu}\n",
                       c.total, c.submitted, c.completed, c.resolved, c.unresolved, c.empty, c.error, c.incomplete, before, ev->n_problems, (unsigned long long)ev->wall_ms);
                return;
        }
        printf("%zu of %zu instances resolved (%.1f %%)\n", c.resolved, c.total, c.total ? 100.0 * (double)c.resolved / (double)c.total : 0.0);
        printf("  %zu unresolved, %zu without a verdict of their own, %zu empty patches, %zu without a prediction\n", c.unresolved, c.error, c.empty, c.incomplete);
        if (before)
                printf("  %zu of the verdicts are from before\n", before);
        printf("  %s/report.json, %s/report.html\n", ev->o->output, ev->o->output);
}

static void release(struct eval *ev) {
        for (size_t i = 0; i < ev->n; i++)
                free(ev->items[i].why);
        for (size_t i = 0; i < ev->n_problems; i++)
                free(ev->problems[i]);
        free(ev->problems);
        free(ev->items);
        records_release(&ev->dataset);
        records_release(&ev->predictions);
        eval_store_close(ev);
}

/* Whatever ended the run, what there is becomes a report. */
static int evaluate(struct eval *ev, struct error *e) {
        int r = eval_store_open(ev, e);
        if (r == 0)
                r = eval_plan(ev, e);
        if (r < 0)
                return r;
        struct error why;
        int ran = eval_run(ev, e);
        if (ran < 0 && ran != -EINTR)
                return ran;                /* nothing was begun */
        r = eval_report_write(ev, &why);
        if (r == 0)
                r = eval_page_write(ev, &why);
        if (ran == 0 && r < 0)
                *e = why;
        return ran < 0 ? ran : r;
}

static bool all_judged(const struct eval *ev) {
        for (size_t i = 0; i < ev->n; i++)
                if (ev->items[i].state == EVAL_UNUSABLE || ev->items[i].state == EVAL_FAILED || strcmp(ev->items[i].outcome, "infra_error") == 0)
                        return false;
        return ev->n_problems == 0;
}

static int eval(const struct command *c, int argc, char **argv) {
        struct eval_options o = { 0 };
        struct error e = { 0 };
        char **arguments;
        int n, status;
        score_options_init(&o.how);
        if (command_begin(c, &o, argc, argv, &arguments, &n, &status)) {
                struct eval ev = { .o = &o, .dir = -1, .records = -1, .lock = -1 };
                int r = n ? error_say(&e, -EINVAL, "unknown argument '%.100s'", arguments[0]) : check(&o, &e);
                if (r == 0)
                        r = evaluate(&ev, &e);
                if (r < 0)
                        status = command_fail(c, r, &e);
                else {
                        print(&ev);
                        status = all_judged(&ev) ? 0 : 1;
                }
                release(&ev);
        }
        options_release(c, &o);
        return status;
}

const struct command cmd_eval = {
        .name = "eval",
        .synopsis = "--dataset FILE --predictions FILE|gold [--repos DIR] [OPTION...]",
        .doc = "score a whole benchmark",
        .text = "Scores every instance that has a prediction, and writes a report and a page. A run that was broken off goes on in the same output directory: what has a verdict is not run again, "
                "what was our fault (infra_error) is.",
        .status = "0 every instance was judged, 1 some could not be (a line says which), 2 our fault, 64 usage, 130 interrupted",
        .options = rows, .n_options = ARRAY_SIZE(rows), .common = score_run_rows, .n_common = SCORE_RUN_ROWS, .run = eval,
};

/* Image mode: what the command left in its output mount. Nothing runs any more; the helper reads in the mount namespace that the command
 * had, links not followed. Files that the output mount does not have, or that are too big, are null in the record. */
#include "score/task_internal.h"

#include "sandbox/results.h"

static void keep(struct score_task *t) {
        t->rec.result_files_len = t->results_json.len;
        t->rec.result_files = buf_steal(&t->results_json);
}

int task_no_results(struct score_task *t) {
        const struct output_capture nothing = {0};
        if (t->req.mode != MODE_IMAGE || t->rec.result_files)
                return 0;
        buf_release(&t->results_json);
        buf_init(&t->results_json, RESULTS_NAMES_MAX);
        struct json_writer j = JSON_WRITER(&t->results_json);
        results_write(&j, &nothing, t->req.result_files, 0);
        int r = json_finish(&j);
        if (r == 0)
                keep(t);
        return r;
}

/* In the pool: may be many megabytes. Touches the capture and the buffer only. */
static void encode(uv_work_t *w) {
        struct score_task *t = container_of(w, struct score_task, results_work);
        struct json_writer j = JSON_WRITER(&t->results_json);
        results_write(&j, &t->results, t->req.result_files, RESULTS_JSON_MAX);
        if (json_finish(&j) < 0)
                buf_reset(&t->results_json);
}

static void encoded(uv_work_t *w, int status) {
        struct score_task *t = container_of(w, struct score_task, results_work);
        t->encoding = false;
        if (t->results_json.len > 0)
                keep(t);
        else
                task_set_error(t, "internal", "no memory for the result files");
        if (t->ending)
                task_check_end(t);
        else
                task_after_results(t);
}

static void on_read(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct score_task *t = user;
        t->reading = false;
        /* Where the helper was not there to the end, what it did not say is null. */
        t->encoding = uv_queue_work(t->env.loop, &t->results_work, encode, encoded) == 0;
        if (!t->encoding)
                task_set_error(t, "internal", "no memory for the result files");
        if (t->ending)
                task_check_end(t);
        else if (!t->encoding)
                task_end(t);
}

/* "/out/NAME" for each, to be freed; NULL on -ENOMEM. */
static char **paths(const struct score_task *t) {
        char **v = NULL, *path;
        int r = strv_ensure(&v);
        for (char **name = t->req.result_files; r == 0 && *name; name++)
                r = asprintf(&path, "%s/%s", t->req.output_mount, *name) < 0 ? -ENOMEM : strv_push_take(&v, path);
        return r < 0 ? strv_free(v) : v;
}

static int start(struct score_task *t, struct error *e) {
        const char *argv[RESULT_FILES_MAX + 3] = {"results", "read"};
        _cleanup_strv_ char **all = paths(t);
        if (!all || capture_init(&t->results, RESULTS_BYTES_MAX, 0, UINT64_MAX, -1) < 0)
                return error_set(e, -ENOMEM, "read the result files");
        t->results_capture = true;
        for (size_t i = 0; all[i]; i++)
                argv[2 + i] = all[i];
        struct exec_spec x = {
                .argv = argv, .env = (const char *const[]){NULL}, .stdin_fd = -1, .out = &t->results, .helper = true, .in_view = true,
                .output_bytes = UINT64_MAX, .timeout_ms = RESULTS_TIMEOUT_MS,
        };
        struct sandbox_exec *ret;
        return sandbox_exec(t->sandbox, &x, on_read, t, &ret, e);
}

void task_results(struct score_task *t) {
        struct error e = {0};
        t->state = STATE_RESULTS;
        buf_init(&t->results_json, RESULTS_JSON_MAX + RESULTS_NAMES_MAX);
        t->reading = true;
        if (start(t, &e) < 0) {
                t->reading = false;
                task_set_error(t, e.code == -ENOSPC ? "disk_full" : "internal", e.text);
                task_end(t);
        }
}

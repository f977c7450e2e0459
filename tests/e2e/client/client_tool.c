/* The C client's calls from a command line, for tests: client_tool CALL URL ARGUMENT...
 *
 * Prints one line of JSON: {"code":..,"http_status":..,"message":..} or what the call gave. */
#include <brig/brig.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct brig_error e;

static void text(const char *name, const char *s, const char *end) {
        printf("\"%s\":\"", name);
        for (; s && *s; s++)
                if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
                        printf("\\u%04x", (unsigned char)*s);
                else
                        putchar(*s);
        printf("\"%s", end);
}

static int failed(void) {
        printf("{\"code\":%d,\"http_status\":%d,", (int)e.code, e.http_status);
        text("message", e.message, "}\n");
        return 1;
}

static void print_result(const struct brig_task_result *r) {
        printf("{\"code\":0,\"exit_code\":%d,\"resolved\":%s,\"tests_passed\":%ld,\"tests_failed\":%ld,\"json_len\":%zu,", r->exit_code,
               r->resolved ? "true" : "false", r->tests_passed, r->tests_failed, r->json_len);
        text("task_id", r->task_id, ",");
        text("status", r->status, ",");
        text("outcome", r->outcome, ",");
        text("error_code", r->error_code, ",");
        text("stdout", r->out, "}");
}

static int task(struct brig_client *c, char **argv) {
        struct brig_task_result r;
        struct brig_wait w = { .poll_interval = 0.1, .overall_timeout = argv[1] ? strtod(argv[1], NULL) : 0 };
        if (brig_run_task(c, argv[0], &w, &r, &e) < 0)
                return failed();
        print_result(&r);
        putchar('\n');
        brig_task_result_release(&r);
        return 0;
}

static int piece(const char *stream, const char *bytes, size_t n, void *user) {
        size_t *total = user;
        for (size_t i = 0; i < n; i++)
                total[stream[3] == 'e'] = total[stream[3] == 'e'] * 31 + (unsigned char)bytes[i];
        total[2] += n;
        return 0;
}

/* SESSION REQUEST [STREAM OFFSET]: starts and follows. */
static int follow(struct brig_client *c, char **argv) {
        size_t total[3] = { 0 };
        long id;
        struct brig_command_end end;
        struct brig_follow_options o = { .stream = argv[2], .offset = argv[2] && argv[3] ? strtoll(argv[3], NULL, 10) : 0 };
        if (brig_start_command(c, argv[0], argv[1], &id, &e) < 0 || brig_follow_command(c, argv[0], id, &o, piece, total, &end, &e) < 0)
                return failed();
        printf("{\"code\":0,\"exit_code\":%d,\"session_ended\":%s,\"n\":%zu,\"out\":%zu,\"err\":%zu}\n", end.exit_code, end.session_ended ? "true" : "false", total[2],
               total[0], total[1]);
        return 0;
}

static int session(struct brig_client *c, char **argv) {
        char *id;
        struct brig_exec_result x;
        struct brig_finish_result f;
        if (brig_start_session(c, argv[0], NULL, &id, &e) < 0)
                return failed();
        struct brig_exec_options o = { .timeout = 10 };
        int r = brig_session_exec(c, id, argv[1], &o, &x, &e);
        if (r == 0) {
                printf("{\"code\":0,\"exit_code\":%d,\"timed_out\":%s,", x.exit_code, x.timed_out ? "true" : "false");
                text("stdout", x.out, ",");
                text("stderr", x.err, ",");
                brig_exec_result_release(&x);
                r = brig_session_finish(c, id, argv[2], &f, &e);
                if (r == 0) {
                        printf("\"finish\":%s}\n", f.json);
                        brig_finish_result_release(&f);
                }
        }
        brig_delete_session(c, id, NULL);
        free(id);
        return r < 0 ? failed() : 0;
}

static void count(size_t done, size_t n, size_t i, const struct brig_outcome *o, void *user) {
        size_t *seen = user;
        *seen += done == *seen + 1 && i < n;
}

static int pool(const char *urls, char **argv, int n) {
        struct brig_pool *p;
        struct brig_outcome *o = calloc((size_t)n + 1, sizeof *o);
        size_t seen = 0;
        if (!o || brig_pool_new(*urls ? urls : NULL, NULL, &p, &e) < 0) {
                free(o);
                return failed();
        }
        int r = brig_pool_map(p, (const char *const *)argv, (size_t)n, 0, count, &seen, o, &e);
        printf("{\"code\":%d,\"seen\":%zu,\"outcomes\":[", r, seen);
        for (int i = 0; r == 0 && i < n; i++) {
                if (i)
                        putchar(',');
                if (o[i].code == 0)
                        print_result(&o[i].result);
                else
                        printf("{\"code\":%d,\"http_status\":%d}", o[i].code, o[i].error.http_status);
                brig_task_result_release(&o[i].result);
        }
        puts("]}");
        free(o);
        brig_pool_free(p);
        return 0;
}

int main(int argc, char **argv) {
        struct brig_client *c;
        if (argc < 3)
                return 64;
        if (strcmp(argv[1], "pool") == 0)
                return pool(argv[2], argv + 3, argc - 3);
        if (brig_client_new(argv[2], NULL, &c, &e) < 0)
                return failed();
        int r = strcmp(argv[1], "follow") == 0 && argc >= 5 ? follow(c, argv + 3) : strcmp(argv[1], "session") == 0 && argc == 6 ? session(c, argv + 3) : argc >= 4 ? task(c, argv + 3) : 64;
        brig_client_free(c);
        return r;
}

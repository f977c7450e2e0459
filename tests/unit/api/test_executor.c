#include <fcntl.h>
#include "fake.h"
#include "base/log.h"

#define LEAST "\"repo_url\":\"https://u:secret@example.com/r\",\"test_command\":\"pytest\""

static struct api api = { .engine = &fake };

static struct http_request post(const char *body) {
        return (struct http_request){ .method = "POST", .body = body, .body_len = strlen(body) };
}
static struct http_request get(const char *id) { return (struct http_request){ .method = "GET", .id = id }; }

static void check(const struct http_request *r, int status, const char *body) {
        if (r->answers != 1 || r->status != status || strcmp(r->answer, body) != 0)
                fail_msg("%d answers, %d %s, not %d %s", r->answers, r->status, r->answer ? r->answer : "-", status, body);
        assert_null(r->closed);    /* nothing of ours is left with the connection */
}

static void submit_answers_once_it_is_on_disk(void **state) {
        struct http_request r = post("{" LEAST ",\"priority\":3,\"labels\":{\"tenant\":\"t1\"}}");
        executor_post_submit(&r, &api);
        assert_int_equal(r.answers, 0);
        fake_run();
        check(&r, 202, "{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"}");
        assert_string_equal(fake.last_tenant, "t1");
        assert_int_equal(fake.last_priority, 3);
        assert_null(fake.last_key);
        forget(&r);
}

static void the_stored_body_is_canonical(void **state) {
        struct http_request r = post("{ \"test_command\" : \"x\" , \"repo_url\":\"r\", \"timeout\": 3.0 }");
        executor_post_submit(&r, &api);
        fake_run();
        assert_string_equal(fake.last_body, "{\"repo_url\":\"r\",\"test_command\":\"x\",\"timeout\":3}");
        forget(&r);
}

static void refused(const char *body, int status, const char *answer) {
        struct http_request r = post(body);
        executor_post_submit(&r, &api);
        check(&r, status, answer);
        assert_int_equal(fake.submits, 0);
        forget(&r);
}

static void bodies_that_are_no_objects_are_refused(void **state) {
        static const char *const bad[] = { "", "x", "[]", "null", "\"{}\"", "{\"a\":\"\xff\"}" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                refused(bad[i], 400, "{\"error\":\"Request body must be valid JSON\"}");
        refused("{" LEAST ",\"x\":1e999}", 400, "{\"error\":\"Request body must be valid JSON\"}");
}

static void faults_speak_the_wires_dialect(void **state) {
        refused("{}", 400, "{\"error\":\"Missing required fields: ['repo_url', 'test_command']\"}");
        refused("{" LEAST ",\"mode\":\"fork\"}", 400, "{\"error\":\"Unsupported mode: 'fork'\"}");
        refused("{\"mode\":\"it's\"}", 400, "{\"error\":\"Unsupported mode: \\\"it's\\\"\"}");
        refused("{\"mode\":\"image\"}", 400, "{\"error\":\"Missing required fields: ['image']\"}");
        refused("{\"mode\":\"image\",\"image\":\"x\",\"tree\":\"clone\"}", 400, "{\"error\":\"Unsupported value for 'tree': image mode clones nothing\",\"code\":\"unsupported\"}");
        refused("{" LEAST ",\"mode\":3}", 400, "{\"error\":\"Invalid value for 'mode': expected a string, not number\"}");
        refused("{" LEAST ",\"test_framework\":\"nope\"}", 400,
                "{\"error\":\"Unsupported value for 'test_framework': no such framework: 'nope'\",\"code\":\"unsupported\"}");
        refused("{" LEAST ",\"timeout\":-1}", 400, "{\"error\":\"Invalid value for 'timeout': must be between 1 and 604800\"}");
        refused("{" LEAST ",\"priority\":101}", 400, "{\"error\":\"Invalid value for 'priority': must be between -100 and 100\"}");
        refused("{" LEAST ",\"labels\":[]}", 400, "{\"error\":\"Invalid value for 'labels': expected an object of strings, not array\"}");
        refused("{" LEAST ",\"labels\":{\"tenant\":1}}", 400, "{\"error\":\"Invalid value for 'labels': expected a string, not number\"}");
        refused("{" LEAST ",\"idempotency_key\":\"\"}", 400, "{\"error\":\"Invalid value for 'idempotency_key': must not be empty\"}");
        fake.source_fault = "repo_url: not here";
        refused("{" LEAST "}", 400, "{\"error\":\"Invalid value for 'repo_url': not here\"}");
        fake.source_fault = "base_commit: not so";
        refused("{" LEAST "}", 400, "{\"error\":\"Invalid value for 'base_commit': not so\"}");
}

static void null_is_absence_everywhere(void **state) {
        struct http_request r = post("{" LEAST ",\"mode\":null,\"priority\":null,\"labels\":null,\"idempotency_key\":null,\"timeout\":null}");
        executor_post_submit(&r, &api);
        fake_run();
        assert_int_equal(r.status, 202);
        forget(&r);
}

static void the_engines_answers_have_their_status(void **state) {
        static const struct { int r, status; const char *code; const char *retry; } rows[] = {
                { -EBUSY, 409, "idempotency_conflict", "" }, { -EAGAIN, 503, "queue_full", "10" }, { -ENOSPC, 503, "disk_full", "30" },
                { -ESHUTDOWN, 503, "draining", "5" }, { -EIO, 500, "internal", "" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                for (int at_once = 0; at_once < 2; at_once++) {
                        struct http_request r = post("{" LEAST "}");
                        fake.submit_returns = at_once ? rows[i].r : 0;
                        fake.submit_result = rows[i].r;
                        executor_post_submit(&r, &api);
                        fake_run();
                        assert_int_equal(r.status, rows[i].status);
                        assert_int_equal(r.answers, 1);
                        assert_non_null(strstr(r.answer, rows[i].code));
                        assert_string_equal(r.retry_after, rows[i].retry);
                        forget(&r);
                }
}

static void a_repeat_gets_the_same_answer(void **state) {
        struct http_request r = post("{" LEAST "}");
        r.key = "k1";
        fake.submit_result = -EEXIST;
        executor_post_submit(&r, &api);
        fake_run();
        check(&r, 202, "{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"}");
        assert_string_equal(fake.last_key, "k1");
        forget(&r);
}

static void header_and_field_of_the_key_must_agree(void **state) {
        struct http_request r = post("{" LEAST ",\"idempotency_key\":\"a\"}");
        r.key = "b";
        executor_post_submit(&r, &api);
        check(&r, 400, "{\"error\":\"Invalid value for 'idempotency_key': the field and the header Idempotency-Key differ\"}");
        forget(&r);
        r = post("{" LEAST ",\"idempotency_key\":\"a\"}");
        r.key = "a";
        executor_post_submit(&r, &api);
        fake_run();
        assert_int_equal(r.status, 202);
        assert_string_equal(fake.last_key, "a");
        forget(&r);
}

static void a_client_that_left_stays_accepted(void **state) {
        struct http_request r = post("{" LEAST "}");
        executor_post_submit(&r, &api);
        hang_up(&r);
        fake_run();
        assert_int_equal(r.answers, 0);
        assert_int_equal(fake.submits, 1);
}

/* A body that goes to the pool: `rest` is what follows its big member. */
static struct http_request post_big(const char *before, const char *rest) {
        size_t n = TASK_INLINE_MAX + 1000;
        char *body = NULL, *fill = malloc(n + 1);
        memset(fill, 'x', n);
        fill[n] = 0;
        assert_true(asprintf(&body, "%s\"patch\":\"%s\"%s", before, fill, rest) > 0);
        free(fill);
        return post(body);
}

static void forget_big(struct http_request *r) {
        free((char *)(uintptr_t)r->body);
        forget(r);
}

static void a_big_body_is_decoded_in_the_pool(void **state) {
        uv_loop_t loop;
        assert_int_equal(uv_loop_init(&loop), 0);
        api.loop = &loop;
        struct http_request r = post_big("{" LEAST ",", ",\"idempotency_key\":\"k\"}");
        executor_post_submit(&r, &api);
        assert_int_equal(fake.submits + r.answers, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(fake.submits, 1);
        assert_true(strlen(fake.last_body) > TASK_INLINE_MAX);
        assert_string_equal(fake.last_key, "k");
        fake_run();
        check(&r, 202, "{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"}");
        forget_big(&r);

        r = post_big("{", ",\"test_command\":\"x\"}");                    /* what is wrong with it is said as of any other */
        executor_post_submit(&r, &api);
        uv_run(&loop, UV_RUN_DEFAULT);
        check(&r, 400, "{\"error\":\"Missing required fields: ['repo_url']\"}");
        forget_big(&r);

        r = post_big("{\"tasks\":[{" LEAST ",", "},7]}");
        fake.submits = 0;
        executor_post_batch(&r, &api);
        assert_int_equal(fake.submits, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        fake_run();
        check(&r, 202, "{\"tasks\":[{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"},{\"error\":\"Request body must be valid JSON\"}]}");
        forget_big(&r);
        assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_client_that_leaves_while_its_body_is_decoded_was_promised_nothing(void **state) {
        uv_loop_t loop;
        assert_int_equal(uv_loop_init(&loop), 0);
        api.loop = &loop;
        void (*const calls[])(struct http_request *, void *) = { executor_post_submit, executor_post_batch };
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                struct http_request r = i == 0 ? post_big("{" LEAST ",", "}") : post_big("{\"tasks\":[{" LEAST ",", "}]}");
                const char *body = r.body;
                calls[i](&r, &api);
                hang_up(&r);
                uv_run(&loop, UV_RUN_DEFAULT);
                assert_int_equal(r.answers + fake.submits, 0);
                free((char *)(uintptr_t)body);
        }
        assert_int_equal(uv_loop_close(&loop), 0);
}

static void batch_answers_in_order(void **state) {
        struct http_request r = post("{\"tasks\":[{" LEAST "},{},7,{" LEAST ",\"test_framework\":\"nope\"},{" LEAST "}]}");
        executor_post_batch(&r, &api);
        assert_int_equal(r.answers, 0);
        assert_int_equal(fake.submits, 2);
        fake_run();
        check(&r, 202, "{\"tasks\":[{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"},"
              "{\"error\":\"Missing required fields: ['repo_url', 'test_command']\"},{\"error\":\"Request body must be valid JSON\"},"
              "{\"error\":\"Unsupported value for 'test_framework': no such framework: 'nope'\",\"code\":\"unsupported\"},"
              "{\"task_id\":\"" FAKE_ID "\",\"status\":\"pending\"}]}");
        forget(&r);
}

static void batch_says_what_the_engine_refused(void **state) {
        struct http_request r = post("{\"tasks\":[{" LEAST "}]}");
        fake.submit_returns = -EAGAIN;
        executor_post_batch(&r, &api);
        check(&r, 202, "{\"tasks\":[{\"error\":\"The queue is full\",\"code\":\"queue_full\"}]}");
        forget(&r);
}

static void batch_needs_a_list(void **state) {
        static const struct { const char *body, *answer; } rows[] = {
                { "{}", "{\"error\":\"Missing required fields: ['tasks']\"}" },
                { "{\"tasks\":null}", "{\"error\":\"Missing required fields: ['tasks']\"}" },
                { "{\"tasks\":{}}", "{\"error\":\"Invalid value for 'tasks': expected a list of objects\"}" },
                { "[]", "{\"error\":\"Request body must be valid JSON\"}" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct http_request r = post(rows[i].body);
                executor_post_batch(&r, &api);
                check(&r, 400, rows[i].answer);
                forget(&r);
        }
        struct http_request r = post("{\"tasks\":[]}");
        executor_post_batch(&r, &api);
        check(&r, 202, "{\"tasks\":[]}");
        forget(&r);
}

static void a_batch_without_its_client_is_still_taken(void **state) {
        struct http_request r = post("{\"tasks\":[{" LEAST "},{" LEAST "}]}");
        executor_post_batch(&r, &api);
        hang_up(&r);
        fake_run();
        assert_int_equal(r.answers, 0);
        assert_int_equal(fake.submits, 2);
}

static void status_of_each_state(void **state) {
        for (int st = 0; st < TASK_STATUS_MAX; st++) {
                char want[128];
                struct http_request r = get(FAKE_ID);
                fake.known = true;
                fake.status = (enum task_status)st;
                executor_get_task(&r, &api);
                snprintf(want, sizeof want, "{\"task_id\":\"" FAKE_ID "\",\"status\":\"%s\"}", fake_states[st]);
                check(&r, 200, want);
                forget(&r);
        }
}

static void an_unknown_id_is_404(void **state) {
        static void (*const calls[])(struct http_request *, void *) = {
                executor_get_task, executor_get_result, executor_delete_task, executor_get_log, executor_get_stdout,
        };
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                struct http_request r = get("no-such-task-but-a-name-that-is-much-longer-than-any-id");
                calls[i](&r, &api);
                check(&r, 404, "{\"error\":\"Task not found\"}");
                forget(&r);
        }
}

static void result_comes_when_it_is_there(void **state) {
        fake.known = true;
        fake.status = TASK_RUNNING;
        struct http_request r = get(FAKE_ID);
        executor_get_result(&r, &api);
        check(&r, 202, "{\"task_id\":\"" FAKE_ID "\",\"status\":\"running\",\"message\":\"Task not yet complete \xe2\x80\x94 poll again shortly\"}");
        forget(&r);
        fake.status = TASK_FAILED;
        fake.record = "{\"task_id\":\"x\"}";
        r = get(FAKE_ID);
        executor_get_result(&r, &api);
        check(&r, 200, "{\"task_id\":\"x\"}");
        forget(&r);
}

static void waiting_answers_when_the_task_ends(void **state) {
        fake.known = true;
        fake.record = "{}";
        struct http_request r = get(FAKE_ID);
        r.wait = "2.5";
        executor_get_result(&r, &api);
        assert_int_equal(r.answers, 0);
        assert_int_equal(fake.wait.ms, 2500);
        fake.status = TASK_COMPLETED;
        fake.wait.done(0, fake.wait.user);
        check(&r, 200, "{}");
        forget(&r);
}

static void waiting_ends_with_the_time(void **state) {
        fake.known = true;
        struct http_request r = get(FAKE_ID);
        r.wait = "100000";
        executor_get_result(&r, &api);
        assert_int_equal(fake.wait.ms, TASK_WAIT_MAX_S * 1000);
        fake.wait.done(-ETIME, fake.wait.user);
        assert_int_equal(r.status, 202);
        assert_null(r.closed);
        forget(&r);
}

static void waiting_for_a_deleted_task_is_404(void **state) {
        fake.known = true;
        struct http_request r = get(FAKE_ID);
        r.wait = "1";
        executor_get_result(&r, &api);
        fake.wait.done(-ENOENT, fake.wait.user);
        check(&r, 404, "{\"error\":\"Task not found\"}");
        forget(&r);
}

static void a_waiter_that_left_is_forgotten(void **state) {
        fake.known = true;
        struct http_request r = get(FAKE_ID);
        r.wait = "1";
        executor_get_result(&r, &api);
        hang_up(&r);
        assert_true(fake.wait.cancelled);
        assert_int_equal(r.answers, 0);
}

static void wait_is_seconds(void **state) {
        static const char *const bad[] = { "", "x", "-1", "1s", "1.", ".5", "1e3", " 1", "nan", "999999999999999999999999" };
        fake.known = true;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct http_request r = get(FAKE_ID);
                r.wait = bad[i];
                executor_get_result(&r, &api);
                check(&r, 400, "{\"error\":\"Invalid value for 'wait': expected seconds\"}");
                forget(&r);
        }
        struct http_request r = get(FAKE_ID);
        r.wait = "0";
        executor_get_result(&r, &api);
        assert_int_equal(r.status, 202);
        forget(&r);
}

static void deletion_answers_when_nothing_is_left(void **state) {
        fake.known = true;
        struct http_request r = get(FAKE_ID);
        executor_delete_task(&r, &api);
        assert_int_equal(r.answers, 0);
        fake.deleted(0, fake.deleted_user);
        check(&r, 200, "{\"task_id\":\"" FAKE_ID "\",\"deleted\":true}");
        forget(&r);
        r = get(FAKE_ID);
        executor_delete_task(&r, &api);
        hang_up(&r);
        fake.deleted(0, fake.deleted_user);
        assert_int_equal(r.answers, 0);
}

/* A log file of 200,000 bytes on a loop of its own. */
static char log_path[32], log_text[200000];
static uv_loop_t loop;

static int log_setup(void **state) {
        snprintf(log_path, sizeof log_path, "/tmp/brig-test-XXXXXX");
        int fd = mkstemp(log_path);
        for (size_t i = 0; i < sizeof log_text; i++)
                log_text[i] = (char)('a' + i % 7);
        if (write(fd, log_text, sizeof log_text) != sizeof log_text || close(fd) < 0)
                return -1;
        fake_reset(state);
        fake.known = true;
        fake.log_path = log_path;
        api.loop = &loop;
        return uv_loop_init(&loop);
}

static int log_teardown(void **state) {
        unlink(log_path);
        return uv_loop_close(&loop) || fake_reset(state);
}

static void logs_stream_whole(void **state) {
        struct http_request r = get(FAKE_ID);
        executor_get_stdout(&r, &api);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.answers, 1);
        assert_int_equal(r.answer_len, sizeof log_text);
        assert_memory_equal(r.answer, log_text, sizeof log_text);
        assert_null(r.closed);
        forget(&r);
}

static void logs_say_how_long_they_are(void **state) {
        struct http_request r = get(FAKE_ID);
        executor_get_log(&r, &api);
        check(&r, 200, "{\"task_id\":\"" FAKE_ID "\",\"stdout\":{\"url\":\"/task/" FAKE_ID "/log/stdout\",\"bytes\":200000},\"stderr\":null}");
        forget(&r);
}

static void a_slow_client_loses_nothing(void **state) {
        struct http_request r = get(FAKE_ID);
        r.refuse = 1;
        executor_get_stdout(&r, &api);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(r.answer_len, 0);         /* nothing is read ahead of it either: the loop has come to rest */
        r.drain(r.drain_user);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(r.answer_len, sizeof log_text);
        assert_memory_equal(r.answer, log_text, sizeof log_text);
        forget(&r);
}

static void a_download_ends_with_its_client(void **state) {
        struct http_request r = get(FAKE_ID);
        executor_get_stdout(&r, &api);
        hang_up(&r);                               /* during a read */
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(r.answers, 0);
        r = get(FAKE_ID);
        r.vanish = 1;                              /* within a write */
        executor_get_stdout(&r, &api);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(r.answers, 0);
        r = get(FAKE_ID);
        r.refuse = 1;                              /* while it is slow */
        executor_get_stdout(&r, &api);
        uv_run(&loop, UV_RUN_DEFAULT);
        hang_up(&r);
        assert_int_equal(r.answers, 0);
}

static void no_call_is_open(void **state) {
        size_t n;
        const struct http_route *routes = executor_routes(&n);
        assert_in_range(n, 12, 64);
        for (size_t i = 0; i < n; i++)
                assert_false(routes[i].open);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fake_reset, fake_reset)
#define L(name) cmocka_unit_test_setup_teardown(name, log_setup, log_teardown)

int main(void) {
        log_set_level(LOG_ERROR);
        const struct CMUnitTest tests[] = {
                T(submit_answers_once_it_is_on_disk), T(the_stored_body_is_canonical), T(bodies_that_are_no_objects_are_refused),
                T(faults_speak_the_wires_dialect), T(null_is_absence_everywhere), T(the_engines_answers_have_their_status),
                T(a_repeat_gets_the_same_answer), T(header_and_field_of_the_key_must_agree), T(a_client_that_left_stays_accepted),
                T(a_big_body_is_decoded_in_the_pool), T(a_client_that_leaves_while_its_body_is_decoded_was_promised_nothing),
                T(batch_answers_in_order), T(batch_says_what_the_engine_refused), T(batch_needs_a_list), T(a_batch_without_its_client_is_still_taken),
                T(status_of_each_state), T(an_unknown_id_is_404), T(result_comes_when_it_is_there), T(waiting_answers_when_the_task_ends),
                T(waiting_ends_with_the_time), T(waiting_for_a_deleted_task_is_404), T(a_waiter_that_left_is_forgotten), T(wait_is_seconds),
                T(deletion_answers_when_nothing_is_left), L(logs_stream_whole), L(logs_say_how_long_they_are), L(a_slow_client_loses_nothing), L(a_download_ends_with_its_client), T(no_call_is_open),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

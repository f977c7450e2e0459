#include "api/executor_internal.h"

const struct http_route *executor_routes(size_t *ret_n) {
        static const struct http_route routes[] = {
                { .method = "POST", .pattern = "/task/submit", .handler = executor_post_submit },
                { .method = "POST", .pattern = "/task/batch", .handler = executor_post_batch },
                { .method = "GET", .pattern = "/task/{id}", .handler = executor_get_task },
                { .method = "DELETE", .pattern = "/task/{id}", .handler = executor_delete_task },
                { .method = "GET", .pattern = "/task/{id}/result", .handler = executor_get_result },
                { .method = "GET", .pattern = "/task/{id}/log", .handler = executor_get_log },
                { .method = "GET", .pattern = "/task/{id}/log/stdout", .handler = executor_get_stdout },
                { .method = "GET", .pattern = "/task/{id}/log/stderr", .handler = executor_get_stderr },
                { .method = "POST", .pattern = "/session/start", .handler = executor_post_session },
                { .method = "GET", .pattern = "/session/{id}", .handler = executor_get_session },
                { .method = "DELETE", .pattern = "/session/{id}", .handler = executor_delete_session },
                { .method = "POST", .pattern = "/session/{id}/exec", .handler = executor_post_exec },
                { .method = "POST", .pattern = "/session/{id}/finish", .handler = executor_post_finish },
                { .method = "POST", .pattern = "/session/{id}/export", .handler = executor_post_export },
        };
        *ret_n = ARRAY_SIZE(routes);
        return routes;
}

/* The task executor's surface: its calls, as routes of an HTTP server whose `user` is a struct api.
 *
 *     POST   /task/submit            202 {"task_id","status"}
 *     POST   /task/batch             202 {"tasks":[{"task_id","status"} | {"error"}]}
 *     GET    /task/{id}              200 {"task_id","status"}
 *     GET    /task/{id}/result       202 until it ends, then 200 with the record; ?wait=SECONDS holds the answer back
 *     DELETE /task/{id}              200 {"task_id","deleted":true}
 *     GET    /task/{id}/log          200 {"task_id","stdout":{"url","bytes"},"stderr":{...}}
 *     GET    /task/{id}/log/stdout   the bytes; also /stderr
 *
 *     POST   /session/start          202 {"session_id","status"}
 *     GET    /session/{id}           200 {"session_id","status","image","error"}
 *     POST   /session/{id}/exec      200 {"session_id","exit_code","stdout","stderr","timed_out"}
 *     POST   /session/{id}/export    200 {"session_id","path","tar_b64"}
 *     POST   /session/{id}/finish    200: the verifier's end, session/finish.h; again: the same
 *     DELETE /session/{id}           200 {"session_id","deleted":true}
 *
 * Loop thread only. */
#pragma once
#include "api/api.h"

#define TASK_WAIT_MAX_S 300            /* ?wait= is cut to this */
#define TASK_BATCH_MAX 1000            /* tasks of one batch */
#define TASK_BODY_MAX (400u << 20)     /* bytes of one request, in its canonical form */
#define TASK_INLINE_MAX (256u << 10)   /* bytes of a body that is decoded on the loop's thread; a bigger one in the pool */
#define TASK_RECORD_MAX (512u << 20)   /* bytes of one record */

const struct http_route *executor_routes(size_t *ret_n);

/* The surface of the RLM runtime, /v1/rlm: rlm_sessions.c (sessions, turns), rlm_execute.c, rlm_host.c (the broker's host face: pending, result, events),
 * and rlm_broker.c, the broker's face inside sandboxes: a server of its own for each root. Rows of the native surface's table (v1.c). */
#pragma once
#include "api/v1_internal.h"
#include "rlm/rlm.h"

extern const struct rlm_face rlm_broker_face;      /* its user: struct api */

/* The runtime, or NULL and 503 is answered. */
struct rlm *rlm_of(struct http_request *r, void *user);
/* Answers a fault. `text`: of RLM_INVALID and RLM_START_FAILED; NULL or "" without. */
void rlm_fault_answer(struct http_request *r, enum rlm_fault f, const char *text);
/* The turn that the path names, or a fault is answered. */
struct rlm_turn *rlm_turn_of(struct http_request *r, void *user);
/* A word of the lease machine that is not LEASE_OK: its status, {"error": {code, message}}. */
void rlm_lease_answer(struct http_request *r, enum lease_answer a);
/* The body, at most `max` bytes, as an object; else 400 or 413 is answered. */
bool rlm_body(struct http_request *r, size_t max, struct json *ret);

/* What begins a turn, a session's or a child's. */
#define RLM_KEY_MAX 255u               /* bytes of an idempotency key */
struct rlm_turn_request {
        struct json tools, outputs;        /* in the request's body */
        uint64_t acquire_ms;
        char key[RLM_KEY_MAX + 1], hash[65];
        struct rlm_turn_spec spec;         /* of these */
};
bool rlm_turn_request(struct http_request *r, struct rlm_turn_request *ret);     /* false: a fault is answered */
/* 201, or the fault. `child`: its id; NULL where it is none. */
void rlm_begun_answer(struct http_request *r, enum rlm_fault f, const struct error *e, const struct rlm_turn *t, const char *child);

/* rlm_sessions.c */
struct v1_body v1_rlm_session_body(void);
struct v1_body v1_rlm_turn_body(void);
void v1_post_rlm_session(struct http_request *r, void *user);
void v1_list_rlm_sessions(struct http_request *r, void *user);
void v1_get_rlm_session(struct http_request *r, void *user);
void v1_delete_rlm_session(struct http_request *r, void *user);
void v1_post_rlm_turn(struct http_request *r, void *user);
void v1_delete_rlm_turn(struct http_request *r, void *user);
void v1_post_rlm_cancel(struct http_request *r, void *user);
/* rlm_children.c */
void v1_post_rlm_child(struct http_request *r, void *user);
void v1_list_rlm_children(struct http_request *r, void *user);
/* rlm_files.c */
struct v1_body v1_rlm_files_body(void);
void v1_post_rlm_inputs(struct http_request *r, void *user);
void v1_post_rlm_results(struct http_request *r, void *user);
/* rlm_execute.c */
struct v1_body v1_rlm_execute_body(void);
void v1_post_rlm_execute(struct http_request *r, void *user);
/* rlm_host.c */
struct v1_body v1_rlm_result_body(void);
void v1_get_rlm_pending(struct http_request *r, void *user);
void v1_post_rlm_result(struct http_request *r, void *user);
void v1_get_rlm_events(struct http_request *r, void *user);

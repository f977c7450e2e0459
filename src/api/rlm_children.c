/* /v1/rlm/sessions/{id}/turns/{tid}/children (rlm/child.c). What is done to a child's turn is done as to any turn, below /v1/rlm/sessions/{child}. */
#include "api/rlm_api.h"

#define LIST_BYTES_MAX 65536u

struct beginning { struct http_request *r; struct rlm_child_wait *wait; };

static void closed(void *user) {
        struct beginning *b = user;
        rlm_child_abandon(b->wait);
        free(b);
}

static void on_begun(enum rlm_fault f, const struct error *e, struct rlm_turn *t, void *user) {
        struct beginning *b = user;
        struct http_request *r = b->r;
        free(b);
        http_on_close(r, NULL, NULL);
        rlm_begun_answer(r, f, e, t, f == RLM_OK ? rlm_turn_session(t) : NULL);
}

void v1_post_rlm_child(struct http_request *r, void *user) {
        struct rlm_turn_request q;
        struct error e = { 0 };
        if (!rlm_turn_request(r, &q))
                return;
        struct rlm_turn *t = rlm_turn_of(r, user);
        struct beginning *b = t ? malloc(sizeof *b) : NULL;
        if (!t)
                return;
        if (b)
                *b = (struct beginning){ .r = r };
        enum rlm_fault f = b ? rlm_child_begin(t, &q.spec, on_begun, b, &b->wait, &e) : RLM_INTERNAL;
        if (f != RLM_OK) {
                free(b);
                rlm_fault_answer(r, f, e.text);
                return;
        }
        http_on_close(r, closed, b);
        http_close_on_eof(r);
}

static void put_child(const struct rlm_session *c, bool ending, void *user) {
        struct json_writer *w = user;
        struct rlm_session_view v;
        rlm_session_look(c, &v);
        json_begin_object(w);
        json_field_text(w, "child", v.id);
        json_field_text(w, "turn", v.turn);
        json_field_text(w, "state", ending ? "ending" : v.root_ready ? "ready" : v.root ? "starting" : "ended");
        json_end_object(w);
}

void v1_list_rlm_children(struct http_request *r, void *user) {
        struct rlm_turn *t = rlm_turn_of(r, user);
        if (!t)
                return;
        _cleanup_buf_ struct buf b = BUF_INIT(LIST_BYTES_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "children");
        json_begin_array(&w);
        rlm_children(t, put_child, &w);
        json_end_array(&w);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}

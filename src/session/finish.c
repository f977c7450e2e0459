/* See finish.h for the order of things. Each step ends in a callback, and each of them may find that the session has ended. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/strv.h"
#include "session/finish.h"
#include "sandbox/results.h"
#include "session/process_internal.h"

#define WAITS_MAX 64                   /* calls that wait for one finish */

static const char *const agent_names[] = { "keep", "kill" };
STRING_TABLE(agent_processes, agent_names, AGENT_PROCESSES_MAX)

struct finish_wait { struct finish_wait *next; session_finished done; void *user; };

struct finish {
        uv_work_t work;
        struct session *session;
        struct session_use use;
        struct finish_spec spec;
        struct finish_wait *waits;
        size_t n_waits;
        uint64_t started_at, ended_at;
        struct output_capture out, err;        /* of the verifier */
        struct output_capture before, after;   /* of the helper: facts, contents */
        int exit_code;
        bool timed_out;
        char *error;
        struct buf answer;
        int encoded;                           /* result of writing it */
        struct finish *wait_next, **wait_at;   /* for a place among the calls in flight; wait_at NULL: not waiting */
        bool answered, working, counted;
};

void finish_spec_release(struct finish_spec *spec) {
        file_pack_release(&spec->pack);
        free(spec->mount);
        free(spec->command);
        strv_free(spec->result_files);
        *spec = (struct finish_spec){ .pack = FILE_PACK_INIT };
}

void finish_free(struct finish *f) {
        if (!f)
                return;
        ASSERT(!f->working);
        struct output_capture *all[] = { &f->out, &f->err, &f->before, &f->after };
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
                capture_release(all[i]);
        finish_spec_release(&f->spec);
        buf_release(&f->answer);
        free(f->error);
        free(f);
}

const char *finish_answer(const struct finish *f, size_t *ret_n) {
        *ret_n = f->answer.len;
        return !f->working && f->encoded == 0 && f->answer.len > 0 ? f->answer.data : NULL;
}

static void answer_all(struct finish *f, int r) {
        size_t n;
        const char *answer = r == 0 ? finish_answer(f, &n) : NULL;
        f->answered = true;
        while (f->waits) {
                struct finish_wait *w = f->waits;
                f->waits = w->next;
                if (w->done)
                        w->done(answer ? 0 : r < 0 ? r : -EIO, answer, answer ? n : 0, w->user);
                free(w);
        }
}

void finish_recorded(struct session *s) {
        if (s->finish && !s->finish->answered)
                answer_all(s->finish, s->removals ? -ENOENT : s->state == SESSION_FINISHED ? 0 : -EIO);
}

/* ---- the answer ----------------------------------------------------------------------------------------------------------------- */

/* There before, and the same file, unchanged, now: the verifier did not write it. */
static bool is_stale(const struct result_head *a, const struct result_head *b) {
        return a->state != RESULT_NONE && b->state != RESULT_NONE && a->device == b->device && a->inode == b->inode && a->changed_ns == b->changed_ns && a->size == b->size;
}

static void put_stale(struct json_writer *w, const struct finish *f) {
        size_t at_before = 0, at_after = 0;
        json_put_key(w, "stale_files");
        json_begin_array(w);
        for (char **path = f->spec.result_files; path && *path; path++) {
                struct result_head before = { 0 }, after = { 0 };
                const char *bytes;
                if (results_next(&f->before, &at_before, &before, &bytes) && results_next(&f->after, &at_after, &after, &bytes) && is_stale(&before, &after))
                        json_put_text(w, *path);
        }
        json_end_array(w);
}

static int put_capture(struct json_writer *w, const char *key, const struct output_capture *c) {
        _cleanup_buf_ struct buf text = BUF_INIT(PROCESS_OUTPUT_MAX + 128);
        int r = capture_text(c, &text);
        json_field_string(w, key, buf_str(&text), text.len);
        return r;
}

/* In the pool: results may be many megabytes. Touches nothing but f. */
static void encode(uv_work_t *work) {
        struct finish *f = work->data;
        struct json_writer w = JSON_WRITER(&f->answer);
        json_begin_object(&w);
        json_field_text(&w, "session_id", f->session->id);
        json_field_int(&w, "exit_code", f->exit_code);
        int r = put_capture(&w, "stdout", &f->out);
        if (r == 0)
                r = put_capture(&w, "stderr", &f->err);
        json_put_key(&w, "result_files");
        results_write(&w, &f->after, f->spec.result_files, SIZE_MAX);
        json_field_bool(&w, "timed_out", f->timed_out);
        json_field_text(&w, "error", f->error);
        json_field_double(&w, "execution_time", (double)(f->ended_at - f->started_at) / 1000);
        put_stale(&w, f);
        json_field_text(&w, "integrity", f->spec.agent == AGENT_KEEP ? "live" : NULL);
        json_end_object(&w);
        int x = json_finish(&w);
        f->encoded = r < 0 ? r : x;
}

/* ---- a place among the calls in flight --------------------------------------------------------------------------------------------------- */

static void leave_place(struct finish *f) {
        struct sessions *ss = f->session->ss;
        if (!f->counted)
                return;
        f->counted = false;
        ss->inflight--;
        processes_admit(ss);
}

static void stop_waiting(struct finish *f) {
        *f->wait_at = f->wait_next;
        if (f->wait_next)
                f->wait_next->wait_at = f->wait_at;
        f->wait_at = NULL;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------------- */

static void encoded(uv_work_t *work, int status) {
        struct finish *f = work->data;
        struct session *s = f->session;
        f->working = false;
        leave_place(f);
        session_end(s, f->encoded < 0 ? SESSION_FAILED : SESSION_FINISHED, f->encoded < 0 ? "the answer of finish was too big" : NULL);
        session_use_end(&f->use);
}

/* The session has ended under it: whoever waits hears so when that is recorded. */
static void give_up(struct finish *f) {
        leave_place(f);
        session_end(f->session, SESSION_FAILED, f->error ? f->error : "finish broke down");
        session_use_end(&f->use);
}

static void say(struct finish *f, const char *what, const char *why) {
        if (!f->error && asprintf(&f->error, "%s: %s", what, why) < 0)
                f->error = NULL;
}

static void begin_encoding(struct finish *f) {
        f->work.data = f;
        f->working = true;
        if (uv_queue_work(f->session->ss->cfg.loop, &f->work, encode, encoded) < 0) {
                f->working = false;
                give_up(f);
        }
}

/* ---- helper ------------------------------------------------------------------------------------------------------------------------ */

static int run_helper(struct finish *f, const char *what, bool in_view, struct output_capture *out, size_t most,
                      void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), struct error *e) {
        const char *argv[RESULT_FILES_MAX + 3] = { "results", what };
        size_t n = 2;
        for (char **path = f->spec.result_files; *path; path++)
                argv[n++] = *path;
        capture_init(out, most, 0, UINT64_MAX, -1);
        struct exec_spec x = { .argv = argv, .env = (const char *const[]){ NULL }, .stdin_fd = -1, .out = out, .helper = true, .in_view = in_view,
                               .output_bytes = UINT64_MAX, .timeout_ms = 60 * 1000 };
        struct sandbox *sb = session_sandbox(f->session);
        return sb ? sandbox_exec(sb, &x, exited, f, NULL, e) : error_say(e, -ESHUTDOWN, "the sandbox has ended");
}

static void on_read(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct finish *f = user;
        if (f->session->ending)
                give_up(f);
        else {
                if (!end->started || end->status != 0)
                        say(f, "read the result files", end->started ? "the helper failed" : end->error.text);
                begin_encoding(f);
        }
}

static void read_results(struct finish *f) {
        struct error e;
        if (!f->spec.result_files || !f->spec.result_files[0])
                begin_encoding(f);
        else if (run_helper(f, "read", true, &f->after, RESULTS_BYTES_MAX, on_read, &e) < 0) {
                say(f, "read the result files", e.text);
                begin_encoding(f);
        }
}

/* ---- verifier ---------------------------------------------------------------------------------------------------------------------- */

static void on_verified(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct finish *f = user;
        f->ended_at = now_ms();
        f->exit_code = process_exit_code(end);
        f->timed_out = end->timed_out;
        if (f->session->ending) {
                give_up(f);
                return;
        }
        if (!end->started)
                say(f, "start the verifier", end->error.text);
        else if (end->timed_out)
                say(f, "verifier", "timeout");
        else if (process_was_oom(end))
                say(f, "verifier", "out of memory");
        read_results(f);
}

static void run_verifier(struct finish *f) {
        struct session *s = f->session;
        struct sandbox *sb = session_sandbox(s);
        struct error e;
        _cleanup_free_ char *command = NULL;
        uint32_t uid, gid;
        session_user(s, &uid, &gid);
        _cleanup_strv_ char **env = session_environment(s, uid, NULL);
        if (!f->spec.command && asprintf(&command, "bash %s/test.sh", f->spec.mount) < 0)
                command = NULL;
        const char *text = f->spec.command ? f->spec.command : command;
        if (!sb || !env || !text) {
                give_up(f);
                return;
        }
        size_t keep = (size_t)MIN2(f->spec.output_limit ? f->spec.output_limit : s->ss->cfg.output_max, (uint64_t)PROCESS_OUTPUT_MAX);
        capture_init(&f->out, keep - keep / 2, keep / 2, UINT64_MAX, -1);
        capture_init(&f->err, keep - keep / 2, keep / 2, UINT64_MAX, -1);
        struct exec_view view = { .target = f->spec.mount, .pack_fd = f->spec.pack.fd };
        struct exec_spec x = {
                .argv = (const char *const[]){ "/bin/bash", "-c", text, NULL }, .env = (const char *const *)env, .cwd = session_workdir(s), .stdin_fd = -1,
                .out = &f->out, .err = &f->err, .output_bytes = UINT64_MAX, .timeout_ms = f->spec.timeout_ms, .view = &view, .freeze_at_end = true,
        };
        x.uid = uid;
        x.gid = gid;
        f->started_at = now_ms();
        if (sandbox_exec(sb, &x, on_verified, f, NULL, &e) < 0) {
                say(f, "start the verifier", e.text);
                give_up(f);
        }
}

static void on_facts(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct finish *f = user;
        if (f->session->ending)
                give_up(f);
        else
                run_verifier(f);
}

static void take_facts(struct finish *f) {
        struct error e;
        if (!f->spec.result_files || !f->spec.result_files[0])
                run_verifier(f);
        else if (run_helper(f, "facts", false, &f->before, RESULTS_FACTS_MAX, on_facts, &e) < 0) {
                say(f, "look at the result files", e.text);
                give_up(f);
        }
}

/* ---- start ------------------------------------------------------------------------------------------------------------------------- */

static void on_others_killed(struct sandbox *sb, int r, void *user) {
        struct finish *f = user;
        if (r < 0)
                say(f, "kill the agent's processes", strerrordesc_np(-r));
        if (r < 0 || f->session->ending)
                give_up(f);
        else
                take_facts(f);
}

static void on_killed(struct sandbox *sb, void *user) { on_others_killed(sb, 0, user); }

/* The session's start-up command lives on: what it serves may be what the verifier looks at. */
static int kill_agent(struct finish *f) {
        struct session *s = f->session;
        struct sandbox_exec *spare = s->startup && s->startup->state == PROCESS_RUNNING ? s->startup->exec : NULL;
        if (!spare)
                return sandbox_kill_all(s->sandbox, on_killed, f);
        return sandbox_kill_others(s->sandbox, spare, on_others_killed, f);
}

static void begin(struct finish *f) {
        int r = f->spec.agent == AGENT_KILL ? kill_agent(f) : 0;
        if (r < 0) {
                say(f, "kill the agent's processes", strerrordesc_np(-r));
                give_up(f);
        } else if (f->spec.agent == AGENT_KEEP)
                take_facts(f);
}

static void take_place(struct finish *f) {
        f->counted = true;
        f->session->ss->inflight++;
        begin(f);
}

void finishes_admit(struct sessions *ss) {
        while (ss->finishes && (ss->cfg.execs_max == 0 || ss->inflight < ss->cfg.execs_max)) {
                struct finish *f = ss->finishes;
                stop_waiting(f);
                take_place(f);
        }
}

static void on_session_ends(struct session_use *u) {
        struct finish *f = container_of(u, struct finish, use);
        if (!f->wait_at)
                return;                /* the step under way notices */
        stop_waiting(f);
        give_up(f);
}

/* Behind those that wait already. */
static void begin_in_turn(struct finish *f) {
        struct sessions *ss = f->session->ss;
        struct finish **at = &ss->finishes;
        if (ss->cfg.execs_max == 0 || (ss->inflight < ss->cfg.execs_max && !ss->waiting && !ss->finishes)) {
                take_place(f);
                return;
        }
        while (*at)
                at = &(*at)->wait_next;
        *at = f;
        f->wait_at = at;
}

static int join(struct finish *f, session_finished done, void *user, struct finish_wait **ret_wait) {
        if (f->n_waits >= WAITS_MAX)
                return -EUSERS;
        struct finish_wait *w = calloc(1, sizeof *w);
        if (!w)
                return -ENOMEM;
        *w = (struct finish_wait){ .next = f->waits, .done = done, .user = user };
        f->waits = w;
        f->n_waits++;
        *ret_wait = w;
        return 0;
}

void session_finish_forget(struct finish_wait *w) { w->done = NULL; }

/* What an earlier finish said. */
static int recorded_answer(struct sessions *ss, const char *id, struct buf *record, struct json *ret) {
        struct ledger_row row;
        struct json v;
        int r = ledger_get(ss->cfg.ledger, id, &row);
        if (r < 0)
                return r;
        bool finished = strcmp(row.kind, SESSION_KIND) == 0 && row.state == JOB_FINISHED && session_state_from_string(row.outcome) == SESSION_FINISHED;
        bool failed = strcmp(row.kind, SESSION_KIND) == 0 && !finished && session_state_from_string(row.outcome) != SESSION_EXPIRED;
        ledger_row_release(&row);
        if (!finished)
                return failed ? -EAGAIN : -ENOENT;
        r = ledger_get_record(ss->cfg.ledger, id, record);
        if (r == 0)
                r = json_parse(buf_str(record), record->len, &v, NULL);
        return r < 0 ? r : json_get(&v, "finish", ret) ? 0 : -EIO;
}

static void answer_from_record(struct sessions *ss, const char *id, session_finished done, void *user) {
        _cleanup_buf_ struct buf record = BUF_INIT(RECORD_MAX);
        struct json answer;
        int r = recorded_answer(ss, id, &record, &answer);
        if (r < 0)
                done(r, NULL, 0, user);
        else
                done(0, answer.p, answer.n, user);
}

static int begin_new(struct session *s, struct finish_spec *spec, session_finished done, void *user, struct finish_wait **ret_wait) {
        struct finish *f = calloc(1, sizeof *f);
        if (!f)
                return -ENOMEM;
        f->session = s;
        f->out.log_fd = f->err.log_fd = f->before.log_fd = f->after.log_fd = -1;
        f->spec.pack = (struct file_pack)FILE_PACK_INIT;
        buf_init(&f->answer, FINISH_ANSWER_MAX);
        int r = session_use_begin(s->ss, s->id, &f->use, on_session_ends);
        if (r == 0)
                r = join(f, done, user, ret_wait);
        if (r < 0) {
                session_use_end(&f->use);
                finish_free(f);
                return r;
        }
        f->spec = *spec;
        *spec = (struct finish_spec){ .pack = FILE_PACK_INIT };
        f->started_at = f->ended_at = now_ms();
        s->finish = f;
        session_set_finishing(s);
        log_event(LOG_INFO, "session.finishing", "session", s->id, "agent", agent_processes_to_string(f->spec.agent), NULL);
        begin_in_turn(f);
        return 0;
}

void session_finish(struct sessions *ss, const char *id, struct finish_spec *given, session_finished done, void *user, struct finish_wait **ret_wait) {
        struct session *s = session_any(ss, id);
        struct finish_spec spec = *given;      /* `done` may free what held it */
        int r = 0;
        *given = (struct finish_spec){ .pack = FILE_PACK_INIT };
        *ret_wait = NULL;
        if (!s)
                answer_from_record(ss, id, done, user);
        else if (s->finish && !s->finish->answered && !s->removals)
                r = join(s->finish, done, user, ret_wait);
        else if (s->removals || s->inserting)
                r = -ENOENT;
        else if (s->state != SESSION_READY)
                r = -EAGAIN;
        else if (session_stands_still(s))
                r = -EBUSY;            /* the verifier could not start, and its end would be the session's */
        else
                r = begin_new(s, &spec, done, user, ret_wait);
        finish_spec_release(&spec);
        if (r < 0)
                done(r, NULL, 0, user);
}

/* Any bytes that a sandbox may send its broker, cut in pieces (the first byte says how long; the second what the host does and whether the secret
 * is put before them): no crash, well-formed answers, no call taken in without the secret, every call ends once, and no result is answered that
 * no host gave. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "api/rlm_api.h"
#include "base/hash.h"
#include "fuzz.h"

#define SECRET "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2"

static struct leases leases;
static const struct rlm_result *settling;
static unsigned begun, ended, settled, heard, unsent;

/* ---- what the face calls, over the real state machine ---------------------------------------------------------------------------- */

struct rlm *engine_rlm(struct engine *en) { return (struct rlm *)&leases; }
const struct rlm_config *rlm_settings(const struct rlm *m) {
        static struct rlm_config cfg = { .limits = { 6, 3, 4 } };
        return &cfg;
}

bool rlm_secret_ok(const struct rlm_root *root, const char *secret) {
        bool ok = strlen(secret) == sizeof SECRET - 1 && secret_equal(secret, SECRET, sizeof SECRET - 1);
        heard += ok;
        return ok;
}

bool rlm_is_executing(const struct rlm_root *root) { return leases.executing; }
bool rlm_tool_known(const struct rlm_root *root, const struct json *name) { return !json_string_is(name, "unknown"); }

enum lease_answer rlm_call_begin(struct rlm_root *root, struct rlm_call *c, const char *id, size_t id_len, unsigned prompts) {
        ASSERT(heard > 0);
        ASSERT(c->args.type == JSON_ARRAY && c->kwargs.type == JSON_OBJECT && c->tool_name.type == JSON_STRING);
        enum lease_answer a = leases_call(&leases, id, id_len, prompts, 100, c, &c->lease);
        begun += a == LEASE_OK;
        return a;
}

void rlm_call_taken(struct rlm_call *c) {
        ASSERT(c->lease->state == CALL_SETTLED);
        unsent--;
        lease_taken(&leases, c->lease);
}

void rlm_call_gone(struct rlm_call *c) {
        if (c->lease->state == CALL_SETTLED)
                unsent--;
        else
                ended++;
        lease_gone(&leases, c->lease);
}

static void token(char ret[static LEASE_TOKEN_SIZE], void *user) {
        static unsigned n;
        snprintf(ret, LEASE_TOKEN_SIZE, "%032x", ++n);
}

static void answer(struct lease_call *lc, enum lease_answer a, void *user) {
        struct rlm_call *c = lc->user;
        ended++;
        ASSERT((a == LEASE_OK) == (settling != NULL));
        unsent += a == LEASE_OK;
        c->answer(c, a, settling);
}

/* ---- the dialect, as v1_reply.c and rlm_sessions.c speak it ------------------------------------------------------------------------ */

void v1_reply(struct http_request *r, int status, int x, struct buf *b) { http_respond_buf(r, x < 0 ? 500 : status, "application/json", b); }
void v1_error(struct http_request *r, int status, const char *code, const char *message, const char *hint) { http_respond(r, status, "text/plain", code, strlen(code)); }
void v1_fault(struct http_request *r, int x, const char *text, const char *what) { v1_error(r, 500, "internal", "", NULL); }
void rlm_lease_answer(struct http_request *r, enum lease_answer a) { v1_error(r, a == LEASE_TIMEOUT ? 504 : 409, lease_answer_to_string((int)a), "", NULL); }

/* ---- one run ---------------------------------------------------------------------------------------------------------------------------- */

static struct sockaddr_un at;
static socklen_t at_len;

static void *start(uv_loop_t *loop, struct api *api) {
        void *face;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        at.sun_family = AF_UNIX;
        at_len = sizeof at;
        ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)) == 0 && listen(fd, 16) == 0);      /* a name of the kernel's choice */
        ASSERT(getsockname(fd, (struct sockaddr *)&at, &at_len) == 0);
        api->loop = loop;
        ASSERT(rlm_broker_face.open(NULL, &fd, 1, api, &face, NULL) == 0);
        return face;
}

static void note(struct lease_call *c, void *user) { ASSERT(c->lease[0]); }

/* 1: gives results; 2: errors; 3: claims, and dies; 0: does nothing. */
static void host(unsigned what) {
        static const struct rlm_result results[] = { { false, "\"from the host\"", 15 }, { true, "{\"message\":\"m\",\"call_id\":\"forged\"}", 34 } };
        if (what == 0 || leases.n_queued == 0)
                return;
        leases_claim(&leases, note, NULL);
        /* An answer lets a request that was sent ahead in: a call behind these that nobody has claimed yet. */
        while (leases.waiting && leases.waiting->state == CALL_CLAIMED && what < 3) {
                settling = &results[what - 1];
                settled++;
                ASSERT(leases_settle(&leases, leases.waiting->id, leases.waiting->lease) == LEASE_OK);
                settling = NULL;
        }
}

static void turn(uv_loop_t *loop, int fd, struct buf *out, bool *eof, unsigned what) {
        char piece[16384];
        uv_run(loop, UV_RUN_NOWAIT);
        host(what);
        ssize_t n = read(fd, piece, sizeof piece);
        if (n > 0)
                ASSERT(buf_add(out, piece, (size_t)n) == 0);
        else if (n == 0 || errno != EAGAIN)
                *eof = true;
}

/* How often `what` stands in it. */
static unsigned times(const struct buf *b, const char *what) {
        unsigned n = 0;
        size_t len = strlen(what);
        for (const char *p = b->data, *hit; p && (hit = memmem(p, b->len - (size_t)(p - b->data), what, len)); p = hit + len)
                n++;
        return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const struct leases_limits limits = { 6, 3, 4 };
        static const char head[] = "POST /tool_call HTTP/1.1\r\nHost: x\r\nX-Broker-Secret: " SECRET "\r\n";
        static uv_loop_t *loop;
        static struct api api;
        static void *face;
        if (!face) {
                loop = uv_default_loop();
                face = start(loop, &api);
        }
        if (size < 2 || size > 65536)
                return 0;
        bool eof = false, secret = data[1] & 0x80, gone = false;
        unsigned what = data[1] & 3;
        size_t step = 1 + (size_t)data[0] * 64, sent = 2;
        _cleanup_buf_ struct buf out = BUF_INIT(16u << 20);
        begun = ended = settled = heard = 0;
        ASSERT(leases_init(&leases, &limits, token, answer, NULL) == 0);
        if (!(data[1] & 0x40))
                leases_begin_action(&leases);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&at, at_len) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        if (secret)
                ASSERT(write(fd, head, sizeof head - 1) == (ssize_t)sizeof head - 1);
        while (sent < size && !gone && !eof) {
                ssize_t w = write(fd, data + sent, MIN2(step, size - sent));
                sent += w > 0 ? (size_t)w : 0;
                gone = w < 0 && errno != EAGAIN;
                turn(loop, fd, &out, &eof, what);
        }
        if (data[1] & 0x20)
                shutdown(fd, SHUT_RDWR);
        else
                turn(loop, fd, &out, &eof, what);
        leases_expire(&leases, 100);
        shutdown(fd, SHUT_WR);
        for (int i = 0; i < 20000 && !eof; i++)
                turn(loop, fd, &out, &eof, what);
        close(fd);
        for (int i = 0; i < 20000 && (ended < begun || unsent > 0); i++)
                uv_run(loop, UV_RUN_NOWAIT);
        leases_close(&leases);
        ASSERT(ended == begun && unsent == 0);
        ASSERT(times(&out, "from the host") <= settled && !times(&out, "forged"));
        ASSERT(heard > 0 || (!times(&out, "HTTP/1.1 200") && !times(&out, "HTTP/1.1 409") && !times(&out, "HTTP/1.1 504")));
        leases_release(&leases);
        return 0;
}

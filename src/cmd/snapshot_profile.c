/* See snapshot_profile.h. What a snapshot is, is told by a manifest in it, written by its own python when it was made; a check compares that with what the same
 * python finds in a session of the snapshot. Both are JSON by the same hand, so equal values are equal bytes. */
#include <stdlib.h>
#include <string.h>

#include "cmd/snapshot_profile.h"

#define START_MS 300000
#define EXEC_MS 300000
#define SNAPSHOT_MS 1900000            /* the daemon's own limit is half an hour */
#define DELETE_MS 300000
#define SESSION_TTL_S 2400             /* of a session that nobody could delete any more */

static const struct snapshot_profile profiles[] = {
        { "session", "fleet-rlm-python313-v7", "DAYTONA_SNAPSHOT_NAME", "FLEET_DAYTONA_SNAPSHOT", 4, 8, 8 },
        { "semantic-child", "fleet-rlm-python313-child-v2", "DAYTONA_CHILD_SNAPSHOT_NAME", "FLEET_DAYTONA_CHILD_SNAPSHOT", 2, 4, 4 },
};

/* argv: make NAME PROFILE BASE CPUS MEMORY DISK, or look. */
static const char script[] =
        "import importlib.metadata, json, os, platform, sys\n"
        "FILE = '/etc/brig-snapshot.json'\n"
        "names = {(d.metadata['Name'], d.version) for d in importlib.metadata.distributions()}\n"
        "facts = {'python': platform.python_version(), 'packages': sorted('%s==%s' % n for n in names if n[0])}\n"
        "if sys.argv[1] == 'make':\n"
        "    os.makedirs('/workspace', exist_ok=True)\n"
        "    os.chown('/workspace', 1000, 1000)\n"
        "    name, profile, base, cpus, memory, disk = sys.argv[2:]\n"
        "    facts.update(name=name, profile=profile, base=base, uid=1000, workdir='/workspace', cpus=int(cpus), memory_gib=int(memory), disk_gib=int(disk))\n"
        "    with open(FILE, 'w', encoding='utf-8') as f:\n"
        "        json.dump(facts, f)\n"
        "else:\n"
        "    disk = os.statvfs('/')\n"
        "    try:\n"
        "        os.chdir('/workspace')\n"
        "    except OSError:\n"
        "        pass\n"
        "    facts.update(uid=os.getuid(), workdir=os.getcwd(), disk_gib=round(disk.f_blocks * disk.f_frsize / 2 ** 30), writable=os.access('.', os.W_OK))\n"
        "    try:\n"
        "        with open(FILE, encoding='utf-8') as f:\n"
        "            facts['manifest'] = json.load(f)\n"
        "    except (OSError, ValueError):\n"
        "        facts['manifest'] = None\n"
        "print(json.dumps(facts))\n";

/* ---- names ------------------------------------------------------------------------------------------------------------------------------------- */

const struct snapshot_profile *snapshot_profile_find(const char *word) {
        for (size_t i = 0; i < ARRAY_SIZE(profiles); i++)
                if (strcmp(word, profiles[i].word) == 0)
                        return &profiles[i];
        return NULL;
}

static bool name_ok(const char *s) {
        static const char digits[] = "0123456789", letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
        size_t n = strlen(s), tail = n;
        if (n > SNAPSHOT_NAME_MAX || strspn(s, letters) != n || s[0] == '-')
                return false;
        while (tail > 0 && strchr(digits, s[tail - 1]))
                tail--;
        return tail < n && s[tail] != '0' && tail > 2 && s[tail - 1] == 'v' && s[tail - 2] == '-';
}

int snapshot_profile_name(const struct snapshot_profile *p, const char *given, const char **ret, struct error *e) {
        const char *build = getenv(p->build_env), *env = getenv(p->env);
        const char *name = given ? given : build && *build ? build : env && *env ? env : p->name;
        if (!name_ok(name))
                return error_say(e, -EINVAL, "'%.100s' is no name of a snapshot: lower-case letters, digits and '-', with a version at the end (-v1), at most %u", name, SNAPSHOT_NAME_MAX);
        *ret = name;
        return 0;
}

/* 0, or -ENOENT. */
static int look_up(struct client *c, const char *name, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        char path[REMOTE_PATH_MAX];
        struct json v;
        snprintf(path, sizeof path, "/v1/images/%s", name);
        return remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &v, e);
}

/* ---- a session for it ---------------------------------------------------------------------------------------------------------------------------- */

static int write_session(const struct snapshot_profile *p, const char *image, bool check, struct buf *ret) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        json_field_text(&w, "image", image);
        json_field_text(&w, "network", "none");
        json_field_uint(&w, "ttl_s", SESSION_TTL_S);
        if (check)
                json_field_text(&w, "user", "1000");
        json_put_key(&w, "limits");
        json_begin_object(&w);
        json_field_uint(&w, "cpus", p->cpus);
        json_field_uint(&w, "memory_mb", p->memory_gib * 1024ull);
        json_field_uint(&w, "disk_mb", p->disk_gib * 1024ull);
        json_end_object(&w);
        json_end_object(&w);
        return json_finish(&w);
}

static int start_session(struct client *c, const struct snapshot_profile *p, const char *image, bool check, char ret[static 160], struct error *e) {
        _cleanup_buf_ struct buf body = BUF_INIT(4096), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json session;
        char state[32], why[SHOW_MAX];
        int r = write_session(p, image, check, &body);
        if (r < 0)
                return error_set(e, r, "write the request");
        r = remote_call(c, "POST", "/v1/sessions", &body, START_MS, &answer, &session, e);
        if (r < 0)
                return r;
        member_show(&session, "id", ret, 160);
        r = remote_wait_started(c, &answer, &session, e);
        if (r == 0 && strcmp(member_show(&session, "state", state, sizeof state), "ready") != 0)
                r = error_say(e, -EIO, "a session of %s could not be started: %s", image, member_show(&session, "error", why, sizeof why));
        return r;
}

/* Deleted, and seen to be gone. */
static int end_session(struct client *c, const char *id, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        char path[REMOTE_PATH_MAX];
        struct json v;
        int r = session_path(id, "", path, e);
        r = r ? r : remote_call(c, "DELETE", path, NULL, DELETE_MS, &answer, &v, e);
        if (r < 0)
                return r;
        buf_consume(&answer, answer.len);
        r = remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &v, e);
        return r == -ENOENT ? 0 : r < 0 ? r : error_say(e, -EIO, "session %s was deleted and is still there", id);
}

/* Runs the script; its one line of JSON lies in *text. */
static int run_script(struct client *c, const char *id, const char *const *words, struct buf *text, struct json *ret, struct error *e) {
        _cleanup_buf_ struct buf body = BUF_INIT(64 * 1024), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&body);
        char path[REMOTE_PATH_MAX], said[SHOW_MAX];
        struct json v, out;
        json_begin_object(&w);
        json_put_key(&w, "argv");
        json_begin_array(&w);
        json_put_text(&w, "python3");
        json_put_text(&w, "-c");
        json_put_text(&w, script);
        for (; *words; words++)
                json_put_text(&w, *words);
        json_end_array(&w);
        json_field_uint(&w, "timeout_s", EXEC_MS / 2000);
        json_field_uint(&w, "output_limit", 4u << 20);
        json_end_object(&w);
        int r = json_finish(&w);
        r = r < 0 ? error_set(e, r, "write the request") : session_path(id, "/exec", path, e);
        r = r ? r : remote_call(c, "POST", path, &body, EXEC_MS, &answer, &v, e);
        if (r < 0)
                return r;
        if (member_number(&v, "exit_code", -1) != 0)
                return error_say(e, -EIO, "its python3 failed: %s", member_show(&v, "stderr", said, sizeof said));
        if (!json_get(&v, "stdout", &out) || json_string(&out, text) < 0 || json_parse(buf_str(text), text->len, ret, NULL) < 0 || ret->type != JSON_OBJECT)
                return error_say(e, -EIO, "its python3 did not say what is in it");
        return 0;
}

/* ---- create ---------------------------------------------------------------------------------------------------------------------------------------- */

/* "python313" in a name promises 3.13. */
static void note_version(const char *name, const struct json *facts) {
        const char *p = strstr(name, "python");
        char has[64], says[32];
        size_t n = p ? strspn(p + 6, "0123456789") : 0;
        if (n < 2 || n > 4)
                return;
        snprintf(says, sizeof says, "%c.%.*s", p[6], (int)n - 1, p + 7);
        member_show(facts, "python", has, sizeof has);
        if (strncmp(has, says, strlen(says)) != 0 || has[strlen(says)] != '.')
                fprintf(stderr, "brig snapshot create: its name says python %s, it has %s\n", says, has);
}

static int take_snapshot(struct client *c, const char *id, const char *name, struct error *e) {
        _cleanup_buf_ struct buf body = BUF_INIT(4096), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&body);
        char path[REMOTE_PATH_MAX];
        struct json v;
        json_begin_object(&w);
        json_field_text(&w, "name", name);
        json_end_object(&w);
        int r = json_finish(&w);
        r = r < 0 ? error_set(e, r, "write the request") : session_path(id, "/snapshots", path, e);
        return r ? r : remote_call(c, "POST", path, &body, SNAPSHOT_MS, &answer, &v, e);
}

int snapshot_profile_create(struct client *c, const struct snapshot_profile *p, const char *name, const char *base, bool json, struct error *e) {
        _cleanup_buf_ struct buf text = BUF_INIT(4u << 20);
        char id[160] = "", cpus[16], memory[16], disk[16];
        struct json facts = { 0 };
        struct error ignored;
        int r = look_up(c, name, e);
        if (r == 0) {
                fprintf(stderr, "brig snapshot create: %s is there already, and is left as it is\n", name);
                if (!json)
                        printf("%s\n", name);
                return 0;
        }
        if (r != -ENOENT)
                return r;
        snprintf(cpus, sizeof cpus, "%u", p->cpus);
        snprintf(memory, sizeof memory, "%u", p->memory_gib);
        snprintf(disk, sizeof disk, "%u", p->disk_gib);
        const char *const words[] = { "make", name, p->word, base, cpus, memory, disk, NULL };
        r = start_session(c, p, base, false, id, e);
        r = r ? r : run_script(c, id, words, &text, &facts, e);
        r = r ? r : take_snapshot(c, id, name, e);
        if (id[0]) {
                int x = end_session(c, id, r ? &ignored : e);
                r = r ? r : x;
        }
        if (r < 0)
                return r;
        note_version(name, &facts);
        if (json)
                (void)print_json(&facts);
        else
                printf("%s\n", name);
        return 0;
}

/* ---- check --------------------------------------------------------------------------------------------------------------------------------------- */

static void differs(const char *what, const char *is, const char *should, int *status) {
        fprintf(stderr, "brig snapshot check: %s is %s, and should be %s\n", what, is[0] ? is : "missing", should);
        *status = 1;
}

static void compare_text(const struct json *o, const char *key, const char *should, int *status) {
        char is[SHOW_MAX];
        if (strcmp(member_show(o, key, is, sizeof is), should) != 0)
                differs(key, is, should, status);
}

static void compare_number(const struct json *o, const char *key, unsigned should, int *status) {
        char text[16];
        snprintf(text, sizeof text, "%u", should);
        compare_text(o, key, text, status);
}

static void compare(const struct json *facts, const struct snapshot_profile *p, const char *name, int *status) {
        static const char *const same[] = { "python", "packages", "uid", "workdir", "disk_gib" };
        struct json manifest, is, should;
        if (!json_get(facts, "manifest", &manifest) || manifest.type != JSON_OBJECT) {
                differs("the manifest", "missing", "in the snapshot: it was not made by brig snapshot create --profile", status);
                return;
        }
        compare_text(&manifest, "name", name, status);
        compare_text(&manifest, "profile", p->word, status);
        compare_number(&manifest, "cpus", p->cpus, status);
        compare_number(&manifest, "memory_gib", p->memory_gib, status);
        compare_number(&manifest, "disk_gib", p->disk_gib, status);
        for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
                char a[SHOW_MAX], b[SHOW_MAX];
                bool there = json_get(facts, same[i], &is) && json_get(&manifest, same[i], &should);
                if (!there || is.n != should.n || memcmp(is.p, should.p, is.n) != 0)
                        differs(same[i], member_show(facts, same[i], a, sizeof a), member_show(&manifest, same[i], b, sizeof b), status);
        }
        if (!member_true(facts, "writable"))
                differs("the working directory", "read-only", "writable", status);
}

static void say_good(const struct json *facts, const char *name) {
        char python[64], base[SHOW_MAX];
        struct json manifest, packages, one;
        size_t n = 0;
        (void)json_get(facts, "manifest", &manifest);
        if (json_get(facts, "packages", &packages))
                for (struct json_iter it = json_iter(&packages); json_next_item(&it, &one);)
                        n++;
        printf("%s is as its manifest says: from %s, python %s, packages %zu, uid 1000, /workspace, %lld GiB\n", name, member_show(&manifest, "base", base, sizeof base),
               member_show(facts, "python", python, sizeof python), n, (long long)member_number(facts, "disk_gib", 0));
}

int snapshot_profile_check(struct client *c, const struct snapshot_profile *p, const char *name, bool json, int *status, struct error *e) {
        static const char *const words[] = { "look", NULL };
        _cleanup_buf_ struct buf text = BUF_INIT(4u << 20);
        char id[160] = "";
        struct json facts = { 0 };
        struct error ignored;
        int r = look_up(c, name, e);
        if (r == -ENOENT) {
                fprintf(stderr, "brig snapshot check: there is no %s; brig snapshot create --profile %s makes it\n", name, p->word);
                *status = 1;
                return 0;
        }
        r = r ? r : start_session(c, p, name, true, id, e);
        r = r ? r : run_script(c, id, words, &text, &facts, e);
        if (id[0]) {
                int x = end_session(c, id, r ? &ignored : e);
                r = r ? r : x;
        }
        if (r < 0)
                return r;
        compare(&facts, p, name, status);
        if (json)
                (void)print_json(&facts);
        else if (*status == 0)
                say_good(&facts, name);
        return 0;
}

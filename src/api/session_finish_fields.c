/* The body of a finish: files that may be big, so all of this may run in the pool. */
#include <string.h>

#include "api/session_fields.h"
#include "api/v1_internal.h"
#include "base/strv.h"
#include "sandbox/fields_pack.h"

#define AT(member) .at = offsetof(struct finish_spec, member)

static int parse_harness(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct finish_spec *s = target;
        return field_pack(f, v, &s->pack, NULL, e);
}

static const char *const agents[] = { "keep", "kill" };

static const struct field finish_fields[] = {
        { .name = "harness_files", .kind = FIELD_CUSTOM, .parse = parse_harness, .type = FIELD_PACK_TYPE, .def = "empty", .doc = "files that appear at `harness_mount`, only now" },
        { .name = "harness_mount", .kind = FIELD_STRING, AT(mount), .max = SESSION_PATH_MAX, .def = "`/verifier`", .doc = "a fresh directory that only the verifier sees" },
        { .name = "test_command", .kind = FIELD_STRING, AT(command), .max = PROCESS_TEXT_MAX, .def = "`bash <harness_mount>/test.sh`", .doc = "the verifier, run by `/bin/bash -c`" },
        { .name = "result_files", .kind = FIELD_LIST, AT(result_files), .max = RESULT_FILES_MAX, .def = "empty", .doc = "absolute paths to read afterwards; links are not followed, 16 MiB each, 64 MiB in all" },
        { .name = "timeout", .kind = FIELD_NUMBER, AT(timeout_ms), .min = 0, .max = PROCESS_TIMEOUT_MAX_S, .scale = 1000, .def = "600", .doc = "seconds for the verifier; 0 = none" },
        { .name = "output_limit", .kind = FIELD_CUSTOM, .parse = parse_output_limit, AT(output_limit), .type = "integer", .def = "65536", .doc = "bytes of each stream kept; 0 or less: the operator's" },
        { .name = "agent_processes", .kind = FIELD_ENUM, AT(agent), .names = agents, .n_names = ARRAY_SIZE(agents), .doc = "`kill`: all but the start-up command are killed first" },
};

struct v1_body v1_finish_body(void) { return (struct v1_body){ finish_fields, ARRAY_SIZE(finish_fields) }; }

/* As the sandbox will have it: no "." or "..". */
static bool is_plain_absolute(const char *path) {
        if (path[0] != '/' || !path[1])
                return false;
        for (const char *p = path; *p;) {
                size_t n = strcspn(p + 1, "/");
                if (*p == '/' && (n == 0 || (n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.')))
                        return n == 0 && !p[1];        /* a slash at the end is fine */
                p += 1 + n;
        }
        return true;
}

static int check(struct finish_spec *s, struct error *e) {
        size_t n = strlen(s->mount);
        if (!is_plain_absolute(s->mount))
                return error_say(e, -EINVAL, "Invalid value for 'harness_mount': must be an absolute path without '.' or '..'");
        if (s->mount[n - 1] == '/')
                s->mount[n - 1] = 0;
        for (char **p = s->result_files; p && *p; p++)
                if ((*p)[0] != '/' || strlen(*p) > SESSION_PATH_MAX)
                        return error_say(e, -EINVAL, "Invalid value for 'result_files': '%.200s' is not an absolute path of at most %u bytes", *p, SESSION_PATH_MAX);
        if (s->command && !s->command[0]) {
                free(s->command);
                s->command = NULL;
        }
        return 0;
}

int finish_body_decode(const struct json *object, int agent, struct finish_spec *ret, struct error *e) {
        struct finish_spec s = { .pack = FILE_PACK_INIT, .timeout_ms = 600 * 1000, .agent = agent };
        int r = fields_decode(finish_fields, ARRAY_SIZE(finish_fields), object, 0, &s, e);
        if (r == 0 && (!s.mount || !s.mount[0])) {
                free(s.mount);
                s.mount = strdup("/verifier");
                r = s.mount ? 0 : error_set(e, -ENOMEM, "decode request");
        }
        if (r == 0)
                r = check(&s, e);
        if (r == 0) {
                r = file_pack_seal(&s.pack);
                if (r < 0)
                        error_set(e, r, "pack harness_files");
        }
        if (r < 0)
                finish_spec_release(&s);
        else
                *ret = s;
        return r;
}

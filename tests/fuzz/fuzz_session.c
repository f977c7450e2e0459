/* Any bytes as the bodies of calls about sessions: each is decoded and released, or refused with a reason. */
#include "api/session_fields.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct json object;
        struct error e = { 0 };
        struct finish_spec finish;
        if (json_parse((const char *)data, size, &object, NULL) < 0 || object.type != JSON_OBJECT)
                return 0;
        int r = finish_body_decode(&object, AGENT_KEEP, &finish, &e);
        ASSERT(r == 0 || (r < 0 && e.text[0]));
        if (r == 0) {
                ASSERT(finish.mount[0] == '/' && finish.mount[1] && !strstr(finish.mount, "/../"));
                for (char **p = finish.result_files; p && *p; p++)
                        ASSERT((*p)[0] == '/');
                finish_spec_release(&finish);
        }
        return 0;
}

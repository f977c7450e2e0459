/* The tables of docs/sessions.md, from those that decode requests. */
#include "api/v1_internal.h"

int executor_session_document(struct buf *ret) {
        const struct { const char *call; struct v1_body body; } all[] = {
                { "start", executor_start_body() }, { "exec", executor_exec_body() }, { "export", executor_export_body() }, { "finish", v1_finish_body() },
        };
        int r = 0;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++) {
                r = buf_printf(ret, "\n### %s\n| field | type | default | meaning |\n| - | - | - | - |\n", all[i].call);
                if (r == 0)
                        r = fields_document(all[i].body.rows, all[i].body.n, "", ret);
        }
        return r;
}

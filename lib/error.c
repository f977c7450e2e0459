#include "internal.h"

int fail(struct brig_error *e, enum brig_code code, const char *fmt, ...) {
        if (!e)
                return code;
        *e = (struct brig_error){ .code = code };
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->message, sizeof e->message, fmt, ap);
        va_end(ap);
        for (char *p = e->message; *p; p++)        /* one line, whatever the endpoint said */
                if ((unsigned char)*p < ' ')
                        *p = ' ';
        return code;
}

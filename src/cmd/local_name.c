/* Names that an archive may use here. Pure. */
#include <string.h>

#include "cmd/local_tar.h"

bool link_stays(const char *path, const char *link) {
        size_t depth = 0;
        bool climbing = true;
        for (const char *p = path; *p; p++)
                depth += *p == '/';
        if (link[0] == '/' || !link[0])
                return false;
        for (const char *p = link; *p;) {
                size_t n = strcspn(p, "/");
                if (n == 2 && p[0] == '.' && p[1] == '.') {
                        if (!climbing || depth == 0)
                                return false;
                        depth--;
                } else if (n > 0 && !(n == 1 && p[0] == '.'))
                        climbing = false;
                p += n + (p[n] == '/');
        }
        return true;
}

int local_name(const char *name, char ret[static LOCAL_NAME_MAX + 1]) {
        size_t at = 0;
        if (name[0] == '/' || !name[0])
                return -EBADMSG;
        for (const char *p = name; *p;) {
                size_t n = strcspn(p, "/");
                if (n == 2 && p[0] == '.' && p[1] == '.')
                        return -EBADMSG;
                if (n > 0 && !(n == 1 && p[0] == '.')) {
                        if (at + n + 1 > LOCAL_NAME_MAX)
                                return -EBADMSG;
                        if (at)
                                ret[at++] = '/';
                        memcpy(ret + at, p, n);
                        at += n;
                }
                p += n + (p[n] == '/');
        }
        ret[at] = 0;
        return 0;
}

/* Extended headers: records "LENGTH KEY=VALUE\n". A value may hold NUL only where it is an attribute. */
#include <string.h>

#include "archive/tar_internal.h"

static int bad(struct error *e) { return error_say(e, -EBADMSG, "the archive is no tar archive: a record of an extended header is broken"); }

static int decimal(const char *s, int64_t *ret) {
        char *end;
        errno = 0;
        long long v = strtoll(s, &end, 10);
        if (errno || end == s || *end)
                return -EINVAL;
        *ret = v;
        return 0;
}

/* "1700000000.123456789", also negative: the fraction counts upwards from the whole second below. */
static int seconds(const char *s, struct tar_found *f) {
        char *end;
        errno = 0;
        long long v = strtoll(s, &end, 10);
        if (errno || end == s || (*end && *end != '.'))
                return -EINVAL;
        uint32_t ns = 0, unit = 100000000;
        if (*end == '.')
                for (const char *d = end + 1; *d; d++, unit /= 10) {
                        if (*d < '0' || *d > '9')
                                return -EINVAL;
                        ns += (uint32_t)(*d - '0') * unit;
                }
        if (*s == '-' && ns > 0) {
                if (v == INT64_MIN)
                        return -EINVAL;
                v--;
                ns = 1000000000u - ns;
        }
        f->mtime = v;
        f->mtime_ns = ns;
        f->has_mtime = true;
        return 0;
}

static int owner(const char *value, bool *has, uint64_t *ret) {
        int64_t v;
        if (decimal(value, &v) < 0 || v < 0)
                return -EINVAL;
        *has = true;
        *ret = (uint64_t)v;
        return 0;
}

static int sparse_key(struct tar_reader *t, const char *key, const char *value, struct error *e) {
        struct tar_found *f = &t->found;
        int64_t v = 0;
        if (strcmp(key, "name") == 0) {
                f->sparse_name = value;
                return strlen(value) > TAR_NAME_MAX ? -EINVAL : 0;
        }
        f->sparse = true;
        if (strcmp(key, "map") == 0) {
                f->sparse_map = value;
                return 0;
        }
        if (decimal(value, &v) < 0 || v < 0)
                return -EINVAL;
        if (strcmp(key, "major") == 0)
                f->sparse_major = v;
        else if (strcmp(key, "realsize") == 0 || strcmp(key, "size") == 0)
                f->sparse_size = v;
        else if (strcmp(key, "offset") == 0)
                return tar_sparse_add(t, (uint64_t)v, 0, e);
        else if (strcmp(key, "numbytes") == 0) {
                if (t->n_sparse == 0)
                        return -EINVAL;
                t->sparse[t->n_sparse - 1].size = (uint64_t)v;
        }
        return 0;
}

static int add_xattr(struct tar_reader *t, const char *name, const char *value, size_t size, struct error *e) {
        if (t->n_xattrs == TAR_XATTRS_MAX)
                return error_say(e, -E2BIG, "an entry of the archive has more than %d attributes", TAR_XATTRS_MAX);
        t->xattrs[t->n_xattrs++] = (struct tar_xattr){ name, value, size };
        return 0;
}

static int record(struct tar_reader *t, const char *key, char *value, size_t size, struct error *e) {
        struct tar_found *f = &t->found;
        if (strncmp(key, "SCHILY.xattr.", 13) == 0)
                return add_xattr(t, key + 13, value, size, e);
        if (memchr(value, 0, size))
                return -EINVAL;
        if (strcmp(key, "path") == 0 || strcmp(key, "linkpath") == 0) {
                if (size > TAR_NAME_MAX)
                        return error_say(e, -E2BIG, "a name in the archive is longer than %d bytes", TAR_NAME_MAX);
                *(key[0] == 'p' ? &f->path : &f->link) = value;
                return 0;
        }
        if (strcmp(key, "size") == 0) {
                f->has_size = true;
                return decimal(value, &f->size) < 0 || f->size < 0 ? -EINVAL : 0;
        }
        if (strcmp(key, "uid") == 0)
                return owner(value, &f->has_uid, &f->uid);
        if (strcmp(key, "gid") == 0)
                return owner(value, &f->has_gid, &f->gid);
        if (strcmp(key, "mtime") == 0)
                return seconds(value, f);
        if (strncmp(key, "GNU.sparse.", 11) == 0)
                return sparse_key(t, key + 11, value, e);
        return 0;                      /* names of owners, other times, comments */
}

int tar_pax_parse(struct tar_reader *t, char *p, size_t n, struct error *e) {
        char *end = p + n;
        while (p < end) {
                size_t len = 0;
                char *at = p;
                for (; at < end && *at >= '0' && *at <= '9' && len <= TAR_PAX_MAX; at++)
                        len = len * 10 + (size_t)(*at - '0');
                if (at == p || at >= end || *at != ' ' || len > (size_t)(end - p) || len < (size_t)(at - p) + 4)
                        return bad(e);
                char *last = p + len - 1, *key = at + 1, *equals = memchr(key, '=', (size_t)(last - key));
                if (*last != '\n' || !equals || equals == key)
                        return bad(e);
                *last = *equals = 0;
                struct error mine = { 0 };
                int r = strlen(key) != (size_t)(equals - key) ? -EINVAL : record(t, key, equals + 1, (size_t)(last - equals - 1), &mine);
                if (r == -EINVAL)
                        return bad(e);
                if (r < 0) {
                        *e = mine;
                        return r;
                }
                p += len;
        }
        return 0;
}

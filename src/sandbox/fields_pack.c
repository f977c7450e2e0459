#include "sandbox/fields_pack.h"

#include "base/fields_forms.h"

static int add_file(const struct field *f, const struct json *key, const struct json *value, struct file_pack *pack, struct sha256 *hash, struct error *e) {
        _cleanup_free_ char *name = NULL;
        _cleanup_buf_ struct buf bytes = BUF_INIT(FILE_PACK_BYTES_MAX);
        int r = field_string(f, key, FILE_PACK_NAME_MAX, &name, NULL, e);
        if (r < 0)
                return r;
        r = field_content(value, &bytes);
        if (r == -EBADMSG)
                return field_fault(f, e, "'%.200s' must be a string or {\"b64\": string}", name);
        if (r == -EINVAL)
                return field_fault(f, e, "'%.200s' is not base64", name);
        if (r == 0)
                r = file_pack_add(pack, name, 0755, buf_str(&bytes), bytes.len);
        if (r == 0 && hash) {
                uint64_t n = bytes.len;
                sha256_update_str(hash, name);
                sha256_update(hash, &n, sizeof n);
                sha256_update(hash, buf_str(&bytes), bytes.len);
        }
        switch (r) {
        case -EINVAL: return field_fault(f, e, "'%.200s' is not a name below its directory", name);
        case -E2BIG: return field_fault(f, e, "more than %u files", FILE_PACK_FILES_MAX);
        case -EFBIG: case -ENOSPC: return field_fault(f, e, "more than %llu bytes", (unsigned long long)FILE_PACK_BYTES_MAX);
        default: return r < 0 ? error_set(e, r, "decode %s", f->name) : 0;
        }
}

int field_pack(const struct field *f, const struct json *v, struct file_pack *pack, struct sha256 *hash, struct error *e) {
        struct json key, value;
        int r = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of files, not %s", json_type_to_string(v->type));
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);)
                r = add_file(f, &key, &value, pack, hash, e);
        return r;
}

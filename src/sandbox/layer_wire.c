#include "sandbox/layer_manifest.h"
#include "sandbox/layer_wire.h"

/* As the manifest's own text: one encoder, one parser, both tested. */
int layer_wire_put(struct buf *b, const struct layer_manifest *m) {
        _cleanup_buf_ struct buf text = BUF_INIT(LAYER_MANIFEST_MAX);
        int r = layer_manifest_encode(m, &text);
        return r < 0 ? r : wire_put_str(b, buf_str(&text));
}

void layer_wire_get(struct wire *w, struct layer_manifest *ret) {
        const char *text = wire_get_str(w);
        if (w->bad || !text || layer_manifest_parse(text, strlen(text), ret) < 0) {
                w->bad = true;
                *ret = (struct layer_manifest){ .kind = LAYER_TREE };
        }
}

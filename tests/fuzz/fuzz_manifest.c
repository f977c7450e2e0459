/* Any bytes as a registry's manifest and configuration: what is accepted is within the limits. */
#include <string.h>

#include "fuzz.h"
#include "registry/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static char ids[MANIFEST_LAYERS_MAX][IMAGE_REF_DIGEST_LEN + 1];
        struct manifest m;
        struct error e;
        if (manifest_parse((const char *)data, size, NULL, "amd64", &m, &e) == 0) {
                uint64_t total = 0;
                ASSERT(m.n_layers <= MANIFEST_LAYERS_MAX);
                for (size_t i = 0; i < m.n_layers; i++) {
                        ASSERT(image_digest_ok(m.layers[i].digest, strlen(m.layers[i].digest)));
                        total += m.layers[i].size;
                }
                ASSERT(total <= IMAGE_BYTES_MAX);
                ASSERT(m.kind == MANIFEST_IMAGE ? image_digest_ok(m.config.digest, strlen(m.config.digest)) : image_digest_ok(m.chosen.digest, strlen(m.chosen.digest)));
                manifest_release(&m);
        }
        for (size_t n = 0; n < 3; n++)
                if (config_diff_ids((const char *)data, size, "amd64", n, ids, &e) == 0)
                        for (size_t i = 0; i < n; i++)
                                ASSERT(image_digest_ok(ids[i], strlen(ids[i])));
        return 0;
}

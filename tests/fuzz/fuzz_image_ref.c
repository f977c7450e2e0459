/* Any text as a reference: what is accepted reads back as itself. */
#include <string.h>

#include "fuzz.h"
#include "store/image_ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const struct image_ref_default mirror = { .host = "mirror.example", .space = "library" };
        struct image_ref ref, again;
        char text[IMAGE_REF_TEXT_MAX + 1], *given = strndup((const char *)data, size);
        ASSERT(given);
        if (image_ref_parse(given, &mirror, &ref, NULL) == 0) {
                image_ref_format(&ref, text);
                ASSERT(image_ref_parse(text, NULL, &again, NULL) == 0);
                ASSERT(memcmp(&ref, &again, sizeof ref) == 0);
        }
        free(given);
        return 0;
}

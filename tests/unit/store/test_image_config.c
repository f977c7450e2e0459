#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "store/image_config.h"

static int parse(const char *text, struct image_config *ret, struct error *e) {
        struct json doc;
        assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
        return image_config_parse(&doc, ret, NULL, e);
}

#define HEAD "{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]},\"config\":"

static void what_a_base_asks_of_builds_is_kept_in_order(void **state) {
        struct image_config c = { 0 }, copy = { 0 };
        struct error e = { 0 };
        assert_int_equal(parse(HEAD "{\"OnBuild\":[\"COPY . /app\",\"RUN make\"]}}", &c, &e), 0);
        assert_string_equal(c.on_build[0], "COPY . /app");
        assert_string_equal(c.on_build[1], "RUN make");
        assert_null(c.on_build[2]);
        assert_int_equal(image_config_copy(&c, &copy), 0);
        assert_string_equal(copy.on_build[1], "RUN make");
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct json_writer w = JSON_WRITER(&b);
        image_config_write(&copy, &w);
        assert_true(json_finish(&w) >= 0);
        assert_string_equal(buf_str(&b), "{\"OnBuild\":[\"COPY . /app\",\"RUN make\"]}");
        image_config_release(&c);
        image_config_release(&copy);
}

/* Else the digests of images stored before it was kept would change. */
static void none_is_not_written(void **state) {
        static const char *const none[] = { HEAD "{\"User\":\"u\"}}", HEAD "{\"User\":\"u\",\"OnBuild\":null}}", HEAD "{\"User\":\"u\",\"OnBuild\":[]}}" };
        for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
                struct image_config c = { 0 };
                struct error e = { 0 };
                _cleanup_buf_ struct buf b = BUF_INIT(4096);
                struct json_writer w = JSON_WRITER(&b);
                assert_int_equal(parse(none[i], &c, &e), 0);
                image_config_write(&c, &w);
                assert_true(json_finish(&w) >= 0);
                assert_string_equal(buf_str(&b), "{\"User\":\"u\"}");
                image_config_release(&c);
        }
}

static void what_is_no_text_is_refused_by_name(void **state) {
        static const char *const wrong[] = { "[1]", "{}", "[null]", "1" };
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                char text[512];
                struct image_config c = { 0 };
                struct error e = { 0 };
                snprintf(text, sizeof text, HEAD "{\"OnBuild\":%s}}", wrong[i]);
                assert_true(parse(text, &c, &e) < 0);
                assert_non_null(strstr(e.text, "OnBuild"));
                image_config_release(&c);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_a_base_asks_of_builds_is_kept_in_order),
                cmocka_unit_test(none_is_not_written),
                cmocka_unit_test(what_is_no_text_is_refused_by_name),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

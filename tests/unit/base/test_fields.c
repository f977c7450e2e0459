#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fields.h"
#include "base/strv.h"

enum colour { RED, GREEN };
struct thing {
        char *name; char *blob; size_t blob_len; uint64_t ms, milli; int sign; bool on, on_given; enum colour colour; char **list; uint64_t deep;
};
#define AT(m) .at = offsetof(struct thing, m)

static const char *const colours[] = { "red", "green" };
static const struct field inner[] = { { .name = "deep", .kind = FIELD_INT, AT(deep), .min = 0, .max = 10, .doc = "d" } };
static const struct field table[] = {
        { .name = "name", .alias = "title", .kind = FIELD_STRING, AT(name), .max = 8, .def = "none", .doc = "its name" },
        { .name = "blob", .kind = FIELD_BYTES, AT(blob), .with_at = offsetof(struct thing, blob_len), .max = 100 },
        { .name = "seconds", .kind = FIELD_INT, AT(ms), .min = 1, .max = 60, .scale = 1000 },
        { .name = "cpus", .kind = FIELD_NUMBER, AT(milli), .min = 0, .max = 64, .scale = 1000 },
        { .name = "sign", .kind = FIELD_SIGNED, AT(sign), .min = -5, .max = 5 },
        { .name = "on", .kind = FIELD_BOOL, AT(on), .given_at = offsetof(struct thing, on_given) },
        { .name = "colour", .kind = FIELD_ENUM, AT(colour), .names = colours, .n_names = 2 },
        { .name = "list", .kind = FIELD_LIST, AT(list), .max = 3 },
        { .name = "inner", .kind = FIELD_OBJECT, .sub = inner, .n_sub = 1 },
};

static int decode(const char *text, unsigned flags, struct thing *ret, struct error *e) {
        struct json v;
        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        *ret = (struct thing){ 0 };
        return fields_decode(table, ARRAY_SIZE(table), &v, flags, ret, e);
}

static void release(struct thing *t) {
        free(t->name); free(t->blob); strv_free(t->list);
}

static void refused(const char *text, const char *want) {
        struct thing t;
        struct error e = { 0 };
        assert_int_equal(decode(text, 0, &t, &e), -EINVAL);
        assert_string_equal(e.text, want);
        release(&t);
}

static void every_kind_decodes(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"name\":\"n\\u00e9\",\"blob\":\"a\\nb\",\"seconds\":2,\"cpus\":1.5,\"sign\":-3,\"on\":true,\"colour\":\"green\","
                                "\"list\":[\"x\",\"\"],\"inner\":{\"deep\":7},\"unknown\":[1,{}]}", 0, &t, NULL), 0);
        assert_string_equal(t.name, "n\xc3\xa9");
        assert_int_equal(t.blob_len, 3);
        assert_string_equal(t.blob, "a\nb");
        assert_int_equal(t.ms, 2000);
        assert_int_equal(t.milli, 1500);
        assert_int_equal(t.sign, -3);
        assert_true(t.on && t.on_given);
        assert_int_equal(t.colour, GREEN);
        assert_string_equal(t.list[0], "x");
        assert_string_equal(t.list[1], "");
        assert_null(t.list[2]);
        assert_int_equal(t.deep, 7);
        release(&t);
}

static void null_is_absence(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"name\":null,\"seconds\":null,\"on\":null,\"list\":null,\"inner\":null}", 0, &t, NULL), 0);
        assert_null(t.name);
        assert_null(t.list);
        assert_false(t.on_given);
}

static void integers_are_lenient_only_as_agreed(void **state) {
        static const char *const good[] = { "{\"seconds\":3}", "{\"seconds\":3.0}", "{\"seconds\":\"3\"}", "{\"seconds\":0.3e1}" };
        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                struct thing t;
                assert_int_equal(decode(good[i], 0, &t, NULL), 0);
                assert_int_equal(t.ms, 3000);
        }
        refused("{\"seconds\":3.5}", "Invalid value for 'seconds': expected an integer");
        refused("{\"seconds\":\"x\"}", "Invalid value for 'seconds': expected an integer");
        refused("{\"seconds\":true}", "Invalid value for 'seconds': expected an integer, not boolean");
        refused("{\"seconds\":[]}", "Invalid value for 'seconds': expected an integer, not array");
        refused("{\"seconds\":0}", "Invalid value for 'seconds': must be between 1 and 60");
        refused("{\"seconds\":-1}", "Invalid value for 'seconds': must be between 1 and 60");
        refused("{\"seconds\":1e300}", "Invalid value for 'seconds': must be between 1 and 60");
        refused("{\"seconds\":99999999999999999999999}", "Invalid value for 'seconds': must be between 1 and 60");
}

static void wrong_types_name_the_field(void **state) {
        refused("{\"name\":1}", "Invalid value for 'name': expected a string, not number");
        refused("{\"blob\":{}}", "Invalid value for 'blob': expected a string, not object");
        refused("{\"cpus\":\"x\"}", "Invalid value for 'cpus': expected a number, not string");
        refused("{\"cpus\":-0.5}", "Invalid value for 'cpus': must be between 0 and 64");
        refused("{\"on\":1}", "Invalid value for 'on': expected a boolean, not number");
        refused("{\"colour\":\"blue\"}", "Invalid value for 'colour': must be one of red, green");
        refused("{\"colour\":3}", "Invalid value for 'colour': expected a string, not number");
        refused("{\"list\":7}", "Invalid value for 'list': expected a list of strings, not number");
        refused("{\"list\":[1]}", "Invalid value for 'list': item 0 is number, not a string");
        refused("{\"inner\":[]}", "Invalid value for 'inner': expected an object, not array");
        refused("{\"inner\":{\"deep\":11}}", "Invalid value for 'deep': must be between 0 and 10");
}

static void nul_is_refused(void **state) {
        refused("{\"name\":\"a\\u0000\"}", "Invalid value for 'name': must not contain NUL");
        refused("{\"blob\":\"\\\\\\u0000\"}", "Invalid value for 'blob': must not contain NUL");
        refused("{\"list\":[\"\\u0000\"]}", "Invalid value for 'list': must not contain NUL");
        struct thing t;   /* an escaped backslash before u0000 is six plain characters */
        assert_int_equal(decode("{\"name\":\"\\\\u0000\"}", 0, &t, NULL), 0);
        assert_string_equal(t.name, "\\u0000");
        release(&t);
}

static void limits_are_exact(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"name\":\"12345678\"}", 0, &t, NULL), 0);
        release(&t);
        refused("{\"name\":\"123456789\"}", "Invalid value for 'name': longer than 8 bytes");
        refused("{\"list\":[\"a\",\"b\",\"c\",\"d\"]}", "Invalid value for 'list': more than 3 items");
}

static void alias_yields_to_the_name(void **state) {
        static const char *const texts[] = { "{\"title\":\"a\"}", "{\"title\":\"b\",\"name\":\"a\"}", "{\"name\":\"a\",\"title\":\"b\"}" };
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                struct thing t;
                assert_int_equal(decode(texts[i], 0, &t, NULL), 0);
                assert_string_equal(t.name, "a");
                release(&t);
        }
}

static void of_two_members_the_last_counts(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"name\":\"a\",\"name\":\"b\"}", 0, &t, NULL), 0);
        assert_string_equal(t.name, "b");
        release(&t);
}

static void a_list_may_come_as_text(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"list\":\"[\\\"a\\\", \\\"b c\\\"]\"}", 0, &t, NULL), 0);
        assert_string_equal(t.list[1], "b c");
        release(&t);
        refused("{\"list\":\"a\"}", "Invalid value for 'list': expected a list of strings");
        refused("{\"list\":\"{}\"}", "Invalid value for 'list': expected a list of strings, not object");
}

static void checking_copies_nothing_big(void **state) {
        struct thing t;
        assert_int_equal(decode("{\"blob\":\"abc\",\"name\":\"n\"}", FIELDS_CHECK, &t, NULL), 0);
        assert_null(t.blob);
        assert_int_equal(t.blob_len, 3);
        assert_string_equal(t.name, "n");
        release(&t);
        assert_int_equal(decode("{\"blob\":\"\\u0000\"}", FIELDS_CHECK, &t, NULL), -EINVAL);
        release(&t);
        /* Where escapes make the length uncertain it is counted: 17 characters of 6 bytes each are 17, 101 are too many. */
        char text[1024] = "{\"blob\":\"";
        for (int i = 0; i < 17; i++)
                memcpy(text + 9 + 6 * i, "\\u0041", 7);
        memcpy(text + 9 + 6 * 17, "\"}", 3);
        assert_int_equal(decode(text, FIELDS_CHECK, &t, NULL), 0);
        assert_int_equal(t.blob_len, 17);
        release(&t);
        for (int i = 0; i < 101; i++)
                memcpy(text + 9 + 6 * i, "\\u0041", 7);
        memcpy(text + 9 + 6 * 101, "\"}", 3);
        assert_int_equal(decode(text, FIELDS_CHECK, &t, NULL), -EINVAL);
        release(&t);
}

static void the_table_documents_itself(void **state) {
        struct buf b = BUF_INIT(65536);
        assert_int_equal(fields_document(table, ARRAY_SIZE(table), "", &b), 0);
        assert_non_null(strstr(buf_str(&b), "| `name` (`title`) | string | none | its name |\n"));
        assert_non_null(strstr(buf_str(&b), "| `inner.deep` | integer, 0–10 |"));
        assert_non_null(strstr(buf_str(&b), "one of `red`, `green`"));
        buf_release(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_kind_decodes), cmocka_unit_test(null_is_absence), cmocka_unit_test(integers_are_lenient_only_as_agreed),
                cmocka_unit_test(wrong_types_name_the_field), cmocka_unit_test(nul_is_refused), cmocka_unit_test(limits_are_exact),
                cmocka_unit_test(alias_yields_to_the_name), cmocka_unit_test(of_two_members_the_last_counts), cmocka_unit_test(a_list_may_come_as_text),
                cmocka_unit_test(checking_copies_nothing_big), cmocka_unit_test(the_table_documents_itself),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

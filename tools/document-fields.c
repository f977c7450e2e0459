/* usage: document-fields [task|sessions|api]; document-fields --check|--write WHAT PAGE
 *
 * The tables of docs/executor.md, docs/sessions.md and docs/api.md are written by this from the tables that decode requests; --check fails
 * when the page has others. `make`'s test run checks. --write puts them in the place of all that follows the first "### " (sessions and
 * api, whose pages end with them). */
#include <fcntl.h>

#include "api/fields.h"
#include "api/v1.h"
#include "base/fs.h"
#include "score/request.h"

static int write_task(struct buf *b) {
        size_t n;
        const struct field *table = score_request_table(&n);
        int r = buf_adds(b, "| field | type | default | meaning |\n| - | - | - | - |\n");
        if (r == 0)
                r = fields_document(table, n, "", b);
        table = envelope_table(&n);
        return r < 0 ? r : fields_document(table, n, "", b);
}

static const struct { const char *name; int (*write)(struct buf *b); } pages[] = {
        { "task", write_task }, { "sessions", executor_session_document }, { "api", v1_document },
};

static int write_page(const char *name, struct buf *b) {
        for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
                if (strcmp(pages[i].name, name) == 0)
                        return pages[i].write(b);
        return -ENOENT;
}

static int rewrite(const char *path, const struct buf *page, const struct buf *table) {
        const char *end = strstr(buf_str(page), "\n### ");
        _cleanup_fclose_ FILE *f = fopen(path, "we");
        if (!f || !end)
                return 1;
        return fwrite(page->data, 1, (size_t)(end - page->data), f) == 0 || fwrite(table->data, 1, table->len, f) != table->len || fflush(f) != 0;
}

int main(int argc, char **argv) {
        _cleanup_buf_ struct buf table = BUF_INIT(4 << 20);
        _cleanup_buf_ struct buf page = BUF_INIT(4 << 20);
        bool change = argc == 4 && strcmp(argv[1], "--write") == 0 && strcmp(argv[2], "task") != 0, check = change || (argc == 4 && strcmp(argv[1], "--check") == 0);
        if ((argc > 2 && !check) || write_page(check ? argv[2] : argc == 2 ? argv[1] : "task", &table) < 0 || (check && fs_read_file(AT_FDCWD, argv[3], &page) < 0)) {
                fprintf(stderr, "usage: document-fields [task|sessions|api], or document-fields --check|--write WHAT PAGE\n");
                return 64;
        }
        if (!check) {
                fputs(buf_str(&table), stdout);
                return 0;
        }
        if (strstr(buf_str(&page), buf_str(&table)))
                return 0;
        if (change)
                return rewrite(argv[3], &page, &table);
        fprintf(stderr, "%s does not hold what `document-fields %s` prints (tests/unit/document-fields --write %s %s, in the build directory, mends it)\n", argv[3], argv[2], argv[2], argv[3]);
        return 1;
}

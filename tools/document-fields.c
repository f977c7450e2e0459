/* usage: document-fields > TABLE; document-fields --check docs/executor.md
 *
 * The table of a task's fields in docs/executor.md is written by this from the tables that decode them; --check fails when the
 * page has another one. `make`'s test run checks. */
#include <fcntl.h>

#include "api/fields.h"
#include "base/fs.h"
#include "score/request.h"

static int write_table(struct buf *b) {
        size_t n;
        const struct field *table = score_request_table(&n);
        int r = buf_adds(b, "| field | type | default | meaning |\n| - | - | - | - |\n");
        if (r == 0)
                r = fields_document(table, n, "", b);
        table = envelope_table(&n);
        return r < 0 ? r : fields_document(table, n, "", b);
}

int main(int argc, char **argv) {
        _cleanup_buf_ struct buf table = BUF_INIT(1 << 20);
        _cleanup_buf_ struct buf page = BUF_INIT(1 << 20);
        if (write_table(&table) < 0)
                return 1;
        if (argc == 1) {
                fputs(buf_str(&table), stdout);
                return 0;
        }
        if (argc != 3 || strcmp(argv[1], "--check") != 0 || fs_read_file(AT_FDCWD, argv[2], &page) < 0) {
                fprintf(stderr, "usage: document-fields [--check PAGE]\n");
                return 64;
        }
        if (strstr(buf_str(&page), buf_str(&table)))
                return 0;
        fprintf(stderr, "%s does not hold the fields' table as document-fields prints it\n", argv[2]);
        return 1;
}

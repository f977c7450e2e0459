#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "store/ledger_schema.h"

/* Step i brings version i to i + 1. Steps are never edited once released, only added.
 *
 * jobs       small rows that recovery and expiry scan, so the blobs live beside them
 * keys       outlive their job after a DELETE: released_ms is when it went, NULL while it is there */
static const char *const steps[] = {
        "CREATE TABLE jobs (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, tenant TEXT NOT NULL,"
        " priority INTEGER NOT NULL, state INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, outcome TEXT,"
        " created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT 0);"
        "CREATE TABLE bodies (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);"
        "CREATE TABLE records (seq INTEGER PRIMARY KEY, record BLOB NOT NULL);"
        "CREATE INDEX jobs_open ON jobs(seq) WHERE state <> 2;"
        "CREATE INDEX jobs_ended ON jobs(ended_ms) WHERE state = 2;",

        "CREATE TABLE keys (kind TEXT NOT NULL, tenant TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, body_hash TEXT NOT NULL,"
        " released_ms INTEGER, PRIMARY KEY (kind, tenant, key)) WITHOUT ROWID;"
        "CREATE INDEX keys_id ON keys(id);"
        "CREATE INDEX keys_released ON keys(released_ms) WHERE released_ms IS NOT NULL;",

        /* The condition stands in the query too, or the index could not serve it. */
        "CREATE INDEX jobs_kind ON jobs(kind, seq) WHERE kind <> 'task';",
};

int ledger_schema_version(void) {
        return (int)ARRAY_SIZE(steps);
}

int ledger_errno(sqlite3 *db, int rc) {
        int system_errno = db ? sqlite3_system_errno(db) : 0;
        switch (rc & 0xff) {
        case SQLITE_FULL: return -ENOSPC;
        case SQLITE_IOERR: return system_errno == ENOSPC || system_errno == EDQUOT ? -ENOSPC : rc == SQLITE_IOERR_NOMEM ? -ENOMEM : -EIO;
        case SQLITE_NOMEM: return -ENOMEM;
        case SQLITE_CONSTRAINT: return -EEXIST;
        case SQLITE_TOOBIG: return -EFBIG;
        case SQLITE_BUSY: case SQLITE_LOCKED: return -EBUSY;
        case SQLITE_CORRUPT: case SQLITE_NOTADB: return -EBADMSG;
        case SQLITE_READONLY: return -EROFS;
        case SQLITE_CANTOPEN: return system_errno > 0 ? -system_errno : -ENOENT;
        default: return -EIO;
        }
}

static int exec(sqlite3 *db, const char *sql, struct error *e, const char *what) {
        int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                return 0;
        return error_say(e, ledger_errno(db, rc), "%s: %s", what, sqlite3_errmsg(db));
}

static int user_version(sqlite3 *db, int *ret, struct error *e) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_step(s);
        int version = rc == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
        sqlite3_finalize(s);
        if (rc != SQLITE_ROW)
                return error_say(e, ledger_errno(db, rc), "read the ledger's version: %s", sqlite3_errmsg(db));
        *ret = version;
        return 0;
}

static int migrate_step(sqlite3 *db, int from, struct error *e) {
        char set[64], what[64];
        snprintf(what, sizeof what, "bring the ledger to version %d", from + 1);
        snprintf(set, sizeof set, "PRAGMA user_version = %d", from + 1);
        int r = exec(db, "BEGIN IMMEDIATE", e, what);
        if (r < 0)
                return r;
        r = exec(db, steps[from], e, what);
        if (r == 0)
                r = exec(db, set, e, what);
        if (r == 0)
                r = exec(db, "COMMIT", e, what);
        if (r < 0)
                sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return r;
}

int ledger_schema_migrate(sqlite3 *db, int version, struct error *e) {
        int at = 0;
        int r = user_version(db, &at, e);
        if (r < 0)
                return r;
        if (at > version)
                return error_say(e, -EPROTO, "the ledger has version %d, this program knows up to %d: it was written by a newer brig", at, version);
        for (; at < version; at++) {
                r = migrate_step(db, at, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Small caches: rows are small, and the daemon's memory is a promise. auto_vacuum works only before the first table. */
static const char writer_pragmas[] =
        "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-1024;"
        "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=16777216; PRAGMA wal_autocheckpoint=1000;";
static const char reader_pragmas[] = "PRAGMA cache_size=-512; PRAGMA temp_store=MEMORY;";

/* Requests carry patches and variables: the file is its owner's alone. SQLite would make it readable by all, and gives the log
 * beside it the mode that this one has. Before SQLite opens it here: closing any descriptor of it drops SQLite's locks. */
static int make_private(const char *path, struct error *e) {
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fchmod(fd, 0600) < 0)
                return error_set(e, -errno, "open %s", path);
        return 0;
}

int ledger_db_open(const char *home, int writer, sqlite3 **ret, struct error *e) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/" LEDGER_FILE, home) >= (int)sizeof path)
                return error_say(e, -ENAMETOOLONG, "BRIG_HOME is too long");
        int r = writer ? make_private(path, e) : 0;
        if (r < 0)
                return r;
        sqlite3 *db = NULL;
        int flags = SQLITE_OPEN_NOMUTEX | (writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
        int rc = sqlite3_open_v2(path, &db, flags, NULL);
        if (rc != SQLITE_OK)
                r = error_say(e, ledger_errno(db, rc), "open %s: %s", path, db ? sqlite3_errmsg(db) : "no memory");
        if (r == 0)
                sqlite3_busy_timeout(db, 5000);
        if (r == 0)
                r = exec(db, writer ? writer_pragmas : reader_pragmas, e, path);
        if (r == 0 && writer)
                r = ledger_schema_migrate(db, ledger_schema_version(), e);
        if (r < 0) {
                sqlite3_close(db);
                return r;
        }
        *ret = db;
        return 0;
}

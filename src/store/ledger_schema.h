/* The ledger's database: opening, the schema's versions, errors. Private to the ledger and its tests. */
#pragma once
#include <sqlite3.h>

#include "base/error.h"

#define LEDGER_FILE "brig.db"

/* Which version the program writes (PRAGMA user_version). */
int ledger_schema_version(void);
/* Brings the database from its version up to `version`, each step in one transaction. -EPROTO: it is newer than we know. */
int ledger_schema_migrate(sqlite3 *db, int version, struct error *e);
/* Opens with our pragmas; the writer also creates and migrates. */
int ledger_db_open(const char *home, int writer, sqlite3 **ret, struct error *e);
int ledger_errno(sqlite3 *db, int rc);    /* -errno of an SQLite result that is not OK, ROW or DONE */

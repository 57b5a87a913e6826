/* db.c - rows to an SQLite database. The only file that knows SQLite; a build without it says so.
 *
 * What a compile writes is made in memory and put in place as one file, as everything else that is
 * written here: a reader sees the old one or the new one, and a full disk leaves the old one. What is
 * added later goes in by transactions, which SQLite takes back when the disk is full.
 *
 * A failure is kept in the database and returned by the last call, so those who write rows look like
 * lists of rows.
 */
#include "profile/profile.h"

static const char schema[] =
    "CREATE TABLE run(key TEXT PRIMARY KEY, value TEXT);"
    "CREATE TABLE device(id INTEGER PRIMARY KEY, kind TEXT, bytes INTEGER, tiles INTEGER,"
    " peak INTEGER, always INTEGER, remote INTEGER);"
    "CREATE TABLE layer(id INTEGER PRIMARY KEY, name TEXT, block TEXT, file TEXT, line INTEGER);"
    "CREATE TABLE section(id INTEGER PRIMARY KEY, device INTEGER, phase INTEGER, step INTEGER,"
    " kind TEXT, name TEXT);"
    "CREATE TABLE kernel(id INTEGER PRIMARY KEY, section INTEGER, layer INTEGER, name TEXT, op "
    "TEXT,"
    " pass TEXT, nodes TEXT, flops REAL, read INTEGER, written INTEGER, pieces INTEGER,"
    " waits INTEGER, modelled REAL, code TEXT, cycles REAL);"
    "CREATE TABLE value(id INTEGER PRIMARY KEY, name TEXT, type TEXT, bytes INTEGER,"
    " depth INTEGER, device INTEGER, offset INTEGER, first INTEGER, last INTEGER, always INTEGER,"
    " kind TEXT, layer INTEGER);"
    "CREATE TABLE life(value INTEGER, first INTEGER, last INTEGER);"
    "CREATE TABLE edge(kernel INTEGER, value INTEGER, writes INTEGER);"
    "CREATE TABLE send(id INTEGER PRIMARY KEY, value INTEGER, section INTEGER,"
    " from_device INTEGER, to_device INTEGER, bytes INTEGER, readers TEXT);"
    "CREATE TABLE event(call INTEGER, replica INTEGER, device INTEGER, thread INTEGER,"
    " kernel INTEGER, section INTEGER, micro INTEGER, start REAL, end REAL);"
    "CREATE TABLE host(id INTEGER PRIMARY KEY, kind TEXT, name TEXT, thread INTEGER, start REAL,"
    " end REAL);"
    "CREATE TABLE counter(kernel INTEGER, name TEXT, value REAL);"
    "CREATE TABLE tile(device INTEGER, tile INTEGER, always INTEGER, peak INTEGER, code INTEGER,"
    " exchange INTEGER, gaps INTEGER);"
    "CREATE TABLE cycles(kernel INTEGER, compute REAL, exchange REAL, sync REAL, host REAL,"
    " matrix_use REAL);";

#ifdef TS_HAVE_SQLITE3
#include <sqlite3.h>
#include <unistd.h>

enum { TABLES = 16 };

typedef struct statement { /* of a table and the kinds of its columns */
    const char *table, *kinds;
    sqlite3_stmt *s;
} statement;

struct ts_db {
    sqlite3 *db;
    const char *path; /* for messages */
    statement known[TABLES];
    int nknown;
    sqlite3_stmt *row; /* ts_db_ask's */
    ts_status status;
    ts_error error;
};

static void keep(ts_db *d, int code)
{
    if (d->status || code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE)
        return;
    d->status = code == SQLITE_NOMEM ? TS_ERR_MEMORY : TS_ERR_FILE;
    ts_fail(d->status, "%s: %s", d->path ? d->path : "the profile",
            sqlite3_errcode(d->db) == code ? sqlite3_errmsg(d->db) : sqlite3_errstr(code));
    if (code == SQLITE_FULL)
        ts_error_hint("the disk is full; the profile is as it was before");
    d->error = *ts_last_error();
}

static void run(ts_db *d, const char *sql)
{
    if (!d->status)
        keep(d, ts_fault("profile") ? SQLITE_FULL : sqlite3_exec(d->db, sql, NULL, NULL, NULL));
}

static ts_status open_db(const char *path, int flags, ts_db **out)
{
    ts_db *d = *out = calloc(1, sizeof(*d));
    int code;

    if (!d)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a database");
    d->path = strcmp(path, ":memory:") ? path : NULL;
    code = sqlite3_open_v2(path, &d->db, flags, NULL);
    keep(d, code);
    if (!code)
        run(d, "PRAGMA synchronous = OFF");
    return d->status;
}

ts_status ts_db_new(ts_db **out)
{
    char version[64];

    if (open_db(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, out))
        return (*out)->status;
    snprintf(version, sizeof(version), "PRAGMA user_version = %d", (int)TS_PROFILE_VERSION);
    run(*out, version);
    run(*out, "BEGIN");
    run(*out, schema);
    return (*out)->status;
}

ts_status ts_db_open(const char *path, ts_db **out)
{
    if (open_db(path, SQLITE_OPEN_READWRITE, out))
        return (*out)->status;
    run(*out, "BEGIN IMMEDIATE");
    return (*out)->status;
}

/* INSERT INTO kernel VALUES(?,?,?) */
static sqlite3_stmt *insert(ts_db *d, const char *table, const char *kinds)
{
    ts_text sql = {0};
    statement *k;

    for (int i = 0; i < d->nknown; i++)
        if (!strcmp(d->known[i].table, table) && !strcmp(d->known[i].kinds, kinds))
            return d->known[i].s;
    if (d->nknown == TABLES)
        return NULL;
    ts_text_printf(&sql, "INSERT OR REPLACE INTO %s VALUES(", table);
    for (int i = 0; kinds[i]; i++)
        ts_text_printf(&sql, "%s?", i ? "," : "");
    ts_text_printf(&sql, ")");
    k = &d->known[d->nknown];
    *k = (statement){.table = table, .kinds = kinds};
    keep(d, sqlite3_prepare_v2(d->db, sql.s, -1, &k->s, NULL));
    ts_text_free(&sql);
    d->nknown += k->s != NULL;
    return k->s;
}

/* Bytes of the UTF-8 letter at s, 0: it is none. */
static int letter(const unsigned char *s)
{
    int n = *s < 0x80                 ? 1
            : *s >= 0xc2 && *s < 0xe0 ? 2
            : *s >= 0xe0 && *s < 0xf0 ? 3
            : *s >= 0xf0 && *s < 0xf5 ? 4
                                      : 0;

    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) ||
        (*s == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static bool is_text(const char *s)
{
    int n = 1;

    for (; *s && n; s += n)
        n = letter((const unsigned char *)s);
    return n;
}

/* A user's name may be any bytes; readers want text. */
static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    ts_text clean = {0};

    if (!text || is_text(text)) {
        sqlite3_bind_text(s, at, text, -1, SQLITE_TRANSIENT); /* NULL stays NULL */
        return;
    }
    while (*text) {
        int n = letter((const unsigned char *)text);
        ts_text_add(&clean, n ? text : "?", n ? (size_t)n : 1);
        text += n ? n : 1;
    }
    sqlite3_bind_text(s, at, clean.s, -1, SQLITE_TRANSIENT);
    ts_text_free(&clean);
}

static void bind_int(sqlite3_stmt *s, int at, int64_t x)
{
    if (x == TS_DB_NULL)
        sqlite3_bind_null(s, at);
    else
        sqlite3_bind_int64(s, at, x);
}

static void bind(sqlite3_stmt *s, const char *kinds, va_list args)
{
    for (int i = 0; kinds[i]; i++)
        switch (kinds[i]) {
        case 'i':
            bind_int(s, i + 1, va_arg(args, int));
            break;
        case 'l':
            bind_int(s, i + 1, va_arg(args, int64_t));
            break;
        case 'r':
            sqlite3_bind_double(s, i + 1, va_arg(args, double));
            break;
        default:
            bind_text(s, i + 1, va_arg(args, const char *));
        }
}

void ts_db_add(ts_db *d, const char *table, const char *kinds, ...)
{
    sqlite3_stmt *s = d->status ? NULL : insert(d, table, kinds);
    va_list args;

    if (!s)
        return;
    va_start(args, kinds);
    bind(s, kinds, args);
    va_end(args);
    keep(d, sqlite3_step(s));
    sqlite3_reset(s);
}

void ts_db_ask(ts_db *d, const char *sql, ts_db_row_fn *row, void *arg)
{
    sqlite3_stmt *outer = d->row;
    int code = SQLITE_DONE;

    if (d->status)
        return;
    keep(d, sqlite3_prepare_v2(d->db, sql, -1, &d->row, NULL));
    while (!d->status && (code = sqlite3_step(d->row)) == SQLITE_ROW)
        row(arg, d);
    keep(d, code);
    sqlite3_finalize(d->row);
    d->row = outer;
}

int64_t ts_db_int(const ts_db *d, int column)
{
    return sqlite3_column_int64(d->row, column);
}

double ts_db_real(const ts_db *d, int column)
{
    return sqlite3_column_double(d->row, column);
}

const char *ts_db_text(const ts_db *d, int column)
{
    const unsigned char *s = sqlite3_column_text(d->row, column);

    return s ? (const char *)s : "";
}

bool ts_db_null(const ts_db *d, int column)
{
    return sqlite3_column_type(d->row, column) == SQLITE_NULL;
}

/* The journal that a killed process left belongs to the file that is replaced: SQLite would take
 * back with it what is in the new one. */
static void remove_journal(const char *path)
{
    char name[4096];

    if ((size_t)snprintf(name, sizeof(name), "%s-journal", path) < sizeof(name))
        unlink(name);
}

ts_status ts_db_save(ts_db *d, const char *path)
{
    sqlite3_int64 bytes;
    unsigned char *all;
    ts_status s;

    run(d, "COMMIT");
    if (d->status)
        return ts_db_close(d);
    all = sqlite3_serialize(d->db, "main", &bytes, 0);
    remove_journal(path);
    s = all ? ts_file_write(path, all, (size_t)bytes)
            : ts_fail(TS_ERR_MEMORY, "no memory for the profile %s", path);
    sqlite3_free(all);
    (void)ts_db_close(d);
    return s;
}

ts_status ts_db_close(ts_db *d)
{
    ts_status s;

    if (!d)
        return TS_OK;
    for (int i = 0; i < d->nknown; i++)
        sqlite3_finalize(d->known[i].s);
    if (!sqlite3_get_autocommit(d->db))
        run(d, "COMMIT");
    s = d->status;
    sqlite3_close(d->db); /* what was not committed is taken back */
    if (s)
        ts_error_set(&d->error);
    free(d);
    return s;
}

#else

struct ts_db {
    int none;
};

static ts_status missing(ts_db **out)
{
    (void)schema;
    *out = NULL;
    ts_fail(TS_ERR_UNSUPPORTED, "this build writes no profiles: it was made without SQLite");
    ts_error_hint("install libsqlite3-dev (3.36 or newer) and build again");
    return TS_ERR_UNSUPPORTED;
}

ts_status ts_db_new(ts_db **out)
{
    return missing(out);
}

ts_status ts_db_open(const char *path, ts_db **out)
{
    (void)path;
    return missing(out);
}

void ts_db_add(ts_db *d, const char *table, const char *kinds, ...)
{
    (void)d, (void)table, (void)kinds;
}

void ts_db_ask(ts_db *d, const char *sql, ts_db_row_fn *row, void *arg)
{
    (void)d, (void)sql, (void)row, (void)arg;
}

int64_t ts_db_int(const ts_db *d, int column)
{
    (void)d, (void)column;
    return 0;
}

double ts_db_real(const ts_db *d, int column)
{
    (void)d, (void)column;
    return 0;
}

const char *ts_db_text(const ts_db *d, int column)
{
    (void)d, (void)column;
    return "";
}

bool ts_db_null(const ts_db *d, int column)
{
    (void)d, (void)column;
    return true;
}

ts_status ts_db_save(ts_db *d, const char *path)
{
    (void)path;
    return ts_db_close(d);
}

ts_status ts_db_close(ts_db *d)
{
    (void)d;
    return TS_ERR_UNSUPPORTED;
}
#endif

void ts_db_set(ts_db *d, const char *key, const char *value)
{
    ts_db_add(d, "run", "tt", key, value);
}

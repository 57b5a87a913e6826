/* page.c - a profile as one page: what profile.db says, packed into an HTML file that needs nothing else.
 *
 *   profile.db --SELECT *--> JSON --deflate--> base64 --> between the two halves of the template
 *
 *   {"profiles": [{"words": ["conv1", ...],
 *                  "tables": {"kernel": {"name": {"words": [0, 1, 1, ...]}, "flops": [1e6, ...]}}}]}
 *
 * A table is packed by column, whatever columns it has: numbers beside their like deflate well, and a
 * column that the writer adds is in the page without a change here. Texts are numbers in one list of
 * words, so that the same generated C is there once. Times (start, end) are nanoseconds since the row
 * before and how long it took: small numbers, where seconds would be 17 digits each.
 *
 * The page itself is written in src/show/page/ and put into the library by tools/page.py. The browser
 * inflates the data (DecompressionStream); all that is shown is computed there.
 */
#include "show/show.h"

#ifdef TS_HAVE_SQLITE3
#include <openssl/evp.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <zlib.h>

enum { SCHEMA = 1 }; /* of profile.db, its user_version */

/* The rows are in the order of their queries. The earliest events are in the page, which stays small;
 * sums (time, seen) are over all. A kernel's time is that of the thread that was longest at it: threads
 * meet before anything that depends on them. */
static const struct {
    const char *name, *query;
} tables[] = {
    {"run", "SELECT * FROM run ORDER BY key"},
    {"device", "SELECT * FROM device ORDER BY id"},
    {"layer", "SELECT * FROM layer ORDER BY id"},
    {"section", "SELECT * FROM section ORDER BY id"},
    {"kernel", "SELECT * FROM kernel ORDER BY id"},
    {"value", "SELECT * FROM value ORDER BY id"},
    {"life", "SELECT * FROM life ORDER BY value, first"},
    {"edge", "SELECT * FROM edge ORDER BY kernel, value"},
    {"send", "SELECT * FROM send ORDER BY id"},
    {"event", "SELECT * FROM event ORDER BY start, end DESC LIMIT 300000"},
    {"host", "SELECT * FROM host ORDER BY start, end DESC"},
    {"counter", "SELECT * FROM counter ORDER BY kernel"},
    {"tile", "SELECT * FROM tile ORDER BY device, tile"},
    {"cycles", "SELECT * FROM cycles ORDER BY kernel"},
    {"time", "SELECT kernel, max(n) AS runs, max(t) AS seconds FROM"
             " (SELECT kernel, count(*) AS n, sum(end - start) AS t FROM event"
             "  WHERE kernel IS NOT NULL GROUP BY kernel, replica, thread)"
             " GROUP BY kernel ORDER BY kernel"},
    {"seen", "SELECT count(*) AS events, count(DISTINCT call) AS calls,"
             " max(1, count(DISTINCT replica)) AS replicas FROM event"},
};

typedef struct packer {
    sqlite3 *db;
    sqlite3_stmt *find; /* the number of a word */
    int64_t nwords;
    ts_text words, json;
} packer;

static ts_status damaged(packer *p, const char *path, const char *doing)
{
    ts_fail(TS_ERR_FILE, "%s cannot be read as a profile: %s", path, sqlite3_errmsg(p->db));
    ts_error_doing("%s", doing);
    return TS_ERR_FILE;
}

/* --- columns --- */

static void add_json_text(ts_text *t, const unsigned char *s, int len)
{
    ts_text_add(t, "\"", 1);
    for (int i = 0; i < len; i++) {
        if (s[i] == '"' || s[i] == '\\')
            ts_text_printf(t, "\\%c", s[i]);
        else if (s[i] < 0x20)
            ts_text_printf(t, "\\u%04x", s[i]);
        else
            ts_text_add(t, (const char *)&s[i], 1);
    }
    ts_text_add(t, "\"", 1);
}

/* The number of a text in the list of words, to which it is added when it is new. */
static int64_t word(packer *p, sqlite3_value *text)
{
    int64_t id = -1;

    sqlite3_reset(p->find);
    sqlite3_bind_value(p->find, 1, text);
    sqlite3_bind_int64(p->find, 2, p->nwords);
    if (sqlite3_step(p->find) == SQLITE_ROW)
        id = sqlite3_column_int64(p->find, 0);
    if (id != p->nwords)
        return id;
    ts_text_add(&p->words, ",", p->nwords > 0);
    add_json_text(&p->words, sqlite3_value_text(text), sqlite3_value_bytes(text));
    p->nwords++;
    return id;
}

/* One column of the rows that a query gives. */
typedef struct column {
    ts_text cells;
    bool start, end, text;
} column;

static int64_t nanoseconds(double seconds)
{
    return (int64_t)(seconds * 1e9 + (seconds < 0 ? -0.5 : 0.5));
}

static void add_number(ts_text *t, double v)
{
    if (v == (double)(int64_t)v && v > -1e15 && v < 1e15)
        ts_text_printf(t, "%lld", (long long)v);
    else if (v - v == 0)
        ts_text_printf(t, "%.9g", v);
    else
        ts_text_add(t, "null", 4); /* infinite or not a number: JSON has neither */
}

static void add_cell(packer *p, column *c, sqlite3_value *v)
{
    switch (sqlite3_value_type(v)) {
    case SQLITE_INTEGER:
        ts_text_printf(&c->cells, "%lld", (long long)sqlite3_value_int64(v));
        return;
    case SQLITE_FLOAT:
        add_number(&c->cells, sqlite3_value_double(v));
        return;
    case SQLITE_TEXT:
        c->text = true;
        ts_text_printf(&c->cells, "%lld", (long long)word(p, v));
        return;
    default:
        ts_text_add(&c->cells, "null", 4);
    }
}

/* A time: start is counted from the row before, end from the start. */
static void add_time(const column *of, ts_text *cells, sqlite3_value *v, int64_t *begin)
{
    int64_t at = nanoseconds(sqlite3_value_double(v));

    ts_text_printf(cells, "%lld", (long long)(at - *begin));
    if (of->start)
        *begin = at;
}

static void add_row(packer *p, sqlite3_stmt *s, column *c, int n, int64_t *begin)
{
    for (int i = 0; i < n; i++) {
        ts_text_add(&c[i].cells, ",", c[i].cells.len > 0);
        if (c[i].start || c[i].end)
            add_time(&c[i], &c[i].cells, sqlite3_column_value(s, i), begin);
        else
            add_cell(p, &c[i], sqlite3_column_value(s, i));
    }
}

/* --- tables --- */

static void write_columns(packer *p, sqlite3_stmt *s, column *c, int n)
{
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(s, i);
        ts_text_add(&p->json, ",", i > 0);
        add_json_text(&p->json, (const unsigned char *)name, (int)strlen(name));
        ts_text_printf(&p->json, c[i].text ? ":{\"words\":[" : ":[");
        ts_text_add(&p->json, c[i].cells.s ? c[i].cells.s : "", c[i].cells.len);
        ts_text_printf(&p->json, c[i].text ? "]}" : "]");
        ts_text_free(&c[i].cells);
    }
}

static bool pack_rows(packer *p, sqlite3_stmt *s)
{
    int n = sqlite3_column_count(s), rc;
    column *c = calloc((size_t)n + 1, sizeof(column));
    int64_t begin = 0;

    for (int i = 0; i < n; i++) {
        c[i].start = !strcmp(sqlite3_column_name(s, i), "start");
        c[i].end = !strcmp(sqlite3_column_name(s, i), "end");
    }
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        add_row(p, s, c, n, &begin);
    write_columns(p, s, c, n);
    free(c);
    return rc == SQLITE_DONE;
}

static ts_status pack_table(packer *p, const char *path, int i)
{
    sqlite3_stmt *s = NULL;
    bool ok = sqlite3_prepare_v2(p->db, tables[i].query, -1, &s, NULL) == SQLITE_OK;

    ts_text_printf(&p->json, "%s\"%s\":{", i ? "," : "", tables[i].name);
    if (ok || strcmp(tables[i].name, "life")) /* which was added later, and may be missing */
        ok = ok && pack_rows(p, s);
    else
        ok = true;
    ts_text_printf(&p->json, "}");
    sqlite3_finalize(s);
    return ok ? TS_OK : damaged(p, path, tables[i].name);
}

/* --- a database --- */

static ts_status check_schema(packer *p, const char *path)
{
    sqlite3_stmt *s = NULL;
    int version = -1;

    if (sqlite3_prepare_v2(p->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    if (version < 0)
        return damaged(p, path, "reading the schema's version");
    if (version == SCHEMA)
        return TS_OK;
    ts_fail(TS_ERR_FILE, "%s has version %d of the schema; this version reads %d", path, version,
            SCHEMA);
    ts_error_hint("profile again, or report with the version of tessera that wrote it");
    return TS_ERR_FILE;
}

/* The list of words, in memory whatever the database is; nothing in the file is run or changed. */
static const char *const prepare = "PRAGMA temp_store = memory; PRAGMA trusted_schema = off;"
                                   "CREATE TEMP TABLE word(id INTEGER PRIMARY KEY, text UNIQUE)";
static const char *const find_word = "INSERT INTO temp.word(id, text) VALUES(?2, ?1)"
                                     " ON CONFLICT(text) DO UPDATE SET text = text RETURNING id";

static ts_status pack_tables(packer *p, const char *path)
{
    if (sqlite3_exec(p->db, prepare, NULL, NULL, NULL) ||
        sqlite3_prepare_v2(p->db, find_word, -1, &p->find, NULL))
        return damaged(p, path, "opening it");
    TS_TRY(check_schema(p, path));
    for (int i = 0; i < TS_COUNT(tables); i++)
        TS_TRY(pack_table(p, path, i));
    return TS_OK;
}

/* A folder stands for the profile.db in it. */
static void find_file(const char *given, char *path, size_t size)
{
    struct stat st;
    bool folder = !stat(given, &st) && S_ISDIR(st.st_mode);

    snprintf(path, size, folder ? "%s/profile.db" : "%s", given);
}

static ts_status open_profile(const char *given, packer *p, char *path, size_t size)
{
    struct stat st;

    find_file(given, path, size);
    if (stat(path, &st)) {
        ts_fail(TS_ERR_FILE, "there is no profile in %s", given);
        ts_error_hint("tessera profile MODEL, or --profile DIR of tessera train, writes one");
        return TS_ERR_FILE;
    }
    if (sqlite3_open_v2(path, &p->db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return damaged(p, path, "opening it");
    return TS_OK;
}

static ts_status pack(const char *given, ts_text *json)
{
    packer p = {0};
    char path[4096];
    ts_status s = open_profile(given, &p, path, sizeof(path));

    s = s ? s : pack_tables(&p, path);
    sqlite3_finalize(p.find);
    sqlite3_close(p.db);
    if (!s) {
        ts_text_printf(json, "{\"words\":[");
        ts_text_add(json, p.words.s ? p.words.s : "", p.words.len);
        ts_text_printf(json, "],\"tables\":{");
        ts_text_add(json, p.json.s, p.json.len);
        ts_text_printf(json, "}}");
    }
    ts_text_free(&p.words);
    ts_text_free(&p.json);
    return s;
}

/* --- the page --- */

/* Deflated and as base64, malloced. */
static ts_status squeeze(const ts_text *json, char **out, size_t *len)
{
    uLongf bytes = compressBound((uLong)json->len);
    void *small = NULL, *text = NULL;
    ts_status s = ts_alloc(bytes, "the page's data", &small);

    s = s ? s : ts_alloc(bytes / 3 * 4 + 8, "the page's data", &text);
    if (!s && compress2(small, &bytes, (const Bytef *)json->s, (uLong)json->len, 9) != Z_OK)
        s = ts_fail(TS_ERR_MEMORY, "the page's data cannot be compressed");
    if (!s)
        *len = (size_t)EVP_EncodeBlock(text, small, (int)bytes);
    free(small);
    *out = text;
    return s;
}

static ts_status write_page(const char *path, const char *data, size_t len)
{
    ts_file_out f;
    ts_status s;

    TS_TRY(ts_file_begin(&f, path));
    s = ts_file_put(&f, ts_page_head, strlen(ts_page_head));
    s = s ? s : ts_file_put(&f, data, len);
    s = s ? s : ts_file_put(&f, ts_page_tail, strlen(ts_page_tail));
    return ts_file_end(&f, 0644, s);
}

static ts_status pack_all(const char *profile, const char *compare, ts_text *json)
{
    ts_text_printf(json, "{\"profiles\":[");
    TS_TRY(pack(profile, json));
    if (compare) {
        ts_text_add(json, ",", 1);
        TS_TRY(pack(compare, json));
    }
    ts_text_printf(json, "]}");
    return TS_OK;
}

ts_status ts_report(const char *profile, const char *compare, const char *path)
{
    ts_text json = {0};
    char *data = NULL;
    size_t len = 0;
    ts_status s;

    if (!profile || !path)
        return ts_fail(TS_ERR_ARG, "ts_report needs a profile and a path for the page");
    s = pack_all(profile, compare, &json);
    s = s ? s : squeeze(&json, &data, &len);
    s = s ? s : write_page(path, data, len);
    free(data);
    ts_text_free(&json);
    return s;
}

#else

ts_status ts_report(const char *profile, const char *compare, const char *path)
{
    (void)profile, (void)compare, (void)path;
    ts_fail(TS_ERR_UNSUPPORTED, "this build reads no profiles: it has no SQLite");
    ts_error_hint("install libsqlite3-dev and build again");
    return TS_ERR_UNSUPPORTED;
}

#endif

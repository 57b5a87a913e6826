/* csv.c - a table of numbers on disk that a run adds to, row by row.
 *
 * A row reaches the file in one write, so a reader or a crash sees whole rows; a crash of the
 * machine may still cut the last one short, which resuming repairs. Cells are quoted as RFC 4180
 * has it.
 */
#include "base/base.h"
#include "tessera/show.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

struct ts_csv {
    char *path;
    int fd, columns;
};

static void add_cell(ts_text *t, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        ts_text_add(t, s, strlen(s));
        return;
    }
    ts_text_add(t, "\"", 1);
    for (; *s; s++)
        ts_text_add(t, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    ts_text_add(t, "\"", 1);
}

static void add_row(ts_text *t, const char *const *cells, int n)
{
    for (int i = 0; i < n; i++) {
        ts_text_add(t, ",", i > 0);
        if (cells[i])
            add_cell(t, cells[i]);
    }
    ts_text_add(t, "\n", 1);
}

/* The shortest text that reads back as the same number. */
static void add_number(ts_text *t, double v)
{
    char s[40];

    for (int digits = 6; digits <= 17; digits++) {
        ts_format(s, sizeof(s), "%.*g", digits, v);
        if (ts_to_real(s, NULL) == v)
            break;
    }
    ts_text_add(t, s, strlen(s));
}

static ts_status other_columns(const char *path, const char *line, size_t n)
{
    ts_fail(TS_ERR_FILE, "%s has other columns: %.*s", path, (int)TS_MIN(n, 200), line);
    ts_error_hint("choose another file, or start this one anew without resume");
    return TS_ERR_FILE;
}

/* The bytes up to the end of the last row that has one. */
static size_t whole_rows(const char *data, size_t len)
{
    bool quoted = false;
    size_t whole = 0;

    for (size_t i = 0; i < len; i++) {
        quoted ^= data[i] == '"';
        if (data[i] == '\n' && !quoted)
            whole = i + 1;
    }
    return whole;
}

/* Checks what an earlier run left; *keep bytes of it are whole rows, 0: it is as good as new. */
static ts_status check_rows(const char *path, const ts_text *head, size_t *keep)
{
    char *data;
    size_t len, whole;
    ts_status s = TS_OK;

    TS_TRY(ts_file_read(path, &data, &len));
    whole = whole_rows(data, len);
    if (memcmp(data, head->s, TS_MIN(len, head->len)))
        s = other_columns(path, data, strcspn(data, "\r\n"));
    free(data);
    *keep = whole < head->len ? 0 : whole;
    return s;
}

static ts_status start(const char *path, const ts_text *head, bool resume)
{
    struct stat st;
    size_t keep = 0;

    if (resume && !stat(path, &st) && st.st_size)
        TS_TRY(check_rows(path, head, &keep));
    if (!keep)
        return ts_file_write(path, head->s, head->len);
    if (truncate(path, (off_t)keep))
        return ts_fail(TS_ERR_FILE, "cannot shorten %s: %s", path, strerror(errno));
    return TS_OK;
}

static ts_status open_rows(const char *path, int columns, ts_csv **out)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    *out = calloc(1, sizeof(**out));
    if (!*out || !((*out)->path = strdup(path))) {
        close(fd);
        free(*out);
        *out = NULL;
        return ts_fail(TS_ERR_MEMORY, "no memory for the log %s", path);
    }
    (*out)->fd = fd;
    (*out)->columns = columns;
    return TS_OK;
}

ts_status ts_csv_open(const char *path, const char *const *columns, int n, bool resume,
                      ts_csv **out)
{
    ts_text head = {0};
    ts_status s;

    if (!out || !path || !columns || n < 1)
        return ts_fail(TS_ERR_ARG, "a table needs a path, columns and a place for its handle");
    *out = NULL;
    add_row(&head, columns, n);
    s = start(path, &head, resume);
    if (!s)
        s = open_rows(path, n, out);
    ts_text_free(&head);
    if (s)
        ts_error_doing("opening the log %s", path);
    return s;
}

static ts_status put_row(ts_csv *c, ts_text *row)
{
    ts_status s = ts_file_append(c->fd, c->path, row->s, row->len);

    ts_text_free(row);
    if (s)
        ts_error_doing("adding a row to %s", c->path);
    return s;
}

ts_status ts_csv_row(ts_csv *c, const char *const *cells)
{
    ts_text row = {0};

    if (!c || !cells)
        return ts_fail(TS_ERR_ARG, "a row needs an open table and cells");
    add_row(&row, cells, c->columns);
    return put_row(c, &row);
}

ts_status ts_csv_numbers(ts_csv *c, const double *values)
{
    ts_text row = {0};

    if (!c || !values)
        return ts_fail(TS_ERR_ARG, "a row needs an open table and numbers");
    for (int i = 0; i < c->columns; i++) {
        ts_text_add(&row, ",", i > 0);
        if (!isnan(values[i]))
            add_number(&row, values[i]);
    }
    ts_text_add(&row, "\n", 1);
    return put_row(c, &row);
}

void ts_csv_close(ts_csv *c)
{
    if (!c)
        return;
    close(c->fd);
    free(c->path);
    free(c);
}

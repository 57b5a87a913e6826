/* csv.c - a table of numbers with a label in each row.
 *
 *   length,width,kind        names, if any field but the label's is not a number
 *   5.1,3.5,"setosa"         fields may be quoted, "" is a quote, and a quoted field may span lines
 *
 * Labels that are whole numbers from 0 are the classes themselves; other labels are words, and the
 * classes are the words in sorted order. Errors name the line and the column.
 */
#include "data/data.h"
#include <math.h>

enum { MOST_LABEL = 1 << 20 };

typedef struct table {
    const char *path;
    char *at, *end;
    int64_t line;     /* of `at`, from 1 */
    int64_t row_line; /* where the current row began */
    char **fields;    /* of the current row; they and labels point into the text */
    size_t nfields, fields_room;
    char **names; /* of the columns; NULL: there is no header */
    size_t ncolumns, label;
    float *numbers; /* rows x (ncolumns - 1) */
    size_t nnumbers, numbers_room;
    char **labels;
    size_t nlabels, labels_room;
} table;

/* Room for one item more in an array of n. */
static ts_status grow(const table *t, void *array, size_t n, size_t item, size_t *room)
{
    size_t more = *room ? 2 * *room : 256;
    void *p;

    if (n < *room)
        return TS_OK;
    p = ts_fault("alloc") ? NULL : realloc(*(void **)array, more * item);
    if (!p)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes for %s", more * item, t->path);
    *(void **)array = p;
    *room = more;
    return TS_OK;
}

/* --- fields: cut out of the text in place --- */

static ts_status bad_line(const table *t, const char *what)
{
    return ts_fail(TS_ERR_PARSE, "%s, line %ld: %s", t->path, (long)t->line, what);
}

static bool field_ends(const table *t)
{
    return t->at >= t->end || *t->at == ',' || *t->at == '\n' || *t->at == '\r';
}

/* *to ends up behind the last character, which is never behind where it was read. */
static ts_status unquote(table *t, char **to)
{
    char *p = *to;
    int64_t line = t->line;
    bool closed = false;

    for (t->at++; t->at < t->end && !closed; t->at++) {
        closed = *t->at == '"' && t->at[1] != '"';
        if (closed)
            continue;
        t->at += *t->at == '"';
        line += *t->at == '\n';
        *p++ = *t->at;
    }
    if (!closed)
        return bad_line(t, "a quote is never closed");
    t->line = line;
    if (!field_ends(t))
        return bad_line(t, "a quoted field goes on after its quote");
    *to = p;
    return TS_OK;
}

static void skip_line_end(table *t)
{
    if (t->at < t->end && *t->at == '\r')
        t->at++;
    if (t->at < t->end && *t->at == '\n')
        t->at++;
    t->line++;
}

static ts_status next_field(table *t, char **field, bool *last)
{
    char *to = *field = t->at;

    if (*t->at == '"')
        TS_TRY(unquote(t, &to));
    else
        while (!field_ends(t))
            to = ++t->at;
    *last = t->at >= t->end || *t->at != ',';
    if (*last)
        skip_line_end(t);
    else
        t->at++;
    *to = 0;
    return TS_OK;
}

/* *more is false at the end of the file. Empty lines are no rows. */
static ts_status next_row(table *t, bool *more)
{
    bool last = false;

    while (t->at < t->end && (*t->at == '\n' || *t->at == '\r'))
        skip_line_end(t);
    *more = t->at < t->end;
    t->row_line = t->line;
    for (t->nfields = 0; *more && !last; t->nfields++) {
        TS_TRY(grow(t, &t->fields, t->nfields, sizeof(char *), &t->fields_room));
        TS_TRY(next_field(t, &t->fields[t->nfields], &last));
    }
    return TS_OK;
}

/* --- rows --- */

static bool to_number(const char *s, float *out)
{
    char *end;
    double x = ts_to_real(s, &end);

    while (*end == ' ' || *end == '\t')
        end++;
    *out = (float)x;
    return end != s && !*end && isfinite(*out);
}

static ts_status not_a_number(const table *t, size_t column)
{
    const char *name = t->names ? t->names[column] : "";

    ts_fail(TS_ERR_PARSE, "%s, line %ld: '%.60s' in column %zu%s%.60s%s is not a number", t->path,
            (long)t->row_line, t->fields[column], column, *name ? " (" : "", name,
            *name ? ")" : "");
    ts_error_hint("all columns but the label's are finite numbers; is the label's column right?");
    return TS_ERR_PARSE;
}

static ts_status add_row(table *t)
{
    if (t->nfields != t->ncolumns)
        return ts_fail(TS_ERR_PARSE, "%s, line %ld: the row has %zu fields, and the first has %zu",
                       t->path, (long)t->row_line, t->nfields, t->ncolumns);
    for (size_t i = 0; i < t->ncolumns; i++) {
        if (i == t->label)
            continue;
        TS_TRY(grow(t, &t->numbers, t->nnumbers, sizeof(float), &t->numbers_room));
        if (!to_number(t->fields[i], &t->numbers[t->nnumbers++]))
            return not_a_number(t, i);
    }
    TS_TRY(grow(t, &t->labels, t->nlabels, sizeof(char *), &t->labels_room));
    t->labels[t->nlabels++] = t->fields[t->label];
    return TS_OK;
}

/* --- which column is the label, and is there a header? --- */

static bool column_called(const table *t, const char *name, size_t *column)
{
    for (*column = 0; *column < t->nfields; ++*column)
        if (!strcmp(t->fields[*column], name))
            return true;
    return false;
}

static ts_status find_named(table *t, const char *name)
{
    if (column_called(t, name, &t->label))
        return TS_OK;
    ts_fail(TS_ERR_ARG, "%s has no column called '%s'", t->path, name);
    ts_error_hint("its first line starts with '%.60s'", t->fields[0]);
    return TS_ERR_ARG;
}

/* A number counts columns, from the end when it is negative; anything else is a name. */
static ts_status find_label(table *t, const char *label)
{
    long i = -1, columns = (long)t->ncolumns;
    char *end;

    if (!label && column_called(t, "label", &t->label))
        return TS_OK;
    if (label) {
        i = strtol(label, &end, 10);
        if (end == label || *end)
            return find_named(t, label);
    }
    if (i < -columns || i >= columns)
        return ts_fail(TS_ERR_ARG, "%s has no column %ld: it has %ld", t->path, i, columns);
    t->label = (size_t)(i < 0 ? i + columns : i);
    return TS_OK;
}

static bool looks_like_header(const table *t)
{
    float x;

    for (size_t i = 0; i < t->nfields; i++)
        if (i != t->label && !to_number(t->fields[i], &x))
            return true;
    return false;
}

static ts_status read_first_row(table *t, const ts_dataset_options *opt)
{
    bool more;

    TS_TRY(next_row(t, &more));
    if (!more)
        return ts_fail(TS_ERR_PARSE, "%s is empty", t->path);
    t->ncolumns = t->nfields;
    if (t->ncolumns < 2) {
        ts_fail(TS_ERR_PARSE, "%s has one column: a row needs numbers and a label", t->path);
        ts_error_hint("fields are separated by commas");
        return TS_ERR_PARSE;
    }
    TS_TRY(find_label(t, opt->label));
    if (opt->header < 0 || (!opt->header && !looks_like_header(t)))
        return add_row(t);
    t->names = t->fields; /* and the rows get an array of their own */
    t->fields = NULL;
    t->fields_room = 0;
    return TS_OK;
}

static ts_status read_rows(table *t, const ts_dataset_options *opt)
{
    bool more = true;

    TS_TRY(read_first_row(t, opt));
    while (!opt->limit || t->nlabels < (size_t)opt->limit) {
        TS_TRY(next_row(t, &more));
        if (!more)
            break;
        TS_TRY(add_row(t));
    }
    return t->nlabels ? TS_OK : ts_fail(TS_ERR_PARSE, "%s has a header and no rows", t->path);
}

/* --- labels --- */

static bool to_class(const char *s, int32_t *out)
{
    char *end;
    long x = strtol(s, &end, 10);

    *out = (int32_t)x;
    return end != s && !*end && x >= 0 && x < MOST_LABEL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each word once, sorted; returns how many. */
static size_t sort_words(const table *t, char **words)
{
    size_t n = 0;

    memcpy(words, t->labels, t->nlabels * sizeof(*words));
    qsort(words, t->nlabels, sizeof(*words), by_text);
    for (size_t i = 0; i < t->nlabels; i++)
        if (!n || strcmp(words[n - 1], words[i]))
            words[n++] = words[i];
    return n;
}

static ts_status use_words(const table *t, char **words, ts_dataset *d)
{
    size_t n = sort_words(t, words);

    if (n > MOST_LABEL)
        return ts_fail(TS_ERR_UNSUPPORTED, "%s has %zu different labels; we take up to %d", t->path,
                       n, MOST_LABEL);
    d->nclasses = (int)n;
    d->classes = TS_NEWS(d->arena, const char *, n);
    for (size_t i = 0; i < n; i++)
        d->classes[i] = ts_arena_strdup(d->arena, words[i]);
    for (int64_t i = 0; i < d->count; i++) {
        char **found = bsearch(&t->labels[i], words, n, sizeof(*words), by_text);
        d->labels[i] = (int32_t)(found - words);
    }
    return TS_OK;
}

static ts_status name_classes(const table *t, ts_dataset *d)
{
    char **words;
    ts_status s;

    TS_TRY(ts_alloc(t->nlabels * sizeof(*words), "labels", (void **)&words));
    s = use_words(t, words, d);
    free(words);
    return s;
}

static ts_status set_labels(const table *t, ts_dataset *d)
{
    for (int64_t i = 0; i < d->count; i++)
        if (!to_class(t->labels[i], &d->labels[i]))
            return name_classes(t, d);
    return ts_dataset_number_classes(d, 0, t->path);
}

/* --- the whole --- */

static ts_status parse(table *t, const ts_dataset_options *opt, ts_dataset **d)
{
    ts_status s;

    if (memchr(t->at, 0, (size_t)(t->end - t->at)))
        return ts_fail(TS_ERR_PARSE, "%s is not text: it has a zero byte", t->path);
    if (t->end - t->at >= 3 && !memcmp(t->at, "\xef\xbb\xbf", 3))
        t->at += 3; /* the byte order mark that some programs write */
    TS_TRY(read_rows(t, opt));
    TS_TRY(
        ts_dataset_new(TS_F32, (int64_t)t->nlabels, 1, (int64_t[]){(int64_t)t->ncolumns - 1}, d));
    memcpy((*d)->sample.data, t->numbers, t->nnumbers * sizeof(float));
    s = set_labels(t, *d);
    if (s) {
        ts_dataset_free(*d);
        *d = NULL;
    }
    return s;
}

ts_status ts_csv_parse(const char *path, char *data, size_t len, const ts_dataset_options *opt,
                       ts_dataset **out)
{
    table t = {.path = path, .at = data, .end = data + len, .line = 1};
    ts_status s = parse(&t, opt, out);

    free(t.fields);
    free(t.names);
    free(t.numbers);
    free(t.labels);
    return s;
}

ts_status ts_data_csv(const char *path, const ts_dataset_options *opt, ts_dataset **out)
{
    char *data;
    size_t len;
    ts_status s;

    TS_TRY(ts_file_read(path, &data, &len));
    s = ts_csv_parse(path, data, len, opt, out);
    free(data);
    return s;
}

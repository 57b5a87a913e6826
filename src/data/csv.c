/* csv.c - a table: numbers and words in columns, of which one or some are to be learned.
 *
 *   length,colour,kind       names, where a column has a word here and a number below
 *   5.1, red, "setosa"       fields may be quoted, "" is a quote, and a quoted field may span lines;
 *                            blanks around a field are not part of it
 *
 * A column of words becomes a column of 0 and 1 for each of its words, in sorted order. Labels that
 * are whole numbers from 0 are the classes themselves; words are classes in sorted order; other
 * numbers, and several columns, are targets. What the columns are (their words, the means that stand
 * for what is missing) is a text that a dataset gives and another file of the same table is read by:
 *
 *   length<tab>number<tab>5.4
 *   colour<tab>words<tab>blue<tab>red
 *   kind<tab>label<tab>setosa<tab>virginica
 *
 * Errors name the line and the column.
 */
#include "data/data.h"
#include "show/show.h"
#include <math.h>

enum { MOST_LABEL = 1 << 20, MOST_WORDS = 1000 };

typedef struct column {
    const char *name;  /* the header's, or its number as text */
    bool label, words; /* else a number */
    bool unused;
    double mean;       /* of the numbers */
    const char **word; /* sorted */
    int nword;
    int64_t at; /* in the file; -1: not there */
} column;

typedef struct table {
    const char *path;
    char *at, *end;
    char separator;
    int64_t line;     /* of `at`, from 1 */
    int64_t row_line; /* where the current row began */
    char **fields;    /* of the current row; they and the cells point into the text */
    size_t nfields, fields_room;
    char **names; /* of the columns; NULL: there is no header */
    size_t ncolumns;
    char **cells; /* rows x ncolumns */
    size_t ncells, cells_room;
    int64_t *lines; /* of the rows */
    size_t nrows, lines_room;
    ts_arena *a;
    column *columns;
    int ncolumn, nlabel;
    const ts_dataset_options *opt;
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
    return t->at >= t->end || *t->at == t->separator || *t->at == '\n' || *t->at == '\r';
}

/* Around fields, as people type them. */
static void skip_blanks(table *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t') && *t->at != t->separator)
        t->at++;
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
    skip_blanks(t);
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

/* Up to the blanks before its end. */
static char *plain_field(table *t)
{
    char *first = t->at, *to;

    while (!field_ends(t))
        t->at++;
    for (to = t->at; to > first && (to[-1] == ' ' || to[-1] == '\t');)
        to--;
    return to;
}

static ts_status next_field(table *t, char **field, bool *last)
{
    char *to;

    skip_blanks(t);
    to = *field = t->at;
    if (*t->at == '"')
        TS_TRY(unquote(t, &to));
    else
        to = plain_field(t);
    *last = t->at >= t->end || *t->at != t->separator;
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

/* --- cells --- */

/* A number, perhaps one that is none here: infinite, or beyond what floats have. */
static bool is_real(const char *s, float *out)
{
    char *end;
    double x = ts_to_real(s, &end);

    while (*end == ' ' || *end == '\t')
        end++;
    *out = (float)x;
    return end != s && !*end;
}

static bool to_number(const char *s, float *out)
{
    return is_real(s, out) && isfinite(*out);
}

/* 12,5 or 1,234: which of the two numbers it is nobody can tell. */
static bool has_comma(const char *s)
{
    static const char digits[] = "0123456789";
    size_t n;

    s += *s == '-' || *s == '+';
    n = strspn(s, digits);
    return n && s[n] == ',' && s[n + 1] && !s[n + 1 + strspn(s + n + 1, "0123456789,.")];
}

/* As people and programs write that a value is not known. */
static bool is_missing(const char *s)
{
    static const char *const words[] = {"",    "NA",  "N/A",  "na",   "n/a",
                                        "nan", "NaN", "null", "NULL", "?"};

    s += strspn(s, " ");
    for (int i = 0; i < TS_COUNT(words); i++)
        if (!strcmp(s, words[i]))
            return true;
    return false;
}

/* Meant as a number; people do not write words so. */
static bool looks_like_number(const char *s)
{
    float x;

    return (is_real(s, &x) && !is_missing(s)) || has_comma(s);
}

static const char *cell(const table *t, size_t row, const column *c)
{
    return t->cells[row * t->ncolumns + (size_t)c->at];
}

static ts_status not_a_number(const table *t, size_t row, const column *c)
{
    const char *name = t->names ? c->name : "", *s = cell(t, row, c);

    ts_fail(TS_ERR_PARSE, "%s, line %ld: '%.60s' in column %zu%s%.60s%s is not a number", t->path,
            (long)t->lines[row], s, (size_t)c->at, *name ? " (" : "", name, *name ? ")" : "");
    if (is_missing(s))
        ts_error_hint(
            "--missing mean puts the column's mean there, --missing drop leaves the row out");
    else if (has_comma(s))
        ts_error_hint("numbers have a point, as in 12.5, and no mark between thousands");
    else if (looks_like_number(s))
        ts_error_hint("it is beyond what a float can hold, 3.4e38");
    else
        ts_error_hint("a column is of numbers or of words; is the label's column right?");
    return TS_ERR_PARSE;
}

static ts_status not_a_label(const table *t, size_t row, const column *c)
{
    ts_fail(TS_ERR_PARSE, "%s, line %ld: the label is missing, in column %zu (%.60s)", t->path,
            (long)t->lines[row], (size_t)c->at, c->name);
    ts_error_hint("--missing drop leaves the rows out whose label is missing");
    return TS_ERR_PARSE;
}

static ts_status add_row(table *t)
{
    if (t->nfields != t->ncolumns)
        return ts_fail(TS_ERR_PARSE, "%s, line %ld: the row has %zu fields, and the first has %zu",
                       t->path, (long)t->row_line, t->nfields, t->ncolumns);
    for (size_t i = 0; i < t->ncolumns; i++) {
        TS_TRY(grow(t, &t->cells, t->ncells, sizeof(char *), &t->cells_room));
        t->cells[t->ncells++] = t->fields[i];
    }
    TS_TRY(grow(t, &t->lines, t->nrows, sizeof(*t->lines), &t->lines_room));
    t->lines[t->nrows++] = t->row_line;
    return TS_OK;
}

/* --- rows, and is there a header? --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The one that the first line has most of; a comma where it has none. Commas that may all be those of
 * numbers, 12,5;3,1, do not count beside another. */
static char find_separator(const table *t)
{
    static const char all[] = ",;\t|";
    size_t counts[sizeof(all)] = {0}, inside = 0, best = 1;
    bool quoted = false;

    for (const char *p = t->at; p < t->end && (quoted || (*p != '\n' && *p != '\r')); p++) {
        const char *found = *p ? strchr(all, *p) : NULL;
        quoted ^= *p == '"';
        if (found && !quoted)
            counts[found - all]++;
        inside += *p == ',' && p > t->at && is_digit(p[-1]) && p + 1 < t->end && is_digit(p[1]);
    }
    for (size_t i = 2; i < sizeof(all) - 1; i++)
        if (counts[i] > counts[best])
            best = i;
    if (counts[best] && counts[0] == inside && inside <= counts[best] + 1)
        return all[best];
    return counts[best] > counts[0] ? all[best] : ',';
}

static column *column_called(const table *t, const char *name)
{
    for (int i = 0; i < t->ncolumn; i++)
        if (!strcmp(t->columns[i].name, name))
            return &t->columns[i];
    return NULL;
}

/* Names do not come up again below; a row of a table of words has some that do. */
static bool comes_again(const table *t, size_t column)
{
    for (size_t row = 1; row < t->nrows; row++)
        if (!strcmp(t->cells[row * t->ncolumns + column], t->cells[column]))
            return true;
    return false;
}

/* A word over a number, or the name of a column that is known; or words only. */
static bool looks_like_header(const table *t)
{
    bool again = false;
    size_t words = 0;
    float x;

    for (size_t i = 0; i < t->ncolumns; i++) {
        bool word = !looks_like_number(t->cells[i]) && !is_missing(t->cells[i]);
        if (word && ((t->nrows > 1 && to_number(t->cells[t->ncolumns + i], &x)) ||
                     column_called(t, t->cells[i])))
            return true;
        words += word;
        again = again || (word && comes_again(t, i));
    }
    return words == t->ncolumns && !again && !t->ncolumn;
}

static void take_header(table *t)
{
    t->names = t->cells; /* and the rows begin behind it */
    t->cells += t->ncolumns;
    t->lines++;
    t->nrows--;
}

static ts_status read_rows(table *t)
{
    size_t most = t->opt->limit ? (size_t)t->opt->limit + 1 : SIZE_MAX;
    bool more = true;

    if (t->end - t->at >= 3 && !memcmp(t->at, "\xef\xbb\xbf", 3))
        t->at += 3; /* the byte order mark that some programs write */
    t->separator = t->opt->separator ? t->opt->separator : find_separator(t);
    while (t->nrows < most) {
        TS_TRY(next_row(t, &more));
        if (!more)
            break;
        t->ncolumns = t->nrows ? t->ncolumns : t->nfields;
        TS_TRY(add_row(t));
    }
    if (!t->nrows)
        return ts_fail(TS_ERR_PARSE, "%s is empty", t->path);
    if (t->opt->header > 0 || (!t->opt->header && looks_like_header(t)))
        take_header(t);
    else
        t->nrows = TS_MIN(t->nrows, most - 1);
    return t->nrows ? TS_OK : ts_fail(TS_ERR_PARSE, "%s has a header and no rows", t->path);
}

/* --- which column is what --- */

static ts_status no_such_column(const table *t, const char *name)
{
    ts_fail(TS_ERR_ARG, "%s has no column called '%s'", t->path, name);
    ts_error_hint("its first line starts with '%.60s'", t->names ? t->names[0] : t->cells[0]);
    return TS_ERR_ARG;
}

/* A number counts columns, from the end when it is negative; anything else is a name. */
static ts_status find_column(const table *t, const char *name, column **out)
{
    char *end;
    long i = strtol(name, &end, 10), n = t->ncolumn;

    *out = column_called(t, name);
    if (*out && t->names)
        return TS_OK;
    if (end == name || *end)
        return no_such_column(t, name);
    if (i < -n || i >= n)
        return ts_fail(TS_ERR_ARG, "%s has no column %ld: it has %ld", t->path, i, n);
    *out = &t->columns[i < 0 ? i + n : i];
    return TS_OK;
}

/* Marks the columns of a list, "a,b". */
static ts_status mark(table *t, const char *list, size_t offset)
{
    char *text = ts_arena_strdup(t->a, list), *rest = NULL;
    column *c;

    for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        TS_TRY(find_column(t, name, &c));
        *(bool *)((char *)c + offset) = true;
    }
    return TS_OK;
}

/* Those asked for; else the one called "label", else the last. */
static ts_status find_labels(table *t)
{
    column *c = column_called(t, "label");

    if (t->opt->drop)
        TS_TRY(mark(t, t->opt->drop, offsetof(column, unused)));
    if (t->opt->label)
        return mark(t, t->opt->label, offsetof(column, label));
    c = c && t->names ? c : &t->columns[t->ncolumn - 1];
    c->label = true;
    return TS_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each word of a column once, sorted. */
static ts_status find_words(const table *t, column *c, int most)
{
    size_t n = 0;
    char **words;

    TS_TRY(ts_alloc(t->nrows * sizeof(*words), "words", (void **)&words));
    for (size_t i = 0; i < t->nrows; i++)
        if (c->label || !is_missing(cell(t, i, c)))
            words[n++] = (char *)cell(t, i, c);
    qsort(words, n, sizeof(*words), by_text);
    for (size_t i = 0; i < n; i++)
        if (!c->nword || strcmp(c->word[c->nword - 1], words[i]))
            TS_PUSH(t->a, c->word, c->nword, words[i]);
    free(words);
    if (c->nword <= most)
        return TS_OK;
    ts_fail(TS_ERR_UNSUPPORTED, "column '%.60s' of %s has %d different words; we take up to %d",
            c->name, t->path, c->nword, most);
    ts_error_hint("is it a name or a text? Columns can be dropped");
    return TS_ERR_UNSUPPORTED;
}

/* Numbers that cannot be read as one are no words: 12,5 in every row is a number, too. */
static ts_status check_numbers(const table *t, const column *c)
{
    size_t first = t->nrows;
    float x;

    for (size_t i = 0; i < t->nrows; i++) {
        const char *s = cell(t, i, c);
        if (!is_missing(s) && !looks_like_number(s))
            return TS_OK;
        if (!is_missing(s) && !to_number(s, &x))
            first = TS_MIN(first, i);
    }
    return first < t->nrows ? not_a_number(t, first, c) : TS_OK;
}

/* Numbers or words: all of one kind. */
static ts_status find_kind(table *t, column *c)
{
    size_t numbers = 0, words = 0, first = 0;
    double sum = 0;
    float x;

    for (size_t i = 0; i < t->nrows; i++) {
        const char *s = cell(t, i, c);
        if (to_number(s, &x)) {
            numbers++;
            sum += x;
        } else if (!is_missing(s)) {
            first = words++ ? first : i;
        }
    }
    if (numbers && words)
        return not_a_number(t, first, c);
    TS_TRY(check_numbers(t, c));
    c->mean = numbers ? sum / (double)numbers : 0;
    c->words = words > 0;
    return c->words ? find_words(t, c, MOST_WORDS) : TS_OK;
}

static ts_status make_columns(table *t)
{
    t->columns = TS_NEWS(t->a, column, t->ncolumns);
    t->ncolumn = (int)t->ncolumns;
    for (int i = 0; i < t->ncolumn; i++) {
        t->columns[i].at = i;
        t->columns[i].name = t->names ? t->names[i] : ts_arena_printf(t->a, "%d", i);
    }
    TS_TRY(find_labels(t));
    for (int i = 0; i < t->ncolumn; i++)
        if (!t->columns[i].label && !t->columns[i].unused)
            TS_TRY(find_kind(t, &t->columns[i]));
    return TS_OK;
}

/* --- columns as a text --- */

/* What is no UTF-8, as words of Latin-1 are not, is \xe9: the text is for files that need it. */
static void put_word(ts_text *out, const char *s)
{
    const char *next = s;

    ts_text_add(out, "\t", 1);
    for (; *s; s = next)
        if (ts_utf8_next(&next) < 0)
            ts_text_printf(out, "\\x%02x", (unsigned char)*s);
        else if (strchr("\t\n\\", *s))
            ts_text_printf(out, "\\%c", *s == '\t' ? 't' : *s == '\n' ? 'n' : '\\');
        else
            ts_text_add(out, s, (size_t)(next - s));
}

static void put_column(ts_text *out, const column *c)
{
    ts_text name = {0};

    put_word(&name, c->name);
    ts_text_printf(out, "%s\t%s", name.s + 1,
                   c->label    ? "label"
                   : c->unused ? "unused"
                   : c->words  ? "words"
                               : "number");
    ts_text_free(&name);
    if (!c->label && !c->words)
        ts_text_printf(out, "\t%.17g", c->mean);
    for (int i = 0; i < c->nword; i++)
        put_word(out, c->word[i]);
    ts_text_add(out, "\n", 1);
}

static const char *columns_text(const table *t, ts_arena *a)
{
    ts_text out = {0};
    const char *text;

    for (int i = 0; i < t->ncolumn; i++)
        put_column(&out, &t->columns[i]);
    text = ts_arena_strdup(a, out.s);
    ts_text_free(&out);
    return text;
}

static void unescape(char *s)
{
    unsigned byte;
    char *to = s;

    for (; *s; s++)
        if (s[0] == '\\' && s[1] == 'x' && sscanf(s + 2, "%2x", &byte) == 1 && byte >= 0x80) {
            *to++ = (char)byte;
            s += 3;
        } else {
            *to++ = *s != '\\' || !s[1] ? *s : *++s == 't' ? '\t' : *s == 'n' ? '\n' : *s;
        }
    *to = 0;
}

static ts_status read_column(table *t, char *line)
{
    column c = {.at = -1};
    char *kind, *word;

    c.name = strsep(&line, "\t");
    unescape((char *)c.name);
    kind = line ? strsep(&line, "\t") : (char *)"";
    c.label = !strcmp(kind, "label");
    c.words = !strcmp(kind, "words");
    c.unused = !strcmp(kind, "unused");
    if (!strcmp(kind, "number") && line)
        c.mean = ts_to_real(line, NULL);
    else if (!c.label && !c.words && !c.unused)
        return ts_fail(TS_ERR_PARSE, "the description of the columns does not read: '%.60s'", kind);
    while ((c.label || c.words) && line) {
        word = strsep(&line, "\t");
        unescape(word);
        TS_PUSH(t->a, c.word, c.nword, word);
    }
    TS_PUSH(t->a, t->columns, t->ncolumn, c);
    return isfinite(c.mean) ? TS_OK : ts_fail(TS_ERR_PARSE, "a column's mean is no number");
}

/* The same columns in the same order, whether a name comes twice or not. */
static bool in_order(const table *t)
{
    for (int i = 0; t->names && i < t->ncolumn; i++)
        if ((size_t)i >= t->ncolumns || strcmp(t->names[i], t->columns[i].name) != 0)
            return false;
    return (int)t->ncolumns == t->ncolumn;
}

static int labels(const table *t)
{
    int n = 0;

    for (int i = 0; i < t->ncolumn; i++)
        n += t->columns[i].label;
    return n;
}

/* With names, each is looked for; without, a file has all columns, or all but the labels. */
static ts_status place_columns(table *t)
{
    int64_t at = 0;
    bool whole = in_order(t);

    if (!t->names && !whole && (int64_t)t->ncolumns != t->ncolumn - labels(t))
        return ts_fail(TS_ERR_SHAPE, "%s has %zu columns, and %d are needed", t->path, t->ncolumns,
                       t->ncolumn);
    for (int i = 0; i < t->ncolumn; i++) {
        column *c = &t->columns[i];
        for (size_t k = t->ncolumns; t->names && !whole && k--;)
            if (!strcmp(t->names[k], c->name))
                c->at = (int64_t)k;
        if (whole || (!t->names && !c->label))
            c->at = at++;
        if (c->at < 0 && !c->label && !c->unused)
            return no_such_column(t, c->name);
    }
    return TS_OK;
}

static bool is_empty(const table *t, const column *c)
{
    for (size_t i = 0; i < t->nrows; i++)
        if (!is_missing(cell(t, i, c)))
            return false;
    return true;
}

/* Rows to predict for may have the label's column, with nothing in it. */
static ts_status take_columns(table *t)
{
    TS_TRY(place_columns(t));
    for (int i = 0; i < t->ncolumn; i++)
        if (t->columns[i].label && t->columns[i].at >= 0 && is_empty(t, &t->columns[i]))
            t->columns[i].at = -1;
    return TS_OK;
}

static ts_status read_columns(table *t)
{
    char *text = t->opt->columns ? ts_arena_strdup(t->a, t->opt->columns) : NULL;

    for (char *line; text && *text;) {
        line = strsep(&text, "\n");
        TS_TRY(read_column(t, line));
    }
    return TS_OK;
}

/* --- samples --- */

static bool is_feature(const column *c)
{
    return !c->label && !c->unused;
}

static int64_t width(const table *t)
{
    int64_t n = 0;

    for (int i = 0; i < t->ncolumn; i++)
        n += is_feature(&t->columns[i]) ? t->columns[i].words ? t->columns[i].nword : 1 : 0;
    return n;
}

static bool drops_rows(const table *t)
{
    return t->opt->missing && !strcmp(t->opt->missing, "drop");
}

/* Does the row lack something? Labels of rows to predict may. */
static bool lacks(const table *t, size_t row)
{
    for (int i = 0; i < t->ncolumn; i++)
        if (t->columns[i].at >= 0 && !t->columns[i].unused &&
            is_missing(cell(t, row, &t->columns[i])))
            return true;
    return false;
}

static void drop_rows(table *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->nrows; i++)
        if (!lacks(t, i)) {
            memmove(t->cells + kept * t->ncolumns, t->cells + i * t->ncolumns,
                    t->ncolumns * sizeof(*t->cells));
            t->lines[kept++] = t->lines[i];
        }
    t->nrows = kept;
}

static ts_status unknown_word(const table *t, size_t row, const column *c)
{
    ts_fail(TS_ERR_PARSE, "%s, line %ld: '%.60s' is no word of column '%.60s'", t->path,
            (long)t->lines[row], cell(t, row, c), c->name);
    ts_error_hint("the first of its words is '%.60s'", c->nword ? c->word[0] : "");
    return TS_ERR_PARSE;
}

static ts_status put_cell(const table *t, size_t row, const column *c, float **to)
{
    const char *s = cell(t, row, c), **found;
    bool gone = is_missing(s);

    if (gone && !t->opt->missing)
        return not_a_number(t, row, c);
    if (!c->words) {
        if (gone)
            **to = (float)c->mean;
        else if (!to_number(s, *to))
            return not_a_number(t, row, c);
        ++*to;
        return TS_OK;
    }
    memset(*to, 0, (size_t)c->nword * sizeof(float));
    found = bsearch(&s, c->word, (size_t)c->nword, sizeof(*c->word), by_text);
    if (!found && !gone)
        return unknown_word(t, row, c);
    if (found)
        (*to)[found - c->word] = 1;
    *to += c->nword;
    return TS_OK;
}

static ts_status fill(const table *t, ts_dataset *d)
{
    float *to = d->sample.data;

    for (size_t row = 0; row < t->nrows; row++)
        for (int i = 0; i < t->ncolumn; i++)
            if (is_feature(&t->columns[i]))
                TS_TRY(put_cell(t, row, &t->columns[i], &to));
    return TS_OK;
}

/* --- labels --- */

static bool to_class(const char *s, int32_t *out)
{
    char *end;
    long x = strtol(s, &end, 10);

    *out = (int32_t)x;
    return end != s && !*end && x >= 0 && x < MOST_LABEL;
}

/* A label that is missing is no class of its own, and no number. */
static ts_status check_labels(const table *t, const column *c)
{
    for (size_t i = 0; i < t->nrows; i++)
        if (is_missing(cell(t, i, c)))
            return not_a_label(t, i, c);
    return t->opt->task == TS_TASK_CLASSES || c->nword ? TS_OK : check_numbers(t, c);
}

/* What the label's column is when nobody says: whole numbers that can count classes, and words. */
static bool are_classes(const table *t, const column *c)
{
    bool whole = true, numbers = true;
    int32_t class, most = 0;
    float x;

    for (size_t i = 0; i < t->nrows; i++) {
        whole = whole && to_class(cell(t, i, c), &class);
        most = whole ? TS_MAX(most, class) : most;
        numbers = numbers && to_number(cell(t, i, c), &x);
    }
    return whole ? most < 1000 || (size_t)most < t->nrows : !numbers;
}

static ts_status use_words(const table *t, column *c, ts_dataset *d)
{
    if (!c->nword)
        TS_TRY(find_words(t, c, MOST_LABEL));
    d->nclasses = c->nword;
    d->classes = TS_NEWS(d->arena, const char *, c->nword);
    for (int i = 0; i < c->nword; i++)
        d->classes[i] = ts_arena_strdup(d->arena, c->word[i]);
    for (int64_t i = 0; i < d->count; i++) {
        const char *s = cell(t, (size_t)i, c);
        const char **found = bsearch(&s, c->word, (size_t)c->nword, sizeof(*c->word), by_text);
        if (!found)
            return unknown_word(t, (size_t)i, c);
        d->labels[i] = (int32_t)(found - c->word);
    }
    return TS_OK;
}

static ts_status set_classes(const table *t, column *c, ts_dataset *d)
{
    bool whole = !c->nword;

    for (int64_t i = 0; whole && i < d->count; i++)
        whole = to_class(cell(t, (size_t)i, c), &d->labels[i]);
    return whole ? ts_dataset_number_classes(d, 0, t->path) : use_words(t, c, d);
}

static ts_status set_targets(const table *t, ts_dataset *d)
{
    int n = 0;

    TS_TRY(ts_dataset_add_targets(d, t->nlabel));
    for (int i = 0; i < t->ncolumn; i++) {
        const column *c = &t->columns[i];
        if (!c->label)
            continue;
        d->target_names[n] = ts_arena_strdup(d->arena, c->name);
        for (int64_t row = 0; row < d->count; row++)
            if (!to_number(cell(t, (size_t)row, c), &d->targets[row * t->nlabel + n]))
                return not_a_number(t, (size_t)row, c);
        n++;
    }
    return TS_OK;
}

/* A file to predict for has no labels. */
static ts_status set_labels(table *t, ts_dataset *d)
{
    column *label = NULL;

    t->nlabel = 0;
    for (int i = 0; i < t->ncolumn; i++)
        if (t->columns[i].label && t->columns[i].at >= 0) {
            label = &t->columns[i];
            t->nlabel++;
            TS_TRY(check_labels(t, label));
        }
    if (!label)
        return TS_OK;
    if (t->opt->task == TS_TASK_NUMBERS ||
        (t->opt->task == TS_TASK_AUTO &&
         (t->nlabel > 1 || (!label->nword && !are_classes(t, label)))))
        return set_targets(t, d);
    if (t->nlabel > 1)
        return ts_fail(TS_ERR_ARG, "classes are one column, and %d are named", t->nlabel);
    return set_classes(t, label, d);
}

/* --- the whole --- */

static ts_status make(table *t, ts_dataset **d)
{
    TS_TRY(ts_dataset_new(TS_F32, (int64_t)t->nrows, 1, (int64_t[]){width(t)}, d));
    TS_TRY(fill(t, *d));
    TS_TRY(set_labels(t, *d));
    (*d)->columns = columns_text(t, (*d)->arena);
    return TS_OK;
}

static ts_status parse(table *t, ts_dataset **d)
{
    ts_status s;

    if (memchr(t->at, 0, (size_t)(t->end - t->at)))
        return ts_fail(TS_ERR_PARSE, "%s is not text: it has a zero byte", t->path);
    TS_TRY(read_columns(t));
    TS_TRY(read_rows(t));
    if (t->ncolumns < 2 && !t->opt->columns) {
        ts_fail(TS_ERR_PARSE, "%s has one column: a row needs numbers and a label", t->path);
        ts_error_hint("fields are separated by commas, semicolons, tabs or bars");
        return TS_ERR_PARSE;
    }
    TS_TRY(t->opt->columns ? take_columns(t) : make_columns(t));
    if (drops_rows(t))
        drop_rows(t);
    if (!t->nrows)
        return ts_fail(TS_ERR_PARSE, "every row of %s lacks something", t->path);
    s = make(t, d);
    if (s) {
        ts_dataset_free(*d);
        *d = NULL;
    }
    return s;
}

ts_status ts_csv_parse(const char *path, char *data, size_t len, const ts_dataset_options *opt,
                       ts_dataset **out)
{
    table t = {.path = path, .at = data, .end = data + len, .line = 1, .opt = opt};
    ts_status s;

    t.a = ts_arena_new();
    s = parse(&t, out);
    free(t.fields);
    free(t.names ? t.names : t.cells);
    free(t.names ? t.lines - 1 : t.lines);
    ts_arena_free(t.a);
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

/* --- a list of files with what is to be learned of each --- */

/* `file` is what samples are made of; of the others those that are asked for, or all. */
static ts_status mark_list(table *t, column **file)
{
    t->columns = TS_NEWS(t->a, column, t->ncolumns);
    t->ncolumn = (int)t->ncolumns;
    for (int i = 0; i < t->ncolumn; i++)
        t->columns[i] = (column){.at = i, .name = t->names[i]};
    *file = column_called(t, "file");
    if (!*file)
        return no_such_column(t, "file");
    if (t->opt->drop)
        TS_TRY(mark(t, t->opt->drop, offsetof(column, unused)));
    if (t->opt->label)
        TS_TRY(mark(t, t->opt->label, offsetof(column, label)));
    for (int i = 0; i < t->ncolumn; i++) {
        column *c = &t->columns[i];
        c->label = c != *file && !c->unused && (c->label || !t->opt->label);
        c->unused = !c->label;
        t->nlabel += c->label;
    }
    return t->nlabel ? TS_OK : no_such_column(t, "a number or a class to learn");
}

static bool is_of_words(const table *t, const column *c)
{
    for (size_t i = 0; i < t->nrows; i++)
        if (!is_missing(cell(t, i, c)) && !looks_like_number(cell(t, i, c)))
            return true;
    return false;
}

/* Whole numbers are the classes themselves, as in tables; words in sorted order. */
static ts_status list_classes(const table *t, column *c, ts_csv_files *out)
{
    bool whole = true;

    out->labels = TS_NEWS(t->a, int32_t, t->nrows);
    for (size_t i = 0; whole && i < t->nrows; i++) {
        whole = to_class(cell(t, i, c), &out->labels[i]);
        out->nclasses = whole ? TS_MAX(out->nclasses, out->labels[i] + 1) : 0;
    }
    if (!whole) {
        TS_TRY(find_words(t, c, MOST_LABEL));
        out->nclasses = c->nword;
    }
    out->classes = TS_NEWS(t->a, const char *, out->nclasses);
    for (int i = 0; i < out->nclasses; i++)
        out->classes[i] =
            whole ? ts_arena_printf(t->a, "%d", i) : ts_arena_strdup(t->a, c->word[i]);
    for (size_t i = 0; !whole && i < t->nrows; i++) {
        const char *s = cell(t, i, c);
        out->labels[i] = (int32_t)((const char **)bsearch(&s, c->word, (size_t)c->nword,
                                                          sizeof(*c->word), by_text) -
                                   c->word);
    }
    return TS_OK;
}

static ts_status list_numbers(const table *t, ts_csv_files *out)
{
    int n = 0;

    out->ntargets = t->nlabel;
    out->names = TS_NEWS(t->a, const char *, t->nlabel);
    out->targets = TS_NEWS(t->a, float, t->nrows *(size_t)t->nlabel);
    for (int i = 0; i < t->ncolumn; i++) {
        const column *c = &t->columns[i];
        if (!c->label)
            continue;
        out->names[n] = ts_arena_strdup(t->a, c->name);
        for (size_t row = 0; row < t->nrows; row++)
            if (!to_number(cell(t, row, c), &out->targets[row * (size_t)t->nlabel + (size_t)n]))
                return not_a_number(t, row, c);
        n++;
    }
    return TS_OK;
}

/* One column of words is of classes; numbers are numbers, unless someone says otherwise. */
static ts_status read_list(table *t, ts_csv_files *out)
{
    column *file, *label = NULL;

    TS_TRY(read_rows(t));
    if (!t->names)
        return ts_fail(TS_ERR_PARSE, "%s needs a first line with names, one of them 'file'",
                       t->path);
    TS_TRY(mark_list(t, &file));
    if (drops_rows(t))
        drop_rows(t);
    if (!t->nrows)
        return ts_fail(TS_ERR_PARSE, "every row of %s lacks something", t->path);
    out->n = (int)t->nrows;
    out->files = TS_NEWS(t->a, const char *, t->nrows);
    for (size_t row = 0; row < t->nrows; row++)
        out->files[row] = ts_arena_strdup(t->a, cell(t, row, file));
    for (int i = 0; i < t->ncolumn; i++)
        if (t->columns[i].label) {
            label = &t->columns[i];
            TS_TRY(check_labels(t, label));
        }
    if (t->opt->task == TS_TASK_CLASSES && t->nlabel > 1)
        return ts_fail(TS_ERR_ARG, "classes are one column, and %s has %d", t->path, t->nlabel);
    if (t->opt->task == TS_TASK_CLASSES ||
        (t->opt->task == TS_TASK_AUTO && t->nlabel == 1 && is_of_words(t, label)))
        return list_classes(t, label, out);
    return list_numbers(t, out);
}

ts_status ts_csv_list(ts_arena *a, const char *path, const ts_dataset_options *opt,
                      ts_csv_files *out)
{
    ts_dataset_options own = {.label = opt->label,
                              .drop = opt->drop,
                              .missing = opt->missing,
                              .separator = opt->separator,
                              .task = opt->task};
    table t = {.path = path, .line = 1, .opt = &own, .a = a};
    size_t len;
    char *data;
    ts_status s;

    TS_TRY(ts_file_read(path, &data, &len));
    t.at = data;
    t.end = data + len;
    s = memchr(data, 0, len) ? ts_fail(TS_ERR_PARSE, "%s is not text: it has a zero byte", path)
                             : read_list(&t, out);
    free(t.fields);
    free(t.names ? t.names : t.cells);
    free(t.names ? t.lines - 1 : t.lines);
    free(data);
    return s;
}

/* options.c - the table of options (options.def), and what every other part does with it: the
 * checks of what a field can be, a field as text, and a field set by its name.
 *
 * An option is named once. The cache's key is made of the rows that are part of the program, so one
 * that is added cannot be forgotten there.
 */
#include "base/base.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>

typedef void write_fn(ts_text *t, const void *record, const void *field);

typedef struct row {
    ts_option option;
    ts_record record;
    ts_option_key key;
    size_t offset, bytes; /* of the field */
    write_fn *write;
} row;

static write_fn write_optimizer, write_stages, write_replica_groups, write_hyper, write_groups;

#define AT(r, f)                                                                                   \
    .offset = offsetof(ts_##r, f), .bytes = sizeof(((ts_##r *)0)->f), .record = TS_RECORD_##r
#define TS_RECORD_options     TS_RECORD_OPTIONS
#define TS_RECORD_run_options TS_RECORD_RUN_OPTIONS
#define TS_RECORD_optimizer   TS_RECORD_OPTIMIZER
#define TS_RECORD_hyper       TS_RECORD_HYPER
#define PROGRAM               TS_KEY_PROGRAM
#define NAMED                 TS_KEY_NAMED
#define NOTHING               TS_KEY_NOTHING
#define ROW(r, f, kind_, key_, about_, ...)                                                        \
    {.option = {.name = #f,                                                                        \
                .kind = TS_OPTION_##kind_,                                                         \
                .program = key_ != TS_KEY_NOTHING,                                                 \
                .about = about_,                                                                   \
                __VA_ARGS__},                                                                      \
     .key = key_,                                                                                  \
     AT(r, f)},
#define BOOL(r, f, key, about) ROW(r, f, BOOL, key, about, .high = 1)
#define INT(r, f, low_, high_, usual_, key, about)                                                 \
    ROW(r, f, INT, key, about, .low = low_, .high = high_, .usual = usual_)
#define REAL(r, f, key, about)         ROW(r, f, REAL, key, about, .low = 0)
#define WORD(r, f, words_, key, about) ROW(r, f, WORD, key, about, .words = words_)
#define BITS(r, f, words_, key, about) ROW(r, f, BITS, key, about, .words = words_)
#define TEXT(r, f, key, about)         ROW(r, f, TEXT, key, about, .low = 0)
#define DATA(r, f, write_, key_, about_)                                                           \
    {.option = {.name = #f,                                                                        \
                .kind = TS_OPTION_DATA,                                                            \
                .program = key_ != TS_KEY_NOTHING,                                                 \
                .about = about_},                                                                  \
     .key = key_,                                                                                  \
     .write = write_,                                                                              \
     AT(r, f)},
static const row rows[] = {
#include "base/options.def"
};

static const char *const records[] = {"ts_options", "ts_run_options", "ts_optimizer", "ts_hyper"};

static const row *row_at(ts_record of, int i)
{
    for (int k = 0; k < TS_COUNT(rows) && i >= 0; k++)
        if (rows[k].record == of && i-- == 0)
            return &rows[k];
    return NULL;
}

static const row *row_of(ts_record of, const char *name)
{
    for (int k = 0; name && k < TS_COUNT(rows); k++)
        if (rows[k].record == of && !strcmp(rows[k].option.name, name))
            return &rows[k];
    return NULL;
}

const ts_option *ts_option_at(ts_record of, int i)
{
    const row *r = row_at(of, i);

    return r ? &r->option : NULL;
}

const ts_option *ts_option_find(ts_record of, const char *name)
{
    const row *r = row_of(of, name);

    return r ? &r->option : NULL;
}

ts_option_key ts_option_in_key(ts_record of, int i)
{
    return row_at(of, i)->key;
}

/* --- a field --- */

/* Of an int, int64_t or array of int64_t: how many, and the k-th; 0 is the usual value. */
static int elements(const row *r)
{
    return r->bytes == sizeof(int) ? 1 : (int)(r->bytes / sizeof(int64_t));
}

static int64_t element(const row *r, const void *field, int k)
{
    if (r->option.kind == TS_OPTION_BOOL)
        return *(const bool *)field;
    return r->bytes == sizeof(int) ? *(const int *)field : ((const int64_t *)field)[k];
}

/* The i-th of words; its length is 0 past the last. */
static const char *word_at(const char *words, int64_t i, size_t *len)
{
    for (; i > 0 && *words; i--) {
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    *len = strcspn(words, " ");
    return words;
}

static int word_count(const char *words)
{
    size_t len;
    int n = 0;

    while (word_at(words, n, &len), len)
        n++;
    return n;
}

static int64_t word_find(const char *words, const char *s, size_t n)
{
    size_t len;
    const char *w;

    for (int i = 0; w = word_at(words, i, &len), len; i++)
        if (len == n && !memcmp(w, s, n))
            return i;
    return -1;
}

static void write_word(ts_text *t, const char *words, int64_t i)
{
    size_t len;
    const char *w = word_at(words, i, &len);

    if (i >= 0 && len)
        ts_text_add(t, w, len);
    else
        ts_text_printf(t, "%lld", (long long)i);
}

static void write_bits(ts_text *t, const char *words, unsigned bits)
{
    bool any = false;

    for (int i = 0; i < 32; i++)
        if (bits >> i & 1) {
            ts_text_printf(t, "%s", any ? "," : "");
            write_word(t, words, i);
            any = true;
        }
    if (!any)
        ts_text_printf(t, "none");
}

static void write_int(ts_text *t, const row *r, const void *field)
{
    for (int k = 0; k < elements(r); k++) {
        int64_t v = element(r, field, k);
        ts_text_printf(t, "%s%lld", k ? "," : "", (long long)(v ? v : r->option.usual));
    }
}

/* Exactly, but for people: a double is read back to the same bits. */
static void write_field(ts_text *t, const row *r, const void *record)
{
    const char *field = (const char *)record + r->offset;
    char number[32];

    switch (r->option.kind) {
    case TS_OPTION_BOOL:
        ts_text_printf(t, *(const bool *)field ? "yes" : "no");
        break;
    case TS_OPTION_INT:
        write_int(t, r, field);
        break;
    case TS_OPTION_REAL:
        ts_format(number, sizeof(number), "%.17g", *(const double *)field);
        ts_text_printf(t, "%s", number);
        break;
    case TS_OPTION_WORD:
        write_word(t, r->option.words, *(const int *)field);
        break;
    case TS_OPTION_BITS:
        write_bits(t, r->option.words, *(const unsigned *)field);
        break;
    case TS_OPTION_TEXT:
        ts_text_printf(t, "%s", *(char *const *)field ? *(char *const *)field : "");
        break;
    case TS_OPTION_DATA:
        if (r->write)
            r->write(t, record, field);
        break;
    }
}

const char *ts_option_value(ts_arena *a, ts_record of, int i, const void *record)
{
    ts_text t = {0};
    const char *s;

    ts_text_add(&t, "", 0);
    write_field(&t, row_at(of, i), record);
    s = t.s ? ts_arena_strdup(a, t.s) : "";
    ts_text_free(&t);
    return s;
}

/* --- what is no number and no word --- */

/* All of a record, " name=value" for each row. */
static void write_record(ts_text *t, ts_record of, const void *record)
{
    const row *r;

    for (int i = 0; (r = row_at(of, i)); i++) {
        ts_text_printf(t, "%s%s=", i ? " " : "", r->option.name);
        write_field(t, r, record);
    }
}

static void write_hyper(ts_text *t, const void *record, const void *field)
{
    (void)record;
    ts_text_printf(t, "(");
    write_record(t, TS_RECORD_HYPER, field);
    ts_text_printf(t, ")");
}

/* With its length, so that no two lists of names run together. */
static void write_name(ts_text *t, const char *name)
{
    ts_text_printf(t, "%zu:%s", strlen(name), name);
}

static void write_groups(ts_text *t, const void *record, const void *field)
{
    const ts_optimizer *o = record;

    (void)field;
    for (int i = 0; i < o->ngroups; i++) {
        ts_text_printf(t, "%s", i ? ";" : "");
        for (int k = 0; k < o->groups[i].nparams; k++) {
            ts_text_printf(t, "%s", k ? "," : "");
            write_name(t, o->groups[i].params[k]);
        }
        write_hyper(t, NULL, &o->groups[i].hyper);
    }
}

static void write_optimizer(ts_text *t, const void *record, const void *field)
{
    const ts_optimizer *o = *(const ts_optimizer *const *)field;

    (void)record;
    if (o)
        write_record(t, TS_RECORD_OPTIMIZER, o);
    else
        ts_text_printf(t, "none");
}

static void write_stages(ts_text *t, const void *record, const void *field)
{
    const ts_options *opt = record;

    (void)field;
    for (int i = 0; i < opt->nstages; i++) {
        const ts_stage *s = &opt->stages[i];
        ts_text_printf(t, "%s%d/%d=", i ? ";" : "", s->device, s->phase);
        for (int b = 0; b < s->nblocks; b++) {
            ts_text_printf(t, "%s", b ? "," : "");
            write_name(t, s->blocks[b]);
        }
    }
}

static void write_replica_groups(ts_text *t, const void *record, const void *field)
{
    const ts_options *opt = record;

    (void)field;
    for (int i = 0; i < opt->nreplica_groups; i++) {
        const ts_replica_group *q = &opt->replica_groups[i];
        ts_text_printf(t, "%s", i ? ";" : "");
        write_name(t, q->state);
        ts_text_printf(t, "/%d/%d/%d", q->grouping, q->size, q->read_all);
    }
}

/* --- checks --- */

static ts_status refuse_word(const row *r, const char *value)
{
    return ts_fail(TS_ERR_ARG, "%s is %s; it can be one of: %s", r->option.name, value,
                   r->option.words);
}

static ts_status check_int(const row *r, const char *name, int64_t v)
{
    if (v < r->option.low)
        return ts_fail(TS_ERR_ARG, "%s is %lld; it must not be negative", name, (long long)v);
    if (v > r->option.high)
        return ts_fail(TS_ERR_ARG, "%s is %lld; it can be at most %lld", name, (long long)v,
                       (long long)r->option.high);
    return TS_OK;
}

static ts_status check_field(const row *r, const void *record)
{
    const char *field = (const char *)record + r->offset;
    int n = r->option.words ? word_count(r->option.words) : 0;
    char number[32];

    if (r->option.kind == TS_OPTION_INT)
        for (int k = 0; k < elements(r); k++)
            TS_TRY(check_int(r, r->option.name, element(r, field, k)));
    snprintf(number, sizeof(number), "%d", n ? *(const int *)field : 0);
    if (r->option.kind == TS_OPTION_WORD && *(const unsigned *)field >= (unsigned)n)
        return refuse_word(r, number);
    if (r->option.kind == TS_OPTION_BITS && *(const unsigned *)field >> n)
        return ts_fail(TS_ERR_ARG, "%s is %s; it has a bit for each of: %s", r->option.name, number,
                       r->option.words);
    return TS_OK;
}

ts_status ts_record_check(ts_record of, const void *record)
{
    const row *r;

    for (int i = 0; (r = row_at(of, i)); i++)
        TS_TRY(check_field(r, record));
    return TS_OK;
}

static ts_status check_outputs(const ts_options *opt)
{
    int D = TS_MAX(1, opt->device_iterations), period = TS_MAX(1, opt->output_period);

    if (opt->output_mode != TS_OUTPUT_EVERY_N || D % period == 0)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "an output every %d device iterations does not divide %d of them", period,
            D);
    ts_error_hint("choose an output_period that divides device_iterations");
    return TS_ERR_ARG;
}

static ts_status check_list(const char *name, int count, const void *list)
{
    if (!count || list)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "there are %d %s at NULL", count, name);
}

ts_status ts_options_check(const ts_options *opt)
{
    int D = TS_MAX(1, opt->device_iterations), A = TS_MAX(1, opt->gradient_accumulation);
    int R = TS_MAX(1, opt->replicas);

    TS_TRY(ts_record_check(TS_RECORD_OPTIONS, opt));
    TS_TRY(check_list("stages", opt->nstages, opt->stages));
    TS_TRY(check_list("replica_groups", opt->nreplica_groups, opt->replica_groups));
    TS_TRY(check_outputs(opt));
    if ((int64_t)D * A > INT_MAX / R)
        return ts_fail(TS_ERR_ARG, "%d device iterations of %d micro-batches are too many", D, A);
    return TS_OK;
}

/* --- setting by name --- */

static ts_status unknown_name(ts_record of, const char *name)
{
    const char *names[64], *near;
    const row *r;
    int n = 0;

    if ((unsigned)of >= TS_COUNT(records))
        return ts_fail(TS_ERR_ARG, "there is no record %d", (int)of);
    for (int i = 0; n < TS_COUNT(names) && (r = row_at(of, i)); i++)
        if (r->option.kind != TS_OPTION_DATA)
            names[n++] = r->option.name;
    near = ts_nearest(name, names, n);
    ts_fail(TS_ERR_ARG, "%s has no option '%.100s'", records[of], name);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    return TS_ERR_ARG;
}

static ts_status set_bool(const row *r, void *field, const char *s)
{
    static const char words[] = "no yes 0 1 false true off on";
    int64_t i = word_find(words, s, strlen(s));

    if (i < 0)
        return ts_fail(TS_ERR_ARG, "%s is '%.100s'; it can be yes or no", r->option.name, s);
    *(bool *)field = i % 2;
    return TS_OK;
}

/* One number for all elements, or one for each with commas. */
static ts_status set_int(const row *r, void *field, const char *s)
{
    char *end;
    int64_t v = 0;

    for (int k = 0; k < elements(r); k++) {
        if (!k || *s) {
            errno = 0;
            v = strtoll(s, &end, 10);
            if (end == s || isspace((unsigned char)*s) ||
                (*end && !(*end == ',' && k + 1 < elements(r))))
                return ts_fail(TS_ERR_ARG, "%s must be a whole number, not '%.100s'",
                               r->option.name, s);
            if (errno)
                v = *s == '-' ? INT64_MIN : INT64_MAX;
            s = end + (*end == ',');
        }
        TS_TRY(check_int(r, r->option.name, v));
        if (r->bytes == sizeof(int))
            *(int *)field = (int)v;
        else
            ((int64_t *)field)[k] = v;
    }
    return TS_OK;
}

static ts_status set_real(const row *r, void *field, const char *s)
{
    char *end;
    double v = ts_to_real(s, &end);

    if (end == s || *end)
        return ts_fail(TS_ERR_ARG, "%s must be a number, not '%.100s'", r->option.name, s);
    *(double *)field = v;
    return TS_OK;
}

/* A number that text is, or -1. */
static int64_t number_of(const char *s)
{
    size_t n = strspn(s, "0123456789");

    return n && n < 10 && !s[n] ? strtoll(s, NULL, 10) : -1;
}

static ts_status set_word(const row *r, void *field, const char *s)
{
    int64_t i = number_of(s);
    char quoted[128];

    if (i < 0 || i >= word_count(r->option.words))
        i = word_find(r->option.words, s, strlen(s));
    snprintf(quoted, sizeof(quoted), "'%.100s'", s);
    if (i < 0)
        return refuse_word(r, quoted);
    *(int *)field = (int)i;
    return TS_OK;
}

/* "optimizer,weights", "all" or "none" */
static ts_status set_bits(const row *r, void *field, const char *s)
{
    unsigned all = (1u << word_count(r->option.words)) - 1, bits = 0;
    size_t n;

    if (number_of(s) >= 0 && number_of(s) <= all) {
        *(unsigned *)field = (unsigned)number_of(s);
        return TS_OK;
    }
    if (!strcmp(s, "none") || !strcmp(s, "all")) {
        *(unsigned *)field = s[0] == 'a' ? all : 0;
        return TS_OK;
    }
    for (const char *p = s; *p; p += n + (p[n] == ',')) {
        n = strcspn(p, ",");
        int64_t i = word_find(r->option.words, p, n);
        if (i < 0)
            return ts_fail(TS_ERR_ARG,
                           "%s has '%.*s'; it can have, with commas: %s; or all, or none",
                           r->option.name, (int)TS_MIN(n, 100), p, r->option.words);
        bits |= 1u << i;
    }
    *(unsigned *)field = bits;
    return TS_OK;
}

ts_status ts_record_set(ts_record of, void *record, size_t size, const char *name,
                        const char *value)
{
    const row *r = row_of(of, name);
    void *field = r ? (char *)record + r->offset : NULL;

    if (!record || !name || !value)
        return ts_fail(TS_ERR_ARG, "an option is set by a name and a value");
    if (!r || r->offset + r->bytes > size)
        return unknown_name(of, name);
    switch (r->option.kind) {
    case TS_OPTION_BOOL:
        return set_bool(r, field, value);
    case TS_OPTION_INT:
        return set_int(r, field, value);
    case TS_OPTION_REAL:
        return set_real(r, field, value);
    case TS_OPTION_WORD:
        return set_word(r, field, value);
    case TS_OPTION_BITS:
        return set_bits(r, field, value);
    case TS_OPTION_TEXT:
        *(const char **)field = value;
        return TS_OK;
    case TS_OPTION_DATA:
        break;
    }
    return ts_fail(TS_ERR_ARG, "%s.%s cannot be said in words", records[of], name);
}

ts_status ts_record_get(ts_record of, const void *record, size_t size, const char *name, char *out,
                        size_t room)
{
    const row *r = row_of(of, name);
    ts_text t = {0};
    bool fits;

    if (!record || !name || !out)
        return ts_fail(TS_ERR_ARG, "an option is read by a name");
    if (!r || r->offset + r->bytes > size)
        return unknown_name(of, name);
    write_field(&t, r, record);
    fits = (size_t)snprintf(out, room, "%s", t.s ? t.s : "") < room;
    ts_text_free(&t);
    return fits ? TS_OK : ts_fail(TS_ERR_ARG, "%s does not fit %zu bytes", name, room);
}

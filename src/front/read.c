/* read.c - a model's description, line by line.
 *
 *   [NAME ':'] LAYER [RESULT ...] [VALUE ...] [KEY '=' VALUE ...] ['->' RESULT]
 *   input SIZE ...   classes N   block NAME   loss LOSS ...   repeat VARIABLE N ... end
 *
 * Words end at blanks, ':', '=' and '->'; '#' begins a comment; {VARIABLE} in a word is the number
 * of the round. `repeat` is done by reading its lines again, so how often lines are read is
 * bounded, as are the layers and the length of the text: hostile text costs a moment and an error.
 */
#include "front/front.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>

enum {
    MAX_TEXT = 1 << 20,
    MAX_LINE = 4096,
    MAX_READS = 100000, /* lines, those of a repeat counted each time */
    MAX_LAYERS = 2000,
    MAX_WORDS = 32, /* on a line */
    MAX_WORD = 64,
    MAX_DEPTH = 8,
};

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

typedef struct word {
    char kind; /* w word, ':', '=', '>' for an arrow, 0 for the end of the line */
    char s[MAX_WORD + 1];
    int column;
} word;

typedef struct loop {
    const char *body, *variable;
    int line, round, rounds;
} loop;

typedef struct saved {
    const char *name;
    int index;
} saved;

typedef struct reader {
    ts_model *m;
    const char *p; /* the next line */
    int line, reads;
    word words[MAX_WORDS + 1];
    int nwords, at;
    loop loops[MAX_DEPTH];
    int depth;
    saved *saves;
    int nsaves;
    const char *block;
} reader;

static ts_status wrong(const reader *r, int column, const char *fmt, ...) TS_PRINTF(3, 4);
static ts_status wrong(const reader *r, int column, const char *fmt, ...)
{
    char where[400];
    va_list ap;

    snprintf(where, sizeof(where), "%.350s:%d:%d", r->m->file, TS_MAX(1, r->line), column);
    va_start(ap, fmt);
    ts_fail_loc(where, TS_ERR_PARSE, "%s", ts_arena_vprintf(r->m->arena, fmt, ap));
    va_end(ap);
    return TS_ERR_PARSE;
}

static const word *peek(const reader *r)
{
    return &r->words[r->at];
}

static bool more(const reader *r)
{
    return peek(r)->kind != 0;
}

/* --- words --- */

static const loop *find_loop(const reader *r, const char *name, size_t len)
{
    for (int i = r->depth - 1; i >= 0; i--)
        if (strlen(r->loops[i].variable) == len && !strncmp(r->loops[i].variable, name, len))
            return &r->loops[i];
    return NULL;
}

/* {i}: the round of the repeat that has this variable. */
static ts_status substitute(reader *r, const char **p, word *w, size_t *n)
{
    const char *name = *p + 1;
    size_t len = strspn(name, LETTERS);
    const loop *l = find_loop(r, name, len);
    int digits;

    if (name[len] != '}')
        return wrong(r, w->column, "'{' without the name of a variable and '}'");
    if (!l) {
        wrong(r, w->column, "there is no repeat with the variable '%.*s' around",
              (int)TS_MIN(len, (size_t)MAX_WORD), name);
        ts_error_hint("'repeat i 3' gives the lines up to 'end' a variable {i}: 0, 1, 2");
        return TS_ERR_PARSE;
    }
    digits = snprintf(w->s + *n, sizeof(w->s) - *n, "%d", l->round);
    if (*n + (size_t)digits > MAX_WORD)
        return wrong(r, w->column, "a word has more than %d letters", MAX_WORD);
    *n += (size_t)digits;
    *p = name + len + 1;
    return TS_OK;
}

static bool is_mark(const char *p)
{
    return *p == ':' || *p == '=' || (p[0] == '-' && p[1] == '>');
}

static ts_status plain_word(reader *r, const char **p, word *w)
{
    size_t n = 0;

    w->kind = 'w';
    while (**p && !strchr(" \t\r\n#", **p) && !is_mark(*p)) {
        if (**p == '{') {
            TS_TRY(substitute(r, p, w, &n));
            continue;
        }
        if (!isgraph((unsigned char)**p))
            return wrong(r, w->column, "byte 0x%02x is not text", (unsigned char)**p);
        if (n == MAX_WORD)
            return wrong(r, w->column, "a word has more than %d letters", MAX_WORD);
        w->s[n++] = *(*p)++;
    }
    w->s[n] = 0;
    return TS_OK;
}

static ts_status next_word(reader *r, const char **p, word *w)
{
    if (!is_mark(*p))
        return plain_word(r, p, w);
    w->kind = **p == '-' ? '>' : **p;
    snprintf(w->s, sizeof(w->s), "%s", w->kind == '>' ? "->" : w->kind == ':' ? ":" : "=");
    *p += w->kind == '>' ? 2 : 1;
    return TS_OK;
}

/* Cuts the line at r->p into words and goes to the next. */
static ts_status cut(reader *r)
{
    const char *start = r->p, *p = start;

    r->nwords = r->at = 0;
    r->line++;
    r->p += strcspn(r->p, "\n");
    r->p += *r->p == '\n';
    if (r->p - start > MAX_LINE)
        return wrong(r, 1, "a line has more than %d bytes", MAX_LINE);
    if (++r->reads > MAX_READS)
        return wrong(r, 1, "more than %d lines, those of a repeat counted each time", MAX_READS);
    for (p += strspn(p, " \t\r"); *p && *p != '\n' && *p != '#'; p += strspn(p, " \t\r")) {
        if (r->nwords == MAX_WORDS)
            return wrong(r, (int)(p - start) + 1, "more than %d words on a line", MAX_WORDS);
        r->words[r->nwords].column = (int)(p - start) + 1;
        TS_TRY(next_word(r, &p, &r->words[r->nwords++]));
    }
    r->words[r->nwords] = (word){.column = (int)(p - start) + 1};
    return TS_OK;
}

static ts_status name_word(reader *r, const char *what, const char **out)
{
    const word *w = peek(r);

    if (w->kind != 'w')
        return wrong(r, w->column, "%s is missing", what);
    if (w->s[strspn(w->s, LETTERS)]) {
        wrong(r, w->column, "%s cannot be '%s'", what, w->s);
        ts_error_hint("letters, digits, '_' and '.' make a name");
        return TS_ERR_PARSE;
    }
    *out = ts_arena_strdup(r->m->arena, w->s);
    r->at++;
    return TS_OK;
}

static ts_status nothing_more(reader *r)
{
    if (more(r))
        return wrong(r, peek(r)->column, "'%s' is too much on this line", peek(r)->s);
    return TS_OK;
}

static ts_status integer(reader *r, const char *what, int64_t low, int64_t high, int64_t *out)
{
    const word *w = peek(r);
    char *end;

    errno = 0;
    *out = w->kind == 'w' ? strtoll(w->s, &end, 10) : 0;
    if (w->kind != 'w' || !w->s[0] || *end)
        return wrong(r, w->column, "%s must be a whole number%s%s%s", what,
                     w->kind ? ", not '" : "", w->s, w->kind ? "'" : "");
    if (errno || *out < low || *out > high)
        return wrong(r, w->column, "%s is %s; it can be %lld to %lld", what, w->s, (long long)low,
                     (long long)high);
    r->at++;
    return TS_OK;
}

/* --- arguments --- */

static const char *all_args(reader *r, const ts_line_kind *k)
{
    return ts_kind_args(r->m->arena, k);
}

static ts_status real(reader *r, const ts_line_arg *a, double *out)
{
    const word *w = peek(r);
    char *end;

    *out = ts_to_real(w->s, &end);
    if (w->kind != 'w' || !w->s[0] || *end || w->s[strspn(w->s, "0123456789+-.eE")])
        return wrong(r, w->column, "%s must be a number, not '%s'", a->name, w->s);
    if (!(*out >= a->low && *out <= a->high))
        return wrong(r, w->column, "%s is %s; it can be %g to %g", a->name, w->s, a->low, a->high);
    r->at++;
    return TS_OK;
}

static ts_status one_of(reader *r, const char *what, const char *words, double *out)
{
    const word *w = peek(r);
    size_t len = strlen(w->s);
    int i = 0;

    for (const char *p = words; *p; i++) {
        size_t n = strcspn(p, " ");
        if (w->kind == 'w' && n == len && !strncmp(p, w->s, n)) {
            *out = i;
            r->at++;
            return TS_OK;
        }
        p += n + strspn(p + n, " ");
    }
    return wrong(r, w->column, "%s is '%s'; it can be one of: %s", what, w->s, words);
}

static ts_status value(reader *r, const ts_line_arg *a, double *out)
{
    int64_t i;

    if (a->kind == 'f')
        return real(r, a, out);
    if (a->kind == 'b')
        return one_of(r, a->name, "no yes", out);
    if (a->kind == 'w')
        return one_of(r, a->name, a->words, out);
    if (a->kind == 'n' && !strcmp(peek(r)->s, "classes")) {
        *out = TS_LINE_CLASSES;
        r->m->uses_classes = true;
        r->at++;
        return TS_OK;
    }
    TS_TRY(integer(r, a->name, (int64_t)a->low, (int64_t)a->high, &i));
    *out = (double)i;
    return TS_OK;
}

static ts_status argument_value(reader *r, const ts_line_arg *a, double *out)
{
    ts_status s = value(r, a, out);

    if (s && a->kind == 'n')
        ts_error_hint("a whole number, or 'classes'");
    return s;
}

static ts_status no_such_arg(reader *r, const ts_line_kind *k)
{
    const word *w = peek(r);
    const char *names[TS_LINE_ARGS], *near;
    int n = 0;

    for (const ts_line_arg *a = k->args; a && a->name; a++)
        names[n++] = a->name;
    near = ts_nearest(w->s, names, n);
    wrong(r, w->column, "%s has no option '%s'", k->name, w->s);
    if (near)
        ts_error_hint("did you mean '%s'? %s takes %s", near, k->name, all_args(r, k));
    else
        ts_error_hint("%s takes %s", k->name, all_args(r, k));
    return TS_ERR_PARSE;
}

/* KEY '=' VALUE, or a VALUE for the next argument that may go without its name. */
static ts_status argument(reader *r, ts_line *l, bool *given)
{
    const ts_line_arg *a = l->kind->args;
    bool named = r->words[r->at].kind == 'w' && r->words[r->at + 1].kind == '=';

    for (; a && a->name; a++)
        if (named ? !strcmp(a->name, peek(r)->s)
                  : a->how != TS_ARG_NAMED && !given[a - l->kind->args])
            break;
    if (!a || !a->name) {
        if (named)
            return no_such_arg(r, l->kind);
        wrong(r, peek(r)->column, "'%s' is too much", peek(r)->s);
        ts_error_hint("%s takes %s", l->kind->name, all_args(r, l->kind));
        return TS_ERR_PARSE;
    }
    if (given[a - l->kind->args])
        return wrong(r, peek(r)->column, "%s is given twice", a->name);
    given[a - l->kind->args] = true;
    r->at += named ? 2 : 0;
    return argument_value(r, a, &l->args[a - l->kind->args]);
}

static ts_status arguments(reader *r, ts_line *l)
{
    bool given[TS_LINE_ARGS] = {false};
    const ts_line_arg *args = l->kind->args;

    for (int i = 0; args && args[i].name; i++)
        l->args[i] = args[i].otherwise;
    while (more(r) && peek(r)->kind != '>')
        TS_TRY(argument(r, l, given));
    for (int i = 0; args && args[i].name; i++)
        if (args[i].how == TS_ARG_NEEDED && !given[i]) {
            wrong(r, peek(r)->column, "%s needs '%s'", l->kind->name, args[i].name);
            ts_error_hint("%s takes %s", l->kind->name, all_args(r, l->kind));
            return TS_ERR_PARSE;
        }
    return TS_OK;
}

/* --- earlier results --- */

static ts_status no_such_result(reader *r)
{
    const word *w = peek(r);
    const char **names = TS_NEWS(r->m->arena, const char *, r->nsaves + 1), *near;

    for (int i = 0; i < r->nsaves; i++)
        names[i] = r->saves[i].name;
    names[r->nsaves] = "input";
    near = ts_nearest(w->s, names, r->nsaves + 1);
    wrong(r, w->column, "there is no result '%s' yet", w->s);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    else
        ts_error_hint("'-> %s' after an earlier layer keeps its result", w->s);
    return TS_ERR_PARSE;
}

static ts_status reference(reader *r, int *index)
{
    const word *w = peek(r);

    for (int i = r->nsaves - 1; i >= 0; i--)
        if (!strcmp(r->saves[i].name, w->s)) {
            *index = r->saves[i].index;
            r->at++;
            return TS_OK;
        }
    if (strcmp(w->s, "input"))
        return no_such_result(r);
    *index = TS_LINE_INPUT;
    r->at++;
    return TS_OK;
}

static ts_status references(reader *r, ts_line *l)
{
    while (l->nrefs < l->kind->most_refs && peek(r)->kind == 'w' &&
           r->words[r->at + 1].kind != '=') {
        TS_TRY(reference(r, &l->refs[l->nrefs]));
        l->nrefs++;
    }
    if (l->nrefs < l->kind->least_refs) {
        wrong(r, peek(r)->column, "%s needs the name of an earlier result", l->kind->name);
        ts_error_hint("'-> a' after a layer keeps its result as 'a'");
        return TS_ERR_PARSE;
    }
    return TS_OK;
}

/* Sizes of one sample; one of them may be -1. */
static ts_status sizes(reader *r, ts_line *l)
{
    if (!l->kind->least_sizes)
        return TS_OK;
    do {
        if (l->nsizes == TS_MAX_RANK - 1)
            return wrong(r, peek(r)->column, "more than %d sizes", TS_MAX_RANK - 1);
        TS_TRY(integer(r, "a size", -1, INT32_MAX, &l->sizes[l->nsizes]));
        l->nsizes++;
    } while (peek(r)->kind == 'w');
    return TS_OK;
}

/* --- words: arguments as their row has them --- */

static ts_status no_such_param(reader *r, const ts_word_row *w, const ts_param *params, int n)
{
    const char *names[TS_WORD_PARAMS], *near;

    for (int i = 0; i < n; i++)
        names[i] = params[i].name;
    near = ts_nearest(peek(r)->s, names, n);
    wrong(r, peek(r)->column, "%s has no option '%s'", w->name, peek(r)->s);
    if (near)
        ts_error_hint("did you mean '%s'? %s takes %s", near, w->name, w->arguments);
    else
        ts_error_hint("%s takes %s", w->name, w->arguments);
    return TS_ERR_PARSE;
}

static bool is_number(const char *s)
{
    char *end;

    ts_to_real(s, &end);
    return *s && !*end && !s[strspn(s, "0123456789+-.eE")];
}

static ts_status word_number(reader *r, const ts_param *p, ts_arg *out)
{
    ts_line_arg a = {.name = p->name, .low = -1e30, .high = 1e30};
    double v;

    if (p->kind == 'n' && !is_number(peek(r)->s)) {
        int index;
        TS_TRY(reference(r, &index));
        *out = (ts_arg){.kind = TS_ARG_TENSOR, .as.i = index};
        return TS_OK;
    }
    TS_TRY(real(r, &a, &v));
    *out = v == rint(v) && fabs(v) < 1e9 && p->kind == 'n' ? ts_arg_int(NULL, (int64_t)v)
                                                           : ts_arg_number(NULL, v);
    return TS_OK;
}

/* "0,2" after a name; words one after the other without. */
static ts_status word_list(reader *r, const ts_param *p, bool named, ts_arg *out)
{
    int most = p->count ? p->count : TS_MAX_RANK, n = 0;
    int64_t *ints = TS_NEWS(r->m->arena, int64_t, TS_MAX_RANK);
    double *reals = TS_NEWS(r->m->arena, double, TS_MAX_RANK);
    char text[sizeof(peek(r)->s)], *rest = NULL;

    do {
        snprintf(text, sizeof(text), "%s", peek(r)->s);
        for (char *s = strtok_r(text, ",", &rest); s; s = strtok_r(NULL, ",", &rest)) {
            if (!is_number(s) || fabs(reals[n] = ts_to_real(s, NULL)) > INT32_MAX ||
                (p->kind != 'm' && reals[n] != rint(reals[n])))
                return wrong(r, peek(r)->column, "%s must be whole numbers, not '%s'", p->name, s);
            ints[n] = (int64_t)reals[n];
            if (++n == most)
                break;
        }
        r->at++;
    } while (!named && n < most && peek(r)->kind == 'w' && is_number(peek(r)->s) &&
             r->words[r->at + 1].kind != '=');
    *out = p->kind == 'm' ? ts_arg_numbers(NULL, n, reals) : ts_arg_ints(NULL, n, ints);
    return TS_OK;
}

/* Names of results, as long as there are. The result before, if it comes first, is the first. */
static ts_status word_tensors(reader *r, bool first, ts_arg *out)
{
    int64_t *refs = TS_NEWS(r->m->arena, int64_t, TS_LINE_REFS + 1);
    int n = 0, index;

    if (first)
        refs[n++] = TS_LINE_RESULT;
    while (n <= TS_LINE_REFS && peek(r)->kind == 'w' && r->words[r->at + 1].kind != '=') {
        TS_TRY(reference(r, &index));
        refs[n++] = index;
    }
    *out = (ts_arg){.kind = TS_ARG_TENSORS, .n = n, .as.ints = refs};
    return TS_OK;
}

static ts_status word_value(reader *r, const ts_param *p, bool named, ts_arg *out)
{
    double v;
    int64_t i;
    int index;

    switch (p->kind) {
    case 'f':
    case 'n':
        return word_number(r, p, out);
    case 'l':
    case 'e':
    case 'm':
        return word_list(r, p, named, out);
    case 't':
        return word_tensors(r, false, out);
    case 'b':
        TS_TRY(one_of(r, p->name, "no yes", &v));
        *out = ts_arg_int(NULL, v != 0);
        return TS_OK;
    case 'i':
        TS_TRY(integer(r, p->name, -INT32_MAX, INT32_MAX, &i));
        *out = ts_arg_int(NULL, i);
        return TS_OK;
    case 's':
    case 'd':
    case 'r':
        *out = ts_arg_text(NULL, ts_arena_strdup(r->m->arena, peek(r)->s));
        r->at++;
        return TS_OK;
    default:
        TS_TRY(reference(r, &index));
        *out = (ts_arg){.kind = TS_ARG_TENSOR, .as.i = index};
        return TS_OK;
    }
}

static ts_status word_argument(reader *r, ts_line *l, const ts_param *params, int n)
{
    bool named = r->words[r->at].kind == 'w' && r->words[r->at + 1].kind == '=';
    int i = 0;

    while (i < n && (named ? strcmp(params[i].name, peek(r)->s) != 0 : l->given[i].kind != 0))
        i++;
    if (i == n && named)
        return no_such_param(r, l->kind->word, params, n);
    if (i == n || peek(r)->kind != 'w') {
        wrong(r, peek(r)->column, "'%s' is too much", peek(r)->s);
        ts_error_hint("%s takes %s", l->kind->name, l->kind->word->arguments);
        return TS_ERR_PARSE;
    }
    if (l->given[i].kind)
        return wrong(r, peek(r)->column, "%s is given twice", params[i].name);
    r->at += named ? 2 : 0;
    return word_value(r, &params[i], named, &l->given[i]);
}

/* The result before is the first tensor that the word takes. */
static ts_status word_arguments(reader *r, ts_line *l)
{
    ts_param params[TS_WORD_PARAMS];
    int n = ts_word_params(l->kind->word, params), first = 0;

    while (first < n && !strchr("xnt", params[first].kind))
        first++;
    if (first == n)
        return wrong(r, l->column, "%s makes nothing of the result before it", l->kind->name);
    if (params[first].kind == 't')
        TS_TRY(word_tensors(r, true, &l->given[first]));
    else
        l->given[first] = (ts_arg){.kind = TS_ARG_TENSOR, .as.i = TS_LINE_RESULT};
    while (more(r) && peek(r)->kind != '>')
        TS_TRY(word_argument(r, l, params, n));
    return TS_OK;
}

static const ts_line_kind *find(const ts_line_kind *kinds, const char *name)
{
    for (; kinds->name; kinds++)
        if (!strcmp(kinds->name, name))
            return kinds;
    return NULL;
}

static const ts_line_kind *word_kind(reader *r, const char *name)
{
    const ts_word_row *w = strchr(name, ':') ? NULL : ts_word_find(name);
    ts_line_kind *k;

    if (!w || !w->arguments || strcmp(w->name, name))
        return NULL;
    k = TS_NEW(r->m->arena, ts_line_kind);
    *k = (ts_line_kind){.name = w->name, .make = ts_line_word, .word = w};
    return k;
}

/* 'huber' is huber_loss(x, target, ..). */
static const ts_line_kind *loss_kind(reader *r, const char *name)
{
    const ts_line_kind *k = find(ts_loss_kinds, name);

    k = k ? k : word_kind(r, ts_arena_printf(r->m->arena, "%s_loss", name));
    return k && (!k->word || !strncmp(k->word->arguments, "x target", 8)) ? k : NULL;
}

static ts_status save(reader *r)
{
    saved s = {.index = r->m->nlines - 1};

    if (!more(r))
        return TS_OK;
    if (peek(r)->kind != '>')
        return nothing_more(r);
    r->at++;
    TS_TRY(name_word(r, "the name of the result", &s.name));
    TS_PUSH(r->m->arena, r->saves, r->nsaves, s);
    return nothing_more(r);
}

/* --- lines --- */

static ts_status unknown(reader *r, const char *what, const ts_line_kind *kinds,
                         const char *const *extra, int n)
{
    const char **names = NULL, *near;
    int count = 0;

    for (int i = 0; i < n; i++)
        TS_PUSH(r->m->arena, names, count, extra[i]);
    for (int i = 0; extra && ts_word_at(i); i++)
        TS_PUSH(r->m->arena, names, count, ts_word_at(i)->name);
    for (; kinds->name; kinds++)
        TS_PUSH(r->m->arena, names, count, kinds->name);
    near = ts_nearest(peek(r)->s, names, count);
    wrong(r, peek(r)->column, "unknown %s '%s'", what, peek(r)->s);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    else
        ts_error_hint("models.md and words.md in the documentation list every %s", what);
    return TS_ERR_PARSE;
}

static ts_status input(reader *r)
{
    ts_model *m = r->m;
    int64_t d;

    if (m->rank)
        return wrong(r, r->words[0].column, "there is an input already");
    m->input_line = r->line;
    while (peek(r)->kind == 'w' && r->words[r->at + 1].kind != '=') {
        if (m->rank == TS_MAX_RANK - 1)
            return wrong(r, peek(r)->column, "a sample has more than %d sizes", TS_MAX_RANK - 1);
        TS_TRY(integer(r, "a size", 1, INT32_MAX, &d));
        m->dims[m->rank++] = d;
    }
    if (!m->rank)
        return wrong(r, peek(r)->column, "input needs the sizes of one sample, as in 1 28 28");
    if (!strcmp(peek(r)->s, "dtype") && r->words[r->at + 1].kind == '=') {
        double i;
        r->at += 2;
        TS_TRY(one_of(r, "dtype", "f32 i32", &i));
        m->dtype = i ? TS_I32 : TS_F32;
    }
    return nothing_more(r);
}

static ts_status classes(reader *r)
{
    if (r->m->classes)
        return wrong(r, r->words[0].column, "the number of classes is said already");
    TS_TRY(integer(r, "the number of classes", 1, INT32_MAX, &r->m->classes));
    return nothing_more(r);
}

static ts_status block(reader *r)
{
    TS_TRY(name_word(r, "the name of the block", &r->block));
    return nothing_more(r);
}

static ts_status loss(reader *r)
{
    ts_line *l = &r->m->loss;
    const ts_line_kind *k;

    if (r->m->has_loss)
        return wrong(r, r->words[0].column, "there is a loss already");
    *l =
        (ts_line){.name = "loss", .block = r->block, .line = r->line, .column = r->words[0].column};
    if (peek(r)->kind != 'w')
        return wrong(r, peek(r)->column, "the kind of the loss is missing");
    k = loss_kind(r, peek(r)->s);
    if (!k)
        return unknown(r, "loss", ts_loss_kinds, NULL, 0);
    r->at++;
    l->kind = k;
    r->m->has_loss = true;
    l->given[1] = (ts_arg){.kind = k->word ? TS_ARG_TENSOR : TS_ARG_NONE, .as.i = TS_LINE_TARGET};
    TS_TRY(k->word ? word_arguments(r, l) : arguments(r, l));
    return nothing_more(r);
}

/* freeze conv1.* */
static ts_status freeze(reader *r)
{
    const word *w = peek(r);

    if (w->kind != 'w')
        return wrong(r, w->column, "the pattern of the parameters is missing, as in conv1.*");
    TS_PUSH(r->m->arena, r->m->frozen, r->m->nfrozen, ts_arena_strdup(r->m->arena, w->s));
    TS_PUSH(r->m->arena, r->m->frozen_lines, r->m->nfrozen_lines, r->line);
    r->at++;
    return nothing_more(r);
}

/* class_weights 1 0.5 2: a line may go on with another. */
static ts_status class_weights(reader *r)
{
    ts_line_arg a = {.name = "the weight of a class", .low = 0, .high = 1e30};
    double v;

    do {
        TS_TRY(real(r, &a, &v));
        TS_PUSH(r->m->arena, r->m->class_weights, r->m->nclass_weights, v);
    } while (more(r));
    return TS_OK;
}

static ts_status precision(reader *r)
{
    static const ts_dtype types[] = {TS_F32, TS_BF16, TS_F16};
    double i;

    TS_TRY(one_of(r, "precision", "f32 bf16 f16", &i));
    r->m->precision = types[(int)i];
    return nothing_more(r);
}

static ts_status repeat(reader *r)
{
    loop *l;
    int64_t n;

    if (r->depth == MAX_DEPTH)
        return wrong(r, r->words[0].column, "more than %d repeats in each other", MAX_DEPTH);
    l = &r->loops[r->depth];
    *l = (loop){.body = r->p, .line = r->line};
    TS_TRY(name_word(r, "the variable of the repeat", &l->variable));
    for (int i = 0; i < r->depth; i++)
        if (!strcmp(r->loops[i].variable, l->variable))
            return wrong(r, r->words[1].column, "the variable '%s' is taken by the repeat around",
                         l->variable);
    TS_TRY(integer(r, "the number of rounds", 1, MAX_LAYERS, &n));
    l->rounds = (int)n;
    r->depth++;
    return nothing_more(r);
}

static ts_status end(reader *r)
{
    loop *l;

    TS_TRY(nothing_more(r));
    if (!r->depth)
        return wrong(r, r->words[0].column, "'end' without 'repeat'");
    l = &r->loops[r->depth - 1];
    if (++l->round == l->rounds) {
        r->depth--;
        return TS_OK;
    }
    r->p = l->body;
    r->line = l->line;
    return TS_OK;
}

static const struct {
    const char *name;
    ts_status (*read)(reader *r);
} directives[] = {
    {"input", input},   {"classes", classes},     {"block", block},
    {"loss", loss},     {"repeat", repeat},       {"end", end},
    {"freeze", freeze}, {"precision", precision}, {"class_weights", class_weights},
};

static ts_status layer(reader *r)
{
    ts_line l = {.name = "", .block = r->block, .line = r->line, .column = r->words[0].column};
    const char *names[TS_COUNT(directives)];

    if (r->words[1].kind == ':') {
        TS_TRY(name_word(r, "the name of a layer", &l.name));
        r->at++;
    }
    if (peek(r)->kind != 'w')
        return wrong(r, peek(r)->column, "a layer is missing");
    for (int i = 0; i < TS_COUNT(directives); i++)
        names[i] = directives[i].name;
    l.kind = find(ts_layer_kinds, peek(r)->s);
    l.kind = l.kind ? l.kind : word_kind(r, peek(r)->s);
    if (!l.kind)
        return unknown(r, "layer", ts_layer_kinds, names, TS_COUNT(names));
    if (l.kind->weights && !l.name[0]) {
        wrong(r, l.column, "%s has weights and needs a name", l.kind->name);
        ts_error_hint("write 'NAME: %s ...'; its weights are called NAME.weight", l.kind->name);
        return TS_ERR_PARSE;
    }
    if (r->m->nlines == MAX_LAYERS)
        return wrong(r, l.column, "more than %d layers", MAX_LAYERS);
    r->at++;
    TS_TRY(references(r, &l));
    TS_TRY(sizes(r, &l));
    TS_TRY(l.kind->word ? word_arguments(r, &l) : arguments(r, &l));
    TS_PUSH(r->m->arena, r->m->lines, r->m->nlines, l);
    return save(r);
}

static ts_status statement(reader *r)
{
    if (!r->nwords)
        return TS_OK;
    for (int i = 0; i < TS_COUNT(directives); i++)
        if (!strcmp(r->words[0].s, directives[i].name) && r->words[1].kind != ':') {
            r->at = 1;
            return directives[i].read(r);
        }
    if (!r->m->rank)
        return wrong(r, r->words[0].column, "the description must begin with 'input SIZE ...'");
    if (r->m->has_loss)
        return wrong(r, r->words[0].column, "nothing can follow the loss");
    return r->words[0].kind == '>' ? save(r) : layer(r);
}

static ts_status finish(reader *r)
{
    ts_model *m = r->m;

    if (r->depth)
        return wrong(r, 1, "the repeat of line %d has no 'end'", r->loops[r->depth - 1].line);
    if (!m->rank)
        return wrong(r, 1, "there is no 'input SIZE ...'");
    if (!m->nlines)
        return wrong(r, 1, "there are no layers");
    if (m->uses_classes && !m->classes)
        return wrong(r, 1, "a layer has 'classes' outputs, and no line 'classes N' says how many");
    return TS_OK;
}

ts_status ts_model_read(ts_model *m)
{
    reader *r = TS_NEW(m->arena, reader);

    r->m = m;
    r->p = m->text;
    r->block = "";
    if (strlen(m->text) > MAX_TEXT)
        return wrong(r, 1, "more than %d bytes; this is no description of a model", MAX_TEXT);
    while (*r->p) {
        TS_TRY(cut(r));
        TS_TRY(statement(r));
    }
    return finish(r);
}

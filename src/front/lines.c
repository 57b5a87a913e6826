/* lines.c - the lines of a description in the order in which they are meant.
 *
 *   let NAME VALUE                       a variable; {NAME} in a word is its value
 *   repeat VARIABLE N ... end            its lines, N times
 *   if VALUE ['is' VALUE] ... [else ...] end
 *   define NAME [PARAMETER | PARAMETER '=' VALUE] ... end     lines that have a name
 *
 * Words end at blanks, ':', '=' and '->'; '#' begins a comment. {a+2*b} is computed with whole
 * numbers. Nothing is copied: to repeat lines, or to use a definition, is to read them again. So
 * how often lines are read is bounded, and how deep: hostile text costs a moment and an error.
 */
#include "front/front.h"
#include <ctype.h>
#include <errno.h>

enum {
    MAX_LINE = 4096,
    MAX_READS = 100000, /* lines, those of a repeat counted each time */
    MAX_ROUNDS = 2000,
    MAX_CALLS = 10000,
    MAX_PREFIX = 900, /* bytes of the names around a layer */
    MAX_NESTED = 32,  /* parentheses */
};

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

/* The definition whose lines are being read; NULL: none. */
static const ts_frame *innermost(const ts_reader *r)
{
    for (int i = r->depth - 1; i >= 0; i--)
        if (r->frames[i].kind == 'd')
            return &r->frames[i];
    return NULL;
}

static const ts_frame *outermost(const ts_reader *r)
{
    for (int i = 0; i < r->depth; i++)
        if (r->frames[i].kind == 'd')
            return &r->frames[i];
    return NULL;
}

/* net.txt:5:3, or net.txt:5:3, for line 12: that uses the definition. */
ts_status ts_read_wrong(const ts_reader *r, int column, const char *fmt, ...)
{
    const ts_frame *f = outermost(r);
    char where[400];
    va_list ap;
    int n;

    n = snprintf(where, sizeof(where), "%.350s:%d:%d", r->m->file, TS_MAX(1, r->line), column);
    if (f)
        snprintf(where + n, sizeof(where) - (size_t)n, ", for line %d", f->said);
    va_start(ap, fmt);
    ts_fail_loc(where, TS_ERR_PARSE, "%s", ts_arena_vprintf(r->m->arena, fmt, ap));
    va_end(ap);
    return TS_ERR_PARSE;
}

static const ts_read_word *peek(const ts_reader *r)
{
    return &r->words[r->at];
}

/* --- variables --- */

static int find_between(const ts_reader *r, int first, int end, const char *name, size_t len)
{
    for (int i = end - 1; i >= first; i--) {
        const char *other = r->variables[i].name;
        if (other && strlen(other) == len && !strncmp(other, name, len))
            return i;
    }
    return -1;
}

/* In a definition: its own variables. */
static int find_own(const ts_reader *r, const char *name, size_t len)
{
    const ts_frame *f = innermost(r);

    return find_between(r, f ? f->first_variable : 0, r->nvariables, name, len);
}

/* Those, and what is said outside of definitions. */
static const char *find_value(const ts_reader *r, const char *name, size_t len)
{
    const ts_frame *f = outermost(r);
    int i = find_own(r, name, len);

    if (i < 0 && f)
        i = find_between(r, 0, f->first_variable, name, len);
    return i < 0 ? NULL : r->variables[i].value;
}

static void add_variable(ts_reader *r, const char *name, const char *value)
{
    ts_variable v = {.name = name, .value = value};

    TS_PUSH(r->m->arena, r->variables, r->nvariables, v);
}

/* --- {expressions} --- */

typedef struct sum {
    const ts_reader *r;
    const char *p;
    int column, nested;
} sum;

static ts_status add_up(sum *s, int64_t *out);

static void blanks(sum *s)
{
    s->p += strspn(s->p, " \t");
}

static size_t name_length(const char *p)
{
    return isalpha((unsigned char)*p) || *p == '_' ? strspn(p, LETTERS) : 0;
}

static ts_status no_such_variable(const ts_reader *r, int column, const char *name, size_t len)
{
    ts_read_wrong(r, column, "there is no variable '%.*s' here",
                  (int)TS_MIN(len, (size_t)TS_READ_WORD), name);
    ts_error_hint("'let i 3' makes one; 'repeat i 3' too, for the lines up to its 'end': 0, 1, 2");
    return TS_ERR_PARSE;
}

static ts_status bounded(const sum *s, int64_t v, int64_t *out)
{
    if (v > INT32_MAX || v < -INT32_MAX)
        return ts_read_wrong(s->r, s->column, "{...} comes to %lld, which is too much",
                             (long long)v);
    *out = v;
    return TS_OK;
}

static ts_status number(const sum *s, const char *text, size_t len, int64_t *out)
{
    char digits[24], *end;

    snprintf(digits, sizeof(digits), "%.*s", (int)TS_MIN(len, sizeof(digits) - 1), text);
    errno = 0;
    *out = strtoll(digits, &end, 10);
    if (errno || !len || *end || len >= sizeof(digits))
        return ts_read_wrong(s->r, s->column, "'%.*s' is no whole number to compute with",
                             (int)TS_MIN(len, (size_t)TS_READ_WORD), text);
    return bounded(s, *out, out);
}

static ts_status factor(sum *s, int64_t *out)
{
    size_t len;
    const char *p, *value;

    blanks(s);
    p = s->p;
    if (*p == '(' || *p == '-') {
        if (++s->nested > MAX_NESTED)
            return ts_read_wrong(s->r, s->column, "more than %d parentheses", MAX_NESTED);
        s->p++;
        TS_TRY(*p == '(' ? add_up(s, out) : factor(s, out));
        *out = *p == '-' ? -*out : *out;
        if (*p == '(' && *s->p != ')')
            return ts_read_wrong(s->r, s->column, "'(' without ')' in {...}");
        s->p += *p == '(';
        return TS_OK;
    }
    len = name_length(p);
    value = len ? find_value(s->r, p, len) : p;
    if (!value)
        return no_such_variable(s->r, s->column, p, len);
    if (!len && !isdigit((unsigned char)*p))
        return ts_read_wrong(s->r, s->column, "{...} is a name, or a sum of names and numbers");
    s->p += len ? len : strspn(p, "0123456789");
    return number(s, value, len ? strlen(value) : (size_t)(s->p - p), out);
}

static ts_status multiply(sum *s, int64_t *out)
{
    TS_TRY(factor(s, out));
    for (blanks(s); *s->p && strchr("*/%", *s->p); blanks(s)) {
        char op = *s->p++;
        int64_t v;
        TS_TRY(factor(s, &v));
        if (op != '*' && !v)
            return ts_read_wrong(s->r, s->column, "{...} divides by 0");
        TS_TRY(bounded(s, op == '*' ? *out * v : op == '/' ? *out / v : *out % v, out));
    }
    return TS_OK;
}

static ts_status add_up(sum *s, int64_t *out)
{
    TS_TRY(multiply(s, out));
    for (blanks(s); *s->p && strchr("+-", *s->p); blanks(s)) {
        char op = *s->p++;
        int64_t v;
        TS_TRY(multiply(s, &v));
        TS_TRY(bounded(s, op == '+' ? *out + v : *out - v, out));
    }
    return TS_OK;
}

/* {i}, {2*i+1}: the value goes to the end of the word. A name alone may stand for any word. */
static ts_status substitute(ts_reader *r, const char **p, ts_read_word *w, size_t *n)
{
    sum s = {.r = r, .p = *p + 1, .column = w->column};
    size_t len = name_length(s.p);
    const char *value = NULL;
    char digits[24];
    int64_t v;

    if (!s.p[strcspn(s.p, "}\n")] || s.p[strcspn(s.p, "}\n")] == '\n')
        return ts_read_wrong(r, w->column, "'{' without '}'");
    if (len && s.p[len] == '}') {
        value = find_value(r, s.p, len);
        if (!value)
            return no_such_variable(r, w->column, s.p, len);
        s.p += len;
    } else {
        TS_TRY(add_up(&s, &v));
        if (*s.p != '}')
            return ts_read_wrong(r, w->column, "{...} is a name, or a sum of names and numbers");
        snprintf(digits, sizeof(digits), "%lld", (long long)v);
        value = digits;
    }
    if (*n + strlen(value) > TS_READ_WORD)
        return ts_read_wrong(r, w->column, "a word has more than %d letters", TS_READ_WORD);
    memcpy(w->s + *n, value, strlen(value));
    *n += strlen(value);
    *p = s.p + 1;
    return TS_OK;
}

/* --- words --- */

static bool is_mark(const char *p)
{
    return *p == ':' || *p == '=' || (p[0] == '-' && p[1] == '>');
}

static ts_status plain_word(ts_reader *r, const char **p, ts_read_word *w)
{
    size_t n = 0;

    w->kind = 'w';
    while (**p && !strchr(" \t\r\n#", **p) && !is_mark(*p)) {
        if (**p == '{') {
            TS_TRY(substitute(r, p, w, &n));
            continue;
        }
        if (!isgraph((unsigned char)**p))
            return ts_read_wrong(r, w->column, "byte 0x%02x is not text", (unsigned char)**p);
        if (n == TS_READ_WORD)
            return ts_read_wrong(r, w->column, "a word has more than %d letters", TS_READ_WORD);
        w->s[n++] = *(*p)++;
    }
    w->s[n] = 0;
    return TS_OK;
}

static ts_status next_word(ts_reader *r, const char **p, ts_read_word *w)
{
    if (!is_mark(*p))
        return plain_word(r, p, w);
    w->kind = **p == '-' ? '>' : **p;
    snprintf(w->s, sizeof(w->s), "%s", w->kind == '>' ? "->" : w->kind == ':' ? ":" : "=");
    *p += w->kind == '>' ? 2 : 1;
    return TS_OK;
}

/* Goes to the line after the one at r->p, which is returned. */
static ts_status go_on(ts_reader *r, const char **line)
{
    *line = r->p;
    r->line++;
    r->p += strcspn(r->p, "\n");
    r->p += *r->p == '\n';
    if (r->p - *line > MAX_LINE)
        return ts_read_wrong(r, 1, "a line has more than %d bytes", MAX_LINE);
    if (++r->reads > MAX_READS)
        return ts_read_wrong(r, 1, "more than %d lines, those of a repeat counted each time",
                             MAX_READS);
    return TS_OK;
}

/* Cuts the line at r->p into words and goes to the next. */
static ts_status cut(ts_reader *r)
{
    const char *start, *p;

    r->nwords = r->at = 0;
    TS_TRY(go_on(r, &start));
    p = start;
    for (p += strspn(p, " \t\r"); *p && *p != '\n' && *p != '#'; p += strspn(p, " \t\r")) {
        if (r->nwords == TS_READ_WORDS)
            return ts_read_wrong(r, (int)(p - start) + 1, "more than %d words on a line",
                                 TS_READ_WORDS);
        r->words[r->nwords].column = (int)(p - start) + 1;
        TS_TRY(next_word(r, &p, &r->words[r->nwords++]));
    }
    r->words[r->nwords] = (ts_read_word){.column = (int)(p - start) + 1};
    return TS_OK;
}

ts_status ts_read_name(ts_reader *r, const char *what, const char **out)
{
    const ts_read_word *w = peek(r);

    if (w->kind != 'w')
        return ts_read_wrong(r, w->column, "%s is missing", what);
    if (!w->s[0] || w->s[strspn(w->s, LETTERS)]) {
        ts_read_wrong(r, w->column, "%s cannot be '%s'", what, w->s);
        ts_error_hint("letters, digits, '_' and '.' make a name");
        return TS_ERR_PARSE;
    }
    *out = ts_arena_strdup(r->m->arena, w->s);
    r->at++;
    return TS_OK;
}

ts_status ts_read_end(ts_reader *r)
{
    if (peek(r)->kind)
        return ts_read_wrong(r, peek(r)->column, "'%s' is too much on this line", peek(r)->s);
    return TS_OK;
}

ts_status ts_read_integer(ts_reader *r, const char *what, int64_t low, int64_t high, int64_t *out)
{
    const ts_read_word *w = peek(r);
    char *end;

    errno = 0;
    *out = w->kind == 'w' ? strtoll(w->s, &end, 10) : 0;
    if (w->kind != 'w' || !w->s[0] || *end)
        return ts_read_wrong(r, w->column, "%s must be a whole number%s%s%s", what,
                             w->kind ? ", not '" : "", w->s, w->kind ? "'" : "");
    if (errno || *out < low || *out > high)
        return ts_read_wrong(r, w->column, "%s is %s; it can be %lld to %lld", what, w->s,
                             (long long)low, (long long)high);
    r->at++;
    return TS_OK;
}

/* A name that {...} can compute with. */
static ts_status variable_name(ts_reader *r, const char *what, const char **out)
{
    int column = peek(r)->column;

    TS_TRY(ts_read_name(r, what, out));
    if (name_length(*out))
        return TS_OK;
    ts_read_wrong(r, column, "%s cannot be '%s'", what, *out);
    ts_error_hint("it begins with a letter");
    return TS_ERR_PARSE;
}

/* --- frames --- */

static ts_status push(ts_reader *r, ts_frame f)
{
    if (r->depth == TS_READ_DEPTH) {
        ts_read_wrong(r, r->words[0].column,
                      "more than %d repeats, conditions and definitions in each other",
                      TS_READ_DEPTH);
        if (f.definition)
            ts_error_hint("a definition that uses itself needs an 'if' that ends it");
        return TS_ERR_PARSE;
    }
    r->frames[r->depth++] = f;
    return TS_OK;
}

static const char *frame_name(const ts_frame *f)
{
    return f->kind == 'r' ? "repeat" : "if";
}

static bool is_first(const char *line, const char *word)
{
    size_t n = strlen(word);

    line += strspn(line, " \t\r");
    if (strncmp(line, word, n) || !strchr(" \t\r\n#", line[n]))
        return false;
    line += n + strspn(line + n, " \t\r");
    return *line != ':'; /* a layer of that name */
}

/* Passes over lines up to the 'end' of what line `said` began, or its 'else'. */
static ts_status skip(ts_reader *r, const char *what, int said, bool *otherwise)
{
    const char *line;
    int level = 0;

    while (*r->p) {
        TS_TRY(go_on(r, &line));
        level += is_first(line, "repeat") || is_first(line, "if") || is_first(line, "define");
        if (is_first(line, "end") && !level--)
            return TS_OK;
        if (is_first(line, "else") && !level) {
            if (!otherwise)
                return ts_read_wrong(r, 1, "'else' without 'if'");
            *otherwise = true;
            return TS_OK;
        }
    }
    return ts_read_wrong(r, 1, "the %s of line %d has no 'end'", what, said);
}

static ts_status let(ts_reader *r)
{
    const char *name, *value;
    int i;

    TS_TRY(variable_name(r, "the name of the variable", &name));
    if (peek(r)->kind != 'w')
        return ts_read_wrong(r, peek(r)->column, "the value of the variable is missing");
    value = ts_arena_strdup(r->m->arena, peek(r)->s);
    r->at++;
    for (int k = 0; k < r->depth; k++)
        if (r->frames[k].kind == 'r' && find_own(r, name, strlen(name)) == r->frames[k].variable)
            return ts_read_wrong(r, r->words[1].column, "'%s' counts the rounds of a repeat", name);
    i = find_own(r, name, strlen(name));
    if (i < 0)
        add_variable(r, name, value);
    else
        r->variables[i].value = value;
    return ts_read_end(r);
}

static const char *round_text(ts_reader *r, int round)
{
    return ts_arena_printf(r->m->arena, "%d", round);
}

static ts_status repeat(ts_reader *r)
{
    ts_frame f = {.kind = 'r', .body = r->p, .line = r->line, .said = r->line};
    const char *name;
    int64_t n;

    TS_TRY(variable_name(r, "the variable of the repeat", &name));
    if (find_own(r, name, strlen(name)) >= 0)
        return ts_read_wrong(r, r->words[1].column, "the variable '%s' is taken", name);
    TS_TRY(ts_read_integer(r, "the number of rounds", 0, MAX_ROUNDS, &n));
    TS_TRY(ts_read_end(r));
    if (!n)
        return skip(r, "repeat", r->line, NULL);
    f.rounds = (int)n;
    f.variable = r->nvariables;
    add_variable(r, name, round_text(r, 0));
    return push(r, f);
}

static ts_status next_round(ts_reader *r, ts_frame *f)
{
    if (++f->round == f->rounds) {
        r->variables[f->variable].name = NULL;
        r->depth--;
        return TS_OK;
    }
    r->variables[f->variable].value = round_text(r, f->round);
    r->p = f->body;
    r->line = f->line;
    return TS_OK;
}

/* Reading goes on after the line that used the definition. */
static ts_status end_definition(ts_reader *r, const ts_frame *f)
{
    r->p = f->body;
    r->line = f->line;
    r->nvariables = f->first_variable;
    r->nsaves = f->first_save;
    r->prefix = f->prefix;
    r->depth--;
    r->ended = f;
    return TS_OK;
}

static ts_status end(ts_reader *r)
{
    ts_frame *f = r->depth ? &r->frames[r->depth - 1] : NULL;

    TS_TRY(ts_read_end(r));
    if (!f)
        return ts_read_wrong(r, r->words[0].column, "'end' without 'repeat', 'if' or 'define'");
    if (f->kind == 'r')
        return next_round(r, f);
    if (f->kind == 'd')
        return end_definition(r, f);
    r->depth--;
    return TS_OK;
}

static ts_status truth(ts_reader *r, bool *out)
{
    const ts_read_word *w = peek(r), *is = w + 1;

    if (w->kind != 'w')
        return ts_read_wrong(r, w->column, "the condition is missing");
    r->at++;
    if (is->kind == 'w' && !strcmp(is->s, "is") && is[1].kind == 'w') {
        *out = !strcmp(w->s, is[1].s);
        r->at += 2;
        return ts_read_end(r);
    }
    *out = strcmp(w->s, "no") && strcmp(w->s, "0");
    if (*out && strcmp(w->s, "yes") && w->s[strspn(w->s, "-0123456789")]) {
        ts_read_wrong(r, w->column, "a condition cannot be '%s'", w->s);
        ts_error_hint("a number that is not 0, 'yes', 'no', or two words with 'is' between them");
        return TS_ERR_PARSE;
    }
    return ts_read_end(r);
}

static ts_status condition(ts_reader *r)
{
    ts_frame f = {.kind = 'i', .said = r->line};
    bool holds = false, otherwise = false;

    TS_TRY(truth(r, &holds));
    if (holds)
        return push(r, f);
    TS_TRY(skip(r, "if", f.said, &otherwise));
    f.round = 1; /* a second 'else' is one too many */
    return otherwise ? push(r, f) : TS_OK;
}

static ts_status otherwise(ts_reader *r)
{
    ts_frame *f = r->depth ? &r->frames[r->depth - 1] : NULL;

    TS_TRY(ts_read_end(r));
    if (!f || f->kind != 'i' || f->round)
        return ts_read_wrong(r, r->words[0].column, "'else' without 'if'");
    TS_TRY(skip(r, "if", f->said, NULL));
    r->depth--;
    return TS_OK;
}

/* --- definitions --- */

const ts_definition *ts_read_definition(const ts_reader *r, const char *name)
{
    for (int i = 0; i < r->ndefinitions; i++)
        if (!strcmp(r->definitions[i].name, name))
            return &r->definitions[i];
    return NULL;
}

static ts_status definition_parameter(ts_reader *r, ts_definition *d)
{
    ts_variable *p = &d->params[d->nparams];
    int column = peek(r)->column;

    if (d->nparams == TS_READ_PARAMETERS)
        return ts_read_wrong(r, column, "more than %d parameters", TS_READ_PARAMETERS);
    TS_TRY(variable_name(r, "a parameter", &p->name));
    for (int i = 0; i < d->nparams; i++)
        if (!strcmp(d->params[i].name, p->name))
            return ts_read_wrong(r, column, "there are two parameters '%s'", p->name);
    d->nparams++;
    if (peek(r)->kind != '=')
        return TS_OK;
    r->at++;
    if (peek(r)->kind != 'w')
        return ts_read_wrong(r, peek(r)->column, "what '%s' is when not given is missing", p->name);
    p->value = ts_arena_strdup(r->m->arena, peek(r)->s);
    r->at++;
    return TS_OK;
}

static ts_status define(ts_reader *r)
{
    ts_definition d = {.line = r->line};
    int column = peek(r)->column;

    if (r->depth)
        return ts_read_wrong(r, r->words[0].column,
                             "a definition is said outside of repeats, conditions and others");
    TS_TRY(ts_read_name(r, "the name of the definition", &d.name));
    if (ts_read_is_layer(r, d.name) || ts_read_definition(r, d.name))
        return ts_read_wrong(r, column, "the name '%s' is taken", d.name);
    while (peek(r)->kind)
        TS_TRY(definition_parameter(r, &d));
    d.body = r->p;
    TS_PUSH(r->m->arena, r->definitions, r->ndefinitions, d);
    return skip(r, "definition", d.line, NULL);
}

static const char *parameters_text(const ts_reader *r, const ts_definition *d)
{
    char *s = ts_arena_strdup(r->m->arena, "");

    for (int i = 0; i < d->nparams; i++)
        s = ts_arena_printf(r->m->arena, d->params[i].value ? "%s [%s=]" : "%s %s", s,
                            d->params[i].name);
    return s[0] ? s + 1 : "nothing";
}

/* A VALUE for the next parameter, or PARAMETER '=' VALUE. */
static ts_status call_argument(ts_reader *r, const ts_definition *d, const char **values)
{
    const ts_read_word *w = peek(r);
    bool named = w[0].kind == 'w' && w[1].kind == '=';
    int i = 0;

    while (i < d->nparams && (named ? strcmp(d->params[i].name, w->s) != 0 : values[i] != NULL))
        i++;
    if (i == d->nparams || w->kind != 'w') {
        ts_read_wrong(r, w->column, named ? "%s has no parameter '%s'" : "%s: '%s' is too much",
                      d->name, w->s);
        ts_error_hint("%s takes %s", d->name, parameters_text(r, d));
        return TS_ERR_PARSE;
    }
    if (values[i])
        return ts_read_wrong(r, w->column, "%s is given twice", d->params[i].name);
    r->at += named ? 2 : 0;
    if (peek(r)->kind != 'w')
        return ts_read_wrong(r, peek(r)->column, "the value of '%s' is missing", d->params[i].name);
    values[i] = ts_arena_strdup(r->m->arena, peek(r)->s);
    r->at++;
    return TS_OK;
}

static ts_status call_arguments(ts_reader *r, const ts_definition *d, const char **values)
{
    while (peek(r)->kind && peek(r)->kind != '>')
        TS_TRY(call_argument(r, d, values));
    for (int i = 0; i < d->nparams; i++) {
        values[i] = values[i] ? values[i] : d->params[i].value;
        if (values[i])
            continue;
        ts_read_wrong(r, peek(r)->column, "%s needs '%s'", d->name, d->params[i].name);
        ts_error_hint("%s takes %s", d->name, parameters_text(r, d));
        return TS_ERR_PARSE;
    }
    return TS_OK;
}

/* Results of outside are seen in a definition only if they are its arguments. */
static void enter(ts_reader *r, const ts_definition *d, const char *const *values)
{
    ts_saved seen[TS_READ_PARAMETERS];
    int n = 0;

    for (int i = 0; i < d->nparams; i++) {
        int ref = ts_read_visible(r, values[i]);
        if (ref >= 0)
            seen[n++] = (ts_saved){.name = values[i], .ref = ref, .given = d->params[i].name};
    }
    for (int i = 0; i < n; i++)
        TS_PUSH(r->m->arena, r->saves, r->nsaves, seen[i]);
    for (int i = 0; i < d->nparams; i++)
        add_variable(r, d->params[i].name, values[i]);
}

ts_status ts_read_call(ts_reader *r, const ts_definition *d, const char *name)
{
    const char *values[TS_READ_PARAMETERS] = {NULL};
    ts_frame f = {.kind = 'd',
                  .body = r->p,
                  .line = r->line,
                  .said = r->line,
                  .definition = d,
                  .first_variable = r->nvariables,
                  .first_save = r->nsaves,
                  .first_line = r->m->nlines,
                  .first_ref = r->m->nrefs,
                  .prefix = r->prefix,
                  .name = name};

    TS_TRY(call_arguments(r, d, values));
    TS_TRY(ts_read_results(r, f.results, &f.nresults));
    if (++r->calls > MAX_CALLS)
        return ts_read_wrong(r, r->words[0].column, "definitions are used more than %d times",
                             MAX_CALLS);
    if (strlen(r->prefix) + strlen(name) > MAX_PREFIX)
        return ts_read_wrong(r, r->words[0].column,
                             "the names around a layer have more than %d "
                             "bytes",
                             MAX_PREFIX);
    enter(r, d, values);
    TS_TRY(push(r, f));
    if (name[0])
        r->prefix = ts_arena_printf(r->m->arena, "%s%s.", r->prefix, name);
    r->p = d->body;
    r->line = d->line;
    return TS_OK;
}

/* --- lines --- */

static const struct {
    const char *name;
    ts_status (*read)(ts_reader *r);
} directives[] = {
    {"let", let},      {"repeat", repeat},  {"end", end},
    {"if", condition}, {"else", otherwise}, {"define", define},
};

const char *const *ts_read_directives(int *n)
{
    static const char *const names[] = {"let", "repeat", "end", "if", "else", "define"};

    *n = TS_COUNT(names);
    return names;
}

static ts_status directive(ts_reader *r, bool *was)
{
    for (int i = 0; i < TS_COUNT(directives); i++)
        if (!strcmp(r->words[0].s, directives[i].name) && r->words[1].kind != ':') {
            *was = true;
            r->at = 1;
            return directives[i].read(r);
        }
    *was = false;
    return TS_OK;
}

static ts_status unended(const ts_reader *r)
{
    const ts_frame *f = &r->frames[r->depth - 1];

    return ts_read_wrong(r, 1, "the %s of line %d has no 'end'", frame_name(f), f->said);
}

ts_status ts_read_line(ts_reader *r)
{
    bool was;

    r->ended = NULL;
    while (*r->p) {
        TS_TRY(cut(r));
        TS_TRY(directive(r, &was));
        if (r->ended || (!was && r->nwords))
            return TS_OK;
    }
    r->nwords = 0;
    return r->depth ? unended(r) : TS_OK;
}

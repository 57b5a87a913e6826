/* read.c - a model's description: what its lines say.
 *
 *   [NAME ':'] LAYER [RESULT ...] [VALUE ...] [KEY '=' VALUE ...] ['->' RESULT ...]
 *   [NAME ':'] input SIZE ...   classes N   block NAME   again NAME   loss LOSS ...
 *
 * lines.c has cut them into words, and repeated them. Layers and the length of the text are
 * bounded.
 */
#include "front/front.h"
#include <math.h>

enum {
    MAX_TEXT = 1 << 20,
    MAX_LAYERS = 2000,
};

#define WINDOW 1023.0 /* what a window can be at most, of those that are numbers by dim */

typedef ts_reader reader;
typedef ts_read_word word;

#define wrong     ts_read_wrong
#define integer   ts_read_integer
#define name_word ts_read_name
#define no_more   ts_read_end

static const word *peek(const reader *r)
{
    return &r->words[r->at];
}

static bool more(const reader *r)
{
    return peek(r)->kind != 0;
}

/* --- earlier results --- */

static int first_visible(const reader *r)
{
    for (int i = r->depth - 1; i >= 0; i--)
        if (r->frames[i].kind == 'd')
            return r->frames[i].first_save;
    return 0;
}

int ts_read_visible(const reader *r, const char *name)
{
    for (int i = r->nsaves - 1; i >= first_visible(r); i--)
        if (!strcmp(r->saves[i].name, name))
            return r->saves[i].ref;
    for (int i = 0; i < r->m->ninputs; i++)
        if (!strcmp(r->m->inputs[i].name, name))
            return i;
    return strcmp(name, "input") ? -1 : 0;
}

static ts_status no_such_result(reader *r)
{
    const word *w = peek(r);
    int first = first_visible(r), n = 0;
    const char **names = TS_NEWS(r->m->arena, const char *, r->nsaves + r->m->ninputs + 1), *near;

    for (int i = first; i < r->nsaves; i++)
        names[n++] = r->saves[i].name;
    for (int i = 0; i < r->m->ninputs; i++)
        names[n++] = r->m->inputs[i].name;
    names[n++] = "input";
    near = ts_nearest(w->s, names, n);
    wrong(r, w->column, "there is no result '%s' yet", w->s);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    else if (first)
        ts_error_hint("a definition sees its own results, and those that are its arguments");
    else
        ts_error_hint("'-> %s' after an earlier layer keeps its result", w->s);
    return TS_ERR_PARSE;
}

static ts_status reference(reader *r, int *index)
{
    *index = ts_read_visible(r, peek(r)->s);
    if (*index < 0)
        return no_such_result(r);
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

/* 3, or 3,5: one for all dims, or one for each. */
static ts_status dims_value(reader *r, const ts_line_arg *a, int spatial, int *out)
{
    word *w = &r->words[r->at];
    char all[sizeof(w->s)], *rest = NULL;
    int at = r->at, n = 0;
    int64_t v;

    snprintf(all, sizeof(all), "%s", w->s);
    for (char *s = w->kind == 'w' ? strtok_r(all, ",", &rest) : NULL; s;
         s = strtok_r(NULL, ",", &rest)) {
        if (n == spatial)
            return wrong(r, w->column, "%s is one number, or %d with commas", a->name, spatial);
        snprintf(w->s, sizeof(w->s), "%s", s);
        r->at = at;
        TS_TRY(integer(r, a->name, (int64_t)a->low, (int64_t)a->high, &v));
        out[n++] = (int)v;
    }
    if (!n)
        return integer(r, a->name, 0, 0, &v);
    if (n > 1 && n < spatial)
        return wrong(r, w->column, "%s is one number, or %d with commas", a->name, spatial);
    for (; n < 3; n++)
        out[n] = out[0];
    return TS_OK;
}

static ts_status result_value(reader *r, double *out)
{
    int ref;

    TS_TRY(reference(r, &ref));
    *out = ref;
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
    int i;

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
    i = (int)(a - l->kind->args);
    given[i] = true;
    r->at += named ? 2 : 0;
    if (a->kind == 'd')
        return dims_value(r, a, ts_kind_spatial(l->kind), l->dims[i]);
    return a->kind == 'x' ? result_value(r, &l->args[i]) : argument_value(r, a, &l->args[i]);
}

static ts_status arguments(reader *r, ts_line *l)
{
    bool given[TS_LINE_ARGS] = {false};
    const ts_line_arg *args = l->kind->args;

    for (int i = 0; args && args[i].name; i++) {
        l->args[i] = args[i].otherwise;
        for (int d = 0; d < 3; d++)
            l->dims[i][d] = (int)TS_MIN(args[i].otherwise, WINDOW);
    }
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

/* '->' NAME ..., or nothing. */
ts_status ts_read_results(reader *r, const char **names, int *n)
{
    *n = 0;
    if (peek(r)->kind != '>')
        return no_more(r);
    r->at++;
    do {
        if (*n == TS_LINE_REFS)
            return wrong(r, peek(r)->column, "more than %d names of results", TS_LINE_REFS);
        TS_TRY(name_word(r, "the name of the result", &names[*n]));
        ++*n;
    } while (peek(r)->kind == 'w');
    return no_more(r);
}

/* An argument names a result of outside: another of the same name would be taken for it. */
static ts_status check_free(const reader *r, const char *name)
{
    for (int i = first_visible(r); i < r->nsaves; i++)
        if (r->saves[i].given && !strcmp(r->saves[i].name, name)) {
            wrong(r, r->words[0].column, "'%s' is what the argument '%s' names", name,
                  r->saves[i].given);
            ts_error_hint("call one of the two results something else");
            return TS_ERR_PARSE;
        }
    return TS_OK;
}

static int add_ref(ts_model *m, int line, int item)
{
    ts_line_ref ref = {.line = line, .item = item};

    TS_PUSH(m->arena, m->refs, m->nrefs, ref);
    return m->nrefs - 1;
}

/* One name is for what the line before made, be it several results; several are for one each. */
static ts_status keep(reader *r, const char *const *names, int n)
{
    ts_model *m = r->m;

    for (int i = 0; i < n; i++) {
        ts_saved s = {.name = names[i]};
        TS_TRY(check_free(r, names[i]));
        s.ref = add_ref(m, m->nlines - 1, n > 1 ? i : -1);
        TS_PUSH(m->arena, r->saves, r->nsaves, s);
    }
    if (n > 1 && !m->nlines)
        return wrong(r, r->words[0].column, "the input is one result, not %d", n);
    if (n > 1)
        m->lines[m->nlines - 1].names = TS_MAX(m->lines[m->nlines - 1].names, n);
    return TS_OK;
}

static ts_status save(reader *r)
{
    const char *names[TS_LINE_REFS];
    int n;

    TS_TRY(ts_read_results(r, names, &n));
    return keep(r, names, n);
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

static ts_status sample_sizes(reader *r, ts_model_source *in)
{
    int64_t d;

    while (peek(r)->kind == 'w' && r->words[r->at + 1].kind != '=') {
        if (in->rank == TS_MAX_RANK - 1)
            return wrong(r, peek(r)->column, "a sample has more than %d sizes", TS_MAX_RANK - 1);
        TS_TRY(integer(r, "a size", 1, INT32_MAX, &d));
        in->dims[in->rank++] = d;
    }
    if (!in->rank)
        return wrong(r, peek(r)->column, "input needs the sizes of one sample, as in 1 28 28");
    if (!strcmp(peek(r)->s, "dtype") && r->words[r->at + 1].kind == '=') {
        double i;
        r->at += 2;
        TS_TRY(one_of(r, "dtype", "f32 i32", &i));
        in->dtype = i ? TS_I32 : TS_F32;
    }
    return no_more(r);
}

/* A second input has a name. */
static ts_status check_input(reader *r, const char *name)
{
    ts_model *m = r->m;

    if (m->nlines || m->nrefs > m->ninputs)
        return wrong(r, r->words[0].column, "an input comes before the layers");
    if (m->ninputs && !name[0]) {
        wrong(r, r->words[0].column, "there is an input already");
        ts_error_hint("another has a name: 'NAME: input SIZE ...'");
        return TS_ERR_PARSE;
    }
    if (m->ninputs == TS_LINE_INPUTS)
        return wrong(r, r->words[0].column, "more than %d inputs", TS_LINE_INPUTS);
    if (name[0] && (!strcmp(name, "input") || ts_read_visible(r, name) >= 0))
        return wrong(r, r->words[0].column, "the name '%s' is taken", name);
    return TS_OK;
}

static ts_status input(reader *r)
{
    ts_model *m = r->m;
    ts_model_source in = {.name = "", .line = r->line};

    if (r->words[1].kind == ':') {
        r->at = 0;
        TS_TRY(name_word(r, "the name of the input", &in.name));
        r->at = 3;
    }
    TS_TRY(check_input(r, in.name));
    TS_TRY(sample_sizes(r, &in));
    in.name = in.name[0] ? in.name : "images";
    m->inputs[m->ninputs++] = in;
    add_ref(m, -m->ninputs, -1);
    return TS_OK;
}

static ts_status classes(reader *r)
{
    if (r->m->classes)
        return wrong(r, r->words[0].column, "the number of classes is said already");
    TS_TRY(integer(r, "the number of classes", 1, INT32_MAX, &r->m->classes));
    return no_more(r);
}

static ts_status block(reader *r)
{
    TS_TRY(name_word(r, "the name of the block", &r->block));
    return no_more(r);
}

static ts_status loss(reader *r)
{
    ts_line *l = &r->m->losses[r->m->nlosses];
    const ts_line_kind *k;

    if (r->m->nlosses == TS_LINE_LOSSES)
        return wrong(r, r->words[0].column, "there are %d losses already", TS_LINE_LOSSES);
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
    r->m->nlosses++;
    l->given[1] = (ts_arg){.kind = k->word ? TS_ARG_TENSOR : TS_ARG_NONE, .as.i = TS_LINE_TARGET};
    TS_TRY(k->word ? word_arguments(r, l) : arguments(r, l));
    return no_more(r);
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
    return no_more(r);
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
    return no_more(r);
}

/* --- a layer again --- */

static const ts_layer_lines *find_layer(const reader *r, const char *name)
{
    for (int i = r->nlayers - 1; i >= 0; i--)
        if (!strcmp(r->layers[i].name, name))
            return &r->layers[i];
    return NULL;
}

/* A reference of the lines of a layer, where they are made again: what they took from the line
 * before them is what the new ones take. */
static int moved(ts_model *m, const ts_layer_lines *of, int to, int ref)
{
    int line = ref >= 0 ? m->refs[ref].line : 0;

    if (ref < of->first_ref || line < of->first - 1)
        return ref;
    return add_ref(m, line - of->first + to, m->refs[ref].item);
}

static void move_word(ts_model *m, const ts_layer_lines *of, int to, ts_line *l)
{
    for (int i = 0; i < TS_WORD_PARAMS; i++) {
        ts_arg *a = &l->given[i];
        int64_t *refs = a->kind == TS_ARG_TENSORS ? TS_NEWS(m->arena, int64_t, a->n + 1) : NULL;
        if (a->kind == TS_ARG_TENSOR)
            a->as.i = moved(m, of, to, (int)a->as.i);
        for (int k = 0; refs && k < a->n; k++)
            refs[k] = moved(m, of, to, (int)a->as.ints[k]);
        if (refs)
            a->as.ints = refs;
    }
}

static void move_refs(ts_model *m, const ts_layer_lines *of, int to, ts_line *l)
{
    const ts_line_arg *args = l->kind->args;

    for (int i = 0; i < l->nrefs; i++)
        l->refs[i] = moved(m, of, to, l->refs[i]);
    for (int i = 0; args && args[i].name; i++)
        if (args[i].kind == 'x')
            l->args[i] = moved(m, of, to, (int)l->args[i]);
    if (l->kind->word)
        move_word(m, of, to, l);
}

static ts_status no_such_layer(const reader *r, int column, const char *name)
{
    const char **names = TS_NEWS(r->m->arena, const char *, r->nlayers + 1), *near;

    for (int i = 0; i < r->nlayers; i++)
        names[i] = r->layers[i].name;
    near = ts_nearest(name, names, r->nlayers);
    wrong(r, column, "there is no layer '%s' yet", name);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    else
        ts_error_hint("'NAME: LAYER ...' makes one, and 'again NAME' uses its weights once more");
    return TS_ERR_PARSE;
}

/* again NAME: the layer, or all of a definition's, with the same weights. */
static ts_status again(reader *r)
{
    const ts_layer_lines *of;
    int column = peek(r)->column, to = r->m->nlines;
    const char *name;

    TS_TRY(name_word(r, "the name of a layer", &name));
    name = ts_arena_printf(r->m->arena, "%s%s", r->prefix, name);
    of = find_layer(r, name);
    if (!of)
        return no_such_layer(r, column, name);
    if (to + of->end - of->first > MAX_LAYERS)
        return wrong(r, column, "more than %d layers", MAX_LAYERS);
    for (int i = of->first; i < of->end; i++) {
        ts_line l = r->m->lines[i];
        l.again = true;
        l.line = r->line;
        l.column = r->words[0].column;
        move_refs(r->m, of, to, &l);
        TS_PUSH(r->m->arena, r->m->lines, r->m->nlines, l);
    }
    return save(r);
}

static const struct {
    const char *name;
    ts_status (*read)(reader *r);
} directives[] = {
    {"input", input},         {"classes", classes},
    {"block", block},         {"loss", loss},
    {"again", again},         {"freeze", freeze},
    {"precision", precision}, {"class_weights", class_weights},
};

bool ts_read_is_layer(reader *r, const char *name)
{
    const char *const *own;
    int n;

    own = ts_read_directives(&n);
    for (int i = 0; i < n; i++)
        if (!strcmp(own[i], name))
            return true;
    for (int i = 0; i < TS_COUNT(directives); i++)
        if (!strcmp(directives[i].name, name))
            return true;
    return find(ts_layer_kinds, name) || word_kind(r, name);
}

/* What a line may begin with, besides layers. */
static ts_status unknown_layer(reader *r)
{
    const char **names = NULL, *const * own;
    int n = 0, count;

    own = ts_read_directives(&count);
    for (int i = 0; i < count; i++)
        TS_PUSH(r->m->arena, names, n, own[i]);
    for (int i = 0; i < TS_COUNT(directives); i++)
        TS_PUSH(r->m->arena, names, n, directives[i].name);
    for (int i = 0; i < r->ndefinitions; i++)
        TS_PUSH(r->m->arena, names, n, r->definitions[i].name);
    return unknown(r, "layer", ts_layer_kinds, names, n);
}

/* The full name, and the lines that it stands for. */
static void remember(reader *r, const char *name, int first, int first_ref)
{
    ts_layer_lines all = {
        .name = name, .first = first, .end = r->m->nlines, .first_ref = first_ref};

    if (name[0])
        TS_PUSH(r->m->arena, r->layers, r->nlayers, all);
}

/* A definition's lines have been read: its result is that of the last of them. */
static ts_status leave(reader *r, const ts_frame *f)
{
    ts_frame ended = *f; /* another may take its place */

    if (ended.name[0])
        remember(r, ts_arena_printf(r->m->arena, "%s%s", r->prefix, ended.name), ended.first_line,
                 ended.first_ref);
    return keep(r, ended.results, ended.nresults);
}

static ts_status layer(reader *r)
{
    ts_line l = {.name = "", .block = r->block, .line = r->line, .column = r->words[0].column};
    const ts_definition *d;
    int ref = r->m->nrefs;

    if (r->words[1].kind == ':') {
        TS_TRY(name_word(r, "the name of a layer", &l.name));
        r->at++;
    }
    if (peek(r)->kind != 'w')
        return wrong(r, peek(r)->column, "a layer is missing");
    d = ts_read_definition(r, peek(r)->s);
    if (d) {
        r->at++;
        return ts_read_call(r, d, l.name);
    }
    l.kind = find(ts_layer_kinds, peek(r)->s);
    l.kind = l.kind ? l.kind : word_kind(r, peek(r)->s);
    if (!l.kind)
        return unknown_layer(r);
    if (l.kind->weights && !l.name[0]) {
        wrong(r, l.column, "%s has weights and needs a name", l.kind->name);
        ts_error_hint("write 'NAME: %s ...'; its weights are called NAME.weight", l.kind->name);
        return TS_ERR_PARSE;
    }
    if (r->m->nlines == MAX_LAYERS)
        return wrong(r, l.column, "more than %d layers", MAX_LAYERS);
    if (l.name[0])
        l.name = ts_arena_printf(r->m->arena, "%s%s", r->prefix, l.name);
    r->at++;
    TS_TRY(references(r, &l));
    TS_TRY(sizes(r, &l));
    TS_TRY(l.kind->word ? word_arguments(r, &l) : arguments(r, &l));
    TS_PUSH(r->m->arena, r->m->lines, r->m->nlines, l);
    remember(r, l.name, r->m->nlines - 1, ref);
    return save(r);
}

static ts_status statement(reader *r)
{
    bool named_input = r->words[1].kind == ':' && !strcmp(r->words[2].s, "input");

    if (named_input)
        return input(r);
    for (int i = 0; i < TS_COUNT(directives); i++)
        if (!strcmp(r->words[0].s, directives[i].name) && r->words[1].kind != ':') {
            r->at = 1;
            return directives[i].read(r);
        }
    if (!r->m->ninputs)
        return wrong(r, r->words[0].column, "the description must begin with 'input SIZE ...'");
    if (r->m->has_loss)
        return wrong(r, r->words[0].column, "nothing can follow the loss");
    return r->words[0].kind == '>' ? save(r) : layer(r);
}

static ts_status finish(reader *r)
{
    ts_model *m = r->m;

    if (!m->ninputs)
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
    r->block = r->prefix = "";
    if (strlen(m->text) > MAX_TEXT)
        return wrong(r, 1, "more than %d bytes; this is no description of a model", MAX_TEXT);
    for (;;) {
        TS_TRY(ts_read_line(r));
        if (!r->ended && !r->nwords)
            return finish(r);
        TS_TRY(r->ended ? leave(r, r->ended) : statement(r));
    }
}

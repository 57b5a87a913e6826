/* words.c - the table of words, and how their arguments are read.
 *
 * A word stands for all overloads of its name: numbers and tensors are told apart when they are
 * read, and trailing arguments that an overload lacks read as absent. In-place ops have no rows:
 * add_ is add and a write (python/poptorch/_memory.py).
 */
#include "front/words.h"

/* The rows of vocabulary.h: words, what only a trace says, and other names. */
static const ts_word_row words[] = {
#define WORD(name, c, rule, op, type, shape, arguments, about)                                     \
    {#name, ts_word_##rule, op, NULL, #type, ts_shape_##shape, arguments, about, true},
#define OURS(name, c, rule, op, type, shape, arguments, about)                                     \
    {#name, ts_word_##rule, op, NULL, #type, ts_shape_##shape, arguments, about, false},
#define VIEW(name, c, rule, op, type, shape, arguments, about, put)                                \
    {#name, ts_word_##rule, op, ts_word_put_##put, #type, ts_shape_##shape, arguments, about, true},
#include "front/vocabulary.h"
};

#define ts_word_put_0 NULL /* of TRACE: no inverse */
static const ts_word_row traced[] = {
#define TRACE(name, rule, op, put)                                                                 \
    {name, ts_word_##rule, op, ts_word_put_##put, "x", ts_shape_any, NULL, NULL, true},
#include "front/vocabulary.h"
};

static const struct {
    const char *name, *word;
} others[] = {
#define ALSO(name, word) {name, #word},
#include "front/vocabulary.h"
};

const ts_word_row *ts_word_at(int i)
{
    return i >= 0 && i < TS_COUNT(words) ? &words[i] : NULL;
}

static bool same(const char *name, const char *other, size_t n)
{
    return strlen(name) == n && !strncmp(name, other, n);
}

static const ts_word_row *word_of(const char *name, size_t n)
{
    for (int i = 0; i < TS_COUNT(words); i++)
        if (same(words[i].name, name, n))
            return &words[i];
    return NULL;
}

/* The first n letters of a name, as a trace, another name or a word has it. */
static const ts_word_row *row_of(const char *name, size_t n)
{
    size_t prefix = strncmp(name, "aten::", 6) ? 0 : 6;
    const ts_word_row *r;

    for (int i = 0; i < TS_COUNT(traced); i++)
        if (same(traced[i].name, name, n))
            return &traced[i];
    name += prefix;
    n -= prefix;
    for (int i = 0; i < TS_COUNT(others); i++)
        if (same(others[i].name, name, n))
            return word_of(others[i].word, strlen(others[i].word));
    r = word_of(name, n);
    return r && prefix && !r->aten ? NULL : r;
}

/* "aten::add.Tensor": that name, else "aten::add"; and "add" itself. A program has some hundred
 * calls, so a walk will do. */
const ts_word_row *ts_word_find(const char *name)
{
    const ts_word_row *r = row_of(name, strlen(name));
    const char *dot = strchr(name, '.');

    return r || !dot ? r : row_of(name, (size_t)(dot - name));
}

ts_value *ts_call_refuse(ts_call *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    return NULL;
}

static const ts_arg *argument(const ts_call *c, int i)
{
    static const ts_arg none;

    return i >= 0 && i < c->nargs ? &c->args[i] : &none;
}

bool ts_call_has(const ts_call *c, int i)
{
    return argument(c, i)->kind != TS_ARG_NONE;
}

bool ts_call_flag(const ts_call *c, int i)
{
    return ts_call_int(c, i, 0) != 0;
}

int64_t ts_call_int(const ts_call *c, int i, int64_t otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INT      ? a->as.i
           : a->kind == TS_ARG_NUMBER ? (int64_t)a->as.f
                                      : otherwise;
}

double ts_call_number(const ts_call *c, int i, double otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_NUMBER ? a->as.f : a->kind == TS_ARG_INT ? (double)a->as.i : otherwise;
}

const char *ts_call_text(const ts_call *c, int i, const char *otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_TEXT ? a->as.s : otherwise;
}

int ts_call_count(const ts_call *c, int i)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INTS || a->kind == TS_ARG_NUMBERS ? a->n : -1;
}

double ts_call_item(const ts_call *c, int i, int k)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INTS ? (double)a->as.ints[k] : a->as.numbers[k];
}

int ts_call_ints(const ts_call *c, int i, int64_t *out)
{
    const ts_arg *a = argument(c, i);
    int n = TS_MIN(a->n, TS_MAX_RANK);

    if (a->kind == TS_ARG_INT) {
        out[0] = a->as.i;
        return 1;
    }
    if (ts_call_count(c, i) < 0)
        return 0;
    for (int k = 0; k < n; k++)
        out[k] = a->kind == TS_ARG_INTS ? a->as.ints[k] : (int64_t)a->as.numbers[k];
    return n;
}

void ts_call_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out)
{
    int64_t given[TS_MAX_RANK];
    int count = ts_call_ints(c, i, given);

    for (int k = 0; k < n; k++)
        out[k] = count == 0 ? otherwise : given[k < count ? k : count - 1];
}

ts_value *ts_call_tensor(ts_call *c, int i)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_TENSOR ? a->as.v : NULL;
}

int ts_call_tensors(const ts_call *c, int i, int n, ts_value **out)
{
    const ts_arg *a = argument(c, i);
    int count = a->kind == TS_ARG_TENSORS ? a->n : 0;

    for (int k = 0; k < count && k < n; k++)
        out[k] = a->as.tensors[k];
    return count;
}

ts_value *ts_call_as(ts_call *c, int i, ts_dtype t)
{
    ts_value *v = ts_call_tensor(c, i);

    if (v && (t == TS_U8 || t == TS_I8) && ts_dtype_is_float(ts_dtype_of(v)))
        v = ts_cast(v, TS_I32); /* -1.0 becomes 255: the low byte */
    if (v)
        return ts_dtype_of(v) == t ? v : ts_cast(v, t);
    if (argument(c, i)->kind != TS_ARG_INT && argument(c, i)->kind != TS_ARG_NUMBER)
        return ts_call_refuse(c, "argument %d is neither a tensor nor a number", i + 1);
    return ts_scalar(c->g, t, ts_call_number(c, i, 0));
}

int ts_call_dim(const ts_call *c, int i, int rank)
{
    int64_t d = ts_call_int(c, i, 0);

    return (int)(d < 0 ? d + rank : d);
}

ts_value *ts_call_scalar(ts_call *c, double v)
{
    return ts_scalar(c->g, c->dtype, v);
}

ts_value *ts_call_op1(const char *op, ts_call *c, ts_value *x)
{
    return x ? ts_apply(c->g, op, 1, &x, 0, NULL) : NULL;
}

ts_value *ts_call_op2(const char *op, ts_call *c, ts_value *x, ts_value *y)
{
    return x && y ? ts_apply(c->g, op, 2, (ts_value *[]){x, y}, 0, NULL) : NULL;
}

/* --- the public calls ------------------------------------------------------------------------- */

const char *ts_word_name(int i)
{
    if (i < 0 || i < TS_COUNT(words))
        return i < 0 ? NULL : words[i].name;
    i -= TS_COUNT(words);
    if (i < TS_COUNT(others))
        return others[i].name;
    i -= TS_COUNT(others);
    return i < TS_COUNT(traced) ? traced[i].name : NULL;
}

bool ts_word_known(const char *name)
{
    return name && ts_word_find(name);
}

static ts_status no_word(const char *word)
{
    const char *names[TS_COUNT(words)], *near;

    for (int i = 0; i < TS_COUNT(words); i++)
        names[i] = words[i].name;
    near = ts_nearest(word, names, TS_COUNT(words));
    ts_fail(TS_ERR_UNSUPPORTED, "there is no word '%s'", word ? word : "NULL");
    if (near)
        ts_error_hint("did you mean \'%s\'?", near);
    return TS_ERR_UNSUPPORTED;
}

/* With an answer the call is as PyTorch bound it; without, arguments are put in their places and
 * the answer is found. */
static ts_status start(ts_call *c, ts_graph *g, const char *word, const ts_answer *answer, int n,
                       const ts_arg *args)
{
    TS_TRY(ts_graph_check(g));
    c->g = g;
    c->row = word ? ts_word_find(word) : NULL;
    if (!c->row)
        return no_word(word);
    if (!answer)
        return ts_call_bind(c, n, args);
    c->args = args;
    c->nargs = n;
    c->dtype = answer->dtype;
    c->rank = answer->rank;
    memcpy(c->dims, answer->dims, sizeof(c->dims));
    return TS_OK;
}

/* A rule that gave nothing has said why, or its graph has. */
static ts_status gave(const ts_call *c, const ts_value *v)
{
    if (v)
        return TS_OK;
    if (c->why[0])
        return ts_fail(TS_ERR_UNSUPPORTED, "%s is not supported", c->why);
    TS_TRY(ts_graph_check(c->g));
    return ts_fail(TS_ERR_INTERNAL, "%s made no value and left no error", c->row->name);
}

static ts_status make(ts_call *c, int begin)
{
    ts_status s;

    c->out[0] = c->row->make(c);
    c->nout = TS_MAX(c->nout, 1);
    s = gave(c, c->out[0]);
    if (!s)
        ts_steps_end(c->g, begin, c->nout, c->out);
    return s;
}

ts_status ts_word(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                  const ts_arg *args, int room, ts_value **out, int *nout)
{
    ts_call *c = calloc(1, sizeof(*c));
    int begin = ts_steps_begin(g);
    ts_status s;

    if (!c)
        return ts_fail(TS_ERR_MEMORY, "no memory for a call of %s", word);
    s = start(c, g, word, answer, nargs, args);
    s = s ? s : make(c, begin);
    if (!s) {
        *nout = TS_MIN(c->nout, room);
        memcpy(out, c->out, sizeof(*out) * (size_t)*nout);
    }
    free(c);
    return s;
}

ts_status ts_word_put(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                      const ts_arg *args, int which, ts_value *y, ts_value **out)
{
    ts_call *c = calloc(1, sizeof(*c));
    ts_value *x;
    ts_status s;

    if (!c)
        return ts_fail(TS_ERR_MEMORY, "no memory for a call of %s", word);
    s = start(c, g, word, answer, nargs, args);
    if (!s) {
        c->which = which;
        x = ts_call_tensor(c, 0);
        *out = c->row->put && x && y ? c->row->put(c, x, y)
                                     : ts_call_refuse(c, "writing through this view");
        s = gave(c, *out);
    }
    free(c);
    return s;
}

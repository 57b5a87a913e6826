/* model.c - models by name or from a file: description -> lines -> graph.
 *
 * The description is kept as it was read, because it is what a checkpoint carries to know its net.
 * Reading it makes a graph of it once, so that a model that exists is one whose sizes fit.
 */
#include "front/front.h"
#include <errno.h>
#include <fnmatch.h>
#include <unistd.h>

enum { MAX_MADE = 20000 }; /* lines, those of several results counted each time */

/* --- graphs --- */

static ts_status check_options(const ts_model *m, const ts_model_options *o)
{
    if (o->batch < 0 || o->rank < 0 || o->rank >= TS_MAX_RANK || (o->rank && !o->dims) ||
        o->classes < 0)
        return ts_fail(TS_ERR_ARG, "a model of batch %lld, rank %d, %lld classes cannot be made",
                       (long long)o->batch, o->rank, (long long)o->classes);
    if (o->training && !m->has_loss) {
        ts_fail(TS_ERR_ARG, "the model '%s' has no loss, and training needs one", m->name);
        ts_error_hint("end its description with a line such as 'loss cross_entropy'");
        return TS_ERR_ARG;
    }
    return TS_OK;
}

/* Where no size follows the classes that are asked for, there must be as many. */
static ts_status check_classes(const ts_model *m, const ts_model_options *o, const ts_graph *g)
{
    const ts_value *scores = g->outputs[0];

    if (!o->classes || o->classes == m->classes || m->uses_classes ||
        (ts_rank(scores) > 1 && ts_dim(scores, 1) == o->classes))
        return TS_OK;
    ts_fail(TS_ERR_ARG, "the model '%s' cannot be made for %lld classes: its size is fixed",
            m->name, (long long)o->classes);
    ts_error_hint("write 'classes' as the size of its last layer, and 'classes N' at the top");
    return TS_ERR_ARG;
}

/* The batch, then the sizes of a sample: those asked for, which are the first input's, or the
 * description's. */
static ts_value *make_input(const ts_model *m, const ts_model_options *o, int i, ts_graph *g)
{
    const ts_model_source *in = &m->inputs[i];
    int64_t dims[TS_MAX_RANK] = {o->batch ? o->batch : 1};
    bool asked = !i && o->rank;
    int rank = asked ? o->rank : in->rank;
    ts_value *x;

    memcpy(dims + 1, asked ? o->dims : in->dims, sizeof(*dims) * (size_t)rank);
    x = ts_input_n(g, in->name, in->dtype, rank + 1, dims);
    if (!x && !g->error.where[0])
        ts_format(g->error.where, sizeof(g->error.where), "%.300s:%d", m->file, in->line);
    return x;
}

static int64_t numbers_of(const ts_model_source *in)
{
    int64_t n = 1;

    for (int i = 0; i < in->rank; i++)
        n *= in->dims[i];
    return n;
}

/* Are samples asked for that are the numbers of all inputs in a row? */
static bool is_joined(const ts_model *m, const ts_model_options *o)
{
    int64_t all = 0;

    for (int i = 0; i < m->ninputs; i++)
        all += numbers_of(&m->inputs[i]);
    return m->ninputs > 1 && o->rank == 1 && o->dims[0] == all;
}

/* One input, and what the description calls inputs are parts of it. */
static void split_input(const ts_model *m, const ts_model_options *o, ts_line_build *b)
{
    int64_t batch = o->batch ? o->batch : 1, at = 0;
    ts_value *all = ts_input_n(b->g, "inputs", TS_F32, 2, (int64_t[]){batch, o->dims[0]}), *x;

    for (int i = 0; i < m->ninputs && all; i++) {
        const ts_model_source *in = &m->inputs[i];
        int64_t dims[TS_MAX_RANK] = {batch}, n = numbers_of(in);
        memcpy(dims + 1, in->dims, sizeof(*dims) * (size_t)in->rank);
        x = ts_reshape_n(ts_slice(all, 1, at, at + n, 1), in->rank + 1, dims);
        b->inputs[i] = in->dtype == TS_F32 ? x : ts_cast(x, in->dtype);
        at += n;
    }
}

/* Weights of classes are as many as there are classes. */
static ts_status check_weights(const ts_model *m, const ts_line_build *b)
{
    int64_t n = m->nclass_weights;

    if (!n || n == b->classes)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "the model '%s' has weights of %lld classes, and there are %lld", m->name,
            (long long)n, (long long)b->classes);
    ts_error_hint("'class_weights' has a number for each class");
    return TS_ERR_ARG;
}

/* freeze conv1.*: what matches is not trained. */
static ts_status freeze(const ts_model *m, ts_graph *g)
{
    for (int i = 0; i < m->nfrozen; i++) {
        int found = 0;
        for (int k = 0; k < g->nstates; k++)
            if (!fnmatch(m->frozen[i], g->states[k].value->name, 0)) {
                g->states[k].trained = false;
                found++;
            }
        if (found)
            continue;
        ts_fail_loc(ts_arena_printf(g->arena, "%.300s:%d", m->file, m->frozen_lines[i]), TS_ERR_ARG,
                    "no parameter of the model '%s' is called like '%s'", m->name, m->frozen[i]);
        ts_error_hint("its first is called '%s'", g->nstates ? g->states[0].value->name : "-");
        return TS_ERR_ARG;
    }
    return TS_OK;
}

static void change_block(ts_graph *g, const char **now, const char *block)
{
    if (!strcmp(*now, block))
        return;
    if ((*now)[0])
        ts_block_end(g);
    if (block[0])
        ts_block_begin(g, block);
    *now = block;
}

/* How many results a line is made for: as many as there are before it, or behind its names. */
static int width(const ts_line_build *b, const ts_line *l)
{
    int refs[TS_LINE_REFS + TS_WORD_PARAMS + TS_LINE_ARGS + 1], nrefs, n = b->before.n;

    if (ts_line_joins(l) || l->kind->several)
        return 1;
    nrefs = ts_line_references(l, refs, TS_COUNT(refs));
    for (int i = 0; i < nrefs; i++) {
        int other = ts_line_several(b, refs[i]);
        if (other > 1 && n > 1 && other != n) {
            ts_graph_refuse(b->g, TS_ERR_ARG, NULL, "%d results and %d do not go together", n,
                            other);
            return 0;
        }
        n = TS_MAX(n, other);
    }
    return n;
}

/* A line for one result. With the weights of the name if there are some already: it is made for
 * another of several results, or again. */
static ts_value *make_one(ts_line_build *b, const ts_line *l, int item, ts_line_results *made)
{
    ts_graph *g = b->g;
    bool scope = l->name[0] && !l->kind->weights; /* layers with weights open their own */
    ts_value *x;

    if (++b->count > MAX_MADE)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL,
                               "more than %d layers, those of several results counted each time",
                               MAX_MADE);
    b->item = item;
    b->made = made;
    g->shares = l->again || item > 0;
    if (scope)
        ts_scope_begin(g, l->name);
    x = l->kind->make(b, l, b->before.v[b->before.n > 1 ? item : 0]);
    if (scope)
        ts_scope_end(g);
    g->shares = false;
    return x;
}

static void check_names(const ts_line_build *b, const ts_line *l, const ts_line_results *made)
{
    bool fits = made->n > 1 ? l->names == made->n : l->names <= made->outputs;

    if (l->names && !fits && !b->g->status)
        ts_graph_refuse(b->g, TS_ERR_ARG, NULL, "%d names are given to %d results", l->names,
                        made->n > 1 ? made->n : made->outputs);
}

static void make_each(ts_line_build *b, const ts_line *l, int n, ts_line_results *made)
{
    *made = (ts_line_results){.v = TS_NEWS(b->g->arena, ts_value *, TS_MAX(n, 1)), .n = n};
    for (int i = 0; i < n && !b->g->status; i++) {
        ts_line_results own = {0};
        ts_value *x = make_one(b, l, i, &own);
        if (!own.v) {
            made->v[i] = x;
            continue;
        }
        if (n > 1 && own.n > 1)
            ts_graph_refuse(b->g, TS_ERR_ARG, NULL, "%s takes one result, and there are %d",
                            l->kind->name, n);
        if (n == 1)
            *made = own;
        else
            made->v[i] = own.v[0];
    }
    made->outputs = TS_MAX(made->outputs, made->n);
}

/* Names the line of an error that the layer itself could not. */
static void make_line(ts_line_build *b, const ts_line *l, int number, ts_line_results *made)
{
    ts_graph *g = b->g;

    ts_here(b->file, number);
    make_each(b, l, width(b, l), made);
    check_names(b, l, made);
    if (g->status && !strchr(g->error.where, '(')) /* it names no layer yet */
        ts_format(g->error.where, sizeof(g->error.where), "%.200s%s(%s), %.300s:%d:%d", l->name,
                  l->name[0] ? " " : "", l->kind->name, b->file, l->line, l->column);
}

/* What the lines make, or NULL: scores are one tensor. */
static ts_value *scores_of(const ts_line_build *b)
{
    if (b->g->status)
        return NULL;
    if (b->before.n == 1)
        return b->before.v[0];
    return ts_graph_refuse(b->g, TS_ERR_ARG, "'concat' or 'stack' makes one of them",
                           "the model ends with %d results, not one", b->before.n);
}

/* What training minimises: the sum of the losses. */
static ts_value *sum_losses(const ts_model *m, ts_line_build *b, bool mark)
{
    ts_value *sum = NULL;

    for (int i = 0; i < m->nlosses && !b->g->status; i++) {
        ts_line_results loss;
        make_line(b, &m->losses[i], mark ? m->nlines : m->losses[i].line, &loss);
        if (!b->g->status)
            sum = sum ? ts_add(sum, loss.v[0]) : loss.v[0];
    }
    return b->g->status ? NULL : sum;
}

static void make_lines(const ts_model *m, ts_line_build *b, bool mark)
{
    const char *block = "";
    ts_graph *g = b->g;
    bool half = b->training && m->precision != TS_F32;
    ts_value *x;

    for (int i = 0; half && i < m->ninputs; i++)
        if (m->inputs[i].dtype == TS_F32)
            b->inputs[i] = ts_cast(b->inputs[i], m->precision);
    g->half = half ? m->precision : TS_F32;
    b->before = (ts_line_results){.v = &b->inputs[0], .n = 1};
    for (int i = 0; i < m->nlines && !g->status; i++) {
        change_block(g, &block, m->lines[i].block);
        make_line(b, &m->lines[i], mark ? i : m->lines[i].line, &b->results[i]);
        b->before = b->results[i];
    }
    if (m->has_loss)
        change_block(g, &block, m->losses[0].block);
    x = scores_of(b);
    x = half ? ts_cast(x, TS_F32) : x;
    ts_output(x, "scores");
    b->before = (ts_line_results){.v = &x, .n = 1};
    if (b->training && !g->status)
        ts_loss(sum_losses(m, b, mark));
    change_block(g, &block, "");
    ts_here(NULL, 0);
}

ts_status ts_model_build(const ts_model *m, const ts_model_options *o, bool mark, ts_line_build *b)
{
    static const ts_model_options defaults;

    *b = (ts_line_build){0};
    o = o ? o : &defaults;
    TS_TRY(check_options(m, o));
    b->g = ts_graph_new(m->name);
    b->file = ts_arena_strdup(b->g->arena, m->file); /* the nodes keep it */
    b->m = m;
    if (is_joined(m, o))
        split_input(m, o, b);
    for (int i = 0; i < m->ninputs && !is_joined(m, o); i++)
        b->inputs[i] = make_input(m, o, i, b->g);
    b->results = TS_NEWS(b->g->arena, ts_line_results, m->nlines);
    b->classes = o->classes ? o->classes : m->classes;
    b->training = o->training;
    b->class_weights = m->class_weights;
    TS_TRY(check_weights(m, b));
    make_lines(m, b, mark);
    TS_TRY(ts_graph_check(b->g));
    TS_TRY(freeze(m, b->g));
    return check_classes(m, o, b->g);
}

ts_status ts_model_graph_sized(const ts_model *m, const ts_model_options *o, size_t size,
                               ts_graph **out)
{
    ts_model_options own;
    ts_line_build b;
    ts_status s;

    if (!m || !out)
        return ts_fail(TS_ERR_ARG, "making a graph needs a model and a place for it");
    *out = NULL;
    TS_TRY(ts_take_sized("ts_model_graph", o, size, &own, sizeof(own)));
    s = ts_model_build(m, &own, false, &b);
    if (s) {
        ts_error_doing("making the model %s", m->name);
        ts_graph_free(b.g);
        return s;
    }
    *out = b.g;
    return TS_OK;
}

/* --- descriptions --- */

/* net.txt -> net */
static const char *name_of(ts_arena *a, const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);

    return n ? ts_arena_printf(a, "%.*s", (int)TS_MIN(n, (size_t)100), base) : "model";
}

/* The comment that the text begins with. */
static const char *about(ts_arena *a, const char *text)
{
    const char *p = text + strspn(text, "# \t");

    return *text == '#'
               ? ts_arena_printf(a, "%.*s", (int)TS_MIN(strcspn(p, "\r\n"), (size_t)200), p)
               : "";
}

/* Two samples: batch norm in training has no statistics of one. */
static ts_status read_model(ts_model *m)
{
    ts_graph *g;

    TS_TRY(ts_model_read(m));
    TS_TRY(ts_model_graph(m, &(ts_model_options){.batch = 2, .training = m->has_loss}, &g));
    ts_graph_free(g);
    return TS_OK;
}

ts_status ts_model_parse(const char *text, const char *file, ts_model **out)
{
    ts_arena *a;
    ts_model *m;
    ts_status s;

    if (!text || !file || !out)
        return ts_fail(TS_ERR_ARG, "a model needs its description, a name and a place for it");
    *out = NULL;
    a = ts_arena_new();
    m = TS_NEW(a, ts_model);
    m->arena = a;
    m->file = ts_arena_strdup(a, file);
    m->name = name_of(a, file);
    m->text = ts_arena_strdup(a, text);
    m->about = about(a, text);
    s = read_model(m);
    if (s) {
        ts_error_doing("reading the model %.200s", file);
        ts_arena_free(a);
        return s;
    }
    *out = m;
    return TS_OK;
}

static ts_status no_such_model(const char *name)
{
    const char *near = ts_net_nearest(name);

    ts_fail(TS_ERR_FILE, "there is no model '%.200s', and no file of that name", name);
    if (near)
        ts_error_hint("did you mean '%s'?", near);
    else
        ts_error_hint("`tessera models` lists the models that have a name");
    return TS_ERR_FILE;
}

static ts_status load_file(const char *path, ts_model **out)
{
    char *text;
    size_t len;
    ts_status s;

    if (access(path, F_OK) && errno == ENOENT)
        return no_such_model(path);
    TS_TRY(ts_file_read(path, &text, &len));
    if (strlen(text) != len)
        s = ts_fail(TS_ERR_PARSE, "%.200s is not text: byte %zu is 0", path, strlen(text));
    else
        s = ts_model_parse(text, path, out);
    free(text);
    return s;
}

ts_status ts_model_load(const char *name_or_path, ts_model **out)
{
    const char *text;

    if (!name_or_path || !out)
        return ts_fail(TS_ERR_ARG, "loading a model needs its name or path and a place for it");
    *out = NULL;
    text = ts_net_find(name_or_path);
    return text ? ts_model_parse(text, name_or_path, out) : load_file(name_or_path, out);
}

void ts_model_free(ts_model *m)
{
    if (m)
        ts_arena_free(m->arena);
}

/* --- what it says of itself --- */

const char *ts_model_name(const ts_model *m)
{
    return m->name;
}

const char *ts_model_text(const ts_model *m)
{
    return m->text;
}

const char *ts_model_about(const ts_model *m)
{
    return m->about;
}

int ts_model_input(const ts_model *m, int64_t dims[TS_MAX_RANK])
{
    memcpy(dims, m->inputs[0].dims, sizeof(*dims) * (size_t)m->inputs[0].rank);
    return m->inputs[0].rank;
}

ts_dtype ts_model_input_type(const ts_model *m)
{
    return m->inputs[0].dtype;
}

int ts_model_input_at(const ts_model *m, int i, int64_t dims[TS_MAX_RANK], ts_dtype *dtype)
{
    if (!m || i < 0 || i >= m->ninputs)
        return -1;
    memcpy(dims, m->inputs[i].dims, sizeof(*dims) * (size_t)m->inputs[i].rank);
    *dtype = m->inputs[i].dtype;
    return m->inputs[i].rank;
}

const char *ts_model_input_name(const ts_model *m, int i)
{
    return m && i >= 0 && i < m->ninputs ? m->inputs[i].name : NULL;
}

int64_t ts_model_classes(const ts_model *m)
{
    return m->classes;
}

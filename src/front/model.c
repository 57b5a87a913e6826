/* model.c - models by name or from a file: description -> lines -> graph.
 *
 * The description is kept as it was read, because it is what a checkpoint carries to know its net.
 * Reading it makes a graph of it once, so that a model that exists is one whose sizes fit.
 */
#include "front/front.h"
#include <errno.h>
#include <fnmatch.h>
#include <unistd.h>

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

/* The batch, then the sizes of a sample: those asked for, or the description's. */
static ts_value *make_input(const ts_model *m, const ts_model_options *o, ts_graph *g)
{
    int64_t dims[TS_MAX_RANK] = {o->batch ? o->batch : 1};
    int rank = o->rank ? o->rank : m->rank;

    ts_value *x;

    memcpy(dims + 1, o->rank ? o->dims : m->dims, sizeof(*dims) * (size_t)rank);
    x = ts_input_n(g, "images", m->dtype, rank + 1, dims);
    if (!x)
        ts_format(g->error.where, sizeof(g->error.where), "%.300s:%d", m->file, m->input_line);
    return x;
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

/* Names the line of an error that the layer itself could not. */
static ts_value *make_line(const ts_line_build *b, const ts_line *l, int number, ts_value *x)
{
    ts_graph *g = b->g;
    bool scope = l->name[0] && !l->kind->weights; /* layers with weights open their own */

    ts_here(b->file, number);
    if (scope)
        ts_scope_begin(g, l->name);
    x = l->kind->make(b, l, x);
    if (scope)
        ts_scope_end(g);
    if (g->status && !strchr(g->error.where, '(')) /* it names no layer yet */
        ts_format(g->error.where, sizeof(g->error.where), "%s%s(%s), %.300s:%d:%d", l->name,
                  l->name[0] ? " " : "", l->kind->name, b->file, l->line, l->column);
    return x;
}

static void make_lines(const ts_model *m, const ts_line_build *b, bool mark)
{
    const char *block = "";
    ts_graph *g = b->g;
    bool half = b->training && m->precision != TS_F32;
    ts_value *x = half && m->dtype == TS_F32 ? ts_cast(b->input, m->precision) : b->input;

    g->half = half ? m->precision : TS_F32;
    for (int i = 0; i < m->nlines && !g->status; i++) {
        change_block(g, &block, m->lines[i].block);
        x = b->results[i] = make_line(b, &m->lines[i], mark ? i : m->lines[i].line, x);
    }
    if (m->has_loss)
        change_block(g, &block, m->loss.block);
    x = half ? ts_cast(x, TS_F32) : x;
    ts_output(x, "scores");
    if (b->training)
        ts_loss(make_line(b, &m->loss, mark ? m->nlines : m->loss.line, x));
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
    b->input = make_input(m, o, b->g);
    b->results = TS_NEWS(b->g->arena, ts_value *, m->nlines);
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
    memcpy(dims, m->dims, sizeof(*dims) * (size_t)m->rank);
    return m->rank;
}

ts_dtype ts_model_input_type(const ts_model *m)
{
    return m->dtype;
}

int64_t ts_model_classes(const ts_model *m)
{
    return m->classes;
}

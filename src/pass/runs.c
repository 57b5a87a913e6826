/* runs.c - adds by index that look up their terms instead of searching for them.
 *
 *   before                                    after
 *     %1 = index_add %i, %s  size=1000          %2 = the places of the sorted %i    (argsort)
 *                                               %3 = gather %i, %2
 *                                               %4 = run_starts %3  size=1001
 *                                               %1 = run_add %4, %s, %2
 *
 * index_add reads the whole index for every element of its result, scatter_add a row of it
 * (op/index.c). In the sorted index the terms of an element lie side by side. The sort is stable,
 * so each sum has its terms in the same order, and the same bits. The largest and smallest are found in the same way. What is broadcast to
 * scatter_add's index is sorted before that.
 *
 *     %1 = index_add %i, %s  size=1000          %2 = expand %i
 *                                               %1 = row_scatter %2, %s, 0  how="add"
 *
 * Where elements have an index each, or there are so many that all places of the result are worth storing, nothing is
 * sorted: row_scatter goes through a row's indices in their order, and writes where they say, columns that share their
 * index as vectors. Terms are read in the order in which they lie (100,000 edges of 64 to 10,000 nodes, one thread of Zen 5:
 * 5.0 ms by runs, 2.2 by rows). Halves are joined in f32.
 *
 * needs   no composite op; gradients are made
 */
#include "pass/pass.h"

/* Indices, and places that they name, up to which searching is quicker than sorting. Rows of 1, 4, 32 and 512 elements,
 * one thread of Zen 4, us searched and sorted: 16 indices, 64 places 0.9 and 0.6, 1.0 and 1.1, 2.5 and 2.0, 22 and 24;
 * 512 indices, 16 places 6.7 and 3.4, 7.0 and 7.5, 15 and 15, 249 and 376; 32 places 13 and 3.5, 12 and 6.6, 28 and
 * 14, 469 and 240. */
enum { FEW = 24 };

enum { VECTOR = 8 }; /* elements that are added at once */

/* Places of the result for each index, up to which all of them are stored. Embeddings have more, and an update that reads
 * the gradient where it is made. */
enum { DENSE = 4 };

/* The sort of an index is made once for all adds of a block. */
typedef struct sorted {
    const ts_value *index;
    const ts_node *like;
    ts_type t;
    int dim;
    int64_t size;
    ts_value *places, *starts;
} sorted;

typedef struct runs {
    ts_value **map;
    sorted *known;
    int n;
} runs;

typedef struct add {
    ts_value *index; /* of the old graph, of any rank */
    ts_type t;       /* the index beside the source: its rank, 1 where it is broadcast */
    int joined;      /* the source's dims that are one */
    int dim;         /* of the result that it indexes */
    int64_t size;
} add;

/* The source with the index's dims as one. */
static ts_type beside(const ts_type *s, int dim, int joined)
{
    ts_type t = {.dtype = s->dtype};

    for (int d = 0; d < s->rank; d++)
        if (d > dim && d < dim + joined)
            t.dim[t.rank - 1] *= s->dim[d];
        else
            t.dim[t.rank++] = s->dim[d];
    return t;
}

static void index_of_add(const ts_node *n, add *x)
{
    x->joined = n->in[0]->type.rank;
    x->t = beside(&n->in[1]->type, x->dim, x->joined);
    for (int d = 0; d < x->t.rank; d++)
        x->t.dim[d] = d == x->dim ? x->t.dim[d] : 1;
}

static void index_of_scatter(add *x)
{
    const ts_node *from = x->index->node;
    int off;

    x->joined = 1;
    x->t = x->index->type;
    if (!from || from->op != TS_OP(expand))
        return;
    off = x->t.rank - from->in[0]->type.rank;
    if (x->dim < off || from->in[0]->type.dim[x->dim - off] != x->t.dim[x->dim])
        return;
    x->index = from->in[0];
    for (int d = 0; d < x->t.rank; d++)
        x->t.dim[d] = d < off ? 1 : x->index->type.dim[d - off];
}

static bool by_scatter(const ts_node *n)
{
    return n->op == TS_OP(scatter_add) || n->op == TS_OP(scatter_amax) ||
           n->op == TS_OP(scatter_amin) || n->op == TS_OP(scatter_prod);
}

static bool is_add(const ts_node *n, add *x)
{
    const ts_type *y;

    if (n->op != TS_OP(index_add) && !by_scatter(n))
        return false;
    y = &n->out[0]->type;
    x->dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), y->rank);
    x->index = n->in[0];
    x->size = y->dim[x->dim];
    if (n->op == TS_OP(index_add)) {
        index_of_add(n, x);
        return x->joined > 0;
    }
    for (int d = 0; d < y->rank; d++)
        if (d != x->dim && y->dim[d] != n->in[1]->type.dim[d])
            return false;
    index_of_scatter(x);
    return true;
}

/* Elements that share an index. */
static int64_t shared(const ts_node *n, const add *x)
{
    int64_t rows = ts_type_count(&x->t) / x->t.dim[x->dim];

    return ts_type_count(&n->out[0]->type) / x->size / rows;
}

/* Is a row written where its indices say, one after the other? Where elements have an index each; and where there is enough
 * to write that all places of the result are worth storing. A GPU has too many threads for that. */
static bool one_by_one(const ts_options *opt, const ts_node *n, const add *x)
{
    if (n->op == TS_OP(scatter_prod) || (by_scatter(n) && shared(n, x) < VECTOR))
        return true;
    return !ts_pass_for_gpu(opt) && DENSE * x->t.dim[x->dim] >= x->size;
}

/* Is there more to search than to sort, or to write? */
static bool pays(const ts_options *opt, const ts_node *n, const add *x)
{
    return x->t.dim[x->dim] > FEW && (x->size > FEW || one_by_one(opt, n, x));
}

static const char *how(const ts_node *n)
{
    return n->op == TS_OP(scatter_amax)   ? "amax"
           : n->op == TS_OP(scatter_amin) ? "amin"
           : n->op == TS_OP(scatter_prod) ? "prod"
                                          : "add";
}

/* v with the dims in which x's index is broadcast at their first element, if v is the same all along them. */
static ts_value *narrow(ts_value *v, const add *x, ts_type *t)
{
    const ts_node *n = v->node;
    int off = n && n->op == TS_OP(expand) ? t->rank - n->in[0]->type.rank : 0;

    for (int d = 0; d < t->rank; d++) {
        bool same = n && (n->op == TS_OP(full) || (n->op == TS_OP(expand) &&
                                                   (d < off || n->in[0]->type.dim[d - off] == 1)));
        if (d == x->dim || x->t.dim[d] > 1 || t->dim[d] == 1 || !same)
            continue;
        v = ts_slice(v, d, 0, 1, 1);
        t->dim[d] = 1;
    }
    return v;
}

static ts_value *expanded(ts_value *v, const ts_type *t)
{
    return !v || ts_type_same_shape(&v->type, t) ? v : ts_expand_n(v, t->rank, t->dim);
}

/* Halves are joined in f32 and rounded once. */
static ts_value *by_rows(ts_graph *g, const ts_node *n, ts_value *const *map, const add *x)
{
    ts_type t = beside(&n->in[1]->type, x->dim, x->joined), y = n->out[0]->type;
    ts_dtype kind = ts_dtype_is_half(y.dtype) ? TS_F32 : y.dtype;
    bool adds = n->op == TS_OP(scatter_add) || n->op == TS_OP(index_add);
    ts_value *in[3], *v = ts_reshape_n(map[n->in[1]->id], t.rank, t.dim);

    if (v && adds)
        v = narrow(v, x, &t);
    if (!v)
        return NULL;
    in[0] = expanded(ts_reshape_n(map[x->index->id], x->t.rank, x->t.dim), &t);
    in[1] = ts_cast(v, kind);
    t.dim[x->dim] = x->size;
    in[2] = adds ? ts_full_n(g, kind, 0, t.rank, t.dim) : ts_cast(map[n->in[2]->id], kind);
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    v = ts_node_out(ts_node_make(g, TS_OP(row_scatter), 3, in, 2,
                                 (ts_attr[]){ts_attr_i("dim", x->dim), ts_attr_s("how", how(n))}));
    return v ? expanded(ts_cast(v, y.dtype), &y) : NULL;
}

static const sorted *sort(runs *r, const ts_node *n, const add *x)
{
    ts_value *index;
    sorted *s;

    for (int i = 0; i < r->n; i++) {
        s = &r->known[i];
        if (s->index == x->index && ts_type_same_shape(&s->t, &x->t) && s->dim == x->dim &&
            s->size == x->size && !strcmp(s->like->block, n->block) && s->like->phase == n->phase)
            return s;
    }
    s = &r->known[r->n++];
    *s = (sorted){.index = x->index, .like = n, .t = x->t, .dim = x->dim, .size = x->size};
    index = ts_reshape_n(r->map[x->index->id], x->t.rank, x->t.dim);
    if (!index)
        return s;
    s->places = ts_sort_places(index, x->dim, x->t.dim[x->dim], false);
    s->starts = ts_make1(TS_OP(run_starts), ts_gather(index, x->dim, s->places), 2,
                         (ts_attr[]){ts_attr_i("dim", x->dim), ts_attr_i("size", x->size + 1)});
    return s;
}

static ts_value *by_runs(runs *r, const ts_node *n, const add *x)
{
    const sorted *s = sort(r, n, x);
    ts_type t = beside(&n->in[1]->type, x->dim, x->joined);
    ts_value *in[] = {s->starts, ts_reshape_n(r->map[n->in[1]->id], t.rank, t.dim), s->places,
                      NULL};
    const ts_op *op = n->op == TS_OP(scatter_amax)   ? TS_OP(run_amax)
                      : n->op == TS_OP(scatter_amin) ? TS_OP(run_amin)
                                                     : TS_OP(run_add);

    if (!in[0] || !in[1] || !in[2])
        return NULL;
    if (op != TS_OP(run_add))
        in[3] = r->map[n->in[2]->id];
    return ts_node_out(
        ts_node_make(in[0]->graph, op, op->nin, in, 1, (ts_attr[]){ts_attr_i("dim", x->dim)}));
}

ts_status ts_pass_runs(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    runs r = {.known = TS_NEWS(a, sorted, in->nnodes)};
    ts_graph *g = ts_graph_begin_copy(a, in, &r.map);

    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        add x;
        if (is_add(n, &x) && pays(opt, n, &x)) {
            g->like = n;
            r.map[n->out[0]->id] =
                one_by_one(opt, n, &x) ? by_rows(g, n, r.map, &x) : by_runs(&r, n, &x);
            g->like = NULL;
        } else
            ts_graph_copy_node(g, n, r.map);
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, r.map);
    *out = g;
    return TS_OK;
}

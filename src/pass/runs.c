/* runs.c - adds by index that look up their terms instead of searching for them.
 *
 *   before                                    after
 *     %1 = index_add %i, %s  size=1000          %2 = the places of the sorted %i    (merge ...)
 *                                               %3 = gather %i, %2
 *                                               %4 = run_starts %3  size=1001
 *                                               %1 = run_add %4, %s, %2
 *
 * index_add reads the whole index for every element of its result (op/index.c). In the sorted index
 * the terms of an element lie side by side. The sort is stable, so each sum has its terms in the
 * same order, and the same bits. A scatter_add whose index is one row for all is an index_add.
 *
 * needs   no composite op; gradients are made
 */
#include "pass/pass.h"

enum { FEW = 32, VECTOR = 8 }; /* indices that are soon read; elements that are added at once */

/* The sort of an index is made once for all adds of a block. */
typedef struct sorted {
    const ts_value *index;
    const ts_node *like;
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
    int dim;         /* of the result that it indexes */
    int64_t size;
} add;

/* v, if all dims of an expand but `dim` have size 1 in it; else NULL. */
static ts_value *one_row(ts_value *index, int dim)
{
    const ts_node *n = index->node;
    ts_value *v;
    int off;

    if (index->type.rank == 1)
        return index;
    if (!n || n->op != TS_OP(expand))
        return NULL;
    v = n->in[0];
    off = index->type.rank - v->type.rank;
    for (int d = 0; d < v->type.rank; d++)
        if (v->type.dim[d] != (d + off == dim ? index->type.dim[dim] : 1))
            return NULL;
    return dim >= off ? v : NULL;
}

static bool is_add(const ts_node *n, add *x)
{
    const ts_type *s = n->nin > 1 ? &n->in[1]->type : NULL, *y;

    if (n->op != TS_OP(index_add) && n->op != TS_OP(scatter_add))
        return false;
    y = &n->out[0]->type;
    x->dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), y->rank);
    x->index = n->in[0];
    x->size = y->dim[x->dim];
    if (n->op == TS_OP(index_add))
        return true;
    for (int d = 0; d < y->rank; d++)
        if (d != x->dim && y->dim[d] != s->dim[d])
            return false;
    x->index = one_row(n->in[0], x->dim);
    return x->index != NULL;
}

/* Is there more to search than to sort? A row of results is searched a vector at a time. */
static bool pays(const ts_node *n, const add *x)
{
    int64_t indices = ts_type_count(&x->index->type), row = 1, rounds = 1;
    const ts_type *y = &n->out[0]->type;

    for (int d = 0; d < y->rank; d++)
        row *= d == x->dim ? 1 : y->dim[d];
    while ((int64_t)1 << rounds < indices)
        rounds++;
    return indices > FEW && x->size * ((row + VECTOR - 1) / VECTOR) > 4 * rounds * rounds;
}

static const sorted *sort(runs *r, const ts_node *n, const add *x)
{
    ts_value *index;
    sorted *s;

    for (int i = 0; i < r->n; i++)
        if (r->known[i].index == x->index && r->known[i].size == x->size &&
            !strcmp(r->known[i].like->block, n->block) && r->known[i].like->phase == n->phase)
            return &r->known[i];
    s = &r->known[r->n++];
    *s = (sorted){.index = x->index, .like = n, .size = x->size};
    index = ts_reshape(r->map[x->index->id], ts_type_count(&x->index->type));
    s->places = index ? ts_sort_places(index, 0, false) : NULL;
    s->starts = ts_make1(TS_OP(run_starts), ts_gather(index, 0, s->places), 1,
                         (ts_attr[]){ts_attr_i("size", x->size + 1)});
    return s;
}

/* The source with the index's dims as one */
static ts_value *joined(ts_value *s, int dim, int rank)
{
    int64_t dims[TS_MAX_RANK] = {0};
    int n = 0;

    for (int d = 0; s && d < s->type.rank; d++) {
        bool more = d > dim && d < dim + rank;
        if (more)
            dims[n - 1] *= s->type.dim[d];
        else
            dims[n++] = s->type.dim[d];
    }
    return ts_reshape_n(s, n, dims);
}

static ts_value *by_runs(runs *r, const ts_node *n, const add *x)
{
    const sorted *s = sort(r, n, x);
    int rank = n->op == TS_OP(index_add) ? x->index->type.rank : 1;
    ts_value *in[] = {s->starts, joined(r->map[n->in[1]->id], x->dim, rank), s->places};

    if (!in[0] || !in[1] || !in[2])
        return NULL;
    return ts_node_out(ts_node_make(in[0]->graph, TS_OP(run_add), 3, in, 1,
                                    (ts_attr[]){ts_attr_i("dim", x->dim)}));
}

ts_status ts_pass_runs(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    runs r = {.known = TS_NEWS(a, sorted, in->nnodes)};
    ts_graph *g = ts_graph_begin_copy(a, in, &r.map);

    (void)opt;
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        add x;
        if (is_add(n, &x) && pays(n, &x)) {
            g->like = n;
            r.map[n->out[0]->id] = by_runs(&r, n, &x);
            g->like = NULL;
        } else
            ts_graph_copy_node(g, n, r.map);
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, r.map);
    *out = g;
    return TS_OK;
}

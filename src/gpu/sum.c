/* sum.c - a contraction or a reduction with several threads an element.
 *
 *   group of 256 threads, 32 of them an element of the result
 *     for (k = lane; k < 972; k += 32)     each thread every 32nd product
 *         s += a[..] * b[..];
 *     16 + 16, 8 + 8, ... 1 + 1            a tree, in shared memory
 *     lane 0 goes on with what comes after the sum, and stores
 *
 * A GPU wants a hundred thousand threads; the layers of a small net have a few thousand results of
 * some hundred products each. How many threads share an element depends on the shape only, so the
 * bits are the same on every GPU.
 */
#include "gpu/gpu.h"

enum {
    GROUP = 256,        /* threads */
    WIDE = 512,         /* where neighbouring threads have neighbouring results, */
    SIDE = 32,          /* so many of them at least */
    ENOUGH = 128 << 10, /* threads that keep a GPU busy */
    LEAST = 4,          /* terms that a thread adds up */
};

typedef struct sums {
    ts_gpu_writer *w;
    const ts_node *n;
    ts_spec s;                    /* of a contraction */
    int64_t terms;                /* of a result */
    const char *part;             /* the array in which they meet */
    int ways;                     /* threads that share it */
    int apart;                    /* and how far from each other they are in the group */
    const ts_ix *at[TS_MAX_RANK]; /* the result's coordinates */
    int64_t stride[TS_MAX_RANK];  /* of a reduction: how far apart neighbours along a dim are */
} sums;

static bool is_reduce(const ts_node *n)
{
    return n->op->flags & TS_REDUCE && !(n->op->flags & TS_NODIFF);
}

static int64_t count_terms(sums *x)
{
    int64_t terms = 1;

    if (is_reduce(x->n))
        return ts_type_count(&x->n->in[0]->type) / TS_MAX(1, ts_type_count(&x->n->out[0]->type));
    for (int i = x->s.nout; i < x->s.naxes; i++)
        terms *= x->s.extent[i];
    return terms;
}

static int choose_ways(int64_t results, int64_t terms, int most)
{
    int ways = 1;

    while (ways < most && results * ways < ENOUGH && terms / (2 * ways) >= LEAST)
        ways *= 2;
    return ways;
}

/* Where the operand's elements are; as it lies itself when that cannot be said. */
static void find_strides(sums *x)
{
    ts_arena *a = x->w->r->a;
    const ts_value *v = x->n->in[0];
    const ts_ix *at[TS_MAX_RANK], *address;
    const ts_atom *atom[TS_MAX_RANK];
    int64_t n = 1;

    for (int d = 0; d < v->type.rank; d++) {
        atom[d] = ts_atom_var(a, "i", 0, TS_MAX(1, v->type.dim[d]) - 1);
        at[d] = ts_ix_var(a, atom[d]);
    }
    address = ts_render_largest(x->w->r, v, at);
    for (int d = 0; d < v->type.rank; d++) {
        if (address && !ts_ix_linear(address, atom[d]))
            address = NULL;
        x->stride[d] = address ? llabs(ts_ix_coef(address, atom[d])) : 0;
    }
    for (int k = v->type.rank - 1; k >= 0 && !address; k--) {
        int d = v->layout.set ? v->layout.order[k] : k;
        x->stride[d] = n;
        n *= v->type.dim[d];
    }
}

/* The operand's dims, neighbours last. */
static void by_stride(const sums *x, int *order)
{
    for (int i = 0; i < x->n->in[0]->type.rank; i++) {
        int k = i;
        for (; k > 0 && x->stride[i] > x->stride[order[k - 1]]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

/* Do neighbouring results read neighbours, and terms not? */
static bool is_wide(const sums *x)
{
    const ts_type *t = &x->n->in[0]->type;
    int order[TS_MAX_RANK];

    if (!is_reduce(x->n))
        return false;
    by_stride(x, order);
    for (int i = t->rank - 1; i >= 0; i--)
        if (t->dim[order[i]] > 1 && x->stride[order[i]])
            return !ts_reduce_over(x->n, order[i]);
    return false;
}

/* Coordinates of result i: of a reduction counted as the operand lies, else as the result does. */
static void find_result(sums *x, const ts_ix *i)
{
    ts_arena *a = x->w->r->a;
    const ts_type *t = &x->n->in[0]->type;
    int keep = (int)ts_attr_int(x->n, "keepdim", 0), order[TS_MAX_RANK], of[TS_MAX_RANK];

    if (!is_reduce(x->n)) {
        ts_gpu_unflatten(a, x->w->k->roots[0], -1, i, x->at);
        return;
    }
    for (int d = 0, out = 0; d < t->rank; d++) {
        of[d] = out;
        if (ts_reduce_over(x->n, d) && keep)
            x->at[out] = ts_ix_const(a, 0);
        out += keep || !ts_reduce_over(x->n, d);
    }
    by_stride(x, order);
    for (int k = t->rank - 1; k >= 0; k--) {
        if (ts_reduce_over(x->n, order[k]))
            continue;
        x->at[of[order[k]]] = ts_ix_mod(a, i, t->dim[order[k]]);
        i = ts_ix_div(a, i, t->dim[order[k]]);
    }
}

/* k counts the terms; the last summed axis varies fastest. */
static void contract_axes(const sums *x, const ts_ix *k, const ts_ix **axes)
{
    ts_arena *a = x->w->r->a;

    ts_spec_axes(a, &x->s, x->n->out[0]->type.rank, x->at, axes);
    for (int i = x->s.naxes - 1; i >= x->s.nout; i--) {
        axes[i] = ts_ix_mod(a, k, x->s.extent[i]);
        k = ts_ix_div(a, k, x->s.extent[i]);
    }
}

/* k counts the summed dims as they lie in memory. */
static void reduce_at(const sums *x, const ts_ix *k, const ts_ix **in)
{
    ts_arena *a = x->w->r->a;
    const ts_type *t = &x->n->in[0]->type;
    int keep = (int)ts_attr_int(x->n, "keepdim", 0), out = x->n->out[0]->type.rank,
        order[TS_MAX_RANK];

    for (int d = t->rank - 1; d >= 0; d--) {
        if (!ts_reduce_over(x->n, d))
            in[d] = x->at[--out];
        else
            out -= keep;
    }
    by_stride(x, order);
    for (int i = t->rank - 1; i >= 0; i--) {
        int d = order[i];
        if (!ts_reduce_over(x->n, d))
            continue;
        in[d] = ts_ix_mod(a, k, t->dim[d]);
        k = ts_ix_div(a, k, t->dim[d]);
    }
}

static void add_term(const sums *x, const ts_ix *k, const char *sum)
{
    const ts_ix *axes[TS_AXES], *in[TS_MAX_RANK];

    if (is_reduce(x->n)) {
        reduce_at(x, k, in);
        ts_reduce_combine(x->w->e, x->n, sum, ts_emit_at(x->w->e, x->n->in[0], in));
        return;
    }
    contract_axes(x, k, axes);
    ts_emit_line(x->w->e, "%s += %s;", sum, ts_emit_term(x->w->e, x->n, &x->s, axes));
}

static void add_terms(const sums *x, const char *sum)
{
    ts_emit *e = x->w->e;
    ts_arena *a = e->a;
    const ts_atom *k;
    int mark;

    ts_emit_line(e, "UNROLL(4)");
    ts_emit_line(e, "for (%s k = lane; k < %ld; k += %d) {", e->index, (long)x->terms, x->ways);
    ts_emit_open(e, &mark);
    k = ts_atom_var(a, "k", 0, TS_MAX(0, x->terms - 1));
    add_term(x, x->terms > 1 ? ts_ix_var(a, k) : ts_ix_const(a, 0), sum);
    ts_emit_close(e, mark);
}

/* The threads' parts to one, in the first of them. */
static void add_up(const sums *x, const char *sum)
{
    ts_emit *e = x->w->e;
    const char *other = ts_emit_name(e, "s");

    if (x->ways == 1)
        return;
    ts_emit_line(e, "%s[LOCAL] = %s;", x->part, sum);
    for (int half = x->ways / 2; half; half /= 2) {
        ts_emit_line(e, "BARRIER();");
        ts_emit_line(e, "if (lane < %d) {", half);
        ts_emit_line(e, "    const %s %s = %s[LOCAL + %d];",
                     ts_emit_ctype(e, x->n->out[0]->type.dtype), other, x->part, half * x->apart);
        e->indent++;
        if (is_reduce(x->n))
            ts_reduce_combine(e, x->n, sum, other);
        else
            ts_emit_line(e, "%s += %s;", sum, other);
        if (half > 1)
            ts_emit_line(e, "%s[LOCAL] = %s;", x->part, sum);
        e->indent--;
        ts_emit_line(e, "}");
    }
}

static void write_sum(sums *x, int64_t results)
{
    ts_emit *e = x->w->e;
    ts_arena *a = e->a;
    const ts_type *t = &x->n->out[0]->type;
    const char *sum = ts_emit_name(e, "s");
    int per = x->w->row->threads / x->ways, mark, inner;

    find_result(x, ts_ix_var(a, ts_atom_var(a, "i", 0, results - 1)));
    if (x->ways > 1)
        x->part = ts_gpu_shared(x->w, ts_emit_ctype(e, t->dtype), x->w->row->threads);
    ts_emit_line(
        e, x->apart > 1 ? "const int32_t lane = LOCAL / %d;" : "const int32_t lane = LOCAL %% %d;",
        x->apart > 1 ? x->apart : x->ways);
    ts_emit_line(e, "for (%s first = GROUP * %d; first < %ld; first += GROUPS * %d) {", e->index,
                 per, (long)results, per);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const %s own = first + LOCAL %s %d, i = own < %ld ? own : %ld;", e->index,
                 x->apart > 1 ? "%" : "/", x->apart > 1 ? x->apart : x->ways, (long)results,
                 (long)results - 1);
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t->dtype), sum,
                 is_reduce(x->n) ? ts_reduce_first(e, x->n) : ts_emit_literal(e, t->dtype, 0));
    add_terms(x, sum);
    add_up(x, sum);
    ts_emit_line(e, "if (lane == 0 && own < %ld) {", (long)results);
    ts_emit_open(e, &inner);
    ts_emit_bind(e, x->n->out[0], x->at, sum);
    ts_render_body(e, x->w->k, x->at);
    ts_emit_close(e, inner);
    if (x->ways > 1)
        ts_emit_line(e, "BARRIER();"); /* the parts are free again */
    ts_emit_close(e, mark);
}

bool ts_gpu_sum(ts_gpu_writer *w)
{
    sums x = {.w = w, .n = w->k->anchor};
    int64_t results;

    if (!x.n || !(is_reduce(x.n) || x.n->op->spec) ||
        !ts_type_same_shape(&x.n->out[0]->type, &w->k->roots[0]->type))
        return false;
    if (is_reduce(x.n))
        find_strides(&x);
    else
        x.n->op->spec(w->r->a, x.n, &x.s);
    results = ts_type_count(&x.n->out[0]->type);
    x.terms = count_terms(&x);
    if (!results || !x.terms)
        return false;
    x.ways = choose_ways(results, x.terms, GROUP);
    x.apart = 1;
    if (w->row->threads) /* one group: as many ways as fill it */
        while (x.ways > 1 && results * x.ways > 4 * w->row->threads)
            x.ways /= 2;
    else if (is_wide(&x) && results >= SIDE && x.ways > 1) {
        w->row->threads = WIDE;
        x.ways = choose_ways(results, x.terms, WIDE / SIDE);
        x.apart = WIDE / x.ways;
    } else
        w->row->threads = GROUP;
    w->row->groups = TS_MIN((results * x.ways + w->row->threads - 1) / w->row->threads, 1 << 20);
    write_sum(&x, results);
    return true;
}

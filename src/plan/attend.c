/* attend.c - attention whose matrix of tokens by tokens is in no memory.
 *
 *   before, a kernel each                       after
 *     %s = matmul q, k'         [b, m, n]         one kernel: for each batch, for some rows after the other
 *     %a = amax %s              [b, m, 1]           %s %e %p in the thread's memory, %a %l %o stored
 *     %e = exp(%s - %a)         [b, m, n]         one kernel of the backward pass, the same way:
 *     %l = sum %e               [b, m, 1]           %s %e %p made again from q, k, %a and %l
 *     %p = %e / %l              [b, m, n]           %dp %ds in the thread's memory
 *     %o = matmul %p, v         [b, m, d]           dv, dk summed over the rows; dq stored
 *     %dv = matmul %p', %do     [b, n, d]
 *     %dp = matmul %do, v'      [b, m, n]
 *     %ds = ..                  [b, m, n]
 *     %dq = matmul %ds, k   %dk = matmul %ds', q
 *
 * Found by what ops are, not by names: a product whose matrix is read by pointwise ops, by sums along its
 * rows and by products only. Such a chain does nothing to a row that needs another row. So any mask,
 * scale, dropout or cast between the products is of it, and what one has that another has not needs no rule.
 * Matrices that somebody else reads too are stored as before, by the kernel that makes them.
 *
 * The way back needs matrices of the way forth. They are made again: the product, and what is computed of it
 * element by element; numbers that are one a row are stored and read.
 *
 * needs   kernels (fuse.c) in topological order
 * keeps   what every kernel computes, but for the order of its sums
 *
 * The price of the machine decides: of what the matrices cost in memory, and what making them again does.
 */
#include "plan/plan.h"

enum { NONE, FORTH, BACK, DONE, MOST_BYTES = 64 << 20 /* of a thread */ };

/* Matrices made again may cost that much more of the time of attention than stored ones: a large net runs out of
 * memory first. (4 x 512 tokens, width 256, 4 heads: 57 MB instead of 89, the step 157 ms instead of 153, and 160
 * as kernels apart.) */
static const double LESS_MEMORY = 1.1;

typedef struct attend {
    ts_arena *a;
    ts_program *p;
    ts_readers readers;
    int64_t batch, rows, columns;
    const ts_kernel *first; /* that the group began with */
    int *part;              /* by kernel: of which group */
    bool *takes; /* by kernel: a product of a matrix; what it makes is none of the group */
    int *list[3], count[3]; /* the groups' kernels */
    bool *kept;             /* by value: in memory whoever reads it */
    bool *next;             /* by value: a state's next one */
    int who;                /* the group that grows */
    bool again;             /* the way back makes matrices again; else they are stored for it */
} attend;

/* --- shapes --- */

static bool plain(const ts_value *v)
{
    ts_dtype t = v->type.dtype;

    return !v->layout.set && t != TS_F64 && t != TS_I64;
}

static bool ends(const ts_type *t, int64_t rows, int64_t columns)
{
    return t->rank >= 2 && t->dim[t->rank - 2] == rows && t->dim[t->rank - 1] == columns;
}

static bool is_matrix(const attend *x, const ts_value *v)
{
    return plain(v) && ends(&v->type, x->rows, x->columns) &&
           ts_type_count(&v->type) == x->batch * x->rows * x->columns;
}

/* One number a row: [.., rows, 1], or without the last dim. */
static bool is_column(const attend *x, const ts_value *v)
{
    return plain(v) && ends(&v->type, x->rows, 1) && ts_type_count(&v->type) == x->batch * x->rows;
}

static bool is_number(const attend *x, const ts_value *v)
{
    return is_column(x, v) ||
           (plain(v) && v->type.rank && v->type.dim[v->type.rank - 1] == x->rows &&
            ts_type_count(&v->type) == x->batch * x->rows);
}

/* --- what is behind a value --- */

static int maker(const attend *x, const ts_value *v)
{
    return x->p->place[v->id].home == TS_HOME_BLOCK ? x->p->place[v->id].kernel : -1;
}

static bool in_group(const attend *x, int k)
{
    return k >= 0 && (x->part[k] == FORTH || x->part[k] == BACK);
}

/* Is v, which kernel k makes, a matrix that the group's kernels give each other? */
static bool is_group_matrix(const attend *x, int k, const ts_value *v)
{
    return in_group(x, k) && !x->takes[k] && is_matrix(x, v);
}

/* Does n do to rows of its operands, which are rows of the group, only what leaves them rows? */
static bool keeps_rows(const attend *x, const ts_node *n, const ts_value *in)
{
    const ts_value *out = n->out[0];

    if (n->op->flags & TS_POINT)
        return (is_matrix(x, out) && (is_matrix(x, in) || is_column(x, in))) ||
               (is_number(x, out) && ts_type_same_shape(&in->type, &out->type)) ||
               (ends(&out->type, x->rows, out->type.dim[out->type.rank - 1]) &&
                (is_column(x, in) || ts_type_same_shape(&in->type, &out->type)));
    if (n->op == TS_OP(reshape))
        return is_matrix(x, out) ? is_matrix(x, in) : is_number(x, out) && is_number(x, in);
    if (n->op == TS_OP(expand))
        return is_column(x, in) && is_matrix(x, out);
    return false;
}

/* 1: of the group's rows, and row by row; 0: of others' memory only; -1: not row by row */
static int behind(const attend *x, const ts_value *v, const ts_kernel *own);

static int behind_node(const attend *x, const ts_node *n, const ts_kernel *own)
{
    int found = 0;

    for (int i = 0; i < n->nin; i++) {
        int one = behind(x, n->in[i], own);
        if (one < 0 || (one && !keeps_rows(x, n, n->in[i])))
            return -1;
        found = found || one;
    }
    return found;
}

static bool has_root(const ts_kernel *k, const ts_value *v)
{
    for (int r = 0; r < k->nroots; r++)
        if (k->roots[r] == v)
            return true;
    return false;
}

/* `own` is the kernel at hand: what it makes is not in memory yet. */
static int behind(const attend *x, const ts_value *v, const ts_kernel *own)
{
    int k = maker(x, v);

    if (own && own->anchor && v->kind == TS_VALUE_NODE && v->node == own->anchor)
        return 1;
    if (x->p->place[v->id].home == TS_HOME_NONE || (own && has_root(own, v)))
        return behind_node(x, v->node, own);
    if (!in_group(x, k))
        return 0;
    if (is_group_matrix(x, k, v))
        return 1;
    if (x->part[k] != x->who)
        return 0; /* done before */
    return is_number(x, v) && !x->takes[k] ? 1 : -1;
}

/* --- the kinds of kernels --- */

/* How many matrices operand o has. */
static int64_t batch_of(const ts_node *n, int o)
{
    const ts_type *t = &n->in[o]->type;

    return ts_type_count(t) / (t->dim[t->rank - 2] * t->dim[t->rank - 1]);
}

static bool of_kind(const attend *x, const ts_kernel *k,
                    bool (*is)(const attend *x, const ts_value *v))
{
    for (int r = 0; r < k->nroots; r++) {
        const ts_node *n = k->roots[r]->node;
        if (!is(x, k->roots[r]))
            return false;
        if (n != k->anchor && behind_node(x, n, k) < 0)
            return false;
    }
    return true;
}

static bool is_loop(const attend *x, const ts_kernel *k)
{
    return !k->anchor && (of_kind(x, k, is_matrix) || of_kind(x, k, is_number));
}

static bool is_sum(const attend *x, const ts_kernel *k)
{
    const ts_node *n = k->anchor;
    const int64_t *dims;
    int last;

    if (!n || !(n->op->flags & TS_REDUCE) || n->op->flags & TS_NODIFF || !is_matrix(x, n->in[0]))
        return false;
    last = n->in[0]->type.rank - 1;
    return ts_attr_list(n, "dims", &dims) == 1 && (dims[0] == last || dims[0] == -1) &&
           behind(x, n->in[0], k) >= 0 && of_kind(x, k, is_number);
}

/* A product of two matrices of each batch: what all batches have in common would be packed for each. */
static bool is_product(const attend *x, const ts_kernel *k)
{
    const ts_node *n = k->anchor;

    return n && n->op == TS_OP(matmul) && plain(n->out[0]) && x->batch > 1 &&
           batch_of(n, 0) == x->batch && batch_of(n, 1) == x->batch;
}

/* A product that makes such a matrix of what others left. */
static bool makes_matrix(const attend *x, const ts_kernel *k)
{
    return is_product(x, k) && is_matrix(x, k->anchor->out[0]) &&
           !behind(x, k->anchor->in[0], NULL) && !behind(x, k->anchor->in[1], NULL) &&
           of_kind(x, k, is_matrix);
}

static bool swaps_last(const ts_node *n)
{
    const int64_t *order;
    int rank = ts_attr_list(n, "dims", &order);

    for (int d = 0; d < rank - 2; d++)
        if (order[d] != d)
            return false;
    return rank >= 2 && order[rank - 2] == rank - 1 && order[rank - 1] == rank - 2;
}

static bool same_ends(const ts_type *s, const ts_type *t)
{
    return t->rank >= 2 && ends(s, t->dim[t->rank - 2], t->dim[t->rank - 1]);
}

bool ts_bands_own(const ts_bands *b, const ts_value *v)
{
    for (int i = 0; b && i < b->nown; i++)
        if (b->own[i] == v)
            return true;
    return false;
}

const ts_value *ts_bands_matrix(const ts_program *p, const ts_bands *b, const ts_value *v,
                                bool *turned)
{
    *turned = false;
    while (v->kind == TS_VALUE_NODE && p->place[v->id].home == TS_HOME_NONE &&
           !ts_bands_own(b, v)) {
        const ts_node *n = v->node;
        if (n->op == TS_OP(permute) && swaps_last(n))
            *turned = !*turned;
        else if (n->op == TS_OP(cast)
                     ? !ts_dtype_is_half(n->in[0]->type.dtype)
                     : n->op != TS_OP(reshape) || !same_ends(&v->type, &n->in[0]->type))
            return NULL;
        v = n->in[0];
    }
    return v;
}

static const ts_value *group_matrix(const attend *x, const ts_value *v, bool *turned)
{
    const ts_value *m = ts_bands_matrix(x->p, NULL, v, turned);
    int k = m ? maker(x, m) : -1;

    return m && is_group_matrix(x, k, m) ? m : NULL;
}

/* Does v, computed with the product of `own`, need something else of the group? */
static bool needs_group(const attend *x, const ts_value *v, const ts_kernel *own)
{
    if (v->kind != TS_VALUE_NODE || v->node == own->anchor)
        return false;
    if (x->p->place[v->id].home != TS_HOME_NONE && !has_root(own, v))
        return behind(x, v, NULL) != 0;
    for (int i = 0; i < v->node->nin; i++)
        if (needs_group(x, v->node->in[i], own))
            return true;
    return false;
}

/* What is made of the product. A row of it is a row of the group only where the matrix comes first and as it
 * is. */
static bool ends_well(const attend *x, const ts_kernel *k, bool rows)
{
    for (int r = 0; r < k->nroots; r++) {
        const ts_node *n = k->roots[r]->node;
        if (!plain(k->roots[r]))
            return false;
        if (n == k->anchor)
            continue;
        if (rows && behind_node(x, n, k) < 0)
            return false;
        for (int i = 0; i < n->nin && !rows; i++)
            if (needs_group(x, n->in[i], k))
                return false;
    }
    return true;
}

/* A product of such a matrix with what others left: by its rows, or summed over them. */
static bool takes_matrix(const attend *x, const ts_kernel *k)
{
    const ts_node *n = k->anchor;
    bool turned, first;
    const ts_type *t;

    if (!is_product(x, k))
        return false;
    first = group_matrix(x, n->in[0], &turned) != NULL;
    if (!first && !group_matrix(x, n->in[1], &turned))
        return false;
    t = &n->out[0]->type;
    return !behind(x, n->in[first], NULL) && t->rank >= 2 &&
           ts_type_count(t) == x->batch * t->dim[t->rank - 2] * t->dim[t->rank - 1] &&
           ends_well(x, k, first && !turned);
}

static bool updates(const attend *x, const ts_kernel *k)
{
    for (int r = 0; r < k->nroots; r++)
        if (x->next[k->roots[r]->id])
            return true;
    return false;
}

static bool eligible(const attend *x, const ts_kernel *k)
{
    const ts_node *n = ts_kernel_node(k), *f = ts_kernel_node(x->first);

    return k->nroots && !k->copy && k->phase == x->first->phase && !n->guard &&
           n->backward == (x->who == BACK) && !strcmp(n->block, f->block) && !updates(x, k) &&
           (is_loop(x, k) || is_sum(x, k) || takes_matrix(x, k) || makes_matrix(x, k));
}

/* --- groups --- */

static void add(attend *x, int k)
{
    x->takes[k] = takes_matrix(x, x->p->kernels[k]);
    x->part[k] = x->who;
    TS_PUSH(x->a, x->list[x->who], x->count[x->who], k);
}

/* All that reads the matrices of the group, from the i-th of its kernels on, and can be in it. The backward
 * pass waits for a group of its own. */
static void add_readers(attend *x, int i)
{
    for (; i < x->count[x->who]; i++) {
        int maker = x->list[x->who][i];
        const ts_kernel *k = x->p->kernels[maker];
        for (int r = 0; r < k->nroots; r++) {
            const int *at = &x->readers.at[k->roots[r]->id];
            for (int j = at[0]; j < at[1] && is_group_matrix(x, maker, k->roots[r]); j++) {
                int reader = x->readers.kernels[j];
                const ts_kernel *other = x->p->kernels[reader];
                if (x->part[reader] || (x->who == FORTH && ts_kernel_backward(other)))
                    continue;
                if (eligible(x, other))
                    add(x, reader);
            }
        }
    }
}

/* Does nobody but the group read what k makes? */
static bool only_ours(const attend *x, const ts_kernel *k)
{
    for (int r = 0; r < k->nroots; r++) {
        const int *at = &x->readers.at[k->roots[r]->id];
        if (x->kept[k->roots[r]->id])
            return false;
        for (int j = at[0]; j < at[1]; j++) {
            int reader = x->readers.kernels[j];
            if (!x->part[reader] && !(x->who == FORTH && ts_kernel_backward(x->p->kernels[reader])))
                return false;
        }
    }
    return true;
}

/* Is every kernel of the group still what it was when it came? */
static bool is_sound(const attend *x)
{
    for (int i = 0; i < x->count[x->who]; i++) {
        int k = x->list[x->who][i];
        if (!eligible(x, x->p->kernels[k]) || x->takes[k] != takes_matrix(x, x->p->kernels[k]))
            return false;
    }
    return true;
}

/* Matrices that the group reads and that can be made row by row with the others: other products, and what
 * is for this group only, such as random numbers. Not the operands of its products. */
static void add_makers(attend *x)
{
    for (int i = 0; i < x->count[x->who]; i++) {
        const ts_kernel *k = x->p->kernels[x->list[x->who][i]];
        for (int r = 0; r < k->nreads; r++) {
            int m = maker(x, k->reads[r]), from = x->count[x->who];
            const ts_kernel *other = m < 0 ? NULL : x->p->kernels[m];
            if (!other || x->part[m] || !is_matrix(x, k->reads[r]) || !eligible(x, other) ||
                !(makes_matrix(x, other) || (!other->anchor && only_ours(x, other))))
                continue;
            add(x, m);
            if (is_sound(x)) {
                add_readers(x, from);
                continue;
            }
            x->part[m] = NONE;
            x->count[x->who]--;
        }
    }
}

/* Something outside reads what the group makes, and the group what comes of it: numbers a row join, all else
 * must not be. */
static bool is_closed(attend *x)
{
    int n = x->p->nkernels;
    bool *after = TS_NEWS(x->a, bool, n);

    for (int k = 0; k < n; k++)
        for (int r = 0; x->p->kernels[k] && r < x->p->kernels[k]->nreads; r++) {
            int m = maker(x, x->p->kernels[k]->reads[r]);
            if (m < 0 || (x->part[m] != x->who && !after[m]))
                continue;
            if (x->part[k] != x->who)
                after[k] = true;
            else if (after[m]) {
                if (!eligible(x, x->p->kernels[m]))
                    return false;
                add(x, m);
                add_readers(x, x->count[x->who] - 1);
                return is_closed(x);
            }
        }
    return true;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool finish(attend *x)
{
    add_makers(x);
    if (!is_closed(x) || !is_sound(x))
        return false;
    qsort(x->list[x->who], (size_t)x->count[x->who], sizeof(int), by_number);
    return true;
}

static bool grow_forth(attend *x, int first)
{
    bool sums = false, takes = false;

    x->who = FORTH;
    add(x, first);
    add_readers(x, 0);
    if (!finish(x))
        return false;
    for (int i = 0; i < x->count[FORTH]; i++) {
        const ts_kernel *k = x->p->kernels[x->list[FORTH][i]];
        sums = sums || is_sum(x, k);
        takes = takes || x->takes[x->list[FORTH][i]];
    }
    return sums && takes;
}

static bool grow_back(attend *x)
{
    x->who = BACK;
    for (int i = 0; i < x->count[FORTH]; i++) {
        int maker = x->list[FORTH][i];
        const ts_kernel *k = x->p->kernels[maker];
        for (int r = 0; r < k->nroots; r++) {
            const int *at = &x->readers.at[k->roots[r]->id];
            for (int j = at[0]; j < at[1] && is_group_matrix(x, maker, k->roots[r]); j++) {
                int reader = x->readers.kernels[j];
                if (x->part[reader])
                    continue;
                if (eligible(x, x->p->kernels[reader]))
                    add(x, reader);
            }
        }
    }
    add_readers(x, 0);
    return x->count[BACK] && finish(x);
}

static void forget(attend *x, int who)
{
    for (int i = 0; i < x->count[who]; i++)
        x->part[x->list[who][i]] = NONE;
    x->count[who] = 0;
    x->list[who] = NULL;
}

/* --- kernels of them --- */

/* Is v, which a part of `who` makes, in no memory but the threads'? */
static bool is_own(const attend *x, const ts_value *v, int who)
{
    const int *at = &x->readers.at[v->id];
    bool matrix = is_group_matrix(x, maker(x, v), v);

    if (x->kept[v->id] || x->takes[maker(x, v)])
        return false;
    if (!matrix && who == FORTH && x->count[BACK] && x->again)
        return false; /* what is made again reads it */
    for (int j = at[0]; j < at[1]; j++) {
        int of = x->part[x->readers.kernels[j]];
        if (of != who && !(of == BACK && matrix && x->again))
            return false;
    }
    return true;
}

/* The kernels of the way forth that make v again. */
static void want_again(const attend *x, const ts_value *v, bool *again)
{
    int k = maker(x, v);

    if (k < 0 || x->part[k] != FORTH || !is_group_matrix(x, k, v) || again[k] ||
        !is_own(x, v, FORTH))
        return;
    again[k] = true;
    for (int r = 0; r < x->p->kernels[k]->nreads; r++)
        want_again(x, x->p->kernels[k]->reads[r], again);
}

static void add_read(attend *x, ts_kernel *k, ts_value *v)
{
    for (int i = 0; i < k->nreads; i++)
        if (k->reads[i] == v)
            return;
    TS_PUSH(x->a, k->reads, k->nreads, v);
}

static void add_part(attend *x, ts_kernel *k, ts_bands *b, ts_kernel *part, int who, bool again)
{
    TS_PUSH(x->a, b->parts, b->nparts, part);
    k->flops += part->flops;
    k->sums += part->sums;
    k->nodes += part->nodes;
    for (int r = 0; r < part->nroots; r++)
        if (again || is_own(x, part->roots[r], who))
            TS_PUSH(x->a, b->own, b->nown, part->roots[r]);
        else
            TS_PUSH(x->a, k->roots, k->nroots, part->roots[r]);
    for (int r = 0; r < part->nreads; r++) {
        ts_value *v = part->reads[r];
        if (!ts_bands_own(b, v))
            add_read(x, k, v);
        if (is_group_matrix(x, maker(x, v), v))
            TS_PUSH(x->a, b->matrices, b->nmatrices, v);
    }
}

static ts_kernel *make_kernel(attend *x, int who)
{
    ts_kernel *k = TS_NEW(x->a, ts_kernel);
    ts_bands *b = TS_NEW(x->a, ts_bands);
    bool *again = TS_NEWS(x->a, bool, x->p->nkernels);

    *b = (ts_bands){.batch = x->batch, .rows = x->rows, .columns = x->columns};
    k->bands = b;
    k->phase = x->first->phase;
    for (int i = 0; i < x->count[who] && who == BACK; i++) {
        const ts_kernel *part = x->p->kernels[x->list[who][i]];
        for (int r = 0; r < part->nreads; r++)
            want_again(x, part->reads[r], again);
    }
    for (int i = 0; i < x->p->nkernels; i++)
        if (again[i])
            add_part(x, k, b, x->p->kernels[i], who, true);
    for (int i = 0; i < x->count[who]; i++)
        add_part(x, k, b, x->p->kernels[x->list[who][i]], who, false);
    for (int i = b->nparts - 1; i >= 0 && !k->anchor; i--)
        if (b->parts[i]->anchor && b->parts[i]->anchor->op == TS_OP(matmul))
            k->anchor = b->parts[i]->anchor;
    return k;
}

/* --- the price --- */

static double bytes_of(ts_value *const *list, int n)
{
    double bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += (double)ts_type_bytes(&list[i]->type);
    return bytes;
}

static double apart_price(const attend *x, int who)
{
    const ts_machine_model *m = &x->p->machine;
    double cycles = 0;

    for (int i = 0; i < x->count[who]; i++) {
        const ts_kernel *k = x->p->kernels[x->list[who][i]];
        double bytes = bytes_of(k->reads, k->nreads) + bytes_of(k->roots, k->nroots);
        cycles += (ts_price_sums(m, k->sums) + ts_price_bytes(m, bytes)) / m->cores + m->meet;
    }
    return cycles;
}

/* What is in the threads' memory comes from their second caches: made, and read about twice. */
static double together_price(const attend *x, const ts_kernel *k)
{
    const ts_machine_model *m = &x->p->machine;
    double bytes = bytes_of(k->reads, k->nreads) + bytes_of(k->roots, k->nroots);
    double cycles = ts_price_sums(m, k->sums) + ts_price_bytes(m, bytes) +
                    3 * bytes_of(k->bands->own, k->bands->nown) / m->near;

    return ts_price_shared(m, cycles, (double)x->batch);
}

/* Matrices that lie in memory from the way forth to the way back, of which a net has many: far from all cores,
 * which share what brings them. */
static double kept_price(const attend *x, bool own)
{
    double bytes = 0;

    for (int i = 0; i < x->count[FORTH]; i++) {
        const ts_kernel *k = x->p->kernels[x->list[FORTH][i]];
        for (int r = 0; r < k->nroots; r++) {
            const ts_value *v = k->roots[r];
            const int *at = &x->readers.at[v->id];
            bool back = false;
            for (int j = at[0]; j < at[1]; j++)
                back = back || x->part[x->readers.kernels[j]] == BACK;
            if (back && is_matrix(x, v) && !(own && is_own(x, v, FORTH)))
                bytes += 2 * (double)ts_type_bytes(&v->type);
        }
    }
    return bytes / x->p->machine.memory;
}

/* Of a thread, about: a band of the matrices and packed, of what fits its second cache or a vector of rows; operands
 * and sums of a batch. */
static double thread_bytes(const attend *x, const ts_kernel *k)
{
    double bytes = 0, matrix = (double)(x->batch * x->rows * x->columns);
    double rows = 2 * x->p->machine.isa.width * bytes_of(k->bands->own, k->bands->nown) /
                  (double)(x->batch * x->rows);

    for (int i = 0; i < k->bands->nparts; i++) {
        const ts_node *n = k->bands->parts[i]->anchor;
        if (!n || n->op != TS_OP(matmul))
            continue;
        const ts_value *all[] = {n->in[0], n->in[1], n->out[0]};
        for (int j = 0; j < 3; j++)
            if ((double)ts_type_count(&all[j]->type) < matrix)
                bytes += (double)ts_type_bytes(&all[j]->type);
    }
    return bytes / (double)x->batch + TS_MAX(rows, (double)x->p->machine.level2);
}

/* --- all --- */

static void put(attend *x, int who, ts_kernel *k)
{
    int last = x->list[who][x->count[who] - 1];

    for (int i = 0; i < x->count[who]; i++) {
        x->part[x->list[who][i]] = DONE;
        x->p->kernels[x->list[who][i]] = NULL;
    }
    x->p->kernels[last] = k;
    for (int i = 0; i < k->bands->nown; i++)
        x->p->place[k->bands->own[i]->id] = (ts_place){.home = TS_HOME_NONE, .kernel = -1};
}

/* What the groups found cost as kernels, or less than 0 where that is out of the question. */
static double make(attend *x, bool again, ts_kernel **k)
{
    double cycles;

    x->again = again;
    cycles = kept_price(x, true);
    for (int who = FORTH; who <= BACK; who++) {
        k[who] = x->count[who] ? make_kernel(x, who) : NULL;
        if (!k[who])
            continue;
        if (!k[who]->bands->nown || thread_bytes(x, k[who]) > MOST_BYTES)
            return -1;
        cycles += together_price(x, k[who]);
    }
    return cycles;
}

/* The cheapest of: as it was, matrices stored for the way back, matrices made again. */
static bool replace(attend *x)
{
    double best = apart_price(x, FORTH) + apart_price(x, BACK) + kept_price(x, false);
    ts_kernel *found[DONE] = {0}, *k[DONE];

    for (int again = 0; again < 2; again++) {
        double cycles = make(x, again, k);
        if (cycles < 0 || cycles >= (again ? LESS_MEMORY : 1) * best)
            continue;
        best = cycles;
        memcpy(found, k, sizeof(found));
    }
    for (int who = FORTH; who <= BACK; who++)
        if (found[who])
            put(x, who, found[who]);
    return found[FORTH];
}

static void try_kernel(attend *x, int i)
{
    const ts_kernel *k = x->p->kernels[i];
    const ts_type *t;

    if (!k || x->part[i] || !k->anchor || k->anchor->op != TS_OP(matmul) || ts_kernel_backward(k))
        return;
    t = &k->anchor->out[0]->type;
    if (t->rank < 2 || t->dim[t->rank - 2] < 2 || t->dim[t->rank - 1] < 2)
        return;
    x->first = k;
    x->rows = t->dim[t->rank - 2];
    x->columns = t->dim[t->rank - 1];
    x->batch = ts_type_count(t) / (x->rows * x->columns);
    x->who = FORTH;
    if (makes_matrix(x, k) && grow_forth(x, i)) {
        if (!grow_back(x))
            forget(x, BACK);
        if (replace(x)) {
            x->count[FORTH] = x->count[BACK] = 0;
            x->list[FORTH] = x->list[BACK] = NULL;
            return;
        }
    }
    forget(x, FORTH);
    forget(x, BACK);
}

static void find_kept(attend *x)
{
    const ts_graph *g = x->p->g;

    x->kept = TS_NEWS(x->a, bool, g->nvalues);
    x->next = TS_NEWS(x->a, bool, g->nvalues);
    for (int i = 0; i < g->noutputs; i++)
        x->kept[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        x->kept[g->updates[i].next->id] = x->next[g->updates[i].next->id] = true;
    for (int i = 0; i < g->nvalues; i++)
        x->kept[i] = x->kept[i] || g->values[i]->checkpoint;
}

static void renumber(attend *x)
{
    ts_program *p = x->p;
    int n = 0;

    for (int i = 0; i < p->nkernels; i++) {
        if (!p->kernels[i])
            continue;
        for (int r = 0; r < p->kernels[i]->nroots; r++)
            p->place[p->kernels[i]->roots[r]->id].kernel = n;
        p->kernels[n++] = p->kernels[i];
    }
    p->nkernels = n;
}

void ts_plan_attend(ts_arena *a, const ts_options *opt, ts_program *p)
{
    attend x = {.a = a, .p = p};

    if (opt->device_kind != TS_DEVICE_CPU || ts_pass_skipped(opt, "attend") ||
        opt->executor == TS_EXECUTOR_REFERENCE)
        return;
    x.readers = ts_plan_readers(a, p);
    x.part = TS_NEWS(a, int, p->nkernels);
    x.takes = TS_NEWS(a, bool, p->nkernels);
    find_kept(&x);
    for (int i = 0; i < p->nkernels; i++)
        try_kernel(&x, i);
    renumber(&x);
}

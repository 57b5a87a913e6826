/* sort.c - the order of the elements along a dim.
 *
 *   argsort(x) count    the places of the first `count` elements of each sorted row (0: of all)
 *   sort(x) count       y, places = gather(x, argsort(x)), argsort(x)
 *
 * Equal elements keep their order; NaN is larger than all, as PyTorch has it. So the order is one
 * of (element, place) in which no two are alike, and any way of sorting gives the same answer.
 * Only places move: the gradient is gather's.
 *
 * The generated code makes a row at a time, in the memory of its result alone:
 *
 *   few of many   a heap of the best places so far, the worst of them on top; at the end it is
 *                 sorted as a heap is
 *   all           counting sort by each byte of the elements, the lowest first. Bytes in which all
 *                 elements agree are passed over, so small integers take one or two rounds
 *   short rows    each element's place is how many come before it: no branch that cannot be foreseen
 *
 * Of a long row it is looked first whether it is in order already, or in the opposite one: mostly its first elements tell.
 *
 * An element is made a key first, a whole number with the same order.
 */
#include "op/emit.h"
#include "op/op.h"

/* One thread of Zen 5, us a row of random numbers: all of 50 by counting what is before 0.4, by a heap 4.5, of 101 0.9, and by bytes
 * 7; the first 50 of 1000 by a heap 9, by bytes 18. */
enum {
    SHORT = 128, /* rows whose elements are compared with each other                  */
    MANY = 16,   /* elements of a row for each place, from which on a heap is faster  */
    BLOCK = 16,  /* elements that are compared with the worst together                */
};

static int dim_of(const ts_node *n)
{
    return ts_norm_dim(n, ts_attr_int(n, "dim", -1), n->in[0]->type.rank);
}

/* How many places; -1 and an error when there are not that many. */
static int64_t count_of(const ts_node *n, int64_t size)
{
    int64_t count = ts_attr_int(n, "count", 0);

    if (count >= 0 && count <= size)
        return count ? count : size;
    ts_fail_at(n, TS_ERR_ARG, "%s of the first %ld of %ld", n->op->name, (long)count, (long)size);
    return -1;
}

ts_status ts_infer_argsort(ts_node *n)
{
    ts_type t = n->in[0]->type;
    int dim = dim_of(n);

    if (dim < 0)
        return TS_ERR_ARG;
    if (t.dim[dim] > UINT32_MAX)
        return ts_fail_at(n, TS_ERR_SHAPE, "argsort of a row of %ld", (long)t.dim[dim]);
    t.dtype = TS_I64;
    t.dim[dim] = count_of(n, t.dim[dim]);
    return t.dim[dim] < 0 ? TS_ERR_ARG : ts_node_set_out1(n, t);
}

/* --- reference --- */

typedef struct item {
    double x;
    int64_t place;
} item;

/* Is x before y in ascending order, and not its equal? */
static bool less(double x, double y)
{
    return x < y || (x == x && y != y);
}

static int ascending(const void *p, const void *q)
{
    const item *x = p, *y = q;

    return less(x->x, y->x)   ? -1
           : less(y->x, x->x) ? 1
                              : (x->place > y->place) - (x->place < y->place);
}

static int descending(const void *p, const void *q)
{
    const item *x = p, *y = q;

    return less(y->x, x->x)   ? -1
           : less(x->x, y->x) ? 1
                              : (x->place > y->place) - (x->place < y->place);
}

ts_status ts_eval_argsort(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                          ts_tensor *out)
{
    int dim = dim_of(n);
    int64_t size = in[0].type.dim[dim], count = out->type.dim[dim], at[TS_MAX_RANK];
    bool down = ts_attr_int(n, "descending", 0);
    item *row = malloc((size_t)size * sizeof(*row));

    (void)c;
    if (!row)
        return ts_fail(TS_ERR_MEMORY, "no memory to sort %ld elements", (long)size);
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        if (it.at[dim]) /* a row at its first element */
            continue;
        memcpy(at, it.at, sizeof(at));
        for (at[dim] = 0; at[dim] < size; at[dim]++)
            row[at[dim]] = (item){
                ts_dtype_get(in[0].type.dtype, in[0].data, ts_flat(&in[0].type, at)), at[dim]};
        qsort(row, (size_t)size, sizeof(*row), down ? descending : ascending);
        for (at[dim] = 0; at[dim] < count; at[dim]++)
            ts_dtype_set(TS_I64, out->data, ts_flat(&out->type, at), (double)row[at[dim]].place);
    }
    free(row);
    return TS_OK;
}

/* --- generated code --- */

typedef struct rows {
    ts_emit *e;
    const ts_node *n;
    const ts_ix *const *at;
    int dim;
    int64_t size, count;
} rows;

/* The C variable i as an index of the row of v. */
static void at_var(const rows *r, const ts_value *v, const char *i, const ts_ix **x)
{
    ts_arena *a = r->e->a;
    int64_t size = v->type.dim[r->dim];

    for (int d = 0; d < v->type.rank; d++)
        x[d] = r->at[d];
    x[r->dim] = size > 1 ? ts_ix_var(a, ts_atom_var(a, i, 0, size - 1)) : ts_ix_const(a, 0);
}

/* The i-th place, in memory. */
static const char *place(const rows *r, const char *i)
{
    const ts_value *y = r->n->out[0];
    const ts_ix *x[TS_MAX_RANK];

    at_var(r, y, i, x);
    return ts_arena_printf(r->e->a, "%s[%s]", r->e->pointer(r->e->where, y),
                           ts_ix_text(r->e->a, ts_emit_address(r->e->a, y, x)));
}

static int key_bytes(const rows *r)
{
    ts_dtype t = r->n->in[0]->type.dtype;

    return ts_dtype_is_half(t) ? 4 : (int)ts_dtype_size(t); /* a half is a float by then */
}

/* The bits of a float in the order of its numbers: all of a negative one are turned, and the sign
 * of others. The zeros are one number, and so are all NaNs. */
static const char *float_bits(ts_emit *e, int bits, const char *x)
{
    const char *f = ts_emit_name(e, "f"), *u = ts_emit_name(e, "u");
    const char *top = ts_arena_printf(e->a, "((uint%d_t)1 << %d)", bits, bits - 1);

    ts_emit_line(e, "const %s %s = %s;", bits == 64 ? "double" : "float", f, x);
    ts_emit_line(e, "uint%d_t %s;", bits, u);
    ts_emit_line(e, "memcpy(&%s, &%s, sizeof(%s));", u, f, u);
    ts_emit_line(e, "%s = %s & %s ? ~%s : %s | %s;", u, u, top, u, u, top);
    ts_emit_line(e, "%s = %s != %s ? (uint%d_t)-1 : %s == 0 ? %s : %s;", u, f, f, bits, f, top, u);
    return u;
}

/* A C variable: the key of the i-th element, i being an expression. */
static const char *key(const rows *r, const char *i)
{
    ts_emit *e = r->e;
    const ts_value *v = r->n->in[0];
    ts_dtype t = v->type.dtype;
    const ts_ix *x[TS_MAX_RANK];
    const char *at = ts_emit_name(e, "i"), *k = ts_emit_name(e, "k"), *value;
    int bits = 8 * key_bytes(r);

    ts_emit_line(e, "const %s %s = (%s)(%s);", e->index, at, e->index, i);
    at_var(r, v, at, x);
    value = ts_emit_at(e, v, x);
    if (ts_dtype_is_float(t))
        value = float_bits(e, bits, value);
    else if (t == TS_U8 || t == TS_BOOL)
        value = ts_arena_printf(e->a, "(uint8_t)%s", value);
    else
        value =
            ts_arena_printf(e->a, "(uint%d_t)%s ^ (uint%d_t)1 << %d", bits, value, bits, bits - 1);
    ts_emit_line(e,
                 ts_attr_int(r->n, "descending", 0) ? "const uint64_t %s = (uint%d_t)~(%s);"
                                                    : "const uint64_t %s = (uint%d_t)(%s);",
                 k, bits, value);
    return k;
}

/* Is the element with key k at place p after the one with key l at place q? */
static const char *after(const rows *r, const char *k, const char *p, const char *l, const char *q)
{
    return ts_arena_printf(r->e->a, "%s > %s || (%s == %s && %s > %s)", k, l, k, l, p, q);
}

/* Puts `what` into the heap of `size` places at `hole`, whose own place is free, or below it. All
 * three are C variables. */
static void sift(const rows *r, const char *hole, const char *what, const char *size)
{
    ts_emit *e = r->e;
    const char *c = ts_emit_name(e, "c"), *p = ts_emit_name(e, "p"), *k = ts_emit_name(e, "k"),
               *q = ts_emit_name(e, "q"), *next = ts_emit_name(e, "n"), *mine = key(r, what);
    int mark, inner;

    ts_emit_line(e, "for (%s %s; (%s = 2 * %s + 1) < %s; %s = %s) {", e->index, c, c, hole, size,
                 hole, c);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "int64_t %s = %s;", p, place(r, c));
    ts_emit_line(e, "uint64_t %s = %s;", k, key(r, p));
    ts_emit_line(e, "if (%s + 1 < %s) {", c, size);
    ts_emit_open(e, &inner);
    ts_emit_line(e, "const %s %s = %s + 1;", e->index, next, c);
    ts_emit_line(e, "const int64_t %s = %s;", q, place(r, next));
    const char *other = key(r, q);
    ts_emit_line(e, "if (%s)", after(r, other, q, k, p));
    ts_emit_line(e, "    %s = %s, %s = %s, %s = %s;", c, next, p, q, k, other);
    ts_emit_close(e, inner);
    ts_emit_line(e, "if (!(%s))", after(r, k, p, mine, what));
    ts_emit_line(e, "    break;");
    ts_emit_line(e, "%s = %s;", place(r, hole), p);
    ts_emit_close(e, mark);
    ts_emit_line(e, "%s = %s;", place(r, hole), what);
}

/* for (i = from; i cond to; i step) { hole; what; size */
static void open_sift(const rows *r, const char *loop, int *mark, const char *hole,
                      const char *size)
{
    ts_emit_line(r->e, "%s {", loop);
    ts_emit_open(r->e, mark);
    ts_emit_line(r->e, "%s hole = %s;", r->e->index, hole);
    ts_emit_line(r->e, "const %s size = %s;", r->e->index, size);
}

/* if (the key of `what` is less than the worst) { it takes the place of the worst */
static void better_one(const rows *r)
{
    ts_emit *e = r->e;
    int mark;

    ts_emit_line(e, "if (%s >= worst)", key(r, "what"));
    ts_emit_line(e, "    continue;");
    open_sift(r, "", &mark, "first", ts_arena_printf(e->a, "%ld", (long)r->count));
    sift(r, "hole", "what", "size");
    ts_emit_line(e, "worst = %s;", key(r, place(r, "first")));
    ts_emit_close(e, mark);
}

/* Few are better than the worst so far, so blocks are asked whether one of them is: a loop without a branch. */
static void skip_block(const rows *r)
{
    ts_emit *e = r->e;
    int mark;

    ts_emit_line(e, "int some = 0;");
    ts_emit_line(e, "for (int b = 0; b < %d; b++) {", BLOCK);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "some |= %s < (uint%d_t)worst;", key(r, "block + b"), 8 * key_bytes(r));
    ts_emit_close(e, mark);
    ts_emit_line(e, "if (!some)");
    ts_emit_line(e, "    continue;");
}

/* Do the row's elements lie side by side, where they are compared as vectors? */
static bool side_by_side(const rows *r)
{
    const ts_type *t = &r->n->in[0]->type;

    for (int d = r->dim + 1; d < t->rank; d++)
        if (t->dim[d] > 1)
            return false;
    return !r->e->gpu;
}

/* The rest of the row, behind the first `count`. */
static void better_ones(const rows *r)
{
    ts_emit *e = r->e;
    int64_t left = side_by_side(r) ? (r->size - r->count) / BLOCK * BLOCK : 0;
    long blocks = (long)(r->count + left);
    int mark, inner;

    if (left) {
        ts_emit_line(e, "for (%s block = %ld; block < %ld; block += %d) {", e->index,
                     (long)r->count, blocks, BLOCK);
        ts_emit_open(e, &mark);
        skip_block(r);
        ts_emit_line(e, "for (int64_t what = block; what < block + %d; what++) {", BLOCK);
        ts_emit_open(e, &inner);
        better_one(r);
        ts_emit_close(e, inner);
        ts_emit_close(e, mark);
    }
    ts_emit_line(e, "for (int64_t what = %ld; what < %ld; what++) {", blocks, (long)r->size);
    ts_emit_open(e, &mark);
    better_one(r);
    ts_emit_close(e, mark);
}

static void heap(const rows *r)
{
    ts_emit *e = r->e;
    ts_arena *a = e->a;
    const char *t = e->index, *count = ts_arena_printf(a, "%ld", (long)r->count), *k;
    int mark;

    ts_emit_line(e, "for (%s i = 0; i < %s; i++)", t, count);
    ts_emit_line(e, "    %s = i;", place(r, "i"));
    open_sift(r, ts_arena_printf(a, "for (%s i = %ld; i >= 0; i--)", t, (long)r->count / 2 - 1),
              &mark, "i", count);
    ts_emit_line(e, "const int64_t what = %s;", place(r, "hole"));
    sift(r, "hole", "what", "size");
    ts_emit_close(e, mark);
    if (r->count < r->size) {
        ts_emit_line(e, "%s first = 0;", t);
        k = key(r, place(r, "first"));
        ts_emit_line(e, "uint64_t worst = %s;", k);
        better_ones(r);
    }
    open_sift(r, ts_arena_printf(a, "for (%s i = %ld; i > 0; i--)", t, (long)r->count - 1), &mark,
              "0", "i");
    ts_emit_line(e, "const int64_t what = %s;", place(r, "i"));
    ts_emit_line(e, "%s = %s;", place(r, "i"), place(r, "hole"));
    sift(r, "hole", "what", "size");
    ts_emit_close(e, mark);
}

/* A place is less than 2^32. So the result's memory has room for two orders, one in the low halves
 * of its elements and one in the high ones, and a round goes from one to the other. */
static void rounds(const rows *r)
{
    ts_emit *e = r->e;
    const char *t = e->index, *k, *size = ts_arena_printf(e->a, "%ld", (long)r->size);
    int mark, inner, bytes = key_bytes(r);

    ts_emit_line(e, "uint32_t counts[%d][256] = {{0}};", bytes);
    ts_emit_line(e, "int side = 0;");
    ts_emit_line(e, "for (%s i = 0; i < %s; i++) {", t, size);
    ts_emit_open(e, &mark);
    k = key(r, "i");
    for (int b = 0; b < bytes; b++)
        ts_emit_line(e, "counts[%d][%s >> %d & 255]++;", b, k, 8 * b);
    ts_emit_line(e, "%s = i;", place(r, "i"));
    ts_emit_close(e, mark);
    ts_emit_line(e, "for (int b = 0; b < %d; b++) {", bytes);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "uint32_t next = 0;");
    ts_emit_line(e, "if (counts[b][%s >> 8 * b & 255] == %s)", key(r, "0"), size);
    ts_emit_line(e, "    continue;");
    ts_emit_line(e, "for (int i = 0; i < 256; i++) {");
    ts_emit_open(e, &inner);
    ts_emit_line(e, "const uint32_t n = counts[b][i];");
    ts_emit_line(e, "counts[b][i] = next;");
    ts_emit_line(e, "next += n;");
    ts_emit_close(e, inner);
    ts_emit_line(e, "for (%s i = 0; i < %s; i++) {", t, size);
    ts_emit_open(e, &inner);
    ts_emit_line(e, "const uint32_t p = (uint32_t)((uint64_t)%s >> side);", place(r, "i"));
    ts_emit_line(e, "const %s to = (%s)counts[b][%s >> 8 * b & 255]++;", t, t, key(r, "p"));
    ts_emit_line(e,
                 "%s = (int64_t)(((uint64_t)%s & (uint64_t)0xffffffff << side) | (uint64_t)p << "
                 "(32 - side));",
                 place(r, "to"), place(r, "to"));
    ts_emit_close(e, inner);
    ts_emit_line(e, "side = 32 - side;");
    ts_emit_close(e, mark);
    ts_emit_line(e, "for (%s i = 0; i < %s; i++)", t, size);
    ts_emit_line(e, "    %s = (int64_t)(uint32_t)((uint64_t)%s >> side);", place(r, "i"),
                 place(r, "i"));
}

/* Of how many elements, from the first on, none comes before (`op`) the one before it. */
static void in_order(const rows *r, const char *name, const char *op)
{
    ts_emit *e = r->e;
    int mark;

    ts_emit_line(e, !strcmp(name, "up") ? "%s = 1;" : "%s %s = 1;",
                 !strcmp(name, "up") ? name : e->index, name);
    ts_emit_line(e, "for (uint64_t last = 0; %s < %ld; %s++) {", name, (long)r->size, name);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "last = %s == 1 ? %s : last;", name, key(r, "0"));
    const char *k = key(r, name);
    ts_emit_line(e, "if (%s %s last)", k, op);
    ts_emit_line(e, "    break;");
    ts_emit_line(e, "last = %s;", k);
    ts_emit_close(e, mark);
}

/* The row from its end, but equal elements from the first of them. */
static void write_backwards(const rows *r)
{
    ts_emit *e = r->e;
    const char *k, *l;
    int mark, inner;

    ts_emit_line(e, "for (%s i = 0, end = %ld, from; i < %ld; end = from - 1) {", e->index,
                 (long)r->size - 1, (long)r->count);
    ts_emit_open(e, &mark);
    k = key(r, "end");
    ts_emit_line(e, "for (from = end; from > 0; from--) {");
    ts_emit_open(e, &inner);
    l = key(r, "from - 1");
    ts_emit_line(e, "if (%s != %s)", l, k);
    ts_emit_line(e, "    break;");
    ts_emit_close(e, inner);
    ts_emit_line(e, "for (%s j = from; j <= end && i < %ld; j++, i++)", e->index, (long)r->count);
    ts_emit_line(e, "    %s = j;", place(r, "i"));
    ts_emit_close(e, mark);
}

/* A row in order, or backwards, is not sorted; `sort` writes the others. A heap is quick with what is in order. */
static void unless_in_order(const rows *r, void (*sort)(const rows *r))
{
    ts_emit *e = r->e;
    long size = (long)r->size;
    int mark;

    ts_emit_line(e, "%s up = 0;", e->index);
    if (sort == rounds)
        in_order(r, "up", "<");
    in_order(r, "down", ">");
    ts_emit_line(e, "if (up == %ld) {", size);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (%s i = 0; i < %ld; i++)", e->index, (long)r->count);
    ts_emit_line(e, "    %s = i;", place(r, "i"));
    ts_emit_close(e, mark);
    ts_emit_line(e, "else if (down == %ld) {", size);
    ts_emit_open(e, &mark);
    write_backwards(r);
    ts_emit_close(e, mark);
    ts_emit_line(e, "else {");
    ts_emit_open(e, &mark);
    sort(r);
    ts_emit_close(e, mark);
}

/* Keys of a short row, filled up to whole vectors with keys that nothing is after. A key of 32 bits has its place behind it,
 * so no two are alike. */
static void short_row(const rows *r)
{
    ts_emit *e = r->e;
    long size = (long)r->size, whole = (long)TS_ROUND_UP(r->size, 8);
    bool both = key_bytes(r) <= 4;
    const char *k;
    int mark;

    ts_emit_line(e, "uint64_t keys[%ld];", whole);
    ts_emit_line(e, "for (int i = 0; i < %ld; i++)", whole);
    ts_emit_line(e, "    keys[i] = (uint64_t)-1;");
    ts_emit_line(e, "for (int i = 0; i < %ld; i++) {", size);
    ts_emit_open(e, &mark);
    k = key(r, "i");
    ts_emit_line(e, both ? "keys[i] = %s << 32 | (uint32_t)i;" : "keys[i] = %s;", k);
    ts_emit_close(e, mark);
    ts_emit_line(e, "for (int i = 0; i < %ld; i++) {", size);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const uint64_t mine = keys[i];");
    ts_emit_line(e, "int64_t before = 0;");
    ts_emit_line(e, "for (int j = 0; j < %ld; j++)", whole);
    ts_emit_line(e, both ? "    before += keys[j] < mine;"
                         : "    before += (keys[j] < mine) | ((keys[j] == mine) & (j < i));");
    if (r->count < r->size)
        ts_emit_line(e, "if (before < %ld)", (long)r->count);
    ts_emit_line(e, "%s%s = i;", r->count < r->size ? "    " : "", place(r, "before"));
    ts_emit_close(e, mark);
}

/* Writes the row of the result that is at `at`; nobody asks for its elements. */
const char *ts_emit_argsort(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    rows r = {e, n, at, dim_of(n), .count = n->out[0]->type.dim[dim_of(n)]};

    (void)out;
    r.size = n->in[0]->type.dim[r.dim];
    if (r.size == 1)
        ts_emit_line(e, "%s = 0;", place(&r, ""));
    else if (r.size <= SHORT && !e->gpu && !e->plain)
        short_row(&r);
    else if (r.count == r.size && r.size > SHORT)
        unless_in_order(&r, rounds);
    else
        unless_in_order(&r, heap);
    return NULL;
}

/* --- sort --- */

/* Few of many are looked for; else all are sorted. */
ts_value *ts_sort_places(ts_value *keys, int dim, int64_t count, bool down)
{
    int64_t size = keys->type.dim[dim];
    bool all = size > SHORT && count > size / MANY;
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_i("count", all ? size : count),
                      ts_attr_i("descending", down)};
    ts_value *places = ts_make1(TS_OP(argsort), keys, TS_COUNT(attr), attr);

    return places && all && count < size ? ts_slice(places, dim, 0, count, 1) : places;
}

ts_status ts_expand_sort(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    const ts_type *t = &in[0]->type;
    int dim = t->rank ? dim_of(n) : 0;
    int64_t count = dim < 0 ? -1 : count_of(n, t->rank ? t->dim[dim] : 1);

    if (count < 0)
        return TS_ERR_ARG;
    if (!t->rank) {
        out[0] = in[0];
        out[1] = ts_scalar(g, TS_I64, 0);
        return g->status;
    }
    out[1] = ts_sort_places(ts_detach(in[0]), dim, count, ts_attr_int(n, "descending", 0));
    out[0] = ts_gather(in[0], dim, out[1]);
    return g->status;
}

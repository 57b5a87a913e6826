/* emit.h - how ops write C: index expressions and the emitter.
 *
 * A kernel is loops over the elements of its outputs. An op's emit rule is asked for one element,
 * at coordinates that are index expressions of the loop variables, and answers with C text; it asks
 * for the elements of its inputs in the same way. So a chain of ops becomes one loop (fusion), and
 * a view becomes a change of coordinates (no copy).
 *
 * In vector mode one loop variable, the lane, stands for `lanes` consecutive values, and the answer
 * is a vector. A rule need not know: what cannot be a vector is done lane by lane by the emitter.
 */
#ifndef TS_EMIT_H
#define TS_EMIT_H

#include "op/op.h"

/* ix.c: c + k1*atom1 + k2*atom2 + ..., an atom being a loop variable or a quotient or remainder of
 * such a sum. Kept in a normal form, so equal expressions have equal text, and simplified by the
 * atoms' ranges. */
typedef struct ts_atom ts_atom;
struct ts_atom {
    enum { TS_ATOM_VAR, TS_ATOM_DIV, TS_ATOM_MOD } kind;
    int id; /* orders the terms */
    const char *name;
    int64_t lo, hi; /* inclusive */
    const ts_ix *of;
    int64_t by;
};
typedef struct ts_term {
    const ts_atom *atom;
    int64_t k;
} ts_term;
struct ts_ix {
    int64_t c;
    int n;
    ts_term *t;
};
const ts_atom *ts_atom_var(ts_arena *a, const char *name, int64_t lo, int64_t hi);
const ts_ix *ts_ix_const(ts_arena *a, int64_t c);
const ts_ix *ts_ix_var(ts_arena *a, const ts_atom *atom);
const ts_ix *ts_ix_add(ts_arena *a, const ts_ix *x, const ts_ix *y);
const ts_ix *ts_ix_addc(ts_arena *a, const ts_ix *x, int64_t c);
const ts_ix *ts_ix_mul(ts_arena *a, const ts_ix *x, int64_t k);
const ts_ix *ts_ix_div(ts_arena *a, const ts_ix *x, int64_t k); /* x >= 0 wherever it is used */
const ts_ix *ts_ix_mod(ts_arena *a, const ts_ix *x, int64_t k);
void ts_ix_range(const ts_ix *x, int64_t *lo, int64_t *hi);
bool ts_ix_is_const(const ts_ix *x, int64_t *c);
bool ts_ix_same(const ts_ix *x, const ts_ix *y);
bool ts_ix_uses(const ts_ix *x, const ts_atom *atom);    /* at any depth */
int64_t ts_ix_coef(const ts_ix *x, const ts_atom *atom); /* as a direct term */
bool ts_ix_linear(const ts_ix *x, const ts_atom *atom);  /* only as a direct term */
const char *ts_ix_text(ts_arena *a, const ts_ix *x);

/* emit.c */
typedef struct ts_memo {
    const ts_value *v;
    const char *key, *name;
    bool scalar; /* in vector mode: the same for every lane */
    bool own;    /* of a value that this kernel makes */
} ts_memo;

struct ts_emit {
    ts_arena *a;
    ts_text *out;
    int indent;
    int *next;          /* for fresh names; shared by the whole source */
    const char *prefix; /* of the functions that the prelude defines; "" unless it is exported */
    const char *index;  /* the type of loop variables */
    bool plain;         /* C99 without extensions; scalar mode only */
    bool gpu;           /* and no pointers but those of the kernel: CUDA and OpenCL */
    const ts_atom *lane;
    int lanes;   /* 0: scalar mode */
    int singles; /* values made so far lane by lane, with a loop each */
    /* Of a rule that writes rows: how many rows side by side it makes together, the first of them at its
     * coordinates, the others after it in dim `column`; floats in the widest vector. 0 is one row. */
    int64_t columns;
    int column, width, part;
    ts_memo *memo;
    int nmemo;
    /* where the values that are in memory lie; asked with ts_emit_stored */
    const void *where;
    bool (*stored)(const void *where, const ts_value *v);
    const char *(*pointer)(const void *where, const ts_value *v); /* C name of its first element */
    void (*loaded)(const void *where, const ts_value *v,
                   const ts_ix *address);                  /* may be NULL: told of every load */
    void (*need)(const void *where, const char *function); /* a helper function is used */
};

const char *ts_emit_at(ts_emit *e, const ts_value *v, const ts_ix *const *at);
/* The same, computed even if v is stored: what a kernel does for its roots. */
const char *ts_emit_node(ts_emit *e, const ts_value *v, const ts_ix *const *at);
/* The same of what is in memory, whatever the kernel knows of it: what a row rule reads of its own result. */
const char *ts_emit_memory(ts_emit *e, const ts_value *v, const ts_ix *const *at);
/* body() at each of the columns, `at` moved along, `part` counting; in vectors if the body can; what is left in a loop, or
 * one by one for bodies that have variables of their own. */
typedef enum ts_columns { TS_COLUMNS_LOOP, TS_COLUMNS_APART, TS_COLUMNS_VECTORS = 2 } ts_columns;
void ts_emit_columns(ts_emit *e, int how, const ts_ix **at, void (*body)(ts_emit *, void *),
                     void *arg);
void ts_emit_store(ts_emit *e, const ts_value *v, const ts_ix *const *at, const char *name);
const char *ts_emit_recall(ts_emit *e, const ts_value *v,
                           const ts_ix *const *at); /* NULL: not yet */
void ts_emit_bind(ts_emit *e, const ts_value *v, const ts_ix *const *at, const char *name);
void ts_emit_line(ts_emit *e, const char *fmt, ...) TS_PRINTF(2, 3);
const char *ts_emit_temp(ts_emit *e, ts_dtype t, const char *fmt, ...) TS_PRINTF(3, 4);
/* sum += x * y, rounded once where the processor can */
void ts_emit_product(ts_emit *e, ts_dtype t, const char *sum, const char *x, const char *y);
const char *ts_emit_name(ts_emit *e, const char *prefix); /* fresh */
const char *ts_emit_ctype(ts_emit *e, ts_dtype t);        /* of a value in the current mode */
const char *ts_emit_memory_type(ts_dtype t);              /* of an element in memory */
const char *ts_emit_suffix(ts_emit *e, ts_dtype t);       /* names the formula's instance */
/* for (lo..hi) { ... } with a fresh variable; scopes the memo */
const ts_atom *ts_emit_loop(ts_emit *e, const char *prefix, int64_t lo, int64_t hi);
void ts_emit_open(ts_emit *e, int *mark); /* after a line that ends in '{' */
void ts_emit_close(ts_emit *e, int mark);
/* The element's place in memory: layout and type to one index. */
const ts_ix *ts_emit_address(ts_arena *a, const ts_value *v, const ts_ix *const *at);
size_t ts_layout_bytes(const ts_value *v);
/* "a >= 0 && a < n" for what is not already sure; "" when it is, NULL when it never holds */
const char *ts_emit_inside(ts_emit *e, const ts_ix *x, int64_t n);
const char *ts_emit_inside_all(ts_emit *e, int rank, const ts_ix *const *x, const int64_t *n);
/* Runs body() with a condition: returns what it returns where cond holds, else `other`. */
const char *ts_emit_guard(ts_emit *e, const char *cond, bool by_lane, ts_dtype t, double other,
                          const char *(*body)(ts_emit *, void *), void *arg);
/* Runs body once a lane in scalar mode and gathers the results. */
const char *ts_emit_lanes(ts_emit *e, ts_dtype t, const char *(*body)(ts_emit *, void *),
                          void *arg);
/* Do the lanes stand at x, x + 1, x + 2, .. with x a multiple of `by`, so that runs of so many are whole? */
bool ts_emit_runs(ts_emit *e, const ts_ix *x, int by);
/* Must each lane ask for itself whether it is inside n, or, with n NULL, something else that depends on x? */
bool ts_emit_cond_by_lane(ts_emit *e, int rank, const ts_ix *const *x, const int64_t *n);
const char *ts_emit_number(ts_emit *e, ts_dtype t, double x);     /* one number */
const char *ts_emit_splat(ts_emit *e, ts_dtype t, const char *x); /* in every lane */
const char *ts_emit_literal(ts_emit *e, ts_dtype t, double x);

/* reduce.c: of sum, prod, amax and amin, what is done in pieces. Is dim d summed; where the result
 * begins; acc = acc op x. */
bool ts_reduce_over(const ts_node *n, int d);
const char *ts_reduce_first(ts_emit *e, const ts_node *n);
void ts_reduce_combine(ts_emit *e, const ts_node *n, const char *acc, const char *x);

/* The loop nest of a contraction: out[o(axes)] = sum over reduce axes of a[..] * b[..]. An
 * operand's index that falls outside, or that `div` does not divide, contributes nothing. */
enum { TS_AXES = 16 };
typedef struct ts_affine {
    int64_t c, div;
    int64_t k[TS_AXES];
} ts_affine;
struct ts_spec {
    int naxes, nout; /* axes 0..nout-1 are the output's, the rest is summed */
    int64_t extent[TS_AXES];
    const char *axis[TS_AXES];
    ts_affine a[TS_MAX_RANK], b[TS_MAX_RANK], out[TS_MAX_RANK];
};
const ts_ix *ts_spec_ix(ts_arena *a, const ts_affine *f, int naxes, const ts_ix *const *axes);
/* The product at these axes, 0 where an operand has no element. */
const char *ts_emit_term(ts_emit *e, const ts_node *n, const ts_spec *s, const ts_ix *const *axes);
/* One of the two operands there, or 0. */
const char *ts_emit_operand(ts_emit *e, const ts_node *n, int which, const ts_spec *s,
                            const ts_ix *const *axes);
/* The output's axes from its coordinates (op/matmul.c). */
void ts_spec_axes(ts_arena *a, const ts_spec *s, int rank, const ts_ix *const *at,
                  const ts_ix **axes);

#endif

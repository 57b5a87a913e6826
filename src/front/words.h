/* words.h - the vocabulary: the functions and layers of the user's world, as calls over graph
 * values.
 *
 *   vocabulary.h   the table: one row a word
 *   words.c        looking up, and how arguments are read
 *   words_face.c   calls without PyTorch beside them: names, defaults, the answer's type and shape
 *   words_point.c  pointwise ops, comparisons, activations, random numbers
 *   words_shape.c  views with their inverses, joining, reductions
 *   words_index.c  reading and writing at an index
 *   words_order.c  running sums, sorting, counting
 *   words_layer.c  products, convolutions, pools, norms, losses
 *   words_recur.c  recurrent layers
 *   words_matrix.c factors of matrices, eigenvalues
 *   words_window.c windows by tables: unfold, uneven pools, resizing, sampling
 *   words_loss.c   losses of many ops
 *   words_grad.c   backward operations, by the words they belong to
 *
 * A call comes with its arguments in the order of ATen's schema, and with the dtype and shape of
 * its answer. A face that has PyTorch beside it knows those from PyTorch: they settle type
 * promotion and every shape argument with a -1 in it, so that no rule is written a second time
 * here: a pointwise op casts its operands to the dtype of the answer, a view of any name reshapes
 * to the shape of the answer.
 */
#ifndef TS_WORDS_H
#define TS_WORDS_H

#include "op/op.h"

enum {
    TS_WORD_RESULTS = 4096, /* pieces that are split or joined: steps of a recurrent layer */
    TS_WORD_PARAMS = 16,    /* arguments of a word */
};

typedef struct ts_call ts_call;
typedef ts_value *ts_word_fn(ts_call *c);
/* A view's inverse: x with the elements that the view shows replaced by those of y. */
typedef ts_value *ts_word_put_fn(ts_call *c, ts_value *x, ts_value *y);
/* The shape of the answer, from the arguments: c->rank and c->dims. */
typedef ts_status ts_shape_fn(ts_call *c);

/* A row of vocabulary.h. */
typedef struct ts_word_row {
    const char *name; /* "hardswish"; of a trace "aten::sort.stable" */
    ts_word_fn *make;
    const char *op;      /* for the rows that only differ in the engine's op */
    ts_word_put_fn *put; /* views only; NULL: cannot be written through      */
    const char *type;
    ts_shape_fn *shape;
    const char *arguments, *about; /* NULL for what only a trace says */
    bool aten;                     /* aten::NAME is this word         */
} ts_word_row;

/* An argument of a row: "stride:e=1" */
typedef struct ts_param {
    char name[24];
    char kind;     /* as vocabulary.h has it; x a tensor */
    int count;     /* of a list of a known length, or 0  */
    bool optional; /* may be left out, and is none then  */
    bool given;    /* has a default                      */
    bool c;        /* the C function takes it            */
    char otherwise[24];
} ts_param;

struct ts_call {
    ts_graph *g;
    const ts_word_row *row;
    const ts_arg *args;
    int nargs;
    /* The first result; for a view of several results, the one that is meant. */
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
    int which;                      /* result that a put is about */
    ts_value *out[TS_WORD_RESULTS]; /* [0] is what make returned; NULL: not given */
    int nout;
    char why[200]; /* set by ts_call_refuse */
    /* without PyTorch: the row's arguments, and what they are */
    ts_param params[TS_WORD_PARAMS];
    int nparams;
    ts_arg bound[TS_WORD_PARAMS];
};

/* words.c */
const ts_word_row *ts_word_find(const char *name);
const ts_word_row *ts_word_at(int i); /* the words; NULL past the last */
ts_value *ts_call_refuse(ts_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool ts_call_has(const ts_call *c, int i);  /* there, and not none */
bool ts_call_flag(const ts_call *c, int i); /* False where it is absent */
int64_t ts_call_int(const ts_call *c, int i, int64_t otherwise);
double ts_call_number(const ts_call *c, int i, double otherwise);
const char *ts_call_text(const ts_call *c, int i, const char *otherwise);
/* A list of ints; a single int is a list of one. Writes at most TS_MAX_RANK, returns the number. */
int ts_call_ints(const ts_call *c, int i, int64_t *out);
/* The same, made n long by repeating a single value; `otherwise` for an empty list. */
void ts_call_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out);
/* The length of a list, -1 when it is none; and a number of it. */
int ts_call_count(const ts_call *c, int i);
double ts_call_item(const ts_call *c, int i, int k);
ts_value *ts_call_tensor(ts_call *c, int i); /* NULL when it is no tensor */
/* A tensor or number, as t. */
ts_value *ts_call_as(ts_call *c, int i, ts_dtype t);
/* A list of tensors; NULL entries for none. Returns the number, at most n. */
int ts_call_tensors(const ts_call *c, int i, int n, ts_value **out);
int ts_call_dim(const ts_call *c, int i, int rank); /* a dim made positive */
ts_value *ts_call_scalar(ts_call *c, double v);     /* of the result's dtype */
ts_value *ts_call_op1(const char *op, ts_call *c, ts_value *x);
ts_value *ts_call_op2(const char *op, ts_call *c, ts_value *x, ts_value *y);

/* words_face.c */
int ts_word_params(const ts_word_row *r, ts_param *out); /* at most TS_WORD_PARAMS */
int ts_call_find(const ts_call *c, const char *name);    /* the argument's place, or -1 */
/* For a call without PyTorch beside it: arguments in their places, and the answer. */
ts_status ts_call_bind(ts_call *c, int n, const ts_arg *args);
int ts_call_spatial(const ts_call *c); /* 1, 2 or 3 dims, by the word's name */
/* What a C function of a row does: writes results and returns their number, 0 on failure; g may be
 * NULL where there are tensors. */
int ts_word_make(ts_graph *g, const char *word, int n, const ts_arg *args, int room,
                 ts_value **out);

/* words_shape.c */
int ts_call_shape_of(const ts_value *v, int64_t dims[TS_MAX_RANK]); /* returns the rank */
/* Can a rule make a constant of so many elements? Refuses beyond 2^26, which no net means. */
bool ts_call_fits(ts_call *c, double elements);
/* The constant start, start + step, ..: n of them, i64 */
ts_value *ts_call_counted(ts_graph *g, int64_t n, int64_t start, int64_t step);
/* A reduction by name; no dims: all */
ts_value *ts_call_fold(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                       bool keepdim);
ts_value *ts_call_p_norm(ts_call *c, ts_value *x, double p, int n, const int64_t *dims, bool keep);

/* words_order.c */
ts_value *ts_call_log_add(ts_call *c, ts_value *x, ts_value *y); /* log(e^x + e^y) */
/* y[i] = x[0] op .. op x[i] along dim; op: add, mul, log_add */
ts_value *ts_call_scan(ts_call *c, ts_value *x, int dim, const char *op);

/* words_window.c */
ts_value *ts_call_window_max(ts_call *c); /* a max pool of any dilation */

/* words_layer.c: an argument that is none, mean or sum, or ATen's number of it */
const char *ts_call_reduction(const ts_call *c, int i);
ts_value *ts_call_reduced(ts_call *c, ts_value *x, int reduction); /* by that argument */

/* Rules come from the table: a row whose rule is missing does not link. */
#define WORD(name, c, rule, op, type, shape, arguments, about)                                     \
    ts_word_fn ts_word_##rule;                                                                     \
    ts_shape_fn ts_shape_##shape;
#define VIEW(name, c, rule, op, type, shape, arguments, about, put)                                \
    WORD(name, c, rule, op, type, shape, arguments, about)                                         \
    ts_word_put_fn ts_word_put_##put;
#define TRACE(name, rule, op, put) ts_word_fn ts_word_##rule;
#include "front/vocabulary.h"
ts_word_put_fn ts_word_put_places;

#endif

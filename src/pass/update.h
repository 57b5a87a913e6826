/* update.h - between optimizer.c, which finds the gradients and keeps the state, and update.c, which
 * has a rule for each kind of optimiser: the numbers both write formulae with.
 */
#ifndef TS_PASS_UPDATE_H
#define TS_PASS_UPDATE_H

#include "pass/pass.h"
#include <math.h>

/* --- numbers: a tensor, or a constant known now. Constants fold. ---
 *
 * C does not say which argument of a call is computed first, and the graph should not depend on the
 * compiler: below, at most one argument of a call makes nodes; the others are variables. */

typedef struct num {
    ts_value *v; /* NULL: the constant c */
    double c;
} num;

static inline num constant(double c)
{
    return (num){NULL, c};
}

static inline num tensor(ts_value *v)
{
    return (num){v, 0};
}

static inline bool is(num x, double c)
{
    return !x.v && x.c == c;
}

/* x as a value, with the dtype of `like` when it is a constant */
static inline ts_value *value(num x, num like)
{
    return x.v ? x.v : ts_full_like(like.v, x.c);
}

static inline num plus(num x, num y)
{
    if (!x.v && !y.v)
        return constant(x.c + y.c);
    if (is(x, 0))
        return y;
    if (is(y, 0))
        return x;
    return tensor(ts_add(value(x, y), value(y, x)));
}

static inline num minus(num x, num y)
{
    if (!x.v && !y.v)
        return constant(x.c - y.c);
    if (is(y, 0))
        return x;
    return tensor(ts_sub(value(x, y), value(y, x)));
}

static inline num times(num x, num y)
{
    if (!x.v && !y.v)
        return constant(x.c * y.c);
    if (is(x, 0) || is(y, 0))
        return constant(0);
    if (is(x, 1))
        return y;
    if (is(y, 1))
        return x;
    return x.v ? tensor(ts_mul(x.v, value(y, x))) : tensor(ts_mul(y.v, value(x, y)));
}

static inline num over(num x, num y)
{
    if (!y.v)
        return times(x, constant(1 / y.c));
    if (is(x, 0))
        return x;
    return tensor(ts_div(value(x, y), y.v));
}

static inline num square(num x)
{
    return x.v ? tensor(ts_square(x.v)) : constant(x.c * x.c);
}

static inline num root(num x)
{
    return x.v ? tensor(ts_sqrt(x.v)) : constant(sqrt(x.c));
}

static inline num natural_log(num x)
{
    return x.v ? tensor(ts_log(x.v)) : constant(log(x.c));
}

/* e^x - 1 */
static inline num less_one(num x)
{
    return x.v ? tensor(ts_point1("expm1", x.v)) : constant(expm1(x.c));
}

/* x is a tensor */
static inline num power(num x, num y)
{
    return is(y, 0) ? constant(1) : is(y, 1) ? x : tensor(ts_pow(x.v, value(y, x)));
}

/* x is a tensor */
static inline num at_least(num x, num low)
{
    return tensor(ts_maximum(x.v, value(low, x)));
}

static inline num at_most(num x, num high)
{
    return tensor(ts_minimum(x.v, value(high, x)));
}

/* The sum of a tensor's squares, of rank 0. */
static inline num sum_squares(num x)
{
    ts_value *s = ts_square(x.v);

    return tensor(ts_rank(s) ? ts_sum(s, 0, NULL, false) : s);
}

/* --- hyper-parameters: rows of the table in optimizer.c --- */

enum {
    LR,
    MOMENTUM,
    DAMPENING,
    DECAY,
    BETA1,
    BETA2,
    EPS,
    ALPHA,
    MAX_NORM,
    SCALING,
    LR_DECAY,
    MOMENTUM_DECAY,
    START,
    LAMBD,
    T0,
    ETA_MINUS,
    ETA_PLUS,
    STEP_MIN,
    STEP_MAX,
    BETA2_DECAY,
    EPS2,
    CLIP,
    NS_A,
    NS_B,
    NS_C,
    NHYPERS
};

/* A group's hyper-parameters, and what follows from them alone, in one dtype and one phase. */
typedef struct rates {
    num h[NHYPERS];
    num keep;       /* 1 - dampening */
    num fix1, fix2; /* 1 / (1 - beta^t), or 1 without bias correction */
    num unscale;    /* what a gradient is multiplied with: 1 / (loss scale * A) */
    num own[3];     /* what the kind's own scalars() made of them and of t */
} rates;

typedef struct context {
    ts_graph *g;
    const ts_options *opt;
    const ts_optimizer *o;
    int accumulation;  /* A */
    int sums;          /* gradients that an update adds up at most: A of every replica */
    bool apart;        /* accumulate in phase 0, update in phase 1 */
    bool running;      /* accumulators hold the mean so far */
    ts_value **hyper;  /* [group][NHYPERS]: the state of a variable one, or NULL */
    ts_value **counts; /* running: micro-batches since the last update, one for each block */
    const char **count_blocks;
    int ncounts;
    ts_value *step, *next_t; /* t before and after this update, of the kinds that count */
    ts_value *ok;            /* automatic loss scale: is this update made? Else NULL */
    rates *(*rates)[2][2];   /* [group][is f64][phase], made when first asked */
    ts_node shared;          /* where nodes of no single parameter say they come from */
} context;

/* One parameter and what its update needs. */
typedef struct param {
    ts_value *w, *dw;            /* its state, its gradient as autodiff left it */
    ts_value *accum;             /* or NULL */
    ts_value *part, *accum_part; /* sharded: the replica's part of w and of accum. Else NULL */
    ts_dtype math;               /* f32 or f64 */
    int group;                   /* 0: in none */
    ts_node like;                /* its nodes come from the gradient's layer and line */
    num g;                       /* the gradient to apply: reduced, unscaled, clipped */
} param;

/* --- what the rules use of optimizer.c --- */

const ts_hyper *ts_update_hyper(const context *c, int group);
/* A state of the group: "eta", and "eta.1" for the first group. */
ts_value *ts_update_group_state(context *c, const char *name, int group, double start);
/* A state of the parameter, of its shape or, as one of dims, of another. */
ts_value *ts_update_slot(context *c, const param *p, const char *suffix, ts_dtype storage,
                         double start);
ts_value *ts_update_slot_of(context *c, const param *p, const char *suffix, ts_type t);
void ts_update_store(context *c, ts_value *state, num next);
const rates *ts_update_rates(context *c, int group, ts_dtype math);

static inline num load(const param *p, ts_value *state)
{
    return tensor(ts_cast(state, p->math));
}

/* --- update.c: the rules --- */

typedef struct ts_update_rule {
    const char *name;
    num (*next)(context *c, param *p, const rates *r, num w); /* w's; stores the state it keeps */
    void (*scalars)(context *c, int group,
                    rates *r); /* what is the same for all of a group, in f64 */
    bool counts;               /* needs t */
    bool whole;                /* an element's update depends on all of its parameter */
    bool matrices;             /* updates nothing else */
} ts_update_rule;

const ts_update_rule *ts_update_rule_of(const ts_optimizer *o); /* NULL: no such kind */

#endif

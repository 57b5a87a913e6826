/* pass.h - graph to graph. A pass is a function: the input stays as it is, the output is a new
 * graph in the same arena, or the input itself when there is nothing to do. pass.c has the order.
 */
#ifndef TS_PASS_H
#define TS_PASS_H

#include "machine/machine.h"

typedef ts_status ts_pass_fn(ts_arena *a, const ts_graph *in, const ts_options *opt,
                             const ts_graph **out);

/* pass.c */
/* All but the cut, which needs a plan: ts_plan_passes. Then those before the one of that name, and
 * those behind it. */
ts_status ts_pass_all(ts_arena *a, const ts_graph *model, const ts_options *opt,
                      const ts_graph **out);
ts_status ts_pass_until(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out);
ts_status ts_pass_after(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out);
/* Runs fn as the row of that name: verified, dumped, timed. */
ts_status ts_pass_step(ts_arena *a, const char *name, ts_pass_fn *fn, const ts_graph *in,
                       const ts_options *opt, const ts_graph **out);
const char *ts_pass_name(int i); /* NULL past the last */
/* Do the graph and the options go together, as far as the passes see to them? */
ts_status ts_pass_check(const ts_graph *g, const ts_options *opt);
/* Is this pass, or choice of the plan, in opt->skip ("fuse,layout")? */
bool ts_pass_skipped(const ts_options *opt, const char *name);
ts_status ts_pass_run(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                      const ts_graph **out);

/* A GPU fills its threads with elements in rows: the choices that fill a core's vectors are not for
 * it. */
static inline bool ts_pass_for_gpu(const ts_options *opt)
{
    return opt->device_kind >= TS_DEVICE_GPU;
}

/* Does a recur or recur_grad stay a loop? Else decompose writes it out. */
bool ts_pass_loops(const ts_options *opt, const ts_node *n); /* strips.c */

ts_pass_fn ts_pass_inference; /* inference.c  the net without what only trains it */
ts_pass_fn ts_pass_decompose; /* decompose.c  no composite op is left */
ts_pass_fn
    ts_pass_autodiff; /* autodiff.c   grads for the trained parameters; the loss is an output */
ts_pass_fn ts_pass_optimizer; /* optimizer.c  grads become updates of weights and optimiser state */
ts_pass_fn ts_pass_simplify;  /* simplify.c   fold, algebra, common subexpressions, dead code  */
ts_pass_fn ts_pass_slope;     /* slope.c      derivatives as one factor, made in the forward pass */
ts_pass_fn ts_pass_remake;    /* remake.c     in the backward pass again what follows from less */
ts_pass_fn ts_pass_empty;     /* empty.c      what follows from tensors without elements */
ts_pass_fn ts_pass_crop;      /* crop.c       convolutions without what pooling drops */
ts_pass_fn ts_pass_patches;   /* patches.c    convolutions of patches as products */
ts_pass_fn ts_pass_batch;     /* batch.c      samples that do not fill the lanes, in parts   */
ts_pass_fn ts_pass_order;     /* order.c      the canonical order of the nodes; no dead code */
ts_pass_fn ts_pass_rounding;  /* rounding.c   products of halves in f32, rounded once       */
ts_pass_fn ts_pass_runs;      /* runs.c       adds by index by way of the sorted index */
ts_pass_fn ts_pass_rows;      /* rows.c       products of rows in the shape that is read */
ts_pass_fn ts_pass_strips;    /* strips.c     recurrent weights as the loops over steps read them */
ts_pass_fn ts_pass_split;     /* split.c      large sums with few results in two steps */
ts_pass_fn ts_pass_winograd;  /* winograd.c   3x3 convolutions over many channels by F(4,3)  */
ts_pass_fn ts_pass_pad;       /* pad.c        padding in memory where rows fill the vectors  */
ts_pass_fn ts_pass_guard;     /* guard.c      looks at every result for infinities and NaN */
ts_pass_fn ts_pass_layout;    /* layout.c     how each tensor lies in memory    */

/* optimizer.c: the optimizer as the cache sees it */
ts_status ts_optimizer_check(const ts_options *opt); /* there is one: can it be? */
/* A copy without the values that a run may change: what the compiled step depends on. */
const ts_optimizer *ts_optimizer_fixed(ts_arena *a, const ts_optimizer *o);
/* Is the state of that name such a value? Then what it starts with. */
bool ts_optimizer_start(ts_arena *a, const ts_optimizer *o, const char *state, double *start);

/* scaling.c: a loss scale that finds itself */
typedef struct ts_scaled { /* a gradient of the scaled loss */
    ts_value *grad;
    double edge;         /* magnitudes above are too large */
    bool counts;         /* for the share of elements above it */
    const ts_node *like; /* where its nodes come from */
} ts_scaled;
typedef struct ts_scaling {
    const ts_optimizer *o;
    ts_dtype loss;
    ts_value *scale;           /* the state */
    ts_value *updates, *above; /* with a period: of this one. Else NULL */
    const ts_scaled *grads;
    int n;
    const ts_node *like;
} ts_scaling;
static inline bool ts_scaling_varies(const ts_optimizer *o) /* is the scale a state? */
{
    return o->automatic_scaling || o->variable & TS_HYPER_LOSS_SCALING;
}
ts_status ts_scaling_check(const ts_options *opt);
double ts_scaling_edge(const ts_optimizer *o);
/* Adds the update of the scale. True where no gradient has an infinity or a NaN: of rank 0. */
ts_value *ts_scaling_build(ts_graph *g, const ts_scaling *s);

/* replica.c: states that groups of replicas have values of their own of */
ts_status ts_replica_groups_check(const ts_graph *g, const ts_options *opt);
/* That of a parameter, or of the one that a state of the optimiser belongs to; NULL: all
 * share it. */
const ts_replica_group *ts_replica_group_of(const ts_options *opt, const char *state,
                                            bool optimizer);
int ts_replica_group_size(const ts_options *opt, const ts_replica_group *q); /* NULL: all */

/* layout.c: may the channels of a convolution be the lanes? And are they, where such convolutions have
 * this part of the work? */
bool ts_fills_lanes(int64_t channels);
bool ts_conv_wide(const ts_node *n);
bool ts_channels_last(double wide, double all);
bool ts_mostly_products(const ts_graph *g);
/* Will the samples of g lie side by side, in the lanes of vectors? */
ts_status ts_layout_in_lanes(ts_arena *a, const ts_graph *g, const ts_options *opt, bool *yes);
/* Samples side by side in a vector: what fills one that a unit takes at once, or 8. */
int ts_batch_lanes(const ts_machine_model *m, int64_t samples);

/* winograd.c */
/* May n, whose results or their gradients are y, be done in tiles if it has channels last? */
bool ts_winograd_fits(const ts_node *n, const ts_type *y);
/* Multiply-adds in whose time convolution n is made with so many samples in the lanes or, 0, with channels last,
 * by the method that will be chosen for it. */
double ts_winograd_price(const ts_machine_model *m, const ts_options *opt, const ts_node *n,
                         int lanes);

/* What simplify.c is made of. A rule looks at a node of the graph being made, whose inputs are
 * simple already, and gives a value of the same type to use instead: one that is there, or one it
 * makes. NULL: nothing to do. */
typedef ts_value *ts_rule_fn(const ts_node *n);
typedef struct ts_rule {
    const ts_op *op;
    ts_rule_fn *run;
} ts_rule;
ts_rule_fn ts_rule_fold;   /* fold.c     what is known now is computed now */
ts_rule_fn ts_rule_point;  /* algebra.c  pointwise ops                     */
ts_rule_fn ts_rule_view;   /* views.c    what only moves elements          */
ts_rule_fn ts_rule_rows;   /* views.c    rows that are the same           */
ts_rule_fn ts_rule_reduce; /* views.c    sums that add nothing             */

/* absorb.c: as a rule, but n is a node of the old graph: uses counts each value's, map has the new
 * values. Only there is it known that nobody else needs what is in between. */
ts_value *ts_rule_absorb(const ts_node *n, const int *uses, ts_value *const *map);

/* fold.c */
bool ts_full_value(const ts_value *v, double *x); /* every element of v is x, as its dtype has it */
/* simplify.c: helpers of the rules */
ts_value *ts_rule_first(const ts_rule *rules, int count, const ts_node *n);
const ts_node *ts_rule_behind(const ts_node *n, int i, const ts_op *op); /* maker of input i */
ts_value *ts_rule_shaped(ts_value *v, const ts_type *t);                 /* v broadcast to t */

/* merge.c: common subexpressions */
typedef struct ts_merge ts_merge;
ts_merge *ts_merge_new(ts_arena *a, int nodes);  /* room for so many */
ts_node *ts_merge_find(ts_merge *m, ts_node *n); /* an equal node added before, or NULL */

#endif

/* graph.h - the IR: values with static types, nodes in topological order, state and its updates.
 *
 *   graph
 *     inputs   x, labels            fed by every micro-batch
 *     states   conv1.weight, lr     live across runs
 *     nodes    %5 = conv(%x, %w)    in an order that computes what it needs first
 *     outputs  y, loss              returned to the host
 *     updates  %w <- %91 phase 1    the states' next values
 *
 * Phases. A node runs for every micro-batch (phase 0) or once per weight update (phase 1, after
 * gradient_accumulation micro-batches). A read of a state sees its value at the start of the phase.
 */
#ifndef TS_GRAPH_H
#define TS_GRAPH_H

#include "base/base.h"

typedef struct ts_node ts_node;
typedef struct ts_op ts_op;

#define TS_MAX_COUNT  ((int64_t)1 << 47) /* elements of a tensor; more is a mistake */
#define TS_MAX_ATTR   16                 /* attributes of a node */
#define TS_MAX_INPUTS 64                 /* inputs of a node */
#define TS_MAX_NAME   1000               /* bytes of a name */

typedef struct ts_type {
    ts_dtype dtype;
    int rank;
    int64_t dim[TS_MAX_RANK];
} ts_type;

/* How a tensor lies in memory: dims in `order`, outermost first. With lanes > 1 the low part of
 * lane_dim (index % lanes) is innermost instead and order holds its high part (index / lanes):
 *   [N,C,H,W] order 0123, lane_dim 0, lanes 8   ->  [N/8][C][H][W][8]   batch in the lanes
 *   [N,C,H,W] order 0231                        ->  [N][H][W][C]        channels last
 * lanes == 0 with order 0123... is PyTorch's row-major; a zeroed ts_layout means just that. */
typedef struct ts_layout {
    bool set;
    int8_t order[TS_MAX_RANK];
    int8_t lane_dim;
    int16_t lanes;
} ts_layout;

typedef enum ts_value_kind { TS_VALUE_NODE, TS_VALUE_INPUT, TS_VALUE_STATE } ts_value_kind;

struct ts_value {
    ts_graph *graph;
    int id; /* its place in graph->values */
    ts_type type;
    ts_value_kind kind;
    ts_node *node; /* its maker, when kind is TS_VALUE_NODE */
    int index;     /* which output of node, or which input or state of the graph */
    const char *name;
    ts_layout layout;
    bool checkpoint; /* kept for the backward pass where others are computed again */
};

typedef struct ts_attr {
    const char *name;
    char kind; /* i f s l */
    int64_t i;
    double f;
    const char *s;
    int n;
    const int64_t *l;
} ts_attr;

struct ts_node {
    const ts_op *op;
    int id;
    int nin, nout;
    ts_value **in, **out;
    int nattr;
    ts_attr *attr;
    const void *data;  /* const: the elements, row-major */
    const char *layer; /* "encoder.fc1", or "" */
    const char *block; /* pipeline block, or "" */
    const char *file;  /* the user's source line, or NULL */
    int line;
    bool backward;
    bool inner; /* a step of an op, not what the user wrote or gets (pass/guard.c) */
    bool guard; /* only looks at what others compute: the plan is made as without it */
    int phase;
    int nsub;
    ts_graph **sub; /* bodies of for_loop and cond */
};

/* What the optimiser keeps: gradients summed over micro-batches, which replicas add up before phase
 * 1, and its memory of earlier steps. A share has no memory of its own: it is the replica's part of
 * another state's. */
typedef enum ts_use { TS_USE_OTHER, TS_USE_SUMMED, TS_USE_MOMENT, TS_USE_SHARE } ts_use;

typedef struct ts_state {
    ts_value *value;
    ts_init init;
    bool trained; /* a parameter the optimiser updates */
    ts_use use;
    ts_value *of; /* a share, or a moment that only a part is kept of: of a tensor that lies like
                     this state; part r of `parts` is replica r's. Else NULL */
    int parts;
} ts_state;

typedef struct ts_update {
    ts_value *state, *next;
    int phase;
} ts_update;

/* What autodiff found for a trained parameter; the optimizer pass turns it into an update. */
typedef struct ts_grad {
    ts_value *param, *grad;
} ts_grad;

typedef struct ts_scope {
    const char *name;
    struct ts_scope *up;
} ts_scope;

struct ts_graph {
    ts_arena *arena;
    bool owns_arena;
    const char *name;
    ts_value **values;
    int nvalues;
    ts_node **nodes;
    int nnodes;
    ts_value **inputs;
    int ninputs;
    ts_state *states;
    int nstates;
    ts_value **outputs;
    const char **output_names;
    int noutputs;
    ts_update *updates;
    int nupdates;
    ts_grad *grads;
    int ngrads;
    ts_value *loss;
    bool loss_is_output; /* the last output is the loss */
    /* building */
    ts_scope *scope, *block;
    ts_dtype half;       /* what layers compute with, from parameters of f32; F32: as they are */
    bool shares;         /* a layer whose name has parameters takes those */
    const ts_node *like; /* made nodes inherit layer, block, line from it (passes) */
    bool backward;
    int phase;
    ts_status status;
    ts_error error;
};

/* graph.c */
ts_graph *ts_graph_in(ts_arena *a, const char *name);
ts_node *ts_node_make(ts_graph *g, const ts_op *op, int nin, ts_value *const *in, int nattr,
                      const ts_attr *attr); /* inferred; NULL on failure */
ts_node *ts_node_make_sub(ts_graph *g, const ts_op *op, int nin, ts_value *const *in, int nattr,
                          const ts_attr *attr, int nsub, ts_graph *const *sub);
ts_value *ts_node_out(ts_node *n); /* out[0], or NULL for NULL */
ts_node *ts_node_clone(ts_graph *g, const ts_node *n, ts_value *const *in); /* same op and place */
ts_value *ts_graph_add_input(ts_graph *g, const char *name, ts_type t);
ts_value *ts_graph_add_state(ts_graph *g, const char *name, ts_type t, ts_init init, bool trained);
void ts_graph_add_update(ts_graph *g, ts_value *state, ts_value *next, int phase);
void ts_graph_add_output(ts_graph *g, ts_value *v, const char *name);
/* From the values that are marked on to all that they are made of, by value id; what nobody needs is unmarked. */
void ts_graph_mark_needed(const ts_graph *g, bool *need);
ts_value *ts_graph_find_state(const ts_graph *g, const char *name);
/* A copy in `out` of a layer's options, NULL: zeros, whose first field is their size; 0 means that they
 * end at `first`, as they did when they were new. NULL: they ask for what we do not know. */
const void *ts_graph_options(ts_graph *g, const void *in, size_t first, void *out, size_t room);
#define TS_END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
/* For a call that cannot be done: g remembers the first such, with the user's line; hint may be
 * NULL. Returns NULL. */
void *ts_graph_refuse(ts_graph *g, ts_status code, const char *hint, const char *fmt, ...)
    TS_PRINTF(4, 5);
/* A copy in arena a of everything but the nodes; map[id of old value] is the new value. A pass
 * fills in the nodes with ts_node_clone or its own and ends with ts_graph_finish, which maps
 * outputs, updates, loss and checkpoints. */
ts_graph *ts_graph_begin_copy(ts_arena *a, const ts_graph *g, ts_value ***map);
void ts_graph_finish_copy(ts_graph *out, const ts_graph *g, ts_value *const *map);
ts_node *ts_graph_copy_node(ts_graph *out, const ts_node *n, ts_value **map);
void ts_value_mark(ts_value *v, bool checkpoint); /* v is one, or what it is a view of, if so */
/* For each value: how many nodes, outputs and updates use it; guards count for guards only. */
int *ts_graph_uses(ts_arena *a, const ts_graph *g);

ts_status ts_fail_at(const ts_node *n, ts_status code, const char *fmt, ...) TS_PRINTF(3, 4);
const char *ts_node_where(ts_arena *a, const ts_node *n);

const ts_attr *ts_attr_find(const ts_node *n, const char *name);
int64_t ts_attr_int(const ts_node *n, const char *name, int64_t missing);
double ts_attr_float(const ts_node *n, const char *name, double missing);
const char *ts_attr_str(const ts_node *n, const char *name, const char *missing);
int ts_attr_list(const ts_node *n, const char *name, const int64_t **l); /* count, 0 if missing */
ts_attr ts_attr_i(const char *name, int64_t i);
ts_attr ts_attr_f(const char *name, double f);
ts_attr ts_attr_s(const char *name, const char *s);
ts_attr ts_attr_l(const char *name, int n, const int64_t *l);

/* type.c */
int64_t ts_type_count(const ts_type *t); /* elements */
bool ts_type_possible(const ts_type *t); /* rank, sizes and count that a tensor can have */
size_t ts_type_bytes(const ts_type *t);
bool ts_type_same(const ts_type *a, const ts_type *b);
bool ts_type_same_shape(const ts_type *a, const ts_type *b);
ts_type ts_type_of(ts_dtype t, int rank, const int64_t *dims);
ts_type ts_type_scalar(ts_dtype t);
ts_dtype ts_dtype_promote(const ts_type *a, const ts_type *b); /* PyTorch's rules, rank 0 is weak */
bool ts_dtype_is_float(ts_dtype t);
bool ts_dtype_is_half(ts_dtype t);    /* f16, bf16 */
double ts_dtype_greatest(ts_dtype t); /* finite number, of floats */
ts_status ts_dtype_parse(const char *s, size_t len, ts_dtype *out);
char *ts_type_text(ts_arena *a, const ts_type *t); /* f32[16,10] */
double ts_dtype_get(ts_dtype t, const void *p, int64_t i);
void ts_dtype_set(ts_dtype t, void *p, int64_t i, double x);
uint16_t ts_f32_to_f16(float x);
float ts_f16_to_f32(uint16_t x);
uint16_t ts_f32_to_bf16(float x);
float ts_bf16_to_f32(uint16_t x);

/* verify.c: what a legal graph is, one rule a line */
ts_status ts_graph_verify(const ts_graph *g);

/* front/text.c: reads the text form into an arena that there is already */
ts_status ts_graph_read(ts_arena *a, const char *text, ts_graph **out);

/* print.c */
bool ts_name_is_plain(const char *s);     /* reads back without quotes */
const char *ts_name_wrong(const char *s); /* why it can be no name; NULL: it can */
void ts_graph_print(const ts_graph *g, ts_text *out);

#endif

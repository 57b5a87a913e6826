/* plan.h - graph to program: which values are kept in memory, which kernels make them, in what
 * order and where.
 *
 *   fuse.c      stored values and kernels: a kernel writes its roots and inlines the rest
 *   attend.c    kernels that hand each other large matrices, as one that goes from rows to rows
 *   cut.c       the stages of a net that has none, by trial of a plan
 *   schedule.c  the kernels' order, and which updates are made in place
 *   readers.c   the kernels that read each value
 *   device.c    a device and a section for every kernel; what one device sends another
 *   recompute.c forward kernels that run again in the backward pass
 *   offload.c   what is kept in the host's memory
 *   pipeline.c  the order in which each device runs its sections
 *   memory.c    an offset in a device's block for every stored value; where threads must wait
 *   gaps.c      which memory is taken when
 *   budget.c    whether the devices have that much
 *   ipu.c       what a model of an IPU says of memory and time (ipu.h)
 */
#ifndef TS_PLAN_H
#define TS_PLAN_H

#include "machine/machine.h"
#include "op/op.h"
#include "pass/pass.h"
#include "plan/pipeline.h"

/* Kernels that are done together (attend.c): for each batch, for some rows of their matrices after the
 * other. What is their own is in a thread's memory: matrices, or a number for each row. */
typedef struct ts_bands {
    int64_t batch, rows, columns;
    struct ts_kernel **parts;
    int nparts;
    ts_value **own;
    int nown;
    ts_value **matrices; /* that the parts read, in whatever memory; some more than once */
    int nmatrices;
} ts_bands;

enum { TS_MAX_ROOTS = 64 }; /* that what is written out has room for */

typedef struct ts_kernel {
    const ts_node *anchor; /* the contraction or reduction it is built around, or NULL: pointwise */
    ts_value **roots;      /* stored by it; same shape and layout */
    int nroots;
    ts_value **reads; /* stored values its body loads */
    int nreads;
    ts_value *copy; /* a kernel of its own: roots[0] is a state, this its next value */
    const ts_value *load, *store;  /* a kernel of its own: from the host's memory, or to it */
    const struct ts_kernel *again; /* the same kernel, which has run before */
    const ts_bands *bands;         /* it is several, or NULL */
    int phase, device, section;
    int step;     /* phased execution: the number of its phase */
    int index;    /* in the program */
    bool wait;    /* all threads must have finished what comes before */
    double flops; /* of its body */
    double sums;  /* the same by price: multiply-adds in whose time it is done */
    int nodes;    /* how many it holds */
} ts_kernel;

/* OUTPUT: the caller's memory; only an exported net has it. */
typedef enum ts_home {
    TS_HOME_NONE,
    TS_HOME_BLOCK,
    TS_HOME_INPUT,
    TS_HOME_CONST,
    TS_HOME_OUTPUT
} ts_home;

/* A value's memory on one device. Micro-batch m is at offset + m % depth * bytes. */
typedef struct ts_spot {
    int device;
    size_t offset, bytes;
    int depth;
    int shares;       /* of a state's memory: the replica has the part of its number. Else 0 */
    bool remote;      /* kept in the host's memory, and here only when it is used */
    size_t remote_at; /* there */
    int remote_depth;
    struct ts_spot *next; /* the copy on another device */
} ts_spot;

typedef struct ts_place {
    ts_home home;          /* NONE: inlined, has no memory */
    ts_spot spot;          /* where it is made, and the copies it is sent to */
    int kernel;            /* its maker, -1 for none */
    const ts_value *alias; /* lies in this state's memory: an update in place */
} ts_place;

typedef struct ts_program {
    const ts_graph *g;
    ts_machine_model machine; /* that it is made for */
    ts_place *place;          /* by value id */
    ts_kernel **kernels;      /* by section */
    int nkernels;
    ts_pipeline pipe;
    const ts_value **sent;          /* of each of pipe.sends */
    size_t state_bytes, peak_bytes; /* of all devices */
    ts_device_bytes *bytes;         /* of each */
    size_t remote_bytes;            /* in the host's memory */
    double flops;
    int64_t work; /* things looked at while it was made: a test holds them against the kernels */
} ts_program;

/* The kernels that read value v, in their order: kernels[at[v->id]] to kernels[at[v->id + 1] - 1] */
typedef struct ts_readers {
    int *at, *kernels;
} ts_readers;

/* cut.c: stages where there are devices and no stages; and all passes with the cut in its place */
ts_pass_fn ts_plan_cut;
ts_pass_fn ts_plan_passes;

ts_status ts_plan(ts_arena *a, const ts_graph *g, const ts_options *opt, const ts_program **out);
/* What a device would need, whatever it has; SIZE_MAX: no such plan. */
size_t ts_plan_peak(ts_arena *a, const ts_graph *g, const ts_options *opt, int device);

/* fuse.c */
ts_status ts_plan_fuse(ts_arena *a, const ts_graph *g, const ts_options *opt, ts_program *p);
/* The mix (op/winograd.c) that v is a permuted view of, maybe laid as a picture; or NULL.
 * Of each dim of v, rows[] tells how many neighbours are rows of the matrix for the same column. */
const ts_value *ts_mix_behind(const ts_value *v, int64_t *rows);
bool ts_same_layout(const ts_value *x, const ts_value *y);
/* attend.c */
void ts_plan_attend(ts_arena *a, const ts_options *opt, ts_program *p);
bool ts_bands_own(const ts_bands *b, const ts_value *v); /* NULL has none */
/* What is in memory, or of b, behind a product's operand, if that is a view of it that keeps rows and
 * columns or changes them for each other; else NULL. */
const ts_value *ts_bands_matrix(const ts_program *p, const ts_bands *b, const ts_value *v,
                                bool *turned);
/* schedule.c */
ts_status ts_plan_schedule(ts_arena *a, ts_program *p);
/* readers.c */
ts_readers ts_plan_readers(ts_arena *a, ts_program *p);
/* device.c */
ts_status ts_plan_devices(ts_arena *a, const ts_options *opt, ts_program *p);
const ts_node *ts_kernel_node(const ts_kernel *k); /* that it is made for, or NULL: a load */
bool ts_kernel_backward(const ts_kernel *k);       /* it is of the backward pass */
int ts_plan_phases(const ts_options *opt);         /* of the forward pass; 0: not phased */
void ts_plan_renumber(ts_program *p);              /* after kernels were put between others */
/* Of the user's graph: a block reads nothing of a later phase. */
ts_status ts_plan_check_phases(const ts_graph *g, const ts_options *opt);
/* recompute.c, offload.c */
void ts_plan_recompute(ts_arena *a, ts_program *p);
void ts_plan_offload(ts_arena *a, const ts_options *opt, ts_program *p);
unsigned ts_plan_offload_bit(const ts_program *p, const ts_value *v); /* what v counts as */
/* x is v, v's next value in the same memory, or a share of it. */
static inline bool ts_place_shared(const ts_program *p, const ts_value *x, const ts_value *v)
{
    if (p->place[x->id].alias)
        x = p->place[x->id].alias;
    return x == v || (x->kind == TS_VALUE_STATE && p->g->states[x->index].use == TS_USE_SHARE &&
                      p->g->states[x->index].of == v);
}
/* The memory of v on a device that has it. */
const ts_spot *ts_place_spot(const ts_program *p, const ts_value *v, int device);
/* memory.c */
ts_status ts_plan_memory(ts_arena *a, const ts_options *opt, ts_program *p);
/* budget.c */
int64_t ts_plan_kind_memory(ts_device_kind kind); /* of this machine, or of a model */
ts_status ts_plan_budget(ts_arena *a, const ts_options *opt, const ts_program *p);
/* What helps whatever the plan is, without what the graph has already. */
const char *ts_plan_cures(ts_arena *a, const ts_graph *g);
void ts_plan_waits(const ts_program *p, const bool *alone); /* sets wait, once the cut is known */
/* tessera.c: what ts_compile would plan, its options checked */
ts_status ts_compile_plan(ts_arena *a, const ts_graph *g, const ts_options *opt,
                          const ts_program **out);

#endif

/* machine.h - what the hardware is, and what work costs on it.
 *
 *   machine.c   the description: read from the system, from tables by processor, or given as text
 *   price.c     cycles of work, of memory, of threads that meet
 *
 * Whoever chooses (pass, plan, render) asks here, and compares two prices or takes a quantity that has
 * a name. What a program depends on is in the cache's key (`machine`), so nothing here may change from
 * one run to the next on the same machine: sizes are read and rounded down to powers of two, and
 * what would have to be measured comes from a table, in cycles, in which processors differ little.
 *
 * Prices are cycles of one core. Another kind of machine is another description: for a GPU `cores`
 * are its multiprocessors, `level1` their shared memory, `meet` a launch.
 */
#ifndef TS_MACHINE_H
#define TS_MACHINE_H

#include "op/op.h"

/* What the generated code may use. */
typedef struct ts_isa {
    const char *name;  /* recorded in the executable */
    const char *flags; /* for the compiler */
    int width;         /* floats in a vector */
    int registers;     /* vector registers */
    bool pairs;        /* dot products of pairs of bf16 */
    bool tiles;        /* products of whole tiles of bf16: AMX */
} ts_isa;

typedef struct ts_machine_model {
    ts_isa isa;
    int cores;                /* that a program is cut for, 2 at least, a power of 2          */
    int line;                 /* bytes of a cache line                                        */
    int64_t level1, level2;   /* bytes of a core's caches                                     */
    int64_t level3;           /* and of that which all share; 0: none                         */
    int unit;                 /* bytes of a vector that one unit adds and multiplies at once  */
    int units;                /* such units in a core                                         */
    int latency;              /* cycles from a multiply-add to one that needs its result      */
    double near, far, memory; /* bytes a cycle from level 2, from level 3 and from memory     */
    double meet;              /* cycles until threads that wait for each other go on          */
    double hertz;             /* cycles a second, about                                       */
} ts_machine_model;

/* machine.c: the machine that is compiled for. `isa` is ts_options.isa; NULL: $TESSERA_ISA or the best
 * this machine runs. The rest is this machine's, or what $TESSERA_MACHINE says: text as below, of
 * which every part may be missing. */
ts_status ts_machine_find(const char *isa, ts_machine_model *out);
/* "cores=2 line=64 level1=32768 ...": what the program depends on. The instruction set is an entry of
 * its own in the key. */
const char *ts_machine_text(ts_arena *a, const ts_machine_model *m);
ts_status ts_machine_parse(const char *text, ts_machine_model *m); /* changes what the text names */
ts_status ts_isa_find(const char *name, ts_isa *out);              /* NULL: this machine */
/* Whether this machine runs what was compiled for `isa`; names are "x86-64-v3", ... */
ts_status ts_isa_check(const char *isa);

/* price.c */

/* Vectors of `width` floats that the units of a core multiply and add in a cycle. */
double ts_machine_rate(const ts_machine_model *m, int width);
/* Accumulators that a tile may have: enough to hide the latency, and registers left for operands. */
int ts_machine_accumulators(const ts_machine_model *m);
/* Cycles that one core takes for so many multiply-adds in whole vectors, and for bytes that lie in
 * the smallest level that holds them all. */
double ts_price_sums(const ts_machine_model *m, double sums);
double ts_price_bytes(const ts_machine_model *m, double bytes);
/* Of the work of a node done in vectors; of its elements too when they are computed one by one. */
double ts_price_node(const ts_machine_model *m, const ts_node *n);
/* Of a kernel's arithmetic and of the tensors that it reads and writes: the larger of the two. */
double ts_price_kernel(const ts_machine_model *m, double sums, double bytes);
double ts_machine_seconds(const ts_machine_model *m, double cycles);
/* `cycles` of work in `pieces`, shared by the cores: the longest share, and their meeting. */
double ts_price_shared(const ts_machine_model *m, double cycles, double pieces);
/* Pieces that a thread must have at least, or waking it costs more than it does. */
int64_t ts_machine_grain(const ts_machine_model *m, int64_t pieces, double cycles);
/* Bytes that stay in a core's second cache while others pass by; bytes of a step whose tensors may
 * all have memory of their own. */
int64_t ts_machine_kept(const ts_machine_model *m);
int64_t ts_machine_spread(const ts_machine_model *m);

#endif

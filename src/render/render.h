/* render.h - program to C text to shared object.
 *
 *   render.c    the whole source: prelude, constants, kernels, table
 *   kernel.c    one loop kernel
 *   tile.c      how a contraction is blocked
 *   contract.c  one register-blocked contraction
 *   product.c   one large product, from packed panels; panel.c what it calls
 *   recur.c     the steps of one recurrent layer
 *   attend.c    several kernels as one that goes from rows to rows
 *   transpose.c one change between rows and batch in the lanes, or of where the channels are
 *   share.c     equal kernels as one function
 *   prelude.c   types, formulas and mathematics the kernels use; special.c functions C has not
 *   build.c     the C compiler as a child process; follow.c how far it is; kept.c what it need not do again
 *   nest.c      a kernel as plain C99, for exported files; plain.c its formulas
 */
#ifndef TS_RENDER_H
#define TS_RENDER_H

#include "machine/machine.h"
#include "op/emit.h"
#include "plan/plan.h"
#include "render/module.h"

/* A line before each function and before the table: where build.c may cut a long source into units.
 * What is light takes little of a step, and less of the compiler's time is spent on it. What is named
 * is the same function in every program that has one of that name: unit, light k_5d0c */
#define TS_UNIT       "/* unit */\n"
#define TS_UNIT_LIGHT "/* unit, light */\n"
#define TS_UNIT_NAMED "/* unit%s %s */\n" /* "" or */
#define TS_LIGHT      ", light"
#define TS_NAMED      "k_" /* begins the name of a kernel that follows from its text */
/* What became of a kernel of the program. */
typedef struct ts_kernel_text {
    const char *name; /* k2_conv1_conv; its function may be that of others */
    int64_t pieces;   /* that threads may share */
    double cycles;    /* modelled, of one core */
    size_t at, len;   /* its part of the text, comment and function */
} ts_kernel_text;
typedef struct ts_source {
    char *text; /* in the arena */
    size_t len;
    size_t prelude; /* what it begins with, before the constants */
    ts_isa isa;
    const char *flags;       /* all that the compiler is told */
    double cycles;           /* modelled, of one core: all kernels once */
    ts_kernel_text *kernels; /* of each */
} ts_source;

typedef struct ts_render {
    ts_arena *a;
    const ts_program *p;
    ts_machine_model m;
    const char *prefix; /* of every name in a file; NULL unless it is exported as plain C */
    const char **names; /* by value id, of what is not called by its number; or NULL */
    ts_text body;       /* kernels and the table */
    int next;           /* fresh names */
    char **needs;       /* helper functions used, in order of first use */
    int nneeds;
    double cycles;         /* of the kernels so far */
    int *cut_dim;          /* of each stored value: the dim its kernel was cut along, or -1 */
    size_t panel_bytes;    /* that a thread has for packed panels */
    ts_kernel_text *texts; /* of the kernels, their places counted in the body */
} ts_render;

#define TS_KERNEL "void %s(const ctx *c, int64_t lo, int64_t hi, const place *p)\n"

/* A tensor of a kernel: const float *const v7, and a place of module.h: {64, 0, 0, 1, 0} */
typedef struct ts_pointer {
    const char *type, *name, *row;
} ts_pointer;

/* A kernel's text, offsets in the body: its comment, and what comes after its function's pointers,
 * or, when it is told no places, the whole function. */
typedef struct ts_written {
    ts_pointer *pointers;
    int npointers;
    bool told; /* where its tensors lie */
    size_t start, code, end;
    const char *run; /* what share.c made of it: the function, */
    bool repeats;    /* that was there before */
} ts_written;

ts_status ts_source_make(ts_arena *a, const ts_program *p, const ts_options *opt,
                         const ts_source **out);
void ts_render_need(ts_render *r, const char *what);
const char *ts_render_kernel(const ts_render *r, int i);   /* its name, k2_conv1_conv */
void ts_render_describe(ts_render *r, const ts_kernel *k); /* its IR, for a comment */
void ts_render_emitter(ts_render *r, ts_emit *e);          /* an emitter that writes to r->body */
const char *ts_render_pointer(const void *where, const ts_value *v);

/* How a kernel is cut for the threads: `count` equal pieces, of which one thread takes at least
 * `grain`; `dim` of the result is the one that is cut, -1: none, or not known. */
typedef struct ts_cut {
    int64_t count, grain;
    int dim;
    double cycles; /* modelled, of one core */
    int phase;     /* while the nests of a stride are written: which, */
    int phases;    /* of how many; or 0 of 0 */
} ts_cut;
/* math.c: those functions that the formulas used with this suffix call. */
void ts_math_write(ts_text *out, const ts_render *r, const char *suffix,
                   bool (*uses)(const ts_render *, const char *suffix, const char *word));
/* Computes and stores every root at these coordinates. */
void ts_render_body(ts_emit *e, const ts_kernel *k, const ts_ix *const *at);
/* One loop over the elements as they lie is enough. */
bool ts_render_is_flat(const ts_render *r, const ts_kernel *k);
/* Of a kernel that makes whole rows: the dim along which they lie; else -1. */
int ts_render_row_dim(const ts_kernel *k);
ts_status ts_render_loops(ts_render *r, const ts_kernel *k, ts_cut *cut);
/* The address of an operand at coordinates that are expressions, or NULL when it is not one plain
 * load. */
const ts_ix *ts_render_address(ts_render *r, const ts_value *v, const ts_ix *const *at);
/* Of the load from the largest tensor, if several are; NULL when none is. */
const ts_ix *ts_render_largest(ts_render *r, const ts_value *v, const ts_ix *const *at);
bool ts_render_contract(ts_render *r, const ts_kernel *k,
                        ts_cut *cut); /* false: not for the template */
bool ts_render_recur(ts_render *r, const ts_kernel *k, ts_cut *cut);     /* the same */
bool ts_render_attend(ts_render *r, const ts_kernel *k, ts_cut *cut);    /* the same */
bool ts_render_transpose(ts_render *r, const ts_kernel *k, ts_cut *cut); /* the same */
/* Rewrites the body: marks and whole functions, with their new starts and ends; the kernels' places go
 * to `places`. Returns whether some of it is light. */
bool ts_render_share(ts_render *r, ts_written *w, const ts_cut *cuts, int n, ts_text *places);
void ts_prelude(ts_render *r, ts_text *out);
void ts_special_functions(ts_render *r, ts_text *out); /* special.c: those that formulas call */

/* For exported files. nest.c: the loops of a kernel, without threads and vectors. plain.c: the
 * functions that `code` calls. */
ts_status ts_render_nest(ts_render *r, const ts_kernel *k);
void ts_plain_prelude(ts_render *r, const char *code, ts_text *out);

/* kept.c: object code of functions, from one compile to the next */
enum { TS_KEPT_KEY = 32 }; /* letters */
typedef struct ts_kept {
    const char *folder;
    const char *origin; /* that generated the text, */
    const char *maker;  /* and all else that object code depends on: the compiler, its flags */
    bool full;          /* it can only be read */
} ts_kept;
typedef struct ts_kept_object {
    const char *code;
    size_t bytes;
    const char *origin;
    long origin_len;
    const char *keys; /* lines */
    int nkeys;
} ts_kept_object;
typedef struct ts_kept_file ts_kept_file;
/* What was found, in files that stay as they were when they were looked at. */
typedef struct ts_kept_search {
    ts_arena *a;
    const ts_kept *in;
    ts_kept_file **files;
    int nfiles;
    bool warned;
} ts_kept_search;
typedef struct ts_kept_unit {
    const char *code;
    size_t bytes;
    const char **names; /* of its functions */
    int nnames;
    bool light;
} ts_kept_unit;
bool ts_kept_find(ts_kept_search *s, const char *name, bool light);
const ts_kept_object *ts_kept_found(const ts_kept_search *s, int i); /* NULL: file i is no good */
void ts_kept_put(ts_arena *a, const ts_kept *k, const ts_kept_unit *u);
void ts_kept_pack(const ts_kept_object *o, ts_text *file);
/* What a file holds; fails saying why it cannot be used: "it ...". */
ts_status ts_kept_unpack(const char *file, size_t len, ts_kept_object *o);

/* build.c: the C compiler as a child process. kept: NULL when nothing is */
ts_status ts_cc_build(const ts_source *src, const ts_options *opt, const ts_kept *kept,
                      char **object, size_t *bytes);
char *ts_cc_identity(ts_arena *a, const ts_options *opt); /* NULL: there is none */
/* All that is said to the compiler of that identity. */
const char *ts_cc_flags(ts_arena *a, const ts_isa *isa, const char *identity);
/* The command that makes step.so of step.c, for people. */
const char *ts_cc_by_hand(ts_arena *a, const ts_options *opt, const char *flags);
ts_status ts_cc_missing(const ts_options *opt); /* fails saying so */

/* follow.c: functions in the assembler texts that are being written in a folder */
int ts_cc_functions(const char *folder);

#endif

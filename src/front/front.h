/* front.h - models described by text: what their lines become.
 *
 *   model.c   the public calls: load a description, make a graph of it
 *   read.c    text -> lines
 *   kinds.c   what a line can say besides words, and the calls of tessera.h it stands for
 *   nets.c    the descriptions that have a name
 */
#ifndef TS_FRONT_H
#define TS_FRONT_H

#include "front/words.h"
#include "tessera/model.h"

enum {
    TS_LINE_ARGS = 8,    /* arguments of a layer   */
    TS_LINE_REFS = 16,   /* results it reads by name */
    TS_LINE_INPUT = -1,  /* as a reference: the model's input */
    TS_LINE_RESULT = -2, /* the result of the line before */
    TS_LINE_TARGET = -3, /* what a loss compares with: an input of its own */
    TS_LINE_CLASSES = -1 /* as a size: the number of classes */
};

typedef struct ts_line_arg {
    const char *name;
    char kind; /* i integer, n size or `classes`, f number, b yes or no, w one of `words` */
    enum { TS_ARG_NAMED, TS_ARG_PLACED, TS_ARG_NEEDED } how; /* the last two may go without name */
    double low, high, otherwise;
    const char *words; /* "mean sum"; the value is the word's place */
} ts_line_arg;

typedef struct ts_line ts_line;
typedef struct ts_line_build ts_line_build;
typedef struct ts_line_kind {
    const char *name;
    ts_value *(*make)(const ts_line_build *b, const ts_line *l, ts_value *x);
    const ts_line_arg *args;   /* ends with a NULL name; NULL for none       */
    bool weights;              /* needs a layer name                         */
    int least_refs, most_refs; /* names of earlier results, before the rest  */
    int least_sizes;           /* a list of sizes, of any length from this   */
    const char *op;            /* for the rows that only differ in their op  */
    const ts_word_row *word;   /* a word of the vocabulary: its row has the arguments */
} ts_line_kind;

/* A layer or the loss, understood. */
struct ts_line {
    const ts_line_kind *kind;
    const char *name, *block; /* "" for none */
    int line, column;
    double args[TS_LINE_ARGS];
    int refs[TS_LINE_REFS], nrefs; /* lines by index, or TS_LINE_INPUT */
    int64_t sizes[TS_MAX_RANK];
    int nsizes;
    /* Of a word, by place. A tensor is a reference: a line by index, or TS_LINE_INPUT. */
    ts_arg given[TS_WORD_PARAMS];
};

struct ts_line_build {
    ts_graph *g;
    const char *file;
    ts_value *input, **results; /* by the index of the line */
    int64_t classes;
    bool training;
    const double *class_weights; /* as many as there are classes; NULL: none */
};

struct ts_model {
    ts_arena *arena;
    const char *name, *file, *text, *about;
    int rank;
    int64_t dims[TS_MAX_RANK];
    ts_dtype dtype;
    int input_line;
    int64_t classes; /* 0: not said */
    bool uses_classes;
    ts_line *lines;
    int nlines;
    bool has_loss;
    ts_line loss;
    const char **frozen; /* patterns of parameters that are not trained */
    int *frozen_lines, nfrozen, nfrozen_lines;
    double *class_weights;
    int nclass_weights;
    ts_dtype precision; /* of training: what is computed; F32: as it is */
};

/* read.c */
ts_status ts_model_read(ts_model *m);

/* kinds.c: rows end with a NULL name */
extern const ts_line_kind ts_layer_kinds[], ts_loss_kinds[];
ts_value *ts_line_word(const ts_line_build *b, const ts_line *l, ts_value *x);
const char *ts_kind_args(ts_arena *a, const ts_line_kind *k); /* "out kernel [stride=1] ..." */

/* layer.c: x with a learned vector for each place of dim 1; x W^T + b, of parameters with these names */
ts_value *ts_positions_layer(ts_value *x, const char *name);
ts_value *ts_projection_layer(ts_value *x, const char *name, const char *weight, const char *bias,
                              int64_t out);

/* nets.c */
const char *ts_net_find(const char *name); /* its description, or NULL */
const char *ts_net_nearest(const char *name);

/* model.c: `mark` writes the index of the line instead of its number to the nodes' source line. The
 * graph, whole or not, is the caller's to free. */
ts_status ts_model_build(const ts_model *m, const ts_model_options *o, bool mark, ts_line_build *b);

#endif

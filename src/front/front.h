/* front.h - models described by text: what their lines become.
 *
 *   model.c   the public calls: load a description, make a graph of it
 *   lines.c   text -> lines as they are meant: variables, repeats, conditions, definitions
 *   read.c    what a line says
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
    TS_LINE_INPUTS = 16, /* of a model */
    TS_LINE_LOSSES = 8,
    TS_LINE_SEVERAL = 256,   /* results of a line */
    TS_LINE_RESULT = -2,     /* as a reference: the result of the line before */
    TS_LINE_TARGET = -3,     /* what a loss compares with: an input of its own */
    TS_LINE_NONE = -4,       /* an argument that may be a result and is none */
    TS_LINE_CLASSES = -1,    /* as a size: the number of classes */
    TS_READ_WORDS = 32,      /* on a line */
    TS_READ_WORD = 64,       /* letters of a word */
    TS_READ_DEPTH = 64,      /* repeats, conditions and definitions in each other */
    TS_READ_PARAMETERS = 16, /* of a definition */
};

typedef struct ts_line_arg {
    const char *name;
    /* i integer, n size or `classes`, f number, b yes or no, w one of `words`, d an integer for each
     * dim or one for all, x a result */
    char kind;
    enum { TS_ARG_NAMED, TS_ARG_PLACED, TS_ARG_NEEDED } how; /* the last two may go without name */
    double low, high, otherwise;
    const char *words; /* "mean sum"; the value is the word's place */
} ts_line_arg;

typedef struct ts_line ts_line;
typedef struct ts_line_build ts_line_build;
typedef struct ts_line_kind {
    const char *name;
    ts_value *(*make)(const ts_line_build *b, const ts_line *l, ts_value *x); /* or b->made */
    const ts_line_arg *args;   /* ends with a NULL name; NULL for none       */
    bool weights;              /* needs a layer name                         */
    bool several;              /* takes several results as they are, once    */
    int least_refs, most_refs; /* names of earlier results, before the rest  */
    int least_sizes;           /* a list of sizes, of any length from this   */
    const char *op;            /* for the rows that only differ in their op  */
    const ts_word_row *word;   /* a word of the vocabulary: its row has the arguments */
} ts_line_kind;

/* A result that has a name. */
typedef struct ts_line_ref {
    int line; /* by index; below 0 an input: -1 the first, -2 the second */
    int item; /* one of several results; -1: all of them */
} ts_line_ref;

/* A layer or the loss, understood. References are indices of ts_model.refs. */
struct ts_line {
    const ts_line_kind *kind;
    const char *name, *block; /* "" for none */
    int line, column;
    double args[TS_LINE_ARGS];
    int dims[TS_LINE_ARGS][3]; /* of those that have one for each dim */
    int refs[TS_LINE_REFS], nrefs;
    int64_t sizes[TS_MAX_RANK];
    int nsizes;
    ts_arg given[TS_WORD_PARAMS]; /* of a word, by place; a tensor is a reference */
    int names;                    /* that its results get one by one; 0: one for all */
    bool again;                   /* with the weights of the layer that had this name before */
};

/* What a line makes: one result, or several that the lines after it take one by one. */
typedef struct ts_line_results {
    ts_value **v;
    int n;       /* what the next line takes */
    int outputs; /* what names can be given to: more where a word has other results besides */
} ts_line_results;

struct ts_line_build {
    ts_graph *g;
    const ts_model *m;
    const char *file;
    ts_value *inputs[TS_LINE_INPUTS];
    ts_line_results *results; /* by the index of the line */
    int64_t classes;
    bool training;
    const double *class_weights; /* as many as there are classes; NULL: none */
    /* the line that is being made */
    ts_line_results before; /* the results of the line before */
    int item;               /* which of several it is made for */
    ts_line_results *made;  /* where a line that makes several puts them */
    int count;              /* lines made, those of several results counted each time */
};

typedef struct ts_model_source {
    const char *name;
    int rank;
    int64_t dims[TS_MAX_RANK];
    ts_dtype dtype;
    int line;
} ts_model_source;

struct ts_model {
    ts_arena *arena;
    const char *name, *file, *text, *about;
    ts_model_source inputs[TS_LINE_INPUTS];
    int ninputs;
    ts_line_ref *refs;
    int nrefs;
    int64_t classes; /* 0: not said */
    bool uses_classes;
    ts_line *lines;
    int nlines;
    bool has_loss;
    ts_line losses[TS_LINE_LOSSES]; /* training minimises their sum */
    int nlosses;
    const char **frozen; /* patterns of parameters that are not trained */
    int *frozen_lines, nfrozen, nfrozen_lines;
    double *class_weights;
    int nclass_weights;
    ts_dtype precision; /* of training: what is computed; F32: as it is */
};

/* --- reading --- */

typedef struct ts_read_word {
    char kind; /* w word, ':', '=', '>' for an arrow, 0 for the end of the line */
    char s[TS_READ_WORD + 1];
    int column;
} ts_read_word;

typedef struct ts_variable {
    const char *name, *value; /* name NULL: gone */
} ts_variable;

typedef struct ts_definition {
    const char *name, *body;
    int line, nparams;
    ts_variable params[TS_READ_PARAMETERS]; /* value NULL: must be given */
} ts_definition;

/* A result's name, as far as it can be seen. */
typedef struct ts_saved {
    const char *name;
    int ref;
    const char *given; /* the argument that brought it into a definition, or NULL */
} ts_saved;

/* What has begun and not ended: a repeat, a condition, or the lines of a definition. */
typedef struct ts_frame {
    char kind;        /* r, i, d */
    const char *body; /* r: where it begins; d: where reading goes on */
    int line;         /* of the same */
    int said;         /* line that began it */
    int variable, round, rounds;
    const ts_definition *definition;
    /* d: what was before, and what its result is to be called */
    int first_variable, first_save, first_line, first_ref;
    const char *prefix, *name, *results[TS_LINE_REFS];
    int nresults;
} ts_frame;

/* The lines that a layer's name stands for. */
typedef struct ts_layer_lines {
    const char *name;
    int first, end, first_ref;
} ts_layer_lines;

typedef struct ts_reader {
    ts_model *m;
    const char *p; /* the next line */
    int line, reads;
    ts_read_word words[TS_READ_WORDS + 1];
    int nwords, at;
    ts_variable *variables;
    int nvariables;
    ts_definition *definitions;
    int ndefinitions;
    ts_frame frames[TS_READ_DEPTH];
    int depth, repeats, calls;
    const ts_frame *ended; /* a definition's lines ended */
    ts_saved *saves;
    int nsaves;
    ts_layer_lines *layers;
    int nlayers;
    const char *block, *prefix; /* prefix: of the names in a definition, "" or with a dot */
} ts_reader;

/* lines.c: a line that is there, or r->ended, or neither at the end of the text */
ts_status ts_read_line(ts_reader *r);
ts_status ts_read_wrong(const ts_reader *r, int column, const char *fmt, ...) TS_PRINTF(3, 4);
ts_status ts_read_integer(ts_reader *r, const char *what, int64_t low, int64_t high, int64_t *out);
ts_status ts_read_name(ts_reader *r, const char *what, const char **out);
ts_status ts_read_end(ts_reader *r); /* that nothing more is on the line */
const ts_definition *ts_read_definition(const ts_reader *r, const char *name);
/* The words from r->at on are a definition's arguments: its lines are read next. */
ts_status ts_read_call(ts_reader *r, const ts_definition *d, const char *name);
const char *const *ts_read_directives(int *n); /* what lines.c understands by itself */

/* read.c */
ts_status ts_model_read(ts_model *m);
bool ts_read_is_layer(ts_reader *r, const char *name); /* a layer, or a word for a line */
ts_status ts_read_results(ts_reader *r, const char **names, int *n); /* '->' NAME ... */
int ts_read_visible(const ts_reader *r, const char *name); /* a result's reference, or -1 */

/* kinds.c: rows end with a NULL name */
extern const ts_line_kind ts_layer_kinds[], ts_loss_kinds[];
ts_value *ts_line_word(const ts_line_build *b, const ts_line *l, ts_value *x);
int ts_kind_spatial(const ts_line_kind *k); /* conv2d: 2 */
bool ts_line_joins(const ts_line *l);       /* makes one of the several results before it */
int ts_line_references(const ts_line *l, int *refs, int room);
int ts_line_several(const ts_line_build *b, int ref); /* how many results a name stands for */
const char *ts_kind_args(ts_arena *a, const ts_line_kind *k); /* "out kernel [stride=1] ..." */

/* layer.c: x with a learned vector for each place of dim 1; x W^T + b, of parameters with these names */
ts_value *ts_positions_layer(ts_value *x, const char *name);
ts_value *ts_projection_layer(ts_value *x, const char *name, const char *weight, const char *bias,
                              int64_t out);
/* A convolution whose windows differ by dim. */
typedef struct ts_window {
    int kernel[3], stride[3], padding[3], dilation[3], output_padding[3];
    int groups;
    bool no_bias, transposed;
} ts_window;
ts_value *ts_window_layer(ts_value *x, const char *name, int spatial, int64_t out,
                          const ts_window *w);
/* batch x places x features -> batch x places x hidden: "lstm", "gru" or "rnn" */
ts_value *ts_recurrent_layer(ts_value *x, const char *name, const char *kind, int64_t hidden,
                             int layers, bool both, bool bias);

/* nets.c */
const char *ts_net_find(const char *name); /* its description, or NULL */
const char *ts_net_nearest(const char *name);

/* model.c: `mark` writes the index of the line instead of its number to the nodes' source line. The
 * graph, whole or not, is the caller's to free. */
ts_status ts_model_build(const ts_model *m, const ts_model_options *o, bool mark, ts_line_build *b);

#endif

/* net.h - a net with its weights, ready for inference: what train, eval, predict and inspect share.
 *
 *   file (.pth ...)  --weights_open-->  weights: state dict, model, metadata   (weights.c)
 *   model            --net_from_model--> net: an engine                        (net.c)
 *   net + weights    --net_load-->       scores, accuracy                      (net.c)
 *
 * Calls that return int give TOOL_OK, or say on stderr what is wrong and give TOOL_FAILED.
 */
#ifndef NET_H
#define NET_H

#include "tool.h"

/* --- recipe.c: what is done to data before a net sees it --- */

typedef struct normal { /* (x - mean) / deviation, one for all channels or one each; n = 0: none */
    double *mean, *deviation;
    int n;
} normal;
/* "0.5 0.5", "0.5,0.4,0.5 0.2,0.2,0.2", "" for none; as the metadata has it. */
bool normal_read(const char *text, normal *out);
char *normal_text(const normal *n); /* free() it */
bool normal_set(normal *out, int n, const double *mean, const double *deviation);
void normal_free(normal *n);
/* What is usual for a dataset of that name (or NULL) whose samples are such arrays. */
normal normal_usual(const char *data, ts_dtype dtype);
ts_normalize normal_view(const normal *n); /* borrowed from n */

typedef enum task {
    TASK_CLASSES, /* one of some classes                       */
    TASK_NUMBERS, /* numbers: regression                       */
    TASK_LABELS,  /* yes or no to each of some labels          */
    TASK_TEXT,    /* the next token, at every place            */
    TASK_PIXELS   /* one of some classes for every pixel       */
} task;
extern const char *const task_names[]; /* "classes numbers labels", in that order */

typedef struct recipe {
    int rank; /* of one sample */
    int64_t dims[TS_MAX_RANK];
    bool has_input; /* the file says so; else it is what the model says    */
    bool integers;  /* the net takes indices                               */
    normal normal;
    bool has_normal; /* the file or the line says it                       */
    ts_filter filter;
    bool has_filter;
    int shorter; /* images: the shorter side first, and the middle; 0: no  */
    task task;
    char *columns;  /* of a table: what they are, as ts_dataset_columns says; NULL: it is none */
    char *tokens;   /* of a text: its vocabulary; NULL: it is none         */
    char *missing;  /* what becomes of missing values; NULL: an error      */
    normal targets; /* of numbers: how they are scaled for the net         */
    int downsample; /* pictures: one pixel for so many squared; 0: all     */
    char *samples, *label,
        *separator; /* which arrays, and how a table is written; NULL: as usual */
    char *data;     /* what it was trained on                              */
    char *inputs;   /* of a net of several: their names with commas. A sample is a row of all their
                       numbers; NULL: there is one */
    bool *whole;    /* by the numbers of such a row: an index              */
} recipe;
/* What the model says of the samples: their sizes, and whether they are indices. */
int recipe_inputs(recipe *r, const ts_model *m);
/* Are the samples what the net's inputs take? */
int recipe_check(const recipe *r, const char *data, const ts_dataset *d);
typedef struct recipe_args {
    const char *resize, *mean, *std, *label, *drop, *missing, *separator, *task, *scale, *samples;
    int64_t window, vocabulary, downsample;
} recipe_args;
extern recipe_args recipe_asked; /* what the line says */
extern const option recipe_options[], table_options[], text_options[];
/* How the net's data is read, as the recipe and the line say; borrowed. */
int recipe_table(const char *command, const recipe *r, ts_dataset_options *out);
/* What is found in the data that is learned from: the task, the columns, means and deviations. */
int recipe_fit(const char *data, recipe *r, const ts_dataset *d);
/* The sizes of --resize, 0 for none, and its filter into r. */
int recipe_size(const char *command, recipe *r, int *height, int *width);
/* What the line says in place of what the file says. */
int recipe_override(const char *command, recipe *r);
/* What nobody said is what is usual for the data, which may be NULL; whether it has to be guessed
 * for images is said on stderr, unless quiet. */
void recipe_settle(recipe *r, const char *data, ts_dtype dtype, bool quiet);
ts_image_options recipe_image(const recipe *r); /* images as the net takes them */
ts_status recipe_put(const recipe *r, ts_object *o);
/* From the facts of a file, by key; returns the key of one that makes no sense, or NULL. */
typedef const char *recipe_fact(const void *file, const char *key);
const char *recipe_read(recipe *r, const ts_model *m, recipe_fact *fact, const void *file);
void recipe_free(recipe *r);

/* --- dataset.c --- */

typedef struct dataset_options {
    const char *name, *dir, *url; /* as in ts_dataset_options                       */
    ts_split split;
    int64_t limit;
    const recipe *recipe; /* of the net: folders of images are resized for it; NULL: as they are */
    bool quiet;           /* no bar for a download */
    bool *other;   /* becomes true when it is the training set, for want of another; or NULL */
    bool *several; /* becomes true when images of several sizes were made one; NULL: an error */
} dataset_options;
typedef struct download { /* for ts_dataset_options.progress_arg; close the bar when all is open */
    ts_bar *bar;
    char file[256];
    int64_t done;
} download;
bool show_download(void *arg, const char *file, int64_t done, int64_t total);
bool dataset_has_name(const char *name); /* it is one of ts_dataset_builtin */
int dataset_open(const dataset_options *o, ts_dataset **out);
bool set_is_missing(void); /* what the last error says of a split */

/* --- weights.c: files of weights --- */

typedef struct weights {
    char *path;
    ts_object *file;
    const ts_object *states; /* the state dict in it, with the model's names      */
    ts_object *renamed;      /* which is this where the file has others; or NULL  */
    ts_model *model;         /* by --model, by the metadata, or the one that fits */
    recipe recipe;
    int64_t classes;  /* 0: the model does not say       */
    const char *data; /* the dataset trained on, or NULL */
    char **names;     /* of the classes, as the file says */
    int nnames;
} weights;
/* model: a name or file in place of what the file says, or NULL. */
int weights_open(const char *path, const char *model, weights *out);
void weights_free(weights *w);
/* The same in steps: the file and its state dict (NULL: it has none); then the model (NULL: none is
 * named and no built-in one fits) and the rest. */
/* shapes: no tensor is read, for looking only */
int weights_load(const char *path, bool shapes, weights *out);
int weights_identify(weights *w, const char *model);
/* The state dict in what was loaded: itself, or below model_state_dict, state_dict or model; NULL
 * when there is none. */
const ts_object *weights_states(const ts_object *file);
/* The name of class i when the file names as many as there are; else NULL. */
const char *weights_class(const weights *w, int64_t classes, int i);
void weights_tidy_names(weights *w); /* names that a terminal may be shown, from now on */
bool weights_fit(const ts_tensor_info *t, const ts_object *o); /* a tensor for a state */
/* How many tensors are missing, unexpected or of another shape; written to out, unless NULL, a line
 * each. */
int weights_compare(const ts_executable *x, const ts_object *states, FILE *out);
/* Says all of them as an error. */
int weights_misfit(const ts_executable *x, const ts_object *states, const char *model,
                   const char *where);

/* --- names.c: what other programs call tensors --- */

/* The same tensors under the model's names, to be freed; NULL: there is nothing to change. */
ts_object *weights_renamed(const ts_object *states, const char *const *names, int n);

/* --- shipped.c: exported C, compiled and loaded --- */

enum { INPUTS = 16 };
typedef struct parts { /* the inputs of a net, of which a sample has the numbers in a row */
    int n;
    int64_t size[INPUTS], all;
    bool whole[INPUTS]; /* i32 */
} parts;
parts parts_of(const ts_model *m);
/* Rows as each input has them: out[i] has room for rows * size[i] numbers. */
void parts_split(const parts *p, int64_t rows, const float *samples, void *const *out);

typedef struct shipped {
    ts_c_net *net;
    parts parts;
    int64_t batch;
    void *in[INPUTS];
} shipped;
ts_status shipped_open(const ts_c_files *c, const ts_model *m, int64_t batch, shipped *out);
void shipped_close(shipped *s);
void shipped_run(const shipped *s, const void *samples, float *out);
double shipped_seconds(const shipped *s, const void *samples, float *out); /* of a run */

/* --- net.c: nets that run --- */

typedef enum net_end { NET_LOGITS, NET_LOG_PROBABILITIES, NET_PROBABILITIES } net_end;

typedef struct net_options {
    const char *command; /* it has the options of devices: they are obeyed     */
    ts_device_kind kind; /* without a command: one device of this kind         */
    int64_t batch;       /* rows of a batch; 0: 32                           */
    int iterations;      /* batches of one run, times the replicas; 0: 16 in a pipeline, else 1 */
    int rank;            /* of one sample; 0: what the description says      */
    const int64_t *dims;
    int64_t classes; /* 0: what the description says                       */
    int threads;     /* 0: as the engine likes                             */
    bool quiet;      /* no bar while it compiles                           */
} net_options;

typedef struct net {
    ts_executable *exe;
    ts_engine *engine;
    char name[128];
    int rank; /* of one sample */
    int64_t dims[TS_MAX_RANK];
    int64_t places;              /* of a sample that scores are for: 1; of a text its tokens, of a
                                    picture perhaps its pixels */
    int64_t batch, row, classes; /* batch: rows of one run; row: numbers of a sample; classes:
                                    scores of one */
    net_end end;                 /* what the scores are                              */
    float *in, *out;             /* of one run */
    const shipped *shipped;      /* runs in place of the engine, unless NULL */
} net;

int net_from_model(const ts_model *m, const net_options *o, net *out);
/* The net of weights, loaded. */
int net_from_weights(const weights *w, const net_options *o, net *out);
void net_free(net *n);
/* A tensor of a file into a state of its shape; floats of another type are converted. */
int weights_write(ts_engine *e, const ts_tensor_info *t, const ts_array *a);
/* All that is missing, unexpected or of another shape is said at once. where: for the message. */
int net_load(net *n, const ts_object *states, const char *where);
/* Says that scores of many places of a sample are no scores of classes. */
int net_no_classes(const net *n, const char *doing);
/* Scores of any number of rows: net->classes for each. */
int net_scores(net *n, const float *rows, int64_t count, float *scores);
/* Of a row of classes x places, the best class of the first place. */
int64_t best_class(const float *scores, int64_t classes, int64_t places);
/* The scores of one row as probabilities. */
void net_probabilities(const net *n, const float *scores, float *p);

typedef struct net_result {
    task task;
    int64_t count, right;
    double accuracy; /* of 1 */
    double loss;     /* classes, labels: mean negative log likelihood; numbers: mean square of the
                        errors, scaled as the net was trained */
    int classes;     /* or numbers, or labels */
    int64_t *counts; /* classes, pixels: [i * classes + j]: how many of class i were taken for class
                        j */
    float *predicted; /* else: count x classes numbers in the data's units, or probabilities */
    double rmse, mae, r2, f1, auc;
    double nonzero, mean_iou,
        mean_iou_nonzero; /* pixels: accuracy of those that are not of class 0;
                                                   over all classes, and over those but the first */
} net_result;
/* Takes every sample of d; label: of the bar, NULL for none. */
int net_evaluate(net *n, const ts_dataset *d, const recipe *how, const char *label,
                 net_result *out);
void net_result_free(net_result *r);
/* The net's outputs of one row as the data has them: numbers in its units, probabilities. */
void net_values(const net *n, const recipe *how, const float *scores, float *out);

/* pixels.c: events of a file, by a net that classifies pixels, a batch of one sample each */
typedef struct event_options {
    net *n;
    const char *path; /* of the file */
    const char *const *classes;
    const int64_t *events; /* those to look at; nevents 0: all */
    int nevents;
    FILE *csv; /* or NULL */
    bool json;
} event_options;
int predict_events(const event_options *o, const ts_dataset *d, ts_loader *l);

/* train_plots.c: predicted against true; TS_OK or the library's error */
int draw_numbers(const char *path, const char *title, const ts_dataset *d,
                 const net_result *result);

/* What the net takes a pixel for, of one sample: places classes. */
void net_classes(const net *n, const float *scores, int32_t *out);

/* --- measure.c --- */

/* Intersection over union: of what is class c or was taken for it, what is both. NaN: there is
 * none. counts: n x n as in net_result. */
double iou_of(const int64_t *counts, int n, int c);
double mean_iou_of(const int64_t *counts, int n, int first); /* of the classes from `first` on */
double nonzero_of(const int64_t *counts, int n); /* accuracy of what is not of class 0 */

int measure(net_result *r, const float *targets); /* numbers and labels: from r->predicted */
const char *metric_name(task t); /* "accuracy", "rmse", "mean_iou": what a run is judged by */
double metric_of(const net_result *r);
const char *metric_text(task t, double v, char *out, size_t size); /* "accuracy 91.20 %" */

#endif

/* train.h - what the parts of `tessera train` share.
 *
 *   train.c      options, what is usual for the data, the order of things. Start there.
 *   setup.c      data, model, executable, engine, loader
 *   adapt.c      the description as the line and the data want it; weights to begin with
 *   augment.c    images changed at random
 *   rate.c       the learning rate over a run
 *   best.c       the validation set, the best weights, averaged weights
 *   loop.c       epochs and calls of the engine; when to write what
 *   progress.c   how far a run is, as numbers that a checkpoint can keep
 *   keep.c       the result and the checkpoint, as files; resuming
 *   optim.c      what the optimizer keeps, in PyTorch's layout
 *   train_report.c, train_plots.c   what people see: text, JSON, CSV, TensorBoard, pictures
 *   stop.c       Ctrl-C
 *   ranks.c      several processes
 */
#ifndef TRAIN_H
#define TRAIN_H

#include "net.h"
#include <limits.h>

/* --- what was asked for: the command line, then what is usual for the data (train.c) --- */

typedef struct train_args {
    const char *data, *folder, *model, *output, *logdir, *csv, *plots, *crop, *validate, *schedule,
        *loss, *class_weights, *precision, *weights, *freeze, *augment, *profile;
    int64_t patience, lr_every, profile_calls;
    double warmup, lr_gamma, clip, smoothing, ema;
    int64_t epochs, batch, threads, seed, limit, every;
    bool resume, overwrite, no_plots, grayscale, quiet, json, check_numbers;
} train_args;
extern train_args asked; /* the optimizer's options are in `chosen` */

/* --- progress.c --- */

typedef struct epoch_row {
    double loss, accuracy, seconds, rate; /* accuracy of 1; rate: samples a second */
    double val_loss, val_metric;          /* of the validation set; NaN: none */
} epoch_row;

enum { CURVE_POINTS = 2048 };
typedef struct curve { /* the loss over the whole run, in means of so many calls */
    double points[CURVE_POINTS];
    int64_t n, stride, pending;
    double sum;
} curve;

typedef struct pixel_progress { /* of nets that classify pixels */
    int classes;                /* 0: this one does not */
    int64_t *now; /* of this epoch so far: [i * classes + j] of class i taken for j  */
    double *rows; /* of each epoch: accuracy of what is not class 0, IoU of each class */
} pixel_progress;

typedef struct progress {
    int64_t epoch, call;  /* epochs done; calls done of the one that runs          */
    int64_t updates;      /* of the weights, since the beginning                    */
    double loss, seconds; /* of this epoch so far: the sum over batches; the time  */
    int64_t batches, right;
    epoch_row *rows; /* one for each epoch done */
    curve curve;
    pixel_progress pixels;
} progress;

/* One more call: the sum of the losses of `batches`, of which `right` samples were. */
void progress_call(progress *p, double loss, int64_t batches, int64_t right, int64_t updates);
double progress_loss(const progress *p); /* mean of this epoch so far; NaN before the first call */
/* Ends one of so many samples, each right or wrong in `answers` ways; false: no memory. */
bool progress_epoch(progress *p, int64_t samples, int64_t answers);
/* Room for confusions of so many classes; false: no memory. */
bool progress_pixels(progress *p, int classes);
void progress_count(progress *p, const double *confusions); /* one call's, added */
double progress_nonzero(const progress *p, int64_t epoch);
double progress_iou(const progress *p, int64_t epoch, int class);
double progress_mean_iou(const progress *p, int64_t epoch); /* of all classes that there were */
ts_object *progress_object(const progress *p);              /* as a dict, or NULL */
bool progress_read(progress *p, const ts_object *o);        /* false: it is none */
void progress_free(progress *p);

/* --- a run --- */

typedef struct run {
    char output[PATH_MAX], resume[PATH_MAX], plots[PATH_MAX]; /* plots: "" for none */
    ts_optimizer optimizer;
    ts_model *model;
    ts_dataset *data, *test, *valid; /* NULL: there is none */
    char *source;                    /* the description before it was adapted */
    ts_object *start;                /* --weights */
    ts_object *best, *average;       /* weights: of the best epoch, over the run; or NULL */
    net *judge;                      /* for the validation set, once made */
    double learning;                 /* the learning rate that the engine has */
    recipe recipe;
    ts_array sample; /* the shape of one */
    int classes;
    ts_graph *graph;
    ts_executable *exe;
    ts_engine *engine;
    ts_loader *loader;
    int64_t rows, calls; /* samples of one call; calls of an epoch */
    int64_t scores;      /* of one sample, at each place */
    int64_t places;      /* of a sample that are learned: 1; of a text its tokens */
    void *outputs[2];    /* scores and losses of one call */
    double *confusions;  /* pixels: those of one call, scores x scores */
    progress done;
    ts_csv *csv;
    ts_events *events;
    double metric;      /* in the end: accuracy, of 1, or RMSE */
    net_result result;  /* of the set it was measured on */
    bool feeds_targets; /* the loss compares with numbers, not with classes */
    bool plotted;
    int lock;     /* of the output; 0 or -1: none */
    int64_t hash; /* of the data */
} run;

/* setup.c */
/* The shape of a sample of the data, and whether its labels are of pixels. */
int peek(run *r, int64_t limit, ts_array *sample, bool *pixels);
int open_data(run *r);
int make_engine(run *r);
void release_engine(run *r);
int make_loader(run *r); /* at where r->done is */
int64_t usual_iterations(int64_t batches, int64_t most);

/* adapt.c */
int adapt_model(run *r); /* the description as the line and the data want it */
int open_weights(run *r);
int take_weights(run *r); /* into the engine */

/* rate.c */
double rate_at(const run *r, int64_t updates);
ts_status set_rate(run *r, int64_t updates); /* for the next call */

/* best.c */
int average_weights(run *r);           /* after each call */
ts_object *model_states(const run *r); /* those that count: averaged ones, if any; or NULL */
int judge(run *r, const ts_object *states, const ts_dataset *d, const char *label, net_result *out);
int validate(run *r);                  /* after each epoch, before it is reported */
int64_t best_epoch(const progress *p); /* from 0; -1: there was no validation */
bool is_patience_out(const run *r);
int hold_out(run *r, double fraction);

/* augment.c */
int read_augment(void);
const ts_augment *augmentation(void); /* NULL: none */
bool is_mixed(void);                  /* --augment mixup: targets are soft */

/* loop.c */
int train(run *r); /* TOOL_OK, TOOL_FAILED, or 128 + the signal that stopped it */

/* keep.c */
/* What the files are to say is text, which is UTF-8; found out before the first epoch. */
int check_texts(void);
int keep_run(const run *r);                  /* the checkpoint */
int keep_result(run *r, ts_object **states); /* the state dict with its metadata */
/* Reads the checkpoint: options that the line does not give become those of that run. */
int resume_options(run *r, ts_object **file);
int resume_run(run *r, const ts_object *file); /* engine and progress */
int claim_output(run *r); /* from other runs, and from models that are finished */
void release_output(run *r);
int set_aside(const run *r); /* a checkpoint of another run that is not finished */
int64_t data_hash(const ts_dataset *d);

/* optim.c */
ts_object *optimizer_object(const run *r); /* {'state': ..., 'param_groups': [...]}, or NULL */
/* Where a state of the engine is in that; NULL: it is none of the optimizer's, or not there. */
const ts_array *optimizer_state(const run *r, const ts_object *o, const char *name);
bool is_optimizer_state(const run *r, const char *name);
ts_object *engine_tensor(const run *r, const char *name); /* or NULL */
ts_object *engine_states(const run *r);                   /* the model's weights, or NULL */
const ts_tensor_info *find_tensor(const run *r, const char *name); /* a state, or NULL */

/* train_report.c */
int open_logs(run *r);
int close_logs(run *r);
void say(const char *fmt, ...) PRINTF(1, 2); /* a line for people: not with --json or --quiet */
void report_start(const run *r, bool resumed);
int report_call(run *r, double loss);
int report_epoch(run *r); /* the last of r->done.rows */
void report_checkpoint(const run *r);
void report_end(const run *r);
void report_stopped(const run *r, int signal);

/* train_plots.c */
int plot_begin(run *r);
int plot_end(run *r, const ts_dataset *d, const net_result *result);

/* stop.c */
void stop_catch(void);
int stop_signal(void); /* the one that came, or 0 */
void stop_release(void);

/* ranks.c */
int ranks_open(void); /* before all else; only the first process talks and writes files */
void ranks_close(void);
const ts_comm *ranks(void); /* NULL: this process is alone */
int rank_count(void);
bool is_first(void);
/* After each call: the sums over all processes, and whether one of them was asked to stop. */
int ranks_total(double *loss, int64_t *right);
int ranks_sum(double *x, int64_t n);                /* the same of others */
int ranks_stop(void);                               /* the signal that all of them stop on, or 0 */
int ranks_wait(void);                               /* for the slowest */
int ranks_load(const char *path, ts_object **file); /* the first one's file, in all of them */
int resume_processes(const run *r, const ts_object *own);

/* event.c: JSON, one object a line on stdout. (Names like json_real are taken: a library of the
 * library has them.) */
void event_begin(const char *event);
void event_text(const char *key, const char *value); /* NULL: null */
void event_int(const char *key, int64_t value);
void event_real(const char *key, double value);
void event_end(void);

double now(void); /* seconds, monotonic */

#endif

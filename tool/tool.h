/* tool.h - what the commands of `tessera` share. They know tessera.h and nothing else of the
 * library.
 *
 * A command is a row: name, summary, options, function. Its options are a table that says
 * everything about each of them once; parsing (options.c), --help (help.c) and shell completion
 * (complete.c) read the same table.
 */
#ifndef TOOL_H
#define TOOL_H

#include "tessera.h"
#include "tessera/cache.h"
#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/export.h"
#include "tessera/model.h"
#include "tessera/plan.h"
#include "tessera/show.h"
#include "tessera/store.h"
#include <stdio.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 }; /* and 128 + the signal that ended it */

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

typedef enum kind {
    KIND_FLAG,   /* bool           --training              */
    KIND_SWITCH, /* bool           --numa-aware, --numa-aware=no */
    KIND_INT,    /* int64_t        --batch-size 16         */
    KIND_REAL,   /* double         --lr 0.01               */
    KIND_TEXT,   /* const char *   --output FILE           */
    KIND_WORD,   /* const char *   --optimizer sgd         */
    KIND_WORDS,  /* words          IMAGE ...               */
    KIND_GROUP,  /* const option * the options of a table  */
    KIND_TITLE,  /* what the options that follow are about, for --help */
} kind;
/* For completion. A model and a dataset are a name or a file. */
typedef enum takes { TAKES_ANY, TAKES_FILE, TAKES_FOLDER, TAKES_MODEL, TAKES_DATA } takes;

typedef struct words {
    char **word;
    int count;
} words;

typedef struct option {
    const char *name;  /* "batch-size"; of an argument without dashes, "MODEL" */
    const char *value; /* "N"; NULL for flags and arguments                    */
    kind kind;
    void *target; /* of the kind's type; what it holds before is the default */
    const char *help;
    double low, high;   /* INT, REAL */
    const char *choice; /* WORD: "sgd adam" */
    takes takes;
    bool argument, needed;
    char letter;    /* -l is the same; 0 for none */
    const char *of; /* the field of ts_options that it sets. Its help, what it can be and what it is
                       usually are those of the library's table, where they are not given here */
    bool varies;    /* when it is not given, the command chooses: no default is shown */
} option;

typedef struct command {
    const char *name, *summary;
    const option *options; /* ends with a NULL name; NULL for none */
    int (*run)(void);
    const char *more;     /* for --help: what else is to say, or NULL       */
    const char *examples; /* one a line, without "tessera", or NULL         */
    bool hidden;
    bool only_words; /* after the first argument there are no options */
} command;

/* main.c */
extern const command *const commands[]; /* ends with NULL */
extern words command_line;              /* what follows "tessera" */
const command *find_command(const char *name);
int unknown_command(const char *name);

/* options.c */
int parse(const command *c, int argc, char **argv); /* TOOL_OK, or what to exit with */
/* The i-th option, those of groups among them; NULL past the last. */
const option *option_at(const command *c, int i);
const option *find_option(const command *c, const char *name); /* or NULL */
bool given(const void *target); /* did the command line give this option a value? */
/* The value an option has as text, and back; text that is set must stay. */
const char *option_text(const option *o, char *out, size_t size);
/* As if the line had given it: checked, and an error says what is wrong. The text must stay. */
int option_read(const command *c, const option *o, char *text);
void option_set(const option *o, const char *text);
/* Fills in what the library's table says of the rows that set a field of ts_options. */
void follow_library(option *table);
/* The fields of opt that the rows of a table set, as the line says. */
int fill_options(const char *command, const option *table, ts_options *opt);
int usage_error(const char *command, const char *fmt, ...) PRINTF(2, 3); /* TOOL_USAGE */

/* help.c */
void help(const command *c); /* NULL: of the whole tool */

/* report.c: what commands print */
int failed(void); /* the library's last error; TOOL_FAILED */
int failure(const char *fmt, ...) PRINTF(1, 2);
/* An error in four parts as the library's are; at, doing and hint may be NULL. */
int explain(ts_status code, const char *at, const char *doing, const char *hint, const char *fmt,
            ...) PRINTF(5, 6);
/* The text with '?' for what a terminal would obey. */
const char *printable(const char *s, char *out, size_t size);
const char *bytes_text(int64_t bytes, char *out, size_t size);                 /* 1.5 MiB */
const char *shape_text(int rank, const int64_t *dims, char *out, size_t size); /* 16x10 */
int finish_output(int code); /* code, or TOOL_FAILED when what was printed got lost */

/* training.c: options of every command that makes a training step */
extern option training_options[];
typedef struct training {
    const char *optimizer;
    double lr, momentum, weight_decay, beta1, beta2; /* the last three -1: the optimizer's own */
    int64_t iterations, accumulation;
} training;
extern training chosen; /* what the line says, or the usual */
ts_optimizer chosen_optimizer(void);
int check_optimizer(const char *command); /* does it have all that the line gives? */
ts_options chosen_options(void);          /* device iterations and gradient accumulation */

/* place.c: options of every command that puts a net on devices, and those of training steps there */
extern option place_options[], place_training_options[];
typedef struct placing {
    const char *stages, *schedule, *offload, *device, *memory;
    int64_t devices, replicas, queue, shard_least;
    bool recompute, separate, shard;
} placing;
extern placing placed;
ts_device_kind placed_gpu(void); /* what the line names to compute with: a GPU, or the processor */
/* Adds to opt what the line says of devices; the stages are compared with the model's blocks. */
int place(const char *command, const ts_model *m, const ts_model_options *o, ts_options *opt);

/* training.c: a model as a graph, and how the line wants it compiled; what a command sets itself it
 * sets in opt before it compiles. Must not move: opt points into it. */
typedef struct step {
    ts_model *model;
    ts_graph *graph;
    ts_optimizer optimizer;
    ts_options opt;
} step;
int step_open(const char *command, const char *model, const ts_model_options *how, step *out);
void step_close(step *s);

/* plots.c: the options of every command that draws */
extern const option plot_options[];
bool plots_wanted(void);
/* As mkdir -p; `of` says whose folder it is. */
int make_folder(const char *path, const char *of, const char *hint);
#define PLOTS_HINT "--plots DIR chooses another folder, --no-plots none"
int plot_path(const char *name, char *out, size_t size); /* in the folder, which is made */
/* Reports a picture that failed. A library that draws none is no failure unless --plots is given;
 * then plots are not wanted any more. */
int plot_done(ts_status s);

/* config.c: files of options, a line each; those that the line has given stay as they are */
int config_import(const command *c, const char *path);
/* What was given, but for those of the names in `skip`, which NULL ends. */
int config_export(const command *c, const char *path, bool overwrite, const char *const *skip);

/* quote.c: as JSON, to stdout; and words */
void json_quote(const char *text);
void json_text(const char *key, const char *text); /* "key": "text", or null */
void json_sizes(const char *key, int rank, const int64_t *dims);
int utf8_letter(const unsigned char *s); /* its bytes; 0: it is none */
void escape_name(FILE *f, const char *name);
void unescape_name(char *s);
void json_value(double x);                         /* null when it is no number */
int base_name(const char *path, const char **out); /* dir/shoe.jpg -> shoe: where, and how long */
void csv_field(FILE *f, const char *s);
void shell_quote(FILE *f, const char *word); /* as a shell needs it */

extern const command report_command;
extern const command cache_command, compile_command, completion_command, data_command,
    devices_command, eval_command, export_command, gc_monitor_command, generate_command,
    help_command, inspect_command, models_command, monitor_command, plan_command, profile_command,
    predict_command, run_command, train_command;

#endif

/* eval.c - tessera eval: how good the model of a checkpoint is on a dataset. */
#include "net.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *file, *data, *dir, *model;
    int64_t batch, iterations, limit, threads;
    bool quiet, json;
} args = {.batch = 32};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "the checkpoint: .pth, .safetensors or .npz",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"data", "NAME|PATH", KIND_TEXT, &args.data,
     "the dataset, when not the one that the model was trained on: mnist, fashion-mnist, a folder "
     "or a file",
     .takes = TAKES_DATA},
    {"data-dir", "DIR", KIND_TEXT, &args.dir, "where the files of mnist or fashion-mnist are",
     .takes = TAKES_FOLDER},
    {"model", "NAME|FILE", KIND_TEXT, &args.model,
     "the model of the weights, when the checkpoint does not say", .takes = TAKES_MODEL},
    {"batch-size", "N", KIND_INT, &args.batch, "samples in a batch", .low = 1, .high = 1 << 20},
    {"device-iterations", "N", KIND_INT, &args.iterations,
     "batches of one call; when not given, 16 in a pipeline, which overlaps them, and else 1",
     .low = 1, .high = 1 << 20},
    {"limit", "N", KIND_INT, &args.limit, "use only the first N samples", .low = 1,
     .high = INT32_MAX},
    {"threads", "N", KIND_INT, &args.threads, "threads to compute with", .low = 1, .high = 1024},
    {.name = "images, and how numbers are normalised",
     .kind = KIND_GROUP,
     .target = (void *)recipe_options},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)table_options},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "plots", .kind = KIND_GROUP, .target = (void *)plot_options},
    {"quiet", NULL, KIND_FLAG, &args.quiet, .help = "no bars and no table: the accuracy only"},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

typedef struct evaluation {
    weights w;
    net n;
    ts_dataset *d;
    const char *data;
    bool trained; /* it is the training set: there is no other */
    net_result r;
    const char **names;     /* of the classes */
    char (*shown)[128];     /* those that the file does not name */
    char picture[PATH_MAX]; /* or "" */
    int drawn;              /* what became of it */
} evaluation;

/* --- the data --- */

static int open_data(evaluation *e)
{
    e->data = args.data ? args.data : e->w.data;
    if (!e->data)
        return explain(TS_ERR_ARG, args.file, "looking for the data to evaluate with",
                       "name it: --data mnist, --data fashion-mnist or --data PATH",
                       "%s does not say which data it was trained on", args.file);
    return dataset_open(&(dataset_options){.name = e->data,
                                           .dir = args.dir,
                                           .split = TS_SPLIT_TEST,
                                           .limit = args.limit,
                                           .recipe = &e->w.recipe,
                                           .quiet = args.quiet,
                                           .other = &e->trained},
                        &e->d);
}

/* A file of another program does not say what its net does: labels of pixels do. */
static void settle_task(evaluation *e)
{
    int64_t dims[TS_MAX_RANK];

    if (e->w.recipe.task == TASK_CLASSES && ts_dataset_label_shape(e->d, dims))
        e->w.recipe.task = TASK_PIXELS;
}

static int make_net(evaluation *e)
{
    settle_task(e);
    return net_from_weights(
        &e->w,
        &(net_options){.command = "eval",
                       .batch = e->w.recipe.task == TASK_PIXELS && !given(&args.batch)
                                    ? 1 /* pictures may be large */
                                    : args.batch,
                       .iterations = (int)args.iterations,
                       .threads = (int)args.threads,
                       .quiet = args.quiet},
        &e->n);
}

static bool is_number(const char *s)
{
    return *s && !s[strspn(s, "0123456789")];
}

/* A folder without one of the classes would shift the others: names are compared where both have
 * some. Labels that are numbers may leave out the last ones. */
static int check_classes(evaluation *e)
{
    int n = ts_dataset_classes(e->d), compared = 0;

    if (e->w.recipe.task != TASK_CLASSES && e->w.recipe.task != TASK_PIXELS)
        return TOOL_OK;
    for (int i = 0; i < n && i < e->n.classes; i++) {
        const char *ours = weights_class(&e->w, e->n.classes, i);
        const char *theirs = ts_dataset_class_name(e->d, i);
        compared += ours || is_number(theirs);
        if (ours && !is_number(theirs) && strcmp(ours, theirs))
            return explain(TS_ERR_ARG, e->data, "comparing the classes",
                           "evaluate with data of the same classes",
                           "class %d is '%s' for the model and '%s' in the data", i, ours, theirs);
    }
    if (n < e->n.classes && compared < n)
        return explain(TS_ERR_SHAPE, e->data, "comparing the classes",
                       "evaluate with data of the same classes",
                       "the net tells %" PRId64 " classes apart, the data has %d", e->n.classes, n);
    return TOOL_OK;
}

static int name_classes(evaluation *e)
{
    int n = (int)e->n.classes;

    weights_tidy_names(&e->w);
    e->names = calloc((size_t)n, sizeof(*e->names));
    e->shown = calloc((size_t)n, sizeof(*e->shown));
    if (!e->names || !e->shown)
        return failure("out of memory for the names of %d classes", n);
    for (int i = 0; i < n; i++) {
        const char *name = weights_class(&e->w, n, i);
        const char *of_data = ts_dataset_class_name(e->d, i);
        snprintf(e->shown[i], sizeof(e->shown[i]), "%d", i);
        if (of_data)
            printable(of_data, e->shown[i], sizeof(e->shown[i]));
        e->names[i] = name ? name : e->shown[i];
    }
    return TOOL_OK;
}

static int evaluate(evaluation *e)
{
    ts_array sample;

    if (ts_dataset_sample(e->d, 0, &sample))
        return failed();
    recipe_settle(&e->w.recipe, e->data, sample.dtype, args.quiet || args.json);
    return net_evaluate(&e->n, e->d, &e->w.recipe, args.quiet ? NULL : "Evaluating", &e->r);
}

/* --- what is said of a class --- */

typedef struct quality {
    int64_t count, taken, right; /* of the class; taken for it; both */
    double precision, recall, f1, iou;
} quality;

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* How many of class i were taken for class j. */
static int64_t confused(const net_result *r, int i, int j)
{
    return r->counts[(int64_t)i * r->classes + j];
}

static quality class_quality(const net_result *r, int class)
{
    quality q = {.right = confused(r, class, class)};

    for (int i = 0; i < r->classes; i++) {
        q.count += confused(r, class, i);
        q.taken += confused(r, i, class);
    }
    q.precision = ratio((double)q.right, (double)q.taken);
    q.recall = ratio((double)q.right, (double)q.count);
    q.f1 = ratio(2 * q.precision * q.recall, q.precision + q.recall);
    q.iou = iou_of(r->counts, r->classes, class);
    return q;
}

/* The plain mean over the classes that there are samples of. */
static quality mean_quality(const net_result *r)
{
    quality mean = {.right = r->right, .iou = mean_iou_of(r->counts, r->classes, 0)};
    int n = 0;

    for (int i = 0; i < r->classes; i++) {
        quality q = class_quality(r, i);
        mean.count += q.count;
        if (!q.count)
            continue;
        mean.precision += q.precision;
        mean.recall += q.recall;
        mean.f1 += q.f1;
        n++;
    }
    mean.precision = ratio(mean.precision, n);
    mean.recall = ratio(mean.recall, n);
    mean.f1 = ratio(mean.f1, n);
    return mean;
}

/* --- text --- */

enum { COLUMNS = 6, CELL = 32 };

typedef struct table {
    const char **cells;
    char (*numbers)[CELL]; /* what the cells point to, but for the names */
    size_t columns;        /* IoU is said of pixels only */
} table;

static void fill_row(table *t, int row, const char *name, quality q)
{
    const char **cells = t->cells + (size_t)row * t->columns;
    char(*numbers)[CELL] = t->numbers + (size_t)row * COLUMNS;

    snprintf(numbers[1], CELL, "%.3f", q.precision);
    snprintf(numbers[2], CELL, "%.3f", q.recall);
    snprintf(numbers[3], CELL, "%.3f", q.f1);
    snprintf(numbers[4], CELL, "%" PRId64, q.count);
    if (isfinite(q.iou))
        snprintf(numbers[5], CELL, "%.4f", q.iou);
    cells[0] = name;
    for (size_t i = 1; i < t->columns; i++)
        cells[i] = numbers[i];
}

static char *table_text(const evaluation *e, table *t)
{
    static const char *const head[COLUMNS] = {"class", "precision", "recall", "f1", "count", "iou"};
    int n = e->r.classes;

    t->columns = e->r.task == TASK_PIXELS ? COLUMNS : COLUMNS - 1;
    memcpy(t->cells, head, sizeof(*head) * t->columns);
    for (int i = 0; i < n; i++)
        fill_row(t, i + 1, e->names[i], class_quality(&e->r, i));
    fill_row(t, n + 1, "mean", mean_quality(&e->r));
    return ts_table_text(t->cells, n + 2, (int)t->columns);
}

static int print_table(const evaluation *e)
{
    size_t cells = ((size_t)e->r.classes + 2) * COLUMNS;
    table t = {calloc(cells, sizeof(*t.cells)), calloc(cells, sizeof(*t.numbers)), 0};
    char *text = t.cells && t.numbers ? table_text(e, &t) : NULL;
    int code = text ? TOOL_OK : failure("out of memory for the table");

    if (text)
        printf("\n%s", text);
    free(text);
    free(t.cells);
    free(t.numbers);
    return code;
}

static void print_result(const evaluation *e)
{
    const net_result *r = &e->r;

    if (r->task == TASK_NUMBERS) {
        printf("%-10s %.6g\n%-10s %.6g\n%-10s %.4f\n", "rmse", r->rmse, "mae", r->mae, "r2", r->r2);
        return;
    }
    if (r->task == TASK_LABELS)
        printf("%-10s %.2f%%\n%-10s %.4f\n%-10s %.4f\n", "accuracy", 100 * r->accuracy, "f1", r->f1,
               "auc", r->auc);
    else if (r->task == TASK_PIXELS)
        printf("%-10s %.2f%%\n%-10s %.2f%%\n%-10s %.4f\n%-10s %.4f\n", "accuracy",
               100 * r->accuracy, "non-bg acc", 100 * r->nonzero, "mean iou", r->mean_iou,
               "nonzero", r->mean_iou_nonzero);
    else if (r->task == TASK_TEXT)
        printf("%-10s %.2f%%\n%-10s %.4g\n", "accuracy", 100 * r->accuracy, "perplexity",
               exp(r->loss));
    else
        printf("%-10s %.2f%%  (%" PRId64 " of %" PRId64 ")\n", "accuracy", 100 * r->accuracy,
               r->right, r->count);
}

static int print_text(const evaluation *e)
{
    char shape[128];
    int code = TOOL_OK;

    if (!args.quiet) {
        printf("%-10s %s (%s)\n", "model", e->n.name, args.file);
        printf("%-10s %s: %" PRId64 " samples of %s\n", "data", e->data, e->r.count,
               shape_text(e->n.rank, e->n.dims, shape, sizeof(shape)));
    }
    print_result(e);
    if (args.quiet)
        return TOOL_OK;
    if (isfinite(e->r.loss))
        printf("%-10s %.4f\n", "loss", e->r.loss);
    code = e->r.counts ? print_table(e) : TOOL_OK;
    if (!code && e->picture[0])
        printf("\nwritten    %s\n", e->picture);
    return code;
}

/* --- JSON --- */

static void json_class(const evaluation *e, int i)
{
    quality q = class_quality(&e->r, i);

    printf("%s\n    {\"class\": ", i ? "," : "");
    json_quote(e->names[i]);
    printf(", \"precision\": ");
    json_value(q.precision);
    printf(", \"recall\": ");
    json_value(q.recall);
    printf(", \"f1\": ");
    json_value(q.f1);
    if (e->r.task == TASK_PIXELS) {
        printf(", \"iou\": ");
        json_value(q.iou);
    }
    printf(", \"count\": %" PRId64 "}", q.count);
}

static void json_confusion(const net_result *r)
{
    printf("],\n  \"confusion\": [");
    for (int i = 0; i < r->classes; i++) {
        printf("%s\n    [", i ? "," : "");
        for (int j = 0; j < r->classes; j++)
            printf("%s%" PRId64, j ? ", " : "", confused(r, i, j));
        printf("]");
    }
    printf("]");
}

static void json_field(const char *name, double v)
{
    printf(",\n  \"%s\": ", name);
    json_value(v);
}

static void print_json(const evaluation *e)
{
    printf("{\n  \"file\": ");
    json_quote(args.file);
    printf(",\n  \"model\": ");
    json_quote(e->n.name);
    printf(",\n  \"data\": ");
    json_quote(e->data);
    printf(",\n  \"task\": \"%s\",\n  \"samples\": %" PRId64, task_names[e->r.task], e->r.count);
    json_field("loss", e->r.loss);
    if (e->r.task == TASK_NUMBERS) {
        json_field("rmse", e->r.rmse);
        json_field("mae", e->r.mae);
        json_field("r2", e->r.r2);
    } else {
        printf(",\n  \"right\": %" PRId64, e->r.right);
        json_field("accuracy", e->r.accuracy);
    }
    if (e->r.task == TASK_TEXT)
        json_field("perplexity", exp(e->r.loss));
    if (e->r.task == TASK_PIXELS) {
        json_field("nonzero_accuracy", e->r.nonzero);
        json_field("mean_iou", e->r.mean_iou);
        json_field("mean_iou_nonzero", e->r.mean_iou_nonzero);
    }
    if (e->r.task == TASK_LABELS) {
        json_field("f1", e->r.f1);
        json_field("auc", e->r.auc);
    }
    if (e->r.counts) {
        printf(",\n  \"classes\": [");
        for (int i = 0; i < e->r.classes; i++)
            json_class(e, i);
        json_confusion(&e->r);
    }
    if (e->picture[0]) {
        printf(",\n  \"plot\": ");
        json_quote(e->picture);
    }
    printf("\n}\n");
}

/* --- all --- */

/* Data without a name may not be divided: then what is seen is all of it. */
static const char *set_of(const evaluation *e)
{
    return e->trained                  ? "the training set of "
           : dataset_has_name(e->data) ? "the test set of "
                                       : "";
}

static int draw_it(evaluation *e)
{
    enum { MOST = 1000 }; /* classes that fit in a picture */
    char title[256];
    int code;

    if (!plots_wanted() || e->r.classes > MOST || e->r.task == TASK_LABELS ||
        e->r.task == TASK_TEXT)
        return TOOL_OK;
    code = plot_path(e->r.task == TASK_NUMBERS ? "predicted.png" : "confusion_matrix.png",
                     e->picture, sizeof(e->picture));
    if (code)
        return code;
    snprintf(title, sizeof(title), "%.100s on %s%.100s", e->n.name, set_of(e), e->data);
    if (e->r.task == TASK_NUMBERS)
        return plot_done(draw_numbers(e->picture, title, e->d, &e->r));
    code = plot_done(ts_plot_confusion(e->picture, title, e->r.counts, e->names, e->r.classes));
    return code;
}

/* The result is printed whatever becomes of the picture. */
static int draw(evaluation *e)
{
    e->drawn = draw_it(e);
    if (e->drawn || !plots_wanted())
        e->picture[0] = 0;
    return TOOL_OK;
}

static int report(evaluation *e)
{
    if (!args.json)
        return print_text(e);
    print_json(e);
    return TOOL_OK;
}

static int run(void)
{
    evaluation e = {0};
    int (*const steps[])(evaluation *) = {open_data, make_net, check_classes, name_classes,
                                          evaluate,  draw,     report};
    int code = weights_open(args.file, args.model, &e.w);

    if (!code)
        code = recipe_override("eval", &e.w.recipe);
    for (int i = 0; !code && i < COUNT(steps); i++)
        code = steps[i](&e);
    code = code ? code : e.drawn;
    ts_dataset_free(e.d);
    net_result_free(&e.r);
    net_free(&e.n);
    weights_free(&e.w);
    free(e.names);
    free(e.shown);
    return code;
}

const command eval_command = {
    .name = "eval",
    .summary = "Measures how good the model of a checkpoint is: accuracy, classes, confusions",
    .options = options,
    .run = run,
    .more = "A checkpoint of 'tessera train' knows its model and its data. One that a PyTorch\n"
            "script wrote is taken for the model that has parameters of the same names and\n"
            "shapes. Samples are those of the test set where the data has one.",
    .examples = "eval net.pth\neval net.pth --data fashion-mnist --limit 1000 --plots plots\n"
                "eval net.safetensors --model net.txt --data digits/ --json\n"
                "eval net.pth --stages 'B1,B2|B3,B4' --device model\n",
};

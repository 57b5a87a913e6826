/* export.c - tessera export: the model of a checkpoint as C that needs no library.
 *
 *   DIR/NAME.h, NAME.c   the net, weights inside
 *   DIR/main.c           an example that runs a sample: of the dataset it was trained on when that
 *                        is at hand, else made-up numbers
 *   DIR/expected.txt     what it must print
 */
#include "net.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *file, *folder, *name, *model;
    int64_t batch;
    bool force, json;
    const char *quantize, *data;
    int64_t calibrate;
} args = {.batch = 1, .calibrate = 256};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "the checkpoint: .pth, .safetensors or .npz",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"c", "DIR", KIND_TEXT, &args.folder, "write C there; the folder is made if need be",
     .takes = TAKES_FOLDER},
    {"name", "NAME", KIND_TEXT, &args.name,
     .help = "what every name in the C begins with; the model's when not given"},
    {"model", "NAME|FILE", KIND_TEXT, &args.model,
     "the model of the weights, when the checkpoint does not say", .takes = TAKES_MODEL},
    {"batch", "N", KIND_INT, &args.batch, "samples that one call takes", .low = 1, .high = 1 << 16},
    {"force", NULL, KIND_FLAG, &args.force, .help = "replace files that are not ours"},
    {"quantize", "TYPE", KIND_WORD, &args.quantize,
     "int8: products of bytes by bytes, of weights with a scale for each channel and of what "
     "samples "
     "of the training set show; int8-weights: large weights only. How large, fast and good the C "
     "is "
     "is measured",
     .choice = "int8 int8-weights"},
    {"calibrate", "N", KIND_INT, &args.calibrate,
     "with --quantize int8: samples that say how large numbers in the net become", .low = 1,
     .high = 1 << 20},
    {"data", "NAME|PATH", KIND_TEXT, &args.data,
     "with --quantize: the data to calibrate and measure on, when not what it was trained on",
     .takes = TAKES_DATA},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

/* --- a sample of the dataset, if it is at hand --- */

typedef struct sample {
    float *data; /* a batch, or NULL: made-up numbers */
    char about[256];
} sample;

static int64_t sample_size(const weights *w)
{
    int64_t n = 1;

    for (int i = 0; i < w->recipe.rank; i++)
        n *= w->recipe.dims[i];
    return n;
}

static bool same_size(const weights *w, const ts_array *a)
{
    return a->rank && a->dims[0] == args.batch &&
           a->bytes / ts_dtype_size(a->dtype) == (size_t)(args.batch * sample_size(w));
}

static void take_sample(const weights *w, const ts_dataset *d, sample *out)
{
    ts_array all = ts_dataset_samples(d);
    ts_normalize view = normal_view(&w->recipe.normal);
    const char *class = ts_dataset_class_name(d, ts_dataset_labels(d)[0]);

    if (!same_size(w, &all))
        return;
    out->data = malloc(all.bytes / ts_dtype_size(all.dtype) * sizeof(float));
    if (!out->data || ts_to_tensor(&all, true, &view, out->data)) {
        free(out->data);
        out->data = NULL;
        return;
    }
    snprintf(out->about, sizeof(out->about),
             "main.c runs the first sample of %s's test set, of class %d%s%s%s.\n", w->data,
             ts_dataset_labels(d)[0], class ? " (" : "", class ? class : "", class ? ")" : "");
}

static void find_sample(const weights *w, sample *out)
{
    ts_dataset_options opt = {.name = w->data, .split = TS_SPLIT_TEST, .limit = args.batch};
    char path[PATH_MAX];
    ts_dataset *d;

    *out = (sample){.about = "main.c runs made-up numbers.\n"};
    if (!w->data || !dataset_has_name(w->data) || ts_dataset_find(&opt, path, sizeof(path)) ||
        !path[0])
        return;
    opt.dir = path;
    if (ts_dataset_load(&opt, &d))
        return;
    take_sample(w, d, out);
    ts_dataset_free(d);
}

/* --- what the header says --- */

static void put_layers(const weights *w, const ts_model_options *o, FILE *f)
{
    enum { COLUMNS = 4 };
    ts_model_layer *layers;
    const char **cells;
    char(*words)[2][128], *table;
    int n;

    if (ts_model_layers(w->model, o, &layers, &n))
        return;
    cells = calloc((size_t)(n + 1) * COLUMNS, sizeof(*cells));
    words = calloc((size_t)n + 1, sizeof(*words));
    if (cells && words) {
        memcpy(cells, (const char *[]){"layer", "kind", "result", "parameters"},
               COLUMNS * sizeof(*cells));
        for (int i = 0; i < n; i++) {
            const char **row = cells + (i + 1) * COLUMNS;
            snprintf(words[i][1], sizeof(words[i][1]), "%lld", (long long)layers[i].parameters);
            row[0] = layers[i].name;
            row[1] = layers[i].kind;
            row[2] = shape_text(layers[i].rank, layers[i].dims, words[i][0], sizeof(words[i][0]));
            row[3] = words[i][1];
        }
        table = ts_table_text(cells, n + 1, COLUMNS);
        fprintf(f, "\n%s", table ? table : "");
        free(table);
    }
    free(cells);
    free(words);
    free(layers);
}

static void put_classes(const weights *w, FILE *f)
{
    if (!w->names)
        return;
    fprintf(f, w->recipe.task == TASK_CLASSES ? "\nClasses:" : "\nResults:");
    for (int64_t i = 0; i < w->classes && i < w->nnames; i++)
        fprintf(f, "%s%s", i % 8 ? ", " : i ? ",\n  " : "\n  ", w->names[i]);
    fprintf(f, "\n");
}

/* --- how numbers become those of the net, and its numbers those of the data --- */

/* input[3] = colour is red, then (x - 0.2) / 0.4 */
static void put_feature(const weights *w, FILE *f, int64_t i, const char *name, const char *word)
{
    const normal *n = &w->recipe.normal;

    fprintf(f, "  [%lld] %s%s%s", (long long)i, name, word ? " is " : "", word ? word : "");
    if (word)
        fprintf(f, ": 1 or 0");
    if (i < n->n)
        fprintf(f, "; (x - %.9g) / %.9g", n->mean[i], n->deviation[i]);
    fputc('\n', f);
}

static void readable(char *name)
{
    unescape_name(name);
    printable(name, name, 0);
}

/* A line of tessera.columns: NAME<tab>KIND<tab>WORD... */
static void put_column(const weights *w, FILE *f, char *line, int64_t *at)
{
    char *name = strsep(&line, "\t"), *word;
    const char *kind = line ? strsep(&line, "\t") : "";

    readable(name);
    if (!strcmp(kind, "number"))
        put_feature(w, f, (*at)++, name, NULL);
    while (!strcmp(kind, "words") && line) {
        word = strsep(&line, "\t");
        readable(word);
        put_feature(w, f, (*at)++, name, word);
    }
}

static void put_columns(const weights *w, FILE *f)
{
    char *text = strdup(w->recipe.columns), *rest = text;
    int64_t at = 0;

    fprintf(f, "Input, of the columns of a table:\n");
    for (char *line; rest && *rest;) {
        line = strsep(&rest, "\n");
        put_column(w, f, line, &at);
    }
    free(text);
}

static void put_input(const weights *w, FILE *f)
{
    char *how = normal_text(&w->recipe.normal);

    if (w->recipe.columns)
        put_columns(w, f);
    else if (how && how[0] && (w->recipe.has_normal || w->data))
        fprintf(f, "Input: %s, then (x - mean) / deviation with %s.\n",
                w->recipe.rank == 3 ? "pixels from 0 to 1" : "numbers", how);
    free(how);
}

/* The net learned numbers of mean 0 and deviation 1. */
static void put_output(const weights *w, FILE *f)
{
    const normal *n = &w->recipe.targets;

    if (w->recipe.task == TASK_LABELS)
        fprintf(f, "Output: scores; a label is there where its score is above 0.\n");
    for (int i = 0; i < n->n; i++)
        fprintf(f, "Output [%d]%s%s is y * %.9g + %.9g.\n", i, i < w->nnames ? ", " : "",
                i < w->nnames ? w->names[i] : "", n->deviation[i], n->mean[i]);
}

static char *about(const weights *w, const ts_model_options *o, const sample *s)
{
    const char *slash = strrchr(args.file, '/');
    char *all = NULL;
    size_t size;
    FILE *f = open_memstream(&all, &size);

    if (!f)
        return NULL;
    fprintf(f, "The model '%s' with the weights of %s. %s", ts_model_name(w->model),
            slash ? slash + 1 : args.file, s->about);
    put_input(w, f);
    put_output(w, f);
    put_layers(w, o, f);
    put_classes(w, f);
    return fclose(f) ? NULL : all;
}

/* --- files --- */

static int write_files(const ts_c_files *c)
{
    int code = make_folder(args.folder, "the C files", "--c DIR chooses another");

    if (!code && ts_c_files_write(c, args.folder, args.force))
        code = failed();
    return code;
}

/* f32 and int8: what each is like. */
typedef struct quality {
    size_t bytes;   /* of constants                           */
    double seconds; /* of a run; 0: there is no compiler      */
    double metric;  /* of the test set, as what is shipped has it; NaN: the data is not at hand */
} quality;
static quality quantised[2] = {{.metric = NAN}, {.metric = NAN}};

static void json_quality(const char *type, const quality *q)
{
    printf(", \"%s\": {\"constant_bytes\": %zu, \"seconds\": ", type, q->bytes);
    json_value(q->seconds > 0 ? q->seconds : NAN);
    printf(", \"metric\": ");
    json_value(q->metric);
    printf("}");
}

static void report_json(const weights *w, const ts_c_files *c)
{
    printf("{");
    json_text("folder", args.folder);
    printf(", ");
    json_text("name", c->name);
    printf(", \"kernels\": %d, \"constant_bytes\": %zu, \"scratch_bytes\": %zu", c->kernels,
           c->constant_bytes, c->scratch_bytes);
    if (args.quantize) {
        printf(", \"int8_products\": %d, \"calibration_samples\": %lld, ", c->int8_products,
               (long long)(c->int8_products ? args.calibrate : 0));
        json_text("metric", metric_name(w->recipe.task));
        json_quality("f32", &quantised[0]);
        json_quality("int8", &quantised[1]);
    }
    printf("}\n");
}

static void report_quality(const weights *w, const ts_c_files *c)
{
    const quality *f32 = &quantised[0], *int8 = &quantised[1];
    char a[64], b[64];

    printf("%d products of bytes%s\n", c->int8_products,
           c->int8_products ? ", calibrated" : ": only weights are bytes");
    printf("%s of constants with f32, %s with int8\n",
           bytes_text((int64_t)f32->bytes, a, sizeof(a)),
           bytes_text((int64_t)int8->bytes, b, sizeof(b)));
    if (f32->seconds > 0 && int8->seconds > 0)
        printf("%.3g ms a run with f32, %.3g ms with int8\n", 1e3 * f32->seconds,
               1e3 * int8->seconds);
    if (f32->metric == f32->metric && int8->metric == int8->metric)
        printf("%s with f32, %s with int8\n",
               metric_text(w->recipe.task, f32->metric, a, sizeof(a)),
               metric_text(w->recipe.task, int8->metric, b, sizeof(b)));
}

static void report(const weights *w, const ts_c_files *c)
{
    char constants[32], scratch[32];

    if (args.json) {
        report_json(w, c);
        return;
    }
    if (args.quantize)
        report_quality(w, c);
    printf("%s/%s.c: %d kernels, %s of constants, %s of scratch memory\n", args.folder, c->name,
           c->kernels, bytes_text((int64_t)c->constant_bytes, constants, sizeof(constants)),
           bytes_text((int64_t)c->scratch_bytes, scratch, sizeof(scratch)));
    printf("cc -std=c99 -O3 %s/main.c %s/%s.c -lm -o %s/%s\n", args.folder, args.folder, c->name,
           args.folder, c->name);
}

/* --- samples to calibrate with --- */

typedef struct calibration {
    void *inputs[INPUTS]; /* f32 or i32 */
    int64_t batches;
} calibration;

static void free_calibration(calibration *c)
{
    for (int i = 0; i < INPUTS; i++)
        free(c->inputs[i]);
    *c = (calibration){0};
}

/* Integers of a net of one input are integers already; both are as large. */
static void keep_batch(const parts *p, const ts_batch *b, int64_t row, int64_t at, calibration *out)
{
    void *to[INPUTS];

    for (int i = 0; i < p->n; i++)
        to[i] = (float *)out->inputs[i] + at * args.batch * (p->n > 1 ? p->size[i] : row);
    if (p->n > 1)
        parts_split(p, args.batch, b->samples, to);
    else
        memcpy(to[0], b->samples, (size_t)(args.batch * row) * sizeof(float));
}

static bool take_batches(const weights *w, ts_loader *l, int64_t row, calibration *out)
{
    parts p = parts_of(w->model);
    ts_batch b;

    for (int i = 0; i < p.n; i++) {
        int64_t size = p.n > 1 ? p.size[i] : row;
        out->inputs[i] = calloc((size_t)(out->batches * args.batch * size), sizeof(float));
        if (!out->inputs[i])
            return false;
    }
    for (int64_t i = 0; i < out->batches; i++) {
        if (ts_loader_next(l, &b))
            return false;
        keep_batch(&p, &b, row, i, out);
    }
    return true;
}

static bool take_calibration(const weights *w, const ts_dataset *d, calibration *out)
{
    ts_loader_options o = {.batch = args.batch,
                           .shuffle = true,
                           .drop_last = true,
                           .normalize = normal_view(&w->recipe.normal)};
    int64_t row = sample_size(w);
    ts_loader *l = NULL;
    ts_array first;
    bool good;

    out->batches = ts_dataset_count(d) < args.calibrate ? ts_dataset_count(d) : args.calibrate;
    out->batches /= args.batch;
    good = out->batches && !ts_dataset_sample(d, 0, &first) &&
           first.bytes / ts_dtype_size(first.dtype) == (size_t)row && !ts_loader_new(d, &o, &l) &&
           take_batches(w, l, row, out);
    ts_loader_free(l);
    return good;
}

/* Some of the training set, at random. Without: what is multiplied stays f32. */
static void find_calibration(const weights *w, calibration *out)
{
    const char *data = args.data ? args.data : w->data;
    dataset_options how = {.name = data, .recipe = &w->recipe, .quiet = true};
    ts_dataset *d = NULL;

    *out = (calibration){0};
    if (data && !dataset_open(&how, &d) && take_calibration(w, d, out)) {
        ts_dataset_free(d);
        return;
    }
    fputs("tessera: only weights become bytes: there is no data to calibrate with; --data names "
          "it\n",
          stderr);
    ts_dataset_free(d);
    free_calibration(out);
}

/* --- all --- */

static ts_status make(const weights *w, bool int8, const calibration *c, ts_c_files *out)
{
    ts_model_options how = {.batch = args.batch,
                            .rank = w->recipe.inputs ? 0 : w->recipe.rank,
                            .dims = w->recipe.dims,
                            .classes = w->classes};
    ts_export_options opt = {.name = args.name,
                             .weights = w->states,
                             .int8 = int8,
                             .calibration = (const void *const *)c->inputs,
                             .calibrations = int8 ? c->batches : 0};
    ts_graph *g = NULL;
    sample s;
    ts_status status = ts_model_graph(w->model, &how, &g);
    char *text;

    if (status)
        return status;
    find_sample(w, &s);
    opt.about = text = about(w, &how, &s);
    opt.samples = s.data ? (const void *const[]){s.data} : NULL;
    status = ts_export_c(g, &opt, out);
    ts_graph_free(g);
    free(s.data);
    free(text);
    return status;
}

/* --- what bytes cost --- */

static void evaluate(const weights *w, net *n, const ts_dataset *d, quality *q)
{
    net_result r;

    if (net_evaluate(n, d, &w->recipe, NULL, &r))
        return;
    q->metric = metric_of(&r);
    net_result_free(&r);
}

/* How fast, and on the test set, unless d is NULL, how good. The engine is as good as C of f32, and
 * quicker. */
static void measure_c(const weights *w, const ts_c_files *c, net *n, const ts_dataset *d,
                      quality *q)
{
    bool int8 = q == &quantised[1];
    shipped s;

    q->bytes = c->constant_bytes;
    if (shipped_open(c, w->model, args.batch, &s)) {
        fprintf(stderr, "tessera: the C is not measured: %s\n", ts_last_error()->message);
    } else {
        q->seconds = shipped_seconds(&s, n->in, n->out);
        n->shipped = int8 ? &s : NULL;
        if (d)
            evaluate(w, n, d, q);
        n->shipped = NULL;
    }
    shipped_close(&s);
}

static int measure_quality(const weights *w, const ts_c_files *int8)
{
    const char *data = args.data ? args.data : w->data;
    dataset_options how = {
        .name = data, .split = TS_SPLIT_TEST, .recipe = &w->recipe, .quiet = true};
    ts_dataset *d = NULL;
    ts_c_files f32;
    net n = {0};
    int code = make(w, false, &(calibration){0}, &f32) ? failed() : TOOL_OK;

    if (code)
        return code;
    code = net_from_weights(w, &(net_options){.quiet = true, .batch = args.batch}, &n);
    if (!code && (!data || dataset_open(&how, &d)))
        fputs("tessera: how good the bytes are is not measured: the data is not at hand; --data "
              "names it\n",
              stderr);
    if (!code) {
        measure_c(w, &f32, &n, d, &quantised[0]);
        measure_c(w, int8, &n, d, &quantised[1]);
    }
    net_free(&n);
    ts_dataset_free(d);
    ts_c_files_free(&f32);
    return code;
}

static int export(const weights *w)
{
    bool bytes = args.quantize != NULL;
    calibration c = {0};
    ts_c_files files;
    int code;

    if (bytes && !strcmp(args.quantize, "int8"))
        find_calibration(w, &c);
    code = make(w, bytes, &c, &files) ? failed() : TOOL_OK;
    free_calibration(&c);
    if (code)
        return code;
    if (bytes)
        code = measure_quality(w, &files);
    if (!code)
        code = write_files(&files);
    if (!code)
        report(w, &files);
    ts_c_files_free(&files);
    return code;
}

static int run(void)
{
    weights w;
    int code;

    if (!args.folder || !args.folder[0])
        return usage_error("export", "--c DIR is missing: where to write the C");
    if (args.name && !strcmp(args.name, "main"))
        return usage_error("export", "--name cannot be main: main.c is the example");
    code = weights_open(args.file, args.model, &w);
    if (code)
        return code;
    weights_tidy_names(&w);
    recipe_settle(&w.recipe, w.data, TS_U8, true);
    code = export(&w);
    weights_free(&w);
    return code;
}

const command export_command = {
    .name = "export",
    .summary = "Writes a checkpoint's model as C that needs no library",
    .options = options,
    .run = run,
    .more =
        "The folder gets NAME.c and NAME.h, the net in C99 with its weights inside, no allocation\n"
        "and no dependency but libm; and an example, main.c, with what it must print.",
    .examples = "export net.pth --c out\n"
                "export net.safetensors --model net.txt --name digits --batch 4 --c out\n",
};

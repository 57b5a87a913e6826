/* recipe.c - what is done to data before a net sees it: how images are resized, how numbers are
 * normalised. A recipe comes from the options of a command, from a model's file, or is what is
 * usual; train writes it into the file, and eval, predict and export do the same again.
 *
 *   tessera.input       1 28 28                      the sizes of a sample
 *   tessera.resize      bilinear | bilinear 256      how; the shorter side first, then the middle
 *   tessera.normalize   0.5 0.5 | 0.4,0.5 0.2,0.3    means, then deviations: for all channels or each
 *   tessera.task        classes | numbers | labels   what is learned
 *   tessera.columns     ...                          of a table: what they are (data/csv.c)
 *   tessera.missing     mean | drop
 *   tessera.tokens      ...                          of a text: its vocabulary (data/text.c)
 *   tessera.targets     3.1 0.2                      numbers: how they were scaled
 *   tessera.downsample  2                            pictures: one pixel for a block of 2 x 2
 *   tessera.samples, .label, .separator              what --samples, --label, --separator said
 */
#include "net.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

recipe_args recipe_asked;

const option recipe_options[] = {
    {"resize", "SIZE", KIND_TEXT, &recipe_asked.resize,
     .help = "resize images: 28, or 28x32 (height x width), then perhaps bilinear or bicubic as in "
             "28,bicubic; for a net of another size, the shorter side, and the middle is taken"},
    {"mean", "X,...", KIND_TEXT, &recipe_asked.mean,
     .help = "what is subtracted of each number: one for all channels, or one for each; pixels are "
             "0 to 1"},
    {"std", "X,...", KIND_TEXT, &recipe_asked.std,
     .help = "what each number is divided by after that"},
    {"downsample", "N", KIND_INT, &recipe_asked.downsample,
     "make pictures N times smaller: a pixel for each block, the mean; labels of pixels the "
     "largest",
     .low = 1, .high = 1024},
    {0},
};

const option table_options[] = {
    {"label", "COLUMN,...", KIND_TEXT, &recipe_asked.label,
     .help = "what is learned of a table: a column's name or number (-1 is the last), or several; "
             "'label' or the last when not given. Of a .npy file, the file of its labels; of an "
             ".npz or HDF5 file, the array or product"},
    {"samples", "NAME", KIND_TEXT, &recipe_asked.samples,
     .help =
         "of an .npz or HDF5 file: the array or product of the samples, when not called x or the "
         "only one; several with commas for a net of several inputs, whose names are usual"},
    {"drop", "COLUMN,...", KIND_TEXT, &recipe_asked.drop, .help = "columns that are left out"},
    {"missing", "WHAT", KIND_WORD, &recipe_asked.missing,
     "what becomes of a value that is missing, which is an error when not given",
     .choice = "mean drop"},
    {"separator", "MARK", KIND_TEXT, &recipe_asked.separator,
     .help = "between the fields of a table, or 'tab'; found in its first line when not given"},
    {"task", "WHAT", KIND_WORD, &recipe_asked.task,
     "what is learned: one of some classes, numbers, or yes or no to each label; by the data when "
     "not given",
     .choice = "classes numbers labels"},
    {0},
};

const option text_options[] = {
    {"window", "N", KIND_INT, &recipe_asked.window, "tokens of a sample of text; 64 when not given",
     .low = 1, .high = 1 << 20},
    {"vocabulary", "N", KIND_INT, &recipe_asked.vocabulary,
     "byte pairs of a text that are tokens, with the 256 bytes; its characters when not given",
     .low = 257, .high = 8192},
    {0},
};

const char *const task_names[] = {"classes", "numbers", "labels", "text", "pixels"};

/* --- normal: means and deviations --- */

static bool normal_room(normal *n, int count)
{
    double *mean = realloc(n->mean, sizeof(*mean) * (size_t)count);
    double *deviation = mean ? realloc(n->deviation, sizeof(*mean) * (size_t)count) : NULL;

    n->mean = mean ? mean : n->mean;
    n->deviation = deviation ? deviation : n->deviation;
    return mean && deviation;
}

void normal_free(normal *n)
{
    free(n->mean);
    free(n->deviation);
    *n = (normal){0};
}

bool normal_set(normal *out, int n, const double *mean, const double *deviation)
{
    *out = (normal){0};
    if (!normal_room(out, n + 1))
        return false;
    out->n = n;
    memcpy(out->mean, mean, sizeof(*mean) * (size_t)n);
    memcpy(out->deviation, deviation, sizeof(*mean) * (size_t)n);
    return true;
}

/* The numbers of 0.5,0.4 up to a blank; 0 when it is not such a list. */
static int count_list(const char *s)
{
    int n = 1;

    for (; *s && *s != ' '; s++)
        n += *s == ',';
    return n;
}

/* 0.5,0.4 -> values; returns how many there are, 0 when it is not such a list. */
static int read_list(const char **text, double *values)
{
    const char *s = *text;
    char *end;
    int n = 0;

    for (;; s = end + 1) {
        if (!*s || strchr(" \t\n", *s))
            return 0;
        values[n] = strtod(s, &end);
        if (end == s || !isfinite(values[n++]))
            return 0;
        if (*end != ',')
            break;
    }
    *text = end;
    return n;
}

static bool read_normal(const char *text, normal *out)
{
    int deviations;

    out->n = read_list(&text, out->mean);
    text += strspn(text, " ");
    if (count_list(text) != out->n)
        return false;
    deviations = read_list(&text, out->deviation);
    for (int i = 0; i < deviations; i++)
        if (out->deviation[i] == 0)
            return false;
    return out->n && out->n == deviations && !text[strspn(text, " ")];
}

bool normal_read(const char *text, normal *out)
{
    *out = (normal){0};
    text += strspn(text, " ");
    if (!*text)
        return true;
    if (normal_room(out, count_list(text)) && read_normal(text, out))
        return true;
    normal_free(out);
    return false;
}

static void print_list(FILE *f, const double *values, int n)
{
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%.9g", i ? "," : "", values[i]);
}

char *normal_text(const normal *n)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    print_list(f, n->mean, n->n);
    if (n->n)
        fputc(' ', f);
    print_list(f, n->deviation, n->n);
    if (!fclose(f))
        return text;
    free(text);
    return NULL;
}

normal normal_usual(const char *data, ts_dtype dtype)
{
    bool digits = data && !strcmp(data, "mnist");
    normal out = {0};

    if (digits || dtype == TS_U8)
        (void)normal_set(&out, 1, (double[]){digits ? 0.1307 : 0.5},
                         (double[]){digits ? 0.3081 : 0.5});
    return out;
}

ts_normalize normal_view(const normal *n)
{
    return (ts_normalize){.mean = n->mean, .deviation = n->deviation, .n = n->n};
}

/* --- what the line says --- */

static bool read_side(const char **s, int *out)
{
    char *end;
    long v = **s >= '1' && **s <= '9' ? strtol(*s, &end, 10) : 0;

    if (v < 1 || v > 4096)
        return false;
    *out = (int)v;
    *s = end;
    return true;
}

static bool read_filter(const char *s, recipe *r)
{
    r->has_filter = true;
    r->filter = !strcmp(s, "bicubic") ? TS_FILTER_BICUBIC : TS_FILTER_BILINEAR;
    return !strcmp(s, "bicubic") || !strcmp(s, "bilinear");
}

/* "28", "28x32", "28,bicubic", "bicubic"; sizes stay 0 when there are none. */
static bool read_resize(const char *s, recipe *r, int *height, int *width)
{
    *height = *width = 0;
    if (*s < '0' || *s > '9')
        return read_filter(s, r);
    if (!read_side(&s, height))
        return false;
    *width = *height;
    if (*s == 'x' && (s++, !read_side(&s, width)))
        return false;
    return !*s || (*s == ',' && read_filter(s + 1, r));
}

int recipe_size(const char *command, recipe *r, int *height, int *width)
{
    *height = *width = 0;
    if (!recipe_asked.resize || read_resize(recipe_asked.resize, r, height, width))
        return TOOL_OK;
    return usage_error(command,
                       "--resize is '%s'; it must be like 28 or 28x32 or 28,bicubic, up to 4096",
                       recipe_asked.resize);
}

static int override_normal(const char *command, recipe *r)
{
    char *text = NULL;
    normal n;
    bool good;

    if (!recipe_asked.mean && !recipe_asked.std)
        return TOOL_OK;
    if (!recipe_asked.mean || !recipe_asked.std)
        return usage_error(command, "--mean and --std go together");
    good =
        asprintf(&text, "%s %s", recipe_asked.mean, recipe_asked.std) >= 0 && normal_read(text, &n);
    free(text);
    if (!good)
        return usage_error(command,
                           "--mean %s and --std %s make no sense: as many numbers as there are "
                           "channels, or one, and no deviation of 0",
                           recipe_asked.mean, recipe_asked.std);
    normal_free(&r->normal);
    r->normal = n;
    r->has_normal = true;
    return TOOL_OK;
}

int recipe_override(const char *command, recipe *r)
{
    int height, width, code = recipe_size(command, r, &height, &width);

    if (height)
        r->shorter = 0;
    if (!code && height &&
        (r->rank != 3 || height != (int)r->dims[1] || width != (int)r->dims[2])) {
        if (height != width)
            return usage_error(command,
                               "--resize %s: a net of another size needs one number, the "
                               "shorter side",
                               recipe_asked.resize);
        r->shorter = height;
    }
    return code ? code : override_normal(command, r);
}

void recipe_settle(recipe *r, const char *data, ts_dtype dtype, bool quiet)
{
    if (r->has_normal)
        return;
    normal_free(&r->normal);
    r->normal = normal_usual(data, dtype);
    if (!quiet && r->normal.n && !(data && dataset_has_name(data)))
        fprintf(stderr,
                "tessera: the file does not say how its images were normalised; mean %g and "
                "deviation %g are a guess, --mean and --std say otherwise\n",
                r->normal.mean[0], r->normal.deviation[0]);
}

/* --- tables --- */

/* What training was told, unless it is the file of another's labels. */
static const char *known_label(const recipe *r, const char *data)
{
    const char *dot = data ? strrchr(data, '.') : NULL;

    if (r->columns || (dot && !strcmp(dot, ".npy") && (!r->data || strcmp(r->data, data) != 0)))
        return NULL;
    return r->label;
}

/* What a model's file, or the training set, says that labels are. */
static ts_task known_task(const recipe *r)
{
    if (r->task == TASK_NUMBERS || r->task == TASK_LABELS)
        return TS_TASK_NUMBERS;
    return r->task == TASK_CLASSES && (r->has_input || r->columns) ? TS_TASK_CLASSES : TS_TASK_AUTO;
}

int recipe_table(const char *command, const recipe *r, ts_dataset_options *out)
{
    const char *mark = recipe_asked.separator ? recipe_asked.separator : r->separator;
    const char *task = recipe_asked.task;

    if (mark && strcmp(mark, "tab") != 0 && mark[1])
        return usage_error(command, "--separator is '%s'; it must be one mark, or 'tab'", mark);
    out->separator = (char)(!mark ? 0 : !strcmp(mark, "tab") ? '\t' : mark[0]);
    out->label = recipe_asked.label ? recipe_asked.label : known_label(r, out->name);
    out->samples = recipe_asked.samples ? recipe_asked.samples
                   : r->samples         ? r->samples
                                        : r->inputs;
    out->downsample = (int)(recipe_asked.downsample ? recipe_asked.downsample : r->downsample);
    out->drop = recipe_asked.drop;
    out->missing = recipe_asked.missing ? recipe_asked.missing : r->missing;
    out->columns = recipe_asked.label ? NULL : r->columns;
    out->integers = r->integers;
    out->tokens = r->tokens;
    out->vocabulary = (int)recipe_asked.vocabulary;
    out->window = r->tokens ? r->dims[0] : recipe_asked.window;
    out->task = !task ? known_task(r) : strcmp(task, "classes") ? TS_TASK_NUMBERS : TS_TASK_CLASSES;
    return TOOL_OK;
}

/* --- inputs --- */

static char *input_names(const ts_model *m)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    for (int i = 0; f && ts_model_input_name(m, i); i++)
        fprintf(f, "%s%s", i ? "," : "", ts_model_input_name(m, i));
    if (f && !fclose(f))
        return text;
    free(text);
    return NULL;
}

int recipe_inputs(recipe *r, const ts_model *m)
{
    parts p = parts_of(m);
    int64_t at = 0;

    r->rank = ts_model_input(m, r->dims);
    r->integers = p.n == 1 && p.whole[0];
    if (p.n == 1)
        return TOOL_OK;
    r->rank = 1;
    r->dims[0] = p.all;
    free(r->inputs);
    free(r->whole);
    r->inputs = input_names(m);
    r->whole = calloc((size_t)p.all, sizeof(*r->whole));
    if (!r->inputs || !r->whole)
        return failure("out of memory for the inputs of %s", ts_model_name(m));
    for (int i = 0; i < p.n; i++)
        for (int64_t k = 0; k < p.size[i]; k++)
            r->whole[at++] = p.whole[i];
    return TOOL_OK;
}

static int check_whole(const recipe *r, const char *data, const ts_array *all)
{
    const float *x = all->data;
    int64_t n = all->dims[1];

    for (int64_t i = 0; i < all->dims[0] * n; i++)
        if (r->whole[i % n] && (x[i] != rintf(x[i]) || fabsf(x[i]) > 1 << 24))
            return explain(TS_ERR_CORRUPT, data, "opening the data",
                           "the model takes whole numbers there: its input is i32",
                           "number %lld of sample %lld is %g, which is no index",
                           (long long)(i % n), (long long)(i / n), x[i]);
    return TOOL_OK;
}

int recipe_check(const recipe *r, const char *data, const ts_dataset *d)
{
    ts_array all = ts_dataset_samples(d);
    char shape[128];

    if (!r->inputs)
        return TOOL_OK;
    if (all.rank == 2 && all.dims[1] == r->dims[0] && all.dtype == TS_F32)
        return check_whole(r, data, &all);
    return explain(TS_ERR_SHAPE, data, "opening the data",
                   "a table has the columns of the first input, then those of the next; an .npz or "
                   "HDF5 file an array for each, called as the input, or as --samples says",
                   "the inputs %s take %lld numbers together, the data has samples of %s",
                   r->inputs, (long long)r->dims[0],
                   shape_text(all.rank - 1, all.dims + 1, shape, sizeof(shape)));
}

static task find_task(const ts_dataset *d)
{
    int n = ts_dataset_target_count(d);
    const float *t = ts_dataset_targets(d);

    int64_t dims[TS_MAX_RANK];

    if (ts_dataset_tokens(d))
        return TASK_TEXT;
    if (ts_dataset_label_shape(d, dims))
        return TASK_PIXELS;
    if (!n)
        return TASK_CLASSES;
    for (int64_t i = 0; i < ts_dataset_count(d) * n; i++)
        if (t[i] != 0 && t[i] != 1)
            return TASK_NUMBERS;
    return n > 1 ? TASK_LABELS : TASK_NUMBERS;
}

static bool changes(const float *x, int64_t rows, int n)
{
    for (int64_t i = 1; i < rows; i++)
        if (x[i * n] != x[0])
            return true;
    return false;
}

/* Of `n` columns of floats; a column that never changes has deviation 1. */
static bool fit_columns(const float *x, int64_t rows, int n, normal *out)
{
    double *mean = calloc((size_t)n, sizeof(*mean)), *square = calloc((size_t)n, sizeof(*mean));
    bool good = mean && square;

    for (int64_t i = 0; good && i < rows * n; i++)
        mean[i % n] += x[i] / (double)rows;
    for (int64_t i = 0; good && i < rows * n; i++)
        square[i % n] += (x[i] - mean[i % n]) * (x[i] - mean[i % n]) / (double)rows;
    for (int i = 0; good && i < n; i++)
        square[i] = changes(x + i, rows, n) ? sqrt(square[i]) : 1;
    good = good && normal_set(out, n, mean, square);
    free(mean);
    free(square);
    return good;
}

static bool is_table(const ts_dataset *d)
{
    return ts_dataset_columns(d) && ts_dataset_samples(d).dtype == TS_F32;
}

/* --task is no wish: the data has what it says, or it is refused. */
static int check_task(const char *data, const recipe *r, const ts_dataset *d)
{
    int n = ts_dataset_target_count(d);
    const float *t = ts_dataset_targets(d);

    if (!n != (r->task != TASK_NUMBERS && r->task != TASK_LABELS))
        return explain(TS_ERR_ARG, data, "opening the data", "leave out --task",
                       "--task %s does not fit: the data has %s", recipe_asked.task,
                       n ? "numbers" : task_names[find_task(d)]);
    for (int64_t i = 0; r->task == TASK_LABELS && i < ts_dataset_count(d) * n; i++)
        if (t[i] != 0 && t[i] != 1)
            return explain(TS_ERR_ARG, data, "opening the data",
                           "labels are columns of 0 and 1; --task numbers learns others",
                           "'%s' of sample %lld is %g, which is no label",
                           ts_dataset_target_name(d, (int)(i % n)), (long long)(i / n), t[i]);
    return TOOL_OK;
}

static void say_if_all_the_same(const char *data, const ts_dataset *d)
{
    const int32_t *labels = ts_dataset_labels(d);
    int64_t n = ts_dataset_count(d) * ts_dataset_label_count(d);
    char name[128];

    for (int64_t i = 1; i < n; i++)
        if (labels[i] != labels[0])
            return;
    fprintf(stderr,
            "tessera: all samples of %s are of one class, '%s': there is nothing to learn\n", data,
            printable(ts_dataset_class_name(d, labels[0]), name, sizeof(name)));
}

int recipe_fit(const char *data, recipe *r, const ts_dataset *d)
{
    bool plain = recipe_asked.scale && !strcmp(recipe_asked.scale, "none");
    ts_array all = ts_dataset_samples(d);
    bool good = true;

    r->task =
        recipe_asked.task && !strcmp(recipe_asked.task, "labels") ? TASK_LABELS : find_task(d);
    if (recipe_asked.task && !strcmp(recipe_asked.task, "numbers"))
        r->task = TASK_NUMBERS;
    if (recipe_asked.task && check_task(data, r, d))
        return TOOL_FAILED;
    if (r->task == TASK_CLASSES && ts_dataset_classes(d))
        say_if_all_the_same(data, d);
    r->downsample = (int)recipe_asked.downsample;
    free(r->tokens);
    r->tokens = ts_dataset_tokens(d) ? strdup(ts_dataset_tokens(d)) : NULL;
    free(r->columns);
    r->columns = ts_dataset_columns(d) ? strdup(ts_dataset_columns(d)) : NULL;
    r->missing = recipe_asked.missing ? strdup(recipe_asked.missing) : NULL;
    r->samples = recipe_asked.samples ? strdup(recipe_asked.samples) : NULL;
    r->label = recipe_asked.label ? strdup(recipe_asked.label) : NULL;
    r->separator = recipe_asked.separator ? strdup(recipe_asked.separator) : NULL;
    if (!r->has_normal && !plain && is_table(d)) {
        normal_free(&r->normal);
        good = fit_columns(all.data, all.dims[0], (int)all.dims[1], &r->normal);
        for (int64_t i = 0; good && r->whole && i < all.dims[1]; i++)
            if (r->whole[i]) { /* an index is what it is */
                r->normal.mean[i] = 0;
                r->normal.deviation[i] = 1;
            }
        r->has_normal = true;
    }
    if (good && r->task == TASK_NUMBERS && !plain)
        good = fit_columns(ts_dataset_targets(d), all.dims[0], ts_dataset_target_count(d),
                           &r->targets);
    return good ? TOOL_OK : failure("out of memory for the columns' means");
}

ts_image_options recipe_image(const recipe *r)
{
    if (r->rank != 3)
        return (ts_image_options){0};
    return (ts_image_options){.channels = (int)r->dims[0],
                              .height = (int)r->dims[1],
                              .width = (int)r->dims[2],
                              .filter = r->filter,
                              .shorter = r->shorter};
}

/* --- in a file --- */

static char *dims_text(const recipe *r)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    for (int i = 0; f && i < r->rank; i++)
        fprintf(f, "%s%lld", i ? " " : "", (long long)r->dims[i]);
    if (f && !fclose(f))
        return text;
    free(text);
    return NULL;
}

static ts_status put(ts_object *o, const char *key, char *text)
{
    ts_status s = text ? ts_object_set(o, key, ts_object_new_text(text)) : TS_ERR_MEMORY;

    free(text);
    return s;
}

ts_status recipe_put(const recipe *r, ts_object *o)
{
    char resize[64], shorter[24] = "";
    ts_status s = put(o, "tessera.input", dims_text(r));

    if (!s)
        s = put(o, "tessera.normalize", normal_text(&r->normal));
    if (!s && r->task != TASK_CLASSES)
        s = put(o, "tessera.task", strdup(task_names[r->task]));
    if (!s && r->columns)
        s = put(o, "tessera.columns", strdup(r->columns));
    if (!s && r->tokens)
        s = put(o, "tessera.tokens", strdup(r->tokens));
    if (!s && r->missing)
        s = put(o, "tessera.missing", strdup(r->missing));
    if (!s && r->samples)
        s = put(o, "tessera.samples", strdup(r->samples));
    if (!s && r->label)
        s = put(o, "tessera.label", strdup(r->label));
    if (!s && r->separator)
        s = put(o, "tessera.separator", strdup(r->separator));
    if (!s && r->targets.n)
        s = put(o, "tessera.targets", normal_text(&r->targets));
    if (!s && r->downsample > 1) {
        snprintf(resize, sizeof(resize), "%d", r->downsample);
        s = put(o, "tessera.downsample", strdup(resize));
    }
    if (s || !r->has_filter)
        return s;
    if (r->shorter)
        snprintf(shorter, sizeof(shorter), " %d", r->shorter);
    snprintf(resize, sizeof(resize), "%s%s",
             r->filter == TS_FILTER_BICUBIC ? "bicubic" : "bilinear", shorter);
    return put(o, "tessera.resize", strdup(resize));
}

/* "1 28 28" -> sizes; false when it is not such a text. */
static bool read_dims(const char *s, recipe *r)
{
    char *end;

    for (r->rank = 0; r->rank < TS_MAX_RANK - 1; s = end) {
        long long v = strtoll(s, &end, 10);
        if (end == s || v <= 0)
            break;
        r->dims[r->rank++] = v;
    }
    return r->rank > 0 && !s[strspn(s, " \n")];
}

/* "bilinear 256" */
static bool read_how(const char *s, recipe *r)
{
    char word[16] = "";
    size_t n = strcspn(s, " ");

    snprintf(word, sizeof(word), "%.*s", (int)n, s);
    s += n;
    if (*s == ' ' && (s++, !read_side(&s, &r->shorter)))
        return false;
    return read_filter(word, r) && !*s;
}

static char *copy_of(const char *text)
{
    return text ? strdup(text) : NULL;
}

static const char *read_table(recipe *r, recipe_fact *fact, const void *file)
{
    const char *task = fact(file, "tessera.task"), *columns = fact(file, "tessera.columns"),
               *missing = fact(file, "tessera.missing"), *targets = fact(file, "tessera.targets"),
               *smaller = fact(file, "tessera.downsample");

    r->downsample = smaller ? atoi(smaller) : 0;
    if (r->downsample < 0 || r->downsample > 1024)
        return "tessera.downsample";
    while (task && strcmp(task, task_names[r->task]) != 0)
        if (++r->task > TASK_PIXELS)
            return "tessera.task";
    if (missing && strcmp(missing, "mean") != 0 && strcmp(missing, "drop") != 0)
        return "tessera.missing";
    if (targets && !normal_read(targets, &r->targets))
        return "tessera.targets";
    r->columns = columns ? strdup(columns) : NULL;
    r->tokens = fact(file, "tessera.tokens") ? strdup(fact(file, "tessera.tokens")) : NULL;
    if ((r->task == TASK_TEXT) != (r->tokens != NULL))
        return "tessera.tokens";
    r->missing = copy_of(missing);
    r->samples = copy_of(fact(file, "tessera.samples"));
    r->label = copy_of(fact(file, "tessera.label"));
    r->separator = copy_of(fact(file, "tessera.separator"));
    r->data = copy_of(fact(file, "tessera.data"));
    return NULL;
}

const char *recipe_read(recipe *r, const ts_model *m, recipe_fact *fact, const void *file)
{
    const char *input = fact(file, "tessera.input"), *how = fact(file, "tessera.normalize"),
               *resize = fact(file, "tessera.resize");

    *r = (recipe){0};
    if (recipe_inputs(r, m))
        return "tessera.input";
    r->has_input = input != NULL;
    if (input && !read_dims(input, r))
        return "tessera.input";
    if (resize && !read_how(resize, r))
        return "tessera.resize";
    if (how && !normal_read(how, &r->normal))
        return "tessera.normalize";
    r->has_normal = how != NULL;
    return read_table(r, fact, file);
}

void recipe_free(recipe *r)
{
    normal_free(&r->normal);
    normal_free(&r->targets);
    free(r->columns);
    free(r->missing);
    free(r->tokens);
    free(r->samples);
    free(r->label);
    free(r->separator);
    free(r->data);
    free(r->inputs);
    free(r->whole);
    *r = (recipe){0};
}

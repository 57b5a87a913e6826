/* predict.c - tessera predict: what the model of a checkpoint sees in images, and says of the rows
 * of a table.
 *
 * An image is made what the net was trained on: resized as Pillow's Image.resize does, gray where
 * the net takes one channel, inverted where the background is light, normalised.
 */
#include "net.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static struct {
    const char *file, *model, *data, *invert, *csv;
    words images;
    int64_t top, threads;
    bool json;
} args = {.top = 3, .invert = "auto"};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "the checkpoint: .pth, .safetensors or .npz",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"INPUT", NULL, KIND_WORDS, &args.images,
     "PNG or JPEG files, folders of them, or tables: .csv, .npz, .npy or .h5; of a net that "
     "classifies pixels then perhaps 'event N ...'",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"csv", "FILE", KIND_TEXT, &args.csv,
     "write a table there, a row for each image or row; - is "
     "standard output",
     .takes = TAKES_FILE},
    {"model", "NAME|FILE", KIND_TEXT, &args.model,
     "the model of the weights, when the checkpoint does not say", .takes = TAKES_MODEL},
    {"data", "NAME|PATH", KIND_TEXT, &args.data,
     "the dataset that the classes are named after, when the checkpoint does not name them",
     .takes = TAKES_DATA},
    {"top", "N", KIND_INT, &args.top, "classes to show for an image", .low = 1, .high = INT32_MAX},
    {"invert", "WHEN", KIND_WORD, &args.invert, "invert gray images with a light background",
     .choice = "auto never"},
    {"threads", "N", KIND_INT, &args.threads, "threads to compute with", .low = 1, .high = 1024},
    {.name = "images, and how numbers are normalised",
     .kind = KIND_GROUP,
     .target = (void *)recipe_options},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)table_options},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "plots", .kind = KIND_GROUP, .target = (void *)plot_options},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

typedef struct prediction {
    weights w;
    net n;
    ts_dataset *names;                     /* of --data */
    float *input, *scores, *probabilities; /* of one image */
    int *order;                            /* classes, the best first */
    const char **classes;
    char (*numbers)[24];
    char picture[PATH_MAX]; /* or "" */
    FILE *csv;              /* or NULL */
    int shown;              /* results so far */
    int64_t *events;        /* samples to look at; none: all */
    int nevents;
} prediction;

/* --- once --- */

static bool is_pixels(const prediction *p)
{
    return p->w.recipe.task == TASK_PIXELS;
}

/* Scores of many places of a sample are of pixels or of a text; a file that says neither has no classes. */
static int check_places(const prediction *p)
{
    if (p->n.places == 1 || is_pixels(p) || p->w.recipe.task == TASK_TEXT)
        return TOOL_OK;
    return net_no_classes(&p->n, "preparing for a prediction");
}

/* Places are pixels of planes as large as the sample's. */
static bool has_pixels(const net *n)
{
    int64_t pixels = n->rank > 1 ? n->dims[n->rank - 2] * n->dims[n->rank - 1] : 0;

    return pixels && n->places > 1 && n->places % pixels == 0;
}

static int check_net(const prediction *p)
{
    const int64_t *d = p->n.dims;
    char shape[128];

    if (is_pixels(p))
        return explain(TS_ERR_UNSUPPORTED, args.file, "preparing for images",
                       "put the pictures into an .h5 or .npz file",
                       "the model '%s' classifies pixels; of image files it is not known how they "
                       "become its planes",
                       p->n.name);
    if (p->w.recipe.task != TASK_CLASSES && p->w.recipe.task != TASK_TEXT)
        return explain(TS_ERR_UNSUPPORTED, args.file, "preparing for images",
                       "put the images into a folder with their numbers, and use tessera eval",
                       "the model '%s' gives numbers, not classes of images", p->n.name);
    if (p->n.rank == 3 && (d[0] == 1 || d[0] == 3) && d[1] <= INT16_MAX && d[2] <= INT16_MAX)
        return TOOL_OK;
    return explain(TS_ERR_SHAPE, args.file, "preparing for images", NULL,
                   "the model '%s' takes samples of %s, which are no images of 1 or 3 channels",
                   p->n.name, shape_text(p->n.rank, d, shape, sizeof(shape)));
}

static int open_names(prediction *p)
{
    return dataset_open(&(dataset_options){.name = args.data,
                                           .split = TS_SPLIT_TEST,
                                           .limit = 1,
                                           .recipe = &p->w.recipe,
                                           .quiet = true},
                        &p->names);
}

static const char *class_name(const prediction *p, int i)
{
    if (p->names)
        return ts_dataset_class_name(p->names, i);
    return weights_class(&p->w, p->n.classes, i);
}

static const char *trained_on(const prediction *p)
{
    return args.data ? args.data : p->w.data;
}

static int prepare(prediction *p)
{
    size_t n = (size_t)p->n.classes;

    p->input = calloc((size_t)p->n.row, sizeof(*p->input));
    p->scores = calloc(n, sizeof(*p->scores));
    p->probabilities = calloc(n, sizeof(*p->probabilities));
    p->order = calloc(n, sizeof(*p->order));
    p->classes = calloc(n, sizeof(*p->classes));
    p->numbers = calloc(n, sizeof(*p->numbers));
    if (!p->input || !p->scores || !p->probabilities || !p->order || !p->classes || !p->numbers)
        return failure("out of memory for the scores of %zu classes", n);
    for (int i = 0; i < (int)n; i++) {
        snprintf(p->numbers[i], sizeof(p->numbers[i]), "class %d", i);
        p->classes[i] = class_name(p, i) ? class_name(p, i) : p->numbers[i];
    }
    recipe_settle(&p->w.recipe, trained_on(p), TS_U8, args.json);
    return TOOL_OK;
}

/* --- an image --- */

/* The samples of mnist and fashion-mnist are light on black, and nobody resized them: a photograph
 * is inverted, and resized as Pillow does unless told otherwise. Those of others are as they are. */
static bool of_black(const prediction *p)
{
    return p->n.dims[0] == 1 && (!trained_on(p) || dataset_has_name(trained_on(p)));
}

static int load(const prediction *p, const char *path, ts_array *out)
{
    ts_image_options how = recipe_image(&p->w.recipe);

    if (of_black(p) && !p->w.recipe.has_filter)
        how.filter = TS_FILTER_BICUBIC;
    how.invert_light = of_black(p) && !strcmp(args.invert, "auto");
    return ts_image_load(path, &how, out) ? failed() : TOOL_OK;
}

static const float *sorted_by;

/* The first of equals first. */
static int by_score(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    float x = sorted_by[i], y = sorted_by[j];

    return x > y ? -1 : x < y ? 1 : i - j;
}

static void sort(prediction *p)
{
    for (int i = 0; i < (int)p->n.classes; i++)
        p->order[i] = i;
    sorted_by = p->scores;
    qsort(p->order, (size_t)p->n.classes, sizeof(*p->order), by_score);
}

/* A softmax over the batch makes numbers that look like probabilities and are none. */
static void check_sum(const prediction *p)
{
    double sum = 0;

    for (int i = 0; i < (int)p->n.classes; i++)
        sum += p->probabilities[i];
    if (p->n.end == NET_LOG_PROBABILITIES && fabs(sum - 1) > 0.01)
        fprintf(
            stderr,
            "tessera: the scores of the model '%s' add up to %.3g and not to 1: its log_softmax "
            "is not over the classes\n",
            p->n.name, sum);
}

static int predict(prediction *p, const ts_array *pixels)
{
    ts_normalize how = normal_view(&p->w.recipe.normal);
    int code;

    if (ts_to_tensor(pixels, false, &how, p->input))
        return failed();
    code = net_scores(&p->n, p->input, 1, p->scores);
    if (code)
        return code;
    net_probabilities(&p->n, p->scores, p->probabilities);
    sort(p);
    check_sum(p);
    return TOOL_OK;
}

/* --- its picture --- */

/* shoe_prediction.png; the second image called shoe gets shoe-2_prediction.png */
static void picture_name(int which, char *out, size_t size)
{
    const char *base, *other;
    int n = base_name(args.images.word[which], &base), same = 1;

    for (int i = 0; i < which; i++)
        same += base_name(args.images.word[i], &other) == n && !strncmp(base, other, (size_t)n);
    if (same > 1)
        snprintf(out, size, "%.*s-%d_prediction.png", n, base, same);
    else
        snprintf(out, size, "%.*s_prediction.png", n, base);
}

static ts_picture picture_of(const ts_array *a)
{
    return (ts_picture){.data = a->data,
                        .dtype = TS_U8,
                        .channels = (int)a->dims[0],
                        .height = (int)a->dims[1],
                        .width = (int)a->dims[2],
                        .planar = true};
}

static int draw(prediction *p, int which, const ts_array *pixels)
{
    char name[NAME_MAX];
    ts_array original;
    int code;

    p->picture[0] = 0;
    if (!plots_wanted())
        return TOOL_OK;
    if (ts_image_load(args.images.word[which], NULL, &original))
        return failed();
    picture_name(which, name, sizeof(name));
    code = plot_path(name, p->picture, sizeof(p->picture));
    if (!code)
        code =
            plot_done(ts_plot_image(p->picture, &(ts_prediction){.original = picture_of(&original),
                                                                 .input = picture_of(pixels),
                                                                 .classes = p->classes,
                                                                 .scores = p->probabilities,
                                                                 .n = (int)p->n.classes}));
    if (!plots_wanted())
        p->picture[0] = 0;
    free(original.data);
    return code;
}

/* --- what is said --- */

static int shown(const prediction *p)
{
    return (int)(args.top < p->n.classes ? args.top : p->n.classes);
}

static void print_text(const prediction *p, int which)
{
    int best = p->order[0], widest = 0;

    printf("%s%s: %s\n", p->shown ? "\n" : "", args.images.word[which], p->classes[best]);
    for (int i = 0; i < shown(p); i++) {
        int n = (int)strlen(p->classes[p->order[i]]);
        widest = n > widest ? n : widest;
    }
    for (int i = 0; i < shown(p); i++)
        printf("  %-*s  %6.2f%%\n", widest, p->classes[p->order[i]],
               100 * p->probabilities[p->order[i]]);
    if (p->picture[0])
        printf("  written %s\n", p->picture);
}

static void json_score(const prediction *p, int i)
{
    int class = p->order[i];

    printf("%s\n       {\"class\": ", i ? "," : "");
    json_quote(p->classes[class]);
    printf(", \"index\": %d, \"probability\": ", class);
    json_value(p->probabilities[class]);
    printf(", \"score\": ");
    json_value(p->scores[class]);
    printf("}");
}

static void json_image(const prediction *p, int which, int code)
{
    printf("%s\n    {\"file\": ", p->shown ? "," : "");
    json_quote(args.images.word[which]);
    if (code)
        printf(", \"error\": true}");
    if (code)
        return;
    printf(", \"class\": ");
    json_quote(p->classes[p->order[0]]);
    printf(", \"index\": %d,\n     \"scores\": [", p->order[0]);
    for (int i = 0; i < shown(p); i++)
        json_score(p, i);
    printf("]");
    if (p->picture[0]) {
        printf(",\n     \"plot\": ");
        json_quote(p->picture);
    }
    printf("}");
}

/* --- rows of a table --- */

static bool has_ending(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);

    return n > m && !strcasecmp(path + n - m, ending);
}

static bool is_table(const char *path)
{
    static const char *const endings[] = {".csv", ".npz", ".npy", ".h5", ".hdf5"};

    for (int i = 0; i < COUNT(endings); i++)
        if (has_ending(path, endings[i]))
            return true;
    return false;
}

/* input,row,class,probability or input,row,NAME,... */
static void csv_head(const prediction *p)
{
    if (!p->csv)
        return;
    fputs(is_pixels(p) ? "input,event" : "input,row", p->csv);
    if (p->w.recipe.task == TASK_CLASSES)
        fputs(",class,probability", p->csv);
    for (int i = 0; p->w.recipe.task != TASK_CLASSES && i < (int)p->n.classes; i++) {
        fputc(',', p->csv);
        csv_field(p->csv, p->classes[i]);
    }
    fputc('\n', p->csv);
}

static void csv_row(const prediction *p, const char *input, int64_t row)
{
    if (!p->csv)
        return;
    csv_field(p->csv, input);
    fprintf(p->csv, ",%" PRId64, row);
    if (p->w.recipe.task == TASK_CLASSES) {
        fputc(',', p->csv);
        csv_field(p->csv, p->classes[p->order[0]]);
        fprintf(p->csv, ",%.6g", p->probabilities[p->order[0]]);
    }
    for (int i = 0; p->w.recipe.task != TASK_CLASSES && i < (int)p->n.classes; i++)
        fprintf(p->csv, ",%.9g", p->probabilities[i]);
    fputc('\n', p->csv);
}

static void json_row(const prediction *p, int64_t row)
{
    printf("%s\n     {\"row\": %" PRId64, row ? "," : "", row);
    if (p->w.recipe.task == TASK_CLASSES) {
        printf(", \"class\": ");
        json_quote(p->classes[p->order[0]]);
        printf(", \"index\": %d, \"probability\": ", p->order[0]);
        json_value(p->probabilities[p->order[0]]);
    }
    for (int i = 0; p->w.recipe.task != TASK_CLASSES && i < (int)p->n.classes; i++) {
        printf(", ");
        json_quote(p->classes[i]);
        printf(": ");
        json_value(p->probabilities[i]);
    }
    printf("}");
}

static void text_row(const prediction *p, int64_t row)
{
    printf("%8" PRId64, row);
    if (p->w.recipe.task == TASK_CLASSES)
        printf("  %6.2f%%  %s", 100 * p->probabilities[p->order[0]], p->classes[p->order[0]]);
    for (int i = 0; p->w.recipe.task != TASK_CLASSES && i < (int)p->n.classes; i++)
        printf("  %12.6g", p->probabilities[i]);
    putchar('\n');
}

static void text_head(const prediction *p, const char *path)
{
    printf("%s%s\n%8s", p->shown ? "\n" : "", path, "row");
    if (p->w.recipe.task == TASK_CLASSES)
        printf("  %7s  class", "");
    for (int i = 0; p->w.recipe.task != TASK_CLASSES && i < (int)p->n.classes; i++)
        printf("  %12s", p->classes[i]);
    putchar('\n');
}

static int one_row(prediction *p, const char *path, const float *scores, int64_t row)
{
    memcpy(p->scores, scores, sizeof(*scores) * (size_t)p->n.classes);
    if (p->w.recipe.task == TASK_CLASSES) {
        net_probabilities(&p->n, p->scores, p->probabilities);
        sort(p);
    } else {
        net_values(&p->n, &p->w.recipe, p->scores, p->probabilities);
    }
    if (args.json)
        json_row(p, row);
    else if (p->csv != stdout)
        text_row(p, row);
    csv_row(p, path, row);
    return TOOL_OK;
}

static int rows(prediction *p, const char *path, ts_loader *l)
{
    int code = TOOL_OK;
    ts_batch b;

    for (int64_t step = 0; !code && step < ts_loader_steps(l); step++) {
        if (ts_loader_next(l, &b) ||
            ts_engine_run(p->n.engine, (const void *[]){b.samples}, (void *[]){p->n.out}))
            return failed();
        for (int64_t i = 0; !code && i < b.rows; i++)
            code = one_row(p, path, p->n.out + i * p->n.classes, step * p->n.batch + i);
    }
    return code;
}

static int check_rows(const prediction *p, const ts_dataset *d)
{
    ts_array all = ts_dataset_samples(d);
    char have[128], want[128];

    if (all.rank - 1 == p->n.rank &&
        !memcmp(all.dims + 1, p->n.dims, sizeof(*all.dims) * (size_t)p->n.rank))
        return TOOL_OK;
    return explain(TS_ERR_SHAPE, args.file, "predicting", NULL,
                   "the net takes samples of %s, the data has samples of %s",
                   shape_text(p->n.rank, p->n.dims, want, sizeof(want)),
                   shape_text(all.rank - 1, all.dims + 1, have, sizeof(have)));
}

static int events(prediction *p, const char *path, const ts_dataset *d, ts_loader *l)
{
    return predict_events(&(event_options){.n = &p->n,
                                           .path = path,
                                           .classes = p->classes,
                                           .events = p->events,
                                           .nevents = p->nevents,
                                           .csv = p->csv,
                                           .json = args.json},
                          d, l);
}

static int predict_table(prediction *p, const char *path)
{
    ts_loader_options o = {.batch = p->n.batch, .normalize = normal_view(&p->w.recipe.normal)};
    dataset_options how = {.name = path, .recipe = &p->w.recipe, .quiet = true};
    ts_dataset *d = NULL;
    ts_loader *l = NULL;
    int code = dataset_open(&how, &d);

    if (!code)
        code = check_rows(p, d);
    if (!code && ts_loader_new(d, &o, &l))
        code = failed();
    if (!code && args.json) {
        printf("%s\n    {\"file\": ", p->shown ? "," : "");
        json_quote(path);
        printf(is_pixels(p) ? ", \"events\": [" : ", \"rows\": [");
    } else if (!code && p->csv != stdout && !is_pixels(p)) {
        text_head(p, path);
    }
    if (!code)
        code = is_pixels(p) ? events(p, path, d, l) : rows(p, path, l);
    if (!code && args.json)
        printf("]}");
    p->shown += !code;
    ts_loader_free(l);
    ts_dataset_free(d);
    return code;
}

static int one(prediction *p, int which)
{
    ts_array pixels;
    int code = load(p, args.images.word[which], &pixels), drawn = TOOL_OK;

    if (!code) {
        code = predict(p, &pixels);
        if (!code)
            drawn = draw(p, which, &pixels);
        free(pixels.data);
    }
    if (drawn) /* which has been said; what the net saw is printed all the same */
        p->picture[0] = 0;
    if (args.json)
        json_image(p, which, code);
    else if (!code && p->csv != stdout)
        print_text(p, which);
    if (!code)
        csv_row(p, args.images.word[which], 0);
    p->shown++;
    return code ? code : drawn;
}

/* --- what the line names: a folder is all images in it --- */

static bool is_image(const char *name)
{
    return has_ending(name, ".png") || has_ending(name, ".jpg") || has_ending(name, ".jpeg");
}

typedef struct names {
    char **at;
    int n, room;
} names;

static bool add_name(names *l, const char *name)
{
    char **more =
        l->n < l->room ? l->at : realloc(l->at, sizeof(*more) * (size_t)(2 * l->room + 16));

    if (!more)
        return false;
    l->room = l->n < l->room ? l->room : 2 * l->room + 16;
    l->at = more;
    l->at[l->n] = strdup(name);
    return l->at[l->n] && ++l->n;
}

static bool add_folder(names *l, const char *path, int depth)
{
    struct dirent **entries;
    int n = depth < 8 ? scandir(path, &entries, NULL, alphasort) : 0;
    bool good = true;

    for (int i = 0; i < n; i++) {
        char inner[PATH_MAX];
        struct stat st;
        snprintf(inner, sizeof(inner), "%s/%s", path, entries[i]->d_name);
        if (good && entries[i]->d_name[0] != '.' && !stat(inner, &st))
            good = S_ISDIR(st.st_mode)            ? add_folder(l, inner, depth + 1)
                   : is_image(entries[i]->d_name) ? add_name(l, inner)
                                                  : true;
        free(entries[i]);
    }
    if (n > 0)
        free(entries);
    return good;
}

/* "event 3 4" behind a file: samples to look at. */
static int take_events(prediction *p, words *inputs)
{
    int at = 0;

    while (at < inputs->count && strcmp(inputs->word[at], "event") != 0)
        at++;
    if (at >= inputs->count)
        return TOOL_OK;
    p->events = calloc((size_t)(inputs->count - at), sizeof(*p->events));
    if (!p->events)
        return failure("out of memory for the events");
    for (int i = at + 1; i < inputs->count; i++) {
        char *end;
        const char *s = inputs->word[i];
        long long n = strtoll(s, &end, 10);
        if (end == s || *end || n < 0)
            return usage_error("predict", "event '%s' is no number of one; they count from 0", s);
        p->events[p->nevents++] = n;
    }
    if (!p->nevents || !at)
        return usage_error("predict", "'event' stands between a file and numbers of events");
    inputs->count = at;
    return TOOL_OK;
}

static int expand(words *inputs, names *all)
{
    struct stat st;

    for (int i = 0; i < inputs->count; i++) {
        const char *path = inputs->word[i];
        bool folder = strcmp(path, ".") && !stat(path, &st) && S_ISDIR(st.st_mode);
        int before = all->n;
        if (!(folder ? add_folder(all, path, 0) : add_name(all, path)))
            return failure("out of memory for the names");
        if (folder && all->n == before)
            return explain(TS_ERR_FILE, path, "looking for images", NULL,
                           "the folder %s has no .png or .jpg files", path);
    }
    inputs->word = all->at;
    inputs->count = all->n;
    return TOOL_OK;
}

/* --- all --- */

/* An image that cannot be read does not keep the others from being looked at. */
static int all(prediction *p)
{
    int code = TOOL_OK;

    if (args.json) {
        printf("{\n  \"file\": ");
        json_quote(args.file);
        printf(",\n  \"model\": ");
        json_quote(p->n.name);
        printf(",\n  \"images\": [");
    }
    csv_head(p);
    for (int i = 0; i < args.images.count; i++)
        code = (is_table(args.images.word[i]) ? predict_table(p, args.images.word[i]) : one(p, i))
                   ? TOOL_FAILED
                   : code;
    if (args.json)
        printf("]\n}\n");
    return code;
}

static bool any_table(void)
{
    for (int i = 0; i < args.images.count; i++)
        if (is_table(args.images.word[i]))
            return true;
    return false;
}

static bool any_image(void)
{
    for (int i = 0; i < args.images.count; i++)
        if (!is_table(args.images.word[i]))
            return true;
    return false;
}

static int open_csv(prediction *p)
{
    if (!args.csv)
        return TOOL_OK;
    if (!strcmp(args.csv, "-") && args.json)
        return usage_error("predict", "--json and --csv - both write to standard output");
    p->csv = strcmp(args.csv, "-") ? fopen(args.csv, "w") : stdout;
    return p->csv ? TOOL_OK : failure("cannot write %s: %s", args.csv, strerror(errno));
}

static int close_csv(prediction *p, int code)
{
    bool bad = p->csv && p->csv != stdout && (ferror(p->csv) | fclose(p->csv));

    return bad ? failure("cannot write %s: %s", args.csv, strerror(errno)) : code;
}

static int run(void)
{
    prediction p = {0};
    net_options o = {.command = "predict",
                     .batch = 1,
                     .iterations = 1,
                     .threads = (int)args.threads,
                     .quiet = args.json};
    names inputs = {0};
    int code = take_events(&p, &args.images);

    if (!code)
        code = expand(&args.images, &inputs);
    if (!code)
        code = weights_open(args.file, args.model, &p.w);
    if (p.nevents && p.w.recipe.task == TASK_CLASSES) /* which another program does not say */
        p.w.recipe.task = TASK_PIXELS;
    o.batch = any_table() && !is_pixels(&p) ? 32 : 1; /* pictures may be large */
    if (!code)
        code = net_from_weights(&p.w, &o, &p.n);
    if (!code && p.nevents && !(is_pixels(&p) && has_pixels(&p.n)))
        code = usage_error("predict", "'event' is for nets that classify pixels");
    weights_tidy_names(&p.w);
    if (!code)
        code = check_places(&p);
    if (!code && any_image())
        code = check_net(&p);
    if (!code)
        code = recipe_override("predict", &p.w.recipe);
    if (!code && args.data)
        code = open_names(&p);
    if (!code)
        code = prepare(&p);
    if (!code)
        code = open_csv(&p);
    if (!code)
        code = close_csv(&p, all(&p));
    for (int i = 0; i < inputs.n; i++)
        free(inputs.at[i]);
    free(inputs.at);
    free(p.input);
    free(p.scores);
    free(p.probabilities);
    free(p.order);
    free(p.classes);
    free(p.numbers);
    free(p.events);
    ts_dataset_free(p.names);
    net_free(&p.n);
    weights_free(&p.w);
    return code;
}

const command predict_command = {
    .name = "predict",
    .summary =
        "Says what the model of a checkpoint sees in images, or makes of the rows of a table",
    .options = options,
    .run = run,
    .more =
        "Images are resized to what the net takes, made gray for a net of one channel and\n"
        "inverted where their background is light; that is for nets of MNIST and\n"
        "Fashion-MNIST, whose images are on black. The picture NAME_prediction.png shows the\n"
        "image, what the net sees of it and the probabilities of the classes. Of pixels there is\n"
        "NAME-eventN-planeN.png: the picture, its labels, what the net says.",
    .examples =
        "predict net.pth net.jpg\npredict net.pth photos --csv classes.csv --no-plots\npredict "
        "net.pth new.csv\npredict net.pth cosmic.h5 event 3\npredict net.pth net.png --top 5 "
        "--no-plots --json\n",
};

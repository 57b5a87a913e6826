/* predict.c - tessera predict: what the model of a checkpoint sees in images.
 *
 * An image is made what the net was trained on: resized as Pillow's Image.resize does, gray where
 * the net takes one channel, inverted where the background is light, normalised.
 */
#include "net.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *file, *model, *data, *invert;
    words images;
    int64_t top, threads;
    bool json;
} args = {.top = 3, .invert = "auto"};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "the checkpoint: .pth, .safetensors or .npz",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"IMAGE", NULL, KIND_WORDS, &args.images, "PNG or JPEG files", .takes = TAKES_FILE,
     .argument = true, .needed = true},
    {"model", "NAME|FILE", KIND_TEXT, &args.model,
     "the model of the weights, when the checkpoint does not say", .takes = TAKES_MODEL},
    {"data", "NAME|PATH", KIND_TEXT, &args.data,
     "the dataset that the classes are named after, when the checkpoint does not name them",
     .takes = TAKES_DATA},
    {"top", "N", KIND_INT, &args.top, "classes to show for an image", .low = 1, .high = INT32_MAX},
    {"invert", "WHEN", KIND_WORD, &args.invert, "invert gray images with a light background",
     .choice = "auto never"},
    {"threads", "N", KIND_INT, &args.threads, "threads to compute with", .low = 1, .high = 1024},
    {.name = "recipe", .kind = KIND_GROUP, .target = (void *)recipe_options},
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
} prediction;

/* --- once --- */

static int check_net(const prediction *p)
{
    const int64_t *d = p->n.dims;
    char shape[128];

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

enum { LONGEST = 200 }; /* so that the picture's name is one that a file can have */

/* dir/shoe.jpg -> shoe */
static int base_name(const char *path, const char **out)
{
    const char *slash = strrchr(path, '/'), *dot;
    size_t n;

    *out = slash ? slash + 1 : path;
    dot = strrchr(*out, '.');
    n = dot && dot > *out ? (size_t)(dot - *out) : strlen(*out);
    return n < LONGEST ? (int)n : LONGEST;
}

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

    printf("%s%s: %s\n", which ? "\n" : "", args.images.word[which], p->classes[best]);
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
    printf("%s\n    {\"file\": ", which ? "," : "");
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
    else if (!code)
        print_text(p, which);
    return code ? code : drawn;
}

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
    for (int i = 0; i < args.images.count; i++)
        code = one(p, i) ? TOOL_FAILED : code;
    if (args.json)
        printf("]\n}\n");
    return code;
}

static int run(void)
{
    prediction p = {0};
    net_options o = {.model = args.model,
                     .command = "predict",
                     .batch = 1,
                     .iterations = 1,
                     .threads = (int)args.threads,
                     .quiet = args.json};
    int code = net_open(args.file, &o, &p.w, &p.n);

    weights_tidy_names(&p.w);
    if (!code)
        code = check_net(&p);
    if (!code)
        code = recipe_override("predict", &p.w.recipe);
    if (!code && args.data)
        code = open_names(&p);
    if (!code)
        code = prepare(&p);
    if (!code)
        code = all(&p);
    free(p.input);
    free(p.scores);
    free(p.probabilities);
    free(p.order);
    free(p.classes);
    free(p.numbers);
    ts_dataset_free(p.names);
    net_free(&p.n);
    weights_free(&p.w);
    return code;
}

const command predict_command = {
    .name = "predict",
    .summary = "Says what the model of a checkpoint sees in images",
    .options = options,
    .run = run,
    .more = "Images are resized to what the net takes, made gray for a net of one channel and\n"
            "inverted where their background is light; that is for nets of MNIST and\n"
            "Fashion-MNIST, whose images are on black. The picture NAME_prediction.png shows the\n"
            "image, what the net sees of it and the probabilities of the classes.",
    .examples = "predict net.pth net.jpg\npredict net.pth net.png --top 5 --no-plots --json\n",
};

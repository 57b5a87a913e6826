/* setup.c - what a run is made of: data, model, executable, engine, loader. */
#include "train.h"
#include <stdlib.h>
#include <string.h>

/* --- data --- */

/* --crop 224 --resize 256: the shorter side to 256, and the middle of that. */
static int read_crop(run *r, ts_image_options *image)
{
    int n = 0, width = 0, used = 0;

    if (!asked.crop)
        return TOOL_OK;
    n = sscanf(asked.crop, "%4dx%4d%n", &image->height, &width, &used);
    if (n < 2)
        n = sscanf(asked.crop, "%4d%n", &image->height, &used);
    image->shorter = r->recipe.shorter = image->width;
    image->width = n == 2 ? width : image->height;
    if (n < 1 || asked.crop[used] || image->height < 1 || image->width < 1)
        return usage_error("train", "--crop is '%s'; it must be like 224 or 224x160", asked.crop);
    return TOOL_OK;
}

static int read_image(run *r, ts_image_options *image)
{
    int code;

    *image = (ts_image_options){.channels = asked.grayscale ? 1 : 0};
    code = recipe_size("train", &r->recipe, &image->height, &image->width);
    if (code)
        return code;
    image->filter = r->recipe.filter;
    r->recipe.has_filter = r->recipe.has_filter || image->height;
    if (asked.crop && (!image->height || image->height != image->width))
        return usage_error("train", "--crop needs --resize N, the size of the shorter side");
    return read_crop(r, image);
}

static int open_split(run *r, const char *name, ts_split split, int64_t limit, ts_dataset **out)
{
    download shown = {0};
    ts_image_options image;
    ts_dataset_options o = {.name = name,
                            .image = &image,
                            .split = split,
                            .limit = limit,
                            .dir = asked.folder,
                            .progress = asked.quiet || asked.json ? NULL : show_download,
                            .progress_arg = &shown};
    int code = read_image(r, &image);

    if (!code)
        code = recipe_table("train", &r->recipe, &o);
    o.columns = r->recipe.columns;
    o.tokens = r->recipe.tokens;
    if (!code && ts_dataset_load(&o, out))
        code = TOOL_FAILED;
    ts_bar_close(shown.bar);
    return code;
}

int peek(run *r, int64_t limit, ts_array *sample, bool *pixels)
{
    int64_t dims[TS_MAX_RANK];
    ts_dataset *d;
    int code = open_split(r, asked.data, TS_SPLIT_TRAIN, limit, &d);

    if (code)
        return code == TOOL_USAGE ? code : failed();
    code = ts_dataset_sample(d, 0, sample) ? failed() : TOOL_OK;
    sample->data = NULL;
    *pixels = ts_dataset_label_shape(d, dims) > 0;
    ts_dataset_free(d);
    return code;
}

static int check_test(const run *r, const ts_dataset *test)
{
    const char *a, *b;
    char have[128], want[128];
    ts_array sample;

    if (ts_dataset_sample(test, 0, &sample))
        return failed();
    if (recipe_check(&r->recipe, asked.data, test))
        return TOOL_FAILED;
    if (sample.rank != r->sample.rank ||
        memcmp(sample.dims, r->sample.dims, sizeof(*sample.dims) * (size_t)sample.rank) != 0)
        return explain(TS_ERR_SHAPE, asked.data, "comparing training and test set",
                       "--resize HEIGHTxWIDTH makes images of one size",
                       "the test set has samples of %s, the training set of %s",
                       shape_text(sample.rank, sample.dims, have, sizeof(have)),
                       shape_text(r->sample.rank, r->sample.dims, want, sizeof(want)));
    for (int i = 0; (b = ts_dataset_class_name(test, i)); i++) {
        a = ts_dataset_class_name(r->data, i);
        if (!a || strcmp(a, b) != 0)
            return explain(TS_ERR_ARG, asked.data, "comparing training and test set",
                           "both need the same classes",
                           "class %d is '%s' in the test set and '%s' in the training set", i, b,
                           a ? a : "not there");
    }
    return TOOL_OK;
}

/* A set with a name has one; of others it may be missing, which is said. */
static int open_test(run *r)
{
    int code = open_split(r, asked.data, TS_SPLIT_TEST, asked.limit, &r->test);

    if (code && (dataset_has_name(asked.data) || !set_is_missing()))
        return code == TOOL_USAGE ? code : failed();
    if (code)
        say("No test set: %s", ts_last_error()->message);
    else if (data_hash(r->test) == r->hash) { /* the reader knows no other split of it */
        say("No test set in %s", asked.data);
        ts_dataset_free(r->test);
        r->test = NULL;
    }
    return r->test ? check_test(r, r->test) : TOOL_OK;
}

/* --validate 0.1: before anything is found out about the data that is learned from. */
static int hold_share(run *r)
{
    char *end;
    double share = asked.validate ? strtod(asked.validate, &end) : 0;

    if (!asked.validate || end == asked.validate || *end)
        return TOOL_OK;
    if (!(share > 0 && share < 1))
        return usage_error("train", "--validate is %s; a share is above 0 and below 1",
                           asked.validate);
    return hold_out(r, share);
}

/* --validate with other data */
static int open_valid(run *r)
{
    int code;

    if (!asked.validate)
        return asked.patience ? usage_error("train", "--patience needs --validate") : TOOL_OK;
    if (r->valid)
        return TOOL_OK;
    code = open_split(r, asked.validate, TS_SPLIT_TEST, 0, &r->valid);
    if (code)
        return code == TOOL_USAGE ? code : failed();
    return check_test(r, r->valid);
}

int open_data(run *r)
{
    int code;

    code = recipe_inputs(&r->recipe, r->model);
    if (code)
        return code;
    code = open_split(r, asked.data, TS_SPLIT_TRAIN, asked.limit, &r->data);
    if (code)
        return code == TOOL_USAGE ? code : failed();
    code = recipe_check(&r->recipe, asked.data, r->data);
    if (code)
        return code;
    r->hash = data_hash(r->data);
    code = hold_share(r);
    if (code)
        return code;
    if (ts_dataset_sample(r->data, 0, &r->sample))
        return failed();
    r->recipe.rank = r->sample.rank;
    memcpy(r->recipe.dims, r->sample.dims, sizeof(r->recipe.dims));
    code = recipe_override("train", &r->recipe);
    if (code)
        return code;
    code = recipe_fit(asked.data, &r->recipe, r->data);
    if (code)
        return code;
    r->classes = ts_dataset_target_count(r->data) ? ts_dataset_target_count(r->data)
                                                  : ts_dataset_classes(r->data);
    recipe_settle(&r->recipe, asked.data, r->sample.dtype, true);
    if (asked.augment && r->sample.rank != 3)
        return explain(TS_ERR_ARG, asked.data, "opening the data", "leave out --augment",
                       "only images can be augmented, and the samples are none");
    if (!r->classes)
        return explain(TS_ERR_ARG, asked.data, "opening the data",
                       "a classifier learns from labels", "the data has no labels");
    code = open_test(r);
    return code ? code : open_valid(r);
}

/* --- the engine --- */

static const ts_tensor_info *last_output(const ts_executable *x)
{
    const ts_tensor_info *t = NULL, *next;

    for (int i = 0; (next = ts_executable_tensor(x, TS_ROLE_OUTPUT, i)); i++)
        t = next;
    return t;
}

static int wrong_loss(const run *r)
{
    bool classes = r->recipe.task != TASK_NUMBERS && r->recipe.task != TASK_LABELS;

    return explain(TS_ERR_UNSUPPORTED, ts_model_name(r->model), "preparing to train",
                   classes
                       ? "end the description with 'loss cross_entropy', or 'log_softmax' and "
                         "'loss nll'; or give --loss or --task"
                       : "end the description with 'loss mse' or 'loss bce_with_logits', or give "
                         "--loss",
                   "the model's loss does not compare scores with the %s of the data",
                   task_names[r->recipe.task]);
}

static bool has_places(const run *r)
{
    return r->recipe.task == TASK_TEXT || r->recipe.task == TASK_PIXELS;
}

/* Scores for each token, or for each label of a pixel, in the data's order. */
static bool fits_places(const run *r, const ts_tensor_info *scores)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_dataset_label_shape(r->data, dims);

    if (r->recipe.task == TASK_TEXT)
        return scores->rank == 3 && r->places == r->sample.dims[0];
    if (r->recipe.task != TASK_PIXELS)
        return scores->rank == 2;
    return scores->rank == rank + 2 &&
           !memcmp(scores->dims + 2, dims, sizeof(*dims) * (size_t)rank);
}

/* Classes, as integers; or as many numbers as the model gives. */
static bool compares(run *r, const ts_tensor_info *t, const ts_tensor_info *scores)
{
    r->feeds_targets = t && t->dtype == TS_F32;
    if (!t || (r->recipe.task == TASK_NUMBERS || r->recipe.task == TASK_LABELS || is_mixed()) !=
                  r->feeds_targets)
        return false;
    r->places = 1;
    for (int i = 2; has_places(r) && i < scores->rank; i++)
        r->places *= scores->dims[i];
    return r->feeds_targets ? t->bytes == scores->bytes
                            : t->dtype == TS_I32 && t->rank == scores->rank - 1;
}

/* Scores of batch x classes, or numbers; what to compare with; one loss. */
static int check_shapes(run *r)
{
    const ts_tensor_info *scores = ts_executable_tensor(r->exe, TS_ROLE_OUTPUT, 0);
    const ts_tensor_info *loss = last_output(r->exe);
    const char *name = ts_model_name(r->model);
    char shape[128];

    if (!compares(r, ts_executable_tensor(r->exe, TS_ROLE_INPUT, 1), scores) || loss == scores ||
        loss->dtype != TS_F32 || loss->rank)
        return wrong_loss(r);
    if (!fits_places(r, scores) || scores->dims[0] != asked.batch || scores->dtype != TS_F32)
        return explain(TS_ERR_SHAPE, name, "preparing to train",
                       r->recipe.task == TASK_PIXELS
                           ? "the labels are of pixels: a net for them ends with batch x classes x "
                             "the dims of a sample's labels"
                           : "a classifier ends with one score for each class of each sample",
                       "the model's result for %lld samples is %s, which are no scores of classes",
                       (long long)asked.batch,
                       shape_text(scores->rank, scores->dims, shape, sizeof(shape)));
    r->scores = scores->dims[1];
    if (r->scores < r->classes ||
        (r->scores > r->classes && r->recipe.task != TASK_CLASSES && r->recipe.task != TASK_PIXELS))
        return explain(TS_ERR_SHAPE, name, "preparing to train",
                       "write 'linear classes' as the last linear layer, and the data decides",
                       r->recipe.task == TASK_CLASSES || r->recipe.task == TASK_PIXELS
                           ? "the model tells %lld classes apart, the data has %d"
                           : "the model gives %lld numbers, the data has %d",
                       (long long)r->scores, r->classes);
    return TOOL_OK;
}

/* "Cut for 2 devices: conv1, conv2 | fc1, fc2; 19 % of their time idle, as modelled" */
static void say_cut(const ts_graph *g, const ts_options *opt)
{
    ts_plan_info *p;
    char line[600] = "";

    if (ts_plan_new(g, opt, &p))
        return;
    for (int d = 0; d < p->ndevices; d++)
        for (int i = 0, n = 0; i < p->nlayers; i++) {
            size_t used = strlen(line);
            if (p->layers[i].device == d && p->layers[i].name[0] && used < sizeof(line) - 80)
                snprintf(line + used, sizeof(line) - used, "%s%.60s",
                         n++ ? ", "
                         : d ? " | "
                             : "",
                         p->layers[i].name);
        }
    say("Cut for %d devices: %s; %.0f %% of their time idle, as modelled", p->ndevices, line,
        100 * p->bubble);
    ts_plan_free(p);
}

static int compile(run *r)
{
    ts_options opt = chosen_options();
    ts_model_options model = {.batch = asked.batch,
                              .rank = r->sample.rank,
                              .dims = r->sample.dims,
                              .classes = r->classes,
                              .training = true};
    int code = place("train", r->model, &model, &opt);

    opt.optimizer = &r->optimizer;
    opt.exceptions = asked.check_numbers;
    opt.profile = asked.profile;
    opt.profile_calls = (int)asked.profile_calls;
    opt.processes = rank_count();
    opt.output_mode = TS_OUTPUT_ALL;
    opt.progress = asked.quiet || asked.json ? NULL : ts_progress_bar;
    if (!code &&
        (ts_model_graph(r->model, &model, &r->graph) || ts_compile(r->graph, &opt, &r->exe)))
        code = failed();
    if (!code && opt.devices > 1 && !opt.nstages)
        say_cut(r->graph, &opt);
    if (!code && (opt.nstages > 1 || opt.devices > 1) && opt.schedule == TS_SCHEDULE_PIPELINED &&
        chosen.accumulation == 1)
        say("With --gradient-accumulation 1 the devices have nothing to overlap and take turns");
    return code;
}

static int allocate(run *r)
{
    size_t batches = (size_t)(r->rows / asked.batch);

    r->outputs[0] = malloc((size_t)(r->rows * r->scores * r->places) * sizeof(float));
    r->outputs[1] = malloc(batches * sizeof(float));
    if (r->recipe.task == TASK_PIXELS) {
        r->confusions = calloc((size_t)(r->scores * r->scores), sizeof(*r->confusions));
        if (!r->confusions || !progress_pixels(&r->done, (int)r->scores))
            return failure("out of memory for %lld classes", (long long)r->scores);
    }
    return r->outputs[0] && r->outputs[1]
               ? TOOL_OK
               : explain(TS_ERR_MEMORY, NULL, "preparing to train",
                         "fewer --device-iterations need less",
                         "no memory for the scores of %lld samples", (long long)r->rows);
}

int64_t usual_iterations(int64_t batches, int64_t most)
{
    for (int64_t d = batches < most ? batches : most; d > 1; d--)
        if (batches % d == 0)
            return d;
    return 1;
}

static int check_rows(const run *r)
{
    int64_t count = ts_dataset_count(r->data);

    if (r->calls)
        return TOOL_OK;
    return explain(TS_ERR_ARG, asked.data, "preparing to train",
                   "choose a smaller --batch-size, --device-iterations, --gradient-accumulation "
                   "or --replicas",
                   "one call of the engine takes %lld samples (%lld x %lld x %lld x %lld%s), the "
                   "data has %lld",
                   (long long)r->rows * rank_count(), (long long)asked.batch,
                   (long long)chosen.iterations, (long long)chosen.accumulation,
                   (long long)placed.replicas, ranks() ? ", in each process" : "",
                   (long long)count);
}

int make_engine(run *r)
{
    int code;

    r->rows = asked.batch * chosen.accumulation * chosen.iterations * placed.replicas;
    r->calls = ts_dataset_count(r->data) / (r->rows * rank_count());
    code = check_rows(r);
    if (!code)
        code = compile(r);
    if (!code)
        code = check_shapes(r);
    if (code)
        return code;
    if (ts_engine_new(r->exe,
                      &(ts_run_options){.threads = (int)asked.threads,
                                        .seed = (uint64_t)asked.seed,
                                        .comm = ranks()},
                      &r->engine))
        return failed();
    return allocate(r);
}

void release_engine(run *r)
{
    ts_engine_free(r->engine);
    ts_executable_free(r->exe);
    ts_graph_free(r->graph);
    free(r->outputs[0]);
    free(r->outputs[1]);
    free(r->confusions);
    r->confusions = NULL;
    r->engine = NULL;
    r->exe = NULL;
    r->graph = NULL;
    r->outputs[0] = r->outputs[1] = NULL;
}

int make_loader(run *r)
{
    ts_loader_options o = {.batch = r->rows,
                           .shuffle = true,
                           .seed = (uint64_t)asked.seed,
                           .drop_last = true,
                           .part = ranks() ? ranks()->rank : 0,
                           .parts = rank_count(),
                           .chunk = asked.batch * placed.replicas,
                           .normalize = normal_view(&r->recipe.normal),
                           .targets = normal_view(&r->recipe.targets),
                           .images = augmentation()};

    if (ts_loader_new(r->data, &o, &r->loader) ||
        ts_loader_seek(r->loader, r->done.epoch, r->done.call))
        return failed();
    return TOOL_OK;
}

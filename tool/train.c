/* train.c - tessera train: data in, trained model out. run() at the end has the order of things.
 *
 * Whatever can be found wrong is found before the first epoch: the options, the data, the test set,
 * the model's shapes; and the files that the end writes have their folders tried, the checkpoint by
 * writing it.
 */
#include "train.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

train_args asked = {
    .seed = 42, .schedule = "constant", .lr_gamma = 0.1, .precision = "f32", .profile_calls = 10};

static const option image_options[] = {
    {.name = "images, and how numbers are normalised",
     .kind = KIND_GROUP,
     .target = (void *)recipe_options},
    {"crop", "SIZE", KIND_TEXT, &asked.crop,
     .help = "with --resize N, which is the shorter side then: take the middle of images, 224 or "
             "224x160"},
    {"grayscale", NULL, KIND_FLAG, &asked.grayscale, .help = "make images gray"},
    {0},
};

static const option learned_options[] = {
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)table_options},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)text_options},
    {"scale", "WHAT", KIND_WORD, &recipe_asked.scale,
     "what the columns of a table, and numbers that are learned, become; standard is mean 0 and "
     "deviation 1, and usual for tables",
     .choice = "standard none"},
    {0},
};

static const option options[] = {
    {"DATA", NULL, KIND_TEXT, &asked.data,
     "mnist, fashion-mnist, or the path of a folder (IDX files, images by class) or file (.csv, "
     ".npy, .npz, .h5, .txt)",
     .takes = TAKES_DATA, .argument = true, .needed = true},
    {.name = "what is trained", .kind = KIND_TITLE},
    {"model", "NAME|FILE", KIND_TEXT, &asked.model,
     "the model: a name ('tessera models') or a file", .takes = TAKES_MODEL},
    {"epochs", "N", KIND_INT, &asked.epochs, "times through the data", .low = 1, .high = 1000000},
    {"batch-size", "N", KIND_INT, &asked.batch, "samples in a batch", .low = 1, .high = 1 << 20},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {.name = "learning", .kind = KIND_TITLE},
    {"lr-schedule", "NAME", KIND_WORD, &asked.schedule, "the learning rate over the run",
     .choice = "constant step cosine one-cycle plateau"},
    {"warmup", "X", KIND_REAL, &asked.warmup, "epochs in which the learning rate grows from 0",
     .low = 0, .high = 1e6},
    {"lr-every", "N", KIND_INT, &asked.lr_every,
     "epochs of a step, or without progress of a plateau; a third of all, or 2, when not given",
     .low = 1, .high = 1000000},
    {"lr-gamma", "X", KIND_REAL, &asked.lr_gamma, "what steps and plateaus multiply by", .low = 0,
     .high = 1},
    {"clip", "X", KIND_REAL, &asked.clip, "scale gradients down to this norm, all together",
     .low = 0, .high = 1e30},
    {"loss", "NAME", KIND_TEXT, &asked.loss,
     .help = "another loss than the description's: cross_entropy, mse, l1, smooth_l1, "
             "bce_with_logits and others"},
    {"label-smoothing", "X", KIND_REAL, &asked.smoothing, "share of all classes in each label",
     .low = 0, .high = 1},
    {"class-weights", "X,...", KIND_TEXT, &asked.class_weights,
     .help = "how much each class counts, or 'balanced': rare ones more"},
    {"ema", "X", KIND_REAL, &asked.ema,
     "average the weights, keeping this share at each update, as in 0.999; the average is the "
     "result",
     .low = 0, .high = 1},
    {"precision", "TYPE", KIND_WORD, &asked.precision,
     "what is computed with; weights and the loss are f32. half is f16",
     .choice = "f32 bf16 f16 half"},
    {.name = "validation, augmentation, fine-tuning", .kind = KIND_TITLE},
    {"augment", "WHAT,...", KIND_TEXT, &asked.augment,
     .help = "change images at random: flip, vflip, shift=4, rotate=10, color=0.2 (or brightness, "
             "contrast, saturation), cutout=8, mixup=0.2"},
    {"validate", "SHARE|DATA", KIND_TEXT, &asked.validate,
     "hold out a share of the training set, as in 0.1, or measure on other data after each epoch; "
     "the best weights are the result",
     .takes = TAKES_DATA},
    {"patience", "N", KIND_INT, &asked.patience,
     "with --validate: stop after so many epochs without a better one", .low = 1, .high = 1000000},
    {"weights", "FILE", KIND_TEXT, &asked.weights,
     "begin with the weights of a checkpoint that have the same names and shapes; its model, when "
     "--model is not given",
     .takes = TAKES_FILE},
    {"freeze", "PATTERN,...", KIND_TEXT, &asked.freeze,
     .help = "parameters that are not trained, as in 'conv1.*,layer?.*'"},
    {.name = "the run", .kind = KIND_TITLE},
    {"threads", "N", KIND_INT, &asked.threads,
     "threads to compute with; not given, as many of the cores as make it faster", .low = 1,
     .high = 1024},
    {"seed", "N", KIND_INT, &asked.seed,
     "of the first weights, the order of the samples, and dropout", .low = 0,
     .high = (double)(INT64_C(1) << 53)},
    {"limit", "N", KIND_INT, &asked.limit,
     "use only the first N samples of the training set and of the test set", .low = 1,
     .high = 1e15},
    {.name = "files", .kind = KIND_TITLE},
    {"output", "FILE", KIND_TEXT, &asked.output, "the model to write; MODEL.pth when not given",
     .takes = TAKES_FILE},
    {"resume", NULL, KIND_FLAG, &asked.resume,
     .help = "go on with the run that wrote the checkpoint beside the output"},
    {"overwrite", NULL, KIND_FLAG, &asked.overwrite,
     .help = "replace a finished model of the output's name"},
    {"checkpoint-every", "N", KIND_INT, &asked.every,
     "write the checkpoint also after so many steps of an epoch", .low = 1, .high = 1e15},
    {"logdir", "DIR", KIND_TEXT, &asked.logdir, "write TensorBoard events there",
     .takes = TAKES_FOLDER},
    {"csv", "FILE", KIND_TEXT, &asked.csv, "write a table with a row for each epoch",
     .takes = TAKES_FILE},
    {"plots", "DIR", KIND_TEXT, &asked.plots,
     "write plots there; the output's name with -plots when not given", .takes = TAKES_FOLDER},
    {"no-plots", NULL, KIND_FLAG, &asked.no_plots, .help = "write no plots"},
    {"profile", "DIR", KIND_TEXT, &asked.profile,
     "write what the step is made of, and what its kernels take, there: profile.db, trace.json",
     .takes = TAKES_FOLDER},
    {"calls", "N", KIND_INT, &asked.profile_calls,
     "with --profile: calls of the engine that are timed", .low = 1, .high = 1 << 20},
    {.name = "data", .kind = KIND_TITLE},
    {"data-dir", "DIR", KIND_TEXT, &asked.folder, "where the files of mnist or fashion-mnist are",
     .takes = TAKES_FOLDER},
    {"data", "DIR", KIND_TEXT, &asked.folder, "the same, as it was called before",
     .takes = TAKES_FOLDER},
    {.name = "images, and how numbers are normalised",
     .kind = KIND_GROUP,
     .target = (void *)image_options},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)learned_options},
    {.name = "reports", .kind = KIND_TITLE},
    {"check-numbers", NULL, KIND_FLAG, &asked.check_numbers,
     .help = "stop where an infinity or a NaN comes up, and say in which layer"},
    {"quiet", NULL, KIND_FLAG, &asked.quiet, .help = "no bars, and no line but the accuracy"},
    {"json", NULL, KIND_FLAG, &asked.json, .help = "print events, a JSON object a line; no bars"},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "devices, of a training step",
     .kind = KIND_GROUP,
     .target = (void *)place_training_options},
    {0},
};

/* --- what is usual --- */

typedef struct usual {
    const char *data, *model, *optimizer;
    int64_t epochs, batch, iterations;
    double lr, momentum;
} usual;

static const usual known[] = {
    {"fashion-mnist", "classifier", "sgd", 5, 16, 10, 0.001, 0.9},
    {"mnist", "mnist-cnn", "sgd", 10, 8, 50, 0.03, 0},
    {".txt", NULL, "adamw", 5, 32, 10, 0.001, 0},
    {NULL, NULL, "adam", 5, 16, 10, 0.001, 0},
};

static bool has_ending(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);

    return n > m && !strcasecmp(path + n - m, ending);
}

static const usual *find_usual(void)
{
    const usual *u = known;

    while (u->data && strcmp(u->data, asked.data) != 0 &&
           !(u->data[0] == '.' && has_ending(asked.data, u->data)))
        u++;
    return u;
}

/* Files of arrays may have labels of pixels: large pictures, one at a time. */
static int look_at_pixels(run *r, const usual **u)
{
    static const usual pixels = {NULL, "uresnet-a21", "adam", 25, 1, 1, 0.001, 0};
    static const char *const endings[] = {".h5", ".hdf5", ".npz"};
    bool may = false, are;
    ts_array sample;
    int code;

    for (int i = 0; i < COUNT(endings); i++)
        may = may || has_ending(asked.data, endings[i]);
    if (!may)
        return TOOL_OK;
    code = peek(r, 1, &sample, &are);
    if (!code && are)
        *u = &pixels;
    return code;
}

/* Images of some size get convolutions, texts a transformer. */
static int choose_model(run *r, const usual *u)
{
    ts_array sample;
    char shape[128];
    bool pixels;
    int code;

    if (given(&asked.model) || r->model)
        return TOOL_OK;
    asked.model = u->model;
    if (u->model)
        return TOOL_OK;
    code = peek(r, 16, &sample, &pixels);
    if (code)
        return code;
    asked.model = sample.dtype == TS_I32                                             ? "gpt"
                  : sample.rank == 3 && sample.dims[1] >= 16 && sample.dims[2] >= 16 ? "lenet"
                                                                                     : "mlp";
    say("For samples of %s the model is %s; --model chooses another",
        shape_text(sample.rank, sample.dims, shape, sizeof(shape)), asked.model);
    return TOOL_OK;
}

/* The learning rate of one optimizer says nothing about another's. */
static void fill_in(const usual *u)
{
    if (!given(&asked.epochs))
        asked.epochs = u->epochs;
    if (!given(&asked.batch))
        asked.batch = u->batch;
    if (!given(&chosen.optimizer))
        chosen.optimizer = u->optimizer;
    if (strcmp(chosen.optimizer, u->optimizer) != 0)
        return;
    if (!given(&chosen.lr))
        chosen.lr = u->lr;
    if (!given(&chosen.momentum))
        chosen.momentum = u->momentum;
}

/* --- names of files --- */

/* classifier.pth -> classifier, classifier.resume.pth, classifier-plots */
static int name_files(run *r)
{
    static const char *const endings[] = {".pth", ".pt", ".ckpt", ".safetensors"};
    const char *slash = strrchr(asked.model, '/'), *name = slash ? slash + 1 : asked.model;
    int stem = 0;

    if (asked.output)
        snprintf(r->output, sizeof(r->output), "%s", asked.output);
    else
        snprintf(r->output, sizeof(r->output), "%.*s.pth", (int)strcspn(name, "."), name);
    for (int i = 0; i < COUNT(endings); i++)
        if (has_ending(r->output, endings[i]))
            stem = (int)(strlen(r->output) - strlen(endings[i]));
    if (!stem || strlen(r->output) > PATH_MAX - 64)
        return usage_error("train",
                           "--output is '%.200s'; it must end in .pth, .pt, .ckpt or "
                           ".safetensors",
                           r->output);
    snprintf(r->resume, sizeof(r->resume), "%.*s.resume.pth", stem, r->output);
    if (asked.plots)
        snprintf(r->plots, sizeof(r->plots), "%s", asked.plots);
    else if (!asked.no_plots)
        snprintf(r->plots, sizeof(r->plots), "%.*s-plots", stem, r->output);
    return TOOL_OK;
}

/* --- the steps of run() --- */

static void settle_precision(void)
{
    if (!strcmp(asked.precision, "half"))
        asked.precision = "f16";
}

/* What its inputs are says how the data is read. */
static int load_model(run *r)
{
    if (!r->model && ts_model_load(asked.model, &r->model))
        return failed();
    return recipe_inputs(&r->recipe, r->model);
}

static int prepare(run *r, ts_object **file)
{
    const usual *u = find_usual();
    int code = read_augment();

    if (!code && asked.weights && !asked.resume)
        code = open_weights(r);
    if (!code && !asked.resume && given(&asked.model))
        code = load_model(r);
    if (!code && !asked.resume)
        code = look_at_pixels(r, &u);
    if (!code)
        code = choose_model(r, u);
    fill_in(u);
    if (r->model && !asked.model)
        asked.model = ts_model_name(r->model);
    if (!code)
        code = name_files(r);
    if (!code && is_first())
        code = claim_output(r);
    if (!code && asked.resume)
        code = resume_options(r, file);
    if (!code && asked.resume) /* what the line does not say, the checkpoint does */
        code = read_augment();
    settle_precision();
    if (!code && !asked.resume)
        code = load_model(r);
    if (!code)
        code = open_data(r);
    if (!code && !asked.resume)
        code = adapt_model(r);
    if (!code && !asked.resume && !given(&chosen.iterations))
        chosen.iterations =
            usual_iterations(ts_dataset_count(r->data) / (asked.batch * chosen.accumulation *
                                                          placed.replicas * rank_count()),
                             u->iterations);
    if (!code && !asked.resume)
        code = check_optimizer("train");
    r->optimizer = chosen_optimizer();
    r->optimizer.max_grad_norm = asked.clip;
    r->optimizer.automatic_scaling = !strcmp(asked.precision, "f16");
    if (r->optimizer.automatic_scaling)
        r->optimizer.loss_scaling = 65536;
    return code ? code : make_engine(r);
}

static int begin(run *r, const ts_object *file)
{
    int code = asked.resume ? resume_run(r, file) : is_first() ? set_aside(r) : TOOL_OK;

    if (!code && r->start)
        code = take_weights(r);
    if (!code)
        report_start(r, asked.resume);
    if (!code && is_first())
        code = keep_run(r);
    if (!code && is_first())
        code = plot_begin(r);
    if (!code)
        code = open_logs(r);
    return code ? code : make_loader(r);
}

static int evaluate(run *r, const ts_object *states)
{
    bool quiet = asked.quiet || asked.json;
    net_result result = {0};
    const ts_dataset *d = r->test ? r->test : r->valid ? r->valid : r->data;
    int code = judge(r, states, d, quiet ? NULL : "Evaluating", &result);
    char tag[32];

    if (code)
        return code;
    r->metric = metric_of(&result);
    snprintf(tag, sizeof(tag), "test/%s", metric_name(r->recipe.task));
    if (r->events && ts_events_scalar(r->events, tag, r->done.epoch, r->metric))
        code = failed();
    r->result = result;
    return code ? code : plot_end(r, d, &result);
}

static int end(run *r)
{
    ts_object *states;
    int code = keep_result(r, &states);

    if (code)
        return code;
    code = evaluate(r, states);
    ts_object_free(states);
    if (!code)
        code = close_logs(r);
    if (!code)
        report_end(r);
    return code;
}

static void release(run *r)
{
    close_logs(r);
    ts_loader_free(r->loader);
    ts_engine_free(r->engine);
    r->engine = NULL;
    ranks_close();
    release_engine(r);
    ts_model_free(r->model);
    ts_dataset_free(r->data);
    ts_dataset_free(r->test);
    ts_dataset_free(r->valid);
    ts_object_free(r->start);
    ts_object_free(r->best);
    ts_object_free(r->average);
    if (r->judge)
        net_free(r->judge);
    free(r->judge);
    free(r->source);
    progress_free(&r->done);
    net_result_free(&r->result);
    recipe_free(&r->recipe);
    release_output(r);
}

static int run_train(void)
{
    static run r; /* its paths and its curve are large for a stack */
    ts_object *file = NULL;
    int code = check_texts();

    if (code)
        return code;

    if (asked.plots && asked.no_plots)
        return usage_error("train", "--plots and --no-plots exclude each other");
    code = ranks_open();
    if (!code)
        code = prepare(&r, &file);
    if (!code)
        code = begin(&r, file);
    if (!code)
        code = train(&r);
    if (code > 128 && ranks_wait())
        code = TOOL_FAILED;
    if (code > 128 && is_first())
        report_stopped(&r, code - 128);
    if (!code && is_first())
        code = end(&r);
    release(&r);
    ts_object_free(file);
    return code;
}

const command train_command = {
    .name = "train",
    .summary = "Trains a model on a dataset and measures how good it is",
    .options = options,
    .run = run_train,
    .more = "Writes MODEL.pth, a state dict that torch.load and the other commands read, and "
            "beside it\n"
            "MODEL.resume.pth, which --resume goes on from, after Ctrl-C or a crash or with more\n"
            "--epochs. What is not given depends on the data:\n"
            "  fashion-mnist  classifier, 5 epochs, batch size 16, sgd, lr 0.001, momentum 0.9\n"
            "  mnist          mnist-cnn, 10 epochs, batch size 8, sgd, lr 0.03\n"
            "  a .txt file    gpt, 5 epochs, batch size 32, adamw, lr 0.001\n"
            "  labels of pixels  uresnet-a21, 25 epochs, batch size 1, adam, lr 0.001\n"
            "  other          lenet for images, else mlp; 5 epochs, batch size 16, adam, lr 0.001",
    .examples = "train fashion-mnist\n"
                "train mnist --model mnist-cnn --epochs 10 --batch-size 8 --lr 0.03\n"
                "train fashion-mnist --epochs 10 --resume\n"
                "train mnist --model mnist-pipeline --gradient-accumulation 8 --stages "
                "'B1|B2|B3,B4'\n"
                "train photos --resize 64 --model net.txt --output net.pth\n",
};

/* net.c - a net with its weights, ready for inference. Rows go through the engine a batch at a
 * time, or as many batches as a pipeline overlaps and replicas take; what is not full at the end is
 * filled up with zeros.
 */
#include "net.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_BATCH = 32, USUAL_ITERATIONS = 16 };

/* --- making --- */

/* What the scores are: the last layer says. */
static ts_status find_end(const ts_model *m, const ts_model_options *o, net_end *out)
{
    ts_model_layer *layers;
    const char *last;
    int n;
    ts_status s = ts_model_layers(m, o, &layers, &n);

    if (s)
        return s;
    last = n ? layers[n - 1].kind : "";
    *out = !strcmp(last, "log_softmax")                           ? NET_LOG_PROBABILITIES
           : !strcmp(last, "softmax") || !strcmp(last, "sigmoid") ? NET_PROBABILITIES
                                                                  : NET_LOGITS;
    free(layers);
    return TS_OK;
}

static int64_t elements(int rank, const int64_t *dims)
{
    int64_t n = 1;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return n;
}

/* The shapes of the executable; a classifier's scores are f32 of batch x classes. A run takes
 * `batches` of them. */
static int read_shapes(net *n, int64_t batches)
{
    const ts_tensor_info *x = ts_executable_tensor(n->exe, TS_ROLE_INPUT, 0);
    const ts_tensor_info *y = ts_executable_tensor(n->exe, TS_ROLE_OUTPUT, 0);
    char shape[128];

    if (y->rank < 2 || y->dims[0] != n->batch || y->dtype != TS_F32)
        return explain(TS_ERR_UNSUPPORTED, n->name, "making the net for inference",
                       "a classifier ends with one score for each class of each sample",
                       "the model's result for %lld samples is %s of %s, which are no scores of "
                       "classes",
                       (long long)n->batch, shape_text(y->rank, y->dims, shape, sizeof(shape)),
                       ts_dtype_name(y->dtype));
    n->rank = x->rank - 1;
    memcpy(n->dims, x->dims + 1, sizeof(*n->dims) * (size_t)n->rank);
    n->row = elements(n->rank, n->dims);
    n->classes = y->dims[1];
    n->places = elements(y->rank - 2, y->dims + 2);
    n->batch *= batches;
    n->in = calloc((size_t)batches, x->bytes);
    n->out = calloc((size_t)batches, y->bytes);
    return n->in && n->out ? TOOL_OK
                           : failure("out of memory for a batch of %lld", (long long)n->batch);
}

static int place_net(const ts_model *m, const net_options *o, const ts_model_options *how,
                     ts_options *opt)
{
    int code = o->command ? place(o->command, m, how, opt) : TOOL_OK;
    bool several = opt->nstages > 1 || opt->devices > 1;

    if (!o->command)
        opt->device_kind = o->kind;
    opt->device_iterations = o->iterations                                       ? o->iterations
                             : several && opt->schedule == TS_SCHEDULE_PIPELINED ? USUAL_ITERATIONS
                                                                                 : 1;
    return code;
}

static int compile(const ts_model *m, const net_options *o, net *n, ts_options *opt)
{
    ts_model_options how = {
        .batch = n->batch, .rank = o->rank, .dims = o->dims, .classes = o->classes};
    ts_graph *g = NULL;
    int code = place_net(m, o, &how, opt);
    ts_status s;

    if (code)
        return code;
    s = find_end(m, &how, &n->end);
    if (!s)
        s = ts_model_graph(m, &how, &g);
    if (!s)
        s = ts_compile(g, opt, &n->exe);
    ts_graph_free(g);
    if (!s)
        s = ts_engine_new(n->exe, &(ts_run_options){.threads = o->threads}, &n->engine);
    return s ? failed() : TOOL_OK;
}

int net_from_model(const ts_model *m, const net_options *o, net *out)
{
    ts_options opt = {.progress = o->quiet ? NULL : ts_progress_bar};
    int code;

    *out = (net){.batch = o->batch ? o->batch : USUAL_BATCH};
    printable(ts_model_name(m), out->name, sizeof(out->name));
    code = compile(m, o, out, &opt);
    if (!code)
        code = read_shapes(out, (int64_t)opt.device_iterations * (opt.replicas ? opt.replicas : 1));
    if (code)
        net_free(out);
    return code;
}

void net_free(net *n)
{
    ts_engine_free(n->engine);
    ts_executable_free(n->exe);
    free(n->in);
    free(n->out);
    *n = (net){0};
}

int net_from_weights(const weights *w, const net_options *o, net *out)
{
    net_options with = *o;
    int code;

    with.classes = o->classes ? o->classes : w->classes;
    if (!o->rank) {
        with.rank = w->recipe.rank;
        with.dims = w->recipe.dims;
    }
    code = net_from_model(w->model, &with, out);
    if (!code)
        code = net_load(out, w->states, w->path);
    if (code)
        net_free(out);
    return code;
}

/* --- weights --- */

static float half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float v = exponent == 31  ? (fraction ? NAN : INFINITY)
              : exponent == 0 ? ldexpf((float)fraction, -24)
                              : ldexpf((float)(fraction + 1024), exponent - 25);

    return bits >> 15 ? -v : v;
}

static float bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float v;

    memcpy(&v, &wide, sizeof(v));
    return v;
}

static float number_at(const ts_array *a, int64_t i)
{
    switch (a->dtype) {
    case TS_F64:
        return (float)((const double *)a->data)[i];
    case TS_F16:
        return half(((const uint16_t *)a->data)[i]);
    case TS_BF16:
        return bfloat(((const uint16_t *)a->data)[i]);
    default:
        return ((const float *)a->data)[i];
    }
}

/* Of another floating type: through f32. */
int weights_write(ts_engine *e, const ts_tensor_info *t, const ts_array *a)
{
    int64_t count = elements(a->rank, a->dims);
    float *values;
    ts_status s;

    if (a->dtype == t->dtype || t->dtype != TS_F32)
        return ts_engine_write(e, t->name, a->data, a->bytes) ? failed() : TOOL_OK;
    values = malloc((size_t)count * sizeof(*values));
    if (!values)
        return failure("out of memory for the weights %s", t->name);
    for (int64_t i = 0; i < count; i++)
        values[i] = number_at(a, i);
    s = ts_engine_write(e, t->name, values, (size_t)count * sizeof(*values));
    free(values);
    return s ? failed() : TOOL_OK;
}

int net_load(net *n, const ts_object *states, const char *where)
{
    const ts_tensor_info *t;
    int code = TOOL_OK;

    if (weights_compare(n->exe, states, NULL))
        return weights_misfit(n->exe, states, n->name, where);
    for (int i = 0; !code && (t = ts_executable_tensor(n->exe, TS_ROLE_STATE, i)); i++)
        code = weights_write(n->engine, t, ts_object_array(ts_object_get(states, t->name)));
    return code;
}

/* --- scores --- */

int net_scores(net *n, const float *rows, int64_t count, float *scores)
{
    for (int64_t at = 0; at < count; at += n->batch) {
        int64_t now = count - at < n->batch ? count - at : n->batch;
        size_t used = (size_t)(now * n->row), all = (size_t)(n->batch * n->row);

        memcpy(n->in, rows + at * n->row, used * sizeof(float));
        memset(n->in + used, 0, (all - used) * sizeof(float));
        if (ts_engine_run(n->engine, (const void *[]){n->in}, (void *[]){n->out}))
            return failed();
        memcpy(scores + at * n->classes, n->out, (size_t)(now * n->classes) * sizeof(float));
    }
    return TOOL_OK;
}

/* log(sum(exp(x))) without overflow. */
static double log_sum(const float *x, int64_t n)
{
    double most = x[0], sum = 0;

    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

static double log_probability(const net *n, const float *scores, int64_t i)
{
    switch (n->end) {
    case NET_LOG_PROBABILITIES:
        return scores[i];
    case NET_PROBABILITIES:
        return log(scores[i]);
    default:
        return scores[i] - log_sum(scores, n->classes);
    }
}

void net_probabilities(const net *n, const float *scores, float *p)
{
    double sum = n->end == NET_LOGITS ? log_sum(scores, n->classes) : 0;

    for (int64_t i = 0; i < n->classes; i++)
        p[i] = n->end == NET_PROBABILITIES ? scores[i] : (float)exp(scores[i] - sum);
}

/* --- evaluation --- */

/* Scores of a text, and of pixels, are classes x places. */
int64_t best_class(const float *scores, int64_t classes, int64_t places)
{
    int64_t at = 0;

    for (int64_t c = 1; c < classes; c++)
        if (scores[c * places] > scores[at * places])
            at = c;
    return at;
}

static int check_targets(const net *n, const ts_dataset *d)
{
    if (ts_dataset_target_count(d) == n->classes)
        return TOOL_OK;
    return explain(TS_ERR_SHAPE, n->name, "evaluating the net",
                   "--label names the columns that were learned",
                   "the net gives %lld numbers, the data has %d to compare with",
                   (long long)n->classes, ts_dataset_target_count(d));
}

int net_no_classes(const net *n, const char *doing)
{
    return explain(
        TS_ERR_UNSUPPORTED, n->name, doing,
        "a classifier ends with one score for each class of each sample",
        "the model '%s' gives scores of %lld classes at %lld places of a sample, which are no "
        "scores of classes",
        n->name, (long long)n->classes, (long long)n->places);
}

static int check_data(const net *n, const recipe *how, const ts_dataset *d)
{
    char have[128], want[128];
    ts_array sample;

    if (ts_dataset_sample(d, 0, &sample))
        return failed();
    if (sample.rank != n->rank || memcmp(sample.dims, n->dims, sizeof(*n->dims) * (size_t)n->rank))
        return explain(TS_ERR_SHAPE, n->name, "evaluating the net",
                       "use data of the shape that the net was trained on",
                       "the net takes samples of %s, the data has samples of %s",
                       shape_text(n->rank, n->dims, want, sizeof(want)),
                       shape_text(sample.rank, sample.dims, have, sizeof(have)));
    if (how->task == TASK_NUMBERS || how->task == TASK_LABELS)
        return check_targets(n, d);
    if (how->task == TASK_CLASSES && n->places > 1)
        return net_no_classes(n, "evaluating the net");
    if (ts_dataset_label_count(d) != n->places)
        return explain(TS_ERR_SHAPE, n->name, "evaluating the net", NULL,
                       "the net gives scores for %lld places of a sample, the data has %lld labels",
                       (long long)n->places, (long long)ts_dataset_label_count(d));
    if (!ts_dataset_classes(d))
        return explain(TS_ERR_ARG, n->name, "evaluating the net", NULL,
                       "the data has no labels to compare with");
    if (ts_dataset_classes(d) > n->classes)
        return explain(TS_ERR_SHAPE, n->name, "evaluating the net",
                       "use data of the classes that the net was trained on",
                       "the net tells %lld classes apart, the data has %d", (long long)n->classes,
                       ts_dataset_classes(d));
    return TOOL_OK;
}

static void count_class(const net *n, const ts_batch *b, int64_t i, net_result *r)
{
    const float *scores = n->out + i * n->classes;
    int64_t guess = best_class(scores, n->classes, 1);

    r->counts[b->labels[i] * n->classes + guess]++;
    r->right += guess == b->labels[i];
    r->loss -= log_probability(n, scores, b->labels[i]);
}

/* -log p of a class, without overflow; log probabilities have a sum of 1 already. */
static double loss_at(const net *n, const float *scores, int64_t best, int32_t label)
{
    double most = scores[best * n->places], sum = 0;

    if (n->end == NET_PROBABILITIES)
        return -log(fmax(scores[label * n->places], 1e-30));
    for (int64_t c = 0; c < n->classes; c++)
        sum += exp(scores[c * n->places] - most);
    return most + log(sum) - scores[label * n->places];
}

static void count_places(const net *n, const ts_batch *b, int64_t i, net_result *r)
{
    const float *scores = n->out + i * n->classes * n->places;

    for (int64_t t = 0; t < n->places; t++) {
        int32_t label = b->labels[i * n->places + t];
        int64_t guess = best_class(scores + t, n->classes, n->places);
        r->loss += loss_at(n, scores + t, guess, label) / (double)n->places;
        r->right += guess == label;
        if (r->counts)
            r->counts[label * n->classes + guess]++;
    }
}

void net_classes(const net *n, const float *scores, int32_t *out)
{
    for (int64_t t = 0; t < n->places; t++)
        out[t] = (int32_t)best_class(scores + t, n->classes, n->places);
}

/* -log p(t) of a logit, without overflow. */
static double label_loss(const net *n, float y, float t)
{
    if (n->end == NET_PROBABILITIES)
        return -(t > 0.5f ? log(fmax(y, 1e-12)) : log(fmax(1 - y, 1e-12)));
    return fmax(y, 0) - y * t + log1p(exp(-fabs(y)));
}

static double deviation_of(const recipe *how, int64_t i)
{
    return how->targets.n ? how->targets.deviation[how->targets.n > 1 ? i : 0] : 1;
}

void net_values(const net *n, const recipe *how, const float *scores, float *out)
{
    for (int64_t i = 0; i < n->classes; i++) {
        double mean = how->targets.n ? how->targets.mean[how->targets.n > 1 ? i : 0] : 0;
        out[i] = how->task == TASK_NUMBERS     ? (float)(scores[i] * deviation_of(how, i) + mean)
                 : n->end == NET_PROBABILITIES ? scores[i]
                                               : (float)(1 / (1 + exp(-scores[i])));
    }
}

static void keep_values(const net *n, const recipe *how, const ts_batch *b, int64_t i,
                        net_result *r)
{
    const float *scores = n->out + i * n->classes, *t = b->targets + i * n->classes;
    float *out = r->predicted + r->count * n->classes;

    net_values(n, how, scores, out);
    for (int64_t c = 0; c < n->classes; c++) {
        double e = (out[c] - t[c]) / deviation_of(how, c);
        r->loss += (how->task == TASK_NUMBERS ? e * e : label_loss(n, scores[c], t[c])) /
                   (double)n->classes;
    }
}

static ts_status run_batch(net *n, const void *samples)
{
    if (!n->shipped)
        return ts_engine_run(n->engine, (const void *[]){samples}, (void *[]){n->out});
    shipped_run(n->shipped, samples, n->out);
    return TS_OK;
}

static ts_status run_batches(net *n, const recipe *how, ts_loader *l, ts_bar *bar, net_result *r)
{
    ts_status s = TS_OK;
    ts_batch b;

    for (int64_t step = 0; !s && step < ts_loader_steps(l); step++) {
        s = ts_loader_next(l, &b);
        if (!s)
            s = run_batch(n, b.samples);
        for (int64_t i = 0; !s && i < b.rows; i++, r->count++)
            if (r->task == TASK_TEXT || r->task == TASK_PIXELS)
                count_places(n, &b, i, r);
            else if (r->task == TASK_CLASSES)
                count_class(n, &b, i, r);
            else
                keep_values(n, how, &b, i, r);
        ts_bar_update(bar, 1);
    }
    return s;
}

static int result_room(const net *n, const ts_dataset *d, net_result *out)
{
    size_t classes = (size_t)n->classes;

    if (out->task == TASK_TEXT)
        return TOOL_OK;
    if (out->task == TASK_CLASSES || out->task == TASK_PIXELS)
        out->counts = calloc(classes, classes * sizeof(*out->counts));
    else
        out->predicted = calloc((size_t)ts_dataset_count(d), classes * sizeof(float));
    return out->counts || out->predicted
               ? TOOL_OK
               : failure("out of memory for the results of %d classes", out->classes);
}

int net_evaluate(net *n, const ts_dataset *d, const recipe *how, const char *label, net_result *out)
{
    ts_loader_options o = {.batch = n->batch, .normalize = normal_view(&how->normal)};
    ts_loader *l;
    ts_bar *bar;
    ts_status s;

    *out = (net_result){.task = how->task, .classes = (int)n->classes};
    if (check_data(n, how, d))
        return TOOL_FAILED;
    if (ts_loader_new(d, &o, &l))
        return failed();
    if (result_room(n, d, out)) {
        ts_loader_free(l);
        return TOOL_FAILED;
    }
    bar = label ? ts_bar_open(&(ts_bar_options){
                      .label = label, .total = ts_loader_steps(l), .transient = true})
                : NULL;
    s = run_batches(n, how, l, bar, out);
    ts_bar_close(bar);
    ts_loader_free(l);
    out->accuracy = out->count ? (double)out->right / (double)(out->count * n->places) : 0;
    out->loss = out->count ? out->loss / (double)out->count : 0;
    if (out->task == TASK_PIXELS) {
        out->nonzero = nonzero_of(out->counts, out->classes);
        out->mean_iou = mean_iou_of(out->counts, out->classes, 0);
        out->mean_iou_nonzero = mean_iou_of(out->counts, out->classes, 1);
    }
    if (!s && out->predicted && measure(out, ts_dataset_targets(d)))
        return TOOL_FAILED;
    if (s)
        net_result_free(out);
    return s ? failed() : TOOL_OK;
}

void net_result_free(net_result *r)
{
    free(r->counts);
    free(r->predicted);
    *r = (net_result){0};
}

/* train.c - the usual loop over samples in memory: shuffle, gather, run, report.
 *
 *   data[i]    sample 0 | sample 1 | ... | sample n-1      input i, as the user has it
 *                  \________   ____________/
 *   order      7 2 9 ...    \ /                            a new permutation each epoch
 *   staging    sample 7 | sample 2 | sample 9 | ...        D*A micro-batches, what one call takes
 *
 * The order depends on the seed and the epoch only, so a run can be repeated and resumed. What does
 * not fill a call is dropped. Everything is allocated before the first call.
 */
#include "run/run.h"

typedef struct trainer {
    ts_engine *e;
    const ts_executable *x;
    const ts_train_options *opt;
    int64_t n, per_call, steps;
    const void *const *data;
    int64_t *order;    /* NULL: as they come */
    const void **feed; /* what a call gets: staging, or the data itself */
    void **staging;
    void **out;
    void *losses;
} trainer;

static const ts_slot *loss_of(const ts_executable *x)
{
    const ts_slot *s = x->noutputs ? &x->outputs[x->noutputs - 1] : NULL;

    return s && ts_dtype_is_float(s->info.dtype) && s->info.bytes == ts_dtype_size(s->info.dtype)
               ? s
               : NULL;
}

static size_t sample_bytes(const ts_slot *s)
{
    return s->info.bytes / (size_t)s->info.dims[0];
}

/* Of one call. */
static int64_t micro_batches(const ts_executable *x)
{
    return (int64_t)x->device_iterations * x->gradient_accumulation * x->replicas;
}

static ts_status check(const trainer *t)
{
    const ts_executable *x = t->x;
    const void *const *data = t->data;
    int64_t batch = x->ninputs && x->inputs[0].info.rank ? x->inputs[0].info.dims[0] : 0;
    int64_t calls = micro_batches(x), n = t->n;

    if (t->opt->epochs < 0)
        return ts_fail(TS_ERR_ARG, "epochs is %d; it must not be negative", t->opt->epochs);
    if (!x->ninputs)
        return ts_fail(TS_ERR_ARG, "the network has no inputs to feed samples to");
    if (!loss_of(x)) {
        ts_fail(TS_ERR_ARG, "the network has no loss to train on");
        ts_error_hint("mark it with ts_loss()");
        return TS_ERR_ARG;
    }
    for (int i = 0; i < x->ninputs; i++) {
        const ts_tensor_info *t = &x->inputs[i].info;
        if (!data || !data[i])
            return ts_fail(TS_ERR_ARG, "the samples of input %d (%s) are NULL", i, t->name);
        if (!t->rank || t->dims[0] != batch)
            return ts_fail(TS_ERR_SHAPE,
                           "input %s must have the batch of %ld samples as its first dim", t->name,
                           (long)batch);
    }
    if (n >= batch * calls)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "one call takes %ld samples (%ld micro-batches of %ld), got %ld",
            (long)(batch * calls), (long)calls, (long)batch, (long)n);
    ts_error_hint("give more samples, or fewer device_iterations or less gradient_accumulation");
    return TS_ERR_ARG;
}

static ts_status allocate(trainer *t)
{
    const ts_executable *x = t->x;
    size_t pointers = (size_t)x->ninputs * sizeof(void *);

    TS_TRY(ts_alloc(pointers, "pointers to samples", (void **)&t->feed));
    TS_TRY(ts_alloc(pointers, "pointers to samples", (void **)&t->staging));
    TS_TRY(ts_alloc((size_t)x->noutputs * sizeof(void *), "pointers to outputs", (void **)&t->out));
    TS_TRY(ts_alloc((size_t)ts_engine_slots(t->e) * loss_of(x)->info.bytes, "losses", &t->losses));
    t->out[x->noutputs - 1] = t->losses;
    if (t->opt->no_shuffle)
        return TS_OK;
    TS_TRY(ts_alloc((size_t)t->n * sizeof(int64_t), "the order of samples", (void **)&t->order));
    for (int i = 0; i < x->ninputs; i++)
        TS_TRY(ts_alloc((size_t)t->per_call * sample_bytes(&x->inputs[i]), "staged samples",
                        &t->staging[i]));
    return TS_OK;
}

static void release(trainer *t)
{
    for (int i = 0; i < t->x->ninputs && t->staging; i++)
        free(t->staging[i]);
    free(t->staging);
    free(t->feed);
    free(t->out);
    free(t->losses);
    free(t->order);
}

static void gather(const trainer *t, int64_t step)
{
    const int64_t *order = t->order + step * t->per_call;

    for (int i = 0; i < t->x->ninputs; i++) {
        size_t bytes = sample_bytes(&t->x->inputs[i]);
        char *to = t->staging[i];
        t->feed[i] = to;
        for (int64_t k = 0; k < t->per_call; k++, to += bytes)
            memcpy(to, (const char *)t->data[i] + (size_t)order[k] * bytes, bytes);
    }
}

static void point_at(const trainer *t, int64_t step)
{
    for (int i = 0; i < t->x->ninputs; i++)
        t->feed[i] = (const char *)t->data[i] +
                     (size_t)(step * t->per_call) * sample_bytes(&t->x->inputs[i]);
}

static double mean_loss(const trainer *t)
{
    int slots = ts_engine_slots(t->e);
    double sum = 0;

    for (int i = 0; i < slots; i++)
        sum += ts_dtype_get(loss_of(t->x)->info.dtype, t->losses, i);
    if (t->x->mode == TS_OUTPUT_SUM)
        return sum / (double)micro_batches(t->x);
    return sum / slots;
}

static ts_status train(const trainer *t, double *loss)
{
    int epochs = TS_MAX(1, t->opt->epochs);

    for (int epoch = 0; epoch < epochs; epoch++) {
        if (t->order)
            ts_random_order(t->opt->seed, (uint64_t)epoch, t->n, t->order);
        for (int64_t step = 0; step < t->steps; step++) {
            if (t->order)
                gather(t, step);
            else
                point_at(t, step);
            TS_TRY(ts_engine_run(t->e, t->feed, t->out));
            *loss = mean_loss(t);
            if (t->opt->report && !t->opt->report(t->opt->arg, epoch, step, t->steps, *loss))
                return TS_OK;
        }
    }
    return TS_OK;
}

ts_status ts_train_sized(ts_engine *e, int64_t n, const void *const *data,
                         const ts_train_options *opt, size_t size, double *last_loss)
{
    ts_train_options own;
    trainer t = {.e = e, .opt = &own, .n = n, .data = data};
    double loss = 0;
    ts_status s;

    TS_TRY(ts_take_sized("ts_train", opt, size, &own, sizeof(own)));
    TS_TRY(ts_engine_executable(e, &t.x));
    s = check(&t);
    if (s) {
        ts_error_doing("preparing to train");
        return s;
    }
    t.per_call = t.x->inputs[0].info.dims[0] * micro_batches(t.x);
    t.steps = n / t.per_call;
    s = allocate(&t);
    if (!s)
        s = train(&t, &loss);
    release(&t);
    if (!s && last_loss)
        *last_loss = loss;
    return s;
}

/* loader.c - batches of a dataset, made ahead by threads.
 *
 * Batches are numbered through all epochs: number = epoch * steps + step. A ring of slots holds
 * some of them:
 *
 *   slots     | 7 held | 8 ready | 9 being made | 6 free |       slot = number % nslots
 *                 ^          ^            ^         ^
 *               user       taken                  made: the next number to begin
 *
 * A thread begins a number under the lock, which also writes down the rows that belong to it, and
 * fills the slot without the lock. Numbers begin in order, so one permutation, of the epoch that
 * `made` is in, is enough, and which thread makes a batch cannot change what is in it. The user's
 * slot is not touched until his next call.
 *
 * bench/loader.c, batches of 16 images of 28x28, shuffled, ToTensor and Normalize, on two Zen 4
 * cores that other programs kept busy (load 6), rows a second: without threads 1.2 to 2.6 million,
 * median 1.6 of 10 runs; one thread, handing over included, 0.40 to 1.07 million, median 0.78 of 13
 * runs. A quiet machine has not been measured. Tried and dropped: letting a caller who finds
 * nothing begun make the batch himself gave one thread a fifth more and took a third from two (8
 * pairs of runs).
 */
#include "data/data.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>

enum {
    AUGMENT_STREAM = 0xa06e,
    IMAGE_STREAM = 0x17a6e,
    PARTNER_STREAM = 0x9a27,
    MOST_THREADS = 256,
    MOST_PREFETCH = 1 << 16,
    CACHE_LINE = 64,
    ASK_BYTES = 4096, /* past these the processor follows by itself */
};

typedef struct slot {
    float *samples;
    int32_t *labels;
    float *targets; /* NULL: none */
    float *scratch; /* two samples; NULL: images stay as they are */
    void *raw; /* a sample as the program makes it, and its targets; NULL: they are in memory */
    float *raw_targets;
    int32_t raw_label;
    int64_t *rows; /* which samples */
    int64_t count; /* of them */
    int64_t epoch;
    bool ready;
    ts_error error; /* code TS_OK: none */
} slot;

struct ts_loader {
    const ts_dataset *d;
    ts_loader_options opt;
    ts_scale scale;
    int64_t elements; /* of a sample */
    int64_t
        ntargets;  /* of a sample in a batch: the dataset's, or the classes when they are mixed */
    int64_t steps; /* of an epoch */
    slot *slots;
    int nslots;
    int64_t *order; /* of the samples in order_epoch; NULL: as they are stored */
    int64_t order_epoch;

    pthread_t *threads;
    int nthreads;
    pthread_mutex_t lock; /* of all that follows, and of order and the slots' fields */
    pthread_cond_t work;  /* a slot became free, or quit */
    pthread_cond_t done;  /* a slot became ready, or a thread idle */
    int64_t made, taken;  /* numbers: the next to begin, the next for the user */
    bool held;            /* the user has taken - 1 */
    int busy;             /* slots being filled */
    bool quit;
};

/* --- making a batch --- */

static slot *slot_of(const ts_loader *l, int64_t number)
{
    return &l->slots[number % l->nslots];
}

static bool may_begin(const ts_loader *l)
{
    return l->made - (l->taken - l->held) < l->nslots;
}

/* Row i of this part's batch, counted in the batches of all parts. */
static int64_t dealt(const ts_loader_options *o, int64_t i)
{
    return (i / o->chunk * o->parts + o->part) * o->chunk + i % o->chunk;
}

/* Under the lock: the rows of number `made`. */
static slot *begin(ts_loader *l)
{
    slot *s = slot_of(l, l->made);
    int64_t epoch = l->made / l->steps, first = l->made % l->steps * l->opt.batch * l->opt.parts;

    if (l->order && epoch != l->order_epoch) {
        ts_random_order(l->opt.seed, (uint64_t)epoch, l->d->count, l->order);
        l->order_epoch = epoch;
    }
    s->epoch = epoch;
    s->count = TS_MIN(l->opt.batch, l->d->count - first);
    for (int64_t i = 0; i < s->count; i++) {
        int64_t row = first + dealt(&l->opt, i);
        s->rows[i] = l->order ? l->order[row] : row;
    }
    s->ready = false;
    s->error.code = TS_OK;
    l->made++;
    l->busy++;
    return s;
}

/* A sample as the dataset has it. */
typedef struct original {
    const void *sample;
    const int32_t *labels;
    const float *targets;
} original;

static ts_status take(const ts_loader *l, slot *s, int64_t row, original *out)
{
    const ts_dataset *d = l->d;

    if (d->read) {
        *out = (original){s->raw, &s->raw_label, s->raw_targets};
        return ts_dataset_read(d, row, s->raw, &s->raw_label, s->raw_targets);
    }
    *out = (original){ts_dataset_at(d, row), d->labels + row * d->nlabels,
                      d->ntargets ? d->targets + row * d->ntargets : NULL};
    return TS_OK;
}

static ts_status augment(const ts_loader *l, const slot *s, int64_t row, int32_t label,
                         float *sample)
{
    uint64_t random =
        ts_random_bits(l->opt.seed, AUGMENT_STREAM, (uint64_t)s->epoch, (uint64_t)row);

    if (l->opt.augment(l->opt.augment_arg, sample, label, random))
        return TS_OK;
    ts_fail(TS_ERR_ARG, "the augment function failed on sample %ld in epoch %ld", (long)row,
            (long)s->epoch);
    ts_error_doing("making a batch");
    return TS_ERR_ARG;
}

/* A shuffled sample is in no cache. Asked for while the one before it is made, it is there in time:
 * 2.8 to 3.0 million 28x28 images a second of processor time, and 1.5 to 1.65 without (batches of
 * 64, no threads). */
static void ask_for(const ts_loader *l, int64_t row)
{
    const char *sample = ts_dataset_at(l->d, row);

    for (size_t at = 0; !l->d->read && at < TS_MIN(l->d->sample.bytes, (size_t)ASK_BYTES);
         at += CACHE_LINE)
        __builtin_prefetch(sample + at);
}

/* Of classes that are mixed: 1 at the one it is. */
static void fill_targets(const ts_loader *l, const original *of, float *to)
{
    const ts_normalize *how = &l->opt.targets;
    int n = l->d->ntargets;
    const float *from = of->targets;

    if (!n) {
        memset(to, 0, (size_t)l->ntargets * sizeof(float));
        to[of->labels[0]] = 1;
    }
    for (int i = 0; i < n; i++) {
        int k = how->n > 1 ? i : 0;
        to[i] = how->n ? (float)((from[i] - how->mean[k]) / how->deviation[k]) : from[i];
    }
}

/* With another sample of the dataset, which is changed as it would be by itself. */
static ts_status mix(const ts_loader *l, slot *s, int64_t i, uint64_t random, float *sample)
{
    const ts_augment *how = l->opt.images;
    uint64_t other =
        ts_random_bits(l->opt.seed, PARTNER_STREAM, (uint64_t)s->epoch, (uint64_t)s->rows[i]);
    int64_t row = (int64_t)(other % (uint64_t)l->d->count);
    float share = (float)ts_augment_share(how, random),
          *partner = s->scratch + TS_MAX(l->elements, l->ntargets);
    float *mine = s->targets + i * l->ntargets;
    original of;

    TS_TRY(take(l, s, row, &of));
    ts_scale_run(&l->scale, of.sample, partner);
    ts_augment_run(how, &l->d->sample, &l->opt.normalize, other, partner, s->scratch, NULL, 0);
    for (int64_t k = 0; k < l->elements; k++)
        sample[k] = share * sample[k] + (1 - share) * partner[k];
    if (!s->targets)
        return TS_OK;
    fill_targets(l, &of, s->scratch); /* it has room: a slot's scratch is large enough for both */
    for (int64_t k = 0; k < l->ntargets; k++)
        mine[k] = share * mine[k] + (1 - share) * s->scratch[k];
    return TS_OK;
}

static ts_status change_image(const ts_loader *l, slot *s, int64_t i, float *sample)
{
    uint64_t random =
        ts_random_bits(l->opt.seed, IMAGE_STREAM, (uint64_t)s->epoch, (uint64_t)s->rows[i]);

    ts_augment_run(l->opt.images, &l->d->sample, &l->opt.normalize, random, sample, s->scratch,
                   s->labels + i * l->d->nlabels, l->d->label_rank ? l->d->nlabels : 0);
    return l->opt.images->mixup > 0 ? mix(l, s, i, random, sample) : TS_OK;
}

static ts_status fill_row(const ts_loader *l, slot *s, int64_t i)
{
    int64_t labels = l->d->nlabels;
    float *sample = s->samples + i * l->elements;
    original of;

    if (i + 1 < s->count)
        ask_for(l, s->rows[i + 1]);
    TS_TRY(take(l, s, s->rows[i], &of));
    ts_scale_run(&l->scale, of.sample, sample);
    memcpy(s->labels + i * labels, of.labels, (size_t)labels * sizeof(int32_t));
    if (s->targets)
        fill_targets(l, &of, s->targets + i * l->ntargets);
    if (l->opt.images)
        TS_TRY(change_image(l, s, i, sample));
    return l->opt.augment ? augment(l, s, s->rows[i], s->labels[i * labels], sample) : TS_OK;
}

static ts_status fill(const ts_loader *l, slot *s)
{
    int64_t targets = l->ntargets, labels = l->d->nlabels;

    for (int64_t i = 0; i < s->count; i++)
        TS_TRY(fill_row(l, s, i));
    memset(s->samples + s->count * l->elements, 0,
           (size_t)((l->opt.batch - s->count) * l->elements) * sizeof(float));
    memset(s->labels + s->count * labels, 0,
           (size_t)((l->opt.batch - s->count) * labels) * sizeof(int32_t));
    if (s->targets)
        memset(s->targets + s->count * targets, 0,
               (size_t)((l->opt.batch - s->count) * targets) * sizeof(float));
    return TS_OK;
}

/* Called and returns with the lock; leaves it while the slot is filled. */
static void make_one(ts_loader *l)
{
    slot *s = begin(l);
    ts_status status;

    pthread_mutex_unlock(&l->lock);
    status = fill(l, s);
    pthread_mutex_lock(&l->lock);
    if (status)
        s->error = *ts_last_error();
    s->ready = true;
    l->busy--;
    pthread_cond_broadcast(&l->done);
}

static void *work(void *arg)
{
    ts_loader *l = arg;

    pthread_mutex_lock(&l->lock);
    while (!l->quit)
        if (may_begin(l))
            make_one(l);
        else
            pthread_cond_wait(&l->work, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* --- what the user calls --- */

/* The slot of number `taken`, which is ready or about to be. */
static slot *wait_for(ts_loader *l)
{
    slot *s = slot_of(l, l->taken);

    while (l->made <= l->taken || !s->ready)
        if (l->nthreads)
            pthread_cond_wait(&l->done, &l->lock);
        else
            make_one(l);
    return s;
}

ts_status ts_loader_next_sized(ts_loader *l, ts_batch *out, size_t size)
{
    ts_batch b;
    const slot *s;
    ts_status status;

    pthread_mutex_lock(&l->lock);
    l->held = false;
    pthread_cond_broadcast(&l->work);
    s = wait_for(l);
    status = s->error.code;
    if (status) {
        ts_error_set(&s->error);
    } else {
        b = (ts_batch){.samples = s->samples,
                       .labels = s->labels,
                       .targets = s->targets,
                       .rows = s->count,
                       .epoch = l->taken / l->steps,
                       .step = l->taken % l->steps};
        if (l->d->sample.dtype == TS_I32)
            b.indices = (const int32_t *)s->samples;
        ts_give(&b, sizeof(b), out, size);
        l->taken++;
        l->held = true;
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

int64_t ts_loader_steps(const ts_loader *l)
{
    return l->steps;
}

/* Only the caller's own calls change `taken`, so it needs no lock to read it. */
void ts_loader_position(const ts_loader *l, int64_t *epoch, int64_t *step)
{
    *epoch = l->taken / l->steps;
    *step = l->taken % l->steps;
}

ts_status ts_loader_seek(ts_loader *l, int64_t epoch, int64_t step)
{
    if (epoch < 0 || step < 0 || step >= l->steps || epoch >= INT64_MAX / 2 / l->steps)
        return ts_fail(TS_ERR_ARG, "there is no step %ld of epoch %ld: an epoch has %ld steps",
                       (long)step, (long)epoch, (long)l->steps);
    pthread_mutex_lock(&l->lock);
    l->made = l->taken + l->nslots; /* nothing may begin */
    while (l->busy)
        pthread_cond_wait(&l->done, &l->lock);
    l->made = l->taken = epoch * l->steps + step;
    l->held = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return TS_OK;
}

/* --- making and ending a loader --- */

static ts_status check_parts(const ts_loader_options *o)
{
    int64_t batch = TS_MAX(1, o->batch);

    if (o->parts < 0 || o->part < 0 || o->part >= TS_MAX(1, o->parts))
        return ts_fail(TS_ERR_ARG, "a loader cannot be part %d of %d", o->part, o->parts);
    if (o->chunk < 0 || (o->chunk && batch % o->chunk))
        return ts_fail(TS_ERR_ARG, "chunks of %ld rows do not divide a batch of %ld",
                       (long)o->chunk, (long)batch);
    if (o->parts > 1 && !o->drop_last) {
        ts_fail(TS_ERR_ARG, "a loader that is one of %d parts has no incomplete batches", o->parts);
        ts_error_hint("set drop_last");
        return TS_ERR_ARG;
    }
    return TS_OK;
}

/* Labels of pixels are moved with them; what mixes pictures, or changes them unseen, cannot be. */
static ts_status check_pixels(const ts_dataset *d, const ts_loader_options *o)
{
    if (!d->label_rank)
        return TS_OK;
    if (o->images && o->images->mixup > 0)
        return ts_fail(TS_ERR_UNSUPPORTED, "augment: mixup has no meaning for labels of pixels");
    if (o->augment)
        return ts_fail(TS_ERR_UNSUPPORTED, "an augment function cannot move the labels of pixels");
    return TS_OK;
}

static ts_status check(const ts_dataset *d, const ts_loader_options *o)
{
    if (o->batch < 0)
        return ts_fail(TS_ERR_ARG, "a batch cannot have %ld rows", (long)o->batch);
    TS_TRY(check_parts(o));
    TS_TRY(check_pixels(d, o));
    if (o->images)
        TS_TRY(ts_augment_check(o->images, &d->sample));
    if (o->augment && d->sample.dtype == TS_I32)
        return ts_fail(TS_ERR_TYPE, "samples of indices cannot be augmented");
    if (o->drop_last && o->batch > d->count / TS_MAX(1, o->parts)) {
        ts_fail(TS_ERR_ARG, "a batch of %ld rows cannot be filled: the dataset has %ld samples",
                (long)o->batch, (long)(d->count / TS_MAX(1, o->parts)));
        ts_error_hint("use a smaller batch, or let the last one be padded");
        return TS_ERR_ARG;
    }
    if (o->targets.n < 0 || (o->targets.n > 1 && o->targets.n != d->ntargets))
        return ts_fail(TS_ERR_SHAPE, "there are %d means of targets, and a sample has %d",
                       o->targets.n, d->ntargets);
    if (o->threads < -1 || o->threads > MOST_THREADS)
        return ts_fail(TS_ERR_ARG, "a loader has 0 to %d threads, not %d", MOST_THREADS,
                       o->threads);
    if (o->prefetch < 0 || o->prefetch > MOST_PREFETCH)
        return ts_fail(TS_ERR_ARG, "a loader makes 0 to %d batches ahead, not %d", MOST_PREFETCH,
                       o->prefetch);
    return TS_OK;
}

static ts_status allocate_slot(const ts_loader *l, slot *s)
{
    size_t bytes = (size_t)l->elements * sizeof(float);

    if (__builtin_mul_overflow(bytes, (size_t)l->opt.batch, &bytes))
        return ts_fail(TS_ERR_MEMORY, "a batch of %ld samples does not fit in memory",
                       (long)l->opt.batch);
    TS_TRY(ts_alloc(bytes, "a batch", (void **)&s->samples));
    TS_TRY(ts_alloc((size_t)(l->opt.batch * l->d->nlabels) * sizeof(int32_t), "a batch",
                    (void **)&s->labels));
    if (l->ntargets)
        TS_TRY(ts_alloc((size_t)l->opt.batch * (size_t)l->ntargets * sizeof(float), "a batch",
                        (void **)&s->targets));
    if (l->opt.images)
        TS_TRY(ts_alloc((size_t)(TS_MAX(l->elements, l->ntargets) + l->elements) * sizeof(float),
                        "a changed image", (void **)&s->scratch));
    if (l->d->read)
        TS_TRY(ts_alloc(l->d->sample.bytes, "a sample", &s->raw));
    if (l->d->read && l->d->ntargets)
        TS_TRY(
            ts_alloc((size_t)l->d->ntargets * sizeof(float), "a sample", (void **)&s->raw_targets));
    return ts_alloc((size_t)TS_MIN(l->opt.batch, l->d->count) * sizeof(int64_t), "a batch",
                    (void **)&s->rows);
}

static ts_status allocate(ts_loader *l)
{
    int threads = TS_MAX(1, l->opt.threads);

    TS_TRY(ts_scale_new(&l->d->sample, &l->opt.normalize, &l->scale));
    l->nslots = 1 + (l->opt.prefetch ? l->opt.prefetch : TS_MAX(2, threads));
    if (l->opt.threads < 0)
        l->nslots = 1;
    TS_TRY(ts_alloc((size_t)l->nslots * sizeof(slot), "batches", (void **)&l->slots));
    for (int i = 0; i < l->nslots; i++)
        TS_TRY(allocate_slot(l, &l->slots[i]));
    if (l->opt.shuffle)
        TS_TRY(ts_alloc((size_t)l->d->count * sizeof(int64_t), "the order of samples",
                        (void **)&l->order));
    return ts_alloc((size_t)threads * sizeof(pthread_t), "threads", (void **)&l->threads);
}

/* Signals are for the program's own threads. */
static ts_status start(ts_loader *l)
{
    int threads = l->opt.threads < 0 ? 0 : TS_MAX(1, l->opt.threads);
    sigset_t all, before;
    int error = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!error && l->nthreads < threads) {
        error =
            ts_fault("thread") ? EAGAIN : pthread_create(&l->threads[l->nthreads], NULL, work, l);
        l->nthreads += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return ts_fail(TS_ERR_MEMORY, "cannot start a loader thread: %s", strerror(error));
    return TS_OK;
}

ts_status ts_loader_new_sized(const ts_dataset *d, const ts_loader_options *given, size_t size,
                              ts_loader **out)
{
    ts_loader_options own, *opt = &own;
    ts_loader *l;
    ts_status s;

    if (out)
        *out = NULL;
    TS_TRY(ts_take_sized("ts_loader_new", given, size, opt, sizeof(*opt)));
    if (!d || !out)
        return ts_fail(TS_ERR_ARG, "a loader needs a dataset and a place for it");
    TS_TRY(check(d, opt));
    TS_TRY(ts_alloc(sizeof(*l), "a loader", (void **)&l));
    l->d = d;
    l->opt = *opt;
    l->opt.batch = TS_MAX(1, opt->batch);
    l->opt.parts = TS_MAX(1, opt->parts);
    l->opt.chunk = opt->chunk ? opt->chunk : l->opt.batch;
    l->elements = (int64_t)(d->sample.bytes / ts_dtype_size(d->sample.dtype));
    l->steps =
        d->count / (l->opt.batch * l->opt.parts) + (!opt->drop_last && d->count % l->opt.batch);
    l->ntargets = d->ntargets                             ? d->ntargets
                  : opt->images && opt->images->mixup > 0 ? d->nclasses
                                                          : 0;
    l->order_epoch = -1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    s = allocate(l);
    if (!s)
        s = start(l);
    if (s)
        ts_loader_free(l);
    else
        *out = l;
    return s;
}

void ts_loader_free(ts_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->nthreads; i++)
        pthread_join(l->threads[i], NULL);
    for (int i = 0; l->slots && i < l->nslots; i++) {
        free(l->slots[i].samples);
        free(l->slots[i].labels);
        free(l->slots[i].targets);
        free(l->slots[i].scratch);
        free(l->slots[i].raw);
        free(l->slots[i].raw_targets);
        free(l->slots[i].rows);
    }
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l->slots);
    free(l->threads);
    free(l->order);
    ts_scale_free(&l->scale);
    free(l);
}

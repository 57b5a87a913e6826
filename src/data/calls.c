/* calls.c - a dataset whose samples the program makes when they are asked for: what does not fit in
 * memory, or comes from somewhere that no file format describes.
 *
 * The loader's threads call for the samples of the batches they make, so that reading is off the
 * critical path as with any dataset, and shuffling, normalising and augmenting are the loader's. A
 * sample is checked as those of files are: what is no class or no number is refused by its row.
 */
#include "data/data.h"
#include <math.h>

enum { MOST_CLASSES = 1 << 20, MOST_TARGETS = 1 << 20 };

static ts_status check_numbers(int64_t row, const char *what, const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i])) {
            ts_fail(TS_ERR_CORRUPT, "%s %ld of sample %ld is %g", what, (long)i, (long)row,
                    (double)v[i]);
            ts_error_hint("what cannot be learned from must be left out or replaced");
            return TS_ERR_CORRUPT;
        }
    return TS_OK;
}

ts_status ts_dataset_read(const ts_dataset *d, int64_t row, void *sample, int32_t *label,
                          float *targets)
{
    *label = 0;
    memset(sample, 0, d->sample.bytes);
    if (!d->read(d->read_arg, row, sample, label, targets))
        return ts_fail(TS_ERR_FILE, "the program could not read sample %ld", (long)row);
    if (*label < 0 || *label >= TS_MAX(1, d->nclasses))
        return ts_fail(TS_ERR_CORRUPT, "label %d of sample %ld is not one of 0..%d", *label,
                       (long)row, TS_MAX(1, d->nclasses) - 1);
    if (d->sample.dtype == TS_F32)
        TS_TRY(check_numbers(row, "number", sample, (int64_t)(d->sample.bytes / sizeof(float))));
    return check_numbers(row, "target", targets, d->ntargets);
}

static ts_status check(const ts_dataset_calls *from)
{
    if (!from->read)
        return ts_fail(TS_ERR_ARG, "a dataset needs a function that reads a sample");
    if (from->dtype != TS_U8 && from->dtype != TS_F32 && from->dtype != TS_I32)
        return ts_fail(TS_ERR_TYPE, "samples are u8, f32 or i32");
    if (from->rank < 0 || from->rank >= TS_MAX_RANK || (from->rank && !from->dims))
        return ts_fail(TS_ERR_SHAPE, "a sample cannot have rank %d", from->rank);
    if (from->classes < 0 || from->classes > MOST_CLASSES || from->targets < 0 ||
        from->targets > MOST_TARGETS || (from->classes && from->targets))
        return ts_fail(TS_ERR_ARG, "a sample cannot have %d classes and %d targets", from->classes,
                       from->targets);
    if (from->count <= 0 || from->count > PTRDIFF_MAX / 8)
        return ts_fail(TS_ERR_ARG, "a dataset of %ld samples is of no use", (long)from->count);
    return TS_OK;
}

/* Room for one sample: that is what is in memory of it. */
static ts_status make(const ts_dataset_calls *from, ts_dataset *d)
{
    d->read = from->read;
    d->read_arg = from->arg;
    if (from->classes)
        TS_TRY(ts_dataset_number_classes(d, from->classes, "memory"));
    if (from->targets)
        TS_TRY(ts_dataset_add_targets(d, from->targets));
    d->count = from->count;
    return TS_OK;
}

ts_status ts_dataset_call_sized(const ts_dataset_calls *from, size_t size, ts_dataset **out)
{
    ts_dataset_calls own;
    ts_status s;

    if (!from || !out)
        return ts_fail(TS_ERR_ARG, "a dataset needs what makes its samples and a place for it");
    *out = NULL;
    TS_TRY(ts_take_sized("ts_dataset_call", from, size, &own, sizeof(own)));
    TS_TRY(check(&own));
    TS_TRY(ts_dataset_new(own.dtype, 1, own.rank, own.dims, out));
    s = make(&own, *out);
    if (s) {
        ts_dataset_free(*out);
        *out = NULL;
    }
    return s;
}

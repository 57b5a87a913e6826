/* scale.c - ToTensor and Normalize in one step.
 *
 * A pixel has 256 values, so ((x / 255) - mean) / deviation is computed 256 times a channel and
 * looked up after that: two divisions an element become one load, and the numbers stay PyTorch's
 * bit for bit, which a folded x * a + b would not.
 */
#include "data/data.h"
#include <math.h>

static ts_status check(const ts_array *sample, const ts_normalize *how)
{
    int64_t channels = sample->rank ? sample->dims[0] : 1;

    if (sample->dtype != TS_U8 && sample->dtype != TS_F32 && sample->dtype != TS_I32)
        return ts_fail(TS_ERR_TYPE, "samples are u8 or f32, not %s", ts_dtype_name(sample->dtype));
    if (sample->dtype == TS_I32 && how->n)
        return ts_fail(TS_ERR_TYPE, "samples of indices cannot be normalised");
    if (how->n < 0 || (how->n > 1 && how->n != channels)) {
        ts_fail(TS_ERR_SHAPE, "normalize has %d means, and a sample has %ld channels", how->n,
                (long)channels);
        ts_error_hint("give one mean and deviation for all channels, or one for each");
        return TS_ERR_SHAPE;
    }
    if (how->n && (!how->mean || !how->deviation))
        return ts_fail(TS_ERR_ARG, "normalize needs both means and deviations");
    for (int i = 0; i < how->n; i++)
        if (!isfinite(how->mean[i]) || !isfinite(how->deviation[i]) ||
            (float)how->deviation[i] == 0)
            return ts_fail(TS_ERR_ARG,
                           "normalize cannot use mean %g and deviation %g of channel %d",
                           how->mean[i], how->deviation[i], i);
    return TS_OK;
}

static void fill_table(ts_scale *s, const ts_normalize *how)
{
    for (int64_t c = 0; c < s->channels; c++)
        for (int v = 0; v < 256; v++) {
            float x = (float)v / 255;
            if (how->n)
                x = (x - (float)how->mean[c]) / (float)how->deviation[c];
            s->table[c * 256 + v] = x;
        }
}

static ts_status fill(ts_scale *s, const ts_normalize *how)
{
    size_t bytes = (size_t)s->channels * sizeof(float);

    if (s->dtype == TS_U8) {
        TS_TRY(ts_alloc(256 * bytes, "the values of pixels", (void **)&s->table));
        fill_table(s, how);
        return TS_OK;
    }
    if (!how->n)
        return TS_OK;
    TS_TRY(ts_alloc(bytes, "means", (void **)&s->mean));
    TS_TRY(ts_alloc(bytes, "deviations", (void **)&s->deviation));
    for (int64_t c = 0; c < s->channels; c++) {
        s->mean[c] = (float)how->mean[c];
        s->deviation[c] = (float)how->deviation[c];
    }
    return TS_OK;
}

ts_status ts_scale_new(const ts_array *sample, const ts_normalize *how, ts_scale *out)
{
    int64_t elements = 1;
    ts_status s;

    *out = (ts_scale){.dtype = sample->dtype};
    TS_TRY(check(sample, how));
    for (int i = 0; i < sample->rank; i++)
        elements *= sample->dims[i];
    out->channels = how->n > 1 ? how->n : 1;
    out->plane = elements / out->channels;
    s = fill(out, how);
    if (s)
        ts_scale_free(out);
    return s;
}

void ts_scale_free(ts_scale *s)
{
    free(s->table);
    free(s->mean);
    free(s->deviation);
    *s = (ts_scale){0};
}

static void run_bytes(const ts_scale *s, const uint8_t *from, float *to)
{
    for (int64_t c = 0; c < s->channels; c++) {
        const float *table = s->table + c * 256;
        for (int64_t i = 0; i < s->plane; i++)
            *to++ = table[*from++];
    }
}

static void run_floats(const ts_scale *s, const float *from, float *to)
{
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < s->plane; i++)
            *to++ = (*from++ - s->mean[c]) / s->deviation[c];
}

void ts_scale_run(const ts_scale *s, const void *sample, float *out)
{
    if (s->dtype == TS_U8)
        run_bytes(s, sample, out);
    else if (s->mean)
        run_floats(s, sample, out);
    else
        memcpy(out, sample, (size_t)(s->channels * s->plane) * sizeof(float)); /* or int32_t */
}

ts_status ts_to_tensor(const ts_array *samples, bool batched, const ts_normalize *how, float *out)
{
    static const ts_normalize none;
    ts_array one = *samples;
    int64_t count = 1, elements = 1;
    ts_scale s;

    if (samples->dtype == TS_I32)
        return ts_fail(TS_ERR_TYPE, "samples are u8 or f32, not i32: indices are no tensors");
    if (batched) {
        if (!samples->rank)
            return ts_fail(TS_ERR_SHAPE, "a batch of samples needs at least one dim");
        count = samples->dims[0];
        one.rank--;
        memmove(one.dims, one.dims + 1, sizeof(one.dims) - sizeof(one.dims[0]));
    }
    for (int i = 0; i < one.rank; i++)
        elements *= one.dims[i];
    TS_TRY(ts_scale_new(&one, how ? how : &none, &s));
    for (int64_t i = 0; i < count; i++)
        ts_scale_run(
            &s, (const char *)samples->data + (size_t)(i * elements) * ts_dtype_size(one.dtype),
            out + i * elements);
    ts_scale_free(&s);
    return TS_OK;
}

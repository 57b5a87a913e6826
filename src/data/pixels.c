/* pixels.c - pictures made smaller while they are loaded, and their labels with them.
 *
 * A block of n x n pixels becomes one: of a picture the mean, of labels the largest. A thin track of
 * a rare class that crosses a block would be lost in a vote; where classes are numbered from the
 * background up it stays.
 */
#include "data/data.h"

void ts_pixels_mean(const float *in, int64_t height, int64_t width, int n, float *out)
{
    for (int64_t y = 0; y < height / n; y++)
        for (int64_t x = 0; x < width / n; x++) {
            double sum = 0;
            for (int i = 0; i < n * n; i++)
                sum += in[(y * n + i / n) * width + x * n + i % n];
            *out++ = (float)(sum / (n * n));
        }
}

void ts_pixels_largest(const int32_t *in, int64_t height, int64_t width, int n, int32_t *out)
{
    for (int64_t y = 0; y < height / n; y++)
        for (int64_t x = 0; x < width / n; x++) {
            int32_t most = INT32_MIN;
            for (int i = 0; i < n * n; i++)
                most = TS_MAX(most, in[(y * n + i / n) * width + x * n + i % n]);
            *out++ = most;
        }
}

static void mean_of_bytes(const uint8_t *in, int64_t height, int64_t width, int n, uint8_t *out)
{
    for (int64_t y = 0; y < height / n; y++)
        for (int64_t x = 0; x < width / n; x++) {
            int64_t sum = 0;
            for (int i = 0; i < n * n; i++)
                sum += in[(y * n + i / n) * width + x * n + i % n];
            *out++ = (uint8_t)((2 * sum + n * n) / (2 * n * n));
        }
}

ts_status ts_pixels_check(const char *path, int64_t height, int64_t width, int n)
{
    if (n >= 1 && height % n == 0 && width % n == 0)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "pictures of %ld x %ld in %s cannot be made %d times smaller", (long)height,
            (long)width, path, n);
    ts_error_hint("the number must divide both sizes");
    return TS_ERR_ARG;
}

/* A whole dataset in memory: planes are whatever stands before the last two dims. */
static void shrink(const ts_dataset *d, int n, ts_dataset *out)
{
    const int64_t *dims = d->sample.dims + d->sample.rank - 2;
    int64_t plane = dims[0] * dims[1], small = plane / (n * n);
    int64_t planes = d->count * (int64_t)(d->sample.bytes / ts_dtype_size(d->sample.dtype)) / plane;

    for (int64_t i = 0; i < planes; i++)
        if (d->sample.dtype == TS_U8)
            mean_of_bytes((uint8_t *)d->sample.data + i * plane, dims[0], dims[1], n,
                          (uint8_t *)out->sample.data + i * small);
        else
            ts_pixels_mean((float *)d->sample.data + i * plane, dims[0], dims[1], n,
                           (float *)out->sample.data + i * small);
    if (!d->label_rank) {
        memcpy(out->labels, d->labels, (size_t)(d->count * d->nlabels) * sizeof(int32_t));
        return;
    }
    for (int64_t i = 0; i < d->count * d->nlabels / plane; i++)
        ts_pixels_largest(d->labels + i * plane, dims[0], dims[1], n, out->labels + i * small);
}

static ts_status is_picture(const ts_dataset *d, const char *path)
{
    if (d->sample.rank >= 2 && d->sample.dtype != TS_I32)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "only pictures can be made smaller; the samples of %s are none",
                   path);
}

ts_status ts_dataset_downsample(const char *path, int n, ts_dataset **d)
{
    ts_dataset *from = *d, *out = NULL;
    int64_t dims[TS_MAX_RANK];
    int rank = from->sample.rank;
    ts_status s;

    if (n <= 1)
        return TS_OK;
    TS_TRY(is_picture(from, path));
    TS_TRY(ts_pixels_check(path, from->sample.dims[rank - 2], from->sample.dims[rank - 1], n));
    memcpy(dims, from->sample.dims, sizeof(dims));
    dims[rank - 2] /= n;
    dims[rank - 1] /= n;
    TS_TRY(ts_dataset_new(from->sample.dtype, from->count, rank, dims, &out));
    memcpy(dims, from->label_dims, sizeof(dims));
    if (from->label_rank) {
        dims[from->label_rank - 2] /= n;
        dims[from->label_rank - 1] /= n;
    }
    s = ts_dataset_like(from, from->label_rank, dims, out);
    if (s) {
        ts_dataset_free(out);
        return s;
    }
    shrink(from, n, out);
    if (from->targets)
        memcpy(out->targets, from->targets,
               (size_t)from->count * (size_t)from->ntargets * sizeof(float));
    ts_dataset_free(from);
    *d = out;
    return TS_OK;
}

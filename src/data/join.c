/* join.c - several arrays as one: a sample is the numbers of all of them, one after the other, for
 * nets of several inputs.
 *
 *   a [N, 3]     b [N, 8, 8]     ->     [N, 3 + 64]
 *
 * Pixels, which are bytes of three dims and more, become 0 to 1; other numbers stay as they are.
 */
#include "data/data.h"
#include "graph/graph.h"

static int64_t numbers_of(const ts_array *x)
{
    int64_t n = 1;

    for (int i = 1; i < x->rank; i++)
        n *= x->dims[i];
    return n;
}

static ts_status check(const ts_array *x, int i, const char *path)
{
    if (!x[i].rank || !x[i].bytes)
        return ts_fail(TS_ERR_SHAPE, "array %d of the samples of %s is empty or a single number", i,
                       path);
    if (x[i].dims[0] != x[0].dims[0])
        return ts_fail(TS_ERR_SHAPE, "the arrays of the samples of %s have %ld and %ld rows", path,
                       (long)x[0].dims[0], (long)x[i].dims[0]);
    return TS_OK;
}

static void copy(const ts_array *x, int64_t at, int64_t all, float *to)
{
    int64_t n = numbers_of(x);
    double scale = x->dtype == TS_U8 && x->rank > 2 ? 255 : 1;

    for (int64_t i = 0; i < x->dims[0]; i++)
        for (int64_t k = 0; k < n; k++)
            to[i * all + at + k] = (float)(ts_dtype_get(x->dtype, x->data, i * n + k) / scale);
}

ts_status ts_join_arrays(const ts_array *x, int count, const char *path, ts_array *out)
{
    int64_t all = 0, at = 0;

    *out = (ts_array){.dtype = TS_F32, .rank = 2};
    for (int i = 0; i < count; i++) {
        TS_TRY(check(x, i, path));
        all += numbers_of(&x[i]);
    }
    out->dims[0] = x[0].dims[0];
    out->dims[1] = all;
    out->bytes = (size_t)(out->dims[0] * all) * sizeof(float);
    TS_TRY(ts_alloc(out->bytes, "the samples", &out->data));
    for (int i = 0; i < count; at += numbers_of(&x[i++]))
        copy(&x[i], at, all, out->data);
    return TS_OK;
}

ts_status ts_join_count(const char *names, const char *path, int *count)
{
    size_t n;

    *count = 0;
    for (const char *p = names;; p += n + 1) {
        n = strcspn(p, ",");
        if (!n || n + 8 > TS_MAX_NAME)
            return ts_fail(TS_ERR_ARG, "'%.100s' are no arrays of %s: a name is %s", names, path,
                           n ? "too long" : "empty");
        if (++*count > TS_JOINED)
            return ts_fail(TS_ERR_ARG, "'%.100s' are more than %d arrays of %s", names, TS_JOINED,
                           path);
        if (!p[n])
            return TS_OK;
    }
}

/* Of "a,b" the i-th, as a file may have it for a split: a_train, then a. */
bool ts_join_name(const char *names, int i, ts_split split, bool plain, char *out, size_t size)
{
    size_t n;

    for (; i; i--) {
        names = strchr(names, ',');
        if (!names)
            return false;
        names++;
    }
    n = strcspn(names, ",");
    if (!n || n + 8 > size)
        return false;
    ts_format(out, size, "%.*s%s", (int)n, names,
              plain                    ? ""
              : split == TS_SPLIT_TEST ? "_test"
                                       : "_train");
    return true;
}

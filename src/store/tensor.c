/* tensor.c - what the formats call our dtypes, and dense tensors out of what they store. */
#include "store/store.h"

const ts_store_dtype ts_store_dtypes[] = {
    [TS_F32] = {"float32", "FloatStorage", "F32", "f4"},
    [TS_F16] = {"float16", "HalfStorage", "F16", "f2"},
    [TS_BF16] = {"bfloat16", "BFloat16Storage", "BF16", NULL},
    [TS_F64] = {"float64", "DoubleStorage", "F64", "f8"},
    [TS_I8] = {"int8", "CharStorage", "I8", "i1"},
    [TS_U8] = {"uint8", "ByteStorage", "U8", "u1"},
    [TS_I32] = {"int32", "IntStorage", "I32", "i4"},
    [TS_I64] = {"int64", "LongStorage", "I64", "i8"},
    [TS_BOOL] = {"bool", "BoolStorage", "BOOL", "b1"},
};

int ts_store_dtype_find(size_t offset, const char *name, size_t len)
{
    for (int i = 0; i < TS_STORE_DTYPES; i++) {
        const char *is = *(const char *const *)((const char *)&ts_store_dtypes[i] + offset);
        if (is && strlen(is) == len && !memcmp(is, name, len))
            return i;
    }
    return -1;
}

/* A stride matters only where there is a second element. */
static bool is_dense(const ts_array *a, const int64_t *strides)
{
    int64_t dense = 1;

    for (int i = a->rank - 1; i >= 0; i--) {
        if (a->dims[i] != 1 && strides[i] != dense)
            return false;
        dense *= a->dims[i];
    }
    return true;
}

/* The last element's place, which must be in the storage; overflow is no place at all. */
static ts_status check_extent(const ts_array *a, uint64_t first, const int64_t *strides,
                              uint64_t elements)
{
    uint64_t last = first, reach;
    bool over = false;

    for (int i = 0; i < a->rank; i++) {
        over |= strides[i] < 0;
        over |= __builtin_mul_overflow((uint64_t)a->dims[i] - 1, (uint64_t)strides[i], &reach);
        over |= __builtin_add_overflow(last, reach, &last);
    }
    if (over || last >= elements)
        return ts_fail(TS_ERR_CORRUPT, "a tensor reaches past its storage of %lu elements",
                       (unsigned long)elements);
    return TS_OK;
}

static void gather(const ts_array *a, const int64_t *strides, const uint8_t *from, uint8_t *to)
{
    size_t size = ts_dtype_size(a->dtype);
    int64_t at[TS_MAX_RANK] = {0};

    for (size_t n = a->bytes / size; n; n--, to += size) {
        memcpy(to, from, size);
        for (int i = a->rank - 1; i >= 0; i--) {
            from += (size_t)strides[i] * size;
            if (++at[i] < a->dims[i])
                break;
            from -= (size_t)strides[i] * size * (size_t)at[i];
            at[i] = 0;
        }
    }
}

void ts_bools_tidy(ts_dtype t, void *data, size_t bytes)
{
    uint8_t *p = data;

    for (size_t i = 0; t == TS_BOOL && i < bytes; i++)
        p[i] = p[i] != 0;
}

ts_status ts_tensor_view(ts_array *a, uint64_t first, const int64_t *strides, ts_blob *from,
                         uint64_t *room, ts_blob **out)
{
    size_t size = ts_dtype_size(a->dtype);

    TS_TRY(ts_array_size(a, &a->bytes));
    if (!a->bytes)
        first = 0;
    else
        TS_TRY(check_extent(a, first, strides, from->bytes / size));
    if (from->blank) {
        a->data = NULL;
        return ts_blob_blank(a->bytes, out);
    }
    if (!a->bytes || is_dense(a, strides)) {
        from->refs++;
        *out = from;
        a->data = from->data + first * size;
    } else {
        if (a->bytes > *room)
            return ts_fail(TS_ERR_UNSUPPORTED,
                           "a view of %zu bytes: the views of this file take many times its size",
                           a->bytes);
        *room -= a->bytes;
        TS_TRY(ts_blob_new(a->bytes, out));
        gather(a, strides, from->data + first * size, (*out)->data);
        a->data = (*out)->data;
    }
    return TS_OK;
}

void ts_array_strides(const ts_array *a, bool fortran, int64_t *strides)
{
    int64_t step = 1;

    for (int i = 0; i < a->rank; i++) {
        int d = fortran ? i : a->rank - 1 - i;
        strides[d] = step;
        step *= TS_MAX(a->dims[d], 1);
    }
}

ts_status ts_tensor_fill(ts_object *o, ts_array *a, uint64_t first, bool fortran, ts_blob *from)
{
    int64_t strides[TS_MAX_RANK];
    uint64_t room = from->bytes;
    ts_blob *dense;
    ts_status s;

    ts_array_strides(a, fortran, strides);
    TS_TRY(ts_tensor_view(a, first, strides, from, &room, &dense));
    if (!from->blank)
        ts_bools_tidy(a->dtype, a->data, a->bytes);
    s = ts_object_set_tensor(o, a, dense);
    ts_blob_free(dense);
    return s;
}

ts_status ts_tensor_make(ts_array *a, uint64_t first, bool fortran, ts_blob *from, ts_object **out)
{
    ts_status s;

    TS_TRY(ts_object_make(TS_KIND_NONE, out));
    s = ts_tensor_fill(*out, a, first, fortran, from);
    if (s) {
        ts_object_free(*out);
        *out = NULL;
    }
    return s;
}

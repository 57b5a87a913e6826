/* type.c - dtypes and shapes: sizes, promotion, conversion, text. */
#include "graph/graph.h"
#include <math.h>

static const struct {
    const char *name;
    size_t size;
    int rank;     /* promotion order within a category */
    int category; /* 0 bool, 1 int, 2 float */
} dtypes[] = {
    [TS_F32] = {"f32", 4, 3, 2}, [TS_F16] = {"f16", 2, 1, 2}, [TS_BF16] = {"bf16", 2, 1, 2},
    [TS_F64] = {"f64", 8, 4, 2}, [TS_I8] = {"i8", 1, 1, 1},   [TS_U8] = {"u8", 1, 1, 1},
    [TS_I32] = {"i32", 4, 3, 1}, [TS_I64] = {"i64", 8, 4, 1}, [TS_BOOL] = {"bool", 1, 0, 0},
};

size_t ts_dtype_size(ts_dtype t)
{
    return dtypes[t].size;
}

const char *ts_dtype_name(ts_dtype t)
{
    return dtypes[t].name;
}

bool ts_dtype_is_float(ts_dtype t)
{
    return dtypes[t].category == 2;
}

bool ts_dtype_is_half(ts_dtype t)
{
    return t == TS_F16 || t == TS_BF16;
}

double ts_dtype_greatest(ts_dtype t)
{
    switch (t) {
    case TS_F16:
        return 0x1.ffcp15;
    case TS_BF16:
        return 0x1.fep127;
    case TS_F32:
        return 0x1.fffffep127;
    default:
        return 0x1.fffffffffffffp1023;
    }
}

ts_status ts_dtype_parse(const char *s, size_t len, ts_dtype *out)
{
    for (int i = 0; i < TS_COUNT(dtypes); i++)
        if (strlen(dtypes[i].name) == len && !memcmp(dtypes[i].name, s, len)) {
            *out = (ts_dtype)i;
            return TS_OK;
        }
    return ts_fail(TS_ERR_PARSE, "'%.*s' is not a dtype", (int)len, s);
}

int64_t ts_type_count(const ts_type *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

size_t ts_type_bytes(const ts_type *t)
{
    return (size_t)ts_type_count(t) * dtypes[t->dtype].size;
}

bool ts_type_possible(const ts_type *t)
{
    double count = 1;

    if (t->rank < 0 || t->rank > TS_MAX_RANK || (unsigned)t->dtype >= TS_COUNT(dtypes))
        return false;
    for (int i = 0; i < t->rank; i++) {
        count *= (double)t->dim[i];
        if (t->dim[i] < 0 || count > (double)TS_MAX_COUNT)
            return false;
    }
    return true;
}

bool ts_type_same_shape(const ts_type *a, const ts_type *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof(a->dim[0]) * (size_t)a->rank);
}

bool ts_type_same(const ts_type *a, const ts_type *b)
{
    return a->dtype == b->dtype && ts_type_same_shape(a, b);
}

ts_type ts_type_of(ts_dtype t, int rank, const int64_t *dims)
{
    ts_type out = {.dtype = t, .rank = rank};

    for (int i = 0; i < rank; i++)
        out.dim[i] = dims[i];
    return out;
}

ts_type ts_type_scalar(ts_dtype t)
{
    return (ts_type){.dtype = t};
}

static ts_dtype wider(ts_dtype a, ts_dtype b)
{
    if (a == b)
        return a;
    if (dtypes[a].category != dtypes[b].category)
        return dtypes[a].category > dtypes[b].category ? a : b;
    if ((a == TS_F16 && b == TS_BF16) || (a == TS_BF16 && b == TS_F16))
        return TS_F32;
    if ((a == TS_I8 && b == TS_U8) || (a == TS_U8 && b == TS_I8))
        return TS_I32; /* PyTorch says int16, which we do not have */
    return dtypes[a].rank > dtypes[b].rank ? a : b;
}

ts_dtype ts_dtype_promote(const ts_type *a, const ts_type *b)
{
    int ca = dtypes[a->dtype].category, cb = dtypes[b->dtype].category;

    if (a->rank && !b->rank && ca >= cb)
        return a->dtype;
    if (b->rank && !a->rank && cb >= ca)
        return b->dtype;
    return wider(a->dtype, b->dtype);
}

char *ts_type_text(ts_arena *a, const ts_type *t)
{
    char *s = ts_arena_printf(a, "%s[", ts_dtype_name(t->dtype));

    for (int i = 0; i < t->rank; i++)
        s = ts_arena_printf(a, "%s%s%ld", s, i ? "," : "", (long)t->dim[i]);
    return ts_arena_printf(a, "%s]", s);
}

/* --- half precision: round to nearest even, NaN stays NaN --- */

uint16_t ts_f32_to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float ts_bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

uint16_t ts_f32_to_f16(float x)
{
    uint32_t u, sign, mant;
    int exp;

    memcpy(&u, &x, 4);
    sign = (u >> 16) & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000) /* 65520: rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x33000001) /* at most half of the smallest subnormal */
        return (uint16_t)sign;
    exp = (int)(u >> 23) - 112;
    mant = (u & 0x7fffff) | 0x800000;
    if (exp <= 0) {
        int shift = 14 - exp;
        uint32_t half = 1u << (shift - 1), rest = mant & ((1u << shift) - 1);
        mant >>= shift;
        return (uint16_t)(sign | (mant + (rest > half || (rest == half && (mant & 1)))));
    }
    mant = ((uint32_t)exp << 10) | ((u >> 13) & 0x3ff);
    u &= 0x1fff;
    return (uint16_t)(sign | (mant + (u > 0x1000 || (u == 0x1000 && (mant & 1)))));
}

float ts_f16_to_f32(uint16_t x)
{
    float m = (float)(x & 0x3ff), sign = x & 0x8000 ? -1.0f : 1.0f;
    int exp = (x >> 10) & 31;

    if (exp == 31)
        return m != 0 ? NAN : sign * INFINITY;
    return sign * (exp ? ldexpf(1024 + m, exp - 25) : ldexpf(m, -24));
}

double ts_dtype_get(ts_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TS_F32:
        return ((const float *)p)[i];
    case TS_F16:
        return ts_f16_to_f32(((const uint16_t *)p)[i]);
    case TS_BF16:
        return ts_bf16_to_f32(((const uint16_t *)p)[i]);
    case TS_F64:
        return ((const double *)p)[i];
    case TS_I8:
        return ((const int8_t *)p)[i];
    case TS_U8:
        return ((const uint8_t *)p)[i];
    case TS_I32:
        return ((const int32_t *)p)[i];
    case TS_I64:
        return (double)((const int64_t *)p)[i];
    case TS_BOOL:
        return ((const uint8_t *)p)[i] != 0;
    }
    return 0;
}

/* Float to integer saturates, and NaN is 0: C leaves both undefined. */
static int64_t to_int(double x)
{
    if (x != x)
        return 0;
    if (x >= 9223372036854775807.0)
        return INT64_MAX;
    if (x <= -9223372036854775808.0)
        return INT64_MIN;
    return (int64_t)x;
}

void ts_dtype_set(ts_dtype t, void *p, int64_t i, double x)
{
    switch (t) {
    case TS_F32:
        ((float *)p)[i] = (float)x;
        return;
    case TS_F16:
        ((uint16_t *)p)[i] = ts_f32_to_f16((float)x);
        return;
    case TS_BF16:
        ((uint16_t *)p)[i] = ts_f32_to_bf16((float)x);
        return;
    case TS_F64:
        ((double *)p)[i] = x;
        return;
    case TS_I8:
        ((int8_t *)p)[i] = (int8_t)to_int(x);
        return;
    case TS_U8:
        ((uint8_t *)p)[i] = (uint8_t)to_int(x);
        return;
    case TS_I32:
        ((int32_t *)p)[i] = (int32_t)to_int(x);
        return;
    case TS_I64:
        ((int64_t *)p)[i] = to_int(x);
        return;
    case TS_BOOL:
        ((uint8_t *)p)[i] = x != 0;
        return;
    }
}

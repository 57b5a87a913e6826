/* type.c - dtypes and shapes: promotion, half precision, conversion, text. */
#include "graph/graph.h"
#include "support.h"
#include <math.h>

/* torch.promote_types, in the order f32 f16 bf16 f64 i8 u8 i32 i64 bool; i16 is not ours, so i8
 * with u8 is i32. */
static const ts_dtype promoted[9][9] = {
#define F3 TS_F32
#define F2 TS_F16
#define B2 TS_BF16
#define F6 TS_F64
#define I1 TS_I8
#define U1 TS_U8
#define I3 TS_I32
#define I6 TS_I64
#define BO TS_BOOL
    {F3, F3, F3, F6, F3, F3, F3, F3, F3}, {F3, F2, F3, F6, F2, F2, F2, F2, F2},
    {F3, F3, B2, F6, B2, B2, B2, B2, B2}, {F6, F6, F6, F6, F6, F6, F6, F6, F6},
    {F3, F2, B2, F6, I1, I3, I3, I6, I1}, {F3, F2, B2, F6, I3, U1, I3, I6, U1},
    {F3, F2, B2, F6, I3, I3, I3, I6, I3}, {F3, F2, B2, F6, I6, I6, I6, I6, I6},
    {F3, F2, B2, F6, I1, U1, I3, I6, BO},
};

static int category(ts_dtype t)
{
    return ts_dtype_is_float(t) ? 2 : t == TS_BOOL ? 0 : 1;
}

static void promotion_of_tensors(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 9; k++) {
            ts_type a = {.dtype = (ts_dtype)i, .rank = 1, .dim = {2}};
            ts_type b = {.dtype = (ts_dtype)k, .rank = 2, .dim = {2, 2}};
            ts_type x = ts_type_scalar((ts_dtype)i), y = ts_type_scalar((ts_dtype)k);
            assert_int_equal(ts_dtype_promote(&a, &b), promoted[i][k]);
            assert_int_equal(ts_dtype_promote(&x, &y), promoted[i][k]);
        }
}

/* A scalar only counts where its category is the higher one. */
static void promotion_with_scalars(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 9; k++) {
            ts_type a = {.dtype = (ts_dtype)i, .rank = 1, .dim = {2}};
            ts_type s = ts_type_scalar((ts_dtype)k);
            ts_dtype want = category(s.dtype) > category(a.dtype) ? promoted[i][k] : (ts_dtype)i;
            assert_int_equal(ts_dtype_promote(&a, &s), want);
            assert_int_equal(ts_dtype_promote(&s, &a), want);
        }
}

/* --- half precision, all 65536 of each --- */

/* The value of a half by its definition. */
static double f16_value(unsigned h)
{
    int e = h >> 10 & 31;
    double m = h & 1023, sign = h >> 15 ? -1 : 1;

    if (e == 31)
        return m != 0 ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + m / 1024, e - 15) : ldexp(m / 1024, -14));
}

static double bf16_value(unsigned h)
{
    int e = h >> 7 & 255;
    double m = h & 127, sign = h >> 15 ? -1 : 1;

    if (e == 255)
        return m != 0 ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + m / 128, e - 127) : ldexp(m / 128, -126));
}

static void assert_same_number(double a, double b)
{
    if (isnan(a) && isnan(b))
        return;
    assert_true(a == b && signbit(a) == signbit(b));
}

static void every_half_converts(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = ts_f16_to_f32((uint16_t)h), b = ts_bf16_to_f32((uint16_t)h);
        assert_same_number(f, f16_value(h));
        assert_same_number(b, bf16_value(h));
        if (isnan(f))
            assert_true(isnan(ts_f16_to_f32(ts_f32_to_f16(f))));
        else
            assert_int_equal(ts_f32_to_f16(f), h);
        if (isnan(b))
            assert_true(isnan(ts_bf16_to_f32(ts_f32_to_bf16(b))));
        else
            assert_int_equal(ts_f32_to_bf16(b), h);
    }
}

/* Between two neighbours: below the middle down, above it up, the middle to the even one.
 * Infinity's neighbour below counts as if the next number were one step further. */
static void check_rounding(unsigned inf, double (*value)(unsigned), uint16_t (*to)(float))
{
    for (unsigned h = 0; h < inf; h++) {
        double next = h + 1 < inf ? value(h + 1) : 2 * value(h) - value(h - 1);
        double exact = (value(h) + next) / 2;
        float middle = (float)exact;
        unsigned even = h & 1 ? h + 1 : h;
        if ((double)middle != exact)
            continue; /* not a float: bf16's last subnormal bit */
        for (unsigned sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(to(s * middle), even | sign << 15);
            assert_int_equal(to(s * nextafterf(middle, 0)), h | sign << 15);
            assert_int_equal(to(s * nextafterf(middle, INFINITY)), (h + 1) | sign << 15);
        }
    }
    assert_int_equal(to(INFINITY), inf);
    assert_int_equal(to(-INFINITY), inf | 0x8000);
}

static void halves_round_to_even(void **state)
{
    (void)state;
    check_rounding(0x7c00, f16_value, ts_f32_to_f16);
    check_rounding(0x7f80, bf16_value, ts_f32_to_bf16);
    assert_int_equal(ts_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(ts_f32_to_f16(65519.996f), 0x7bff);
}

/* --- reading and writing elements --- */

static void elements_round_trip(void **state)
{
    static const double values[] = {0, 1, -1, 100, 0.5};
    union {
        double align;
        char bytes[64];
    } room;

    (void)state;
    for (int t = 0; t < 9; t++)
        for (int i = 0; i < TS_COUNT(values); i++) {
            double want = values[i];
            if (t == TS_BOOL)
                want = want != 0;
            else if (!ts_dtype_is_float((ts_dtype)t))
                want = trunc(want);
            if (t == TS_U8 && want < 0)
                want += 256;
            ts_dtype_set((ts_dtype)t, room.bytes, 3, values[i]);
            assert_same_number(ts_dtype_get((ts_dtype)t, room.bytes, 3) + 0.0, want + 0.0);
        }
}

static void impossible_integers_are_defined(void **state)
{
    int64_t i;

    (void)state;
    ts_dtype_set(TS_I64, &i, 0, NAN);
    assert_int_equal(i, 0);
    ts_dtype_set(TS_I64, &i, 0, 1e300);
    assert_true(i == INT64_MAX);
    ts_dtype_set(TS_I64, &i, 0, -INFINITY);
    assert_true(i == INT64_MIN);
}

/* --- sizes and text --- */

static void greatest_numbers(void **state)
{
    static const ts_dtype floats[] = {TS_F16, TS_BF16, TS_F32, TS_F64};

    (void)state;
    for (size_t i = 0; i < TS_COUNT(floats); i++) {
        double x = ts_dtype_greatest(floats[i]);
        uint64_t bits = 0;
        ts_dtype_set(floats[i], &bits, 0, x);
        assert_true(ts_dtype_get(floats[i], &bits, 0) == x);
        ts_dtype_set(floats[i], &bits, 0, x * 1.004);
        assert_true(isinf(ts_dtype_get(floats[i], &bits, 0)));
    }
}

static void sizes_and_text(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_type t = ts_type_of(TS_F16, 3, (int64_t[]){2, 3, 5}), s = ts_type_scalar(TS_I64);
    ts_dtype back;

    (void)state;
    assert_int_equal(ts_type_count(&t), 30);
    assert_int_equal(ts_type_bytes(&t), 60);
    assert_int_equal(ts_type_count(&s), 1);
    assert_string_equal(ts_type_text(a, &t), "f16[2,3,5]");
    assert_string_equal(ts_type_text(a, &s), "i64[]");
    for (int i = 0; i < 9; i++) {
        const char *name = ts_dtype_name((ts_dtype)i);
        assert_ok(ts_dtype_parse(name, strlen(name), &back));
        assert_int_equal(back, i);
    }
    assert_fails(ts_dtype_parse("f321", 4, &back), TS_ERR_PARSE, "'f321' is not a dtype");
    ts_arena_free(a);
}

static void possible_types(void **state)
{
    ts_type t = ts_type_of(TS_F32, 2, (int64_t[]){1, 1 << 20});

    (void)state;
    assert_true(ts_type_possible(&t));
    t.dim[0] = 0; /* no elements */
    assert_true(ts_type_possible(&t));
    t.dim[0] = -1;
    assert_false(ts_type_possible(&t));
    t.dim[0] = INT64_MAX;
    assert_false(ts_type_possible(&t));
    t = (ts_type){.rank = TS_MAX_RANK + 1};
    assert_false(ts_type_possible(&t));
    t = (ts_type){.dtype = (ts_dtype)9};
    assert_false(ts_type_possible(&t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promotion_of_tensors), cmocka_unit_test(promotion_with_scalars),
        cmocka_unit_test(every_half_converts),  cmocka_unit_test(halves_round_to_even),
        cmocka_unit_test(elements_round_trip),  cmocka_unit_test(impossible_integers_are_defined),
        cmocka_unit_test(greatest_numbers),     cmocka_unit_test(sizes_and_text),
        cmocka_unit_test(possible_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

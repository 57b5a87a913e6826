/* math.c - the mathematics of generated code, in vectors: the same text for a number and for any width, so that a number
 * is the same bits wherever it is computed.
 *
 * Each function is a few multiply-adds that are fused by name, and selections; test/render/prelude.c holds them against libm
 * in double: 4e-7 of the result over all floats. Coefficients are least of the largest error, found by reweighted least squares. What a
 * polynomial cannot do (arguments of sin beyond 100,000, powers of negative numbers) is done by libm, number by number,
 * where a vector has any such lane.
 */
#include "render/render.h"

/* clang-format off */
static const char grow_text[] =
    "/* e^r - 1, |r| <= ln2/2: r + r^2 p(r), error 3e-9 */\n"
    "static inline T JOIN(math_grow_, NAME)(T r)\n"
    "{\n"
    "    T p = FMA(1.98495185e-4f, r, 1.39335813e-3f);\n"
    "    p = FMA(p, r, 8.33337313e-3f);\n"
    "    p = FMA(p, r, 4.16664657e-2f);\n"
    "    p = FMA(p, r, 1.66666665e-1f);\n"
    "    p = FMA(p, r, 5.00000001e-1f);\n"
    "    return FMA(p * r, r, r);\n"
    "}\n";

static const char shrink_text[] =
    "/* k ln2 + log(1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], error 8e-8 of f^3 */\n"
    "static inline T JOIN(math_shrink_, NAME)(T k, T f)\n"
    "{\n"
    "    T p = FMA(6.862343e-2f, f, -1.14214981e-1f);\n"
    "    p = FMA(p, f, 1.16990747e-1f);\n"
    "    p = FMA(p, f, -1.24349245e-1f);\n"
    "    p = FMA(p, f, 1.42486559e-1f);\n"
    "    p = FMA(p, f, -1.66673783e-1f);\n"
    "    p = FMA(p, f, 2.00007161e-1f);\n"
    "    p = FMA(p, f, -2.50000019e-1f);\n"
    "    p = FMA(p, f, 3.33333312e-1f);\n"
    "    return FMA(k, 0.693359375f, f + FMA(f * f, FMA(f, p, -0.5f), k * -2.12194440e-4f));\n"
    "}\n";

static const char exp_text[] =
    "/* e^x = 2^n e^r, |r| <= ln2/2. 2^n in one instruction, or in two factors: subnormal results too */\n"
    "static inline T JOIN(math_exp_, NAME)(T x)\n"
    "{\n"
    "#ifdef __AVX512F__\n"
    "    T y, b = SEL(x > 89.0f, (T){0} + 89.0f, x);\n"
    "    b = SEL(b < -105.0f, (T){0} - 105.0f, b);\n"
    "    T n = FMA(b, 1.44269504f, 12582912.0f) - 12582912.0f;\n"
    "    T r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, b));\n"
    "    if (sizeof(T) == sizeof(float))\n"
    "        __asm__(\"vscalefss %2, %1, %0\" : \"=v\"(y) : \"v\"(JOIN(math_grow_, NAME)(r) + 1.0f), \"v\"(n));\n"
    "    else\n"
    "        __asm__(\"vscalefps %2, %1, %0\" : \"=v\"(y) : \"v\"(JOIN(math_grow_, NAME)(r) + 1.0f), \"v\"(n));\n"
    "    return y;\n"
    "#else\n"
    "    T n = FMA(x, 1.44269504f, 12582912.0f) - 12582912.0f;\n"
    "    n = SEL(n < 129.0f, n, (T){0} + 129.0f); /* NaN too: it must become an integer */\n"
    "    n = SEL(n > -151.0f, n, (T){0} - 151.0f);\n"
    "    I i = TO_I(n), h = i >> 1;\n"
    "    T r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, x));\n"
    "    T y = (JOIN(math_grow_, NAME)(r) + 1.0f) * FLOAT((h + 127) << 23) * FLOAT((i - h + 127) << 23);\n"
    "    return SEL(x < -104.0f, (T){0}, y);\n"
    "#endif\n"
    "}\n";

static const char log_text[] =
    "/* log x = k ln2 + log(1 + f) */\n"
    "static inline T JOIN(math_log_, NAME)(T x)\n"
    "{\n"
    "    I tiny = BITS(x) < 0x00800000;\n"
    "    T s = SEL(tiny, x * 8388608.0f, x);\n"
    "    I i = BITS(s) - 0x3f3504f3;\n"
    "    T f = FLOAT((i & 0x007fffff) + 0x3f3504f3) - 1.0f;\n"
    "    T k = CVT(i >> 23) - SEL(tiny, (T){0} + 23.0f, (T){0});\n"
    "    T y = JOIN(math_shrink_, NAME)(k, f);\n"
    "    y = SEL(x == __builtin_inff(), x, y);\n"
    "    y = SEL(x == 0.0f, (T){0} - __builtin_inff(), y);\n"
    "    return SEL((x < 0.0f) | (x != x), (T){0} + __builtin_nanf(\"\"), y);\n"
    "}\n";

static const char tanh_text[] =
    "/* x p(x^2) / q(x^2) up to where it is 1 (error 2e-8, with roundings 3e-7) */\n"
    "static inline T JOIN(math_tanh_, NAME)(T x)\n"
    "{\n"
    "    T a = FLOAT(BITS(x) & 0x7fffffff), b = SEL(a > 9.02f, (T){0} + 9.02f, a), t = b * b;\n"
    "    T p = FMA(1.98088692e-8f, t, 3.06128859e-5f), q = FMA(1.1544106e-6f, t, 4.88279533e-4f);\n"
    "    p = FMA(p, t, 5.19651873e-3f);\n"
    "    q = FMA(q, t, 3.84768657e-2f);\n"
    "    p = FMA(p, t, 1.9899042e-1f);\n"
    "    q = FMA(q, t, 6.94741547e-1f);\n"
    "    T y = b * FMA(p, t, 1.48725414f) / FMA(q, t, 1.48725414f);\n"
    "    y = SEL(y > 1.0f, (T){0} + 1.0f, y);\n"
    "    return FLOAT(BITS(y) | (BITS(x) & (-0x7fffffff - 1)));\n"
    "}\n";

static const char erf_text[] =
    "/* x p(x^2) / q(x^2) up to where it is 1 (error 2e-8, with roundings 3e-7) */\n"
    "static inline T JOIN(math_erf_, NAME)(T x)\n"
    "{\n"
    "    T a = FLOAT(BITS(x) & 0x7fffffff), b = SEL(a > 3.92f, (T){0} + 3.92f, a), t = b * b;\n"
    "    T p = FMA(2.78595735e-6f, t, 3.87142267e-4f), q = FMA(5.17646877e-5f, t, 1.57983822e-3f);\n"
    "    p = FMA(p, t, 5.11732837e-3f);\n"
    "    q = FMA(q, t, 2.03424841e-2f);\n"
    "    p = FMA(p, t, 7.16829076e-2f);\n"
    "    q = FMA(q, t, 1.55068785e-1f);\n"
    "    p = FMA(p, t, 2.58753568e-1f);\n"
    "    q = FMA(q, t, 6.82296097e-1f);\n"
    "    T y = b * FMA(p, t, 1.53340805f) / FMA(q, t, 1.35894752f);\n"
    "    y = SEL(y > 1.0f, (T){0} + 1.0f, y);\n"
    "    return FLOAT(BITS(y) | (BITS(x) & (-0x7fffffff - 1)));\n"
    "}\n";

static const char expm1_text[] =
    "/* 2^n e^r - 1 as 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)): nothing is lost where n is 0 */\n"
    "static inline T JOIN(math_expm1_, NAME)(T x)\n"
    "{\n"
    "    T n = FMA(x, 1.44269504f, 12582912.0f) - 12582912.0f;\n"
    "    n = SEL(n < 129.0f, n, (T){0} + 129.0f);\n"
    "    n = SEL(n > -30.0f, n, (T){0} - 30.0f);\n"
    "    T r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, x));\n"
    "    T s = FLOAT((TO_I(n) + 126) << 23);\n"
    "    T y = FMA(s, JOIN(math_grow_, NAME)(r), s - 0.5f) * 2.0f;\n"
    "    y = SEL(x > 88.8f, (T){0} + __builtin_inff(), y);\n"
    "    y = SEL(x < -18.0f, (T){0} - 1.0f, y);\n"
    "    return SEL(x == 0.0f, x, y);\n"
    "}\n";

static const char log1p_text[] =
    "/* log(1 + x), what 1 + x loses by rounding put back */\n"
    "static inline T JOIN(math_log1p_, NAME)(T x)\n"
    "{\n"
    "    T u = 1.0f + x, c = SEL(x < 1.0f, x - (u - 1.0f), 1.0f - (u - x));\n"
    "    I i = BITS(u) - 0x3f3504f3;\n"
    "    T k = CVT(i >> 23), f = FLOAT((i & 0x007fffff) + 0x3f3504f3) - 1.0f;\n"
    "    f = SEL(x < 1e10f, FMA(c, FLOAT((127 - (i >> 23)) << 23), f), f);\n"
    "    T y = JOIN(math_shrink_, NAME)(k, f);\n"
    "    y = SEL(u == __builtin_inff(), x, y);\n"
    "    y = SEL(u == 0.0f, (T){0} - __builtin_inff(), y);\n"
    "    y = SEL(x == 0.0f, x, y);\n"
    "    return SEL((u < 0.0f) | (x != x), (T){0} + __builtin_nanf(\"\"), y);\n"
    "}\n";

static const char turn_text[] =
    "/* sin or cos (turn 0, 1): x = n pi/2 + r, |r| <= pi/4, and of sin r and cos r (error 4e-9, 1e-10) the one that n wants */\n"
    "static inline T JOIN(math_turn_, NAME)(T x, int turn)\n"
    "{\n"
    "    T a = FLOAT(BITS(x) & 0x7fffffff);\n"
    "    T n = FMA(SEL(a < 1e5f, x, (T){0}), 0.636619772f, 12582912.0f) - 12582912.0f;\n"
    "    I q = TO_I(n) + turn;\n"
    "    T r = FMA(n, -4.82559204e-4f, FMA(n, -1.5703125f, x)); /* exact, fused or not */\n"
    "    r = FMA(n, -9.9209358e-10f, FMA(n, -1.2665987e-6f, r));\n"
    "    T t = r * r;\n"
    "    T s = FMA(-1.95172627e-4f, t, 8.33217788e-3f), c = FMA(2.44384081e-5f, t, -1.38873671e-3f);\n"
    "    s = FMA(FMA(s, t, -1.66666549e-1f) * t, r, r);\n"
    "    c = FMA(FMA(c, t, 4.16666469e-2f) * t, t, FMA(t, -0.5f, 1.0f));\n"
    "    T y = SEL((q & 1) != 0, c, s);\n"
    "    return FLOAT(BITS(y) ^ ((q & 2) << 30));\n"
    "}\n";

static const char sin_text[] =
    "static inline T JOIN(math_sin_, NAME)(T x)\n"
    "{\n"
    "    T y = JOIN(math_turn_, NAME)(x, 0);\n"
    "    I far = FLOAT(BITS(x) & 0x7fffffff) >= 1e5f;\n"
    "    far = far | (x != x);\n"
    "    if (ANY(far))\n"
    "        y = SEL(far, EACH(sinf, x), y);\n"
    "    return SEL(x == 0.0f, x, y);\n"
    "}\n";

static const char cos_text[] =
    "static inline T JOIN(math_cos_, NAME)(T x)\n"
    "{\n"
    "    T y = JOIN(math_turn_, NAME)(x, 1);\n"
    "    I far = FLOAT(BITS(x) & 0x7fffffff) >= 1e5f;\n"
    "    far = far | (x != x);\n"
    "    if (ANY(far))\n"
    "        y = SEL(far, EACH(cosf, x), y);\n"
    "    return y;\n"
    "}\n";

static const char atan2_text[] =
    "/* t + t^3 p(t^2) of the quotient below 1 (error 4e-9), turned into its eighth of the circle */\n"
    "static inline T JOIN(math_atan2_, NAME)(T y, T x)\n"
    "{\n"
    "    T a = FLOAT(BITS(y) & 0x7fffffff), b = FLOAT(BITS(x) & 0x7fffffff);\n"
    "    I steep = a > b;\n"
    "    T less = SEL(steep, b, a), more = SEL(steep, a, b), t = less / more;\n"
    "    t = SEL(more == 0.0f, (T){0}, t);\n"
    "    t = SEL(less == __builtin_inff(), (T){0} + 1.0f, t);\n"
    "    T u = t * t, p = FMA(1.13482514e-3f, u, -7.42237386e-3f);\n"
    "    p = FMA(p, u, 2.27597854e-2f);\n"
    "    p = FMA(p, u, -4.49457994e-2f);\n"
    "    p = FMA(p, u, 6.75952677e-2f);\n"
    "    p = FMA(p, u, -8.81882868e-2f);\n"
    "    p = FMA(p, u, 1.10602394e-1f);\n"
    "    p = FMA(p, u, -1.42801300e-1f);\n"
    "    p = FMA(p, u, 1.99996926e-1f);\n"
    "    p = FMA(p, u, -3.33333274e-1f);\n"
    "    T r = FMA(p * u, t, t);\n"
    "    r = SEL(steep, (1.57079637f - r) - 4.37113883e-8f, r);\n"
    "    r = SEL(BITS(x) < 0, (3.14159274f - r) - 8.74227766e-8f, r);\n"
    "    r = SEL((x != x) | (y != y), (T){0} + __builtin_nanf(\"\"), r);\n"
    "    return FLOAT(BITS(r) | (BITS(y) & (-0x7fffffff - 1)));\n"
    "}\n";

static const char pow_text[] =
    "/* e^(y log x), log x = k ln2 + f - f^2/2 + f^3 p(f) in two parts, h and l, since the power takes its error y times */\n"
    "static inline T JOIN(math_pow_, NAME)(T x, T y)\n"
    "{\n"
    "    I i = BITS(x) - 0x3f3504f3;\n"
    "    T k = CVT(i >> 23), f = FLOAT((i & 0x007fffff) + 0x3f3504f3) - 1.0f;\n"
    "    T p = FMA(5.84956453e-2f, f, -9.91044981e-2f);\n"
    "    p = FMA(p, f, 9.76369433e-2f);\n"
    "    p = FMA(p, f, -9.89422538e-2f);\n"
    "    p = FMA(p, f, 1.10492364e-1f);\n"
    "    p = FMA(p, f, -1.25025183e-1f);\n"
    "    p = FMA(p, f, 1.42879333e-1f);\n"
    "    p = FMA(p, f, -1.66666517e-1f);\n"
    "    p = FMA(p, f, 1.99999723e-1f);\n"
    "    p = FMA(p, f, -2.50000000e-1f);\n"
    "    p = FMA(p, f, 3.33333334e-1f);\n"
    "    T g = f * f, half = -0.5f * g, s = f + half;\n"
    "    T l = (f - s) + half - 0.5f * FMA(f, f, -g);\n"
    "    T a = k * 0.693359375f, h = a + s;\n"
    "    l = l + ((a - h) + s) + FMA(g * f, p, k * -2.12194440e-4f);\n"
    "    s = h + l;\n"
    "    l = (h - s) + l;\n"
    "    T z = y * s, rest = FMA(y, s, -z) + y * l;\n"
    "    T e = JOIN(math_exp_, NAME)(z);\n"
    "    e = SEL((e < __builtin_inff()) & (e > 0.0f), FMA(e, rest, e), e);\n"
    "    e = SEL(y == 0.0f, (T){0} + 1.0f, e);\n"
    "    I odd = (x >= 1.17549435e-38f) & (x < __builtin_inff());\n"
    "    odd = odd & (y > -1e9f) & (y < 1e9f);\n"
    "    odd = odd == 0;\n"
    "    if (ANY(odd))\n"
    "        e = SEL(odd, EACH2(powf, x, y), e);\n"
    "    return e;\n"
    "}\n";
/* clang-format on */

/* In the order in which they need each other: a function, and what calls it. */
static const struct {
    const char *text, *users[6];
} functions[] = {
    {grow_text, {"EXP(", "POW(", "EXPM1("}},
    {shrink_text, {"LOG(", "LOG1P("}},
    {exp_text, {"EXP(", "POW("}},
    {log_text, {"LOG("}},
    {tanh_text, {"TANH("}},
    {erf_text, {"ERF("}},
    {expm1_text, {"EXPM1("}},
    {log1p_text, {"LOG1P("}},
    {turn_text, {"SIN(", "COS("}},
    {sin_text, {"SIN("}},
    {cos_text, {"COS("}},
    {atan2_text, {"ATAN2("}},
    {pow_text, {"POW("}},
};

void ts_math_write(ts_text *out, const ts_render *r, const char *suffix,
                   bool (*uses)(const ts_render *, const char *suffix, const char *word))
{
    bool any = false;

    for (int i = 0; i < TS_COUNT(functions); i++) {
        bool wanted = false;
        for (int u = 0; functions[i].users[u]; u++)
            wanted = wanted || uses(r, suffix, functions[i].users[u]);
        if (wanted && !any)
            ts_text_printf(out, "#define FMA(a, b, c) JOIN(fma_, NAME)((a) - (T){0}, (b) - (T){0}, "
                                "(c) - (T){0}) /* numbers too */\n");
        any = any || wanted;
        if (wanted)
            ts_text_printf(out, "%s", functions[i].text);
    }
    if (any)
        ts_text_printf(out, "#undef FMA\n");
}

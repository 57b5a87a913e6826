/* prelude.c - the mathematics and half precision of generated code: against libm in double, against
 * rounding by definition, and scalar against vector, bit by bit. The functions are static in the
 * generated source, so the test adds a few lines behind it and builds that. */
#include "graph/graph.h"
#include "render/render.h"
#include "run/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 4096 };

typedef void math_fn(const float *x, float *one, float *many, int64_t n);
typedef void widen_fn(const uint16_t *x, float *one, float *many, int64_t n);
typedef void narrow_fn(const float *x, uint16_t *one, uint16_t *many, int64_t n);

static const char *const ops[] = {"exp",   "log",   "tanh", "erf", "sigmoid",
                                  "expm1", "log1p", "sin",  "cos"};

/* Of two operands. */
typedef void pair_fn(const float *x, const float *y, float *one, float *many, int64_t n);

static const char *const pairs[] = {"pow", "atan2"};

typedef struct lib {
    void *handle;
    ts_isa isa;
} lib;

/* n elements one by one and in vectors of w; n is a multiple of w. */
static void add_drivers(ts_text *t, int w)
{
    static const char *const halves[] = {"f16", "bf16"};

    for (int i = 0; i < TS_COUNT(ops); i++)
        ts_text_printf(
            t,
            "__attribute__((visibility(\"default\"))) void test_%s(const float *x, float *one, "
            "float *many, "
            "int64_t n)\n{\n"
            "    for (int64_t i = 0; i < n; i++)\n        one[i] = %s_f32(x[i]);\n"
            "    for (int64_t i = 0; i < n; i += %d)\n"
            "        *(f32x%du *)(many + i) = %s_f32x%d(*(const f32x%du *)(x + i));\n}\n",
            ops[i], ops[i], w, w, ops[i], w, w);
    for (int i = 0; i < TS_COUNT(pairs); i++)
        ts_text_printf(
            t,
            "__attribute__((visibility(\"default\"))) void test_%s(const float *x, const float *y, "
            "float *one, float *many, int64_t n)\n{\n"
            "    for (int64_t i = 0; i < n; i++)\n        one[i] = %s_f32(x[i], y[i]);\n"
            "    for (int64_t i = 0; i < n; i += %d)\n"
            "        *(f32x%du *)(many + i) = %s_f32x%d(*(const f32x%du *)(x + i), "
            "*(const f32x%du *)(y + i));\n}\n",
            pairs[i], pairs[i], w, w, pairs[i], w, w, w);
    for (int i = 0; i < TS_COUNT(halves); i++) {
        const char *h = halves[i];
        ts_text_printf(t,
                       "__attribute__((visibility(\"default\"))) void widen_%s(const uint16_t *x, "
                       "float *one, float *many, "
                       "int64_t n)\n{\n"
                       "    for (int64_t i = 0; i < n; i++)\n        one[i] = %s_to_f32(x[i]);\n"
                       "    for (int64_t i = 0; i < n; i += %d)\n"
                       "        *(f32x%du *)(many + i) = load_%sx%d(x + i);\n}\n",
                       h, h, w, w, h, w);
        ts_text_printf(t,
                       "__attribute__((visibility(\"default\"))) void narrow_%s(const float *x, "
                       "uint16_t *one, uint16_t "
                       "*many, int64_t n)\n{\n"
                       "    for (int64_t i = 0; i < n; i++)\n        one[i] = f32_to_%s(x[i]);\n"
                       "    for (int64_t i = 0; i < n; i += %d)\n"
                       "        store_%sx%d(many + i, *(const f32x%du *)(x + i));\n}\n",
                       h, h, w, h, w, w);
    }
}

/* A graph that uses every function as a scalar (the tail) and as a vector. */
static ts_graph *user(ts_arena *a)
{
    ts_graph *g = ts_graph_in(a, "prelude");
    ts_value *x = ts_input(g, "x", TS_F32, 33);

    ts_output(ts_cast(x, TS_F16), "f16");
    ts_output(ts_cast(x, TS_BF16), "bf16");
    for (int i = 0; i < TS_COUNT(ops); i++)
        ts_output(ts_apply(g, ops[i], 1, &x, 0, NULL), ops[i]);
    for (int i = 0; i < TS_COUNT(pairs); i++)
        ts_output(
            ts_apply(g, pairs[i], 2, (ts_value *[]){x, ts_input(g, pairs[i], TS_F32, 33)}, 0, NULL),
            pairs[i]);
    return g;
}

static lib load(const char *isa)
{
    ts_arena *a = ts_arena_new();
    ts_options opt = {.isa = isa};
    const ts_program *p;
    const ts_source *src = NULL;
    ts_source more;
    ts_text t = {0};
    lib l = {0};
    char *object;
    size_t bytes;

    if (ts_plan(a, user(a), &opt, &p) || ts_source_make(a, p, &opt, &src))
        fail_msg("%s", ts_error_text());
    ts_text_add(&t, src->text, src->len);
    add_drivers(&t, src->isa.width);
    more = (ts_source){.text = t.s, .len = t.len, .isa = src->isa, .flags = src->flags};
    if (ts_cc_build(&more, &opt, NULL, &object, &bytes) ||
        ts_library_open(object, bytes, &l.handle))
        fail_msg("%s", ts_error_text());
    l.isa = src->isa;
    free(object);
    ts_text_free(&t);
    ts_arena_free(a);
    return l;
}

static void *symbol(const lib *l, const char *prefix, const char *name)
{
    char s[64];
    void *f;

    snprintf(s, sizeof(s), "%s_%s", prefix, name);
    f = ts_library_symbol(l->handle, s);
    if (!f)
        fail_msg("there is no %s", s);
    return f;
}

static float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static bool same_bits(const void *p, const void *q, size_t bytes)
{
    return !memcmp(p, q, bytes);
}

static double exact(int op, double x)
{
    return op == 0   ? exp(x)
           : op == 1 ? log(x)
           : op == 2 ? tanh(x)
           : op == 3 ? erf(x)
           : op == 4 ? 1 / (1 + exp(-x))
           : op == 5 ? expm1(x)
           : op == 6 ? log1p(x)
           : op == 7 ? sin(x)
                     : cos(x);
}

/* Half of the last place of the smallest subnormal counts as equal. */
static void check_value(int op, float x, float y)
{
    double want = exact(op, x);

    if (want != want ? y != y : y == (float)want)
        return;
    if (isinf((float)want) || y != y || isinf(y)) {
        if (isinf(y) && want > 3.4028e38) /* a rounding beyond the largest float */
            return;
        fail_msg("%s(%a) is %a, not %a", ops[op], (double)x, (double)y, want);
    }
    if (op == 4 && fabs(want) < 1.2e-38 &&
        fabs(y) < 1.2e-38) /* 1/(1 + e^-x), and e^-x is infinite */
        return;
    if (fabs(y - want) > 4e-7 * fabs(want) + 1.5e-45)
        fail_msg("%s(%.9g = %a) is %.9g, not %.9g: relative error %.2g", ops[op], (double)x,
                 (double)x, (double)y, want, fabs(y - want) / fabs(want));
}

static void check_block(const lib *l, int op, const float *x, int n)
{
    static float one[MOST], many[MOST];

    ((math_fn *)symbol(l, "test", ops[op]))(x, one, many, n);
    for (int i = 0; i < n; i++) {
        check_value(op, x[i], one[i]);
        if (!same_bits(&one[i], &many[i], 4) && (one[i] == one[i] || many[i] == many[i]))
            fail_msg("%s(%a) is %a alone and %a in a vector (%s)", ops[op], (double)x[i],
                     (double)one[i], (double)many[i], l->isa.name);
    }
}

/* Every 4099th float of all, and all of those the ends of the intervals fall among. */
static void mathematics(const lib *l)
{
    static const float special[] = {
        0.0f,       -0.0f,          INFINITY,   -INFINITY, NAN,       1e-45f,    -1e-45f,
        1e-40f,     1.17e-38f,      1.0f,       -1.0f,     88.72283f, 88.7229f,  88.73f,
        -87.3365f,  -87.34f,        -103.9f,    -103.98f,  -104.1f,   0.625f,    0.62499997f,
        4.0f,       4.0000005f,     3.4028e38f, -3.4e38f,  0.707106f, 0.707107f, 1.4142135f,
        1.4142137f, 1.1754942e-38f, 9.0f,       1000.0f};
    static float x[MOST];

    for (int op = 0; op < TS_COUNT(ops); op++) {
        uint64_t bits = 0;
        check_block(l, op, special, TS_COUNT(special));
        while (bits <= UINT32_MAX) {
            for (int i = 0; i < MOST; i++, bits += 4099)
                x[i] = from_bits((uint32_t)bits);
            check_block(l, op, x, MOST);
        }
        for (int k = 0; k < 200; k++) { /* the middle, densely */
            for (int i = 0; i < MOST; i++)
                x[i] = ((float)(k * MOST + i) - 409600.0f) * 2.5e-4f;
            check_block(l, op, x, MOST);
        }
    }
}

/* Powers multiply the error of a logarithm, which is less where multiply-adds are fused. */
static void check_pairs(const lib *l, int op, const float *x, const float *y)
{
    static float one[MOST], many[MOST];
    double most = op == 0 ? (l->isa.width > 4 ? 1e-6 : 1e-5) : 4e-7;

    ((pair_fn *)symbol(l, "test", pairs[op]))(x, y, one, many, MOST);
    for (int i = 0; i < MOST; i++) {
        double want = op == 0 ? pow(x[i], y[i]) : atan2(x[i], y[i]);
        bool same = want != want ? one[i] != one[i] : one[i] == (float)want;
        if (!same && !(fabs(one[i] - want) <= most * fabs(want) + 3e-45) &&
            !(isinf(one[i]) && fabs(want) > 3.4027e38))
            fail_msg("%s(%a, %a) is %a, not %a", pairs[op], (double)x[i], (double)y[i],
                     (double)one[i], want);
        if (!same_bits(&one[i], &many[i], 4) && (one[i] == one[i] || many[i] == many[i]))
            fail_msg("%s(%a, %a) is %a alone and %a in a vector (%s)", pairs[op], (double)x[i],
                     (double)y[i], (double)one[i], (double)many[i], l->isa.name);
    }
}

/* Any two floats, special ones among them, and those that people take powers of. */
static void two_operands(const lib *l)
{
    static const float special[] = {
        0.0f,   -0.0f, INFINITY, -INFINITY, NAN,  1.0f, -1.0f,   2.0f, -2.0f, 3.0f,   -3.0f, 0.5f,
        1e-40f, -0.5f, 1e30f,    -1e30f,    1.5f, 1.7f, 3.4e38f, 2e9f, -2e9f, 1e-30f, 0.1f,  -0.1f};
    static float x[MOST], y[MOST];
    uint64_t seed = 7;

    for (int op = 0; op < TS_COUNT(pairs); op++)
        for (int round = 0; round < 64; round++) {
            for (int i = 0; i < MOST; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                x[i] = from_bits((uint32_t)(seed >> 32));
                y[i] = from_bits((uint32_t)(seed >> 16));
                if (round % 4 == 1) { /* 0..4 to the power of -8..8 */
                    x[i] = (float)((seed >> 40) & 0xffffff) / 4194304.0f;
                    y[i] = (float)((seed >> 20) & 0xfffff) / 65536.0f - 8.0f;
                } else if (round % 4 == 2) { /* about 1 to a high one */
                    x[i] = 0.9f + (float)((seed >> 40) & 0xffffff) / 83886080.0f;
                    y[i] = (float)((seed >> 20) & 0xfffff) / 1024.0f - 512.0f;
                } else if (round % 4 == 3) {
                    x[i] = special[(seed >> 33) % TS_COUNT(special)];
                    y[i] = special[(seed >> 50) % TS_COUNT(special)];
                }
            }
            check_pairs(l, op, x, y);
        }
}

static double half_value(bool brain, uint32_t h)
{
    return brain ? (double)ts_bf16_to_f32((uint16_t)h) : (double)ts_f16_to_f32((uint16_t)h);
}

static void widening(const lib *l, bool brain)
{
    static uint16_t x[MOST];
    static float one[MOST], many[MOST];
    widen_fn *f = symbol(l, "widen", brain ? "bf16" : "f16");

    for (uint32_t h = 0; h < 65536; h += MOST) {
        for (uint32_t i = 0; i < MOST; i++)
            x[i] = (uint16_t)(h + i);
        f(x, one, many, MOST);
        for (uint32_t i = 0; i < MOST; i++) {
            int exp = brain ? (x[i] >> 7) & 255 : (x[i] >> 10) & 31,
                mant = brain ? x[i] & 127 : x[i] & 1023;
            double m = brain ? mant / 128.0 : mant / 1024.0, sign = x[i] & 0x8000 ? -1 : 1;
            int bias = brain ? 127 : 15, all = brain ? 255 : 31;
            double want = exp == all ? (mant ? NAN : sign * INFINITY)
                                     : sign * ldexp(exp ? 1 + m : m, exp ? exp - bias : 1 - bias);
            bool ok = want != want ? one[i] != one[i] && many[i] != many[i]
                                   : one[i] == want && many[i] == want;
            if (!ok || (want == 0 && signbit(one[i]) != signbit((float)want)))
                fail_msg("%s %04x is %a alone, %a in a vector, not %a", brain ? "bf16" : "f16",
                         x[i], (double)one[i], (double)many[i], want);
        }
    }
}

/* Each half, the next one, the middle between them, and the floats beside the middle: nearest, ties
 * to even. The processor's own rounding to bf16 has no subnormals. */
static void narrowing(const lib *l, bool brain)
{
    bool flushed = brain && l->isa.pairs;
    uint32_t infinite = brain ? 0x7f80 : 0x7c00;
    narrow_fn *f = symbol(l, "narrow", brain ? "bf16" : "f16");

    for (uint32_t h = 0; h < infinite; h++) {
        double lo = half_value(brain, h), hi = h + 1 == infinite ? 2 * lo - half_value(brain, h - 1)
                                                                 : half_value(brain, h + 1);
        float mid = (float)((lo + hi) / 2);
        float x[16] = {(float)lo, mid, nextafterf(mid, 0), nextafterf(mid, INFINITY),
                       nextafterf((float)lo, INFINITY)};
        uint32_t want[5] = {h, h & 1 ? h + 1 : h, h, h + 1, h};
        uint16_t one[16], many[16];
        if (x[2] == x[0] && lo == (lo + hi) / 2)
            continue;
        for (int i = 0; i < 5; i++)
            want[i] = flushed && x[i] < 0x1p-126f ? 0 : want[i];
        for (int i = 0; i < 8; i++)
            x[8 + i] = -x[i];
        f(x, one, many, 16);
        for (int i = 0; i < 5; i++)
            if (one[i] != want[i] || one[8 + i] != (want[i] | 0x8000) ||
                !same_bits(one, many, sizeof(one)))
                fail_msg("%a to %s is %04x alone, %04x in a vector, not %04x", (double)x[i],
                         brain ? "bf16" : "f16", one[i], many[i], want[i]);
    }
    {
        float x[16] = {INFINITY, -INFINITY, NAN,      -NAN,    3.4e38f,
                       -3.4e38f, 1e-45f,    65519.0f, 65520.0f};
        uint16_t one[16], many[16];
        f(x, one, many, 16);
        assert_true(same_bits(one, many, sizeof(one)));
        assert_int_equal(one[0], infinite);
        assert_int_equal(one[1], infinite | 0x8000);
        assert_true((one[2] & 0x7fff) > infinite && (one[3] & 0x7fff) > infinite);
        for (int i = 4; i < 9; i++)
            assert_int_equal(one[i], brain ? ts_f32_to_bf16(x[i]) : ts_f32_to_f16(x[i]));
    }
}

static void check(const char *isa)
{
    lib l = load(isa);

    mathematics(&l);
    two_operands(&l);
    for (int brain = 0; brain < 2; brain++) {
        widening(&l, brain);
        narrowing(&l, brain);
    }
    ts_library_close(l.handle);
}

static void this_machine(void **state)
{
    (void)state;
    check(NULL);
}

static void portable(void **state)
{
    (void)state;
    check("portable");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(this_machine), cmocka_unit_test(portable)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ix.c - index expressions against plain integers: random chains of +, *, / and % over variables.
 */
#include "op/emit.h"
#include "support.h"

#define VARS  4
#define ROUND 40 /* assignments tried for each expression */

/* What was asked for, kept beside what ix.c made of it. */
typedef struct step {
    enum { VAR, CONST, ADD, ADDC, MUL, DIV, MOD } kind;
    int x, y; /* earlier steps */
    int64_t k;
} step;

static const ts_atom *var[VARS];
static int64_t at[VARS];

static int64_t floor_div(int64_t x, int64_t k)
{
    return x / k - (x % k < 0);
}

/* The simplified expression's value now. */
static int64_t value(const ts_ix *x)
{
    int64_t sum = x->c;

    for (int i = 0; i < x->n; i++) {
        const ts_atom *q = x->t[i].atom;
        int64_t v = 0;
        for (int j = 0; q->kind == TS_ATOM_VAR && j < VARS; j++)
            v = q == var[j] ? at[j] : v;
        if (q->kind == TS_ATOM_DIV)
            v = floor_div(value(q->of), q->by);
        if (q->kind == TS_ATOM_MOD)
            v = value(q->of) - q->by * floor_div(value(q->of), q->by);
        assert_in_range(v - q->lo, 0, q->hi - q->lo);
        sum += x->t[i].k * v;
    }
    return sum;
}

/* The same by the steps as they were asked for. */
static int64_t expected(const step *s, int i)
{
    const step *p = &s[i];

    switch (p->kind) {
    case VAR:
        return at[p->k];
    case CONST:
        return p->k;
    case ADD:
        return expected(s, p->x) + expected(s, p->y);
    case ADDC:
        return expected(s, p->x) + p->k;
    case MUL:
        return expected(s, p->x) * p->k;
    case DIV:
        return floor_div(expected(s, p->x), p->k);
    default:
        return expected(s, p->x) - p->k * floor_div(expected(s, p->x), p->k);
    }
}

static const ts_ix *build(ts_arena *a, const step *p, const ts_ix **made)
{
    switch (p->kind) {
    case VAR:
        return ts_ix_var(a, var[p->k]);
    case CONST:
        return ts_ix_const(a, p->k);
    case ADD:
        return ts_ix_add(a, made[p->x], made[p->y]);
    case ADDC:
        return ts_ix_addc(a, made[p->x], p->k);
    case MUL:
        return ts_ix_mul(a, made[p->x], p->k);
    case DIV:
        return ts_ix_div(a, made[p->x], p->k);
    default:
        return ts_ix_mod(a, made[p->x], p->k);
    }
}

/* Divisors that like to meet: powers of two, small numbers, a variable's range. */
static int64_t divisor(test_random *r)
{
    static const int64_t common[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 28, 32, 64};

    return common[test_next(r) % TS_COUNT(common)];
}

static void variables(ts_arena *a, test_random *r, bool negative)
{
    for (int i = 0; i < VARS; i++) {
        int64_t lo = negative && test_next(r) % 3 == 0 ? -test_between(r, 1, 9) : 0;
        var[i] = ts_atom_var(a, ts_arena_printf(a, "v%d", i), lo,
                             lo + (test_next(r) % 6 ? divisor(r) - 1 : 0));
    }
}

/* A step from those before it; a quotient or remainder only of what cannot be negative. */
static step choose(test_random *r, int i, const ts_ix *const *made)
{
    step p = {.kind = i < VARS ? VAR : (int)test_between(r, CONST, MOD), .k = i};
    int64_t lo, hi;

    if (i < VARS)
        return p;
    p.x = (int)(test_next(r) % (uint64_t)i);
    p.y = (int)(test_next(r) % (uint64_t)i);
    p.k = p.kind == DIV || p.kind == MOD ? divisor(r) : test_between(r, -9, 20);
    if (p.kind == MUL && test_next(r) % 2)
        p.k = divisor(r);
    ts_ix_range(made[p.x], &lo, &hi);
    if ((p.kind == DIV || p.kind == MOD) && lo < 0)
        p = (step){.kind = ADDC, .x = p.x, .k = -lo};
    if (p.kind == MUL && hi - lo > 100000)
        p = (step){.kind = MOD, .x = p.x, .k = 8};
    if (p.kind == MOD && lo < 0)
        p = (step){.kind = CONST, .k = 3};
    return p;
}

static void random_chains(bool negative, uint64_t seed)
{
    test_random r = {seed};
    step s[16];
    const ts_ix *made[16];

    for (int round = 0; round < 4000; round++) {
        ts_arena *a = ts_arena_new();
        int n = (int)test_between(&r, VARS + 1, TS_COUNT(s));
        variables(a, &r, negative);
        for (int i = 0; i < n; i++) {
            s[i] = choose(&r, i, made);
            made[i] = build(a, &s[i], made);
        }
        for (int k = 0; k < ROUND; k++) {
            for (int i = 0; i < VARS; i++)
                at[i] = test_between(&r, var[i]->lo, var[i]->hi);
            for (int i = 0; i < n; i++) {
                int64_t got = value(made[i]), want = expected(s, i), lo, hi;
                if (got != want)
                    fail_msg("round %d: %s is %ld, not %ld, at %ld %ld %ld %ld", round,
                             ts_ix_text(a, made[i]), (long)got, (long)want, (long)at[0],
                             (long)at[1], (long)at[2], (long)at[3]);
                ts_ix_range(made[i], &lo, &hi);
                assert_true(lo <= got && got <= hi);
            }
        }
        ts_arena_free(a);
    }
}

static void chains_over_loops(void **state)
{
    (void)state;
    random_chains(false, 1);
}

static void chains_over_padding(void **state)
{
    (void)state;
    random_chains(true, 2);
}

/* What the simplification is for. */
static void what_must_vanish(void **state)
{
    ts_arena *a = ts_arena_new();
    const ts_atom *g = ts_atom_var(a, "g", 0, 9), *c = ts_atom_var(a, "c", 0, 7),
                  *l = ts_atom_var(a, "l", 0, 7);
    const ts_ix *x = ts_ix_add(a, ts_ix_mul(a, ts_ix_var(a, g), 64),
                               ts_ix_add(a, ts_ix_mul(a, ts_ix_var(a, c), 8), ts_ix_var(a, l)));
    const ts_ix *q = ts_ix_div(a, x, 5), *m = ts_ix_mod(a, x, 5);
    int64_t k;

    (void)state;
    assert_string_equal(ts_ix_text(a, x), "64 * g + 8 * c + l");
    assert_string_equal(ts_ix_text(a, ts_ix_div(a, x, 8)), "8 * g + c");
    assert_string_equal(ts_ix_text(a, ts_ix_mod(a, x, 8)), "l");
    assert_string_equal(ts_ix_text(a, ts_ix_div(a, x, 64)), "g");
    assert_string_equal(ts_ix_text(a, ts_ix_mod(a, ts_ix_div(a, x, 8), 8)), "c");
    /* c and l do not matter to g's part of it */
    assert_string_equal(ts_ix_text(a, ts_ix_div(a, x, 192)), "g / 3");
    assert_string_equal(ts_ix_text(a, ts_ix_mod(a, x, 192)), "64 * (g % 3) + 8 * c + l");
    assert_string_equal(ts_ix_text(a, ts_ix_mod(a, ts_ix_div(a, x, 32), 6)), "2 * (g % 3) + c / 4");
    /* 5 * (x / 5) + x % 5 is x again */
    assert_true(ts_ix_same(ts_ix_add(a, ts_ix_mul(a, q, 5), m), x));
    assert_true(ts_ix_is_const(ts_ix_add(a, x, ts_ix_mul(a, x, -1)), &k));
    assert_int_equal(k, 0);
    assert_true(ts_ix_uses(q, l) && !ts_ix_linear(q, l));
    assert_int_equal(ts_ix_coef(x, c), 8);
    ts_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_must_vanish),
        cmocka_unit_test(chains_over_loops),
        cmocka_unit_test(chains_over_padding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

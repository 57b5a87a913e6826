/* ix.c - index expressions: linear sums of loop variables, quotients and remainders.
 *
 * The work is in division. To divide 64*g + 8*c + l by 8, the terms whose factor 8 divides go
 * straight through (8*g + c), and what is left (l, in 0..7) vanishes because its range lies in [0,
 * 8). To divide 64*h + c by 768, c in 0..63 does not matter: it is h/12, and the remainder is
 * 64*(h%12) + c. Only what does not simplify becomes a quotient atom. And 8*(x/8) + x%8 is x again,
 * which is what makes a reshape of a reshape cost nothing.
 */
#include "op/emit.h"

static _Thread_local int next_id = 1;

const ts_atom *ts_atom_var(ts_arena *a, const char *name, int64_t lo, int64_t hi)
{
    ts_atom *x = TS_NEW(a, ts_atom);

    *x = (ts_atom){.kind = TS_ATOM_VAR, .id = next_id++, .name = name, .lo = lo, .hi = hi};
    return x;
}

const ts_ix *ts_ix_const(ts_arena *a, int64_t c)
{
    ts_ix *x = TS_NEW(a, ts_ix);

    x->c = c;
    return x;
}

const ts_ix *ts_ix_var(ts_arena *a, const ts_atom *atom)
{
    ts_ix *x;

    if (atom->lo == atom->hi)
        return ts_ix_const(a, atom->lo);
    x = TS_NEW(a, ts_ix);
    x->n = 1;
    x->t = TS_NEW(a, ts_term);
    x->t[0] = (ts_term){atom, 1};
    return x;
}

static bool same_atom(const ts_atom *p, const ts_atom *q)
{
    if (p == q)
        return true;
    return p->kind != TS_ATOM_VAR && p->kind == q->kind && p->by == q->by &&
           ts_ix_same(p->of, q->of);
}

bool ts_ix_same(const ts_ix *x, const ts_ix *y)
{
    if (x->c != y->c || x->n != y->n)
        return false;
    for (int i = 0; i < x->n; i++)
        if (x->t[i].k != y->t[i].k || !same_atom(x->t[i].atom, y->t[i].atom))
            return false;
    return true;
}

/* Adds k*atom to a sum with room for it. */
static void add_term(ts_ix *x, const ts_atom *atom, int64_t k)
{
    int i = 0;

    for (; i < x->n; i++)
        if (same_atom(x->t[i].atom, atom)) {
            x->t[i].k += k;
            if (!x->t[i].k) {
                memmove(&x->t[i], &x->t[i + 1], sizeof(ts_term) * (size_t)(x->n - i - 1));
                x->n--;
            }
            return;
        }
    for (i = x->n; i > 0 && x->t[i - 1].atom->id > atom->id; i--)
        x->t[i] = x->t[i - 1];
    x->t[i] = (ts_term){atom, k};
    x->n++;
}

/* Is q the quotient that goes with remainder r: x/by with x%by, or x/(m*by) with (x/m)%by? */
static bool goes_with(const ts_atom *q, const ts_atom *r)
{
    const ts_ix *of = r->of;

    if (q->kind != TS_ATOM_DIV || r->kind != TS_ATOM_MOD)
        return false;
    if (r->by == q->by && ts_ix_same(of, q->of))
        return true;
    return !of->c && of->n == 1 && of->t[0].k == 1 && of->t[0].atom->kind == TS_ATOM_DIV &&
           of->t[0].atom->by * r->by == q->by && ts_ix_same(of->t[0].atom->of, q->of);
}

/* k*by*(x/by) + k*(x%by) is k*x. */
static const ts_ix *rejoin(ts_arena *a, const ts_ix *x)
{
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < x->n; j++) {
            const ts_atom *r = x->t[j].atom;
            ts_ix *rest;
            if (!goes_with(x->t[i].atom, r) || x->t[i].k != x->t[j].k * r->by)
                continue;
            rest = TS_NEW(a, ts_ix);
            rest->c = x->c;
            rest->t = TS_NEWS(a, ts_term, x->n);
            for (int m = 0; m < x->n; m++)
                if (m != i && m != j)
                    rest->t[rest->n++] = x->t[m];
            return ts_ix_add(a, rest, ts_ix_mul(a, r->of, x->t[j].k));
        }
    return x;
}

const ts_ix *ts_ix_add(ts_arena *a, const ts_ix *x, const ts_ix *y)
{
    ts_ix *s = TS_NEW(a, ts_ix);

    s->c = x->c + y->c;
    s->t = TS_NEWS(a, ts_term, x->n + y->n + 1);
    if (x->n)
        memcpy(s->t, x->t, sizeof(ts_term) * (size_t)x->n);
    s->n = x->n;
    for (int i = 0; i < y->n; i++)
        add_term(s, y->t[i].atom, y->t[i].k);
    return rejoin(a, s);
}

const ts_ix *ts_ix_addc(ts_arena *a, const ts_ix *x, int64_t c)
{
    ts_ix *s = TS_NEW(a, ts_ix);

    *s = *x;
    s->c += c;
    return s;
}

const ts_ix *ts_ix_mul(ts_arena *a, const ts_ix *x, int64_t k)
{
    ts_ix *s = TS_NEW(a, ts_ix);

    if (!k)
        return s;
    s->c = x->c * k;
    s->n = x->n;
    s->t = TS_NEWS(a, ts_term, x->n);
    for (int i = 0; i < x->n; i++)
        s->t[i] = (ts_term){x->t[i].atom, x->t[i].k * k};
    return s;
}

void ts_ix_range(const ts_ix *x, int64_t *lo, int64_t *hi)
{
    *lo = *hi = x->c;
    for (int i = 0; i < x->n; i++) {
        int64_t k = x->t[i].k;
        *lo += k * (k > 0 ? x->t[i].atom->lo : x->t[i].atom->hi);
        *hi += k * (k > 0 ? x->t[i].atom->hi : x->t[i].atom->lo);
    }
}

static int64_t floor_div(int64_t x, int64_t k)
{
    return x / k - (x % k != 0 && (x < 0) != (k < 0));
}

/* Splits x into k*whole + rest, rest's terms having factors k does not divide. Multiples of k move
 * over until rest is never negative: C's / and % round to zero, ours down. */
static void split(ts_arena *a, const ts_ix *x, int64_t k, ts_ix *whole, ts_ix *rest)
{
    int64_t lo, hi;

    *whole = (ts_ix){.c = floor_div(x->c, k), .t = TS_NEWS(a, ts_term, x->n)};
    *rest = (ts_ix){.c = x->c - k * whole->c, .t = TS_NEWS(a, ts_term, x->n)};
    for (int i = 0; i < x->n; i++) {
        int64_t f = x->t[i].k;
        if (f % k == 0)
            whole->t[whole->n++] = (ts_term){x->t[i].atom, f / k};
        else
            rest->t[rest->n++] = x->t[i];
    }
    ts_ix_range(rest, &lo, &hi);
    if (lo < 0) {
        whole->c += floor_div(lo, k);
        rest->c -= k * floor_div(lo, k);
    }
}

/* C divides towards zero, and k*whole + rest >= 0 does not keep rest from being negative: -l + 7
 * with whole = g. Moves enough multiples of k from whole to rest. */
static void lift(ts_ix *whole, ts_ix *rest, int64_t k)
{
    int64_t lo, hi;

    ts_ix_range(rest, &lo, &hi);
    if (lo < 0) {
        whole->c += floor_div(lo, k);
        rest->c -= k * floor_div(lo, k);
    }
}

static const ts_ix *atom_ix(ts_arena *a, int kind, const ts_ix *of, int64_t by)
{
    ts_atom *q = TS_NEW(a, ts_atom);
    int64_t lo, hi;

    ts_ix_range(of, &lo, &hi);
    q->kind = kind;
    q->of = of;
    q->by = by;
    q->id = of->n ? of->t[of->n - 1].atom->id : 0;
    q->lo = kind == TS_ATOM_DIV ? floor_div(lo, by) : 0;
    q->hi = kind == TS_ATOM_DIV ? floor_div(hi, by) : TS_MIN(hi, by - 1);
    return ts_ix_var(a, q);
}

static int64_t gcd(int64_t x, int64_t y)
{
    return y ? gcd(y, x % y) : x;
}

/* A factor g of k with x = g*outer + inner and inner in 0..g-1, or 0: the features of a head, g of
 * them, do not matter to which sample a head belongs to. x is never negative. */
static int64_t factor(ts_arena *a, const ts_ix *x, int64_t k, ts_ix *outer, ts_ix *inner)
{
    for (int i = 0; i < x->n; i++) {
        int64_t g = gcd(k, x->t[i].k < 0 ? -x->t[i].k : x->t[i].k), lo, hi;
        if (g == 1)
            continue;
        split(a, x, g, outer, inner);
        ts_ix_range(inner, &lo, &hi);
        if (lo >= 0 && hi < g)
            return g;
    }
    return 0;
}

const ts_ix *ts_ix_div(ts_arena *a, const ts_ix *x, int64_t k)
{
    ts_ix *whole = TS_NEW(a, ts_ix), *rest = TS_NEW(a, ts_ix), *outer = TS_NEW(a, ts_ix), inner;
    int64_t lo, hi, g;

    if (k == 1)
        return x;
    split(a, x, k, whole, rest);
    ts_ix_range(rest, &lo, &hi);
    if (floor_div(lo, k) == floor_div(hi, k)) {
        whole->c += floor_div(lo, k);
        return whole;
    }
    lift(whole, rest, k);
    g = factor(a, rest, k, outer, &inner);
    if (g)
        return ts_ix_add(a, whole, ts_ix_div(a, outer, k / g));
    /* (x/m)/k is x/(m*k) */
    if (!rest->c && rest->n == 1 && rest->t[0].k == 1 && rest->t[0].atom->kind == TS_ATOM_DIV)
        return ts_ix_add(a, whole, ts_ix_div(a, rest->t[0].atom->of, rest->t[0].atom->by * k));
    return ts_ix_add(a, whole, atom_ix(a, TS_ATOM_DIV, rest, k));
}

const ts_ix *ts_ix_mod(ts_arena *a, const ts_ix *x, int64_t k)
{
    ts_ix *whole = TS_NEW(a, ts_ix), *rest = TS_NEW(a, ts_ix), *inner = TS_NEW(a, ts_ix), outer;
    int64_t lo, hi, g;

    if (k == 1)
        return ts_ix_const(a, 0);
    split(a, x, k, whole, rest);
    ts_ix_range(rest, &lo, &hi);
    if (floor_div(lo, k) == floor_div(hi, k))
        return ts_ix_addc(a, rest, -k * floor_div(lo, k));
    lift(whole, rest, k);
    g = factor(a, rest, k, &outer, inner);
    if (g)
        return ts_ix_add(a, ts_ix_mul(a, ts_ix_mod(a, &outer, k / g), g), inner);
    return atom_ix(a, TS_ATOM_MOD, rest, k);
}

bool ts_ix_is_const(const ts_ix *x, int64_t *c)
{
    *c = x->c;
    return !x->n;
}

bool ts_ix_uses(const ts_ix *x, const ts_atom *atom)
{
    for (int i = 0; i < x->n; i++)
        if (x->t[i].atom == atom || (x->t[i].atom->of && ts_ix_uses(x->t[i].atom->of, atom)))
            return true;
    return false;
}

int64_t ts_ix_coef(const ts_ix *x, const ts_atom *atom)
{
    for (int i = 0; i < x->n; i++)
        if (x->t[i].atom == atom)
            return x->t[i].k;
    return 0;
}

bool ts_ix_linear(const ts_ix *x, const ts_atom *atom)
{
    for (int i = 0; i < x->n; i++)
        if (x->t[i].atom->of && ts_ix_uses(x->t[i].atom->of, atom))
            return false;
    return true;
}

/* Quotients and remainders go from the left to the right, as in C: i / 6 % 4 needs no parentheses. */
static bool is_atom(const ts_ix *x)
{
    return x->n == 1 && x->t[0].k == 1 && !x->c;
}

static const char *atom_text(ts_arena *a, const ts_atom *x)
{
    if (x->kind == TS_ATOM_VAR)
        return x->name;
    return ts_arena_printf(a, is_atom(x->of) ? "%s %c %ld" : "(%s) %c %ld", ts_ix_text(a, x->of),
                           x->kind == TS_ATOM_DIV ? '/' : '%', (long)x->by);
}

const char *ts_ix_text(ts_arena *a, const ts_ix *x)
{
    const char *s = "";

    for (int i = 0; i < x->n; i++) {
        const ts_atom *atom = x->t[i].atom;
        int64_t k = x->t[i].k;
        const char *one = atom_text(a, atom);
        const char *sign = k < 0 ? (i ? " - " : "-") : i ? " + " : "";

        if (k == 1 || (k == -1 && i))
            s = ts_arena_printf(a, "%s%s%s", s, sign, one);
        else if (k == -1)
            s = ts_arena_printf(a, atom->kind == TS_ATOM_VAR ? "-%s" : "-(%s)", one);
        else
            s = ts_arena_printf(a, atom->kind == TS_ATOM_VAR ? "%s%s%ld * %s" : "%s%s%ld * (%s)", s,
                                sign, (long)(k < 0 ? -k : k), one);
    }
    if (!x->n)
        return ts_arena_printf(a, "%ld", (long)x->c);
    if (x->c)
        s = ts_arena_printf(a, "%s %c %ld", s, x->c < 0 ? '-' : '+',
                            (long)(x->c < 0 ? -x->c : x->c));
    return s;
}

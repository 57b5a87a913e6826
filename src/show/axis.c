/* axis.c - where ticks go and what they are called: multiples of 1, 2 or 5 times a power of ten, or
 * powers of ten on a log scale. */
#include "show/show.h"
#include <math.h>

static const double TINY = 1e-280;  /* what is smaller is as good as 0 */
static const double DECADES = 1000; /* between least and most, for a log scale */

/* The nice number at or above v. */
static double nice(double v)
{
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(v)));
    int i = 0;

    while (i < 3 && v > steps[i] * power * (1 + 1e-9))
        i++;
    return steps[i] * power;
}

static ts_axis log_axis(double lo, double hi, int ticks)
{
    double a = log10(lo), b = log10(hi), pad = 0.03 * (b - a);
    ts_axis x = {.lo = pow(10, a - pad), .hi = pow(10, b + pad), .log = true};

    x.step = TS_MAX(1, ceil((b - a) / ticks));
    return x;
}

/* About `ticks` of them over lo..hi; whole: only at whole numbers. */
ts_axis ts_axis_make(double lo, double hi, int ticks, bool whole, bool may_log)
{
    double span = hi - lo, pad;
    ts_axis x = {0};

    if (may_log && lo > TINY && hi / lo > DECADES)
        return log_axis(lo, hi, ticks);
    if (span > TS_MAX(TINY, 1e-12 * TS_MAX(fabs(lo), fabs(hi))))
        pad = 0.04 * span;
    else
        pad = whole && fabs(lo) < 1e9 ? 0.5 : fabs(lo) > TINY ? 0.1 * fabs(lo) : 1;
    x.lo = lo - pad;
    x.hi = hi + pad;
    x.step = nice((x.hi - x.lo) / ticks);
    if (whole)
        x.step = TS_MAX(1, x.step);
    return x;
}

double ts_axis_place(const ts_axis *a, double v)
{
    if (a->log)
        return log10(v / a->lo) / log10(a->hi / a->lo);
    return (v - a->lo) / (a->hi - a->lo);
}

int ts_axis_ticks(const ts_axis *a, double *at, int max)
{
    double lo = a->log ? log10(a->lo) : a->lo, hi = a->log ? log10(a->hi) : a->hi;
    double first = ceil(lo / a->step - 1e-9);
    int n = 0;

    for (; n < max && (first + n) * a->step <= hi + 1e-9 * a->step; n++)
        at[n] = a->log ? pow(10, (first + n) * a->step) : (first + n) * a->step;
    return n;
}

/* With the decimals that tell neighbours apart; millions and more as 1.5 M. */
void ts_axis_label(const ts_axis *a, double v, char *s, size_t size)
{
    static const char *const suffix[] = {"", " M", " G", " T"};
    double most = TS_MAX(fabs(a->lo), fabs(a->hi)), unit = 1;
    int decimals, k = 0;

    if (!a->log && fabs(v) < 1e-9 * a->step)
        v = 0;
    for (; k < 3 && most >= unit * (k ? 1e3 : 1e6); k++)
        unit *= k ? 1e3 : 1e6;
    decimals = (int)TS_MAX(0, -floor(log10(a->step / unit) + 1e-9));
    if (a->log || most >= 1e15 || decimals > 6)
        ts_format(s, size, "%.10g", v);
    else
        ts_format(s, size, "%.*f%s", decimals, v / unit, v ? suffix[k] : "");
}

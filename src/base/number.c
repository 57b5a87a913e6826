/* number.c - text of numbers, the same in every locale: IR and C want a point where a program that
 * called setlocale() may have asked for a comma.
 *
 * Words and whole numbers, nearly all that is written, are put together here. The C library is slow at it
 * in a process in which somebody has registered a conversion of printf, as libquadmath does, which numpy
 * and PyTorch bring along: writing the C of 5,700 kernels took 4 s there.
 */
#include "base/base.h"
#include <locale.h>
#include <stdatomic.h>

static locale_t c_locale(void)
{
    static _Atomic(locale_t) known;
    locale_t l = atomic_load(&known), none = (locale_t)0;

    if (l)
        return l;
    l = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (l && !atomic_compare_exchange_strong(&known, &none, l)) {
        freelocale(l);
        l = none;
    }
    return l;
}

/* What a conversion is that is put together here, from behind its %: its last letter, or 0. */
static char simple(const char **p)
{
    char first = **p, wide = first == 'l' ? 'd' : first == 'z' ? 'u' : 0;

    if (wide) {
        (*p)++;
        return **p == wide ? first : 0;
    }
    return first && strchr("sdc%", first) ? first : 0;
}

static bool all_simple(const char *fmt)
{
    for (; (fmt = strchr(fmt, '%')); fmt++) {
        fmt++;
        if (!simple(&fmt))
            return false;
    }
    return true;
}

typedef struct out {
    char *s;
    size_t size, n; /* n: bytes so far, whether or not they fit */
} out;

static void put(out *o, const char *s, size_t len)
{
    if (o->n + 1 < o->size)
        memcpy(o->s + o->n, s, TS_MIN(len, o->size - 1 - o->n));
    o->n += len;
}

static void put_number(out *o, unsigned long x, bool negative)
{
    char digits[24], *p = digits + sizeof(digits);

    do
        *--p = (char)('0' + x % 10);
    while (x /= 10);
    if (negative)
        *--p = '-';
    put(o, p, (size_t)(digits + sizeof(digits) - p));
}

static void put_signed(out *o, long x)
{
    put_number(o, x < 0 ? 0 - (unsigned long)x : (unsigned long)x, x < 0);
}

static void put_word(out *o, const char *s)
{
    s = s ? s : "(null)";
    put(o, s, strlen(s));
}

static int format_simple(out o, const char *fmt, va_list ap)
{
    for (const char *p; (p = strchr(fmt, '%')); fmt = p + 1) {
        char kind, c;
        put(&o, fmt, (size_t)(p - fmt));
        p++;
        kind = simple(&p);
        if (kind == 's')
            put_word(&o, va_arg(ap, const char *));
        else if (kind == 'd')
            put_signed(&o, va_arg(ap, int));
        else if (kind == 'l')
            put_signed(&o, va_arg(ap, long));
        else if (kind == 'z')
            put_number(&o, va_arg(ap, size_t), false);
        else {
            c = kind == 'c' ? (char)va_arg(ap, int) : '%';
            put(&o, &c, 1);
        }
    }
    put(&o, fmt, strlen(fmt));
    if (o.size)
        o.s[TS_MIN(o.n, o.size - 1)] = 0;
    return (int)o.n;
}

int ts_vformat(char *s, size_t size, const char *fmt, va_list ap)
{
    if (all_simple(fmt))
        return format_simple((out){s, size, 0}, fmt, ap);

    locale_t l = c_locale(), before = l ? uselocale(l) : (locale_t)0;
    int n = vsnprintf(s, size, fmt, ap);

    if (l)
        uselocale(before);
    return n;
}

int ts_format(char *s, size_t size, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = ts_vformat(s, size, fmt, ap);
    va_end(ap);
    return n;
}

double ts_to_real(const char *s, char **end)
{
    locale_t l = c_locale();

    return l ? strtod_l(s, end, l) : strtod(s, end);
}

/* number.c - text of numbers, the same in every locale: IR and C want a point where a program that
 * called setlocale() may have asked for a comma.
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

int ts_vformat(char *s, size_t size, const char *fmt, va_list ap)
{
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

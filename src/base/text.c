/* text.c - a string that grows; used for IR text and generated C. */
#include "base/base.h"

static void room(ts_text *t, size_t more)
{
    if (t->len + more + 1 <= t->cap)
        return;
    t->cap = TS_MAX(2 * t->cap, t->len + more + 256);
    t->s = realloc(t->s, t->cap);
    if (!t->s) {
        fprintf(stderr, "tessera: out of memory for the compiler's own text (%zu bytes)\n", t->cap);
        abort();
    }
}

void ts_text_add(ts_text *t, const char *s, size_t len)
{
    room(t, len);
    memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = 0;
}

void ts_text_printf(ts_text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = ts_vformat(NULL, 0, fmt, ap);
    va_end(ap);
    room(t, (size_t)n);
    va_start(ap, fmt);
    ts_vformat(t->s + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->len += (size_t)n;
}

void ts_text_free(ts_text *t)
{
    free(t->s);
    *t = (ts_text){0};
}

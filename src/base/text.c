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
    if (len) /* nothing may have no place */
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

/* Does the byte stand for itself in a C comment as in a string literal? The second byte of what opens or ends
 * a comment does not, nor does what trigraphs and line breaks are made of. */
static bool plain_in_c(char before, char c)
{
    if ((unsigned char)c < ' ' || c == 0x7f || c == '"' || c == '\\' || c == '?')
        return false;
    return !(before == '*' && c == '/') && !(before == '/' && c == '*');
}

/* U+2000 to U+207F in UTF-8: among them are the marks that turn the direction of reading. */
static bool punctuation(const char *s, size_t len)
{
    return len >= 3 && (unsigned char)s[0] == 0xe2 && ((unsigned char)s[1] & ~1u) == 0x80;
}

void ts_text_c(ts_text *t, const char *s, size_t len)
{
    size_t escape = 0; /* bytes from here that must not stand for themselves */

    for (size_t i = 0; i<len; i++, escape -= escape> 0) {
        char before = t->len ? t->s[t->len - 1] : 0;
        if (punctuation(s + i, len - i))
            escape = 3;
        if (!escape && plain_in_c(before, s[i]))
            ts_text_add(t, s + i, 1);
        else
            ts_text_printf(t, "\\%03o", (unsigned char)s[i]);
    }
}

char *ts_c_text(ts_arena *a, const char *s)
{
    ts_text t = {0};
    char *made;

    ts_text_c(&t, s, strlen(s));
    made = ts_arena_strdup(a, t.s ? t.s : "");
    ts_text_free(&t);
    return made;
}

void ts_text_free(ts_text *t)
{
    free(t->s);
    *t = (ts_text){0};
}

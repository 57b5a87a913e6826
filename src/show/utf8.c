/* utf8.c - texts of users, made fit for a screen, a picture or a protocol.
 *
 * A class name or a tag can hold anything. Cairo refuses a string with one invalid byte, protobuf
 * too, and a newline or an escape sequence in a label would tear a bar apart.
 */
#include "show/show.h"
#include <wchar.h>

/* The bytes that follow this first one, and the bits it holds itself; -1: no first byte. */
static int tail_of(unsigned char c, int *bits)
{
    if (c < 0x80)
        return *bits = c, 0;
    if (c >= 0xc2 && c < 0xe0)
        return *bits = c & 0x1f, 1;
    if (c >= 0xe0 && c < 0xf0)
        return *bits = c & 0x0f, 2;
    if (c >= 0xf0 && c < 0xf5)
        return *bits = c & 0x07, 3;
    return -1;
}

int ts_utf8_next(const char **s)
{
    static const int least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)(*s)++;
    int code, tail = tail_of(*p, &code);

    for (int i = 1; i <= tail; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (tail < 0 || code < least[tail] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return -1;
    *s += tail;
    return code;
}

void ts_utf8_clean(ts_text *out, const char *s)
{
    while (*s) {
        const char *start = s;
        int code = ts_utf8_next(&s);
        bool bad = code < 0x20 || (code >= 0x7f && code < 0xa0);

        ts_text_add(out, bad ? "?" : start, bad ? 1 : (size_t)(s - start));
    }
    ts_text_add(out, "", 0);
}

/* The C locale knows no width beyond ASCII: one column is the best guess there. */
static int columns_of(int code)
{
    int w = wcwidth((wchar_t)code);

    return w < 0 ? 1 : w;
}

int ts_utf8_columns(const char *s)
{
    int n = 0;

    while (*s)
        n += columns_of(ts_utf8_next(&s));
    return n;
}

size_t ts_utf8_prefix(const char *s, int columns)
{
    const char *at = s, *next = s;

    while (*at && (columns -= columns_of(ts_utf8_next(&next))) >= 0)
        at = next;
    return (size_t)(at - s);
}

/* quote.c - words and numbers as JSON has them, on stdout. Whatever the bytes, the result is valid.
 */
#include "tool.h"
#include <math.h>
#include <string.h>

/* How many bytes the UTF-8 letter at s has; 0: it is none. */
static int letter(const unsigned char *s)
{
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
            : (s[0] & 0xf0) == 0xe0       ? 3
            : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                          : 0;

    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
        return 0; /* longer than need be; a surrogate */
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return n;
}

void json_quote(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    putchar('"');
    while (*s) {
        int n = letter(s);
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if (*s < ' ' || *s == 0x7f)
            printf("\\u%04x", *s);
        else if (!n)
            printf("\\ufffd");
        else
            printf("%.*s", n, (const char *)s);
        s += n ? n : 1;
    }
    putchar('"');
}

void json_value(double x)
{
    if (isfinite(x))
        printf("%.9g", x);
    else
        printf("null");
}

void shell_quote(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./=,:+@%";

    if (*word && !word[strspn(word, plain)]) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", f);
        else
            fputc(*word, f);
    fputc('\'', f);
}

/* quote.c - words and numbers as JSON has them, on stdout. Whatever the bytes, the result is valid.
 */
#include "tool.h"
#include <math.h>
#include <string.h>

/* How many bytes the UTF-8 letter at s has; 0: it is none. */
int utf8_letter(const unsigned char *s)
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
        int n = utf8_letter(s);
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

/* A name as one line of text that keeps every byte of it: \n, \\, and \xff for what is no
 * UTF-8. */
void escape_name(FILE *f, const char *name)
{
    const unsigned char *s = (const unsigned char *)name;

    while (*s) {
        int n = utf8_letter(s);
        if (*s == '\n' || *s == '\\')
            fputs(*s == '\n' ? "\\n" : "\\\\", f);
        else if (!n)
            fprintf(f, "\\x%02x", *s);
        else
            fprintf(f, "%.*s", n, (const char *)s);
        s += n ? n : 1;
    }
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place; a backslash before anything else is one. */
void unescape_name(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (*s == '\\' && (s[1] == 'n' || s[1] == '\\'))
            *to++ = *++s == 'n' ? '\n' : '\\';
        else if (*s == '\\' && s[1] == 'x' && hex(s[2]) >= 8 && hex(s[3]) >= 0) {
            *to++ = (char)(hex(s[2]) * 16 + hex(s[3]));
            s += 3;
        } else
            *to++ = *s;
    }
    *to = 0;
}

void json_text(const char *key, const char *text)
{
    printf("\"%s\": ", key);
    if (text)
        json_quote(text);
    else
        printf("null");
}

void json_sizes(const char *key, int rank, const int64_t *dims)
{
    printf("\"%s\": [", key);
    for (int i = 0; i < rank; i++)
        printf("%s%lld", i ? ", " : "", (long long)dims[i]);
    printf("]");
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

/* --- names --- */

enum { LONGEST = 200 }; /* so that the picture's name is one that a file can have */

/* dir/shoe.jpg -> shoe */
int base_name(const char *path, const char **out)
{
    const char *slash = strrchr(path, '/'), *dot;
    size_t n;

    *out = slash ? slash + 1 : path;
    dot = strrchr(*out, '.');
    n = dot && dot > *out ? (size_t)(dot - *out) : strlen(*out);
    return n < LONGEST ? (int)n : LONGEST;
}

void csv_field(FILE *f, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s; s++)
        fprintf(f, *s == '"' ? "\"\"" : "%c", *s);
    fputc('"', f);
}

/* normal.c - how samples are normalised: in the words of the metadata, and what is usual. */
#include "net.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 0.5,0.4 -> values; returns how many there are, 0 when it is not such a list. */
static int read_list(const char **text, double *values)
{
    const char *s = *text + strspn(*text, " ");
    char *end;
    int n = 0;

    for (;; s = end + 1) {
        if (n == MOST_CHANNELS || !*s || strchr(" \t\n", *s))
            return 0;
        values[n++] = strtod(s, &end);
        if (end == s || !isfinite(values[n - 1]))
            return 0;
        if (*end != ',')
            break;
    }
    *text = end;
    return n;
}

bool normal_read(const char *text, normal *out)
{
    int deviations;

    *out = (normal){0};
    if (!text[strspn(text, " ")])
        return true;
    out->n = read_list(&text, out->mean);
    deviations = read_list(&text, out->deviation);
    for (int i = 0; i < deviations; i++)
        if (out->deviation[i] == 0)
            return false;
    return out->n && out->n == deviations && !text[strspn(text, " ")];
}

static size_t print_list(const double *values, int n, char *out, size_t size)
{
    size_t len = 0;

    for (int i = 0; i < n && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%.9g", i ? "," : "", values[i]);
    return len;
}

void normal_text(const normal *n, char *out, size_t size)
{
    size_t len = print_list(n->mean, n->n, out, size);

    out[n->n ? size - 1 : 0] = 0;
    if (n->n && len + 1 < size) {
        out[len++] = ' ';
        print_list(n->deviation, n->n, out + len, size - len);
    }
}

normal normal_usual(const char *data, ts_dtype dtype)
{
    if (data && !strcmp(data, "mnist"))
        return (normal){.mean = {0.1307}, .deviation = {0.3081}, .n = 1};
    if (dtype == TS_U8)
        return (normal){.mean = {0.5}, .deviation = {0.5}, .n = 1};
    return (normal){0};
}

ts_normalize normal_view(const normal *n)
{
    return (ts_normalize){.mean = n->mean, .deviation = n->deviation, .n = n->n};
}

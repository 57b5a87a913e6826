/* event.c - events as JSON, one object a line on stdout, flushed so that a reader sees each. */
#include "train.h"
#include <inttypes.h>
#include <math.h>

static void put_text(const char *s)
{
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < ' ')
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    putchar('"');
}

static void put_key(const char *key)
{
    printf(", ");
    put_text(key);
    printf(": ");
}

void event_begin(const char *event)
{
    printf("{\"event\": ");
    put_text(event);
}

void event_text(const char *key, const char *value)
{
    put_key(key);
    if (value)
        put_text(value);
    else
        printf("null");
}

void event_int(const char *key, int64_t value)
{
    put_key(key);
    printf("%" PRId64, value);
}

void event_real(const char *key, double value)
{
    put_key(key);
    if (isfinite(value))
        printf("%.9g", value);
    else
        printf("null"); /* JSON has no word for it */
}

void event_end(void)
{
    printf("}\n");
    fflush(stdout);
}

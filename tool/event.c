/* event.c - events as JSON, one object a line on stdout, flushed so that a reader sees each. */
#include "train.h"
#include <inttypes.h>

static void put_key(const char *key)
{
    printf(", ");
    json_quote(key);
    printf(": ");
}

void event_begin(const char *event)
{
    printf("{\"event\": ");
    json_quote(event);
}

void event_text(const char *key, const char *value)
{
    put_key(key);
    if (value)
        json_quote(value);
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
    json_value(value);
}

void event_end(void)
{
    printf("}\n");
    fflush(stdout);
}

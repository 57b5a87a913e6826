/* log.c - lines for people on stderr: TESSERA_LOG=error|warn|info|debug, default warn. */
#include "base/base.h"
#include <time.h>

static const char *const names[] = {"error", "warn", "info", "debug"};

static ts_log_level threshold(void)
{
    const char *s = getenv("TESSERA_LOG");

    for (int i = 0; s && i < TS_COUNT(names); i++)
        if (!strcmp(s, names[i]))
            return (ts_log_level)i;
    return TS_LOG_WARN;
}

bool ts_noting(ts_log_level level)
{
    return level <= threshold();
}

void ts_note(ts_log_level level, const char *fmt, ...)
{
    va_list ap;
    char line[2048];

    if (level > threshold())
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    fprintf(stderr, "tessera: %s: %s\n", names[level], line);
}

double ts_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

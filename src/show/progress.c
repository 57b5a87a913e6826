/* progress.c - a bar for ts_options.progress, in tqdm's shape:
 *
 *   Graph compilation:  40%|████      | 40/100 [00:00<00:01]
 */
#include "base/base.h"
#include <unistd.h>

enum { CELLS = 10 };

static bool wanted(void)
{
    const char *s = getenv("TESSERA_PROGRESS");

    return s && s[0] ? strcmp(s, "0") != 0 : isatty(STDERR_FILENO);
}

static void clock_text(double seconds, char *out, size_t size)
{
    long s = (long)seconds;

    if (s >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%02ld:%02ld", s / 60, s % 60);
}

/* Whole cells, and the one at the end in eighths. */
static void cells(int percent, char *out, size_t size)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    size_t n = 0;

    for (int i = 0; i < CELLS; i++) {
        int fill = percent * CELLS * 8 / 100 - 8 * i;
        n += (size_t)snprintf(out + n, size - n, "%s", eighths[TS_MAX(0, TS_MIN(8, fill))]);
    }
}

void ts_progress_bar(void *arg, int percent)
{
    static _Thread_local double start;
    char bar[4 * CELLS + 1], gone[32], left[32] = "?";

    (void)arg;
    percent = TS_MAX(0, TS_MIN(100, percent));
    if (!percent)
        start = ts_now();
    if (!wanted())
        return;
    cells(percent, bar, sizeof(bar));
    clock_text(ts_now() - start, gone, sizeof(gone));
    if (percent)
        clock_text((ts_now() - start) * (100 - percent) / percent, left, sizeof(left));
    fprintf(stderr, "\rGraph compilation: %3d%%|%s| %d/100 [%s<%s]%s", percent, bar, percent, gone,
            left, percent == 100 ? "\n" : "");
    fflush(stderr);
}

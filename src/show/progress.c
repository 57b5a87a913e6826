/* progress.c - the bar for ts_options.progress. It has no rate: percents are not work.
 *
 *   Graph compilation:  40%|████      | 40/100 [00:00<00:01]
 */
#include "show/show.h"

void ts_progress_bar(void *arg, int percent)
{
    static const ts_bar_options compilation = {
        .label = "Graph compilation", .unit = "", .total = 100};
    static _Thread_local ts_bar *bar;
    static _Thread_local int shown;

    (void)arg;
    if (percent > 0 && percent < 100) {
        ts_bar_update(bar, percent - shown);
        shown = percent;
        return;
    }
    if (percent >= 100)
        ts_bar_finish(bar);
    else
        ts_bar_close(bar); /* it failed, or never ended */
    bar = percent ? NULL : ts_bar_open_every(&compilation, 0);
    shown = 0;
}

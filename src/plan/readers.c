/* readers.c - who reads what: the kernels that read each value, so that nobody has to ask all of
 * them.
 *
 *   value    at            kernels
 *     %3     0             2 5        %3 is read by kernels 2 and 5
 *     %4     2             5
 *            3
 */
#include "plan/plan.h"

ts_readers ts_plan_readers(ts_arena *a, ts_program *p)
{
    int n = p->g->nvalues;
    ts_readers x = {.at = TS_NEWS(a, int, n + 1)};
    int *next;

    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nreads; r++)
            x.at[p->kernels[k]->reads[r]->id + 1]++;
    for (int i = 0; i < n; i++)
        x.at[i + 1] += x.at[i];
    x.kernels = TS_NEWS(a, int, x.at[n]);
    next = ts_arena_copy(a, x.at, sizeof(int) * (size_t)(n + 1));
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nreads; r++)
            x.kernels[next[p->kernels[k]->reads[r]->id]++] = k;
    p->work += x.at[n];
    return x;
}

/* simplify.c - smaller graphs that mean the same. */
#include "pass/pass.h"

ts_status ts_pass_simplify(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    (void)a, (void)opt;
    *out = in;
    return TS_OK;
}

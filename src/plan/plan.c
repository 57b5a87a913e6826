/* plan.c - graph to program in three steps. */
#include "plan/plan.h"

/* kernel 3 (conv): %5@4096 <- %1 %w  3 nodes */
static void print(const ts_program *p, ts_text *t)
{
    for (int i = 0; i < p->nkernels; i++) {
        const ts_kernel *k = p->kernels[i];
        ts_text_printf(t, "kernel %d (%s):", i,
                       k->copy     ? "copy"
                       : k->load   ? "load"
                       : k->store  ? "store"
                       : k->anchor ? k->anchor->op->name
                                   : "point");
        for (int r = 0; r < k->nroots; r++)
            ts_text_printf(t, " %%%d@%zu", k->roots[r]->id,
                           ts_place_spot(p, k->roots[r], k->device)->offset);
        ts_text_printf(t, " <-");
        for (int r = 0; r < k->nreads; r++)
            ts_text_printf(t, " %%%d", k->reads[r]->id);
        ts_text_printf(t, "  %d nodes%s", k->nodes, k->phase ? ", phase 1" : "");
        if (p->pipe.ndevices > 1)
            ts_text_printf(t, ", device %d, section %d", k->device, k->section);
        ts_text_printf(t, "\n");
    }
    ts_text_printf(t, "states %zu bytes, peak %zu bytes\n", p->state_bytes, p->peak_bytes);
}

static ts_status dump(ts_arena *a, const ts_program *p, const char *folder)
{
    ts_text t = {0};
    ts_status s = ts_file_mkdirs(folder);

    print(p, &t);
    if (!s)
        s = ts_file_write(ts_arena_printf(a, "%s/plan.txt", folder), t.s, t.len);
    ts_text_free(&t);
    return s;
}

static ts_status make(ts_arena *a, const ts_graph *g, const ts_options *opt, ts_program *p)
{
    p->g = g;
    p->place = TS_NEWS(a, ts_place, g->nvalues);
    TS_TRY(ts_plan_fuse(a, g, opt, p));
    TS_TRY(ts_plan_schedule(a, p));
    TS_TRY(ts_plan_devices(a, opt, p));
    return ts_plan_memory(a, opt, p);
}

size_t ts_plan_peak(ts_arena *a, const ts_graph *g, const ts_options *opt, int device)
{
    ts_program *p = TS_NEW(a, ts_program);

    return make(a, g, opt, p) || device >= p->pipe.ndevices ? SIZE_MAX : p->bytes[device].peak;
}

ts_status ts_plan(ts_arena *a, const ts_graph *g, const ts_options *opt, const ts_program **out)
{
    ts_program *p = TS_NEW(a, ts_program);

    TS_TRY(make(a, g, opt, p));
    TS_TRY(ts_plan_budget(a, opt, p));
    for (int i = 0; i < p->nkernels; i++)
        p->flops += p->kernels[i]->phase ? 0 : p->kernels[i]->flops;
    *out = p;
    return opt->dump_dir ? dump(a, p, opt->dump_dir) : TS_OK;
}

/* cut.c - a net without stages is cut into stages for several devices.
 *
 *   before, 2 devices                         after
 *     %2 = conv %x, %w1    40 us                %2 = conv %x, %w1    @block "stage 0"
 *     %3 = relu %2                              %3 = relu %2         @block "stage 0"
 *     %4 = conv %3, %w2    30 us                %4 = conv %3, %w2    @block "stage 1"
 *     %5 = matmul %4, %w3   9 us                %5 = matmul %4, %w3  @block "stage 1"
 *
 * The nodes fall into groups, each from one contraction to the next. For a trial every group gets a
 * device of its own, and the rest of the passes and the plan say what it costs there, forward and
 * backward, what memory it needs, and what it sends to whom, skip connections included.
 *
 * The slowest stage sets the pace of a pipeline, so its modelled time, with the copies over its two
 * boundaries, is made as short as possible: exactly, over all cuts between groups, by dynamic
 * programming. With a memory limit, stages that do not fit are not considered.
 *
 * needs   the forward graph in its canonical order (order.c); no composite op
 * keeps   everything but the blocks, which are replaced; autodiff and optimizer inherit them
 * leaves  blocks "stage 0", "stage 1", ..., each on the device of its number
 */
#include "plan/plan.h"
#include <math.h>

enum { GROUPS = 96 };

typedef struct cut {
    ts_arena *a;
    const ts_graph *g;
    const ts_options *opt;
    ts_machine_model machine;
    int stages, groups;
    int *group;       /* by node */
    double *time;     /* sums: of the groups before */
    double *bytes;    /* the same, of memory */
    double *crossing; /* bytes over the boundary before a group */
} cut;

/* --- groups of nodes --- */

/* A view, a constant, or a weight in half precision. */
static bool prepares(const ts_node *n)
{
    return n->op->flags & (TS_VIEW | TS_SOURCE) ||
           (n->op == TS_OP(cast) && n->in[0]->kind == TS_VALUE_STATE);
}

/* Nothing but what prepares between node i and the next contraction: it belongs to that. */
static bool leads_in(const ts_graph *g, int i)
{
    while (i < g->nnodes && prepares(g->nodes[i]))
        i++;
    return i < g->nnodes && g->nodes[i]->op->flags & TS_CONTRACT;
}

static bool begins(const ts_graph *g, int i)
{
    bool after = i && prepares(g->nodes[i - 1]);

    return leads_in(g, i) && !(after && leads_in(g, i - 1));
}

/* From one contraction to the next or, when there are too few of them, single nodes. */
static void make_groups(cut *c)
{
    int n = c->g->nnodes, contractions = 0, starts, seen = 0;

    c->group = TS_NEWS(c->a, int, n);
    for (int i = 0; i < n; i++)
        contractions += begins(c->g, i);
    starts = contractions < c->stages ? n : contractions;
    c->groups = TS_MIN(starts, GROUPS);
    for (int i = 0; i < n; i++) {
        seen += starts == n || begins(c->g, i);
        c->group[i] = TS_MAX(0, seen - 1) * c->groups / starts;
    }
    c->time = TS_NEWS(c->a, double, c->groups + 1);
    c->bytes = TS_NEWS(c->a, double, c->groups + 1);
    c->crossing = TS_NEWS(c->a, double, c->groups + 1);
}

/* The graph with a block for each stage, of which `begin` has the first groups. */
static ts_graph *with_blocks(const cut *c, const int *begin, int stages)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(c->a, c->g, &map);
    int s = 0;

    for (int i = 0; i < c->g->nnodes; i++) {
        ts_node *n = ts_graph_copy_node(g, c->g->nodes[i], map);
        while (s + 1 < stages && c->group[i] >= begin[s + 1])
            s++;
        n->block = ts_arena_printf(c->a, "stage %d", s);
    }
    ts_graph_finish_copy(g, c->g, map);
    return g;
}

/* --- the trial --- */

static ts_status measure(cut *c)
{
    ts_options opt = *c->opt;
    int *begin = TS_NEWS(c->a, int, c->groups);
    const ts_graph *g;
    const ts_program *p;

    for (int i = 0; i < c->groups; i++)
        begin[i] = i;
    opt.devices = TS_MAX(2, c->groups);
    opt.schedule = TS_SCHEDULE_SHARDED;
    opt.gradient_accumulation = TS_MIN(opt.gradient_accumulation, 2);
    opt.device_memory = INT64_MAX;
    opt.dump_dir = NULL;
    TS_TRY(ts_pass_after(c->a, "cut", with_blocks(c, begin, c->groups), &opt, &g));
    TS_TRY(ts_plan(c->a, g, &opt, &p));
    for (int i = 0; i < p->pipe.nsections; i++)
        if (!p->pipe.sections[i].phase)
            c->time[p->pipe.sections[i].device + 1] += p->pipe.sections[i].seconds;
    for (int i = 0; i < p->pipe.ndevices; i++)
        c->bytes[i + 1] = (double)p->bytes[i].peak;
    for (int i = 0; i < p->pipe.nsends; i++) {
        const ts_send *s = &p->pipe.sends[i];
        int from = p->pipe.sections[s->section].device;
        for (int b = TS_MIN(from, s->device) + 1; b <= TS_MAX(from, s->device); b++)
            c->crossing[b] += p->pipe.sections[s->section].phase ? 0 : (double)s->bytes;
    }
    for (int i = 0; i < c->groups; i++) {
        c->time[i + 1] += c->time[i];
        c->bytes[i + 1] += c->bytes[i];
    }
    return TS_OK;
}

/* --- the cut --- */

/* Of a stage of the groups from..to - 1. */
static double stage_time(const cut *c, int from, int to)
{
    double copies = c->crossing[from] + (to < c->groups ? c->crossing[to] : 0);

    if (c->opt->device_memory && c->bytes[to] - c->bytes[from] > (double)c->opt->device_memory)
        return INFINITY;
    return c->time[to] - c->time[from] +
           ts_machine_seconds(&c->machine, ts_price_bytes(&c->machine, copies));
}

static ts_status no_cut(const cut *c)
{
    const ts_options *o = c->opt;

    ts_fail(TS_ERR_MEMORY, "no cut into %d stages fits %lld bytes a device", c->stages,
            (long long)o->device_memory);
    ts_error_hint("%s%s%s", ts_plan_cures(c->a, c->g),
                  o->optimizer && !(o->offload & TS_OFFLOAD_OPTIMIZER)
                      ? ", offload the optimiser's state"
                      : "",
                  o->optimizer && !o->recompute ? ", recompute" : "");
    return TS_ERR_MEMORY;
}

/* best[s][e]: the slowest of s + 1 stages over the groups before e; from[s][e]: where the last of
 * them begins. */
static ts_status find(const cut *c, int *begin)
{
    int n = c->groups + 1;
    double *best = TS_NEWS(c->a, double, c->stages *n);
    int *from = TS_NEWS(c->a, int, c->stages *n);

    for (int s = 0; s < c->stages; s++)
        for (int e = s + 1; e < n; e++) {
            double *b = &best[s * n + e];
            *b = s ? INFINITY : stage_time(c, 0, e);
            for (int m = s; m < e && s; m++) {
                double x = TS_MAX(best[(s - 1) * n + m], stage_time(c, m, e));
                if (x < *b) {
                    *b = x;
                    from[s * n + e] = m;
                }
            }
        }
    if (!isfinite(best[(c->stages - 1) * n + c->groups]))
        return no_cut(c);
    for (int s = c->stages - 1, e = c->groups; s >= 0; e = begin[s--])
        begin[s] = s ? from[s * n + e] : 0;
    return TS_OK;
}

ts_status ts_plan_cut(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    cut c = {.a = a, .g = in, .opt = opt, .stages = opt->devices};
    ts_graph *g;
    int *begin;

    *out = in;
    if (opt->nstages || opt->devices < 2 || !in->nnodes)
        return TS_OK;
    TS_TRY(ts_machine_find(opt->isa, &c.machine));
    make_groups(&c);
    if (c.groups < c.stages)
        return ts_fail(TS_ERR_ARG, "%d nodes cannot be cut into %d stages", in->nnodes, c.stages);
    TS_TRY(measure(&c));
    begin = TS_NEWS(a, int, c.stages);
    TS_TRY(find(&c, begin));
    *out = g = with_blocks(&c, begin, c.stages);
    return ts_graph_check(g);
}

/* All passes, and the cut among them: it tries those that follow, so they cannot run it. */
ts_status ts_plan_passes(ts_arena *a, const ts_graph *model, const ts_options *opt,
                         const ts_graph **out)
{
    const ts_graph *g;

    TS_TRY(ts_pass_until(a, "cut", model, opt, &g));
    if (!ts_pass_skipped(opt, "cut"))
        TS_TRY(ts_pass_step(a, "cut", ts_plan_cut, g, opt, &g));
    return ts_pass_after(a, "cut", g, opt, out);
}

/* cut.c - a net without stages is cut into stages for several devices.
 *
 *   before, 2 devices                         after
 *     %2 = conv %x, %w1    40 us                %2 = conv %x, %w1    @block "stage 0"
 *     %3 = relu %2          1 us                %3 = relu %2         @block "stage 0"
 *     %4 = conv %3, %w2    30 us                %4 = conv %3, %w2    @block "stage 1"
 *     %5 = matmul %4, %w3   9 us                %5 = matmul %4, %w3  @block "stage 1"
 *
 * The slowest stage sets the pace of a pipeline, so its modelled time is made as short as possible:
 * exactly, over all cuts of the nodes' order, by dynamic programming. A stage's time is that of its
 * nodes, forward and backward, and of the copies over its two boundaries, which carry everything
 * that is made before and used behind them, skip connections included. With a memory limit, stages
 * whose weights, optimiser state and activations do not fit are not considered.
 *
 * needs   the forward graph in its canonical order (order.c); no composite op
 * keeps   everything but the blocks, which are replaced; autodiff and optimizer inherit them
 * leaves  blocks "stage 0", "stage 1", ..., each on the device of its number
 */
#include "pass/pass.h"
#include <math.h>

enum { GROUPS = 1500 }; /* of nodes, so that the cube of them stays small */

typedef struct cut {
    ts_arena *a;
    const ts_graph *g;
    const ts_options *opt;
    int stages, groups;
    int *group;       /* by node */
    double *time;     /* sums: of the groups before */
    double *bytes;    /* the same, of memory */
    double *crossing; /* bytes over the boundary before a group */
} cut;

/* --- the model --- */

/* On one core of a machine of these years, where pointwise ops mostly ride on their neighbours. */
static double node_time(const ts_node *n, bool training)
{
    double flops = ts_node_flops(n), bytes = 0;

    if (n->op->flags & TS_CONTRACT)
        return (training ? 3 : 1) * flops / 50e9;
    for (int i = 0; i < n->nout; i++)
        bytes += (double)ts_type_bytes(&n->out[i]->type);
    if (n->op->flags & (TS_SOURCE | TS_VIEW))
        return 0;
    return (training ? 2 : 1) * bytes / 20e9;
}

/* What a group keeps on its device: results, if they are for a backward pass, and its parameters.
 */
static double state_factor(const ts_options *opt)
{
    static const int moments[] = {
        [TS_SGD] = 1, [TS_ADAM] = 2, [TS_ADAMW] = 2, [TS_RMSPROP] = 1, [TS_LAMB] = 2};

    if (!opt->optimizer)
        return 1;
    return 1 + (opt->offload & TS_OFFLOAD_OPTIMIZER ? 0 : moments[opt->optimizer->kind]) +
           (opt->gradient_accumulation > 1 && !(opt->offload & TS_OFFLOAD_ACCUMULATORS));
}

static double copy_time(double bytes)
{
    return bytes / 5e9;
}

/* --- groups of nodes --- */

static void make_groups(cut *c)
{
    int n = c->g->nnodes, per = (n + GROUPS - 1) / GROUPS;

    c->group = TS_NEWS(c->a, int, n);
    for (int i = 0; i < n; i++)
        c->group[i] = i / per;
    c->groups = n ? c->group[n - 1] + 1 : 0;
    c->time = TS_NEWS(c->a, double, c->groups + 1);
    c->bytes = TS_NEWS(c->a, double, c->groups + 1);
    c->crossing = TS_NEWS(c->a, double, c->groups + 1);
}

/* The first group that uses each value, and the last. */
static void find_uses(const cut *c, int *first, int *last)
{
    for (int i = 0; i < c->g->nvalues; i++) {
        first[i] = -1;
        last[i] = -1;
    }
    for (int i = 0; i < c->g->nnodes; i++)
        for (int k = 0; k < c->g->nodes[i]->nin; k++) {
            int v = c->g->nodes[i]->in[k]->id;
            first[v] = first[v] < 0 ? c->group[i] : first[v];
            last[v] = c->group[i];
        }
}

static void measure(cut *c)
{
    const ts_graph *g = c->g;
    bool training = c->opt->optimizer != NULL;
    int *first = TS_NEWS(c->a, int, g->nvalues), *last = TS_NEWS(c->a, int, g->nvalues);

    find_uses(c, first, last);
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        int at = c->group[i];
        c->time[at + 1] += node_time(n, training);
        for (int k = 0; k < n->nout; k++) {
            double bytes = (double)ts_type_bytes(&n->out[k]->type);
            c->bytes[at + 1] += training && !(n->op->flags & (TS_VIEW | TS_SOURCE)) ? bytes : 0;
            for (int b = at + 1; b <= last[n->out[k]->id]; b++)
                c->crossing[b] += n->op->flags & TS_SOURCE ? 0 : bytes;
        }
    }
    for (int i = 0; i < g->nstates; i++) {
        const ts_value *v = g->states[i].value;
        if (first[v->id] >= 0)
            c->bytes[first[v->id] + 1] += state_factor(c->opt) * (double)ts_type_bytes(&v->type);
    }
    for (int i = 0; i < c->groups; i++) {
        c->time[i + 1] += c->time[i];
        c->bytes[i + 1] += c->bytes[i];
    }
}

/* --- the cut --- */

/* Of a stage of the groups from..to - 1. */
static double stage_time(const cut *c, int from, int to)
{
    double copies = c->crossing[from] + (to < c->groups ? c->crossing[to] : 0);

    if (c->opt->device_memory && c->bytes[to] - c->bytes[from] > (double)c->opt->device_memory)
        return INFINITY;
    return c->time[to] - c->time[from] + copy_time(copies * (c->opt->optimizer ? 2 : 1));
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
    if (!isfinite(best[(c->stages - 1) * n + c->groups])) {
        ts_fail(TS_ERR_MEMORY, "no cut into %d stages fits %lld bytes a device", c->stages,
                (long long)c->opt->device_memory);
        ts_error_hint("use more devices, a smaller batch, or offload the optimiser's state");
        return TS_ERR_MEMORY;
    }
    for (int s = c->stages - 1, e = c->groups; s >= 0; e = begin[s--])
        begin[s] = s ? from[s * n + e] : 0;
    return TS_OK;
}

ts_status ts_pass_cut(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    cut c = {.a = a, .g = in, .opt = opt, .stages = opt->devices};
    ts_value **map;
    ts_graph *g;
    int *begin, s = 0;

    *out = in;
    if (opt->nstages || opt->devices < 2 || !in->nnodes)
        return TS_OK;
    make_groups(&c);
    if (c.groups < c.stages)
        return ts_fail(TS_ERR_ARG, "%d nodes cannot be cut into %d stages", in->nnodes, c.stages);
    measure(&c);
    begin = TS_NEWS(a, int, c.stages);
    TS_TRY(find(&c, begin));
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        ts_node *n = ts_graph_copy_node(g, in->nodes[i], map);
        while (s + 1 < c.stages && c.group[i] >= begin[s + 1])
            s++;
        n->block = ts_arena_printf(a, "stage %d", s);
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return ts_graph_check(g);
}

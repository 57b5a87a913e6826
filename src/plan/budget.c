/* budget.c - how much memory a device has. A plan that needs more fails before anything runs, and
 * says what would help:
 *
 *   out of memory: device 1 needs 12.4 MiB and has 8.0 MiB
 *     hint the largest are fc1.weight (4.0 MiB), its exp_avg (4.0 MiB), ...; offload the optimiser's
 *          state (-8.0 MiB) or ...
 *
 * A model of an IPU has its memory on tiles, and no tile has more than its own: there the tiles that are
 * too full are named.
 */
#include "plan/ipu.h"
#include "plan/plan.h"
#include <unistd.h>

enum { SHOWN = 4 };

/* --- what there is --- */

/* What is built in, or less when the process's control group may not have it all. */
static int64_t machine_memory(void)
{
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    char limit[64];
    long long most = ts_file_control_group("memory.max", limit, sizeof(limit)) ? atoll(limit) : 0;

    return most > 0 ? TS_MIN(bytes, (int64_t)most) : bytes;
}

int64_t ts_plan_kind_memory(ts_device_kind kind)
{
    const ts_ipu *ipu = ts_ipu_of(kind);

    return ipu ? ipu->tiles * ipu->tile_bytes : machine_memory();
}

/* --- what would help --- */

typedef struct tensor {
    const ts_value *v;
    size_t bytes;
} tensor;

static int by_bytes(const void *x, const void *y)
{
    const tensor *p = x, *q = y;

    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? 1 : -1;
    return p->v->id - q->v->id;
}

/* In the units that limits are given in, with digits that tell a need from a limit that is near. */
static const char *size_text(ts_arena *a, size_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    double size = (double)bytes / 1024;
    int u = 0;

    for (; u < TS_COUNT(units) - 1 && size >= 10240; u++)
        size /= 1024;
    return ts_arena_printf(a, "%.1f %s", size, units[u]);
}

/* A need that reads like the limit is told by the bytes that are missing. */
static const char *need_text(ts_arena *a, size_t need, size_t has)
{
    const char *text = size_text(a, need);

    return strcmp(text, size_text(a, has))
               ? text
               : ts_arena_printf(a, "%s (%zu bytes more than there are)", text, need - has);
}

/* The device's tensors, largest first. */
static int list(ts_arena *a, const ts_program *p, int device, tensor **out)
{
    int n = 0;

    *out = TS_NEWS(a, tensor, p->g->nvalues);
    for (int i = 0; i < p->g->nvalues; i++)
        for (const ts_spot *s = &p->place[i].spot; s && p->place[i].home == TS_HOME_BLOCK;
             s = s->next)
            if (s->device == device && s->bytes && !s->shares && !p->place[i].alias)
                (*out)[n++] = (tensor){p->g->values[i], s->bytes * (size_t)s->depth};
    if (n)
        qsort(*out, (size_t)n, sizeof(tensor), by_bytes);
    return n;
}

static void add_largest(ts_arena *a, const tensor *t, int n, ts_text *out)
{
    ts_text_printf(out, "the largest are ");
    for (int i = 0; i < n && i < SHOWN; i++) {
        const ts_value *v = t[i].v;
        const char *name = v->kind != TS_VALUE_NODE ? v->name
                           : v->node->layer && v->node->layer[0]
                               ? ts_arena_printf(a, "%s %s", v->node->layer, v->node->op->name)
                               : v->node->op->name;
        ts_text_printf(out, "%s%s (%s)", i ? ", " : "", name, size_text(a, t[i].bytes));
    }
}

static void add_help(ts_arena *a, const char *what, size_t bytes, int *n, ts_text *out)
{
    if (bytes)
        ts_text_printf(out, "%s%s (-%s)", (*n)++ ? ", " : "; ", what, size_text(a, bytes));
}

/* What recomputing would save: planned, since it depends on the checkpoints. */
static size_t recomputed(ts_arena *a, const ts_program *p, const ts_options *opt, int device)
{
    ts_options again = *opt;
    size_t now = p->bytes[device].peak, then;

    again.recompute = true;
    then = opt->recompute ? now : ts_plan_peak(a, p->g, &again, device);
    return then < now ? now - then : 0;
}

/* What is on already is no help. */
static bool is_half(const ts_graph *g)
{
    for (int i = 0; i < g->nvalues; i++)
        if (g->values[i]->type.dtype == TS_F16 || g->values[i]->type.dtype == TS_BF16)
            return true;
    return false;
}

static bool has_batch(const ts_graph *g)
{
    for (int i = 0; i < g->ninputs; i++)
        if (g->inputs[i]->type.rank && g->inputs[i]->type.dim[0] > 1)
            return true;
    return false;
}

const char *ts_plan_cures(ts_arena *a, const ts_graph *g)
{
    return ts_arena_printf(a, "use more devices%s%s", is_half(g) ? "" : ", half precision",
                           has_batch(g) ? ", a smaller batch" : "");
}

/* What each option would take off the device, at most. The host's memory is the machine's too, so a
 * share of that is not made larger by putting things there. */
static void add_options(ts_arena *a, const ts_program *p, const ts_options *opt, int device,
                        ts_text *out)
{
    size_t moments = 0, sums = 0, weights = 0;
    int n = 0;

    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        const ts_spot *s = &p->place[i].spot;
        if (s->device != device || p->place[i].home != TS_HOME_BLOCK || s->remote || s->shares)
            continue;
        if (v->kind == TS_VALUE_NODE)
            continue;
        if (p->g->states[v->index].use == TS_USE_MOMENT)
            moments += s->bytes;
        else if (p->g->states[v->index].use == TS_USE_SUMMED)
            sums += s->bytes;
        else
            weights += s->bytes;
    }
    if (opt->device_memory && !(opt->offload & TS_OFFLOAD_OPTIMIZER))
        add_help(a, "offload the optimiser's state", moments, &n, out);
    if (opt->replicas > 1 && !opt->shard_optimizer)
        add_help(a, "split it over the replicas", moments - moments / (size_t)opt->replicas, &n,
                 out);
    if (opt->device_memory && !(opt->offload & TS_OFFLOAD_ACCUMULATORS))
        add_help(a, "offload accumulators", sums, &n, out);
    if (opt->device_memory && !(opt->offload & TS_OFFLOAD_WEIGHTS))
        add_help(a, "offload weights", weights, &n, out);
    add_help(a, "recompute", recomputed(a, p, opt, device), &n, out);
    ts_text_printf(out, "%s%s", n ? ", " : "; ", ts_plan_cures(a, p->g));
}

static ts_status too_large(ts_arena *a, const ts_options *opt, const ts_program *p, int device,
                           int64_t has)
{
    size_t peak = p->bytes[device].peak, limit = (size_t)TS_MAX(0, has);
    ts_text hint = {0};
    tensor *t;
    int n = list(a, p, device, &t);

    add_largest(a, t, n, &hint);
    add_options(a, p, opt, device, &hint);
    ts_fail(TS_ERR_MEMORY, "device %d needs %s, %s of them always, and has %s", device,
            need_text(a, peak, limit), size_text(a, p->bytes[device].states), size_text(a, limit));
    ts_error_hint("%s", hint.s);
    ts_text_free(&hint);
    return TS_ERR_MEMORY;
}

/* --- tiles --- */

static ts_status too_full(ts_arena *a, const ts_options *opt, const ts_program *p,
                          const ts_ipu_model *m, int device, int over)
{
    const ts_ipu_tile *worst = m->tiles[device];
    ts_text hint = {0};
    tensor *t;
    int n = list(a, p, device, &t);

    for (int i = 1; i < m->ipu->tiles; i++)
        worst = m->tiles[device][i].peak > worst->peak ? &m->tiles[device][i] : worst;
    add_largest(a, t, n, &hint);
    add_options(a, p, opt, device, &hint);
    ts_fail(
        TS_ERR_MEMORY,
        "device %d has %d of %d tiles that need more than their %s: tile %d needs %s, %s of them "
        "always, %s for code, %s for what other tiles send",
        device, over, m->ipu->tiles, size_text(a, (size_t)m->ipu->tile_bytes),
        (int)(worst - m->tiles[device]),
        need_text(a, (size_t)worst->peak, (size_t)m->ipu->tile_bytes),
        size_text(a, (size_t)worst->always), size_text(a, (size_t)worst->code),
        size_text(a, (size_t)worst->exchange));
    ts_error_hint("%s", hint.s);
    ts_text_free(&hint);
    return TS_ERR_MEMORY;
}

/* A device with all of its memory has all of its tiles. Less of it, by ts_options.device_memory, is a number
 * of bytes wherever they lie. */
static ts_status check_tiles(ts_arena *a, const ts_options *opt, const ts_program *p)
{
    const ts_ipu *ipu = ts_ipu_of(opt->device_kind);
    ts_ipu_model m;

    if (!ipu || opt->device_memory != ipu->tiles * ipu->tile_bytes)
        return TS_OK;
    ts_ipu_price(a, ipu, p, opt, &m);
    for (int d = 0; d < p->pipe.ndevices; d++) {
        int over = 0;
        for (int t = 0; t < ipu->tiles; t++)
            over += m.tiles[d][t].peak > ipu->tile_bytes;
        if (over)
            return too_full(a, opt, p, &m, d, over);
    }
    return TS_OK;
}

/* --- all --- */

/* The devices of all replicas share the machine's memory, and the tensors in the host's memory take
 * theirs of it: the largest device has what all others leave. */
static ts_status check_share(ts_arena *a, const ts_options *opt, const ts_program *p)
{
    double all = (double)p->remote_bytes, has = (double)ts_plan_kind_memory(TS_DEVICE_CPU);
    int most = 0;

    for (int d = 0; d < p->pipe.ndevices; d++) {
        all += (double)p->bytes[d].peak;
        most = p->bytes[d].peak > p->bytes[most].peak ? d : most;
    }
    all *= TS_MAX(1, opt->replicas);
    if (all <= has)
        return TS_OK;
    return too_large(a, opt, p, most, (int64_t)(has - (all - (double)p->bytes[most].peak)));
}

ts_status ts_plan_budget(ts_arena *a, const ts_options *opt, const ts_program *p)
{
    if (!opt->device_memory)
        return check_share(a, opt, p);
    for (int d = 0; d < p->pipe.ndevices; d++)
        if (p->bytes[d].peak > (size_t)opt->device_memory)
            return too_large(a, opt, p, d, opt->device_memory);
    return check_tiles(a, opt, p);
}

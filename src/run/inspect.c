/* inspect.c - what is inside an executable, for people: a fact a line, then tables. */
#include "gpu/gpu.h"
#include "render/module.h"
#include "run/run.h"
#include <inttypes.h>

static const char *shape(const ts_tensor_info *t, char *s, size_t size)
{
    size_t n = (size_t)snprintf(s, size, "%s[", ts_dtype_name(t->dtype));

    for (int i = 0; i < t->rank; i++)
        n += (size_t)snprintf(s + n, size - n, "%s%" PRId64, i ? "," : "", t->dims[i]);
    snprintf(s + n, size - n, "]");
    return s;
}

/* As in the IR: 0231, or 0123/0x8 for lanes of 8 in dimension 0. */
static const char *layout(const ts_slot *s, char *text, size_t size)
{
    size_t n = 0;

    text[0] = 0;
    for (int i = 0; s->layout.set && i < s->info.rank; i++)
        n += (size_t)snprintf(text + n, size - n, "%d", s->layout.order[i]);
    if (s->layout.set && s->layout.lanes > 1)
        snprintf(text + n, size - n, "/%dx%d", s->layout.lane_dim, s->layout.lanes);
    return text;
}

static int width(const ts_slot *s, int n, int least)
{
    for (int i = 0; i < n; i++)
        least = TS_MAX(least, TS_MIN(48, (int)strlen(s[i].info.name)));
    return least;
}

static void init(ts_text *t, const ts_init *i)
{
    if (i->kind == TS_INIT_FULL)
        ts_text_printf(t, "  %g", i->a);
    else
        ts_text_printf(t, "  %s(%g, %g)", i->kind == TS_INIT_UNIFORM ? "uniform" : "normal", i->a,
                       i->b);
}

static void slots(ts_text *t, const char *title, const ts_slot *s, int n, bool state)
{
    int w = width(s, n, (int)strlen("name"));
    char type[256], order[64];

    if (!n)
        return;
    ts_text_printf(t, "\n%s\n  %-*s  %-20s %12s %12s  layout%s\n", title, w, "name", "type",
                   "bytes", "offset", state ? "    start" : "");
    for (int i = 0; i < n; i++) {
        ts_text_printf(t, "  %-*s  %-20s %12zu %12zu  %-8s", w, s[i].info.name,
                       shape(&s[i].whole, type, sizeof(type)), s[i].whole.bytes, s[i].at.offset,
                       layout(&s[i], order, sizeof(order)));
        if (state)
            init(t, &s[i].init);
        while (t->s[t->len - 1] == ' ')
            t->len--;
        ts_text_printf(t, "\n");
    }
}

static void kernels(ts_text *t, const ts_module *m)
{
    ts_text_printf(t, "\nkernels\n  %4s %5s %5s %12s %10s  name\n", "#", "phase", "waits", "pieces",
                   "at least");
    for (int i = 0; i < m->nkernels; i++) {
        const ts_module_kernel *k = &m->kernels[i];
        ts_text_printf(t, "  %4d %5d %5s %12" PRId64 " %10" PRId64 "  %s\n", i, k->phase,
                       k->wait ? "yes" : "", k->count, k->grain, k->name);
    }
}

static void launches(ts_text *t, const ts_gpu_code *c)
{
    static const char *const kinds[] = {"", "host", "load", "store", "above"};

    ts_text_printf(t, "\nkernels\n  %4s %5s %5s %12s %10s  name\n", "#", "phase", "waits", "groups",
                   "threads");
    for (int i = 0; i < c->nrows; i++) {
        const ts_gpu_row *r = &c->rows[i];
        ts_text_printf(t, "  %4d %5d %5s %12" PRId64 " %10d  %s\n", i, r->phase, kinds[r->kind],
                       r->groups, r->threads, r->name);
    }
}

static bool in_phases(const ts_executable *x)
{
    for (int i = 0; i < x->pipe.nsections; i++)
        if (x->pipe.sections[i].step)
            return true;
    return false;
}

/* Bytes of a replica's states that others keep. */
static size_t sharded(const ts_executable *x)
{
    size_t bytes = 0;

    for (int i = 0; i < x->nstates; i++) {
        const ts_slot *s = &x->states[i];
        size_t kept = (size_t)s->share * ts_dtype_size(s->info.dtype);
        if (s->share && s->use == TS_USE_MOMENT && kept < s->info.bytes)
            bytes += s->info.bytes - kept;
    }
    return bytes;
}

static void facts(ts_text *t, const ts_executable *x)
{
    static const char *const modes[] = {"default", "final", "all", "sum", "every_n"};

    ts_text_printf(t, "name                   %s\n", x->name);
    ts_text_printf(t, "tessera                %s\n", x->version);
    ts_text_printf(t, "executor               %s\n", x->object ? "native" : "reference");
    if (x->object)
        ts_text_printf(t, "isa                    %s\n", x->isa);
    ts_text_printf(t, "device_iterations      %d\n", x->device_iterations);
    ts_text_printf(t, "gradient_accumulation  %d\n", x->gradient_accumulation);
    if (x->replicas > 1)
        ts_text_printf(t, "replicas               %d\n", x->replicas);
    if (sharded(x))
        ts_text_printf(t, "sharded_bytes          %zu\n", sharded(x));
    if (x->pipe.ndevices > 1 || in_phases(x))
        ts_text_printf(t, "devices                %d, %s\n", x->pipe.ndevices,
                       in_phases(x)      ? "phased"
                       : x->pipe.sharded ? "sharded"
                                         : "pipelined");
    ts_text_printf(t, "output_mode            %s\n", modes[x->mode]);
    if (x->mode == TS_OUTPUT_EVERY_N)
        ts_text_printf(t, "output_period          %d\n", x->output_period);
    if (!x->object)
        return;
    ts_text_printf(t, "flops                  %.6g\n", x->stats.flops);
    ts_text_printf(t, "kernels                %d\n", x->stats.kernels);
    ts_text_printf(t, "object_bytes           %zu\n", x->object_bytes);
    ts_text_printf(t, "source_bytes           %zu\n", x->source ? strlen(x->source) : 0);
}

static void memory(ts_text *t, const ts_executable *x)
{
    size_t block = x->stats.peak_bytes, states = x->stats.state_bytes;

    ts_text_printf(t, "\nmemory\n  %-12s %12s\n", "part", "bytes");
    ts_text_printf(t, "  %-12s %12zu\n  %-12s %12zu\n  %-12s %12zu\n", "states", states, "working",
                   block > states ? block - states : 0, "block", block);
    if (x->remote_bytes)
        ts_text_printf(t, "  %-12s %12zu\n", "host", x->remote_bytes);
}

static void devices(ts_text *t, const ts_executable *x)
{
    const ts_pipeline *p = &x->pipe;

    ts_text_printf(t, "\ndevices\n  %6s %12s %12s\n", "device", "states", "block");
    for (int i = 0; i < p->ndevices; i++)
        ts_text_printf(t, "  %6d %12zu %12zu\n", i, x->bytes[i].states, x->bytes[i].peak);
    ts_text_printf(t, "\nsections\n  %4s %6s %-6s %5s %5s %7s %12s %12s %12s  blocks\n", "#",
                   "device", "part", "phase", "level", "kernels", "modelled us", "loads", "stores");
    for (int i = 0; i < p->nsections; i++) {
        const ts_section *s = &p->sections[i];
        ts_text_printf(t, "  %4d %6d %-6s %5d %5d %7d %12.1f %12zu %12zu  %s\n", i, s->device,
                       s->phase ? "update" : "batch", s->step, s->level, s->count, 1e6 * s->seconds,
                       s->loads, s->stores, s->name);
    }
    ts_text_printf(t, "\nsends\n  %7s %4s %4s %12s %6s  what\n", "section", "from", "to", "bytes",
                   "depth");
    for (int i = 0; i < p->nsends; i++) {
        const ts_send *s = &p->sends[i];
        ts_text_printf(t, "  %7d %4d %4d %12zu %6d  %s\n", s->section,
                       p->sections[s->section].device, s->device, s->bytes, s->depth,
                       s->remote  ? s->state ? "state, to the host" : "value, to the host"
                       : s->state ? "state"
                                  : "value");
    }
}

static void key(ts_text *t, const ts_key *k)
{
    if (!k->nentries)
        return;
    ts_text_printf(t, "\nkey %s\n", k->hash);
    for (int i = 0; i < k->nentries; i++)
        ts_text_printf(t, "  %-12s  %s\n", k->entries[i][0], k->entries[i][1]);
}

char *ts_inspect(ts_arena *a, const ts_executable *x)
{
    ts_text t = {0};
    char *s;

    facts(&t, x);
    slots(&t, "inputs", x->inputs, x->ninputs, false);
    slots(&t, "outputs", x->outputs, x->noutputs, false);
    slots(&t, "states", x->states, x->nstates, true);
    if (x->module || x->gpu) {
        memory(&t, x);
        if (x->pipe.ndevices > 1 || x->remote_bytes || in_phases(x))
            devices(&t, x);
        if (x->gpu)
            launches(&t, ts_gpu_code_of(x));
        else
            kernels(&t, x->module);
    }
    key(&t, &x->key);
    s = ts_arena_copy(a, t.s, t.len + 1);
    ts_text_free(&t);
    return s;
}

/* plan.c - a program's tables: what runs where, what it reads and writes, and when each tensor lives.
 *
 * Rows are numbered as the program numbers things: kernel 7 of the table is kernel 7 of the
 * program, k7_... in the C; a value has its number in the graph, and a copy of it on another device a
 * number after all of those. A value that lies in a state's memory (an update in place, a share) has no
 * row: who writes it writes the state.
 *
 * Lives are those of the dataflow, also where the plan had room to give everything memory of its
 * own.
 */
#include "plan/plan.h"
#include "gpu/gpu.h"
#include "plan/ipu.h"
#include "profile/profile.h"
#include "render/render.h"
#include <time.h>
#include <unistd.h>

typedef struct layer {
    const char *name, *block, *file;
    int line;
} layer;

typedef struct span {
    int from, to; /* kernels */
} span;

/* A value on a device. */
typedef struct tensor {
    const ts_value *v;
    const ts_spot *spot; /* NULL: an input or a constant, in nobody's block */
    int id, device;
    span *spans; /* from each kernel that makes it to the last that reads it before the next */
    int nspans;
    bool crosses; /* it is read in another section than it is made in, or comes from elsewhere */
} tensor;

typedef struct edge {
    int kernel, tensor;
    bool writes;
} edge;

typedef struct tables {
    ts_arena *a;
    ts_db *d;
    const ts_profiled *x;
    const ts_program *p;
    layer *layers;
    int nlayers;
    tensor *tensors;
    int ntensors;
    int *first; /* by value: its first tensor, those of other devices follow; -1: none */
    edge *edges;
    int nedges;
} tables;

/* --- layers --- */

static bool same(const char *x, const char *y)
{
    return !strcmp(x ? x : "", y ? y : "");
}

/* A row for each layer, block and line; -1: no node. */
static int layer_of(tables *t, const ts_node *n)
{
    if (!n)
        return TS_DB_NULL;
    for (int i = t->nlayers - 1; i >= 0; i--) {
        const layer *l = &t->layers[i];
        if (l->line == n->line && same(l->name, n->layer) && same(l->block, n->block) &&
            same(l->file, n->file))
            return i;
    }
    TS_PUSH(t->a, t->layers, t->nlayers, ((layer){n->layer, n->block, n->file, n->line}));
    return t->nlayers - 1;
}

/* Of a state: the layer that its name begins with, fc1 of fc1.weight.momentum. */
static int layer_of_state(const tables *t, const char *name)
{
    int best = TS_DB_NULL;
    size_t len = 0;

    for (int i = 0; i < t->nlayers; i++) {
        const char *s = t->layers[i].name ? t->layers[i].name : "";
        size_t n = strlen(s);
        if (n > len && !strncmp(name, s, n) && name[n] == '.') {
            best = i;
            len = n;
        }
    }
    return best;
}

static void write_layers(const tables *t)
{
    for (int i = 0; i < t->nlayers; i++) {
        const layer *l = &t->layers[i];
        ts_db_add(t->d, "layer", "ittti", i, l->name ? l->name : "", l->block ? l->block : "",
                  l->file, l->file ? l->line : TS_DB_NULL);
    }
}

/* --- values --- */

/* Whose memory v lies in: its own, or a state's. */
static const ts_value *owner(const ts_program *p, const ts_value *v)
{
    if (p->place[v->id].alias)
        v = p->place[v->id].alias;
    if (v->kind == TS_VALUE_STATE && p->g->states[v->index].use == TS_USE_SHARE)
        v = p->g->states[v->index].of;
    return v;
}

static void add_tensor(tables *t, const ts_value *v, const ts_spot *s, int device)
{
    if (t->first[v->id] < 0)
        t->first[v->id] = t->ntensors;
    TS_PUSH(t->a, t->tensors, t->ntensors,
            ((tensor){.v = v, .spot = s, .device = s ? s->device : device}));
}

static bool has_row(const ts_program *p, const ts_value *v)
{
    return p->place[v->id].home != TS_HOME_NONE && owner(p, v) == v;
}

/* The device that reads an input or a constant first. */
static int reader(const ts_program *p, const ts_value *v)
{
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nreads; r++)
            if (p->kernels[k]->reads[r] == v)
                return p->kernels[k]->device;
    return 0;
}

static void find_tensors(tables *t)
{
    const ts_program *p = t->p;
    int next = p->g->nvalues;

    t->first = TS_NEWS(t->a, int, p->g->nvalues);
    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        const ts_place *q = &p->place[i];
        t->first[i] = -1;
        if (!has_row(p, v))
            continue;
        if (q->home != TS_HOME_BLOCK)
            add_tensor(t, v, NULL, reader(p, v));
        for (const ts_spot *s = &q->spot; s && q->home == TS_HOME_BLOCK; s = s->next)
            add_tensor(t, v, s, 0);
        for (int k = t->first[i]; k < t->ntensors; k++)
            t->tensors[k].id = k == t->first[i] ? i : next++;
    }
}

/* Of v on a device, or the first there is; -1: v has no memory. */
static int tensor_of(const tables *t, const ts_value *v, int device)
{
    int first = t->first[owner(t->p, v)->id];

    for (int i = first; i >= 0 && i < t->ntensors && t->tensors[i].v == t->tensors[first].v; i++)
        if (t->tensors[i].device == device)
            return i;
    return first;
}

/* --- edges and lives --- */

static void add_edge(tables *t, int kernel, const ts_value *v, bool writes)
{
    int at = tensor_of(t, v, t->p->kernels[kernel]->device);

    if (at >= 0)
        TS_PUSH(t->a, t->edges, t->nedges, ((edge){kernel, at, writes}));
}

static bool is_read(const ts_kernel *k, const ts_program *p, const ts_value *v)
{
    for (int r = 0; r < k->nreads; r++)
        if (owner(p, k->reads[r]) == v)
            return true;
    return false;
}

/* A write begins a new life, unless it goes on with what is there. */
static void live(tables *t, const edge *e)
{
    tensor *x = &t->tensors[e->tensor];
    const ts_kernel *k = t->p->kernels[e->kernel];
    bool made = e->writes && !is_read(k, t->p, x->v);

    if (!x->nspans || (made && (x->v->kind == TS_VALUE_NODE || k->load)))
        TS_PUSH(t->a, x->spans, x->nspans, ((span){e->kernel, e->kernel}));
    x->spans[x->nspans - 1].to = TS_MAX(x->spans[x->nspans - 1].to, e->kernel);
}

static int section_end(const ts_program *p, int section)
{
    return p->pipe.sections[section].first + p->pipe.sections[section].count - 1;
}

/* Outputs and what is sent are fetched at the end of the section that makes them. */
static void keep(tables *t, const ts_value *v)
{
    int kernel = t->p->place[v->id].kernel, at;
    tensor *x;

    if (kernel < 0)
        return;
    at = tensor_of(t, v, t->p->kernels[kernel]->device);
    if (at < 0)
        return;
    x = &t->tensors[at];
    for (int i = 0; i < x->nspans; i++)
        if (x->spans[i].from <= kernel && kernel <= x->spans[i].to)
            x->spans[i].to =
                TS_MAX(x->spans[i].to, section_end(t->p, t->p->kernels[kernel]->section));
}

/* What is sent is there from the end of the section that sends it. */
static void receive(tables *t, int send)
{
    const ts_send *s = &t->p->pipe.sends[send];
    int at = tensor_of(t, t->p->sent[send], s->device);

    if (at < 0 || t->tensors[at].device != s->device)
        return;
    t->tensors[at].crosses = true;
    if (t->p->pipe.sharded && t->tensors[at].nspans)
        t->tensors[at].spans[0].from =
            TS_MIN(t->tensors[at].spans[0].from, section_end(t->p, s->section));
}

/* The first and the last kernel of a device. */
static span whole(const ts_program *p, int device)
{
    span s = {-1, 0};

    for (int k = 0; k < p->nkernels; k++)
        if (p->kernels[k]->device == device) {
            s.from = s.from < 0 ? k : s.from;
            s.to = k;
        }
    s.from = TS_MAX(0, s.from);
    return s;
}

static bool always(const tensor *x)
{
    return x->spot && x->v->kind == TS_VALUE_STATE && !x->spot->remote;
}

/* In a pipeline what leaves its section is there all the time, of several micro-batches. */
static void find_whole(tables *t, tensor *x)
{
    bool crosses = x->crosses;

    for (int i = 0; i < x->nspans; i++)
        crosses = crosses || t->p->kernels[x->spans[i].from]->section !=
                                 t->p->kernels[x->spans[i].to]->section;
    if (!always(x) && (t->p->pipe.sharded || t->p->pipe.ndevices < 2 || !crosses || !x->spot))
        return;
    x->nspans = 0;
    TS_PUSH(t->a, x->spans, x->nspans, whole(t->p, x->device));
}

static void find_lives(tables *t)
{
    const ts_program *p = t->p;

    for (int k = 0; k < p->nkernels; k++) {
        const ts_kernel *x = p->kernels[k];
        int from = t->nedges;
        for (int r = 0; r < x->nreads; r++)
            add_edge(t, k, x->reads[r], false);
        if (x->copy)
            add_edge(t, k, x->copy, false);
        for (int r = 0; r < x->nroots; r++)
            add_edge(t, k, x->roots[r], true);
        for (int e = from; e < t->nedges; e++)
            live(t, &t->edges[e]);
    }
    for (int i = 0; i < p->g->noutputs; i++)
        keep(t, p->g->outputs[i]);
    for (int i = 0; i < p->pipe.nsends; i++) {
        keep(t, p->sent[i]);
        receive(t, i);
    }
    for (int i = 0; i < t->ntensors; i++)
        find_whole(t, &t->tensors[i]);
}

static bool is_output(const ts_graph *g, const ts_value *v)
{
    for (int i = 0; i < g->noutputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

static const char *kind_of(const tables *t, const ts_value *v)
{
    const ts_graph *g = t->p->g;

    if (v->kind == TS_VALUE_INPUT)
        return "input";
    if (v->kind == TS_VALUE_STATE)
        return g->states[v->index].trained ? "weight" : "state";
    if (t->p->place[v->id].home == TS_HOME_CONST)
        return "constant";
    return is_output(g, v) ? "output" : v->node->backward ? "gradient" : "activation";
}

/* People know no "nop": it is a value written out again, in another order or place. */
static const char *word_of(const ts_node *n)
{
    return n->op == TS_OP(nop) ? "copy" : n->op->name;
}

/* conv1.weight; of what has no name, "conv1 conv %12". */
static const char *name_of(const tables *t, const ts_value *v)
{
    const ts_node *n = v->node;
    bool layer = n && n->layer && n->layer[0];

    if (v->kind != TS_VALUE_NODE)
        return v->name;
    return ts_arena_printf(t->a, "%s%s%s%s %%%d", layer ? n->layer : "", layer ? " " : "",
                           word_of(n), n->backward ? " backward" : "", v->id);
}

static int64_t bytes_of(const tensor *x)
{
    return (int64_t)(x->spot ? x->spot->bytes : ts_type_bytes(&x->v->type));
}

static void write_values(tables *t)
{
    for (int i = 0; i < t->ntensors; i++) {
        const tensor *x = &t->tensors[i];
        int from = x->nspans ? x->spans[0].from : TS_DB_NULL;
        int to = x->nspans ? x->spans[x->nspans - 1].to : TS_DB_NULL;
        ts_db_add(
            t->d, "value", "ittliiliiiti", x->id, name_of(t, x->v), ts_type_text(t->a, &x->v->type),
            bytes_of(x), x->spot ? x->spot->depth : 1, x->device,
            x->spot ? (int64_t)x->spot->offset : TS_DB_NULL, from, to, always(x), kind_of(t, x->v),
            x->v->kind == TS_VALUE_NODE ? layer_of(t, x->v->node) : layer_of_state(t, x->v->name));
        for (int k = 0; k < x->nspans && x->nspans > 1; k++)
            ts_db_add(t->d, "life", "iii", x->id, x->spans[k].from, x->spans[k].to);
    }
    for (int i = 0; i < t->nedges; i++)
        ts_db_add(t->d, "edge", "iii", t->edges[i].kernel, t->tensors[t->edges[i].tensor].id,
                  (int)t->edges[i].writes);
}

/* --- kernels --- */

static const char *op_of(const ts_kernel *k)
{
    const ts_node *n = ts_kernel_node(k);

    return k->load ? "load" : k->store ? "store" : k->copy || !n ? "copy" : word_of(n);
}

/* Does it only make states' next values? */
static bool updates(const ts_program *p, const ts_kernel *k)
{
    for (int r = 0; r < k->nroots; r++)
        if (!p->place[k->roots[r]->id].alias)
            return false;
    return k->nroots && !k->anchor;
}

static const char *pass_of(const ts_program *p, const ts_kernel *k)
{
    if (k->load || k->store || k->copy)
        return "copy";
    if (k->phase || updates(p, k))
        return "update";
    return ts_kernel_backward(k) ? "backward" : "forward";
}

/* The IR of a kernel, a node a line. */
static const char *nodes_of(const tables *t, const ts_kernel *k)
{
    ts_render r = {.a = t->a, .p = t->p};
    ts_text out = {0};
    const char *s;

    if (k->load || k->store)
        return "";
    ts_render_describe(&r, k);
    for (const char *p = r.body.s; p && *p;) {
        size_t n = strcspn(p, "\n");
        size_t skip = TS_MIN(n, strlen(" * "));
        ts_text_add(&out, p + skip, n - skip);
        p += n + (p[n] == '\n');
        if (*p)
            ts_text_add(&out, "\n", 1);
    }
    s = ts_arena_strdup(t->a, out.s ? out.s : "");
    ts_text_free(&out);
    ts_text_free(&r.body);
    return s;
}

static void count_bytes(const tables *t, int kernel, int64_t *read, int64_t *written)
{
    *read = *written = 0;
    for (int i = 0; i < t->nedges; i++)
        if (t->edges[i].kernel == kernel)
            *(t->edges[i].writes ? written : read) += bytes_of(&t->tensors[t->edges[i].tensor]);
}

/* What the plan prices has also products with what lies beyond the borders. Winograd's method does fewer than it says: those
 * that are done. */
static double useful_flops(const ts_kernel *k)
{
    const ts_node *n = k->anchor;
    double done = n ? ts_node_flops(n) : 0;

    return n ? k->flops - done + TS_MIN(done, ts_node_useful_flops(n)) : k->flops;
}

static double cycles_of(const tables *t, int i, int64_t bytes)
{
    const ts_source *src = t->x->src;

    if (src && src->kernels[i].cycles > 0)
        return src->kernels[i].cycles;
    return ts_price_kernel(&t->p->machine, t->p->kernels[i]->sums, (double)bytes);
}

static void write_kernel(tables *t, int i)
{
    const ts_kernel *k = t->p->kernels[i];
    const ts_source *src = t->x->src;
    ts_render r = {.a = t->a, .p = t->p};
    int64_t read, written, pieces = src ? src->kernels[i].pieces : 1;
    double cycles;

    count_bytes(t, i, &read, &written);
    cycles = cycles_of(t, i, read + written);
    ts_db_add(
        t->d, "kernel", "iiittttrlllirtr", i, k->section, layer_of(t, ts_kernel_node(k)),
        src ? src->kernels[i].name : ts_render_kernel(&r, k->again ? k->again->index : i), op_of(k),
        pass_of(t->p, k), nodes_of(t, k), useful_flops(k), read, written, pieces, (int)k->wait,
        ts_machine_seconds(&t->p->machine, ts_price_shared(&t->p->machine, cycles, (double)pieces)),
        src ? ts_arena_printf(t->a, "%.*s", (int)src->kernels[i].len,
                              src->text + src->kernels[i].at)
            : NULL,
        cycles);
}

/* --- devices and sections --- */

static const char *section_kind(const ts_program *p, const ts_section *s)
{
    bool forward = false, backward = false;

    if (s->phase)
        return "update";
    for (int i = s->first; i < s->first + s->count; i++) {
        const char *pass = pass_of(p, p->kernels[i]);
        forward = forward || !strcmp(pass, "forward");
        backward = backward || !strcmp(pass, "backward");
    }
    return forward && backward ? "both" : backward ? "backward" : "forward";
}

static void write_sections(const tables *t)
{
    const ts_pipeline *q = &t->p->pipe;

    for (int i = 0; i < q->nsections; i++) {
        const ts_section *s = &q->sections[i];
        ts_db_add(t->d, "section", "iiiitt", i, s->device, s->phase, s->step, section_kind(t->p, s),
                  s->name ? s->name : "");
    }
    for (int i = 0; i < q->nsends; i++) {
        const ts_send *s = &q->sends[i];
        int from = q->sections[s->section].device, at = tensor_of(t, t->p->sent[i], from);
        ts_text readers = {0};
        for (int k = 0; k < s->nreaders; k++)
            ts_text_printf(&readers, "%s%d", k ? " " : "", s->readers[k]);
        ts_db_add(t->d, "send", "iiiiilt", i, at < 0 ? TS_DB_NULL : t->tensors[at].id, s->section,
                  from, s->device, (int64_t)s->bytes, readers.s ? readers.s : "");
        ts_text_free(&readers);
    }
}

static int64_t remote_bytes(const tables *t, int device)
{
    int64_t bytes = 0;

    for (int i = 0; i < t->ntensors; i++) {
        const ts_spot *s = t->tensors[i].spot;
        if (s && s->remote && s->device == device)
            bytes += (int64_t)ts_ring_stride(s->bytes) * s->remote_depth;
    }
    return bytes;
}

/* An option that is one of some words, or any other, as text. */
static const char *option_text(const tables *t, const char *name)
{
    const ts_option *o;

    for (int i = 0; (o = ts_option_at(TS_RECORD_OPTIONS, i)); i++)
        if (!strcmp(o->name, name))
            return ts_option_value(t->a, TS_RECORD_OPTIONS, i, t->x->opt);
    return "";
}

static void write_devices(const tables *t)
{
    const ts_options *opt = t->x->opt;
    const ts_ipu *ipu = ts_ipu_of(opt->device_kind);

    for (int i = 0; i < t->p->pipe.ndevices; i++)
        ts_db_add(t->d, "device", "itlilll", i, option_text(t, "device_kind"), opt->device_memory,
                  ipu ? ipu->tiles : 0, (int64_t)t->p->bytes[i].peak,
                  (int64_t)t->p->bytes[i].states, remote_bytes(t, i));
}

/* --- the run --- */

static void set_int(const tables *t, const char *key, int64_t x)
{
    ts_db_set(t->d, key, ts_arena_printf(t->a, "%lld", (long long)x));
}

static void set_real(const tables *t, const char *key, double x)
{
    char s[32];

    ts_format(s, sizeof(s), "%.9g", x);
    ts_db_set(t->d, key, s);
}

/* What a model of an IPU says of every tile and kernel. */
static void write_ipu(const tables *t)
{
    const ts_ipu *ipu = ts_ipu_of(t->x->opt->device_kind);
    ts_ipu_model m;

    if (!ipu)
        return;
    ts_ipu_price(t->a, ipu, t->p, t->x->opt, &m);
    set_real(t, "ipu_hertz", ipu->hertz);
    set_real(t, "ipu_step_cycles", m.step);
    set_real(t, "ipu_call_cycles", m.call);
    set_real(t, "ipu_balance", m.balance);
    for (int d = 0; d < t->p->pipe.ndevices; d++)
        for (int i = 0; i < ipu->tiles; i++) {
            const ts_ipu_tile *x = &m.tiles[d][i];
            ts_db_add(t->d, "tile", "iilllll", d, i, x->always, x->peak, x->code, x->exchange,
                      x->gaps);
        }
    for (int k = 0; k < t->p->nkernels; k++) {
        const ts_ipu_cycles *c = &m.kernels[k];
        ts_db_add(t->d, "cycles", "irrrrr", k, c->compute, c->exchange, c->sync, c->host,
                  c->matrix_use);
    }
}

/* "model name : ..." of the first processor. */
static const char *processor(ts_arena *a)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    const char *found = "";

    while (f && !found[0] && fgets(line, sizeof(line), f)) {
        char *value = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "model name", strlen("model name")) && value)
            found = ts_arena_strdup(a, value + 1 + strspn(value + 1, " "));
    }
    if (f)
        fclose(f);
    return found;
}

static const char *now_text(ts_arena *a)
{
    time_t now = time(NULL);
    struct tm tm;
    char s[32];

    strftime(s, sizeof(s), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    return ts_arena_strdup(a, s);
}

/* What most of the work is done with. */
static const char *precision(const ts_program *p)
{
    double work[16] = {0};
    int best = TS_F32;

    for (int i = 0; i < p->nkernels; i++)
        if (p->kernels[i]->anchor && p->kernels[i]->anchor->nin) {
            unsigned type = (unsigned)p->kernels[i]->anchor->in[0]->type.dtype;
            if (type < TS_COUNT(work))
                work[type] += p->kernels[i]->flops;
        }
    for (int i = 0; i < TS_COUNT(work); i++)
        best = work[i] > work[best] ? i : best;
    return ts_dtype_name((ts_dtype)best);
}

static void write_machine(const tables *t)
{
    const ts_machine_model *m = &t->p->machine;
    int threads = ts_team_default_size();
    const char *cc = t->x->src ? ts_cc_identity(t->a, t->x->opt) : NULL;

    ts_db_set(t->d, "compiler", cc ? cc : "");
    ts_db_set(t->d, "isa", m->isa.name);
    ts_db_set(t->d, "machine", processor(t->a));
    ts_db_set(t->d, "machine_model", ts_machine_text(t->a, m));
    set_int(t, "cores", ts_core_count());
    set_int(t, "threads", threads);
    if (!ts_gpu_is(t->x->opt->device_kind)) { /* of which it is not known */
        set_real(t, "peak_gflops",
                 2 * m->isa.width * ts_machine_rate(m, m->isa.width) * m->hertz * threads / 1e9);
        set_real(t, "bandwidth_gbs", m->memory * m->hertz * threads / 1e9);
    }
    set_real(t, "cycles_per_second", m->hertz);
}

static double flops_of(const ts_program *p, int phase)
{
    double sum = 0;

    for (int i = 0; i < p->nkernels; i++)
        sum += p->kernels[i]->phase == phase ? useful_flops(p->kernels[i]) : 0;
    return sum;
}

static void write_step(const tables *t)
{
    const ts_options *opt = t->x->opt;
    const ts_graph *g = t->x->model;
    int D = TS_MAX(1, opt->device_iterations), A = TS_MAX(1, opt->gradient_accumulation);
    int R = TS_MAX(1, opt->replicas);
    int64_t batch = g->ninputs && g->inputs[0]->type.rank ? g->inputs[0]->type.dim[0] : 1;

    set_int(t, "batch", batch);
    set_int(t, "iterations", D);
    set_int(t, "accumulation", A);
    set_int(t, "replicas", R);
    set_int(t, "samples_per_call", batch * D * A * R);
    set_int(t, "devices", t->p->pipe.ndevices);
    ts_db_set(t->d, "training", opt->optimizer ? "1" : "0");
    ts_db_set(t->d, "schedule",
              t->p->pipe.ndevices > 1 || ts_plan_phases(opt) ? option_text(t, "schedule") : "");
    ts_db_set(t->d, "precision", precision(t->p));
    set_real(t, "flops_step", A * flops_of(t->p, 0) + flops_of(t->p, 1));
    set_int(t, "peak_bytes", (int64_t)t->p->peak_bytes);
    set_int(t, "calls", 0);
}

/* Every option that is not what it usually is, but for where files are. */
static void write_options(const tables *t)
{
    static const ts_options usual;
    static const char *const apart[] = {"cache_dir", "dump_dir", "profile"};
    const ts_option *o;

    for (int i = 0; (o = ts_option_at(TS_RECORD_OPTIONS, i)); i++) {
        const char *value = ts_option_value(t->a, TS_RECORD_OPTIONS, i, t->x->opt);
        bool left = !strcmp(value, ts_option_value(t->a, TS_RECORD_OPTIONS, i, &usual));
        for (int k = 0; k < TS_COUNT(apart); k++)
            left = left || !strcmp(apart[k], o->name);
        if (!left)
            ts_db_set(t->d, ts_arena_printf(t->a, "option.%s", o->name), value);
    }
}

static void write_run(const tables *t)
{
    set_int(t, "schema", TS_PROFILE_VERSION);
    ts_db_set(t->d, "tessera", TS_VERSION);
    ts_db_set(t->d, "model", t->x->model->name);
    ts_db_set(t->d, "fits", t->x->refused ? "0" : "1");
    if (t->x->refused)
        ts_db_set(t->d, "refused", t->x->refused);
    if (t->x->unmeasured)
        ts_db_set(t->d, "unmeasured", t->x->unmeasured);
    ts_db_set(t->d, "source", "plan");
    ts_db_set(t->d, "created", now_text(t->a));
    write_machine(t);
    write_step(t);
    write_options(t);
}

/* --- all --- */

ts_status ts_profile_write(ts_arena *a, const ts_profile *to, const ts_profiled *x)
{
    tables t = {.a = a, .x = x, .p = x->p};
    ts_status s = ts_db_new(&t.d);

    if (s) {
        (void)ts_db_close(t.d);
        return s;
    }
    find_tensors(&t);
    find_lives(&t);
    write_run(&t);
    write_devices(&t);
    write_ipu(&t);
    write_sections(&t);
    for (int i = 0; i < x->p->nkernels; i++)
        write_kernel(&t, i);
    write_values(&t);
    write_layers(&t);
    s = ts_file_mkdirs(to->folder);
    if (s) {
        (void)ts_db_close(t.d);
        return s;
    }
    unlink(ts_arena_printf(a, "%s/trace.json", to->folder)); /* of another program, if any */
    return ts_db_save(t.d, ts_arena_printf(a, "%s/profile.db", to->folder));
}

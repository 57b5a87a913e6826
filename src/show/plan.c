/* plan.c - a program's plan for people: what each device and layer needs, who runs what when.
 *
 *              fill    main                flush
 *   device 0   F0 F1 . B0 F2 B1 F3 B2 . B3  U
 *   device 1   .  X0 X1 .  ...
 *
 * The drawing is plan/pipeline.c's order with the times it assumes; = goes on with what began
 * before.
 */
#include "plan/plan.h"
#include "plan/ipu.h"
#include "tessera/plan.h"

/* --- layers --- */

typedef struct layers {
    ts_arena *a;
    const ts_program *p;
    ts_plan_layer *of;
    int n;
} layers;

/* Those without a name are one for each block. */
static ts_plan_layer *layer_of(layers *x, const char *name, const char *block, int device)
{
    name = name ? name : "";
    block = block ? block : "";
    for (int i = 0; i < x->n; i++)
        if (!strcmp(x->of[i].name, name) && (name[0] || !strcmp(x->of[i].block, block)))
            return &x->of[i];
    TS_PUSH(x->a, x->of, x->n,
            ((ts_plan_layer){.name = ts_arena_strdup(x->a, name),
                             .block = ts_arena_strdup(x->a, block),
                             .device = device}));
    return &x->of[x->n - 1];
}

/* In the order of the forward pass. */
static void find_order(layers *x)
{
    for (int i = 0; i < x->p->g->nnodes; i++) {
        const ts_node *n = x->p->g->nodes[i];
        if (!n->backward && !n->phase && n->layer && n->layer[0])
            layer_of(x, n->layer, n->block, 0);
    }
}

static void add_work(layers *x)
{
    for (int i = 0; i < x->p->nkernels; i++) {
        const ts_kernel *k = x->p->kernels[i];
        const ts_node *n = ts_kernel_node(k);
        if (!n || k->phase || k->load || k->store)
            continue;
        ts_plan_layer *l = layer_of(x, n->layer, n->block, k->device);
        l->flops += k->flops;
        l->device = k->device;
    }
}

/* fc1.weight, fc1.weight.momentum: the longest name of a layer that it begins with. */
static const char *layer_name(const layers *x, const char *state)
{
    const char *best = "";

    for (int i = 0; i < x->n; i++) {
        size_t n = strlen(x->of[i].name);
        if (n > strlen(best) && !strncmp(state, x->of[i].name, n) && state[n] == '.')
            best = x->of[i].name;
    }
    return best;
}

static void add_states(layers *x)
{
    const ts_graph *g = x->p->g;

    for (int i = 0; i < g->nstates; i++) {
        const ts_value *v = g->states[i].value;
        const ts_spot *s = &x->p->place[v->id].spot;
        ts_plan_layer *l = layer_of(x, layer_name(x, v->name), "", s->device);
        for (; s && g->states[i].use != TS_USE_SHARE; s = s->next)
            l->states += (int64_t)s->bytes;
        if (g->states[i].trained)
            l->parameters += ts_type_count(&v->type);
    }
}

static bool read_backward(const ts_program *p, const ts_value *v)
{
    for (int i = 0; i < p->nkernels; i++) {
        const ts_kernel *k = p->kernels[i];
        const ts_node *n = ts_kernel_node(k);
        for (int r = 0; r < k->nreads && n && n->backward && !k->phase; r++)
            if (k->reads[r] == v)
                return true;
    }
    return false;
}

/* What the forward pass makes and the backward pass reads. */
static void add_activations(layers *x)
{
    const ts_program *p = x->p;

    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        const ts_place *q = &p->place[i];
        if (v->kind != TS_VALUE_NODE || q->home != TS_HOME_BLOCK || q->alias || !v->node ||
            v->node->backward || v->node->phase || !read_backward(p, v))
            continue;
        ts_plan_layer *l = layer_of(x, v->node->layer, v->node->block, q->spot.device);
        for (const ts_spot *s = &q->spot; s; s = s->next)
            l->activations += (int64_t)(s->bytes * (size_t)TS_MAX(1, s->depth));
    }
}

static void find_layers(ts_arena *a, const ts_program *p, ts_plan_info *out)
{
    layers x = {.a = a, .p = p};

    find_order(&x);
    add_work(&x);
    add_states(&x);
    add_activations(&x);
    out->layers = x.of;
    for (int i = 0; i < x.n; i++) /* without those that are inside others' kernels */
        if (x.of[i].flops > 0 || x.of[i].states || x.of[i].activations)
            x.of[out->nlayers++] = x.of[i];
}

/* --- devices and sections --- */

static char kind_of(const ts_program *p, const ts_section *s)
{
    bool forward = false, backward = false;

    if (s->phase)
        return 'U';
    for (int i = s->first; i < s->first + s->count; i++) {
        const ts_node *n = ts_kernel_node(p->kernels[i]);
        if (p->kernels[i]->load || p->kernels[i]->store)
            continue;
        if (n && n->backward)
            backward = true;
        else
            forward = true;
    }
    return forward && backward ? 'X' : backward ? 'B' : 'F';
}

/* What other replicas keep of the optimiser's state in the device's place. */
static void add_sharded(const ts_program *p, ts_plan_device *devices)
{
    for (int i = 0; i < p->g->nstates; i++) {
        const ts_state *s = &p->g->states[i];
        size_t size = ts_dtype_size(s->value->type.dtype);
        if (s->of && s->use == TS_USE_MOMENT)
            devices[p->place[s->value->id].spot.device].sharded +=
                (ts_type_count(&s->of->type) - ts_type_count(&s->value->type)) * (int64_t)size;
    }
}

static void find_sections(ts_arena *a, const ts_program *p, ts_plan_info *out)
{
    ts_plan_device *devices = TS_NEWS(a, ts_plan_device, p->pipe.ndevices);
    ts_plan_section *sections = TS_NEWS(a, ts_plan_section, p->pipe.nsections);
    double all = 0;

    for (int i = 0; i < p->pipe.nsections; i++) {
        const ts_section *s = &p->pipe.sections[i];
        sections[i] = (ts_plan_section){.device = s->device,
                                        .kernels = s->count,
                                        .phase = s->step,
                                        .kind = kind_of(p, s),
                                        .blocks = ts_arena_strdup(a, s->name ? s->name : ""),
                                        .seconds = s->seconds};
        if (!s->phase) {
            devices[s->device].seconds += s->seconds;
            all += s->seconds;
        }
    }
    for (int d = 0; d < p->pipe.ndevices; d++) {
        devices[d].states = (int64_t)p->bytes[d].states;
        devices[d].peak = (int64_t)p->bytes[d].peak;
        devices[d].share = all > 0 ? devices[d].seconds / all : 0;
    }
    add_sharded(p, devices);
    out->devices = devices;
    out->ndevices = p->pipe.ndevices;
    out->sections = sections;
    out->nsections = p->pipe.nsections;
}

/* Of the state, else of the layer, else of the block. */
static const char *name_of(ts_arena *a, const ts_value *v)
{
    const char *name = v->name ? v->name : v->node ? v->node->layer : "";

    if (v->node && (!name || !name[0]))
        name = v->node->block;
    return ts_arena_strdup(a, name ? name : "");
}

static void find_moves(ts_arena *a, const ts_program *p, ts_plan_info *out)
{
    ts_plan_move *moves = NULL;

    for (int i = 0; i < p->nkernels; i++) {
        const ts_kernel *k = p->kernels[i];
        const ts_value *v = k->load ? k->load : k->store;
        if (!v)
            continue;
        TS_PUSH(a, moves, out->nmoves,
                ((ts_plan_move){.section = k->section,
                                .what = ts_plan_offload_bit(p, v),
                                .load = k->load != NULL,
                                .name = name_of(a, v),
                                .bytes = (int64_t)ts_place_spot(p, v, k->device)->bytes}));
    }
    out->moves = moves;
    out->host = (int64_t)p->remote_bytes;
}

static void find_sends(ts_arena *a, const ts_program *p, ts_plan_info *out)
{
    ts_plan_send *sends = TS_NEWS(a, ts_plan_send, p->pipe.nsends);

    for (int i = 0; i < p->pipe.nsends; i++) {
        const ts_send *s = &p->pipe.sends[i];
        sends[i] = (ts_plan_send){.section = s->section,
                                  .from = p->pipe.sections[s->section].device,
                                  .to = s->device,
                                  .name = name_of(a, p->sent[i]),
                                  .state = s->state,
                                  .host = s->remote,
                                  .depth = s->depth,
                                  .bytes = (int64_t)s->bytes};
    }
    out->sends = sends;
    out->nsends = p->pipe.nsends;
}

/* --- a model of an IPU --- */

static ts_plan_ipu_device fullest(const ts_ipu_model *m, int device)
{
    ts_plan_ipu_device x = {.cycles = m->stage[device]};

    for (int t = 0; t < m->ipu->tiles; t++) {
        const ts_ipu_tile *tile = &m->tiles[device][t];
        x.over += tile->peak > m->ipu->tile_bytes;
        if (tile->peak > x.peak)
            x = (ts_plan_ipu_device){tile->always, tile->peak, tile->code, tile->exchange,
                                     tile->gaps,   t,          x.over,     x.cycles};
    }
    return x;
}

/* Phase 0 runs for every micro-batch. */
static void add_cycles(const ts_program *p, const ts_ipu_model *m, int micros, ts_plan_ipu *out)
{
    double used = 0, could = 0;

    for (int i = 0; i < p->nkernels; i++) {
        const ts_ipu_cycles *c = &m->kernels[i];
        double runs = p->kernels[i]->phase ? 1 : micros;
        out->compute += runs * c->compute;
        out->exchange += runs * c->exchange;
        out->sync += runs * c->sync;
        out->host += runs * c->host;
        used += c->matrix_use > 0 ? c->matrix_use * c->compute : 0;
        could += c->matrix_use > 0 ? c->compute : 0;
    }
    out->matrix_use = could > 0 ? used / could : 0;
}

static void find_ipu(ts_arena *a, const ts_program *p, const ts_options *opt, ts_plan_info *out)
{
    const ts_ipu *ipu = ts_ipu_of(opt->device_kind);
    ts_plan_ipu *x = TS_NEW(a, ts_plan_ipu);
    ts_plan_ipu_device *devices = TS_NEWS(a, ts_plan_ipu_device, p->pipe.ndevices);
    ts_ipu_model m;

    if (!ipu)
        return;
    ts_ipu_price(a, ipu, p, opt, &m);
    for (int d = 0; d < p->pipe.ndevices; d++)
        devices[d] = fullest(&m, d);
    *x = (ts_plan_ipu){.name = ipu->name,
                       .tiles = ipu->tiles,
                       .tile_bytes = ipu->tile_bytes,
                       .hertz = ipu->hertz,
                       .step = m.step,
                       .call = m.call,
                       .balance = m.balance,
                       .devices = devices};
    add_cycles(p, &m, (int)TS_MAX(1, opt->gradient_accumulation), x);
    out->ipu = x;
}

/* --- the drawing --- */

enum { HEAD = 12, TAIL = 8, MARGIN = 11 }; /* steps drawn; the main part is all alike */

typedef struct drawing {
    const ts_plan_info *plan;
    const ts_order *o;
    int steps, fill, flush; /* the first step of main, and of flush */
    int width;              /* of a cell */
    const char **cells;     /* [device][step] */
} drawing;

/* The steps that are left out stand between HEAD and this. */
static int second_part(const drawing *d)
{
    return d->steps > HEAD + TAIL + 1 ? d->steps - TAIL : HEAD;
}

/* F0, and F'0 for the second forward section of a device; in phases F1.0. */
static const char *cell(ts_arena *a, const ts_plan_info *plan, const ts_item *x)
{
    const ts_plan_section *s = &plan->sections[x->section];
    char marks[8] = "";
    size_t n = 0;

    if (plan->phases)
        return ts_arena_printf(a, "%c%d.%d", s->kind, s->phase, x->m);
    for (int i = 0; i < x->section && n < sizeof(marks) - 1; i++)
        if (plan->sections[i].device == s->device && plan->sections[i].kind == s->kind)
            marks[n++] = '\'';
    marks[n] = 0;
    return ts_arena_printf(a, "%c%s%d", s->kind, marks, x->m);
}

/* The largest time that all items begin and, in a pipeline, end at multiples of. */
static int step_of(const drawing *d)
{
    const ts_order *o = d->o;
    int unit = 0;

    for (int i = 0; i < o->ndevices; i++)
        for (int k = 0; k < o->nfirst[i]; k++) {
            const ts_item *x = &o->items[i][k];
            int times[] = {o->when[x->section][x->m], d->plan->sharded ? 0 : o->took[x->section]};
            for (int j = 0; j < 2; j++)
                for (int y = times[j], rest; y; y = rest) {
                    rest = unit % y;
                    unit = y;
                }
        }
    return TS_MAX(1, unit);
}

static void fill_cells(ts_arena *a, drawing *d)
{
    const ts_order *o = d->o;
    int first = 0, last = 0, unit = step_of(d);

    for (int i = 0; i < o->ndevices; i++)
        for (int k = 0; k < o->nfirst[i]; k++) {
            const ts_item *x = &o->items[i][k];
            int width = d->plan->sharded ? 1 : o->took[x->section] / unit;
            d->steps = TS_MAX(d->steps, o->when[x->section][x->m] / unit + width);
        }
    d->cells = TS_NEWS(a, const char *, d->steps * o->ndevices);
    d->flush = d->steps;
    for (int i = 0; i < o->ndevices; i++) {
        for (int k = 0; k < o->nfirst[i]; k++) {
            const ts_item *x = &o->items[i][k];
            int at = o->when[x->section][x->m] / unit;
            const char *text = cell(a, d->plan, x);
            d->cells[i * d->steps + at] = text;
            for (int more = 1; more < o->took[x->section] / unit && !d->plan->sharded; more++)
                d->cells[i * d->steps + at + more] = "=";
            d->width = TS_MAX(d->width, (int)strlen(text));
            first = k ? first : TS_MAX(first, at);
            last = x->section == 0 ? TS_MAX(last, at) : last;
        }
    }
    if (second_part(d) > HEAD)
        d->width = TS_MAX(d->width, 3); /* of the dots */
    d->fill = d->plan->sharded ? 0 : TS_MIN(first, d->steps);
    d->flush = TS_MIN(last + 1, d->steps);
}

static void pad(ts_text *t, const char *s, int width)
{
    ts_text_printf(t, " %-*s", width, s);
}

/* Where a step stands, in letters; one that is left out stands at the dots. */
static int column(const drawing *d, int step)
{
    int n = step < HEAD ? step : step < second_part(d) ? HEAD : HEAD + step - second_part(d);

    if (second_part(d) > HEAD && step >= second_part(d))
        n++;
    return MARGIN + 1 + n * (d->width + 1);
}

static void draw_title(ts_text *t, const drawing *d)
{
    const struct {
        const char *name;
        int step;
    } parts[] = {{"fill", 0}, {"main", d->fill}, {"flush", d->flush}};
    size_t begin = t->len;

    if (d->fill <= 0 || d->flush <= d->fill || d->flush >= d->steps)
        return; /* there is no main part */
    for (int i = 0; i < TS_COUNT(parts); i++) {
        while ((int)(t->len - begin) < column(d, parts[i].step))
            ts_text_printf(t, " ");
        /* a title that is longer than its part moves those that follow */
        ts_text_printf(t, "%s%s", t->len > begin && t->s[t->len - 1] != ' ' ? " " : "",
                       parts[i].name);
    }
    ts_text_printf(t, "\n");
}

static bool has_update(const ts_plan_info *plan, int device)
{
    for (int i = 0; i < plan->nsections; i++)
        if (plan->sections[i].device == device && plan->sections[i].kind == 'U')
            return true;
    return false;
}

static void draw(ts_text *t, const drawing *d)
{
    draw_title(t, d);
    for (int i = 0; i < d->o->ndevices; i++) {
        char name[32];
        snprintf(name, sizeof(name), "device %d", i);
        ts_text_printf(t, "%-*s", MARGIN, name);
        for (int k = 0; k < d->steps; k++) {
            const char *text = d->cells[i * d->steps + k];
            if (k == HEAD && second_part(d) > HEAD) {
                pad(t, "...", d->width);
                k = second_part(d) - 1;
                continue;
            }
            pad(t, text ? text : ".", d->width);
        }
        if (has_update(d->plan, i))
            ts_text_printf(t, " U");
        while (t->len && t->s[t->len - 1] == ' ')
            t->len--;
        ts_text_printf(t, "\n");
    }
}

static void find_schedule(ts_arena *a, const ts_program *p, const ts_options *opt,
                          ts_plan_info *out)
{
    int M = TS_MAX(1, opt->optimizer ? opt->gradient_accumulation : opt->device_iterations);
    ts_order o;
    drawing d = {.plan = out, .o = &o};
    ts_text t = {0};

    ts_order_make(a, &p->pipe, M, &o);
    out->micro_batches = M;
    out->bubble = ts_order_bubble(a, &p->pipe, &o);
    fill_cells(a, &d);
    draw(&t, &d);
    out->schedule = ts_arena_copy(a, t.s, t.len + 1);
    ts_text_free(&t);
}

/* --- all --- */

static void describe(ts_arena *a, const ts_program *p, const ts_options *opt, ts_plan_info *out)
{
    out->sharded = p->pipe.sharded;
    out->phases = ts_plan_phases(opt);
    out->replicas = TS_MAX(1, opt->replicas);
    find_layers(a, p, out);
    find_sections(a, p, out);
    find_sends(a, p, out);
    find_moves(a, p, out);
    find_schedule(a, p, opt, out);
}

typedef struct planned { /* what a ts_plan_info is the beginning of */
    ts_plan_info info;
    ts_arena *arena;
} planned;

ts_status ts_plan_new_sized(const ts_graph *g, const ts_options *opt, size_t size,
                            size_t optimizer_size, ts_plan_info **out)
{
    ts_options unlimited;
    ts_optimizer optimizer;
    const ts_program *p;
    planned *x;
    ts_arena *a;
    ts_status s;

    if (!g || !out)
        return ts_fail(TS_ERR_ARG, "a plan needs a graph and a place for the plan");
    *out = NULL;
    TS_TRY(ts_take_options("ts_plan_new", opt, size, optimizer_size, &unlimited, &optimizer));
    unlimited.device_memory = INT64_MAX;
    a = ts_arena_new();
    s = ts_compile_plan(a, g, &unlimited, &p);
    if (s) {
        ts_error_doing("planning the graph '%s'", g->name);
        ts_arena_free(a);
        return s;
    }
    x = TS_NEW(a, planned);
    x->arena = a;
    describe(a, p, &unlimited, &x->info);
    find_ipu(a, p, &unlimited, &x->info);
    *out = &x->info;
    return TS_OK;
}

void ts_plan_free(ts_plan_info *p)
{
    if (p)
        ts_arena_free(((planned *)p)->arena);
}

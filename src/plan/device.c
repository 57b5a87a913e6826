/* device.c - a device and a section for every kernel, and what one device sends another.
 *
 *   kernel        block   device   level            section
 *     conv1        B1       0        0                0
 *     conv2        B2       1        1                1
 *     loss, dW2    B2       1        1                1     the last stage turns round
 *     dW1          B1       0        2                2
 *
 * The kernels are those of the plan for one device, so the results are the same bits: only where
 * and when they run is decided here. A kernel runs on the device of its block; what it inlines of
 * another block comes along. Its level is how many times the data has changed devices on the way to
 * it; kernels of one phase, device and level are a section. A kernel that nobody waits for yet
 * moves down to the first section of its device that reads it.
 *
 * A value read on another device is sent there at the end of its section; a state that several
 * devices read has a copy on each, sent again whenever it is updated.
 *
 * Phased, the first thing that tells sections apart is the step: the phase of a kernel's block in
 * the forward pass, counted on in the backward pass, and again from 0 in the update. What must wait
 * for a later step, such as the sum of gradients that come from two phases, moves there.
 */
#include "plan/plan.h"

typedef struct devices {
    ts_arena *a;
    const ts_options *opt;
    ts_program *p;
    const ts_graph *g;
    int *level;  /* by kernel */
    int *writer; /* by state: the kernel that updates it, or -1 */
    ts_readers readers;
} devices;

/* --- kernels to devices --- */

const ts_node *ts_kernel_node(const ts_kernel *k)
{
    const ts_value *v = k->copy ? k->copy : k->nroots ? k->roots[0] : k->reads[0];

    return k->anchor ? k->anchor : v->node;
}

bool ts_kernel_backward(const ts_kernel *k)
{
    const ts_node *n = k->anchor ? k->anchor : k->nroots ? k->roots[0]->node : NULL;

    return k->again || (n && n->backward);
}

static ts_status unknown_block(const ts_options *opt, const ts_node *n)
{
    ts_text t = {0};

    for (int i = 0; i < opt->nstages; i++)
        for (int b = 0; b < opt->stages[i].nblocks; b++)
            ts_text_printf(&t, "%s%s", t.len ? ", " : "", opt->stages[i].blocks[b]);
    ts_fail_at(n, TS_ERR_ARG, "the block '%s' is in no stage", n->block);
    ts_error_hint("the stages have the blocks %s", t.len ? t.s : "(none)");
    ts_text_free(&t);
    return TS_ERR_ARG;
}

static bool has_block(const ts_node *n)
{
    return n && n->block && n->block[0];
}

/* The stage of a node's block, the first for what has none, or NULL: the block is in no stage. */
static const ts_stage *stage_of(const ts_options *opt, const ts_node *n)
{
    if (!has_block(n))
        return &opt->stages[0];
    for (int i = 0; i < opt->nstages; i++)
        for (int b = 0; b < opt->stages[i].nblocks; b++)
            if (!strcmp(opt->stages[i].blocks[b], n->block))
                return &opt->stages[i];
    return NULL;
}

static bool phased(const ts_options *opt)
{
    return opt->schedule == TS_SCHEDULE_PHASED;
}

/* When a kernel of this phase of the model runs. */
static int step_of(const ts_options *opt, const ts_kernel *k, int phase)
{
    int last = ts_plan_phases(opt) - 1;

    if (k->phase || !ts_kernel_backward(k))
        return phase;
    return 2 * last - phase + (opt->separate_backward ? 2 : 0);
}

static ts_status place_kernel(const devices *x, ts_kernel *k)
{
    const ts_options *opt = x->opt;
    const ts_node *n = ts_kernel_node(k);
    const ts_stage *s;

    if (!opt->nstages) { /* as cut.c named it */
        if (has_block(n) && opt->devices > 1)
            k->device = atoi(n->block + strlen("stage "));
        return TS_OK;
    }
    s = stage_of(opt, n);
    if (!s)
        return unknown_block(opt, n);
    k->device = s->device;
    if (phased(opt))
        k->step = step_of(opt, k, s->phase);
    return TS_OK;
}

/* A check of a state's next value is made where that is: in place, it has no copies elsewhere. */
static void go_along(const devices *x, ts_kernel *k)
{
    const ts_node *n = ts_kernel_node(k);

    for (int r = 0; r < k->nreads && n && n->guard; r++) {
        const ts_place *q = &x->p->place[k->reads[r]->id];
        if (!q->alias)
            continue;
        k->device = x->p->kernels[q->kernel]->device;
        k->step = x->p->kernels[q->kernel]->step;
    }
}

static ts_status find_devices(devices *x)
{
    ts_program *p = x->p;

    p->pipe.ndevices = 1;
    for (int i = 0; i < p->nkernels; i++) {
        ts_kernel *k = p->kernels[i];
        TS_TRY(place_kernel(x, k));
        go_along(x, k);
        p->pipe.ndevices = TS_MAX(p->pipe.ndevices, k->device + 1);
    }
    return TS_OK;
}

/* --- kernels to sections --- */

static const ts_value *updated_by(const ts_program *p, const ts_kernel *k, int root)
{
    if (k->load || k->store)
        return NULL;
    return k->copy ? k->roots[0] : p->place[k->roots[root]->id].alias;
}

/* k comes after j, on the same device maybe in the same section. */
static void follow(devices *x, int k, int j)
{
    const ts_kernel *a = x->p->kernels[j];
    ts_kernel *b = x->p->kernels[k];

    if (j == k || a->phase != b->phase || a->step < b->step)
        return;
    if (a->step > b->step)
        x->level[k] = 0;
    b->step = a->step;
    x->level[k] = TS_MAX(x->level[k], x->level[j] + (a->device != b->device));
}

/* By state: the kernels that update it. */
typedef struct updaters {
    int *list, n;
} updaters;

static updaters *find_updaters(const devices *x)
{
    updaters *u = TS_NEWS(x->a, updaters, x->g->nstates);

    for (int k = 0; k < x->p->nkernels; k++)
        for (int r = 0; r < x->p->kernels[k]->nroots; r++) {
            const ts_value *s = updated_by(x->p, x->p->kernels[k], r);
            if (s)
                TS_PUSH(x->a, u[s->index].list, u[s->index].n, k);
        }
    return u;
}

/* Kernel j waits for k: *lowest becomes the lowest level of those that do, -1 if one is on another
 * device. */
static void look_at(const devices *x, int k, int j, int *lowest)
{
    const ts_kernel *from = x->p->kernels[k], *to = x->p->kernels[j];

    x->p->work++;
    if (j <= k || to->phase != from->phase)
        return;
    *lowest = to->device == from->device ? TS_MIN(*lowest, x->level[j]) : -1;
}

/* Down to the section that reads it first, if that is the same device's. */
static void sink(devices *x, const updaters *u, int k)
{
    const ts_kernel *from = x->p->kernels[k];
    int lowest = INT32_MAX;

    for (int r = 0; r < from->nroots; r++)
        for (int i = x->readers.at[from->roots[r]->id]; i < x->readers.at[from->roots[r]->id + 1];
             i++)
            look_at(x, k, x->readers.kernels[i], &lowest);
    for (int r = 0; r < from->nreads; r++)
        for (int i = 0; from->reads[r]->kind == TS_VALUE_STATE && i < u[from->reads[r]->index].n;
             i++)
            look_at(x, k, u[from->reads[r]->index].list[i], &lowest);
    if (lowest >= 0 && lowest < INT32_MAX)
        x->level[k] = lowest;
}

static void find_levels(devices *x)
{
    const ts_program *p = x->p;
    const updaters *u = find_updaters(x);

    x->readers = ts_plan_readers(x->a, x->p);
    for (int k = 0; k < p->nkernels; k++) {
        const ts_kernel *n = p->kernels[k];
        for (int r = 0; r < n->nreads; r++)
            if (p->place[n->reads[r]->id].kernel >= 0)
                follow(x, k, p->place[n->reads[r]->id].kernel);
        /* whoever updates a state comes after those that read it */
        for (int r = 0; r < n->nroots; r++) {
            const ts_value *s = updated_by(p, n, r);
            for (int i = s ? x->readers.at[s->id] : 0; s && i < x->readers.at[s->id + 1]; i++)
                if (x->readers.kernels[i] < k)
                    follow(x, k, x->readers.kernels[i]);
        }
    }
    for (int k = p->nkernels - 1; k >= 0 && !phased(x->opt); k--)
        sink(x, u, k);
}

/* The blocks in a section, as "B1 B2". */
static void name_section(devices *x, ts_section *s)
{
    ts_text t = {0};

    for (int i = s->first; i < s->first + s->count; i++) {
        const ts_node *n = ts_kernel_node(x->p->kernels[i]);
        const char *block = n && n->block ? n->block : "";
        const char *known = t.len && block[0] ? strstr(t.s, block) : NULL;
        size_t len = strlen(block);
        bool whole =
            known && (known == t.s || known[-1] == ' ') && (!known[len] || known[len] == ' ');
        if (block[0] && !whole)
            ts_text_printf(&t, "%s%s", t.len ? " " : "", block);
    }
    s->name = ts_arena_strdup(x->a, t.len ? t.s : "");
    ts_text_free(&t);
}

static int by_section(const void *p, const void *q)
{
    const ts_section *x = p, *y = q;

    if (x->phase != y->phase)
        return x->phase - y->phase;
    if (x->step != y->step)
        return x->step - y->step;
    return x->level != y->level ? x->level - y->level : x->device - y->device;
}

/* On one core; what matters is how kernels compare. */
static double seconds(const ts_machine_model *m, const ts_kernel *k)
{
    double bytes = 0;

    for (int i = 0; i < k->nroots; i++)
        bytes += (double)ts_type_bytes(&k->roots[i]->type);
    for (int i = 0; i < k->nreads; i++)
        bytes += (double)ts_type_bytes(&k->reads[i]->type);
    return ts_machine_seconds(m, ts_price_kernel(m, k->sums, bytes));
}

static void find_sections(devices *x)
{
    ts_program *p = x->p;
    ts_pipeline *pipe = &p->pipe;
    ts_kernel **sorted = TS_NEWS(x->a, ts_kernel *, p->nkernels);
    int *place = TS_NEWS(x->a, int, p->nkernels), n = 0;

    for (int k = 0; k < p->nkernels; k++) {
        const ts_kernel *y = p->kernels[k];
        ts_section s = {
            .phase = y->phase, .device = y->device, .step = y->step, .level = x->level[k]};
        bool known = false;
        for (int i = 0; i < pipe->nsections; i++)
            known = known || !by_section(&pipe->sections[i], &s);
        if (!known)
            TS_PUSH(x->a, pipe->sections, pipe->nsections, s);
    }
    qsort(pipe->sections, (size_t)pipe->nsections, sizeof(ts_section), by_section);
    for (int i = 0; i < pipe->nsections; i++) {
        ts_section *s = &pipe->sections[i];
        s->first = n;
        for (int k = 0; k < p->nkernels; k++) {
            ts_kernel *y = p->kernels[k];
            if (y->phase != s->phase || y->device != s->device || y->step != s->step ||
                x->level[k] != s->level)
                continue;
            y->section = i;
            place[k] = n;
            sorted[n++] = y;
        }
        s->count = n - s->first;
    }
    for (int v = 0; v < x->g->nvalues; v++)
        if (p->place[v].kernel >= 0)
            p->place[v].kernel = place[p->place[v].kernel];
    p->kernels = sorted;
    ts_plan_renumber(p);
    for (int i = 0; i < pipe->nsections; i++)
        name_section(x, &pipe->sections[i]);
}

void ts_plan_renumber(ts_program *p)
{
    for (int i = 0; i < p->pipe.nsections; i++) {
        p->pipe.sections[i].count = 0;
        p->pipe.sections[i].seconds = 0;
    }
    for (int k = 0; k < p->nkernels; k++) {
        ts_kernel *y = p->kernels[k];
        ts_section *s = &p->pipe.sections[y->section];
        if (!s->count++)
            s->first = k;
        if (!y->load && !y->store)
            s->seconds += seconds(&p->machine, y);
        y->index = k;
        for (int r = 0; r < y->nroots && !y->copy && !y->load && !y->again; r++)
            p->place[y->roots[r]->id].kernel = k;
    }
}

/* --- values to devices --- */

const ts_spot *ts_place_spot(const ts_program *p, const ts_value *v, int device)
{
    const ts_place *q = &p->place[v->id];

    for (const ts_spot *s = q->spot.next; s; s = s->next)
        if (s->device == device)
            return s;
    /* at home: maybe in the memory of the state it is the next value of */
    return q->alias ? &p->place[q->alias->id].spot : &q->spot;
}

/* Where a state is at home: with the kernel that updates it, else with the first that reads it. */
static void find_home(devices *x, const ts_value *state, ts_spot *spot)
{
    const int *at = &x->readers.at[state->id];
    int k = x->writer[state->index];

    if (k < 0 && at[0] < at[1])
        k = x->readers.kernels[at[0]];
    spot->device = k < 0 ? 0 : x->p->kernels[k]->device;
}

/* Whoever updates a state does so on its device. */
static ts_status check_homes(const devices *x)
{
    const ts_program *p = x->p;

    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nroots; r++) {
            const ts_value *s = updated_by(p, p->kernels[k], r);
            if (s && p->place[s->id].spot.device != p->kernels[k]->device)
                return ts_fail(TS_ERR_INTERNAL, "the state '%s' is updated on two devices",
                               s->name);
        }
    return TS_OK;
}

static void find_homes(devices *x)
{
    ts_program *p = x->p;

    x->readers = ts_plan_readers(x->a, p);
    x->writer = TS_NEWS(x->a, int, x->g->nstates);
    for (int i = 0; i < x->g->nstates; i++)
        x->writer[i] = -1;
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nroots; r++) {
            const ts_value *s = updated_by(p, p->kernels[k], r);
            /* of two, that of phase 1: it has the moments */
            if (s)
                x->writer[s->index] = k;
        }
    for (int i = 0; i < x->g->nvalues; i++)
        p->place[i].spot.depth = 1;
    for (int i = 0; i < x->g->nstates; i++)
        find_home(x, x->g->states[i].value, &p->place[x->g->states[i].value->id].spot);
    for (int i = 0; i < x->g->nstates; i++) /* a share lies in the memory that it is one of */
        if (x->g->states[i].use == TS_USE_SHARE)
            p->place[x->g->states[i].of->id].spot.device =
                p->place[x->g->states[i].value->id].spot.device;
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nroots && !p->kernels[k]->copy; r++)
            p->place[p->kernels[k]->roots[r]->id].spot.device = p->kernels[k]->device;
}

static bool has_spot(const ts_place *q, int device)
{
    for (const ts_spot *s = &q->spot; s; s = s->next)
        if (s->device == device)
            return true;
    return false;
}

static void add_spot(devices *x, ts_place *q, int device)
{
    ts_spot *s = TS_NEW(x->a, ts_spot);

    *s = (ts_spot){.device = device, .depth = 1, .next = q->spot.next};
    q->spot.next = s;
}

/* The sections of a device that read v. */
static int readers_on(devices *x, const ts_value *v, int device, int **list)
{
    const ts_program *p = x->p;
    int n = 0;

    *list = NULL;
    for (int i = x->readers.at[v->id]; i < x->readers.at[v->id + 1]; i++) {
        const ts_kernel *k = p->kernels[x->readers.kernels[i]];
        if (k->device == device && (!n || (*list)[n - 1] != k->section))
            TS_PUSH(x->a, *list, n, k->section);
    }
    return n;
}

static void add_send(devices *x, int section, const ts_value *v, int device)
{
    ts_program *p = x->p;
    ts_send s = {.section = section, .device = device, .state = v->kind == TS_VALUE_STATE};
    int *list;

    s.nreaders = readers_on(x, v, device, &list);
    s.readers = list;
    p->sent = ts_arena_grow(x->a, p->sent, p->pipe.nsends, sizeof(*p->sent));
    p->sent[p->pipe.nsends] = v;
    TS_PUSH(x->a, p->pipe.sends, p->pipe.nsends, s);
}

/* Copies on the devices that read a value away from home, and what keeps them up to date. */
static void find_sends(devices *x)
{
    ts_program *p = x->p;

    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nreads; r++) {
            ts_value *v = p->kernels[k]->reads[r];
            ts_place *q = &p->place[v->id];
            if (q->home != TS_HOME_BLOCK || has_spot(q, p->kernels[k]->device))
                continue;
            add_spot(x, q, p->kernels[k]->device);
            if (v->kind == TS_VALUE_NODE)
                add_send(x, p->kernels[q->kernel]->section, v, p->kernels[k]->device);
        }
    for (int i = 0; i < x->g->nstates; i++) {
        const ts_value *v = x->g->states[i].value;
        for (int k = 0; k < p->nkernels; k++)
            for (int r = 0; r < p->kernels[k]->nroots; r++)
                if (updated_by(p, p->kernels[k], r) == v)
                    for (const ts_spot *s = p->place[v->id].spot.next; s; s = s->next)
                        add_send(x, p->kernels[k]->section, v, s->device);
    }
}

/* --- what a pipeline cannot do --- */

/* A state that changes with every micro-batch is seen as it is then only in the section that
 * changes it: others are at micro-batches of their own. */
static ts_status check_states(const devices *x)
{
    const ts_program *p = x->p;

    for (int k = 0; k < p->nkernels && !p->pipe.sharded; k++)
        for (int r = 0; r < p->kernels[k]->nroots; r++) {
            const ts_value *s = updated_by(p, p->kernels[k], r);
            const int *at = s ? &x->readers.at[s->id] : NULL;
            for (int i = s ? at[0] : 0; s && i < at[1] && !p->kernels[k]->phase; i++) {
                const ts_kernel *reader = p->kernels[x->readers.kernels[i]];
                if (reader->phase || reader->section == p->kernels[k]->section)
                    continue;
                ts_fail(TS_ERR_UNSUPPORTED,
                        "'%s' changes with every micro-batch in one stage of the pipeline and is "
                        "read in another",
                        s->name);
                ts_error_hint("put both into one block, or run the stages sharded");
                return TS_ERR_UNSUPPORTED;
            }
        }
    return TS_OK;
}

enum { MOST = TS_MOST_DEVICES }; /* devices, and phases */

int ts_plan_phases(const ts_options *opt)
{
    int n = 0;

    for (int i = 0; i < opt->nstages && phased(opt); i++)
        n = TS_MAX(n, opt->stages[i].phase + 1);
    return n;
}

static ts_status no_phase(int phase)
{
    ts_fail(TS_ERR_ARG, "no stage is of phase %d", phase);
    ts_error_hint("ts_stage.phase counts from 0, and every phase has a stage");
    return TS_ERR_ARG;
}

static ts_status check_phase_numbers(const ts_options *opt)
{
    if (phased(opt) && !opt->nstages)
        return ts_fail(TS_ERR_ARG, "phased execution needs stages that say their phases");
    for (int i = 0; i < opt->nstages && phased(opt); i++)
        if (opt->stages[i].phase < 0 || opt->stages[i].phase >= MOST)
            return ts_fail(TS_ERR_ARG, "stage %d is of phase %d; phases have the numbers 0 to %d",
                           i, opt->stages[i].phase, MOST - 1);
    for (int phase = 0; phase < ts_plan_phases(opt); phase++) {
        bool found = false;
        for (int i = 0; i < opt->nstages; i++)
            found = found || opt->stages[i].phase == phase;
        if (!found)
            return no_phase(phase);
    }
    return TS_OK;
}

ts_status ts_plan_check_phases(const ts_graph *g, const ts_options *opt)
{
    for (int i = 0; i < g->nnodes && phased(opt) && opt->nstages; i++) {
        const ts_node *n = g->nodes[i];
        const ts_stage *to = stage_of(opt, n);
        for (int k = 0; k < n->nin && to && has_block(n); k++) {
            const ts_node *m = n->in[k]->node;
            const ts_stage *from = has_block(m) ? stage_of(opt, m) : NULL;
            if (!from || from->phase <= to->phase)
                continue;
            ts_fail_at(n, TS_ERR_ARG,
                       "the block '%s' of phase %d reads what the block '%s' makes in phase %d",
                       n->block, to->phase, m->block, from->phase);
            ts_error_hint("phases run in order: 0 first");
            return TS_ERR_ARG;
        }
    }
    return TS_OK;
}

static ts_status check_stages(const ts_options *opt)
{
    TS_TRY(check_phase_numbers(opt));
    for (int i = 0; i < opt->nstages; i++) {
        const ts_stage *s = &opt->stages[i];
        if (s->device < 0 || s->device >= MOST)
            return ts_fail(TS_ERR_ARG, "stage %d is on device %d; devices have the numbers 0 to %d",
                           i, s->device, MOST - 1);
        for (int b = 0; b < s->nblocks; b++)
            for (int j = 0; j <= i; j++)
                for (int c = 0; c < opt->stages[j].nblocks && (j < i || c < b); c++)
                    if (!strcmp(s->blocks[b], opt->stages[j].blocks[c]))
                        return ts_fail(TS_ERR_ARG,
                                       "the block '%s' is associated with more than one stage",
                                       s->blocks[b]);
    }
    return TS_OK;
}

ts_status ts_plan_devices(ts_arena *a, const ts_options *opt, ts_program *p)
{
    devices x = {.a = a, .opt = opt, .p = p, .g = p->g, .level = TS_NEWS(a, int, p->nkernels)};

    TS_TRY(check_stages(opt));
    TS_TRY(find_devices(&x));
    /* with an update after every micro-batch there is nothing to overlap */
    p->pipe.sharded = opt->schedule != TS_SCHEDULE_PIPELINED || p->pipe.ndevices == 1 ||
                      (opt->optimizer && opt->gradient_accumulation <= 1);
    find_levels(&x);
    find_sections(&x);
    if (opt->recompute)
        ts_plan_recompute(a, p);
    find_homes(&x);
    TS_TRY(check_homes(&x));
    find_sends(&x);
    TS_TRY(check_states(&x));
    ts_plan_offload(a, opt, p);
    return TS_OK;
}

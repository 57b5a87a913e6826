/* memory.c - what every plan must keep, on the nets that are measured and on random ones: tensors
 * alive together do not overlap, an update in place overwrites nothing that is still read, and
 * threads wait wherever one kernel writes what another touches. */
#include "models/nets.h"
#include "plan/plan.h"
#include "random_graph.h"
#include "support.h"
#include "tessera/model.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { DEVICES = 4 };

static const char *const blocks[] = {"B1", "B2", "B3", "B4"};

/* NULL: there is nothing to train in it. */
static const ts_program *plan(ts_arena *a, const ts_graph *g, const ts_options *opt)
{
    const ts_graph *lowered;
    const ts_program *p = NULL;
    ts_status s = ts_plan_passes(a, g, opt, &lowered);

    if (s == TS_ERR_GRAD)
        return NULL;
    if (s || ts_plan(a, lowered, opt, &p))
        fail_msg("%s", ts_error_text());
    return p;
}

/* The first and the last kernel that need v's memory. */
static void life(const ts_program *p, const ts_value *v, int *from, int *to)
{
    *from = v->kind == TS_VALUE_STATE ? 0 : p->place[v->id].kernel;
    *to = v->kind == TS_VALUE_STATE ? p->nkernels : *from;
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nreads; r++)
            if (p->kernels[k]->reads[r] == v && k > *to)
                *to = k;
    for (int i = 0; i < p->g->noutputs; i++) /* fetched at the end of phase 0 */
        for (int k = *to; k < p->nkernels && p->g->outputs[i] == v; k++)
            if (!p->kernels[k]->phase)
                *to = k;
}

static bool overlap(const ts_place *x, const ts_place *y)
{
    return x->home == TS_HOME_BLOCK && y->home == TS_HOME_BLOCK &&
           x->spot.offset < y->spot.offset + y->spot.bytes &&
           y->spot.offset < x->spot.offset + x->spot.bytes;
}

/* How many pairs share memory at different times. */
static int check_overlaps(const ts_program *p)
{
    int shared = 0;

    for (int i = 0; i < p->g->nvalues; i++)
        for (int j = 0; j < i; j++) {
            const ts_value *x = p->g->values[i], *y = p->g->values[j];
            int f1, t1, f2, t2;
            if (!overlap(&p->place[i], &p->place[j]) || p->place[i].alias == y ||
                p->place[j].alias == x)
                continue;
            life(p, x, &f1, &t1);
            life(p, y, &f2, &t2);
            if (f1 <= t2 && f2 <= t1)
                fail_msg("%%%d (kernels %d to %d) and %%%d (%d to %d) share memory", x->id, f1, t1,
                         y->id, f2, t2);
            shared++;
        }
    return shared;
}

/* Nobody reads a state's old value after the kernel that wrote the new one over it. Phase 1 means
 * the new one. */
static void check_updates(const ts_program *p)
{
    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_place *q = &p->place[i];
        for (int k = q->kernel + 1; q->alias && k < p->nkernels; k++)
            for (int r = 0; r < p->kernels[k]->nreads; r++)
                if (p->kernels[k]->reads[r] == q->alias && !p->kernels[k]->store &&
                    p->kernels[k]->phase == p->kernels[q->kernel]->phase)
                    fail_msg("kernel %d reads %s after kernel %d updated it", k, q->alias->name,
                             q->kernel);
    }
}

static bool touches(const ts_program *p, const ts_kernel *writer, const ts_kernel *other)
{
    for (int r = 0; r < writer->nroots; r++) {
        const ts_place *w = &p->place[writer->roots[r]->id];
        for (int s = 0; s < other->nreads; s++)
            if (overlap(w, &p->place[other->reads[s]->id]))
                return true;
        for (int s = 0; s < other->nroots; s++)
            if (overlap(w, &p->place[other->roots[s]->id]))
                return true;
    }
    return false;
}

static void check_waits(const ts_program *p)
{
    bool *alone = calloc((size_t)p->nkernels + 1, sizeof(bool));

    ts_plan_waits(p, alone);
    free(alone);
    for (int k = 0; k < p->nkernels; k++)
        for (int j = k - 1; j >= 0; j--) {
            if (p->kernels[j + 1]->wait)
                break;
            if (touches(p, p->kernels[j], p->kernels[k]) ||
                touches(p, p->kernels[k], p->kernels[j]))
                fail_msg("kernels %d and %d touch the same memory, and no wait between", j, k);
        }
}

static int check(const ts_program *p)
{
    size_t top = p->state_bytes;

    for (int i = 0; i < p->g->nvalues; i++)
        if (p->place[i].home == TS_HOME_BLOCK)
            top = TS_MAX(top, TS_ROUND_UP(p->place[i].spot.offset + p->place[i].spot.bytes, 64));
    assert_int_equal(p->peak_bytes, top);
    for (int i = 0; i < p->g->nvalues; i++) /* also of what got inlined in the end */
        assert_in_range(p->place[i].kernel + 1, 0, p->nkernels);
    check_updates(p);
    check_waits(p);
    return check_overlaps(p);
}

static void nets(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);

    (void)state;
    sgd.hyper.momentum = 0.9;
    for (int i = 0; i < 4; i++) {
        ts_graph *g = i == 0   ? net_fashion(16)
                      : i == 1 ? net_digits(8, true)
                      : i == 2 ? net_pipeline(40)
                               : net_residual(1, 32, 80, 64);
        ts_arena *a = ts_arena_new();
        const ts_program *spread = plan(a, g, &(ts_options){.optimizer = &sgd});
        const ts_program *shared = plan(a, g, &(ts_options){.optimizer = &sgd, .skip = "spread"});
        int pairs = check(spread);
        assert_true(check(shared) > 0);
        assert_true(shared->peak_bytes <= spread->peak_bytes);
        if (i == 0 || i == 2) { /* small blocks */
            assert_int_equal(pairs, 0);
            assert_true(shared->peak_bytes < spread->peak_bytes);
        } else
            assert_true(pairs > 0);
        ts_arena_free(a);
        ts_graph_free(g);
    }
}

/* A contraction's loops are made for operands in memory: a constant one is put there. Halves that are
 * packed for a product are not stored as f32 beside that. */
static void operands(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F16, 64, 256);
    ts_arena *a = ts_arena_new();
    int wide = 0, known = 0;
    const ts_program *p;

    (void)state;
    ts_output(ts_matmul(x, ts_full(g, TS_F16, 0.5, 256, 128)), "full");
    ts_output(ts_matmul(x, ts_input(g, "w", TS_F16, 256, 1024)), "larger");
    p = plan(a, g, &(ts_options){0});
    check(p);
    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_node *n = p->g->values[i]->kind == TS_VALUE_NODE ? p->g->values[i]->node : NULL;
        if (!n || p->place[i].home != TS_HOME_BLOCK)
            continue;
        known += !strcmp(n->op->name, "full");
        if (!strcmp(n->op->name, "cast") && n->out[0]->type.dtype == TS_F32) {
            assert_int_equal(ts_type_count(&n->out[0]->type), 64 * 256);
            wide++;
        }
    }
    assert_int_equal(known, 1);
    assert_int_equal(wide, 0);
    ts_arena_free(a);
    ts_graph_free(g);
}

/* Words and their scores share a weight: its gradient needs the scores' at the end of the step. That and all that is
 * kept for the backward pass leave gaps, if the largest goes first. */
static ts_graph *tied(void)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *words = ts_param(g, "words", TS_F32, ((ts_init){TS_INIT_UNIFORM, -1, 1}), 6000, 256);
    ts_value *t = ts_input(g, "t", TS_I32, 128),
             *x = ts_embedding(ts_input(g, "x", TS_I32, 128), words);
    char name[8];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "fc%d", i);
        x = ts_tanh(ts_linear(x, name, 256));
    }
    x = ts_matmul(x, ts_transpose(words, 0, 1));
    ts_loss(ts_nll_loss(ts_log_softmax(x, 1), t));
    return g;
}

static void gaps(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_arena *a = ts_arena_new();
    ts_graph *g = tied();
    const ts_program *p = plan(a, g, &(ts_options){.optimizer = &sgd, .skip = "spread"});
    size_t live = 0, most = 0;

    (void)state;
    check(p);
    for (int k = 0; k < p->nkernels; k++, most = TS_MAX(most, live), live = 0)
        for (int i = 0; i < p->g->nvalues; i++) {
            int from, to;
            life(p, p->g->values[i], &from, &to);
            if (p->place[i].home == TS_HOME_BLOCK && !p->place[i].alias && from <= k && k <= to)
                live += TS_ROUND_UP(p->place[i].spot.bytes, 64);
        }
    assert_in_range(p->peak_bytes, most, most + most / 50);
    ts_arena_free(a);
    ts_graph_free(g);
}

static void random_nets(void **state)
{
    int planned = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        trial t;
        ts_arena *a = ts_arena_new();
        test_random_graph(seed, &t);
        t.opt.skip = seed % 4 ? "spread" : NULL;
        const ts_program *p = plan(a, t.g, &t.opt);
        if (p)
            check(p);
        planned += p != NULL;
        ts_graph_free(t.g);
        ts_arena_free(a);
    }
    assert_true(planned > 100);
}

/* --- off-load and phases: a run without arithmetic --- */

/* Which version of each value lies where. 0 is rubbish: somebody else wrote over it. */
typedef struct replay {
    const ts_program *p;
    int *made;             /* by value: its latest version */
    int (*here)[DEVICES];  /* by value: the version in the device's block */
    int (*there)[DEVICES]; /* and the device's in the host's memory */
    int *sum;              /* by kernel: of the versions it has read */
} replay;

/* A next value in its state's memory is the state from then on. */
static const ts_value *holder(const ts_program *p, const ts_value *v, int device)
{
    return p->place[v->id].alias && device == p->place[v->id].spot.device ? p->place[v->id].alias
                                                                          : v;
}

static void replay_write(replay *x, const ts_value *v, int device, int version)
{
    const ts_spot *mine = ts_place_spot(x->p, v, device);

    v = holder(x->p, v, device);
    for (int i = 0; i < x->p->g->nvalues; i++) {
        const ts_value *y = x->p->g->values[i];
        const ts_spot *s = ts_place_spot(x->p, y, device);
        if (x->p->place[i].home == TS_HOME_BLOCK && s->device == device && y != v &&
            holder(x->p, y, device) == y && s->offset < mine->offset + mine->bytes &&
            mine->offset < s->offset + s->bytes)
            x->here[i][device] = 0;
    }
    x->here[v->id][device] = version;
}

static void replay_read(const replay *x, const ts_value *v, const ts_kernel *k)
{
    const ts_value *h = holder(x->p, v, k->device);

    if (x->p->place[v->id].home == TS_HOME_BLOCK && !x->here[h->id][k->device])
        fail_msg("kernel %d on device %d reads %%%d, which is not there", k->index, k->device,
                 v->id);
    if (x->p->place[v->id].home == TS_HOME_BLOCK && x->here[h->id][k->device] != x->made[h->id])
        fail_msg("kernel %d on device %d reads version %d of %%%d, not %d", k->index, k->device,
                 x->here[h->id][k->device], v->id, x->made[h->id]);
}

static void replay_kernel(replay *x, const ts_kernel *k)
{
    int d = k->device, sum = 0;

    if (k->load) {
        assert_true(ts_place_spot(x->p, k->load, d)->remote);
        replay_write(x, k->load, d, x->there[k->load->id][d]);
        return;
    }
    for (int r = 0; r < k->nreads; r++) {
        replay_read(x, k->reads[r], k);
        sum += x->made[holder(x->p, k->reads[r], d)->id];
    }
    x->sum[k->index] = sum;
    if (k->again && sum != x->sum[k->again->index])
        fail_msg("kernel %d runs again and reads something else than before", k->again->index);
    if (k->store)
        x->there[k->store->id][d] = x->here[k->store->id][d];
    for (int r = 0; r < k->nroots; r++) {
        const ts_value *h = holder(x->p, k->roots[r], d);
        x->made[h->id] += !k->again;
        replay_write(x, k->roots[r], d, x->made[h->id]);
    }
}

/* Outputs are there, and what is sent arrives. */
static void replay_end(replay *x, int section)
{
    const ts_program *p = x->p;
    const ts_section *s = &p->pipe.sections[section];

    for (int i = 0; i < p->g->noutputs; i++) {
        const ts_value *v = p->g->outputs[i];
        int k = p->place[v->id].kernel;
        if (k >= 0 && p->kernels[k]->section == section)
            replay_read(x, v, p->kernels[k]);
    }
    for (int i = 0; i < p->pipe.nsends; i++) {
        const ts_send *y = &p->pipe.sends[i];
        const ts_value *v = p->sent[i];
        const ts_value *h = holder(p, v, s->device);
        if (y->section != section)
            continue;
        replay_read(x, v, p->kernels[s->first]);
        x->made[v->id] = x->made[h->id];
        if (y->remote)
            x->there[v->id][y->device] = x->here[h->id][s->device];
        else
            replay_write(x, v, y->device, x->here[h->id][s->device]);
    }
}

/* Two iterations of two micro-batches, section after section. */
static void check_replay(const ts_program *p)
{
    replay x = {.p = p, .made = calloc((size_t)p->g->nvalues, sizeof(int))};

    x.sum = calloc((size_t)p->nkernels + 1, sizeof(int));
    x.here = calloc((size_t)p->g->nvalues, sizeof(*x.here));
    x.there = calloc((size_t)p->g->nvalues, sizeof(*x.there));
    for (int i = 0; i < p->g->nstates; i++) {
        const ts_value *v = p->g->states[i].value;
        x.made[v->id] = 1;
        for (const ts_spot *s = &p->place[v->id].spot; s; s = s->next)
            *(s->remote ? &x.there[v->id][s->device] : &x.here[v->id][s->device]) = 1;
    }
    for (int m = 0; m < 6; m++) /* 2 and 5: the update */
        for (int i = 0; i < p->pipe.nsections; i++) {
            const ts_section *s = &p->pipe.sections[i];
            if (s->phase != (m % 3 == 2))
                continue;
            for (int k = s->first; k < s->first + s->count; k++)
                replay_kernel(&x, p->kernels[k]);
            replay_end(&x, i);
        }
    for (int i = 0; i < p->g->nstates; i++) { /* where the host looks */
        const ts_value *v = p->g->states[i].value;
        const ts_spot *s = &p->place[v->id].spot;
        int found = s->remote ? x.there[v->id][s->device] : x.here[v->id][s->device];
        assert_int_equal(found, x.made[v->id]);
    }
    free(x.made);
    free(x.sum);
    free(x.here);
    free(x.there);
}

/* With checkpoints here and there: what runs again reads what it has read before. */
static void recomputed_random_nets(void **state)
{
    int again = 0, saved = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        trial t;
        ts_arena *a = ts_arena_new();
        const ts_program *kept, *p;
        int before = again;
        test_random_graph(seed, &t);
        for (int i = t.g->nvalues / 2; i < t.g->nvalues; i += 3)
            ts_value_mark(t.g->values[i], true);
        t.opt.skip = "spread";
        kept = plan(a, t.g, &t.opt);
        t.opt.recompute = true;
        p = plan(a, t.g, &t.opt);
        for (int k = 0; p && k < p->nkernels; k++)
            again += p->kernels[k]->again != NULL;
        if (p) {
            check_updates(p);
            check_waits(p);
            check_replay(p);
        }
        saved += again > before && p->peak_bytes < kept->peak_bytes;
        ts_graph_free(t.g);
        ts_arena_free(a);
    }
    assert_true(again > 50);
    assert_true(saved > 0);
}

/* All that the kernels of a section touch, and what waits on its device for later ones. */
static size_t section_bytes(const ts_program *p, int section)
{
    const ts_section *s = &p->pipe.sections[section];
    size_t sum = 0;

    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        const ts_spot *spot = ts_place_spot(p, v, s->device);
        bool before = v->kind == TS_VALUE_STATE && !spot->remote, after = before;
        if (p->place[i].home != TS_HOME_BLOCK || p->place[i].alias || spot->device != s->device)
            continue;
        for (int k = 0; k < p->nkernels; k++) {
            const ts_kernel *x = p->kernels[k];
            bool touched = false;
            for (int r = 0; r < x->nroots; r++)
                touched = touched || ts_place_shared(p, x->roots[r], v);
            for (int r = 0; r < x->nreads; r++)
                touched = touched || ts_place_shared(p, x->reads[r], v);
            if (!touched || x->device != s->device)
                continue;
            before = before || x->section == section || (x->section < section && !spot->remote);
            after = after || x->section == section || (x->section > section && !spot->remote);
        }
        sum += before && after ? TS_ROUND_UP(spot->bytes, 64) : 0;
    }
    return sum;
}

static size_t largest_section(const ts_program *p)
{
    size_t most = 0;

    for (int i = 0; i < p->pipe.nsections; i++)
        most = TS_MAX(most, section_bytes(p, i));
    return most;
}

static int count_moves(const ts_program *p)
{
    int n = 0;

    for (int k = 0; k < p->nkernels; k++)
        n += p->kernels[k]->load || p->kernels[k]->store;
    return n;
}

/* Four equal layers with as many weights each, and a sum of what the first and the last made. */
static ts_graph *four_layers(int64_t batch)
{
    ts_graph *g = ts_graph_new("four");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 96), *t = ts_input(g, "labels", TS_I32, batch);
    ts_value *first = NULL;

    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof(name), "fc%d", i);
        ts_block_begin(g, blocks[i]);
        x = ts_tanh(ts_linear(x, name, 96));
        first = first ? first : x;
        if (i == 3)
            ts_loss(ts_cross_entropy(ts_add(x, first), t));
        ts_block_end(g);
    }
    return g;
}

static const ts_program *phase_plan(ts_arena *a, const ts_graph *g, int devices, ts_options opt)
{
    static ts_stage stages[4];
    static ts_optimizer adam;
    const ts_program *p;

    adam = ts_adamw(0.01);
    opt.optimizer = &adam;
    opt.stages = stages;
    opt.nstages = 4;
    for (int i = 0; i < 4; i++)
        stages[i] = (ts_stage){&blocks[i], 1, i % devices, i};
    p = plan(a, g, &opt);
    check_updates(p);
    if (devices == 1)
        check_waits(p);
    check_replay(p);
    return p;
}

/* Nets whose blocks are phases: each is there when it runs, and the device needs what the largest
 * one does. */
static void phases(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        ts_graph *g = i == 0 ? net_pipeline(8) : i == 1 ? four_layers(8) : four_layers(64);
        for (int A = 1; A < 3; A++) {
            ts_arena *a = ts_arena_new();
            ts_options sharded = {.gradient_accumulation = A, .schedule = TS_SCHEDULE_SHARDED},
                       all = {.gradient_accumulation = A,
                              .schedule = TS_SCHEDULE_PHASED,
                              .offload = TS_OFFLOAD_ALL},
                       separate = all, pass = all, some = all;
            const ts_program *plain, *serial, *parallel;
            int moved;
            sharded.skip = "spread";
            separate.separate_backward = true;
            pass.offload_by_pass = true;
            some.offload = TS_OFFLOAD_OPTIMIZER | TS_OFFLOAD_ACCUMULATORS;
            plain = phase_plan(a, g, 1, sharded);
            serial = phase_plan(a, g, 1, all);
            parallel = phase_plan(a, g, 2, all);
            assert_int_equal(count_moves(plain), 0);
            assert_int_equal(plain->remote_bytes, 0);
            /* only single numbers are always there */
            assert_true(serial->state_bytes < 1024);
            assert_true(serial->peak_bytes <= largest_section(serial));
            assert_true(serial->peak_bytes < plain->peak_bytes / (i ? 2 : 1));
            for (int d = 0; d < 2; d++)
                assert_true(parallel->bytes[d].peak <= serial->peak_bytes);
            /* the turn through the host's memory is more to move */
            assert_true(count_moves(phase_plan(a, g, 1, separate)) > count_moves(serial));
            /* the skip stays where it is until the turn */
            moved = count_moves(phase_plan(a, g, 1, pass));
            assert_true(i ? moved < count_moves(serial) : moved == count_moves(serial));
            phase_plan(a, g, 2, some);
            ts_arena_free(a);
        }
        ts_graph_free(g);
    }
}

/* What comes from another device is in the host's memory too, for all micro-batches under way. */
static void received(void **state)
{
    ts_graph *g = four_layers(64);
    ts_arena *a = ts_arena_new();
    ts_stage stages[4];
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd,
                      .gradient_accumulation = 7,
                      .stages = stages,
                      .nstages = 4,
                      .skip = "spread"};
    const ts_program *here, *there;
    int copies = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        stages[i] = (ts_stage){&blocks[i], 1, .device = i};
    here = plan(a, g, &opt);
    opt.offload = TS_OFFLOAD_ACTIVATIONS;
    there = plan(a, g, &opt);
    for (int i = 0; i < there->g->nvalues; i++)
        for (const ts_spot *s = there->place[i].spot.next; s; s = s->next) {
            bool state = there->g->values[i]->kind == TS_VALUE_STATE;
            assert_true(s->remote == !state || ts_type_count(&there->g->values[i]->type) < 2);
            assert_int_equal(s->depth, 1);
            copies += s->remote;
        }
    assert_true(copies >= 6); /* three forward, three back */
    for (int i = 0; i < there->pipe.nsends; i++) {
        const ts_send *s = &there->pipe.sends[i];
        assert_true(!s->remote || s->to + s->bytes <= there->remote_bytes);
    }
    for (int d = 0; d < 4; d++) /* less by what it got: at least two micro-batches of 64 x 96 */
        assert_true(here->bytes[d].peak - there->bytes[d].peak >= 2 * 64 * 96 * sizeof(float));
    ts_arena_free(a);
    ts_graph_free(g);
}

/* What ts_options.dump_dir shows of it. */
static void text(void **state)
{
    ts_graph *g = net_fashion(16);
    ts_arena *a = ts_arena_new();
    ts_temp_folder folder;
    char *data;
    size_t len;

    (void)state;
    assert_int_equal(ts_temp_folder_new(&folder), TS_OK);
    plan(a, g, &(ts_options){.dump_dir = folder.path});
    assert_int_equal(ts_file_read(ts_arena_printf(a, "%s/plan.txt", folder.path), &data, &len),
                     TS_OK);
    assert_non_null(strstr(data, "(conv): %"));
    assert_non_null(strstr(data, "peak "));
    free(data);
    ts_temp_folder_remove(&folder);
    ts_arena_free(a);
    ts_graph_free(g);
}

/* Bytes of a training step of the built-in model, with its line `let norm` and a precision. */
static double peak_of(const char *norm, const char *precision)
{
    ts_arena *a = ts_arena_new();
    ts_optimizer o = ts_sgd(0.01);
    ts_model *known, *m;
    const char *text, *line;
    const ts_program *p;
    ts_graph *g;
    double bytes;

    assert_int_equal(ts_model_load("uresnet-a21", &known), TS_OK);
    text = ts_model_text(known);
    line = strstr(text, "let norm none");
    assert_non_null(line);
    text = ts_arena_printf(a, "%.*slet norm %s%s\nprecision %s\n", (int)(line - text), text, norm,
                           line + strlen("let norm none"), precision);
    assert_int_equal(ts_model_parse(text, "half", &m), TS_OK);
    assert_int_equal(
        ts_model_graph(m, &(ts_model_options){.batch = 1, .classes = 3, .training = true}, &g),
        TS_OK);
    p = plan(a, g, &(ts_options){.optimizer = &o, .device_memory = INT64_MAX});
    bytes = (double)p->peak_bytes;
    ts_graph_free(g);
    ts_model_free(m);
    ts_model_free(known);
    ts_arena_free(a);
    return bytes;
}

/* Half precision keeps halves: no f32 copies of them for the backward pass. */
static void halves(void **state)
{
    static const char *const norms[] = {"none", "batch"}, *const types[] = {"bf16", "f16"};

    (void)state;
    for (int n = 0; n < 2; n++) {
        double whole = peak_of(norms[n], "f32");
        for (int t = 0; t < 2; t++) {
            double half = peak_of(norms[n], types[t]);
            if (half > 0.6 * whole)
                fail_msg("norm %s, %s: %.0f MB of %.0f", norms[n], types[t], half / 1e6,
                         whole / 1e6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),     cmocka_unit_test(halves),
        cmocka_unit_test(nets),     cmocka_unit_test(recomputed_random_nets),
        cmocka_unit_test(gaps),     cmocka_unit_test(random_nets),
        cmocka_unit_test(operands), cmocka_unit_test(phases),
        cmocka_unit_test(received)};

    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

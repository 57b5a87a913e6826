/* recompute.c - recomputation from checkpoints: the same bits in less memory, on one device,
 * sharded and in a pipeline; what runs again, and where. */
#include "graph/graph.h"
#include "plan/plan.h"
#include "support.h"

enum { BATCH = 64, A = 4, D = 2, MB = A * D, SIDE = 8, WIDTH = 32, LABELS = 10 };

/* How deep a net is, and how long a segment of it; 0: no checkpoints. */
typedef struct form {
    int layers, every;
} form;

/* Two blocks of as many layers each. */
static void next_block(ts_graph *g, form f, int layer)
{
    if (layer == f.layers / 2)
        ts_block_end(g);
    if (layer % (f.layers / 2) == 0)
        ts_block_begin(g, layer ? "B2" : "B1");
}

/* Wide enough for its activations to be most of its memory. */
static ts_graph *deep_mlp(form f)
{
    ts_graph *g = ts_graph_new("mlp");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, SIDE * SIDE),
             *labels = ts_input(g, "labels", TS_I32, BATCH);

    for (int i = 0; i < f.layers; i++) {
        next_block(g, f, i);
        x = ts_dropout(ts_tanh(ts_linear(x, (char[]){'a' + i, 0}, WIDTH)), 0.2, true);
        if (f.every && i % f.every == f.every - 1)
            x = ts_checkpoint(x);
    }
    x = ts_linear(x, "out", LABELS);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, labels));
    ts_block_end(g);
    return g;
}

static ts_graph *deep_conv(form f)
{
    ts_graph *g = ts_graph_new("conv");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, 1, SIDE, SIDE),
             *labels = ts_input(g, "labels", TS_I32, BATCH);

    for (int i = 0; i < f.layers; i++) {
        char conv[] = {'c', (char)('a' + i), 0}, norm[] = {'n', (char)('a' + i), 0};
        next_block(g, f, i);
        x = ts_batch_norm(ts_conv2d(x, conv, 4, 3, .padding = 1, .no_bias = true), norm);
        x = i % 3 ? ts_relu(x) : ts_dropout(ts_relu(x), 0.1, true);
        if (f.every && i % f.every == f.every - 1)
            x = ts_checkpoint(x);
    }
    x = ts_linear(ts_flatten(x, 1), "out", LABELS);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, labels));
    ts_block_end(g);
    return g;
}

static ts_graph *(*const nets[])(form) = {deep_mlp, deep_conv};

static const ts_stage two_stages[] = {{(const char *const[]){"B1"}, 1, .device = 0},
                                      {(const char *const[]){"B2"}, 1, .device = 1}};
static const ts_stage two_phases[] = {{(const char *const[]){"B1"}, 1, .phase = 0},
                                      {(const char *const[]){"B2"}, 1, .phase = 1}};

typedef struct results {
    float loss[MB], y[MB * BATCH * LABELS];
    float *states;
    size_t count;
    size_t peak;
} results;

/* The memory that is shared shows what lives when; small nets have more than they need. */
static ts_options complete(ts_options opt, const ts_optimizer *how)
{
    opt.optimizer = how;
    opt.device_iterations = MB / opt.gradient_accumulation;
    opt.output_mode = TS_OUTPUT_ALL;
    opt.cache_dir = "";
    opt.skip = "spread";
    return opt;
}

static results run(const ts_graph *g, ts_options opt, int threads)
{
    results r = {0};
    ts_optimizer adam = ts_adamw(0.01);
    float x[MB * BATCH * SIDE * SIDE];
    int32_t labels[MB * BATCH];
    ts_executable *exe;
    ts_engine *e;

    for (size_t i = 0; i < TS_COUNT(x); i++)
        x[i] = (float)((i * 2654435761u >> 7) % 1000) / 1000;
    for (int i = 0; i < TS_COUNT(labels); i++)
        labels[i] = i * 7 % LABELS;
    opt = complete(opt, &adam);
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = threads, .seed = 5}, &e));
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(e, (const void *[]){x, labels}, (void *[]){r.y, r.loss}));
    r.states = test_states(exe, e, &r.count);
    r.peak = ts_executable_stats(exe).peak_bytes;
    ts_engine_free(e);
    ts_executable_free(exe);
    return r;
}

static void assert_same(const results *x, const results *y)
{
    assert_memory_equal(x->loss, y->loss, sizeof(x->loss));
    assert_memory_equal(x->y, y->y, sizeof(x->y));
    assert_int_equal(x->count, y->count);
    assert_memory_equal(x->states, y->states, x->count * sizeof(float));
}

/* Conv net or MLP; on one device, two in turns, in a pipeline or in phases; weights updated after
 * every micro-batch or every four; any number of threads. */
static void same_bits_in_less_memory(void **state)
{
    static const struct {
        int net, accumulation, threads;
        ts_options opt;
        double most; /* of the memory without */
    } cases[] = {
        {1, A, 1, {0}, 0.8},
        {1, A, 2, {.stages = two_stages, .nstages = 2}, 0.85},
        {0, 1, 2, {0}, 0.9},
        {0, 1, 3, {.stages = two_stages, .nstages = 2, .schedule = TS_SCHEDULE_SHARDED}, 0.95},
        {0,
         1,
         2,
         {.stages = two_phases,
          .nstages = 2,
          .schedule = TS_SCHEDULE_PHASED,
          .offload = TS_OFFLOAD_WEIGHTS | TS_OFFLOAD_OPTIMIZER},
         1},
    };
    results kept = {0};

    (void)state;
    for (int i = 0; i < (test_brief() ? 1 : TS_COUNT(cases)); i++) {
        ts_graph *g = nets[cases[i].net]((form){.layers = cases[i].net ? 4 : 6, .every = 2});
        ts_options opt = cases[i].opt;
        ts_optimizer adam = ts_adamw(0.01);
        ts_stats before;
        results again;
        opt.gradient_accumulation = cases[i].accumulation;
        if (!i || cases[i].net != cases[i - 1].net) {
            free(kept.states);
            kept = run(g, (ts_options){.gradient_accumulation = cases[i].accumulation}, 2);
        }
        opt = complete(opt, &adam);
        assert_ok(ts_estimate(g, &opt, &before));
        opt.recompute = true;
        again = run(g, opt, cases[i].threads);
        assert_same(&kept, &again);
        assert_true((double)again.peak < cases[i].most * (double)before.peak_bytes);
        free(again.states);
        ts_graph_free(g);
    }
    free(kept.states);
}

static const ts_program *plan(ts_arena *a, const ts_graph *g, ts_options opt)
{
    static ts_optimizer adam;
    const ts_graph *lowered;
    const ts_program *p;

    adam = ts_adamw(0.01);
    opt.gradient_accumulation = A;
    opt = complete(opt, &adam);
    assert_ok(ts_plan_passes(a, g, &opt, &lowered));
    assert_ok(ts_plan(a, lowered, &opt, &p));
    return p;
}

static int count_again(const ts_program *p)
{
    int n = 0;

    for (int k = 0; k < p->nkernels; k++)
        n += p->kernels[k]->again != NULL;
    return n;
}

static bool reads_of(const ts_kernel *reader, const ts_kernel *maker)
{
    for (int i = 0; i < reader->nreads; i++)
        for (int r = 0; r < maker->nroots; r++)
            if (reader->reads[i] == maker->roots[r])
                return true;
    return false;
}

/* On one device: a segment at a time, in front of the first kernel that needs it; nothing twice,
 * and nothing of what is still there. */
static void one_segment_at_a_time(void **state)
{
    (void)state;
    for (int n = 0; n < TS_COUNT(nets); n++) {
        ts_arena *a = ts_arena_new();
        ts_graph *g = nets[n]((form){12, 4});
        const ts_program *p = plan(a, g, (ts_options){.recompute = true});
        bool *ran = TS_NEWS(a, bool, p->nkernels);
        int last = -1, segments = 0, first = 0;
        for (int i = 0; i < p->g->nvalues; i++)
            if (p->g->values[i]->checkpoint)
                last = TS_MAX(last, p->place[i].kernel);
        assert_true(last > 0);
        for (int k = 0; k < p->nkernels; k++) {
            const ts_kernel *x = p->kernels[k];
            bool needed = false;
            if (x->again) {
                assert_false(ran[x->again->index]);
                assert_true(x->again->index < last);
                ran[x->again->index] = true;
            }
            if (!k || !p->kernels[k - 1]->again || x->again) {
                first = !x->again || (k && p->kernels[k - 1]->again) ? first : k;
                continue;
            }
            for (int j = first; j < k; j++)
                needed = needed || reads_of(x, p->kernels[j]);
            assert_true(needed);
            segments++;
        }
        assert_true(segments >= 3);
        ts_graph_free(g);
        ts_arena_free(a);
    }
}

static double modelled(const ts_program *p)
{
    double s = 0;

    for (int i = 0; i < p->pipe.nsections; i++)
        s += p->pipe.sections[i].seconds;
    return s;
}

/* What runs again takes its time once more, on one device and in a pipeline; what goes to the
 * host's memory and comes back is not modelled. */
static void its_time_counts(void **state)
{
    ts_options cases[] = {
        {0}, {.stages = two_stages, .nstages = 2}, {.offload = TS_OFFLOAD_OPTIMIZER}};
    ts_graph *g = deep_mlp((form){12, 4});

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_arena *a = ts_arena_new();
        double once = modelled(plan(a, g, cases[i]));
        cases[i].recompute = true;
        assert_true(modelled(plan(a, g, cases[i])) > once * 1.05);
        ts_arena_free(a);
    }
    ts_graph_free(g);
}

static void nothing_to_start_from(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_graph *g = deep_mlp((form){12, 0}), *infer = deep_mlp((form){12, 3});
    ts_options sharded = {.stages = two_stages, .nstages = 2, .schedule = TS_SCHEDULE_SHARDED},
               none = {.recompute = true, .cache_dir = ""};
    ts_stats s;

    (void)state;
    sharded.recompute = true;
    assert_int_equal(count_again(plan(a, g, (ts_options){.recompute = true})), 0);
    assert_int_equal(count_again(plan(a, g, sharded)), 0);
    sharded.schedule = TS_SCHEDULE_PIPELINED;
    assert_true(count_again(plan(a, g, sharded)) > 0);
    assert_ok(ts_estimate(infer, &none, &s)); /* without a backward pass */
    ts_graph_free(g);
    ts_graph_free(infer);
    ts_arena_free(a);
}

/* In a deep stage, checkpoints save most of what a stage without them computes again at once. */
static void checkpoints_in_a_stage(void **state)
{
    (void)state;
    for (int n = 0; n < TS_COUNT(nets); n++) {
        ts_arena *a = ts_arena_new();
        ts_graph *g = nets[n]((form){12, 0}), *marked = nets[n]((form){12, 2});
        ts_options opt = {.stages = two_stages, .nstages = 2};
        size_t kept = plan(a, g, opt)->bytes[0].peak, all, some;
        opt.recompute = true;
        all = plan(a, g, opt)->bytes[0].peak;
        some = plan(a, marked, opt)->bytes[0].peak;
        assert_true(all < kept && some < all);
        ts_graph_free(g);
        ts_graph_free(marked);
        ts_arena_free(a);
    }
}

/* The error says what recomputing would save, and then it does. */
static void over_budget(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    ts_options opt = complete((ts_options){.gradient_accumulation = A}, &adam);
    ts_graph *g = deep_conv((form){12, 3}), *unmarked = deep_conv((form){12, 0});
    ts_stats kept, again;

    (void)state;
    assert_ok(ts_estimate(g, &opt, &kept));
    opt.recompute = true;
    assert_ok(ts_estimate(g, &opt, &again));
    opt.device_memory = (int64_t)again.peak_bytes;
    assert_ok(ts_estimate(g, &opt, &again));
    opt.recompute = false;
    assert_int_equal(ts_estimate(g, &opt, &again), TS_ERR_MEMORY);
    char words[64];
    ts_format(words, sizeof(words), "recompute (-%.1f KiB)",
              (double)(kept.peak_bytes - (size_t)opt.device_memory) / 1024);
    assert_non_null(strstr(ts_last_error()->hint, words));
    assert_int_equal(ts_estimate(unmarked, &opt, &again), TS_ERR_MEMORY);
    assert_null(strstr(ts_last_error()->hint, "recompute"));
    ts_graph_free(g);
    ts_graph_free(unmarked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_segment_at_a_time), cmocka_unit_test(its_time_counts),
        cmocka_unit_test(nothing_to_start_from), cmocka_unit_test(checkpoints_in_a_stage),
        cmocka_unit_test(over_budget),           cmocka_unit_test(same_bits_in_less_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

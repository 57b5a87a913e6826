/* random_graph.c - a random network and how to compile it, from a seed alone. */
#include "random_graph.h"
#include "random_gen.h"
#include "render/render.h"

static void add_loss(gen *q, trial *t)
{
    for (int i = 0; i < 20; i++) {
        item x = q->pool[q->n - 1 - roll(q, TS_MIN(q->n, 10))];
        if (!is_float(x) || x.exact)
            continue;
        x = tame(x);
        ts_loss(odds(q, 60)   ? ts_mean(ts_square(x.v), 0, NULL, false)
                : odds(q, 50) ? ts_square(x.v)
                              : ts_sigmoid(x.v));
        t->trains = true;
        return;
    }
}

static bool has_clang(void)
{
    ts_arena *a = ts_arena_new();
    bool found = ts_cc_identity(a, &(ts_options){.cc = "clang"}) != NULL;

    ts_arena_free(a);
    return found;
}

static void some_options(gen *q, trial *t)
{
    static const char *const skips[] = {NULL,          "spread",         "spread",
                                        "fuse",        "layout,spread",  "simplify",
                                        "fuse,layout", "winograd,split", "crop,simplify,spread"};
    static const char *const isas[] = {NULL, NULL, NULL, "x86-64-v3", "portable"};
    static const ts_output_mode modes[] = {TS_OUTPUT_DEFAULT, TS_OUTPUT_FINAL, TS_OUTPUT_ALL,
                                           TS_OUTPUT_SUM, TS_OUTPUT_EVERY_N};
    ts_isa isa;

    t->opt.cache_dir = "";
    t->opt.skip = skips[roll(q, TS_COUNT(skips))];
    t->opt.isa = isas[roll(q, TS_COUNT(isas))];
    if (t->opt.isa && !strcmp(t->opt.isa, "x86-64-v3") &&
        (ts_isa_find(NULL, &isa) || isa.width < 8))
        t->opt.isa = NULL;
    if (odds(q, 12) && has_clang())
        t->opt.cc = "clang";
    if (odds(q, 30)) {
        t->opt.device_iterations = 1 + roll(q, 2);
        t->opt.output_mode = modes[roll(q, TS_COUNT(modes))];
        t->opt.output_period = odds(q, 50) ? t->opt.device_iterations : 1; /* it divides */
    }
    if (!t->trains)
        return;
    t->optimizer = odds(q, 50)   ? ts_sgd(0.05)
                   : odds(q, 60) ? ts_adam(0.01)
                   : odds(q, 50) ? ts_rmsprop(0.01)
                                 : ts_lamb(0.01);
    t->optimizer.hyper.eps = 1e-3; /* a step of lr * sign(gradient) would amplify any rounding */
    if (t->optimizer.kind == TS_OPTIMIZER_SGD && odds(q, 60))
        t->optimizer.hyper.momentum = 0.9;
    if (odds(q, 30))
        t->optimizer.hyper.weight_decay = 0.01;
    if (odds(q, 20))
        t->optimizer.max_grad_norm = 1;
    if (odds(q, 35))
        t->opt.gradient_accumulation = 2;
    t->opt.optimizer = &t->optimizer;
}

void test_random_graph(uint64_t seed, trial *t)
{
    gen q = {.g = ts_graph_new("fuzz"),
             .s = seed * 0x9e3779b97f4a7c15u,
             .half = seed % 3 ? TS_F16 : TS_BF16};
    int want = 5 + roll(&q, 36), outputs;
    char name[32];

    *t = (trial){.seed = seed, .g = q.g};
    q.pool[q.n++] = test_random_leaf(&q);
    q.pool[q.n++] = test_random_leaf(&q);
    for (int i = 0; i < 4 * want && q.n < want + 2 && q.n < POOL - 4 && !q.g->status; i++) {
        item x = test_random_op(&q);
        if (x.v && count_of(x) <= 4 * ELEMENTS && x.v->type.rank <= 6)
            q.pool[q.n++] = x;
    }
    outputs = 1 + roll(&q, 4);
    for (int i = 0; i < outputs; i++) {
        item x = i ? pick(&q) : q.pool[q.n - 1];
        snprintf(name, sizeof(name), "y%d", i);
        ts_output(x.v, name);
    }
    if (odds(&q, 45))
        add_loss(&q, t);
    some_options(&q, t);
}

/* memory.c - what every plan must keep, on the nets that are measured and on random ones: tensors
 * alive together do not overlap, an update in place overwrites nothing that is still read, and
 * threads wait wherever one kernel writes what another touches. */
#include "models/nets.h"
#include "plan/plan.h"
#include "random_graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* NULL: there is nothing to train in it. */
static const ts_program *plan(ts_arena *a, const ts_graph *g, const ts_options *opt)
{
    const ts_graph *lowered;
    const ts_program *p = NULL;
    ts_status s = ts_pass_all(a, g, opt, &lowered);

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
                if (p->kernels[k]->reads[r] == q->alias &&
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
                               : net_residual(1, 32, 40, 64);
        ts_arena *a = ts_arena_new();
        const ts_program *spread = plan(a, g, &(ts_options){.optimizer = &sgd});
        const ts_program *shared = plan(a, g, &(ts_options){.optimizer = &sgd, .skip = "spread"});
        int pairs = check(spread);
        assert_true(check(shared) > 0);
        assert_true(shared->peak_bytes <= spread->peak_bytes);
        if (i == 0) { /* small enough for the caches */
            assert_int_equal(pairs, 0);
            assert_true(shared->peak_bytes < spread->peak_bytes);
        } else
            assert_true(pairs > 0);
        ts_arena_free(a);
        ts_graph_free(g);
    }
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

/* What ts_options.dump_dir shows of it. */
static void text(void **state)
{
    ts_graph *g = net_fashion(16);
    ts_arena *a = ts_arena_new();
    char folder[256], *data;
    size_t len;

    (void)state;
    assert_int_equal(ts_file_temp_folder(folder, sizeof(folder)), TS_OK);
    plan(a, g, &(ts_options){.dump_dir = folder});
    assert_int_equal(ts_file_read(ts_arena_printf(a, "%s/plan.txt", folder), &data, &len), TS_OK);
    assert_non_null(strstr(data, "(conv): %"));
    assert_non_null(strstr(data, "peak "));
    free(data);
    ts_file_remove_folder(folder);
    ts_arena_free(a);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text), cmocka_unit_test(nets),
                                       cmocka_unit_test(random_nets)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

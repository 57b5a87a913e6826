/* pipeline.c - the order of a pipeline's sections: 1F1B, its depths, its bubble. */
#include "plan/pipeline.h"
#include "support.h"

/* N stages on N devices, forward and back, with a weight update each. */
static void chain(ts_arena *a, ts_pipeline *p, int n, bool training)
{
    int levels = training ? 2 * n - 1 : n;

    *p = (ts_pipeline){.ndevices = n};
    for (int i = 0; i < levels; i++) {
        ts_section s = {.device = i < n ? i : 2 * n - 2 - i, .level = i, .name = ""};
        s.seconds = i == n - 1 && training ? 2 : 1;
        TS_PUSH(a, p->sections, p->nsections, s);
    }
    for (int i = 0; i < n && training; i++)
        TS_PUSH(a, p->sections, p->nsections,
                ((ts_section){.phase = 1, .device = i, .seconds = 1, .name = ""}));
    for (int i = 0; i + 1 < levels; i++) {
        int *reader = ts_arena_copy(a, (int[]){i + 1}, sizeof(int));
        ts_send s = {.section = i,
                     .device = p->sections[i + 1].device,
                     .bytes = 4,
                     .depth = 1,
                     .from_depth = 1,
                     .nreaders = 1,
                     .readers = reader};
        TS_PUSH(a, p->sends, p->nsends, s);
    }
}

/* "F0 F1 B0": the items of one device, letters by section. */
static char *text(ts_arena *a, const ts_pipeline *p, const ts_order *o, int device, int stages)
{
    ts_text t = {0};
    char *s;

    for (int i = 0; i < o->n[device]; i++) {
        const ts_item *x = &o->items[device][i];
        const ts_section *y = &p->sections[x->section];
        char c = y->phase ? 'U' : y->level == stages - 1 ? 'X' : y->level < stages ? 'F' : 'B';
        ts_text_printf(&t, "%s%c%d", i ? " " : "", c, x->m);
    }
    s = ts_arena_strdup(a, t.s);
    ts_text_free(&t);
    return s;
}

static void forward_and_backward_in_turns(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_pipeline p;
    ts_order o;

    (void)state;
    chain(a, &p, 4, true);
    ts_pipeline_depths(a, &p, 6, 1, NULL, 0);
    ts_order_make(a, &p, 6, &o);
    assert_string_equal(text(a, &p, &o, 0, 4), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 U0");
    assert_string_equal(text(a, &p, &o, 1, 4), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5 U0");
    assert_string_equal(text(a, &p, &o, 2, 4), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5 U0");
    assert_string_equal(text(a, &p, &o, 3, 4), "X0 X1 X2 X3 X4 X5 U0");
    ts_arena_free(a);
}

static void sharded_goes_one_by_one(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_pipeline p;
    ts_order o;

    (void)state;
    chain(a, &p, 3, true);
    p.sharded = true;
    ts_order_make(a, &p, 2, &o);
    assert_string_equal(text(a, &p, &o, 0, 3), "F0 B0 F1 B1 U0");
    assert_string_equal(text(a, &p, &o, 2, 3), "X0 X1 U0");
    ts_arena_free(a);
}

/* The first device holds four micro-batches, the last one; queues add what they are asked for. */
static void depths(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_stash stash[] = {
        {.section = 0, .last = 6}, {.section = 1, .last = 5}, {.section = 2, .last = 4}};
    ts_pipeline p;

    (void)state;
    chain(a, &p, 4, true);
    ts_pipeline_depths(a, &p, 10, 1, stash, 3);
    assert_int_equal(stash[0].depth, 4);
    assert_int_equal(stash[1].depth, 3);
    assert_int_equal(stash[2].depth, 2);
    assert_int_equal(p.sends[2].depth, 2); /* the last device takes twice as long for a section */
    ts_pipeline_depths(a, &p, 10, 3, NULL, 0);
    assert_int_equal(p.sends[2].depth, 4);
    ts_arena_free(a);
}

/* (N - 1) / (A + N - 1) */
static void bubble(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_pipeline p;
    ts_order o;

    (void)state;
    chain(a, &p, 4, true);
    ts_pipeline_depths(a, &p, 10, 2, NULL, 0);
    ts_order_make(a, &p, 10, &o);
    assert_float_equal(ts_order_bubble(a, &p, &o), 3.0 / 13, 1e-9);
    chain(a, &p, 4, false);
    ts_pipeline_depths(a, &p, 97, 2, NULL, 0);
    ts_order_make(a, &p, 97, &o);
    assert_float_equal(ts_order_bubble(a, &p, &o), 3.0 / 100, 1e-9);
    ts_arena_free(a);
}

/* Whatever the durations, items whose turn has come can always run: no circle of needs. */
static void every_order_can_be_run(void **state)
{
    test_random r = {7};

    (void)state;
    for (int round = 0; round < 300; round++) {
        ts_arena *a = ts_arena_new();
        int n = (int)test_between(&r, 1, 6), M = (int)test_between(&r, 1, 12), left;
        ts_pipeline p;
        ts_order o;
        int at[6] = {0}, iterations = 3;
        chain(a, &p, n, round % 3 != 0);
        p.sharded = round % 5 == 0;
        ts_pipeline_depths(a, &p, M, (int)test_between(&r, 1, 3), NULL, 0);
        ts_order_make(a, &p, M, &o);
        for (left = 0, iterations = 3; true;) {
            int ready[6], count = 0, d;
            left = 0;
            for (d = 0; d < n; d++) {
                bool can = at[d] < iterations * o.n[d];
                const int *needs = can ? o.needs[d] + at[d] % o.n[d] * n : NULL;
                left += can;
                for (int k = 0; k < n && can; k++)
                    can = k == d || at[k] >= at[d] / o.n[d] * o.n[k] + needs[k];
                if (can)
                    ready[count++] = d;
            }
            if (!left)
                break;
            assert_true(count > 0);
            at[ready[test_between(&r, 0, count - 1)]]++;
        }
        ts_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_and_backward_in_turns),
        cmocka_unit_test(sharded_goes_one_by_one),
        cmocka_unit_test(depths),
        cmocka_unit_test(bubble),
        cmocka_unit_test(every_order_can_be_run),
    };
    return cmocka_run_group_tests_name("plan pipeline", tests, NULL, NULL);
}

/* calls.c - samples that the program makes: the batches are those of the same samples in memory, for
 * any number of threads, shuffled and augmented; what is wrong is refused by its row. */
#include "support.h"
#include "tessera/data.h"
#include <math.h>

enum { COUNT = 37, BATCH = 8, SIDE = 6, PIXELS = SIDE * SIDE };

static void make(int64_t i, uint8_t *pixels)
{
    for (int k = 0; k < PIXELS; k++)
        pixels[k] = (uint8_t)(i * 31 + k * 7);
}

static bool read_image(void *arg, int64_t i, void *sample, int32_t *label, float *targets)
{
    (void)targets;
    make(i, sample);
    *label = (int32_t)(i % 3);
    return i != *(int64_t *)arg;
}

static bool read_row(void *arg, int64_t i, void *sample, int32_t *label, float *targets)
{
    float *x = sample;

    (void)label;
    x[0] = (float)i;
    x[1] = i == *(int64_t *)arg ? NAN : 1;
    targets[0] = 2 * (float)i;
    return true;
}

static bool read_wrong_label(void *arg, int64_t i, void *sample, int32_t *label, float *targets)
{
    (void)arg;
    (void)sample;
    (void)targets;
    *label = i == 5 ? 3 : 2;
    return true;
}

static const int64_t image_dims[] = {1, SIDE, SIDE};

static ts_dataset *images(int64_t *bad)
{
    ts_dataset *d;

    assert_ok(ts_dataset_call(&(ts_dataset_calls){.count = COUNT,
                                                  .dtype = TS_U8,
                                                  .rank = 3,
                                                  .dims = image_dims,
                                                  .classes = 3,
                                                  .read = read_image,
                                                  .arg = bad},
                              &d));
    return d;
}

static ts_dataset *in_memory(void)
{
    static uint8_t pixels[COUNT * PIXELS];
    static int32_t labels[COUNT];
    ts_array x = {.dtype = TS_U8, .rank = 4, .dims = {COUNT, 1, SIDE, SIDE}, .data = pixels};
    ts_array y = {.dtype = TS_I32, .rank = 1, .dims = {COUNT}, .data = labels};
    ts_dataset *d;

    x.bytes = sizeof(pixels);
    y.bytes = sizeof(labels);
    for (int i = 0; i < COUNT; i++) {
        make(i, pixels + i * PIXELS);
        labels[i] = i % 3;
    }
    assert_ok(ts_dataset_from(&x, &y, &d));
    return d;
}

static void compare(const ts_dataset *a, const ts_dataset *b, int threads, const ts_augment *how)
{
    ts_loader_options o = {
        .batch = BATCH, .shuffle = true, .seed = 3, .threads = -1, .images = how};
    ts_loader *one, *other;

    assert_ok(ts_loader_new(a, &o, &one));
    o.threads = threads;
    assert_ok(ts_loader_new(b, &o, &other));
    for (int i = 0; i < 12; i++) {
        ts_batch x, y;
        assert_ok(ts_loader_next(one, &x));
        assert_ok(ts_loader_next(other, &y));
        assert_int_equal(x.rows, y.rows);
        assert_memory_equal(x.samples, y.samples, sizeof(float) * BATCH * PIXELS);
        assert_memory_equal(x.labels, y.labels, sizeof(int32_t) * BATCH);
        assert_int_equal(!x.targets, !y.targets);
        if (x.targets)
            assert_memory_equal(x.targets, y.targets, sizeof(float) * BATCH * 3);
    }
    ts_loader_free(one);
    ts_loader_free(other);
}

static void batches_are_those_of_memory(void **state)
{
    int64_t none = -1;
    ts_dataset *calls = images(&none), *memory = in_memory(), *picked;
    ts_array sample;

    (void)state;
    compare(memory, calls, -1, NULL);
    compare(memory, calls, 3, &(ts_augment){.flip = 0.5, .shift = 2});
    compare(memory, calls, 2, &(ts_augment){.rotate = 10, .mixup = 0.4});
    assert_int_equal(ts_dataset_count(calls), COUNT);
    assert_int_equal(ts_dataset_classes(calls), 3);
    assert_null(ts_dataset_labels(calls));
    assert_null(ts_dataset_samples(calls).data);
    assert_ok(ts_dataset_sample(calls, 7, &sample));
    assert_int_equal(((uint8_t *)sample.data)[1], (uint8_t)(7 * 31 + 7));
    assert_ok(ts_dataset_pick(calls, 2, (int64_t[]){4, 30}, &picked));
    assert_int_equal(ts_dataset_labels(picked)[0], 1);
    ts_dataset_free(picked);
    ts_dataset_free(calls);
    ts_dataset_free(memory);
}

static void expect_failure(ts_dataset *d, const char *message)
{
    ts_loader *l;
    ts_batch b;
    ts_status s = TS_OK;

    assert_ok(ts_loader_new(d, &(ts_loader_options){.batch = 4, .threads = 2}, &l));
    for (int i = 0; i < 10 && !s; i++)
        s = ts_loader_next(l, &b);
    assert_int_not_equal(s, TS_OK);
    assert_string_equal(ts_last_error()->message, message);
    ts_loader_free(l);
    ts_dataset_free(d);
}

static void what_is_wrong_is_refused_by_its_row(void **state)
{
    int64_t bad = 9, dims = 2;
    ts_dataset_calls rows = {.count = 20,
                             .dtype = TS_F32,
                             .rank = 1,
                             .dims = &dims,
                             .targets = 1,
                             .read = read_row,
                             .arg = &bad};
    ts_dataset_calls labels = {.count = 20,
                               .dtype = TS_F32,
                               .rank = 1,
                               .dims = &dims,
                               .classes = 3,
                               .read = read_wrong_label};
    ts_dataset *d;

    (void)state;
    expect_failure(images(&bad), "the program could not read sample 9");
    assert_ok(ts_dataset_call(&rows, &d));
    expect_failure(d, "number 1 of sample 9 is nan");
    assert_ok(ts_dataset_call(&labels, &d));
    expect_failure(d, "label 3 of sample 5 is not one of 0..2");
    rows.read = NULL;
    assert_fails(ts_dataset_call(&rows, &d), TS_ERR_ARG,
                 "a dataset needs a function that reads a sample");
    labels.targets = 1;
    assert_fails(ts_dataset_call(&labels, &d), TS_ERR_ARG,
                 "a sample cannot have 3 classes and 1 targets");
    labels = (ts_dataset_calls){.dtype = TS_U8, .read = read_image};
    assert_fails(ts_dataset_call(&labels, &d), TS_ERR_ARG, "a dataset of 0 samples is of no use");
    assert_int_equal(ts_dataset_call(NULL, &d), TS_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_are_those_of_memory),
                                       cmocka_unit_test(what_is_wrong_is_refused_by_its_row)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

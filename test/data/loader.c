/* loader.c - batches: which rows they hold, for any number of threads, after a seek, and when
 * something fails or ends half way. */
#include "data/data.h"
#include "support.h"
#include <math.h>
#include <pthread.h>

enum { N = 103, PIXELS = 6, BATCH = 8, STEPS = 13 }; /* the last batch has 7 rows */

/* Sample i is i, i + 1, ... and labelled i % 10. */
static ts_dataset *dataset(ts_dtype dtype)
{
    ts_dataset *d;

    assert_ok(ts_dataset_new(dtype, N, 3, (int64_t[]){2, 1, 3}, &d));
    for (int i = 0; i < N; i++) {
        for (int p = 0; p < PIXELS; p++)
            if (dtype == TS_U8)
                ((uint8_t *)ts_dataset_at(d, i))[p] = (uint8_t)(i + p);
            else
                ((float *)ts_dataset_at(d, i))[p] = (float)(i + p);
        d->labels[i] = i % 10;
    }
    assert_ok(ts_dataset_number_classes(d, 10, "here"));
    return d;
}

static int setup(void **state)
{
    *state = dataset(TS_F32);
    return 0;
}

static int teardown(void **state)
{
    ts_fault_arm(NULL, -1);
    ts_dataset_free(*state);
    return 0;
}

static ts_loader *loader(const ts_dataset *d, ts_loader_options o)
{
    ts_loader *l;

    assert_ok(ts_loader_new(d, &o, &l));
    return l;
}

/* Row i of the batch is sample `want`, whole. */
static void assert_row(const ts_batch *b, int64_t i, int64_t want)
{
    for (int p = 0; p < PIXELS; p++)
        assert_true(b->samples[i * PIXELS + p] == (float)(want + p));
    assert_int_equal(b->labels[i], want % 10);
}

/* What three loaders deal out is what one makes, chunk by chunk, in every epoch. */
static void parts_make_up_the_whole(void **state)
{
    enum { PARTS = 3, CHUNK = 4, WHOLE = PARTS * BATCH };
    ts_loader_options o = {.batch = WHOLE, .shuffle = true, .seed = 3, .drop_last = true};
    ts_loader *whole = loader(*state, o), *parts[PARTS];
    ts_batch all, b;

    for (int p = 0; p < PARTS; p++)
        parts[p] = loader(*state, (ts_loader_options){.batch = BATCH,
                                                      .shuffle = true,
                                                      .seed = 3,
                                                      .drop_last = true,
                                                      .part = p,
                                                      .parts = PARTS,
                                                      .chunk = CHUNK});
    assert_int_equal(ts_loader_steps(parts[0]), ts_loader_steps(whole));
    for (int step = 0; step < 9; step++) {
        assert_ok(ts_loader_next(whole, &all));
        for (int p = 0; p < PARTS; p++) {
            assert_ok(ts_loader_next(parts[p], &b));
            assert_int_equal(b.epoch, all.epoch);
            for (int i = 0; i < BATCH; i++)
                assert_memory_equal(b.samples + i * PIXELS,
                                    all.samples +
                                        ((i / CHUNK * PARTS + p) * CHUNK + i % CHUNK) * PIXELS,
                                    PIXELS * sizeof(float));
        }
    }
    for (int p = 0; p < PARTS; p++)
        ts_loader_free(parts[p]);
    ts_loader_free(whole);
}

static void wrong_parts_are_refused(void **state)
{
    ts_loader *l;

    assert_fails(ts_loader_new(NULL, &(ts_loader_options){.batch = 8}, &l), TS_ERR_ARG,
                 "a loader needs a dataset and a place for it");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.batch = 8}, NULL), TS_ERR_ARG,
                 "a loader needs a dataset and a place for it");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.part = 2, .parts = 2}, &l), TS_ERR_ARG,
                 "a loader cannot be part 2 of 2");
    assert_fails(
        ts_loader_new(*state,
                      &(ts_loader_options){.batch = 8, .parts = 2, .chunk = 3, .drop_last = true},
                      &l),
        TS_ERR_ARG, "chunks of 3 rows do not divide a batch of 8");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.batch = 8, .parts = 2}, &l),
                 TS_ERR_ARG, "a loader that is one of 2 parts has no incomplete batches");
    assert_fails(
        ts_loader_new(*state, &(ts_loader_options){.batch = 40, .parts = 3, .drop_last = true}, &l),
        TS_ERR_ARG, "a batch of 40 rows cannot be filled: the dataset has 34 samples");
}

static void rows_come_in_order(void **state)
{
    ts_loader *l = loader(*state, (ts_loader_options){.batch = BATCH});
    ts_batch b;

    assert_int_equal(ts_loader_steps(l), STEPS);
    for (int n = 0; n < 3 * STEPS; n++) {
        assert_ok(ts_loader_next(l, &b));
        assert_int_equal(b.epoch, n / STEPS);
        assert_int_equal(b.step, n % STEPS);
        assert_int_equal(b.rows, b.step == STEPS - 1 ? 7 : BATCH);
        for (int64_t i = 0; i < b.rows; i++)
            assert_row(&b, i, b.step * BATCH + i);
        for (int64_t i = b.rows * PIXELS; i < BATCH * PIXELS; i++)
            assert_true(b.samples[i] == 0);
        for (int64_t i = b.rows; i < BATCH; i++)
            assert_int_equal(b.labels[i], 0);
    }
    ts_loader_free(l);
}

static void the_last_rows_can_be_dropped(void **state)
{
    ts_loader *l = loader(*state, (ts_loader_options){.batch = BATCH, .drop_last = true});
    ts_batch b;

    assert_int_equal(ts_loader_steps(l), STEPS - 1);
    for (int n = 0; n < STEPS; n++) {
        assert_ok(ts_loader_next(l, &b));
        assert_int_equal(b.rows, BATCH);
    }
    assert_int_equal(b.epoch, 1);
    assert_row(&b, 0, 0);
    ts_loader_free(l);
}

static void a_batch_may_be_larger_than_the_data(void **state)
{
    ts_loader *l = loader(*state, (ts_loader_options){.batch = 4 * N, .shuffle = true});
    ts_batch b;

    assert_int_equal(ts_loader_steps(l), 1);
    for (int n = 0; n < 3; n++) {
        assert_ok(ts_loader_next(l, &b));
        assert_int_equal(b.epoch, n);
        assert_int_equal(b.rows, N);
    }
    ts_loader_free(l);
}

/* The first elements of all samples of `batches` batches: which sample is where. */
static void record(ts_loader *l, int batches, float *seen)
{
    ts_batch b;

    for (int n = 0; n < batches; n++) {
        assert_ok(ts_loader_next(l, &b));
        for (int64_t i = 0; i < BATCH; i++)
            *seen++ = i < b.rows ? b.samples[i * PIXELS] : -1;
    }
}

static void shuffled_epochs_hold_every_sample_once(void **state)
{
    ts_loader *l = loader(*state, (ts_loader_options){.batch = BATCH, .shuffle = true, .seed = 5});
    float seen[2][STEPS * BATCH];
    int64_t order[N];

    record(l, STEPS, seen[0]);
    record(l, STEPS, seen[1]);
    assert_memory_not_equal(seen[0], seen[1], sizeof(seen[0]));
    for (int epoch = 0; epoch < 2; epoch++) {
        ts_random_order(5, (uint64_t)epoch, N, order); /* what ts_train uses */
        for (int i = 0; i < N; i++)
            assert_true(seen[epoch][i] == (float)order[i]);
    }
    ts_loader_free(l);
}

static void threads_do_not_change_the_batches(void **state)
{
    static const int threads[] = {-1, 1, 2, 5}, prefetch[] = {0, 1, 7};
    static float want[4 * STEPS * BATCH], got[4 * STEPS * BATCH];
    ts_loader_options o = {.batch = BATCH, .shuffle = true, .seed = 9, .threads = -1};
    ts_loader *l = loader(*state, o);

    record(l, 4 * STEPS, want);
    ts_loader_free(l);
    for (int t = 0; t < TS_COUNT(threads); t++)
        for (int p = 0; p < TS_COUNT(prefetch); p++) {
            o.threads = threads[t];
            o.prefetch = prefetch[p];
            l = loader(*state, o);
            record(l, 4 * STEPS, got);
            assert_memory_equal(got, want, sizeof(want));
            ts_loader_free(l);
        }
}

static void a_seek_continues_with_the_same_batches(void **state)
{
    ts_loader_options o = {.batch = BATCH, .shuffle = true, .seed = 9, .threads = 3};
    static float want[3 * STEPS][BATCH], got[BATCH];
    ts_loader *l = loader(*state, o);
    test_random r = {1};
    int64_t epoch, step;

    record(l, 3 * STEPS, want[0]);
    for (int n = 0; n < 200; n++) {
        int64_t at = test_between(&r, 0, 3 * STEPS - 1);
        assert_ok(ts_loader_seek(l, at / STEPS, at % STEPS));
        ts_loader_position(l, &epoch, &step);
        assert_int_equal(epoch * STEPS + step, at);
        record(l, 1, got);
        assert_memory_equal(got, want[at], sizeof(got));
        ts_loader_position(l, &epoch, &step);
        assert_int_equal(epoch * STEPS + step, at + 1);
    }
    assert_int_equal(ts_loader_seek(l, 0, STEPS), TS_ERR_ARG);
    assert_int_equal(ts_loader_seek(l, -1, 0), TS_ERR_ARG);
    assert_int_equal(ts_loader_seek(l, INT64_MAX / STEPS, 0), TS_ERR_ARG);
    ts_loader_free(l);
}

/* The user's batch is his own until the next call, however far ahead the threads are. */
static void a_batch_stays_until_the_next_call(void **state)
{
    ts_loader *l = loader(*state, (ts_loader_options){.batch = BATCH, .threads = 2, .prefetch = 1});
    ts_batch b;

    for (int n = 0; n < 50; n++) {
        assert_ok(ts_loader_next(l, &b));
        for (int wait = 0; wait < 3; wait++) {
            sched_yield();
            for (int64_t i = 0; i < b.rows; i++)
                assert_row(&b, i, b.step * BATCH + i);
        }
    }
    ts_loader_free(l);
}

static void a_loader_may_end_at_any_time(void **state)
{
    for (int n = 0; n < 60; n++) {
        ts_loader *l = loader(
            *state, (ts_loader_options){.batch = BATCH, .shuffle = true, .threads = 1 + n % 4});
        ts_batch b;
        for (int i = 0; i < n % 7; i++)
            assert_ok(ts_loader_next(l, &b));
        ts_loader_free(l);
    }
    ts_loader_free(NULL);
}

static void bytes_become_what_torch_makes_of_them(void **state)
{
    ts_dataset *d = dataset(TS_U8);
    double mean[] = {0.5, 0.25}, deviation[] = {0.5, 2};
    ts_loader *l = loader(d, (ts_loader_options){.batch = N, .normalize = {mean, deviation, 2}});
    ts_batch b;

    (void)state;
    assert_ok(ts_loader_next(l, &b));
    for (int i = 0; i < N; i++)
        for (int p = 0; p < PIXELS; p++) {
            float x = (float)(i + p) / 255.0f, m = (float)mean[p / 3], v = (float)deviation[p / 3];
            assert_true(b.samples[i * PIXELS + p] == (x - m) / v);
        }
    ts_loader_free(l);
    ts_dataset_free(d);
}

static bool flip(void *arg, float *sample, int32_t label, uint64_t random)
{
    (void)arg;
    sample[0] = (float)(random >> 40) + (float)label;
    return true;
}

/* A picture whose pixels are its labels stays one, wherever its pixels go. */
static void labels_of_pixels_move_with_them(void **state)
{
    enum { H = 9, W = 12, PLANES = 2, COUNT = 5 };
    static const ts_augment ways[] = {{.flip = 0.5},
                                      {.flip_vertical = 0.5},
                                      {.shift = 4},
                                      {.flip = 0.5, .shift = 3},
                                      {.flip = 1, .flip_vertical = 1, .shift = 2},
                                      {.rotate = 90}};
    ts_dataset *d;
    ts_batch b;

    (void)state;
    assert_ok(ts_dataset_new(TS_F32, COUNT, 3, (int64_t[]){PLANES, H, W}, &d));
    assert_ok(ts_dataset_label_pixels(d, 3, (int64_t[]){PLANES, H, W}));
    for (int i = 0; i < COUNT * PLANES * H * W; i++)
        ((float *)d->sample.data)[i] = (float)(d->labels[i] = i % 89);
    assert_ok(ts_dataset_number_classes(d, 0, "here"));
    for (int way = 0; way < TS_COUNT(ways); way++) {
        ts_loader *l = loader(d, (ts_loader_options){.batch = COUNT, .images = &ways[way]});
        int moved = 0, same = 0, n = COUNT * PLANES * H * W;
        assert_ok(ts_loader_next(l, &b));
        for (int i = 0; i < n; i++) {
            moved += b.labels[i] != d->labels[i];
            same += b.samples[i] == (float)b.labels[i];
        }
        assert_true(moved > n / 10); /* turned pictures have means of pixels, labels have none */
        assert_true(ways[way].rotate > 0 ? same < n : same == n);
        ts_loader_free(l);
    }
    ts_dataset_free(d);
}

/* By a right angle there is nothing between pixels: the labels are where the pixels are. */
static void labels_turn_as_their_picture(void **state)
{
    enum { SIDE = 7 };
    ts_array shape = {.dtype = TS_F32, .rank = 3, .dims = {1, SIDE, SIDE}};
    float sample[SIDE * SIDE], scratch[SIDE * SIDE];
    int32_t labels[SIDE * SIDE];
    int close = 0;

    (void)state;
    for (int i = 0; i < SIDE * SIDE; i++)
        sample[i] = (float)(labels[i] = 10 * (i / SIDE) + 1000 * (i % SIDE));
    ts_augment_run(&(ts_augment){.rotate = 180}, &shape, &(ts_normalize){0}, 5, sample, scratch,
                   labels, SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++)
        close += fabsf(sample[i] - (float)labels[i]) <= 510;
    assert_true(close > SIDE * SIDE * 2 / 3); /* the rest is where the corners went */
}

static void what_cannot_move_labels_is_refused(void **state)
{
    ts_dataset *d;
    ts_loader *l;

    (void)state;
    assert_ok(ts_dataset_new(TS_F32, 2, 3, (int64_t[]){1, 4, 4}, &d));
    assert_ok(ts_dataset_label_pixels(d, 2, (int64_t[]){4, 4}));
    assert_fails(ts_loader_new(d, &(ts_loader_options){.images = &(ts_augment){.mixup = 1}}, &l),
                 TS_ERR_UNSUPPORTED, "augment: mixup has no meaning for labels of pixels");
    assert_fails(ts_loader_new(d, &(ts_loader_options){.augment = flip}, &l), TS_ERR_UNSUPPORTED,
                 "an augment function cannot move the labels of pixels");
    ts_dataset_free(d);
}

static void augmenting_is_the_same_for_any_threads(void **state)
{
    ts_loader_options o = {.batch = BATCH, .shuffle = true, .threads = -1, .augment = flip};
    static float want[2 * STEPS * BATCH], got[2 * STEPS * BATCH];
    ts_loader *l = loader(*state, o);

    record(l, 2 * STEPS, want);
    ts_loader_free(l);
    assert_true(want[0] != want[1]);
    o.threads = 4;
    l = loader(*state, o);
    record(l, 2 * STEPS, got);
    assert_memory_equal(got, want, sizeof(want));
    ts_loader_free(l);
}

/* Fails on sample 77. */
static bool picky(void *arg, float *sample, int32_t label, uint64_t random)
{
    (void)arg, (void)label, (void)random;
    return sample[0] != 77;
}

static void an_error_in_a_thread_arrives_in_next(void **state)
{
    for (int threads = -1; threads < 5; threads++) {
        ts_loader *l = loader(
            *state, (ts_loader_options){.batch = BATCH, .threads = threads, .augment = picky});
        ts_batch b;
        for (int n = 0; n < 77 / BATCH; n++)
            assert_ok(ts_loader_next(l, &b));
        for (int again = 0; again < 3; again++)
            assert_fails(ts_loader_next(l, &b), TS_ERR_ARG,
                         "the augment function failed on sample 77 in epoch 0");
        assert_string_equal(ts_last_error()->doing, "making a batch");
        assert_ok(ts_loader_seek(l, 0, 10));
        assert_ok(ts_loader_next(l, &b));
        assert_row(&b, 0, 80);
        ts_loader_free(l);
    }
}

static void wrong_options_are_refused(void **state)
{
    double zero[] = {0, 0, 0}, one[] = {1, 1, 1};
    ts_loader *l;

    assert_fails(ts_loader_new(*state, &(ts_loader_options){.batch = -4}, &l), TS_ERR_ARG,
                 "a batch cannot have -4 rows");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.batch = 104, .drop_last = true}, &l),
                 TS_ERR_ARG, "a batch of 104 rows cannot be filled: the dataset has 103 samples");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.threads = 1000}, &l), TS_ERR_ARG,
                 "a loader has 0 to 256 threads, not 1000");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.prefetch = -1}, &l), TS_ERR_ARG,
                 "a loader makes 0 to 65536 batches ahead, not -1");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.normalize = {zero, one, 3}}, &l),
                 TS_ERR_SHAPE, "normalize has 3 means, and a sample has 2 channels");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.normalize = {one, zero, 2}}, &l),
                 TS_ERR_ARG, "normalize cannot use mean 1 and deviation 0 of channel 0");
    assert_fails(ts_loader_new(*state, &(ts_loader_options){.batch = INT64_MAX}, &l), TS_ERR_MEMORY,
                 "a batch of 9223372036854775807 samples does not fit in memory");
}

static void no_memory_and_no_threads_are_errors(void **state)
{
    ts_loader_options o = {.batch = BATCH, .shuffle = true, .threads = 3};
    ts_loader *l;
    ts_status s;
    int n = 0;

    for (;; n++) {
        ts_fault_arm("alloc", n);
        s = ts_loader_new(*state, &o, &l);
        ts_fault_arm(NULL, -1);
        if (!s)
            break;
        assert_int_equal(s, TS_ERR_MEMORY);
        assert_null(l);
    }
    assert_true(n > 10);
    ts_loader_free(l);
    ts_fault_arm("thread", 2);
    assert_fails(ts_loader_new(*state, &o, &l), TS_ERR_MEMORY,
                 "cannot start a loader thread: Resource temporarily unavailable");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_make_up_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_parts_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_rows_can_be_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_may_be_larger_than_the_data, setup, teardown),
        cmocka_unit_test_setup_teardown(shuffled_epochs_hold_every_sample_once, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_do_not_change_the_batches, setup, teardown),
        cmocka_unit_test_setup_teardown(a_seek_continues_with_the_same_batches, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_stays_until_the_next_call, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loader_may_end_at_any_time, setup, teardown),
        cmocka_unit_test(bytes_become_what_torch_makes_of_them),
        cmocka_unit_test(labels_of_pixels_move_with_them),
        cmocka_unit_test(labels_turn_as_their_picture),
        cmocka_unit_test(what_cannot_move_labels_is_refused),
        cmocka_unit_test_setup_teardown(augmenting_is_the_same_for_any_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_in_a_thread_arrives_in_next, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory_and_no_threads_are_errors, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

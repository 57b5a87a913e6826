/* stamp.c - what is measured for a profile: it changes no bit, its times add up, it says what is
 * missing, and a profile that cannot be written stops no run. */
#include "profile/profile.h"
#include "run/engine.h"
#include "support.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef TS_HAVE_SQLITE3

enum { BATCH = 16, CALLS = 4 };

static char *cache; /* a program is compiled once: whether it is measured is no part of it */

static ts_graph *network(void)
{
    ts_graph *g = ts_graph_new("stamped");
    ts_value *x = ts_input(g, "images", TS_F32, BATCH, 1, 20, 20);
    ts_value *t = ts_input(g, "labels", TS_I32, BATCH);

    ts_block_begin(g, "B1");
    x = ts_relu(ts_conv2d(x, "conv", 8, 5));
    x = ts_dropout(x, 0.25, true);
    ts_block_end(g);
    ts_block_begin(g, "B2");
    x = ts_log_softmax(ts_linear(ts_flatten(x, 1), "fc", 10), 1);
    ts_loss(ts_nll_loss(x, t));
    ts_block_end(g);
    return g;
}

typedef struct way {
    const char *name;
    int A, D, R, devices, threads;
    ts_schedule schedule;
    bool recompute;
    unsigned offload;
} way;

static const way ways[] = {
    {"one device", 1, 1, 1, 1, 1, 0, false, 0},
    {"two threads", 1, 3, 1, 1, 2, 0, false, 0},
    {"accumulated", 4, 2, 1, 1, 2, 0, false, TS_OFFLOAD_OPTIMIZER},
    {"pipelined", 4, 2, 1, 2, 2, TS_SCHEDULE_PIPELINED, true, 0},
    {"sharded", 4, 1, 1, 2, 1, TS_SCHEDULE_SHARDED, false, 0},
    {"replicas", 2, 2, 2, 1, 3, 0, false, 0},
};

typedef struct made {
    ts_executable *x;
    ts_engine *e;
    float *images;
    int32_t *labels;
    float *scores, *losses;
} made;

static void make(const way *w, const char *folder, made *m)
{
    static const char *const blocks[] = {"B1", "B2"};
    const ts_stage stages[] = {{&blocks[0], 1, .device = 0}, {&blocks[1], 1, .device = 1}};
    ts_optimizer adam = ts_adam(0.01);
    ts_options opt = {.optimizer = &adam,
                      .gradient_accumulation = w->A,
                      .device_iterations = w->D,
                      .replicas = w->R,
                      .stages = w->devices > 1 ? stages : NULL,
                      .nstages = w->devices > 1 ? 2 : 0,
                      .schedule = w->schedule,
                      .recompute = w->recompute,
                      .offload = w->offload,
                      .output_mode = TS_OUTPUT_ALL,
                      .isa = "x86-64-v3",
                      .cache_dir = cache,
                      .profile = folder,
                      .profile_calls = CALLS - 1};
    test_random r = {7};
    size_t n = (size_t)(BATCH * w->A * w->D * w->R);
    ts_graph *g = network();

    assert_ok(ts_compile(g, &opt, &m->x));
    ts_graph_free(g);
    assert_ok(ts_engine_new(m->x, &(ts_run_options){.threads = w->threads, .seed = 3}, &m->e));
    m->images = malloc(n * 400 * sizeof(float));
    m->labels = malloc(n * sizeof(int32_t));
    m->scores = malloc(n * 10 * sizeof(float));
    m->losses = calloc(n, sizeof(float));
    for (size_t i = 0; i < n * 400; i++)
        m->images[i] = (float)test_between(&r, -100, 100) / 100;
    for (size_t i = 0; i < n; i++)
        m->labels[i] = (int32_t)test_between(&r, 0, 9);
}

static void call(made *m)
{
    assert_ok(ts_engine_run(m->e, (const void *[]){m->images, m->labels}, (void *[]){m->losses}));
}

static void drop(made *m)
{
    ts_engine_free(m->e);
    ts_executable_free(m->x);
    free(m->images);
    free(m->labels);
    free(m->scores);
    free(m->losses);
}

static char *path_of(const char *folder, const char *name)
{
    char *path;

    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    return path;
}

/* A number that SQL asks for. */
static void take_number(void *arg, const ts_db *d)
{
    *(double *)arg = ts_db_real(d, 0);
}

static double ask(const char *folder, const char *sql)
{
    char *path = path_of(folder, "profile.db");
    double x = -1;
    ts_db *d;

    assert_ok(ts_db_open(path, &d));
    ts_db_ask(d, sql, take_number, &x);
    assert_ok(ts_db_close(d));
    free(path);
    return x;
}

static void no_bit_changes(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        char *folder = test_folder();
        made with, without;
        size_t n, k;
        float *a, *b;
        make(&ways[i], folder, &with);
        make(&ways[i], NULL, &without);
        for (int c = 0; c < CALLS; c++) {
            call(&with);
            call(&without);
            assert_memory_equal(with.losses, without.losses,
                                sizeof(float) * (size_t)(ways[i].A * ways[i].D * ways[i].R));
        }
        a = test_states(with.x, with.e, &n);
        b = test_states(without.x, without.e, &k);
        assert_int_equal(n, k);
        assert_memory_equal(a, b, n * sizeof(float));
        free(a);
        free(b);
        drop(&with);
        drop(&without);
        test_folder_remove(folder);
        free(folder);
    }
}

/* Every kernel of every micro-batch of the calls that were asked for, on one thread or more. */
static void all_kernels_are_there(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        const way *w = &ways[i];
        char *folder = test_folder();
        double micro = w->A * w->D * w->R, updates = w->D * w->R;
        double phase0, phase1, want;
        made m;
        make(w, folder, &m);
        for (int c = 0; c < CALLS; c++)
            call(&m);
        phase0 = ask(folder, "SELECT count(*) FROM kernel JOIN section s ON s.id = section "
                             "WHERE phase = 0");
        phase1 = ask(folder, "SELECT count(*) FROM kernel JOIN section s ON s.id = section "
                             "WHERE phase = 1");
        want = (CALLS - 1) * (phase0 * micro + phase1 * updates);
        assert_true(want == ask(folder, "SELECT count(*) FROM (SELECT DISTINCT call, replica, "
                                        "kernel, micro FROM event WHERE kernel IS NOT NULL)"));
        assert_true(ask(folder, "SELECT count(*) FROM event WHERE end < start") == 0);
        assert_true(ask(folder, "SELECT value FROM run WHERE key = 'calls'") == CALLS - 1);
        /* on the thread that leads, kernels lie within their section's time, but for the clock's last
         * digits; another may have begun while that one still copies what came before */
        assert_true(ask(folder, "SELECT count(*) FROM event k JOIN event s ON s.kernel IS NULL AND "
                                "s.call = k.call AND s.replica = k.replica AND s.section = "
                                "k.section AND s.micro = k.micro AND s.thread = k.thread WHERE "
                                "k.kernel IS NOT NULL AND "
                                "(k.start < s.start - 1e-6 OR k.end > s.end + 1e-6)") == 0);
        drop(&m);
        test_folder_remove(folder);
        free(folder);
    }
}

/* On one thread: the best of the calls, for another program may come in between. */
static void kernels_add_up_to_their_section(void **state)
{
    char *folder = test_folder();
    double best;
    made m;

    (void)state;
    make(&ways[0], folder, &m);
    for (int c = 0; c < CALLS; c++)
        call(&m);
    best = ask(folder, "SELECT max(share) FROM (SELECT sum(CASE WHEN kernel IS NOT NULL THEN end - "
                       "start END) / sum(CASE WHEN kernel IS NULL THEN end - start END) AS share "
                       "FROM event GROUP BY call)");
    assert_true(best > 0.97 && best <= 1.0001);
    drop(&m);
    test_folder_remove(folder);
    free(folder);
}

static void what_the_host_does_is_there(void **state)
{
    char *folder = test_folder(), *trace = path_of(folder, "trace.json");
    made m;

    (void)state;
    make(&ways[3], folder, &m);
    ts_engine_note(m.e, "loader", "a wait", 0, ts_now()); /* since before there was a profile */
    call(&m);
    assert_int_equal(access(trace, R_OK), 0);
    ts_engine_note(m.e, "loader", "after the last", ts_now(), ts_now());
    assert_ok(ts_engine_profile(m.e)); /* ends it, and takes what was noted since */
    call(&m);
    ts_engine_note(m.e, "loader", "too late", ts_now(), ts_now());
    assert_ok(ts_engine_profile(m.e));
    assert_true(ask(folder, "SELECT count(*) FROM host WHERE kind = 'loader'") == 2);
    assert_true(ask(folder, "SELECT start FROM host WHERE name = 'a wait'") == 0);
    assert_true(ask(folder, "SELECT count(*) FROM host WHERE kind = 'call'") == 1);
    assert_true(ask(folder, "SELECT count(DISTINCT kind) FROM host WHERE kind IN ('compile', "
                            "'pass', 'plan', 'render', 'load', 'copy_out', 'send')") == 7);
    assert_true(ask(folder, "SELECT count(*) FROM event WHERE call > 0") == 0);
    drop(&m);
    free(trace);
    test_folder_remove(folder);
    free(folder);
}

/* An executable from a file, with the graph that it was made of, and with another. */
static void what_was_loaded_has_one_too(void **state)
{
    char *folder = test_folder(), *file = path_of(folder, "x.tsx"), *there = path_of(folder, "p");
    ts_optimizer adam = ts_adam(0.01);
    ts_options opt = {.optimizer = &adam, .cache_dir = cache, .isa = "x86-64-v3"};
    ts_graph *g = network(), *other = ts_graph_new("other");
    ts_executable *x;
    made m;

    (void)state;
    ts_output(ts_relu(ts_input(other, "x", TS_F32, 4)), "y");
    make(&ways[0], NULL, &m);
    assert_ok(ts_compile(g, &opt, &x));
    assert_ok(ts_executable_save(x, file));
    ts_executable_free(x);
    assert_ok(ts_executable_load(file, &x));
    opt.profile = there;
    assert_fails(ts_profile_loaded(x, other, &(ts_options){.profile = there}), TS_ERR_ARG,
                 "the executable is not what would be made of the graph 'other' now");
    assert_fails(ts_profile_loaded(NULL, g, &opt), TS_ERR_ARG,
                 "the profile of an executable needs it and its graph");
    assert_ok(ts_profile_loaded(x, g, &opt));
    ts_engine_free(m.e);
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1, .seed = 3}, &m.e));
    call(&m);
    assert_true(ask(there, "SELECT count(DISTINCT kernel) = (SELECT count(*) FROM kernel) AND "
                           "count(DISTINCT call) = 1 FROM event") == 1);
    drop(&m);
    ts_executable_free(x);
    ts_graph_free(g);
    ts_graph_free(other);
    free(file);
    free(there);
    test_folder_remove(folder);
    free(folder);
}

/* Of two engines of one executable the first is measured. */
static void one_engine_is_measured(void **state)
{
    char *folder = test_folder();
    ts_engine *second;
    made m;

    (void)state;
    make(&ways[0], folder, &m);
    assert_ok(ts_engine_new(m.x, &(ts_run_options){.threads = 1}, &second));
    call(&m);
    assert_ok(ts_engine_run(second, (const void *[]){m.images, m.labels}, (void *[]){m.losses}));
    assert_ok(ts_engine_profile(second));
    ts_engine_free(second);
    drop(&m);
    assert_true(ask(folder, "SELECT count(DISTINCT call) FROM event") == 1);
    test_folder_remove(folder);
    free(folder);
}

/* --- counters: those of this machine are no test, so they are made up --- */

static atomic_int opened;
static int refuse_after, unreadable_after;
static _Thread_local uint64_t looks;

static int fake_open(int which, int group)
{
    if (refuse_after >= 0 && opened >= refuse_after) {
        errno = EACCES;
        return -1;
    }
    assert_true((group < 0) == !which);
    return 1000 + opened++;
}

static bool fake_read(int group, uint64_t values[TS_COUNTERS])
{
    assert_true(group >= 1000);
    looks++;
    for (int i = 0; i < TS_COUNTERS; i++)
        values[i] = looks * (uint64_t)(i + 1) * 7;
    return unreadable_after < 0 || (int)looks < unreadable_after;
}

static void fake_close(int fd)
{
    assert_true(fd >= 1000);
    opened--;
}

/* So many calls with made-up counters; what SQL says of them then. */
static double counted(const way *w, int calls, int refuse, int unreadable, const char *sql)
{
    static const ts_counter_source fake = {fake_open, fake_read, fake_close};
    const ts_counter_source *real = ts_counter_source_now;
    char *folder = test_folder();
    double got;
    made m;

    ts_counter_source_now = &fake;
    opened = 0;
    looks = 0;
    refuse_after = refuse;
    unreadable_after = unreadable;
    make(w, folder, &m);
    for (int c = 0; c < calls; c++)
        call(&m);
    assert_ok(ts_engine_profile(m.e));
    drop(&m);
    assert_int_equal(opened, 0);
    got = ask(folder, sql);
    assert_true(ask(folder, "SELECT count(DISTINCT call) FROM event") == CALLS - 1);
    ts_counter_source_now = real;
    test_folder_remove(folder);
    free(folder);
    return got;
}

/* The call after those that are timed; two looks around a kernel are one of the made-up steps. */
static void the_processor_counts(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        const way *w = &ways[i];
        assert_true(counted(w, CALLS, -1, -1,
                            "SELECT count(*) = 4 * (SELECT count(*) FROM kernel) AND min(value) >= "
                            "7 FROM counter") == 1);
        if (w->threads == 1)
            assert_true(counted(w, CALLS + 1, -1, -1,
                                "SELECT count(*) FROM counter WHERE value != CASE name WHEN "
                                "'cycles' THEN 7 WHEN 'instructions' THEN 14 WHEN 'cache_misses' "
                                "THEN 21 ELSE 28 END") == 0);
    }
    assert_true(counted(&ways[0], CALLS - 1, -1, -1, "SELECT count(*) FROM counter") == 0);
}

static void a_machine_without_counters(void **state)
{
    (void)state;
    for (int refuse = 0; refuse < TS_COUNTERS; refuse++)
        assert_true(counted(&ways[0], CALLS, refuse, -1,
                            "SELECT value = 'perf_event_open: Permission denied' AND NOT EXISTS "
                            "(SELECT * FROM counter) FROM run WHERE key = 'uncounted'") == 1);
    for (int look = 1; look < 4; look++)
        assert_true(counted(&ways[0], CALLS, -1, look, "SELECT count(*) FROM counter") == 0);
}

/* The disk fills up, at any point: the run goes on, what was written before stays whole. */
static void a_full_disk_stops_no_run(void **state)
{
    int nth = 0, passed;

    (void)state;
    do {
        char *folder = test_folder();
        made m;
        make(&ways[0], folder, &m);
        call(&m);
        ts_fault_arm("profile", nth);
        call(&m);
        passed = ts_fault_count();
        ts_fault_arm(NULL, -1);
        call(&m);
        if (passed > nth) {
            assert_int_equal(ts_engine_profile(m.e), TS_ERR_FILE);
            assert_non_null(
                strstr(ts_last_error()->message, "profile.db: database or disk is full"));
        }
        assert_true(ask(folder, "SELECT count(*) FROM event WHERE call = 0") > 0);
        assert_true(ask(folder, "SELECT count(*) FROM kernel") > 0);
        drop(&m);
        test_folder_remove(folder);
        free(folder);
    } while (passed > nth++);
    assert_true(nth > 2);
}

static void no_memory_for_times(void **state)
{
    char *folder = test_folder();
    int nth = 0, passed;
    ts_status s;
    made m;

    (void)state;
    make(&ways[2], folder, &m);
    do {
        ts_engine *e = NULL;
        atomic_store(&m.x->profiled, 0); /* as if the first engine had not been measured */
        ts_fault_arm("alloc", nth);
        s = ts_engine_new(m.x, &(ts_run_options){.threads = 2}, &e);
        passed = ts_fault_count();
        ts_fault_arm(NULL, -1);
        assert_int_equal(s, passed > nth ? TS_ERR_MEMORY : TS_OK);
        ts_engine_free(e);
    } while (passed > nth++);
    assert_true(nth > 4);
    drop(&m);
    test_folder_remove(folder);
    free(folder);
}

static void a_folder_that_goes_away(void **state)
{
    char *folder = test_folder();
    made m;

    (void)state;
    make(&ways[0], folder, &m);
    test_folder_remove(folder);
    call(&m);
    call(&m);
    assert_int_equal(ts_engine_profile(m.e), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "unable to open database file"));
    drop(&m);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_changes),
        cmocka_unit_test(all_kernels_are_there),
        cmocka_unit_test(kernels_add_up_to_their_section),
        cmocka_unit_test(what_the_host_does_is_there),
        cmocka_unit_test(what_was_loaded_has_one_too),
        cmocka_unit_test(one_engine_is_measured),
        cmocka_unit_test(the_processor_counts),
        cmocka_unit_test(a_machine_without_counters),
        cmocka_unit_test(a_full_disk_stops_no_run),
        cmocka_unit_test(no_memory_for_times),
        cmocka_unit_test(a_folder_that_goes_away),
    };

    int failed;

    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    cache = test_folder();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(cache);
    free(cache);
    return failed;
}

#else

static void says_what_is_missing(void **state)
{
    ts_graph *g = ts_graph_new("none");
    ts_options opt = {.profile = "profile"};

    (void)state;
    ts_output(ts_relu(ts_input(g, "x", TS_F32, 4)), "y");
    assert_fails(ts_profile_plan(g, &opt), TS_ERR_UNSUPPORTED,
                 "this build writes no profiles: it was made without SQLite");
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_is_missing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif

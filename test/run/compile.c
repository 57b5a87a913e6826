/* compile.c - ts_compile as a whole: options that make no sense, progress, machines without a
 * compiler, and every failure of the world on the way from a graph to a run. */
#include "run/run.h"
#include "support.h"
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder; /* the test's own: tmp/ (TMPDIR), cache/, cc, log */
static char *tmp_then;

static const char *at(const char *name)
{
    static char path[4][4096];
    static int which;

    which = (which + 1) % 4;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

static int open_folder(void **state)
{
    static const char fast[] = "#!/bin/sh\nexec cc \"$@\" -O0\n";

    (void)state;
    folder = test_folder();
    tmp_then = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    assert_int_equal(mkdir(at("tmp"), 0700), 0);
    assert_ok(ts_file_write(at("cc"), fast, sizeof(fast) - 1));
    assert_int_equal(chmod(at("cc"), 0755), 0);
    setenv("TMPDIR", at("tmp"), 1);
    setenv("TESSERA_CC", at("cc"), 1);
    setenv("TESSERA_CACHE_DIR", "", 1);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    if (tmp_then)
        setenv("TMPDIR", tmp_then, 1);
    else
        unsetenv("TMPDIR");
    free(tmp_then);
    unsetenv("TESSERA_CC");
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *y = ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2);

    ts_output(y, "y");
    ts_loss(ts_mean(ts_square(y), 0, NULL, false));
    return g;
}

static int err_then = -1;

static void log_begin(void)
{
    int log = open(at("log"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    fflush(stderr);
    err_then = dup(2);
    dup2(log, 2);
    close(log);
}

static const char *log_end(void)
{
    static char text[16384];
    char *s;
    size_t n;

    fflush(stderr);
    dup2(err_then, 2);
    close(err_then);
    assert_ok(ts_file_read(at("log"), &s, &n));
    snprintf(text, sizeof(text), "%s", s);
    free(s);
    return text;
}

/* --- options --- */

static void options_that_make_no_sense(void **state)
{
    static const struct {
        ts_options opt;
        const char *words;
    } cases[] = {
        {{.device_iterations = -1}, "device_iterations is -1; it must not be negative"},
        {{.gradient_accumulation = -3}, "gradient_accumulation is -3; it must not be negative"},
        {{.output_period = -1}, "output_period is -1; it must not be negative"},
        {{.cache_limit = -1}, "cache_limit is -1; it must not be negative"},
        {{.output_mode = TS_OUTPUT_EVERY_N, .output_period = 4, .device_iterations = 10},
         "an output every 4 device iterations does not divide 10 of them"},
        {{.output_mode = TS_OUTPUT_EVERY_N, .output_period = 2},
         "an output every 2 device iterations does not divide 1 of them"},
        {{.output_mode = 77}, "output_mode is 77; it can be one of: default final all sum every_n"},
        {{.executor = 5}, "executor is 5; it can be one of: auto native reference"},
        {{.isa = "z80"}, "the instruction set 'z80' is not known"},
        {{.device_iterations = INT_MAX, .gradient_accumulation = 2},
         "2147483647 device iterations of 2 micro-batches are too many"},
    };
    ts_graph *g = net();

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_executable *x = (void *)g;
        assert_fails(ts_compile(g, &cases[i].opt, &x), TS_ERR_ARG, cases[i].words);
        assert_null(x);
    }
    ts_graph_free(g);
}

static void an_optimizer_needs_a_loss(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *x;

    (void)state;
    ts_output(ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2), "y");
    assert_fails(ts_compile(g, &(ts_options){.optimizer = &sgd}, &x), TS_ERR_ARG,
                 "there is an optimizer, and no loss for it to minimise");
    ts_graph_free(g);
    assert_int_equal(ts_compile(NULL, NULL, &x), TS_ERR_ARG);
    g = net();
    assert_int_equal(ts_compile(g, NULL, NULL), TS_ERR_ARG);
    ts_graph_free(g);
}

static void a_period_that_divides(void **state)
{
    ts_graph *g = net();
    ts_executable *x;
    ts_engine *e;

    (void)state;
    assert_ok(ts_compile(g,
                         &(ts_options){.output_mode = TS_OUTPUT_EVERY_N,
                                       .output_period = 5,
                                       .device_iterations = 10,
                                       .executor = TS_EXECUTOR_REFERENCE},
                         &x));
    assert_ok(ts_engine_new(x, NULL, &e));
    assert_int_equal(ts_engine_slots(e), 2);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
}

/* --- progress --- */

static void note_progress(void *arg, int percent)
{
    ts_text *t = arg;

    ts_text_printf(t, "%c", (char)percent);
}

static void check_progress(const ts_options *opt)
{
    ts_graph *g = net();
    ts_text seen = {0};
    ts_options o = *opt;
    ts_executable *x;

    o.progress = note_progress;
    o.progress_arg = &seen;
    assert_ok(ts_compile(g, &o, &x));
    assert_true(seen.len >= 3);
    assert_int_equal(seen.s[0], 0);
    assert_int_equal(seen.s[seen.len - 1], 100);
    for (size_t i = 1; i < seen.len; i++)
        assert_true(seen.s[i] > seen.s[i - 1]);
    ts_text_free(&seen);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void progress_only_grows(void **state)
{
    char cache[4096];

    (void)state;
    snprintf(cache, sizeof(cache), "%s", at("cache"));
    check_progress(&(ts_options){.executor = TS_EXECUTOR_REFERENCE});
    check_progress(&(ts_options){.cache_dir = cache});
    check_progress(&(ts_options){.cache_dir = cache}); /* a hit */
}

static void the_bar(void **state)
{
    (void)state;
    setenv("TESSERA_PROGRESS", "1", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("COLUMNS");
    log_begin();
    ts_progress_bar(NULL, 0);
    ts_progress_bar(NULL, 45);
    ts_progress_bar(NULL, 100);
    assert_string_equal(log_end(), "\rGraph compilation:   0%|          | 0/100 [00:00<?]"
                                   "\rGraph compilation:  45%|████▌     | 45/100 [00:00<00:00]"
                                   "\rGraph compilation: 100%|██████████| 100/100 [00:00<00:00]\n");
    log_begin(); /* one that fails ends its line all the same */
    ts_progress_bar(NULL, 0);
    ts_progress_bar(NULL, -1);
    assert_string_equal(log_end(), "\rGraph compilation:   0%|          | 0/100 [00:00<?]"
                                   "\rGraph compilation:   0%|          | 0/100 [00:00<?]\n");
    setenv("TESSERA_PROGRESS", "0", 1);
    log_begin();
    ts_progress_bar(NULL, 0);
    assert_string_equal(log_end(), "");
    unsetenv("TESSERA_PROGRESS"); /* a file is no terminal */
    log_begin();
    ts_progress_bar(NULL, 0);
    assert_string_equal(log_end(), "");
}

static void a_failed_compile_closes_the_bar(void **state)
{
    ts_graph *g = net();
    ts_executable *x;
    const char *log;

    (void)state;
    setenv("TESSERA_PROGRESS", "1", 1);
    setenv("TESSERA_CC", at("nowhere"), 1);
    log_begin();
    assert_int_equal(
        ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_NATIVE, .progress = ts_progress_bar},
                   &x),
        TS_ERR_COMPILER);
    log = log_end();
    assert_non_null(strstr(log, "Graph compilation:   0%|"));
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1);
    assert_non_null(strstr(ts_last_error()->message, "cannot run the C compiler"));
    unsetenv("TESSERA_PROGRESS");
    ts_graph_free(g);
}

/* --- compilers --- */

static void no_compiler(void **state)
{
    ts_graph *g = net();
    ts_executable *x;
    const char *log;

    (void)state;
    setenv("TESSERA_CC", at("nowhere"), 1);
    assert_int_equal(ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_NATIVE}, &x),
                     TS_ERR_COMPILER);
    assert_non_null(strstr(ts_last_error()->message, "cannot run the C compiler"));
    log_begin();
    assert_ok(ts_compile(g, NULL, &x));
    log = log_end();
    assert_int_equal(ts_executable_stats(x).native, false);
    assert_non_null(strstr(log, "tessera: warn: cannot run the C compiler"));
    assert_non_null(strstr(log, "the reference executor runs instead"));
    assert_non_null(strstr(log, "install gcc or clang"));
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1); /* one line */
    ts_executable_free(x);
    ts_graph_free(g);
}

static void what_is_cached_needs_no_compiler(void **state)
{
    const char *cache = at("cache");
    ts_options opt = {.cache_dir = cache, .executor = TS_EXECUTOR_NATIVE};
    ts_graph *g = net();
    ts_executable *x;

    (void)state;
    setenv("TESSERA_CC", at("cc"), 1);
    assert_ok(ts_compile(g, &opt, &x));
    ts_executable_free(x);
    setenv("TESSERA_CC", at("nowhere"), 1);
    assert_ok(ts_compile(g, &opt, &x));
    assert_true(ts_executable_stats(x).from_cache);
    ts_executable_free(x);
    opt.device_iterations = 2; /* another program */
    assert_int_equal(ts_compile(g, &opt, &x), TS_ERR_COMPILER);
    assert_non_null(strstr(ts_last_error()->hint, "install gcc"));
    setenv("TESSERA_CC", at("cc"), 1);
    ts_graph_free(g);
}

static void nothing_is_left(void **state)
{
    ts_graph *g = net();
    ts_executable *x;

    (void)state;
    assert_ok(ts_compile(g, NULL, &x));
    assert_true(ts_executable_stats(x).native);
    assert_int_equal(test_folder_count(at("tmp")), 0);
    ts_executable_free(x);
    ts_graph_free(g);
}

/* An executable needs nothing of the graph it was made from. */
static void outlives_its_graph(void **state)
{
    (void)state;
    for (ts_executor executor = TS_EXECUTOR_NATIVE; executor <= TS_EXECUTOR_REFERENCE; executor++) {
        ts_graph *g = net();
        float in[6] = {1, 2, 3, 4, 5, 6}, y[4], loss;
        ts_executable *x;
        ts_engine *e;
        assert_ok(ts_compile(g, &(ts_options){.executor = executor}, &x));
        ts_graph_free(g);
        assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &e));
        assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){y, &loss}));
        assert_true(loss > 0);
        ts_engine_free(e);
        ts_executable_free(x);
    }
}

/* --- everything that can fail, failing --- */

static ts_status everything(const ts_options *opt, float *loss)
{
    ts_graph *g = net();
    ts_executable *x = NULL, *y = NULL;
    ts_engine *e = NULL;
    float in[6] = {1, 2, 3, 4, 5, 6}, out[4];
    ts_status s = ts_compile(g, opt, &x);

    if (!s)
        s = ts_executable_save(x, at("net.tse"));
    if (!s)
        s = ts_executable_load(at("net.tse"), &y);
    if (!s)
        s = ts_engine_new(y, &(ts_run_options){.threads = 1}, &e);
    if (!s)
        s = ts_engine_run(e, (const void *[]){in}, (void *[]){out, loss});
    ts_engine_free(e);
    ts_executable_free(x);
    ts_executable_free(y);
    ts_graph_free(g);
    unlink(at("net.tse"));
    return s;
}

static void sweep(ts_executor executor, bool warm)
{
    char cache[4096];
    ts_options opt = {.cache_dir = cache, .executor = executor};
    float want = 0, loss = 0;
    int points = 0;

    snprintf(cache, sizeof(cache), "%s", at("cache"));
    assert_ok(everything(&opt, &want));
    for (int n = 0;; n++) {
        ts_status s;
        if (!warm && !access(cache, F_OK))
            test_folder_remove(cache);
        ts_fault_arm(NULL, n);
        s = everything(&opt, &loss);
        points = ts_fault_count();
        ts_fault_arm(NULL, -1);
        if (s) {
            assert_int_equal(ts_last_error()->code, s);
            assert_true(ts_last_error()->message[0] != 0);
        } else
            assert_true(loss == want || executor == TS_EXECUTOR_AUTO);
        assert_int_equal(test_folder_count(at("tmp")), 0);
        assert_int_equal(test_folder_count(folder),
                         access(cache, F_OK) ? 2 : 3); /* tmp, cc, cache */
        assert_true(access(cache, F_OK) || test_folder_count(cache) <= 1);
        if (points <= n) /* the n-th was not reached: all have had their turn */
            break;
        assert_ok(everything(&opt, &loss)); /* and the cache is as good as before */
        assert_true(loss == want);
    }
    assert_true(points > 10);
}

static void every_fault_cold(void **state)
{
    (void)state;
    setenv("TESSERA_LOG", "error", 1);
    sweep(TS_EXECUTOR_NATIVE, false);
    unsetenv("TESSERA_LOG");
}

static void every_fault_warm(void **state)
{
    (void)state;
    setenv("TESSERA_LOG", "error", 1);
    sweep(TS_EXECUTOR_NATIVE, true);
    unsetenv("TESSERA_LOG");
}

static void every_fault_reference(void **state)
{
    (void)state;
    setenv("TESSERA_LOG", "error", 1);
    sweep(TS_EXECUTOR_REFERENCE, true);
    unsetenv("TESSERA_LOG");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        CASE(options_that_make_no_sense),
        CASE(an_optimizer_needs_a_loss),
        CASE(a_period_that_divides),
        CASE(progress_only_grows),
        CASE(the_bar),
        CASE(a_failed_compile_closes_the_bar),
        CASE(no_compiler),
        CASE(what_is_cached_needs_no_compiler),
        CASE(nothing_is_left),
        CASE(outlives_its_graph),
        CASE(every_fault_cold),
        CASE(every_fault_warm),
        CASE(every_fault_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

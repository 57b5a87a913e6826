/* Numbers are written and read with a point in a locale that has a comma. */
#include "op/op.h"
#include "support.h"
#include <limits.h>
#include <locale.h>

static char *folder;

/* de_DE, made here: few machines have it. */
static bool comma_locale(void)
{
    char *command = NULL;
    int failed;

    folder = test_folder();
    assert_true(asprintf(&command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1",
                         folder, folder) > 0);
    failed = system(command);
    free(command);
    setenv("LOCPATH", folder, 1);
    return !failed && setlocale(LC_ALL, "de_DE.UTF-8");
}

static int leave(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    if (folder)
        test_folder_remove(folder);
    free(folder);
    return 0;
}

static int hits; /* in the cache */

/* The generated C. What it starts with is as it was written, too. */
static char *compiled(const ts_graph *g, const char *cache_dir)
{
    ts_optimizer sgd = ts_sgd(0.5);
    ts_options opt = {.optimizer = &sgd, .executor = TS_EXECUTOR_NATIVE, .cache_dir = cache_dir};
    ts_executable *exe;
    ts_engine *e;
    char *source;
    float lr;

    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    assert_ok(ts_engine_read(e, "lr", &lr, sizeof(lr)));
    assert_true(lr == 0.5f);
    hits += ts_executable_stats(exe).from_cache;
    source = strdup(ts_executable_source(exe));
    ts_engine_free(e);
    ts_executable_free(exe);
    return source;
}

static void a_comma_locale_changes_nothing(void **state)
{
    ts_graph *g = ts_graph_new("g"), *back;
    ts_value *x = ts_input(g, "x", TS_F32, 3);
    ts_value *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_UNIFORM, -0.5, 0.125}), 3);
    ts_value *y = ts_leaky_relu(x, 0.25);
    char before[16], *plain, *text, *source, *cache = test_folder();

    (void)state;
    ts_output(y, "y");
    ts_loss(ts_mul(y, w));
    plain = ts_graph_text(g);
    source = compiled(g, "");
    free(compiled(g, cache));
    assert_int_equal(hits, 0);
    if (!comma_locale()) {
        ts_graph_free(g);
        free(plain);
        free(source);
        test_folder_remove(cache);
        free(cache);
        skip();
    }
    snprintf(before, sizeof(before), "%g", 0.5);
    assert_string_equal(before, "0,5");
    text = ts_graph_text(g);
    assert_string_equal(text, plain);
    assert_ok(ts_graph_parse(text, &back));
    free(text);
    text = ts_graph_text(back);
    assert_string_equal(text, plain);
    free(text);
    text = compiled(back, "");
    assert_string_equal(text, source);
    free(text);
    text = compiled(back, cache); /* made in the other locale */
    assert_string_equal(text, source);
    assert_int_equal(hits, 1);
    snprintf(before, sizeof(before), "%g", 0.5); /* the program's own locale is as it was */
    assert_string_equal(before, "0,5");
    ts_graph_free(back);
    ts_graph_free(g);
    free(text);
    free(plain);
    free(source);
    test_folder_remove(cache);
    free(cache);
}

static void numbers_read_back(void **state)
{
    char s[40], *end;

    (void)state;
    assert_int_equal(ts_format(s, sizeof(s), "%.17g", 0.1), 19);
    assert_true(ts_to_real(s, &end) == 0.1);
    assert_string_equal(end, "");
    assert_true(ts_to_real("1,5", &end) == 1);
    assert_string_equal(end, ",5");
}

/* Whole, cut anywhere, or only counted, as the C library does it. */
#define SAME(...)                                                                                  \
    do {                                                                                           \
        char mine[64], theirs[64];                                                                 \
        for (size_t room = 0; room < sizeof(mine); room++) {                                       \
            memset(mine, 'x', sizeof(mine));                                                       \
            memset(theirs, 'x', sizeof(theirs));                                                   \
            assert_int_equal(ts_format(room ? mine : NULL, room, __VA_ARGS__),                     \
                             snprintf(room ? theirs : NULL, room, __VA_ARGS__));                   \
            assert_memory_equal(mine, theirs, sizeof(mine));                                       \
        }                                                                                          \
    } while (0)

static void formats(void **state)
{
    (void)state;
    SAME("%s", "");
    SAME("%s", "a word and another");
    SAME("%d %d %d %d", 0, -1, INT_MAX, INT_MIN);
    SAME("%ld %ld", LONG_MAX, LONG_MIN);
    SAME("%zu%c%c%%", (size_t)-1, 'a', '%');
    SAME("v%d[%ld + %s] = %s;", 7, -12L, "x0", "t1");
    SAME("%5d|%-3s|%03d|%.2s|%u|%x", 1, "a", 2, "word", 3u, 4u); /* of the C library */
    SAME("%s %.3f %d", "mixed", 1.5, 2);
    SAME("%lu %lld %hhd", 1ul, -2ll, (signed char)-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_comma_locale_changes_nothing, leave),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(formats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

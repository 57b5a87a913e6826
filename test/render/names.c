/* names.c - whatever a user calls things, it stays a name: no comment, string or line of the generated C ends with
 * it. Each hostile name would, unescaped, run a constructor when the step is loaded, or break the build. */
#include "render/render.h"
#include "run/run.h"
#include "support.h"
#include <unistd.h>

/* In a comment, in a string, across lines, and as what older compilers make of ??/ at the end of a line. */
#define CODE "__attribute__((constructor)) static void evil(void){setenv(\"TS_EVIL\",\"1\",1);}"
static const char *const hostile[] = {
    ("*/ " CODE " /*"),
    ("\"}; " CODE " /*"),
    "\\",
    ("?"
     "?/"),
    "x\"y",
    "/* unit */",
    "*/*/*/",
    "%s%n%d",
    "ends in a backslash \\",
    "\xc3\xa4pfel \xe2\x80\xae",
    "#define float int",
};
/* Those that no call takes, and only the text form can have. */
static const char *const lines[] = {"a\\x0a#include </etc/passwd>", "a\\x0a*/ int x; /*",
                                    "\\x5c\\x0a"};

static ts_graph *net(const char *name)
{
    ts_graph *g = ts_graph_new(name);
    ts_value *x;

    ts_block_begin(g, name);
    ts_scope_begin(g, name);
    x = ts_input(g, name, TS_F32, 8, 4);
    x = ts_relu(ts_linear(x, name, 3));
    x = ts_linear(x, "fc", 2);
    ts_scope_end(g);
    ts_block_end(g);
    ts_output(x, name);
    ts_loss(ts_mean(x, 0, NULL, false));
    return g;
}

static void runs(const ts_graph *g, const ts_options *opt)
{
    float x[8 * 4] = {1}, y[8 * 2], loss[8];
    ts_executable *exe;
    ts_engine *e;

    unsetenv("TS_EVIL");
    assert_ok(ts_compile(g, opt, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    assert_ok(ts_engine_run(e, (const void *[]){x}, (void *[]){y, loss}));
    assert_null(getenv("TS_EVIL"));
    ts_engine_free(e);
    ts_executable_free(exe);
}

static void names_of_steps(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);

    (void)state;
    for (int i = 0; i < TS_COUNT(hostile); i++) {
        ts_graph *g = net(hostile[i]);
        ts_options opt = {.optimizer = &sgd, .cache_dir = "", .executor = TS_EXECUTOR_NATIVE};
        assert_ok(ts_graph_check(g));
        runs(g, &opt);
        opt.offload = TS_OFFLOAD_ALL;
        opt.exceptions = true;
        runs(g, &opt);
        ts_graph_free(g);
    }
}

static void names_of_texts(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd, .cache_dir = "", .executor = TS_EXECUTOR_NATIVE};

    (void)state;
    for (int i = 0; i < TS_COUNT(lines); i++) {
        ts_arena *a = ts_arena_new();
        const char *s = lines[i];
        char *text = ts_arena_printf(a,
                                     "graph g\ninput %%\"%s\" : f32[8,4]\n"
                                     "state %%\"%s w\" : f32[2,4] uniform(-1, 1) trained\n"
                                     "%%2 : f32[8,2] = linear(%%\"%s\", %%\"%s w\") @layer \"%s\" "
                                     "@block \"%s\"\n%%3 : f32[] = mean(%%2)\n"
                                     "output \"%s\" = %%2\nloss %%3\n",
                                     s, s, s, s, s, s, s);
        ts_graph *g;
        if (ts_graph_parse(text, &g))
            fail_msg("%s", ts_error_text());
        runs(g, &opt);
        ts_graph_free(g);
        ts_arena_free(a);
    }
}

/* An exported net is compiled as strictly as a stranger might. */
static void exports(const ts_graph *g, const char *about)
{
    ts_export_options opt = {.name = "net", .about = about, .no_example = true};
    char *folder = test_folder(), command[512];
    ts_c_files f;

    assert_ok(ts_export_c(g, &opt, &f));
    assert_ok(ts_c_files_write(&f, folder, false));
    snprintf(command, sizeof(command),
             "cc -std=c99 -pedantic -Wall -Wextra -Werror -trigraphs -c %s/net.c -o %s/net.o",
             folder, folder);
    assert_int_equal(system(command), 0);
    test_folder_remove(folder);
    free(folder);
    ts_c_files_free(&f);
}

static void names_of_exports(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(hostile); i++) {
        ts_graph *g = net(hostile[i]);
        exports(g, hostile[i]);
        ts_graph_free(g);
    }
}

/* --- names at random: pieces that end, begin or hide something in C --- */

static void random_name(int seed, int i, char *out, size_t size)
{
    static const char *const pieces[] = {"*/",
                                         "/*",
                                         "//",
                                         "\"",
                                         "'",
                                         "\\",
                                         "?"
                                         "?/",
                                         "?"
                                         "?'",
                                         "?"
                                         "?(",
                                         "{",
                                         "}",
                                         ";",
                                         "#define ",
                                         "%s",
                                         "%n",
                                         "a",
                                         "\xc3\xa4",
                                         "\xe2\x80\xa8",
                                         "__LINE__",
                                         "\\n",
                                         "0",
                                         " ",
                                         "*",
                                         "/",
                                         "\\u000a",
                                         "_Pragma(\"x\")",
                                         CODE};
    size_t n = (size_t)snprintf(out, size, "%d", i);

    for (uint64_t k = 0; k < 8; k++) {
        uint64_t which = ts_random_bits((uint64_t)seed, (uint64_t)i, k, 0) % TS_COUNT(pieces);
        if (n + strlen(pieces[which]) < size)
            n += (size_t)snprintf(out + n, size - n, "%s", pieces[which]);
    }
}

/* One net of many layers: all names in one text. */
static void names_at_random(void **state)
{
    enum { LAYERS = 48 };
    int seed = getenv("TS_ROUND") ? atoi(getenv("TS_ROUND")) : 0;
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd, .cache_dir = "", .executor = TS_EXECUTOR_NATIVE};
    char name[400];
    ts_graph *g;
    ts_value *x;

    (void)state;
    random_name(seed, -1, name, sizeof(name));
    g = ts_graph_new(name);
    x = ts_input(g, name, TS_F32, 8, 4);
    for (int i = 0; i < LAYERS; i++) {
        random_name(seed, i, name, sizeof(name));
        ts_scope_begin(g, name);
        x = ts_tanh(ts_linear(x, name, i == LAYERS - 1 ? 2 : 4));
        ts_scope_end(g);
    }
    ts_output(x, name);
    ts_loss(ts_mean(x, 0, NULL, false));
    runs(g, &opt);
    exports(g, name);
    ts_graph_free(g);
}

static void what_is_no_name(void **state)
{
    static const struct {
        const char *name, *why;
    } wrong[] = {
        {"", "is empty"},
        {"a\nb", "has a control character in it"},
        {"a\tb", "has a control character in it"},
        {"\x7f", "has a control character in it"},
        {"\xff", "is not UTF-8"},
        {"\xc0\xaf", "is not UTF-8"},
        {"\xed\xa0\x80", "is not UTF-8"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        char message[80];
        ts_graph *g = ts_graph_new("g");
        snprintf(message, sizeof(message), "the name of the input %s", wrong[i].why);
        assert_null(ts_input(g, wrong[i].name, TS_F32, 1));
        assert_fails(ts_graph_check(g), TS_ERR_ARG, message);
        ts_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_steps),   cmocka_unit_test(names_of_texts),
        cmocka_unit_test(names_of_exports), cmocka_unit_test(names_at_random),
        cmocka_unit_test(what_is_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

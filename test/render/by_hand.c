/* by_hand.c - generated C is for people too: the command on its last line compiles it, without a
 * warning, to the same object; every kernel has its IR above it; no line is longer than a screen.
 */
#include "models/nets.h"
#include "render/render.h"
#include "run/run.h"
#include "support.h"

enum { COLUMNS = 200 };

typedef struct net {
    ts_graph *(*make)(void);
    ts_optimizer (*optimizer)(double lr);
    int accumulation;
} net;

static ts_graph *fashion(void)
{
    return net_fashion(16);
}

static ts_graph *digits(void)
{
    return net_digits(8, true);
}

static ts_graph *pipeline(void)
{
    return net_pipeline(40);
}

static ts_executable *compile(const net *n)
{
    ts_optimizer optimizer = n->optimizer(0.001);
    ts_options opt = {.optimizer = &optimizer,
                      .gradient_accumulation = n->accumulation,
                      .executor = TS_EXECUTOR_NATIVE,
                      .cache_dir = ""};
    ts_graph *g = n->make();
    ts_executable *x;

    assert_ok(ts_compile(g, &opt, &x));
    ts_graph_free(g);
    return x;
}

/* What a shell command prints, in that folder; it must succeed. */
static char *said(const char *folder, const char *command)
{
    ts_text line = {0}, out = {0};
    char some[4096];
    FILE *f;

    ts_text_printf(&line, "cd '%s' && %s 2>&1", folder, command);
    f = popen(line.s, "r");
    assert_non_null(f);
    ts_text_printf(&out, "%s", "");
    for (size_t n; (n = fread(some, 1, sizeof(some), f)) > 0;)
        ts_text_add(&out, some, n);
    if (pclose(f))
        fail_msg("%s\n%s", line.s, out.s);
    ts_text_free(&line);
    return out.s;
}

/* Between the marks of the last comment. */
static char *last_line(const char *source)
{
    const char *start = NULL, *end;

    for (const char *p = source; (p = strstr(p, "\n/* ")); p++)
        start = p + 4;
    assert_non_null(start);
    end = strstr(start, " */\n");
    assert_non_null(end);
    assert_string_equal(end, " */\n"); /* nothing follows */
    return strndup(start, (size_t)(end - start));
}

static void put(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_ok(ts_file_write(path, data, bytes));
}

static void the_command_works(const ts_executable *x)
{
    static const char exported[] = "nm -D --defined-only %s | cut -d' ' -f2- | sort";
    static const char kernels[] = "nm --defined-only %s | grep -Eo ' [Tt] k_[0-9a-f]+$' | sort";
    const char *source = ts_executable_source(x);
    char *folder = test_folder(), *command = last_line(source), *out;

    put(folder, "step.c", source, strlen(source));
    put(folder, "ours.so", x->object, x->object_bytes);
    out = said(folder, command);
    assert_string_equal(out, "");
    free(out);
    for (int i = 0; i < 2; i++) {
        char list[256], *mine, *ours;
        snprintf(list, sizeof(list), i ? kernels : exported, "step.so");
        mine = said(folder, list);
        snprintf(list, sizeof(list), i ? kernels : exported, "ours.so");
        ours = said(folder, list);
        assert_non_null(strstr(mine, i ? " k_" : "tessera_module\n"));
        assert_string_equal(mine, ours);
        free(mine);
        free(ours);
    }
    free(command);
    test_folder_remove(folder);
    free(folder);
}

/* The last line is a command to copy, and stays in one piece. */
static void check_width(const char *source)
{
    int number = 1;

    for (const char *p = source, *end; (end = strchr(p, '\n')); p = end + 1, number++)
        if (end - p > COLUMNS && end[1])
            fail_msg("line %d has %ld columns: %.60s...", number, (long)(end - p), p);
}

/* The comment that ends just before `at` has an IR line: " * %12 : f32[...] = op(...)", or
 * " * %state <- %12". */
static void check_comment(const char *source, const char *at)
{
    const char *open = NULL, *line;

    assert_true(at - source > 4 && !memcmp(at - 4, " */\n", 4));
    for (const char *p = source; (p = strstr(p, "/*\n")) && p < at; p++)
        open = p;
    assert_non_null(open);
    line = strstr(open, "\n * %");
    assert_true(line && line < at);
    line = strpbrk(line, "=-");
    assert_true(line && line < at);
}

/* What no person would write. */
static const char *const clumsy[] = {"lo - 0", "((i)",      "(i) %",    " / 1 ",
                                     " % 1 ",  "t0 - (f32", "] - (f32x"};

/* Of a row of the table. */
static void check_function(const char *source, const char *row)
{
    char head[128];
    const char *at;

    snprintf(head, sizeof(head), "\nvoid %.*s(", (int)strcspn(row, ","), row);
    at = strstr(source, head);
    assert_non_null(at);
    check_comment(source, at + 1);
}

static void it_reads_well(const ts_executable *x)
{
    const char *source = ts_executable_source(x);
    int kernels = ts_executable_stats(x).kernels;
    const char *row;

    check_width(source);
    for (int i = 0; i < TS_COUNT(clumsy); i++)
        if (strstr(source, clumsy[i]))
            fail_msg("the source has '%s' in it", clumsy[i]);
    assert_true(kernels > 5);
    row = strstr(source, "kernel table[] = {");
    assert_non_null(row);
    for (int i = 0; i < kernels; i++) {
        row = strstr(row + 1, "\n    {k");
        assert_non_null(row);
        check_function(source, row + strlen("\n    {"));
    }
}

static void a_net(void **state)
{
    ts_executable *x = compile(*state);

    it_reads_well(x);
    if (!test_brief())
        the_command_works(x);
    ts_executable_free(x);
}

/* A name that would end the comment, or that a shell would take apart, is not written. */
static void a_name_that_cannot_stand_there(void **state)
{
    static const char *const names[] = {"/opt/*/gcc", "'my cc'", "gcc\n-m64", "a;b"};
    ts_arena *a = ts_arena_new();

    (void)state;
    for (int i = 0; i < TS_COUNT(names); i++)
        assert_string_equal(ts_cc_by_hand(a, &(ts_options){.cc = names[i]}, "-O2"),
                            "$CC -O2 -shared -o step.so step.c -lm");
    assert_string_equal(ts_cc_by_hand(a, &(ts_options){.cc = "ccache gcc-12"}, "-O2"),
                        "ccache gcc-12 -O2 -shared -o step.so step.c -lm");
    ts_arena_free(a);
}

int main(void)
{
    static net nets[] = {{fashion, ts_sgd, 1}, {digits, ts_sgd, 1}, {pipeline, ts_adamw, 10}};
    const struct CMUnitTest tests[] = {
        {"fashion", a_net, NULL, NULL, &nets[0]},
        {"digits", a_net, NULL, NULL, &nets[1]},
        {"pipeline", a_net, NULL, NULL, &nets[2]},
        cmocka_unit_test(a_name_that_cannot_stand_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

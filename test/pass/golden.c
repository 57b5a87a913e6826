/* golden.c - every pass against files: test/pass/<pass>/<case>.ir goes through <pass> and must come
 * out as <case>.want, or fail with the words in <case>.err.
 *
 * The first lines of a case may hold options: `#! optimizer=sgd lr=0.1 momentum=0.9`. With
 * TS_GOLDEN_UPDATE=1 in the environment the files are rewritten instead (make golden). A new pass
 * needs a folder and nothing here.
 */
#include "plan/plan.h"
#include "support.h"
#include <dirent.h>
#include <unistd.h>

typedef struct settings {
    ts_options options;
    ts_optimizer optimizer;
    const char *machine; /* what it differs in from the one that tests */
} settings;

/* What `#!` can set. */
static const struct {
    const char *key;
    char kind; /* b bool, i int, f double, s string, t dtype */
    size_t at;
} keys[] = {
#define OPTION(kind, name)                                                                         \
    {                                                                                              \
#name, kind, offsetof(settings, options.name)                                              \
    }
#define OPTIMIZER(kind, name)                                                                      \
    {                                                                                              \
#name, kind, offsetof(settings, optimizer.name)                                            \
    }
#define HYPER(kind, name)                                                                          \
    {                                                                                              \
#name, kind, offsetof(settings, optimizer.hyper.name)                                      \
    }
    OPTION('i', device_iterations),
    OPTION('i', gradient_accumulation),
    OPTION('i', devices),
    OPTION('i', device_kind),
    OPTION('b', accumulate_sum),
    OPTION('b', accumulate_running),
    OPTION('b', no_winograd),
    OPTION('b', stochastic_rounding),
    OPTION('b', exceptions),
    OPTION('s', isa),
    {"machine", 's', offsetof(settings, machine)},
    OPTIMIZER('i', variable),
    OPTIMIZER('f', loss_scaling),
    OPTIMIZER('f', max_grad_norm),
    OPTIMIZER('f', max_grad_value),
    OPTIMIZER('b', bias_correction),
    OPTIMIZER('b', centered),
    OPTIMIZER('b', tf_variant),
    OPTIMIZER('b', combined_accum),
    OPTIMIZER('t', accum_type),
    OPTIMIZER('t', first_type),
    OPTIMIZER('t', second_type),
    OPTIMIZER('b', automatic_scaling),
    OPTIMIZER('f', scaling_edge),
    OPTIMIZER('f', scaling_share),
    OPTIMIZER('i', scaling_period),
    HYPER('f', lr),
    HYPER('f', momentum),
    HYPER('f', dampening),
    HYPER('f', weight_decay),
    HYPER('f', beta1),
    HYPER('f', beta2),
    HYPER('f', eps),
    HYPER('f', alpha),
    HYPER('f', max_weight_norm),
    HYPER('f', velocity_scaling),
    HYPER('b', nesterov),
};

/* With settings of its own, not the constructors' defaults: a case says what it depends on. */
static void set_optimizer(settings *s, const char *name)
{
    static const char *const kinds[] = {
        [TS_OPTIMIZER_SGD] = "sgd",     [TS_OPTIMIZER_ADAM] = "adam",
        [TS_OPTIMIZER_ADAMW] = "adamw", [TS_OPTIMIZER_RMSPROP] = "rmsprop",
        [TS_OPTIMIZER_LAMB] = "lamb",
    };

    for (int i = 0; i < TS_COUNT(kinds); i++)
        if (!strcmp(kinds[i], name)) {
            s->optimizer = (ts_optimizer){
                .kind = (ts_optimizer_kind)i,
                .hyper = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .alpha = 0.99},
                .variable = TS_HYPER_LR,
                .loss_scaling = 1,
                .bias_correction = true,
            };
            s->options.optimizer = &s->optimizer;
            return;
        }
    fail_msg("there is no optimizer '%s'", name);
}

static void set_key(settings *s, const char *key, const char *value)
{
    for (int i = 0; i < TS_COUNT(keys); i++) {
        void *to = (char *)s + keys[i].at;
        if (strcmp(keys[i].key, key))
            continue;
        if (keys[i].kind == 'b')
            *(bool *)to = atoi(value) != 0;
        else if (keys[i].kind == 'i')
            *(int *)to = atoi(value);
        else if (keys[i].kind == 'f')
            *(double *)to = atof(value);
        else if (keys[i].kind == 't')
            assert_ok(ts_dtype_parse(value, strlen(value), to));
        else
            *(const char **)to = value;
        return;
    }
    fail_msg("'%s' is no option of a golden case", key);
}

/* The optimizer first, whatever the order: the other keys change what it starts with. */
static void read_settings(ts_arena *a, const char *text, settings *s)
{
    for (int round = 0; round < 2; round++)
        for (const char *line = text; !strncmp(line, "#!", 2);
             line += strcspn(line, "\n"), line += *line == '\n') {
            char *copy = ts_arena_printf(a, "%.*s", (int)strcspn(line, "\n") - 2, line + 2);
            for (char *save, *word = strtok_r(copy, " \t", &save); word;
                 word = strtok_r(NULL, " \t", &save)) {
                char *value = strchr(word, '=');
                if (!value)
                    fail_msg("'%s' is not key=value", word);
                *value++ = 0;
                if (!strcmp(word, "optimizer") != !round)
                    continue;
                if (!round)
                    set_optimizer(s, value);
                else
                    set_key(s, word, value);
            }
        }
}

/* --- one case --- */

typedef struct golden {
    char *name, *folder, *pass; /* "autodiff/shared", where it is, "autodiff" */
} golden;

/* What a pass made is text that reads back and prints the same. */
static void check_readable(const char *text)
{
    ts_graph *g;
    char *one, *two;

    assert_ok(ts_graph_parse(text, &g));
    one = ts_graph_text(g);
    ts_graph_free(g);
    assert_ok(ts_graph_parse(one, &g));
    two = ts_graph_text(g);
    ts_graph_free(g);
    assert_string_equal(one, two);
    free(one);
    free(two);
}

/* The text that comes out: a graph, or an error. */
static char *outcome(ts_arena *a, const golden *c, const char *text, bool *failed)
{
    settings s = {0};
    const ts_graph *out;
    ts_graph *g;
    char *printed, *result;

    read_settings(a, text, &s);
    setenv("TESSERA_MACHINE", s.machine ? s.machine : "", 1);
    *failed = true;
    if (ts_graph_parse(text, &g))
        return ts_arena_strdup(a, ts_error_text());
    if (!strcmp(c->pass, "cut") ? ts_pass_step(a, "cut", ts_plan_cut, g, &s.options, &out)
                                : ts_pass_run(a, c->pass, g, &s.options, &out)) {
        ts_graph_free(g);
        return ts_arena_strdup(a, ts_error_text());
    }
    *failed = false;
    printed = ts_graph_text(out);
    result = ts_arena_strdup(a, printed);
    free(printed);
    check_readable(result);
    ts_graph_free(g);
    return result;
}

static void rewrite(ts_arena *a, const char *base, const char *text, bool failed)
{
    const char *want = ts_arena_printf(a, "%s.want", base),
               *err = ts_arena_printf(a, "%s.err", base);

    unlink(failed ? want : err);
    assert_ok(ts_file_write(failed ? err : want, text, strlen(text)));
}

static void run_case(void **state)
{
    const golden *c = *state;
    ts_arena *a = ts_arena_new();
    const char *base = ts_arena_printf(a, "%s/%s", c->folder, c->name), *result;
    char *text, *want;
    size_t len;
    bool failed;

    assert_ok(ts_file_read(ts_arena_printf(a, "%s.ir", base), &text, &len));
    result = outcome(a, c, text, &failed);
    if (getenv("TS_GOLDEN_UPDATE")) {
        rewrite(a, base, result, failed);
    } else {
        if (ts_file_read(ts_arena_printf(a, "%s.%s", base, failed ? "err" : "want"), &want, &len))
            fail_msg("%s; the case came out as\n%s", ts_last_error()->message, result);
        assert_string_equal(result, want);
        free(want);
    }
    free(text);
    ts_arena_free(a);
}

/* --- finding them --- */

static int by_name(const void *x, const void *y)
{
    return strcmp(((const struct CMUnitTest *)x)->name, ((const struct CMUnitTest *)y)->name);
}

static void add_cases(ts_arena *a, const char *root, const char *pass, struct CMUnitTest **tests,
                      int *n)
{
    DIR *d = opendir(ts_arena_printf(a, "%s/%s", root, pass));

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        golden *c;
        if (len < 4 || strcmp(e->d_name + len - 3, ".ir"))
            continue;
        c = TS_NEW(a, golden);
        c->folder = ts_arena_strdup(a, root);
        c->pass = ts_arena_strdup(a, pass);
        c->name = ts_arena_printf(a, "%s/%.*s", pass, (int)len - 3, e->d_name);
        TS_PUSH(a, *tests, *n,
                ((struct CMUnitTest){.name = c->name, .test_func = run_case, .initial_state = c}));
    }
    closedir(d);
}

int main(void)
{
    const char *source = getenv("TS_SOURCE_ROOT");
    ts_arena *a = ts_arena_new();
    char *root = ts_arena_printf(a, "%s/test/pass", source ? source : ".");
    struct CMUnitTest *tests = NULL;
    DIR *d = opendir(root);
    int n = 0, failed;

    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            add_cases(a, root, e->d_name, &tests, &n);
    if (d)
        closedir(d);
    if (!n) {
        fprintf(stderr, "no golden cases under %s; is TS_SOURCE_ROOT set?\n", root);
        return 1;
    }
    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    setenv("TESSERA_ISA", "x86-64-v4", 1);
    qsort(tests, (size_t)n, sizeof(*tests), by_name);
    failed = _cmocka_run_group_tests("golden", tests, (size_t)n, NULL, NULL);
    ts_arena_free(a);
    return failed;
}

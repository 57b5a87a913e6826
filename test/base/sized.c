/* sized.c - programs that were built with an older header, or with a newer one: every call that takes
 * a struct of options or fills one of results is made with a smaller and with a larger one. */
#include "graph/graph.h"
#include "support.h"

enum { MORE = 16, GUARD = 0x5a };

static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *y = ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2);

    ts_output(y, "y");
    ts_loss(ts_sum(y, 0, NULL, false));
    return g;
}

/* A struct as a newer header has it: ours, and what we do not know. */
#define LARGER(type)                                                                               \
    struct {                                                                                       \
        type known;                                                                                \
        char more[MORE];                                                                           \
    }

static void assert_refused(ts_status s, const char *call)
{
    char words[200];

    snprintf(words, sizeof(words), "%s is asked for what this library, version %s, does not know",
             call, ts_version());
    assert_int_equal(s, TS_ERR_ARG);
    assert_string_equal(ts_last_error()->message, words);
    assert_non_null(strstr(ts_last_error()->hint, "newer version"));
}

/* --- options --- */

static void an_older_program_compiles(void **state)
{
    ts_options opt = {
        .executor = TS_EXECUTOR_REFERENCE, .skip = "no such pass", .device_memory = -1};
    ts_optimizer o = ts_sgd(0.5);
    ts_graph *g = net();
    ts_executable *x;
    ts_plan_info *p;
    ts_stats stats;

    (void)state;
    o.max_grad_value = -1; /* of a version that it does not know */
    opt.optimizer = &o;
    assert_int_equal(ts_compile(g, &opt, &x), TS_ERR_ARG);
    assert_ok(ts_compile_sized(g, &opt, offsetof(ts_options, skip),
                               offsetof(ts_optimizer, max_grad_value), &x));
    ts_executable_free(x);
    assert_ok(ts_estimate_sized(g, &opt, offsetof(ts_options, skip),
                                offsetof(ts_optimizer, max_grad_value), &stats, sizeof(stats)));
    assert_ok(ts_plan_new_sized(g, &opt, offsetof(ts_options, skip),
                                offsetof(ts_optimizer, max_grad_value), &p));
    ts_plan_free(p);
    assert_ok(ts_compile_sized(g, NULL, 0, 0, &x));
    ts_executable_free(x);
    ts_graph_free(g);
}

/* What the library does not know may be there, as long as it is not used. */
static void a_newer_program_compiles_unless_it_asks(void **state)
{
    LARGER(ts_options) opt = {.known = {.executor = TS_EXECUTOR_REFERENCE}};
    LARGER(ts_optimizer) o = {.known = ts_sgd(0.5)};
    ts_graph *g = net();
    ts_executable *x;
    ts_plan_info *p;
    ts_stats stats;

    (void)state;
    opt.known.optimizer = &o.known;
    assert_ok(ts_compile_sized(g, &opt.known, sizeof(opt), sizeof(o), &x));
    ts_executable_free(x);
    o.more[3] = 1;
    assert_refused(ts_compile_sized(g, &opt.known, sizeof(opt), sizeof(o), &x), "ts_compile");
    o.more[3] = 0;
    opt.more[MORE - 1] = 1;
    assert_refused(ts_compile_sized(g, &opt.known, sizeof(opt), sizeof(o), &x), "ts_compile");
    assert_refused(ts_estimate_sized(g, &opt.known, sizeof(opt), sizeof(o), &stats, sizeof(stats)),
                   "ts_estimate");
    assert_refused(ts_plan_new_sized(g, &opt.known, sizeof(opt), sizeof(o), &p), "ts_plan_new");
    ts_graph_free(g);
}

static void engines_and_training(void **state)
{
    static const float x[8][3] = {{1}};
    LARGER(ts_run_options) run = {.known = {.threads = 1}};
    LARGER(ts_train_options) how = {.known = {.epochs = 1}};
    ts_optimizer sgd = ts_sgd(0.5);
    ts_graph *g = net();
    ts_executable *exe;
    ts_engine *e;
    double loss;

    (void)state;
    assert_ok(
        ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE, .optimizer = &sgd}, &exe));
    run.known.host = (ts_host_fn *)1; /* beyond what an older program has */
    assert_ok(ts_engine_new_sized(exe, &run.known, offsetof(ts_run_options, comm), &e));
    ts_engine_free(e);
    run.known.host = NULL;
    run.more[0] = 1;
    assert_refused(ts_engine_new_sized(exe, &run.known, sizeof(run), &e), "ts_engine_new");
    run.more[0] = 0;
    assert_ok(ts_engine_new_sized(exe, &run.known, sizeof(run), &e));
    assert_ok(ts_train_sized(e, 8, (const void *[]){x}, &how.known, sizeof(int), &loss));
    how.more[1] = 1;
    assert_refused(ts_train_sized(e, 8, (const void *[]){x}, &how.known, sizeof(how), &loss),
                   "ts_train");
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

static void the_rest_by_name(void **state)
{
    LARGER(ts_attach_options) attach = {.more = {1}};
    LARGER(ts_model_options) model = {.more = {1}};
    LARGER(ts_dataset_options) data = {.known = {.name = "mnist"}, .more = {1}};
    LARGER(ts_image_options) image = {.more = {1}};
    LARGER(ts_loader_options) loader = {.more = {1}};
    LARGER(ts_export_options) export = {.more = {1}};
    LARGER(ts_curves) curves = {.more = {1}};
    LARGER(ts_prediction) prediction = {.more = {1}};
    LARGER(ts_bar_options) bar = {.more = {1}};
    ts_attachment *a;
    ts_model *m;
    ts_model_layer *layers;
    ts_dataset *d;
    ts_loader *l;
    ts_array array;
    ts_c_files files;
    ts_graph *g;
    char path[64];
    int n;

    (void)state;
    assert_refused(ts_device_attach_sized(&attach.known, sizeof(attach), &a), "ts_device_attach");
    assert_ok(ts_model_load("mlp", &m));
    assert_refused(ts_model_graph_sized(m, &model.known, sizeof(model), &g), "ts_model_graph");
    assert_refused(
        ts_model_layers_sized(m, &model.known, sizeof(model), &layers, sizeof(*layers), &n),
        "ts_model_layers");
    ts_model_free(m);
    assert_refused(ts_dataset_load_sized(&data.known, sizeof(data), 0, &d), "ts_dataset_load");
    assert_refused(ts_dataset_find_sized(&data.known, sizeof(data), path, sizeof(path)),
                   "ts_dataset_find");
    data.more[0] = 0;
    data.known.image = &image.known;
    assert_refused(ts_dataset_load_sized(&data.known, sizeof(data), sizeof(image), &d),
                   "ts_dataset_load");
    assert_refused(ts_image_load_sized("x.png", &image.known, sizeof(image), &array),
                   "ts_image_load");
    assert_refused(ts_loader_new_sized(NULL, &loader.known, sizeof(loader), &l), "ts_loader_new");
    g = net();
    assert_refused(ts_export_c_sized(g, &export.known, sizeof(export), &files, sizeof(files)),
                   "ts_export_c");
    ts_graph_free(g);
    assert_refused(ts_plot_curves_sized("x.png", &curves.known, sizeof(curves)), "ts_plot_curves");
    assert_refused(ts_plot_image_sized("x.png", &prediction.known, sizeof(prediction)),
                   "ts_plot_image");
    assert_null(ts_bar_open_sized(&bar.known, sizeof(bar)));
}

/* --- results --- */

static void results_as_the_caller_knows_them(void **state)
{
    LARGER(ts_stats) stats;
    LARGER(ts_machine_info) machine;
    LARGER(ts_optimizer) sgd;
    ts_optimizer_kind kind = TS_OPTIMIZER_SGD;
    ts_machine_info whole;

    (void)state;
    memset(&stats, GUARD, sizeof(stats));
    ts_executable_stats_sized(NULL, &stats.known, offsetof(ts_stats, native));
    assert_true(stats.known.compile_seconds == 0);
    assert_int_equal(((unsigned char *)&stats)[offsetof(ts_stats, native)], GUARD);
    ts_executable_stats_sized(NULL, &stats.known, sizeof(stats));
    assert_true(!stats.more[0] && !stats.more[MORE - 1]);

    ts_machine(&whole);
    memset(&machine, GUARD, sizeof(machine));
    ts_machine_sized(&machine.known, offsetof(ts_machine_info, allowed));
    assert_int_equal(machine.known.cores, whole.cores);
    assert_int_equal(((unsigned char *)&machine)[offsetof(ts_machine_info, allowed)], GUARD);

    memset(&sgd, GUARD, sizeof(sgd));
    ts_optimizer_init(kind, 0.5, &sgd.known, offsetof(ts_optimizer, loss_scaling));
    assert_true(sgd.known.hyper.lr == 0.5);
    assert_int_equal(((unsigned char *)&sgd)[offsetof(ts_optimizer, loss_scaling)], GUARD);
    ts_optimizer_init(kind, 0.5, &sgd.known, sizeof(sgd));
    assert_true(sgd.known.loss_scaling == 1 && !sgd.more[0] && !sgd.more[MORE - 1]);
}

/* In a list each is as far from the next as the caller thinks. */
static void lists_with_the_callers_stride(void **state)
{
    typedef LARGER(ts_model_layer) larger;
    ts_model_layer *layers, *ours;
    ts_model *m;
    int n, count;

    (void)state;
    assert_ok(ts_model_load("mlp", &m));
    assert_ok(ts_model_layers(m, NULL, &ours, &n));
    assert_ok(ts_model_layers_sized(m, NULL, 0, &layers, sizeof(larger), &count));
    assert_int_equal(count, n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(((larger *)layers)[i].known.name, ours[i].name);
        assert_true(((larger *)layers)[i].known.flops == ours[i].flops);
        assert_int_equal(((larger *)layers)[i].more[0], 0);
    }
    free(layers);
    assert_ok(ts_model_layers_sized(m, NULL, 0, &layers, offsetof(ts_model_layer, line), &count));
    for (int i = 0; i < n; i++)
        assert_ptr_equal(((const char **)layers)[3 * i], ours[i].name);
    free(layers);
    free(ours);
    ts_model_free(m);
}

/* Options of layers carry their size. The last ones of each struct, of a smaller, a larger and one that
 * was made by hand. */
static void options_of_layers(void **state)
{
    LARGER(ts_conv_options) conv = {.known = {.no_bias = true}};
    LARGER(ts_loss_options) loss = {.known = {.reduction = TS_REDUCTION_NONE}};
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 3, 8, 8);

    (void)state;
    assert_non_null(ts_conv_layer(x, "by hand", 2, 4, 3, &conv.known));
    conv.known.size = offsetof(ts_conv_options, no_bias);
    assert_non_null(ts_conv_layer(x, "older", 2, 4, 3, &conv.known));
    conv.known.size = sizeof(conv);
    assert_non_null(ts_conv_layer(x, "newer", 2, 4, 3, &conv.known));
    assert_null(ts_graph_find_state(g, "by hand.bias"));
    assert_non_null(ts_graph_find_state(g, "older.bias"));
    assert_null(ts_graph_find_state(g, "newer.bias"));
    loss.known.size = sizeof(loss);
    assert_int_equal(ts_rank(ts_loss_o("mse_loss", x, x, &loss.known)), 4);
    loss.more[2] = 1;
    assert_null(ts_loss_o("mse_loss", x, x, &loss.known));
    assert_refused(ts_graph_check(g), "the layer");
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_program_compiles),
        cmocka_unit_test(a_newer_program_compiles_unless_it_asks),
        cmocka_unit_test(engines_and_training),
        cmocka_unit_test(the_rest_by_name),
        cmocka_unit_test(results_as_the_caller_knows_them),
        cmocka_unit_test(lists_with_the_callers_stride),
        cmocka_unit_test(options_of_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

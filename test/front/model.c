/* model.c - models from descriptions: what the lines make, what is wrong with wrong ones, and that
 * hostile ones cost a moment. */
#include "front/front.h"
#include "support.h"
#include <unistd.h>

static ts_model *parse(const char *text)
{
    ts_model *m;

    assert_ok(ts_model_parse(text, "net.txt", &m));
    return m;
}

static ts_graph *graph(const ts_model *m, ts_model_options o)
{
    ts_graph *g;

    assert_ok(ts_model_graph(m, &o, &g));
    assert_ok(ts_graph_verify(g));
    return g;
}

/* --- every row --- */

typedef struct row_case {
    const char *input, *line, *result; /* the result's shape with a batch of 2 */
} row_case;

/* A kind without a row here fails; so does one whose shape changes. */
static const row_case layer_cases[] = {
    {"8", "f: linear 3 bias=no", "2 3"},
    {"3 9", "f: conv1d 4 kernel=3 stride=2", "2 4 4"},
    {"3 9 9", "f: conv2d 4 3 padding=1 bias=no", "2 4 9 9"},
    {"2 5 5 5", "f: conv3d 4 3 dilation=2", "2 4 1 1 1"},
    {"4 5", "f: conv_transpose1d 2 3 stride=2", "2 2 11"},
    {"4 5 5", "f: conv_transpose2d 2 3 stride=2 padding=1 output_padding=1", "2 2 10 10"},
    {"4 2 2 2", "f: conv_transpose3d 2 2 groups=2", "2 2 3 3 3"},
    {"4 3 3", "f: batch_norm momentum=0.2", "2 4 3 3"},
    {"4 3 3", "f: group_norm 2 eps=1e-3", "2 4 3 3"},
    {"5 6", "f: layer_norm affine=no", "2 5 6"},
    {"7 dtype=i32", "f: embedding 10 4", "2 7 4"},
    {"5 6", "f: positions", "2 5 6"},
    {"5 6", "f: self_attention 3 causal=yes", "2 5 6"},
    {"5 6", "f: lstm 4 layers=2 bidirectional=yes", "2 5 8"},
    {"5 6", "f: gru 4 bias=no", "2 5 4"},
    {"5 6", "f: rnn 4", "2 5 4"},
    {"3 4", "scale 0.5", "2 3 4"},
    {"3 4", "softmax dim=-1", "2 3 4"},
    {"3 4", "log_softmax", "2 3 4"},
    {"3 4 5", "flatten 2", "2 3 20"},
    {"3 4 5", "reshape 6 -1", "2 6 10"},
    {"6 5", "unflatten 3", "2 3 2 5"},
    {"3 4 5", "mean dim=2", "2 3 5"},
    {"3 4", "from input", "2 3 4"},
    {"3 4", "concat input input dim=2", "2 3 12"},
    {"6 4", "chunk 1", "2 6 4"},
    {"6 4", "channels_to_batch 3", "6 2 4"},
    {"6 4", "batch_to_channels 2", "1 12 4"},
    {"3 4", "attention input input", "2 3 4"},
};

/* Words of the vocabulary: a line of each kind of argument, and what descriptions had before. */
static const row_case word_cases[] = {
    {"3 8", "max_pool1d 2", "2 3 4"},
    {"3 8 8", "max_pool2d 3 stride=2 padding=1", "2 3 4 4"},
    {"3 4 4 4", "max_pool3d 2", "2 3 2 2 2"},
    {"3 8", "avg_pool1d 2", "2 3 4"},
    {"3 7 7", "avg_pool2d 2 ceil_mode=yes count_include_pad=no", "2 3 4 4"},
    {"3 4 4 4", "avg_pool3d 2", "2 3 2 2 2"},
    {"3 8 8", "adaptive_avg_pool2d 1 2", "2 3 1 2"},
    {"3 8 8", "adaptive_avg_pool2d 2", "2 3 2 2"},
    {"3 4 4", "upsample_nearest2d size=6", "2 3 6 6"},
    {"3 4 4", "upsample_nearest2d 8 6", "2 3 8 6"},
    {"3 4 4", "upsample_bilinear2d size=8,6 align_corners=yes", "2 3 8 6"},
    {"3 4", "relu", "2 3 4"},
    {"3 4", "gelu", "2 3 4"},
    {"3 4", "silu", "2 3 4"},
    {"3 4", "tanh", "2 3 4"},
    {"3 4", "sigmoid", "2 3 4"},
    {"3 4", "softplus", "2 3 4"},
    {"3 4", "abs", "2 3 4"},
    {"3 4", "exp", "2 3 4"},
    {"3 4", "log", "2 3 4"},
    {"3 4", "sqrt", "2 3 4"},
    {"3 4", "square", "2 3 4"},
    {"3 4", "leaky_relu 0.2", "2 3 4"},
    {"3 4", "elu alpha=0.5", "2 3 4"},
    {"3 4", "clamp -1 1", "2 3 4"},
    {"3 4", "dropout 0.1", "2 3 4"},
    {"3 4", "checkpoint", "2 3 4"},
    {"3 4 5", "transpose 1 3", "2 5 4 3"},
    {"3 4", "add input", "2 3 4"},
    {"3 4", "sub input", "2 3 4"},
    {"3 4", "mul input", "2 3 4"},
    {"4 4", "matmul input", "2 4 4"},
    {"3 8", "adaptive_avg_pool1d 3", "2 3 3"},
    {"3 8 8 8", "adaptive_max_pool3d 1 2 3", "2 3 1 2 3"},
    {"3 4", "upsample_linear1d 9 align_corners=yes", "2 3 9"},
    {"3 4 4", "upsample_bicubic2d scale_factors=2,1.5", "2 3 8 6"},
    {"3 8 8", "max_pool2d kernel=3,2 dilation=2 ceil_mode=yes", "2 3 2 4"},
    {"3 4", "mish", "2 3 4"},
    {"3 4", "hardswish", "2 3 4"},
    {"3 4", "hardtanh max_val=0.5", "2 3 4"},
    {"3 4", "gelu approximate=tanh", "2 3 4"},
    {"3 4", "add 2", "2 3 4"},
    {"3 4", "sub input alpha=0.5", "2 3 4"},
    {"3 4", "where input 0", "2 3 4"},
    {"3 4", "pow 2", "2 3 4"},
    {"3 4", "stack input dim=1", "2 2 3 4"},
    {"3 4", "sum dims=1,2 keepdim=yes", "2 1 1"},
    {"3 4", "var 2 correction=0", "2 3"},
    {"3 4", "topk 2", "2 3 2"},
    {"3 4", "permute 0 2 1", "2 4 3"},
    {"3 4", "select 1 -1", "2 4"},
    {"3 4", "unsqueeze 1", "2 1 3 4"},
    {"4 4 4", "pixel_shuffle 2", "2 1 8 8"},
    {"3 4", "constant_pad 1 2 value=3", "2 3 7"},
    {"3 4", "slice 2 1", "2 3 3"},
    {"3 4", "cumsum 1", "2 3 4"},
    {"3 8 8", "im2col 3 padding=1", "2 27 64"},
    {"3 4", "feature_dropout 0.2", "2 3 4"},
    {"3 4", "rrelu", "2 3 4"},
    {"3 4", "clone", "2 3 4"},
    {"3 4", "scaled_dot_product_attention input input is_causal=yes", "2 3 4"},
};

static void print_shape(const ts_value *v, char *out, size_t size)
{
    size_t n = 0;

    out[0] = 0;
    for (int i = 0; i < ts_rank(v); i++)
        n += (size_t)snprintf(out + n, size - n, "%s%ld", i ? " " : "", (long)ts_dim(v, i));
}

static void check_layer(const ts_line_kind *k, const row_case *c)
{
    char text[200], shape[100];
    ts_model *m;
    ts_graph *g;

    snprintf(text, sizeof(text), "input %s\n%s\n", c->input, c->line);
    m = parse(text);
    if (k)
        assert_ptr_equal(m->lines[0].kind, k);
    else
        assert_non_null(m->lines[0].kind->word);
    g = graph(m, (ts_model_options){.batch = 2});
    print_shape(g->outputs[0], shape, sizeof(shape));
    if (strcmp(shape, c->result))
        fail_msg("%s gives %s, not %s", c->line, shape, c->result);
    ts_graph_free(g);
    ts_model_free(m);
}

static void every_layer_has_its_shape(void **state)
{
    int n = 0;

    (void)state;
    for (const ts_line_kind *k = ts_layer_kinds; k->name; k++, n++) {
        assert_true(n < TS_COUNT(layer_cases));
        check_layer(k, &layer_cases[n]);
    }
    assert_int_equal(n, TS_COUNT(layer_cases));
}

static void words_have_their_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(word_cases); i++)
        check_layer(NULL, &word_cases[i]);
}

/* What stands in the table can be read. */
static void every_word_is_well_formed(void **state)
{
    const ts_word_row *w;

    (void)state;
    for (int i = 0; (w = ts_word_at(i)); i++) {
        ts_param params[TS_WORD_PARAMS];
        int n = ts_word_params(w, params);

        if (n < 1 || !w->about[0])
            fail_msg("%s has no arguments or nothing about it", w->name);
        for (int k = 0; k < n; k++) {
            const ts_param *p = &params[k];
            if (!p->name[0] || strlen(p->name) > sizeof(p->name) - 2 ||
                strlen(p->otherwise) > sizeof(p->otherwise) - 2 || !strchr("xnfibslemtdr", p->kind))
                fail_msg("%s: %s cannot be read", w->name, p->name);
            for (int j = 0; j < k; j++)
                assert_string_not_equal(params[j].name, p->name);
        }
        assert_ptr_equal(ts_word_find(w->name), w);
    }
}

/* A loss of the vocabulary: 'huber' is huber_loss. */
static void losses_that_are_words(void **state)
{
    static const char *const losses[] = {"huber delta=0.5", "soft_margin reduction=sum",
                                         "multi_margin margin=0.5", "multilabel_margin"};
    char text[100];

    (void)state;
    for (int i = 0; i < TS_COUNT(losses); i++) {
        ts_model *m;
        ts_graph *g;

        snprintf(text, sizeof(text), "input 6\nf: linear 3\nloss %s\n", losses[i]);
        m = parse(text);
        g = graph(m, (ts_model_options){.batch = 2, .training = true});
        assert_non_null(g->loss);
        assert_int_equal(g->ninputs, 2);
        ts_graph_free(g);
        ts_model_free(m);
    }
}

static void every_loss_compiles(void **state)
{
    static const char *const options[] = {"label_smoothing=0.1 reduction=sum ignore_index=0",
                                          "ignore_index=-1",
                                          "gamma=3 balance=yes factor=0.5",
                                          "",
                                          "reduction=sum",
                                          "beta=0.5",
                                          "",
                                          "",
                                          "log_target=yes",
                                          ""};
    ts_optimizer sgd = ts_sgd(0.1);
    char text[200];
    int n = 0;

    (void)state;
    for (const ts_line_kind *k = ts_loss_kinds; k->name; k++, n++) {
        ts_executable *x;
        ts_model *m;
        ts_graph *g;
        assert_true(n < TS_COUNT(options));
        snprintf(text, sizeof(text), "input 6\nf: linear 3\nloss %s %s\n", k->name, options[n]);
        m = parse(text);
        g = graph(m, (ts_model_options){.batch = 2, .training = true});
        assert_non_null(g->loss);
        assert_ok(
            ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = TS_EXECUTOR_REFERENCE}, &x));
        ts_executable_free(x);
        ts_graph_free(g);
        ts_model_free(m);
    }
    assert_int_equal(n, TS_COUNT(options));
}

/* --- whole models --- */

static const char two_blocks[] = "# two blocks and a skip\n"
                                 "input 4 6 6   # one sample\n"
                                 "classes 7\n"
                                 "\n"
                                 "block B1\n"
                                 "a.conv: conv2d 4 3 padding=1 -> skip\n"
                                 "relu\n"
                                 "repeat i 2\n"
                                 "  b{i}: conv2d 4 kernel = 3 padding=1\n"
                                 "  drop{i}: dropout 0.5\n"
                                 "end\n"
                                 "add skip\n"
                                 "block B2\r\n"
                                 "flatten\n"
                                 "fc: linear classes\n"
                                 "loss cross_entropy\n";

static void a_model_becomes_a_graph(void **state)
{
    static const char *const names[] = {"a.conv.weight", "a.conv.bias", "b0.weight", "b0.bias",
                                        "b1.weight",     "b1.bias",     "fc.weight", "fc.bias"};
    ts_model *m = parse(two_blocks);
    ts_graph *g = graph(m, (ts_model_options){.batch = 3, .training = true});
    int64_t dims[TS_MAX_RANK];

    (void)state;
    assert_string_equal(ts_model_name(m), "net");
    assert_string_equal(ts_model_about(m), "two blocks and a skip");
    assert_string_equal(ts_model_text(m), two_blocks);
    assert_int_equal(ts_model_input(m, dims), 3);
    assert_int_equal(dims[0], 4);
    assert_int_equal(ts_model_classes(m), 7);
    assert_int_equal(ts_model_parameters(m), 3 * (4 * 4 * 9 + 4) + 7 * 144 + 7);
    assert_int_equal(g->nstates, TS_COUNT(names));
    for (int i = 0; i < g->nstates; i++)
        assert_string_equal(g->states[i].value->name, names[i]);
    assert_int_equal(g->ninputs, 2);
    assert_string_equal(g->inputs[1]->name, "labels");
    assert_string_equal(g->nodes[0]->block, "B1");
    assert_string_equal(g->nodes[0]->layer, "a.conv");
    assert_string_equal(g->nodes[0]->file, "net.txt");
    assert_int_equal(g->nodes[0]->line, 6);
    assert_string_equal(g->loss->node->block, "B2");
    ts_graph_free(g);
    ts_model_free(m);
}

static int count_ops(const ts_graph *g, const char *attribute, int64_t value)
{
    int n = 0;

    for (int i = 0; i < g->nnodes; i++)
        n += ts_attr_int(g->nodes[i], attribute, -1) == value;
    return n;
}

static void training_and_inference_differ(void **state)
{
    ts_model *m = parse("input 3 4 4\nbn: batch_norm\ndropout\nflatten\nf: linear 2\nloss nll\n");
    ts_graph *train = graph(m, (ts_model_options){.training = true});
    ts_graph *infer = graph(m, (ts_model_options){0});

    (void)state;
    assert_int_equal(count_ops(train, "training", 1), 2);
    assert_int_equal(count_ops(infer, "training", 0), 2);
    assert_int_equal(train->nupdates, 2);
    assert_int_equal(infer->nupdates, 0);
    assert_null(infer->loss);
    assert_int_equal(infer->ninputs, 1);
    ts_graph_free(train);
    ts_graph_free(infer);
    ts_model_free(m);
}

/* One sample of it has no statistics, and the model is fine all the same. */
/* In the order of their layers, buffers too, and which are trained. */
static void states_can_be_asked_for(void **state)
{
    static const char *const names[] = {"bn.running_mean", "bn.running_var", "bn.weight",
                                        "bn.bias",         "f.weight",       "f.bias"};
    ts_model *m = parse("input 3 4 4\nbn: batch_norm\nflatten\nf: linear 2\nloss cross_entropy\n");
    ts_graph *g;
    bool trained;

    (void)state;
    assert_ok(ts_model_graph(m, &(ts_model_options){.batch = 2, .training = true}, &g));
    for (int i = 0; i < TS_COUNT(names); i++) {
        assert_string_equal(ts_graph_state(g, i, &trained), names[i]);
        assert_int_equal(trained, !strstr(names[i], "running"));
    }
    assert_null(ts_graph_state(g, TS_COUNT(names), &trained));
    assert_null(ts_graph_state(g, -1, NULL));
    assert_null(ts_graph_state(NULL, 0, NULL));
    ts_graph_free(g);
    ts_model_free(m);
}

static void batch_norm_of_rows_is_read(void **state)
{
    ts_model *m = parse("input 3\nbn: batch_norm\nf: linear 2\nloss cross_entropy\n");
    ts_graph *g;

    (void)state;
    assert_fails(ts_model_graph(m, &(ts_model_options){.training = true}, &g), TS_ERR_SHAPE,
                 "batch_norm in training needs more than one value per channel");
    ts_graph_free(graph(m, (ts_model_options){.batch = 2, .training = true}));
    ts_model_free(m);
}

static void sizes_can_be_asked_for(void **state)
{
    ts_model *m = parse(two_blocks), *fixed = parse("input 4\nf: linear 3\n");
    int64_t dims[] = {4, 8, 10};
    ts_graph *g = graph(m, (ts_model_options){.batch = 5, .rank = 3, .dims = dims, .classes = 2});

    (void)state;
    assert_int_equal(ts_dim(g->outputs[0], 0), 5);
    assert_int_equal(ts_dim(g->outputs[0], 1), 2);
    assert_int_equal(ts_dim(ts_graph_find_state(g, "fc.weight"), 1), 4 * 8 * 10);
    ts_graph_free(g);
    g = graph(fixed, (ts_model_options){.classes = 3}); /* as many as it has */
    assert_int_equal(ts_dim(g->outputs[0], 1), 3);
    ts_graph_free(g);
    assert_fails(ts_model_graph(fixed, &(ts_model_options){.classes = 9}, &g), TS_ERR_ARG,
                 "the model 'net' cannot be made for 9 classes: its size is fixed");
    assert_fails(ts_model_graph(fixed, &(ts_model_options){.training = true}, &g), TS_ERR_ARG,
                 "the model 'net' has no loss, and training needs one");
    assert_fails(ts_model_graph(fixed, &(ts_model_options){.batch = -1}, &g), TS_ERR_ARG,
                 "a model of batch -1, rank 0, 0 classes cannot be made");
    assert_int_equal(ts_model_graph(fixed, &(ts_model_options){.batch = INT64_MAX}, &g),
                     TS_ERR_SHAPE);
    assert_int_equal(ts_model_graph(fixed, &(ts_model_options){.rank = 2}, &g), TS_ERR_ARG);
    assert_int_equal(ts_model_graph(NULL, NULL, &g), TS_ERR_ARG);
    assert_null(g);
    ts_model_free(fixed);
    ts_model_free(m);
}

/* --- definitions, variables, several results --- */

static void expect_states(const ts_graph *g, int n, const char *const *names)
{
    assert_int_equal(g->nstates, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(g->states[i].value->name, names[i]);
}

static int count_kind(const ts_model *m, const char *kind)
{
    int n = 0;

    for (int i = 0; i < m->nlines; i++)
        n += !strcmp(m->lines[i].kind->name, kind);
    return n;
}

/* What it computes for numbers of its own. */
static char *run_text(const ts_graph *g)
{
    float in[] = {0.1f, 0.7f, -0.3f, 0.5f, 1, 2, -3, 4}, other[] = {4, 3, 2, 1, 0, -1, -2, -3},
          target[8] = {0}, out[8], loss;
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *x;
    ts_engine *e;
    char *text = malloc(200);

    assert_ok(
        ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = TS_EXECUTOR_REFERENCE}, &x));
    assert_ok(ts_engine_new(x, NULL, &e));
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(e, (const void *[]){in, other, target}, (void *[]){out, &loss}));
    snprintf(text, 200, "%a %a %a %a", (double)out[0], (double)out[3], (double)out[7],
             (double)loss);
    ts_engine_free(e);
    ts_executable_free(x);
    return text;
}

/* A definition that uses itself; its variables are its own, and sizes grow. */
static void definitions_are_layers(void **state)
{
    ts_model *m = parse("input 3\n"
                        "let base 4\n"
                        "define level depth out activation=relu\n"
                        "  if {depth}\n"
                        "    f: linear {out}\n"
                        "    if {activation} is relu\n"
                        "      relu\n"
                        "    else\n"
                        "      tanh\n"
                        "    end\n"
                        "    -> x\n"
                        "    let out {2 * (out + base) - 1}\n"
                        "    inner: level {depth-1} {out} activation=tanh\n"
                        "    concat x\n"
                        "  else\n"
                        "    inner: linear {out}\n"
                        "    inner2: dropout\n"
                        "  end\n"
                        "end\n"
                        "net: level 2 5 -> y\n"
                        "from y\n"
                        "last: linear {-base + 10}\n");
    ts_graph *g = graph(m, (ts_model_options){0});

    (void)state;
    assert_int_equal(ts_dim(ts_graph_find_state(g, "net.f.weight"), 0), 5);
    assert_int_equal(ts_dim(ts_graph_find_state(g, "net.inner.f.weight"), 0), 17);
    assert_int_equal(ts_dim(ts_graph_find_state(g, "net.inner.inner.inner.weight"), 0), 41);
    assert_int_equal(ts_dim(ts_graph_find_state(g, "last.weight"), 1), 5 + 17 + 41);
    assert_int_equal(ts_dim(ts_graph_find_state(g, "last.weight"), 0), 6);
    assert_int_equal(count_kind(m, "relu"), 1);
    assert_int_equal(count_kind(m, "tanh"), 1);
    ts_graph_free(g);
    ts_model_free(m);
}

static void sizes_grow_in_a_repeat(void **state)
{
    static const char *const names[] = {"f0.weight", "f1.weight", "f2.weight"};
    ts_model *m = parse("input 3\nlet n 4\nrepeat i 3\nf{i}: linear {n} bias=no\nlet n {n*2}\n"
                        "end\nrepeat i 0\nnothing here is read {\nend\nrepeat k 1\nrelu\nend\n");
    ts_graph *g = graph(m, (ts_model_options){0});

    (void)state;
    expect_states(g, 3, names);
    assert_int_equal(ts_dim(g->outputs[0], 1), 16);
    ts_graph_free(g);
    ts_model_free(m);
}

/* What follows is done to each, with the same weights; names stand for all of them or for one. */
static void several_results_share_weights(void **state)
{
    static const char *const names[] = {"c.weight", "c.bias", "n.running_mean", "n.running_var",
                                        "n.weight", "n.bias", "j.weight"};
    ts_model *m = parse("input 6 4 4\n"
                        "chunk 3 -> a b c\n"
                        "c: conv2d 2 1\n"
                        "add a -> all\n"
                        "n: batch_norm\n"
                        "add all\n"
                        "concat\n"
                        "j: conv2d 5 1 bias=no\n"
                        "concat b c\n"
                        "mean dim=3\nmean dim=2\n"
                        "loss cross_entropy\n");
    ts_graph *g = graph(m, (ts_model_options){.batch = 2, .training = true});

    (void)state;
    expect_states(g, TS_COUNT(names), names);
    assert_int_equal(g->nupdates, 2); /* of the last of the three */
    assert_int_equal(ts_dim(g->outputs[0], 1), 9);
    ts_graph_free(g);
    ts_model_free(m);
}

/* As PyTorch does it: one update after the other, in the order of the results. */
static void statistics_go_on_from_the_last_use(void **state)
{
    ts_model *m =
        parse("input 4\nchunk 2\nn: batch_norm affine=no\nconcat\nf: linear 1\nloss mse\n");
    ts_graph *g = graph(m, (ts_model_options){.batch = 2, .training = true});
    float in[] = {1, 2, 10, 20, 3, 4, 30, 40}, target[2] = {0}, out[2], loss, mean[2];
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *x;
    ts_engine *e;

    (void)state;
    assert_ok(ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = TS_EXECUTOR_NATIVE}, &x));
    assert_ok(ts_engine_new(x, NULL, &e));
    assert_ok(ts_engine_run(e, (const void *[]){in, target}, (void *[]){out, &loss}));
    assert_ok(ts_engine_read(e, "n.running_mean", mean, sizeof(mean)));
    assert_float_equal(mean[0], 0.9 * 0.1 * 2 + 0.1 * 20, 1e-5);
    assert_float_equal(mean[1], 0.9 * 0.1 * 3 + 0.1 * 30, 1e-5);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
    ts_model_free(m);
}

/* Two inputs through one tower, by `again` and by taking both at once: the same graph. */
static void a_layer_is_used_again(void **state)
{
    static const char tower[] = "left: input 4\nright: input 4\n"
                                "define tower out\n-> x\na: linear {out}\ntanh\nadd x\n"
                                "b: linear {out}\nend\n";
    static const char *const ways[] = {
        "t: tower 4 -> l\nfrom right\nagain t\nsub l\nloss mse\n",
        "from left right\nt: tower 4 -> l r\nfrom r\nsub l\nloss mse\n"};
    static const char *const names[] = {"t.a.weight", "t.a.bias", "t.b.weight", "t.b.bias"};
    char *text[2], all[1000];

    (void)state;
    for (int i = 0; i < 2; i++) {
        ts_model *m;
        ts_graph *g;
        snprintf(all, sizeof(all), "%s%s", tower, ways[i]);
        m = parse(all);
        g = graph(m, (ts_model_options){.batch = 2, .training = true});
        expect_states(g, TS_COUNT(names), names);
        assert_int_equal(g->ninputs, 3);
        assert_string_equal(ts_model_input_name(m, 1), "right");
        assert_null(ts_model_input_name(m, 2));
        assert_null(ts_model_input_name(m, -1));
        text[i] = run_text(g);
        ts_graph_free(g);
        ts_model_free(m);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

/* --- layers and estimates --- */

static void layers_say_what_they_make(void **state)
{
    ts_model *m = parse("input 3 4\nf: linear 5\nrelu\n");
    ts_model_layer *l;
    int n;

    (void)state;
    assert_ok(ts_model_layers(m, &(ts_model_options){.batch = 2}, &l, &n));
    assert_int_equal(n, 2);
    assert_string_equal(l[0].name, "f");
    assert_string_equal(l[1].kind, "relu");
    assert_int_equal(l[1].line, 3);
    assert_int_equal(l[0].rank, 3);
    assert_int_equal(l[0].dims[2], 5);
    assert_int_equal(l[0].parameters, 25);
    assert_int_equal(l[1].parameters, 0);
    assert_true(l[0].flops == 2 * 6 * 4 * 5 + 6 * 5); /* products, and the bias */
    assert_true(l[1].flops == 6 * 5);
    free(l);
    assert_int_equal(ts_model_layers(m, &(ts_model_options){.training = true}, &l, &n), TS_ERR_ARG);
    assert_null(l);
    assert_int_equal(n, 0);
    ts_model_free(m);
}

static void estimates_are_what_is_compiled(void **state)
{
    ts_optimizer adam = ts_adam(0.01);
    ts_options opt = {.optimizer = &adam, .executor = TS_EXECUTOR_NATIVE};
    ts_stats estimate, compiled;
    ts_executable *x;
    ts_model *m;
    ts_graph *g;

    (void)state;
    assert_ok(ts_model_load("lenet", &m));
    g = graph(m, (ts_model_options){.batch = 8, .training = true});
    assert_ok(ts_estimate(g, &opt, &estimate));
    assert_ok(ts_compile(g, &opt, &x));
    compiled = ts_executable_stats(x);
    assert_int_equal(estimate.state_bytes, compiled.state_bytes);
    assert_int_equal(estimate.peak_bytes, compiled.peak_bytes);
    assert_int_equal(estimate.kernels, compiled.kernels);
    assert_true(estimate.flops == compiled.flops);
    ts_executable_free(x);
    ts_graph_free(g);
    ts_model_free(m);
}

/* --- wrong ones --- */

#define IN "input 3 8 8\n"

static const struct {
    const char *text, *where, *message, *hint;
} wrong_cases[] = {
    {"", "net.txt:1:1", "there is no 'input SIZE ...'", ""},
    {"relu\n", "net.txt:1:1", "the description must begin with 'input SIZE ...'", ""},
    {"input\n", "net.txt:1:6", "input needs the sizes of one sample, as in 1 28 28", ""},
    {"input 0\n", "net.txt:1:7", "a size is 0; it can be 1 to 2147483647", ""},
    {"input 99999999999999999999\n", "net.txt:1:7",
     "a size is 99999999999999999999; it can be 1 to 2147483647", ""},
    {"input 1 2 3 4 5 6 7 8\n", "net.txt:1:21", "a sample has more than 7 sizes", ""},
    {IN "input 3\n", "net.txt:2:1", "there is an input already",
     "another has a name: 'NAME: input SIZE ...'"},
    {IN, "net.txt:1:1", "there are no layers", ""},
    {IN "  cov2d 5 3\n", "net.txt:2:3", "unknown layer 'cov2d'", "did you mean 'conv2d'?"},
    {IN "zzzzzzzz\n", "net.txt:2:1", "unknown layer 'zzzzzzzz'",
     "models.md and words.md in the documentation list every layer"},
    {IN "repat i 2\n", "net.txt:2:1", "unknown layer 'repat'", "did you mean 'repeat'?"},
    {IN "c: conv2d 4 kernl=3\n", "net.txt:2:13", "conv2d has no option 'kernl'",
     "did you mean 'kernel'? conv2d takes out kernel [stride=] [padding=] [dilation=] [groups=] "
     "[bias=]"},
    {IN "c: conv2d 4\n", "net.txt:2:12", "conv2d needs 'kernel'",
     "conv2d takes out kernel [stride=] [padding=] [dilation=] [groups=] [bias=]"},
    {IN "c: conv2d 4 3 5\n", "net.txt:2:15", "'5' is too much",
     "conv2d takes out kernel [stride=] [padding=] [dilation=] [groups=] [bias=]"},
    {IN "c: conv2d 4 3 kernel=5\n", "net.txt:2:15", "kernel is given twice", ""},
    {IN "c: conv2d 4 2000\n", "net.txt:2:13", "kernel is 2000; it can be 1 to 1023", ""},
    {IN "c: conv2d 4 3 bias=maybe\n", "net.txt:2:20", "bias is 'maybe'; it can be one of: no yes",
     ""},
    {IN "c: conv2d 4 3 stride=\n", "net.txt:2:22", "stride must be a whole number", ""},
    {IN "c: conv2d four 3\n", "net.txt:2:11", "out must be a whole number, not 'four'",
     "a whole number, or 'classes'"},
    {IN "conv2d 4 3\n", "net.txt:2:1", "conv2d has weights and needs a name",
     "write 'NAME: conv2d ...'; its weights are called NAME.weight"},
    {IN "a/b: conv2d 4 3\n", "net.txt:2:1", "the name of a layer cannot be 'a/b'",
     "letters, digits, '_' and '.' make a name"},
    {IN "a:\n", "net.txt:2:3", "a layer is missing", ""},
    {IN "dropout nan\n", "net.txt:2:9", "p must be a number, not 'nan'", ""},
    {IN "dropout 0x1p-3\n", "net.txt:2:9", "p must be a number, not '0x1p-3'", ""},
    {IN "relu ->\n", "net.txt:2:8", "the name of the result is missing", ""},
    {IN "relu -> a + b\n", "net.txt:2:11", "the name of the result cannot be '+'",
     "letters, digits, '_' and '.' make a name"},
    {IN "relu -> here\nadd hero\n", "net.txt:3:5", "there is no result 'hero' yet",
     "did you mean 'here'?"},
    {IN "attention\n", "net.txt:2:10", "attention needs the name of an earlier result",
     "'-> a' after a layer keeps its result as 'a'"},
    {IN "hardtanh min=1\n", "net.txt:2:10", "hardtanh has no option 'min'",
     "hardtanh takes x min_val:f=-1 max_val:f=1"},
    {IN "hardtanh 1 2 3\n", "net.txt:2:14", "'3' is too much",
     "hardtanh takes x min_val:f=-1 max_val:f=1"},
    {IN "hardtanh 1 min_val=2\n", "net.txt:2:12", "min_val is given twice", ""},
    {IN "permute 0 one\n", "net.txt:2:11", "'one' is too much", "permute takes x dims:l"},
    {IN "rand 2\n", "net.txt:2:1", "rand makes nothing of the result before it", ""},
    {IN "reshape\n", "net.txt:2:8", "a size must be a whole number", ""},
    {IN "reshape 1 2 3 4 5 6 7 8\n", "net.txt:2:23", "more than 7 sizes", ""},
    {IN "relu\nloss\n", "net.txt:3:5", "the kind of the loss is missing", ""},
    {IN "relu\nloss cros_entropy\n", "net.txt:3:6", "unknown loss 'cros_entropy'",
     "did you mean 'cross_entropy'?"},
    {IN "relu\nloss mse\nrelu\n", "net.txt:4:1", "nothing can follow the loss", ""},
    {IN "relu\nloss mse\nloss l1\nloss l1\nloss l1\nloss l1\nloss l1\nloss l1\nloss l1\nloss l1\n",
     "net.txt:11:1", "there are 8 losses already", ""},
    {IN "relu\nloss mse\nloss l1\nrelu\n", "net.txt:5:1", "nothing can follow the loss", ""},
    {IN "f: linear classes\n", "net.txt:2:1",
     "a layer has 'classes' outputs, and no line 'classes N' says how many", ""},
    {IN "classes 2\nclasses 2\n", "net.txt:3:1", "the number of classes is said already", ""},
    {IN "block\n", "net.txt:2:6", "the name of the block is missing", ""},
    {IN "repeat i 2\nrelu\n", "net.txt:3:1", "the repeat of line 2 has no 'end'", ""},
    {IN "end\n", "net.txt:2:1", "'end' without 'repeat', 'if' or 'define'", ""},
    {IN "repeat i -1\n", "net.txt:2:10", "the number of rounds is -1; it can be 0 to 2000", ""},
    {IN "repeat i 2\nrepeat i 2\n", "net.txt:3:8", "the variable 'i' is taken", ""},
    {IN "repeat 1 2\n", "net.txt:2:8", "the variable of the repeat cannot be '1'",
     "it begins with a letter"},
    {IN "repeat i 2\nlet i 3\nend\n", "net.txt:3:5", "'i' counts the rounds of a repeat", ""},
    {IN "repeat i 2\nend\nf{i}: linear 2\n", "net.txt:4:1", "there is no variable 'i' here",
     "'let i 3' makes one; 'repeat i 3' too, for the lines up to its 'end': 0, 1, 2"},
    {IN "f{i: linear 2\n", "net.txt:2:1", "'{' without '}'", ""},
    {IN "f{\x1b[2J}: linear 2\n", "net.txt:2:1", "{...} is a name, or a sum of names and numbers",
     ""},
    {IN "let n\n", "net.txt:2:6", "the value of the variable is missing", ""},
    {IN "let n four\nf: linear {n*2}\n", "net.txt:3:11",
     "'four' is no whole number to compute with", ""},
    {IN "f: linear {3/0}\n", "net.txt:2:11", "{...} divides by 0", ""},
    {IN "f: linear {3%(2-2)}\n", "net.txt:2:11", "{...} divides by 0", ""},
    {IN "f: linear {65536*65536}\n", "net.txt:2:11", "{...} comes to 4294967296, which is too much",
     ""},
    {IN "f: linear {(2+3}\n", "net.txt:2:11", "'(' without ')' in {...}", ""},
    {IN "f: linear {2+}\n", "net.txt:2:11", "{...} is a name, or a sum of names and numbers", ""},
    {IN "f: linear {2 3}\n", "net.txt:2:11", "{...} is a name, or a sum of names and numbers", ""},
    {IN "if\nend\n", "net.txt:2:3", "the condition is missing", ""},
    {IN "if maybe\nend\n", "net.txt:2:4", "a condition cannot be 'maybe'",
     "a number that is not 0, 'yes', 'no', or two words with 'is' between them"},
    {IN "if yes\nrelu\n", "net.txt:3:1", "the if of line 2 has no 'end'", ""},
    {IN "if no\nrelu\n", "net.txt:3:1", "the if of line 2 has no 'end'", ""},
    {IN "else\n", "net.txt:2:1", "'else' without 'if'", ""},
    {IN "if 0\nrelu\nelse\nrelu\nelse\nend\n", "net.txt:6:1", "'else' without 'if'", ""},
    {IN "if 1\nrelu\nelse\nrelu\nelse\nend\n", "net.txt:6:1", "'else' without 'if'", ""},
    {IN "define\n", "net.txt:2:7", "the name of the definition is missing", ""},
    {IN "define f\nrelu\n", "net.txt:3:1", "the definition of line 2 has no 'end'", ""},
    {IN "define relu\nend\n", "net.txt:2:8", "the name 'relu' is taken", ""},
    {IN "define let\nend\n", "net.txt:2:8", "the name 'let' is taken", ""},
    {IN "define f\nend\ndefine f\nend\n", "net.txt:4:8", "the name 'f' is taken", ""},
    {IN "define f a a\nend\n", "net.txt:2:12", "there are two parameters 'a'", ""},
    {IN "repeat i 2\ndefine f\nend\nend\n", "net.txt:3:1",
     "a definition is said outside of repeats, conditions and others", ""},
    {IN "define f a b=2\nend\nf\n", "net.txt:4:2", "f needs 'a'", "f takes a [b=]"},
    {IN "define f a b=2\nend\nf 1 2 3\n", "net.txt:4:7", "f: '3' is too much", "f takes a [b=]"},
    {IN "define f a b=2\nend\nf 1 c=2\n", "net.txt:4:5", "f has no parameter 'c'",
     "f takes a [b=]"},
    {IN "define f a b=2\nend\nf 1 a=2\n", "net.txt:4:5", "a is given twice", ""},
    {IN "define f\nrelo\nend\n\nf\n", "net.txt:3:1, for line 6", "unknown layer 'relo'",
     "did you mean 'relu'?"},
    {IN "define feed\nend\nfed\n", "net.txt:4:1", "unknown layer 'fed'", "did you mean 'feed'?"},
    {IN "relu -> x\ndefine f\nadd x\nend\nf\n", "net.txt:4:5, for line 6",
     "there is no result 'x' yet",
     "a definition sees its own results, and those that are its arguments"},
    {IN "relu -> x\ndefine f y\nrelu -> x\nadd {y}\nend\nf x\n", "net.txt:4:1, for line 7",
     "'x' is what the argument 'y' names", "call one of the two results something else"},
    {IN "define f\nlet n 2\nrelu -> x\nend\nf\nf: linear {n}\n", "net.txt:7:11",
     "there is no variable 'n' here",
     "'let i 3' makes one; 'repeat i 3' too, for the lines up to its 'end': 0, 1, 2"},
    {IN "define f\nrelu -> x\nend\nf\nadd x\n", "net.txt:6:5", "there is no result 'x' yet",
     "'-> x' after an earlier layer keeps its result"},
    {IN "again\n", "net.txt:2:6", "the name of a layer is missing", ""},
    {IN "conv1: conv2d 3 1\nagain conv2\n", "net.txt:3:7", "there is no layer 'conv2' yet",
     "did you mean 'conv1'?"},
    {IN "c: conv2d 4 3,4,5\n", "net.txt:2:13", "kernel is one number, or 2 with commas", ""},
    {"input 3 4 4 4\nc: conv3d 4 3,4\n", "net.txt:2:13", "kernel is one number, or 3 with commas",
     ""},
    {IN "c: conv2d 4 3,x\n", "net.txt:2:13", "kernel must be a whole number, not 'x'", ""},
    {IN "c: conv2d 4 ,\n", "net.txt:2:13", "kernel must be a whole number, not ','", ""},
    {IN "a: input 3\na: input 3\n", "net.txt:3:1", "the name 'a' is taken", ""},
    {IN "images: input 3\n", "net.txt:2:1", "the name 'images' is taken", ""},
    {IN "relu\nb: input 3\n", "net.txt:3:1", "an input comes before the layers", ""},
    {IN "-> x y\n", "net.txt:2:1", "the input is one result, not 2", ""},
    {IN "re\x01lu\n", "net.txt:2:1", "byte 0x01 is not text", ""},
    {IN "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "net.txt:2:1",
     "a word has more than 64 letters", ""},
};

static void wrong_descriptions_say_where(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(wrong_cases); i++) {
        ts_model *m;
        assert_fails(ts_model_parse(wrong_cases[i].text, "net.txt", &m), TS_ERR_PARSE,
                     wrong_cases[i].message);
        assert_null(m);
        assert_string_equal(ts_last_error()->where, wrong_cases[i].where);
        assert_string_equal(ts_last_error()->hint, wrong_cases[i].hint);
        assert_string_equal(ts_last_error()->doing, "reading the model net.txt");
    }
}

/* What the graph refuses names the line too. */
static void sizes_that_do_not_fit_say_where(void **state)
{
    static const char *const cases[][2] = {
        {IN "relu\nc: conv2d 4 9\n", "c (conv_bias), net.txt:3"},
        {IN "relu\nc: conv2d 4 3 groups=2\n", "c (conv2d), net.txt:3:1"},
        {IN "c: conv2d 4 3\nc: conv2d 4 3\n", "c (conv2d), net.txt:3:1"},
        {"input 3\nrelu -> a\nf: linear 2\n  add a\n", "(add), net.txt:4"},
        {"input 2000000000 2000000000\nrelu\n", "net.txt:1"},
        {IN "mean\nmean\nmean\nmean\nloss cross_entropy\n", ""},
        {IN "concat\n", "(concat), net.txt:2:1"},
        {IN "relu\nchunk 2\n", "(chunk), net.txt:3:1"},
        {IN "chunk 3\nrelu\nchunk 1\nchunk 2\n", "(chunk), net.txt:5:1"},
        {IN "chunk 3 -> a b\n", "(chunk), net.txt:2:1"},
        {IN "relu -> a b\n", "(relu), net.txt:2:1"},
        {IN "topk 2 -> a b c\n", "(topk), net.txt:2:1"},
        {IN "chunk 3 -> a\nfrom input\nchunk 2 dim=2\nadd a\n", "(add), net.txt:5:1"},
        {IN "chunk 3\nrelu\n", ""},
        {IN "c: conv2d 4 1\nagain c\n", "c (conv2d), net.txt:3:1"},
        {IN "define f\nc: conv2d 4 9\nend\ng: f\n", "g.c (conv_bias), net.txt:3"},
        {IN "f: lstm 4\n", "f (lstm), net.txt:2:1"},
        {IN "unflatten 2\n", "(unflatten), net.txt:2:1"},
        {IN "channels_to_batch 2\n", "(channels_to_batch), net.txt:2:1"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_model *m;
        assert_int_not_equal(ts_model_parse(cases[i][0], "net.txt", &m), TS_OK);
        assert_int_not_equal(ts_last_error()->code, TS_ERR_INTERNAL);
        if (cases[i][1][0])
            assert_string_equal(ts_last_error()->where, cases[i][1]);
    }
}

/* --- hostile ones --- */

static void expect_refused(const char *text, const char *message)
{
    ts_model *m;

    assert_fails(ts_model_parse(text, "net.txt", &m), TS_ERR_PARSE, message);
}

static void hostile_descriptions_end_soon(void **state)
{
    ts_text t = {0};

    (void)state;
    expect_refused(IN "repeat a 2000\nrepeat b 2000\nrepeat c 2000\nend\nend\nend\n",
                   "more than 100000 lines, those of a repeat counted each time");
    expect_refused(IN "repeat a 2000\nrelu\nrelu\nend\n", "more than 2000 layers");
    ts_text_printf(&t, IN);
    for (int i = 0; i < 65; i++)
        ts_text_printf(&t, "repeat v%d 2\n", i);
    expect_refused(t.s, "more than 64 repeats, conditions and definitions in each other");
    expect_refused(IN "define f\nf\nend\nf\n",
                   "more than 64 repeats, conditions and definitions in each other");
    assert_string_equal(ts_last_error()->hint,
                        "a definition that uses itself needs an 'if' that ends it");
    expect_refused(IN "define f\ng\nend\ndefine g\nf\nend\ng\n",
                   "more than 64 repeats, conditions and definitions in each other");
    expect_refused(IN "define f n\nif {n}\nf {n-1}\nf {n-1}\nend\nend\nf 30\n",
                   "definitions are used more than 10000 times");
    expect_refused(IN "define f\nrelu\nrelu\nend\na: f\nrepeat i 2000\nagain a\nend\n",
                   "more than 2000 layers");
    expect_refused(IN "let x 1\nrepeat i 60\nlet x {x}{x}\nend\n",
                   "a word has more than 64 letters");
    t.len = 0;
    ts_text_printf(&t, IN "f: linear {");
    for (int i = 0; i < 1000; i++)
        ts_text_printf(&t, "(-");
    ts_text_printf(&t, "}\n");
    expect_refused(t.s, "more than 32 parentheses");
    t.len = 0;
    ts_text_printf(&t, IN "define f n\nif {n}\n");
    for (int i = 0; i < 50; i++)
        ts_text_printf(&t, "%s", "x");
    ts_text_printf(&t, ": f {n-1}\nend\nend\nf 30\n");
    expect_refused(t.s, "the names around a layer have more than 900 bytes");
    t.len = 0;
    ts_text_printf(&t, IN "relu");
    for (int i = 0; i < 40; i++)
        ts_text_printf(&t, " a=1");
    expect_refused(t.s, "more than 32 words on a line");
    t.len = 0;
    for (int i = 0; i < (1 << 20) + 1; i++)
        ts_text_add(&t, "#", 1);
    expect_refused(t.s, "more than 1048576 bytes; this is no description of a model");
    t.len = 0;
    ts_text_printf(&t, IN "repeat i 2000\n#");
    for (int i = 0; i < 5000; i++)
        ts_text_add(&t, "x", 1);
    expect_refused(t.s, "a line has more than 4096 bytes");
    ts_text_free(&t);
}

/* 256 results through a thousand lines. */
static void many_results_are_refused(void **state)
{
    ts_model *m;

    (void)state;
    assert_fails(ts_model_parse("input 256\nchunk 256\nrepeat i 1000\nrelu\nend\n", "net.txt", &m),
                 TS_ERR_ARG, "more than 20000 layers, those of several results counted each time");
    assert_fails(ts_model_parse("input 257\nunbind 1\n", "net.txt", &m), TS_ERR_ARG,
                 "unbind makes more than 256 results");
}

/* Doubles its width at each line: sizes end where tensors do. */
static void growth_is_refused(void **state)
{
    ts_model *m;

    (void)state;
    assert_int_equal(ts_model_parse(IN "repeat i 100\n-> x\nconcat x\nend\n", "net.txt", &m),
                     TS_ERR_SHAPE);
}

/* --- names and files --- */

static void every_named_model_loads(void **state)
{
    int n = 0;

    (void)state;
    for (; ts_model_builtin(n); n++) {
        ts_model *m;
        assert_ok(ts_model_load(ts_model_builtin(n), &m));
        assert_string_equal(ts_model_name(m), ts_model_builtin(n));
        assert_true(ts_model_about(m)[0]);
        assert_true(m->has_loss && m->uses_classes);
        ts_model_free(m);
    }
    assert_true(n > 0);
    assert_null(ts_model_builtin(-1));
}

static void files_are_read(void **state)
{
    char *folder = test_folder(), path[4096];
    ts_model *m;

    (void)state;
    snprintf(path, sizeof(path), "%s/my.net.txt", folder);
    assert_ok(ts_file_write(path, two_blocks, strlen(two_blocks)));
    assert_ok(ts_model_load(path, &m));
    assert_string_equal(ts_model_name(m), "my.net");
    ts_model_free(m);

    assert_ok(ts_file_write(path, "input 3\0relu\n", 13));
    assert_int_equal(ts_model_load(path, &m), TS_ERR_PARSE);
    assert_non_null(strstr(ts_last_error()->message, "is not text: byte 7 is 0"));
    assert_int_equal(ts_model_load(folder, &m), TS_ERR_FILE);
    assert_fails(ts_model_load("clasifier", &m), TS_ERR_FILE,
                 "there is no model 'clasifier', and no file of that name");
    assert_string_equal(ts_last_error()->hint, "did you mean 'classifier'?");
    test_folder_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_has_its_shape),
        cmocka_unit_test(words_have_their_shapes),
        cmocka_unit_test(every_word_is_well_formed),
        cmocka_unit_test(losses_that_are_words),
        cmocka_unit_test(every_loss_compiles),
        cmocka_unit_test(a_model_becomes_a_graph),
        cmocka_unit_test(training_and_inference_differ),
        cmocka_unit_test(batch_norm_of_rows_is_read),
        cmocka_unit_test(states_can_be_asked_for),
        cmocka_unit_test(sizes_can_be_asked_for),
        cmocka_unit_test(layers_say_what_they_make),
        cmocka_unit_test(estimates_are_what_is_compiled),
        cmocka_unit_test(wrong_descriptions_say_where),
        cmocka_unit_test(sizes_that_do_not_fit_say_where),
        cmocka_unit_test(hostile_descriptions_end_soon),
        cmocka_unit_test(definitions_are_layers),
        cmocka_unit_test(sizes_grow_in_a_repeat),
        cmocka_unit_test(several_results_share_weights),
        cmocka_unit_test(statistics_go_on_from_the_last_use),
        cmocka_unit_test(a_layer_is_used_again),
        cmocka_unit_test(many_results_are_refused),
        cmocka_unit_test(growth_is_refused),
        cmocka_unit_test(every_named_model_loads),
        cmocka_unit_test(files_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

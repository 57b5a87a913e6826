/* model_fuzz.c - damaged descriptions: read or refused, and what is read makes graphs that verify.
 */
#include "front/front.h"
#include "fuzz.h"
#include "support.h"

enum { RUNS = 1500, MAX_SEEDS = 32 };

static void try_graph(const ts_model *m, ts_model_options o)
{
    ts_graph *g;

    if (ts_model_graph(m, &o, &g)) {
        assert_int_not_equal(ts_last_error()->code, TS_ERR_INTERNAL);
        return;
    }
    assert_ok(ts_graph_verify(g));
    assert_true(g->noutputs >= 1 && !o.training == !g->loss);
    ts_graph_free(g);
}

static int readable;

static void read_and_make(const uint8_t *data, size_t len)
{
    char *text = strndup((const char *)data, len);
    int64_t dims[] = {3, 5};
    ts_model_layer *layers;
    ts_model *m;
    int n;

    if (ts_model_parse(text, "fuzz.txt", &m)) {
        if (ts_last_error()->code == TS_ERR_INTERNAL)
            fail_msg("%s\n%s", ts_error_text(), text);
        assert_true(ts_last_error()->message[0]);
    } else {
        readable++;
        try_graph(m, (ts_model_options){.batch = 3, .training = m->has_loss});
        try_graph(m, (ts_model_options){.batch = 2, .rank = 2, .dims = dims, .classes = 3});
        if (!ts_model_layers(m, NULL, &layers, &n))
            free(layers);
        ts_model_free(m);
    }
    free(text);
}

/* Every layer there is, for the mutator to take words from. */
static char *all_layers(void)
{
    ts_text t = {0};

    ts_text_printf(&t, "input 3 8 8\nclasses 10\nrelu -> x\n");
    for (const ts_line_kind *k = ts_layer_kinds; k->name; k++) {
        ts_text_printf(&t, "f{i}: %s", k->name);
        for (int i = 0; i < k->least_refs; i++)
            ts_text_printf(&t, " x");
        for (const ts_line_arg *a = k->args; a && a->name; a++)
            ts_text_printf(&t, " %s=%d", a->name, a->kind == 'f' ? 0 : 1);
        ts_text_printf(&t, " -> x\nrepeat i 3\n");
    }
    for (const ts_line_kind *k = ts_loss_kinds; k->name; k++)
        ts_text_printf(&t, "end\nblock B\nloss %s reduction=sum\n", k->name);
    return t.s;
}

/* What repeats, defines and shares. */
static const char growing[] =
    "left: input 6 8 8\nright: input 6 8 8\nclasses 3\nlet n 4\n"
    "define level depth out kernel=3,1\nif {depth}\n-> skip\n"
    "c: conv2d {out} {kernel} padding=1,0\nif {out} is 4\nrelu\nelse\n"
    "tanh\nend\nmain: level {depth-1} {out+n*2%5}\nconcat skip\nelse\n"
    "n: batch_norm\nend\nend\n"
    "from left right\nchunk 1 dim=2\nnet: level 2 4 kernel=3,1 -> a b\n"
    "stack dim=1\nunbind 1 -> x\nconcat x dim=1\nconcat\n"
    "j0: conv2d 6 1\nj: conv2d 6 1\nagain j\nflatten 2\ntranspose 1 2\nr: gru 3\n"
    "select 1 -1\nrepeat i 2\nf{i}: linear {(i+1)*3}\nend\n"
    "topk 3 -> v w\nfrom v\nloss cross_entropy\n";

static void damaged_descriptions(void **state)
{
    const void *seeds[MAX_SEEDS];
    size_t lens[MAX_SEEDS];
    char *all = all_layers();
    int n = 0;

    (void)state;
    seeds[n++] = all;
    seeds[n++] = growing;
    for (int i = 0; ts_model_builtin(i) && n < MAX_SEEDS; i++)
        seeds[n++] = ts_net_find(ts_model_builtin(i));
    for (int i = 0; i < n; i++)
        lens[i] = strlen(seeds[i]);
    fuzz("descriptions", seeds, lens, n, RUNS, read_and_make);
    assert_true(readable > 0 || getenv("TS_FUZZ")); /* some changes do no harm */
    free(all);
}

/* --- words with any arguments --- */

enum { ROUNDS = 80, BRIEF = 40 };

static uint64_t state_of_chance = 1;

static int chance(int n)
{
    state_of_chance = state_of_chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((state_of_chance >> 33) % (uint64_t)n);
}

static const char *a_number(void)
{
    static const char *const all[] = {"0",  "1",  "2", "3",          "4",           "-1", "-2",
                                      "-3", "8",  "1", "2147483647", "-2147483647", "7",  "2",
                                      "1",  "16", "3", "100",        "65536"};

    return all[chance(TS_COUNT(all))];
}

static void an_argument(ts_text *t, const ts_param *p)
{
    static const char *const texts[] = {"tanh", "none", "mean", "sum", "amax", "f16", "floor", "?"};
    int n = p->count ? p->count : 1 + chance(4);

    ts_text_printf(t, " %s=", p->name);
    if (strchr("xnt", p->kind) && (p->kind != 'n' || chance(2)))
        ts_text_printf(t, "%s", chance(2) ? "x" : chance(2) ? "i" : "input");
    else if (p->kind == 'b')
        ts_text_printf(t, "%s", chance(2) ? "yes" : "no");
    else if (strchr("sdr", p->kind))
        ts_text_printf(t, "%s", texts[chance(TS_COUNT(texts))]);
    else
        for (int i = 0; i < (strchr("lem", p->kind) ? n : 1); i++)
            ts_text_printf(t, "%s%s", i ? "," : "", a_number());
}

static void any_arguments(void **state)
{
    static const char *const inputs[] = {"3 8 8", "6", "4 6", "4 4", "2 4 4 4", "5 dtype=i32"};
    const ts_word_row *w;

    (void)state;
    for (int k = 0; (w = ts_word_at(k)); k++) {
        ts_param params[TS_WORD_PARAMS];
        int n = ts_word_params(w, params);

        for (int i = 0; i < (test_brief() ? BRIEF : ROUNDS); i++) {
            ts_text t = {0};
            ts_text_printf(&t, "input %s\nnop -> x\nargmax dim=-1 -> i\nfrom x\n%s",
                           inputs[chance(TS_COUNT(inputs))], w->name);
            for (int a = params[0].kind == 'x'; a < n; a++)
                if (!params[a].optional || chance(2))
                    an_argument(&t, &params[a]);
            ts_text_printf(&t, "\n");
            read_and_make((const uint8_t *)t.s, strlen(t.s));
            free(t.s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_descriptions),
                                       cmocka_unit_test(any_arguments)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* model_fuzz.c - descriptions with bytes, words and lines changed at random: they are read or
 * refused, and what is read makes graphs that verify. TS_FUZZ_RUNS sets how many, TS_ROUND which.
 */
#include "front/front.h"
#include "support.h"

enum { RUNS = 4000, ROOM = 16384 };

/* Words of the language and numbers that have hurt before. */
static const char *const words[] = {
    "->",
    "=",
    ":",
    "x",
    "input",
    "classes",
    "{i}",
    "\nend\n",
    "\nrepeat i 3\n",
    "conv2d",
    "concat x",
    "-1",
    "0",
    "2147483647",
    "1e308",
    "\nblock B\n",
    "loss nll\n",
    "kernel=",
    "bias=no",
    "#",
    "\nfrom x\n",
    "reshape -1",
    "dim=-8",
    "groups=7",
    "attention x x\n",
};

static const char *pick_word(test_random *r)
{
    int layers = 0, i;

    while (ts_layer_kinds[layers].name)
        layers++;
    i = (int)test_between(r, 0, TS_COUNT(words) + layers - 1);
    return i < TS_COUNT(words) ? words[i] : ts_layer_kinds[i - TS_COUNT(words)].name;
}

/* Replaces `gone` letters at `at` by others. */
static void splice(char *s, size_t at, size_t gone, const char *by, size_t len)
{
    size_t n = strlen(s);

    if (n - gone + len >= ROOM)
        return;
    memmove(s + at + len, s + at + gone, n - at - gone + 1);
    memcpy(s + at, by, len);
}

static void mutate(test_random *r, char *s)
{
    size_t n = strlen(s), at = (size_t)test_between(r, 0, (int64_t)n);
    size_t rest = strcspn(s + at, " \n");
    char byte = (char)test_between(r, 1, 255), piece[200];
    const char *word = pick_word(r);
    size_t from = (size_t)test_between(r, 0, (int64_t)n);
    size_t len = strlen(s + from) < sizeof(piece) ? strlen(s + from) : sizeof(piece);

    memcpy(piece, s + from, len);
    switch (test_between(r, 0, 4)) {
    case 0: /* a byte */
        splice(s, at, at < n, &byte, 1);
        break;
    case 1: /* a word */
        splice(s, at, rest, word, strlen(word));
        break;
    case 2: /* a word more */
        splice(s, at, 0, word, strlen(word));
        break;
    case 3: /* cut */
        splice(s, at, (size_t)test_between(r, 0, (int64_t)(n - at < 40 ? n - at : 40)), "", 0);
        break;
    default: /* a piece of itself */
        splice(s, at, 0, piece, (size_t)test_between(r, 0, (int64_t)len));
    }
}

static void try_graph(const ts_model *m, ts_model_options o)
{
    ts_graph *g;

    if (ts_model_graph(m, &o, &g)) {
        assert_int_not_equal(ts_last_error()->code, TS_ERR_INTERNAL);
        return;
    }
    assert_ok(ts_graph_verify(g));
    ts_graph_free(g);
}

static bool try_text(const char *text)
{
    int64_t dims[] = {3, 5};
    ts_model_layer *layers;
    ts_model *m;
    int n;

    if (ts_model_parse(text, "fuzz.txt", &m)) {
        assert_int_not_equal(ts_last_error()->code, TS_ERR_INTERNAL);
        assert_true(ts_last_error()->message[0]);
        return false;
    }
    try_graph(m, (ts_model_options){.batch = 3});
    try_graph(m, (ts_model_options){.batch = 2, .rank = 2, .dims = dims, .classes = 3});
    if (!ts_model_layers(m, NULL, &layers, &n))
        free(layers);
    ts_model_free(m);
    return true;
}

static void changed_descriptions(void **state)
{
    const char *runs = getenv("TS_FUZZ_RUNS"), *round = getenv("TS_ROUND");
    test_random r = {.state = 77 + (round ? strtoull(round, NULL, 10) : 0)};
    int nets = 0, read = 0;
    char text[ROOM];

    (void)state;
    while (ts_model_builtin(nets))
        nets++;
    for (int i = 0; i < (runs ? atoi(runs) : RUNS); i++) {
        snprintf(text, sizeof(text), "%s",
                 ts_net_find(ts_model_builtin((int)test_between(&r, 0, nets - 1))));
        for (int64_t k = test_between(&r, 1, 6); k; k--)
            mutate(&r, text);
        read += try_text(text);
    }
    print_message("%d of them could be read\n", read);
    assert_true(read > 0); /* some changes are harmless */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_descriptions)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

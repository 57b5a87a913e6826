/* options.c - command lines read by a table of every kind of option: values, order, what is
 * refused. test/python/test_tool.py runs the real command; this one has what no command has yet. */
#include "../../tool/options.c"
#include "support.h"

static struct {
    const char *file, *data, *optimizer;
    words images;
    int64_t n;
    double lr;
    bool quiet, aware;
} args;

static const option inner[] = {
    {"optimizer", "NAME", KIND_WORD, &args.optimizer, "", .choice = "sgd adam"},
    {"lr", "X", KIND_REAL, &args.lr, "", .low = 0, .high = 1},
    {0},
};
static const option table[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "", .argument = true, .needed = true},
    {"n", "N", KIND_INT, &args.n, "", .low = -5, .high = 5},
    {.name = "inner", .kind = KIND_GROUP, .target = (void *)inner},
    {"data", "DIR", KIND_TEXT, &args.data, "", .needed = true},
    {"IMAGE", NULL, KIND_WORDS, &args.images, "", .argument = true, .needed = true},
    {"quiet", NULL, KIND_FLAG, &args.quiet, .help = "", .letter = 'q'},
    {"aware", NULL, KIND_SWITCH, &args.aware, .help = ""},
    {0},
};
static const command predict = {.name = "predict", .options = table};

static int read_line(char **words)
{
    int n = 0;

    memset(&args, 0, sizeof(args));
    while (words[n])
        n++;
    return parse(&predict, n, words);
}
#define LINE(...) read_line((char *[]){__VA_ARGS__, NULL})

static void tables_in_tables_are_one(void **state)
{
    static const char *const names[] = {"FILE", "n",     "optimizer", "lr",
                                        "data", "IMAGE", "quiet",     "aware"};

    (void)state;
    for (int i = 0; i < TS_COUNT(names); i++)
        assert_string_equal(option_at(&predict, i)->name, names[i]);
    assert_null(option_at(&predict, TS_COUNT(names)));
    assert_null(option_at(&(command){.name = "none"}, 0));
}

static void switches(void **state)
{
    (void)state;
    assert_int_equal(LINE("a", "--data=x", "i", "--aware"), TOOL_OK);
    assert_true(args.aware);
    assert_int_equal(LINE("--aware=off", "a", "--data=x", "i"), TOOL_OK);
    assert_false(args.aware);
    assert_int_equal(LINE("a", "--data=x", "--aware", "no", "i", "-qq"), TOOL_OK);
    assert_true(!args.aware && args.quiet && args.images.count == 1);
    assert_int_equal(LINE("a", "--data=x", "--aware", "true"), TOOL_OK); /* the last: an image */
    assert_true(args.aware && args.images.count == 1);
    assert_int_equal(LINE("a", "--data=x", "--aware=2", "i"), TOOL_USAGE);
    assert_int_equal(LINE("a", "--data=x", "-qx", "i"), TOOL_USAGE);
}

static void values_as_text_and_back(void **state)
{
    static const char *const names[] = {"n", "optimizer", "lr", "data", "quiet"};
    static const char *const texts[] = {"-3", "adam", "0.10000000000000001", "", "yes"};
    char text[64];

    (void)state;
    assert_int_equal(
        LINE("a.pth", "--n=-3", "--optimizer=adam", "--lr=0.1", "--quiet", "b.png", "--data", "x"),
        TOOL_OK);
    assert_true(given(&args.n) && given(&args.quiet) && given(&args.file) && given(&args.data));
    args.data = NULL;
    for (int i = 0; i < TS_COUNT(names); i++)
        assert_string_equal(option_text(find_option(&predict, names[i]), text, sizeof(text)),
                            texts[i]);
    memset(&args, 0, sizeof(args));
    for (int i = 0; i < TS_COUNT(names); i++)
        option_set(find_option(&predict, names[i]), texts[i]);
    assert_int_equal(args.n, -3);
    assert_string_equal(args.optimizer, "adam");
    assert_true(args.lr == 0.1 && args.quiet && !args.data);
    assert_null(find_option(&predict, "FILE"));
    LINE("a.pth");
    assert_true(given(&args.file) && !given(&args.n));
}

static void everything_finds_its_place(void **state)
{
    (void)state;
    assert_int_equal(LINE("a.pth", "--quiet", "1.png", "--data", "x", "2.png", "--n=-3",
                          "--optimizer=adam", "--lr", "0.5", "--", "--3.png", "-"),
                     TOOL_OK);
    assert_string_equal(args.file, "a.pth");
    assert_string_equal(args.data, "x");
    assert_string_equal(args.optimizer, "adam");
    assert_int_equal(args.n, -3);
    assert_true(args.lr == 0.5);
    assert_true(args.quiet);
    assert_int_equal(args.images.count, 4);
    assert_string_equal(args.images.word[0], "1.png");
    assert_string_equal(args.images.word[1], "2.png");
    assert_string_equal(args.images.word[2], "--3.png");
    assert_string_equal(args.images.word[3], "-");
}

static void what_is_needed_must_be_there(void **state)
{
    (void)state;
    assert_int_equal(LINE("--data", "x", "a"), TOOL_USAGE); /* no image */
    assert_int_equal(LINE("a", "b"), TOOL_USAGE);           /* no data  */
    assert_int_equal(LINE("--data", "x"), TOOL_USAGE);      /* no file  */
    assert_int_equal(LINE("--data", "x", "a", "b"), TOOL_OK);
    assert_int_equal(LINE("a", "b", "--data"), TOOL_USAGE); /* no value */
    assert_int_equal(LINE("a", "b", "--data", "x", "--n", "6"), TOOL_USAGE);
    assert_int_equal(LINE("a", "b", "--data", "x", "--lr", "-0.1"), TOOL_USAGE);
    assert_int_equal(LINE("a", "b", "--data", "x", "--inner", "1"), TOOL_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_in_tables_are_one),
        cmocka_unit_test(everything_finds_its_place),
        cmocka_unit_test(switches),
        cmocka_unit_test(values_as_text_and_back),
        cmocka_unit_test(what_is_needed_must_be_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

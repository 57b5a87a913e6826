/* csv.c - tables: fields, headers, label columns, and errors that name the line. */
#include "data/data.h"
#include "support.h"

static ts_status parse(const char *text, ts_dataset_options o, ts_dataset **d)
{
    char *copy = strdup(text);
    ts_status s = ts_csv_parse("t.csv", copy, strlen(copy), &o, d);

    free(copy);
    return s;
}

static ts_dataset *table(const char *text, ts_dataset_options o)
{
    ts_dataset *d = NULL;

    assert_ok(parse(text, o, &d));
    return d;
}

static void assert_refused(const char *text, ts_dataset_options o, ts_status code,
                           const char *words)
{
    ts_dataset *d = NULL;

    assert_fails(parse(text, o, &d), code, words);
    assert_null(d);
}

/* Rows x columns of numbers and the labels, in order. */
static void assert_table(ts_dataset *d, int rows, int columns, const float *numbers,
                         const int32_t *labels)
{
    assert_int_equal(ts_dataset_count(d), rows);
    assert_int_equal(d->sample.rank, 1);
    assert_int_equal(d->sample.dims[0], columns);
    assert_memory_equal(d->sample.data, numbers, (size_t)(rows * columns) * sizeof(float));
    assert_memory_equal(d->labels, labels, (size_t)rows * sizeof(int32_t));
    ts_dataset_free(d);
}

#define ASSERT_TABLE(d, columns, ...)                                                              \
    assert_table(d, TS_COUNT(((int32_t[])LABELS)), columns, (float[]){__VA_ARGS__},                \
                 (int32_t[])LABELS)

static void rows_are_read_in_every_spelling(void **state)
{
    static const char *const texts[] = {
        "1,2,0\n3,4.5,1\n-1e2,0.25,1\n",
        "1,2,0\r\n3,4.5,1\r\n-1e2,0.25,1",
        "\357\273\2771,2,0\n\n\n3,4.5,1\n-1e2,0.25,1\n\n",
        "\"1\",2,\"0\"\n3,\"4.5\",1\n -100 ,.25,1\n",
        "a,b,c\n1,2,0\n3,4.5,1\n-1e2,0.25,1\n",
        "a,\"b\nand more\",\"c\"\n1,2,0\n3,4.5,1\n-1e2,0.25,1\n",
        "a, b, \"c\"\n1 ,2,\t0\n3, 4.5 , \"1\" \n-1e2,0.25,1\n",
        "1\t2\t0\n3\t 4.5\t1\n-1e2\t0.25\t1\n",
    };

    (void)state;
#define LABELS                                                                                     \
    {                                                                                              \
        0, 1, 1                                                                                    \
    }
    for (int i = 0; i < TS_COUNT(texts); i++)
        ASSERT_TABLE(table(texts[i], (ts_dataset_options){0}), 2, 1, 2, 3, 4.5f, -100, 0.25f);
#undef LABELS
}

static void the_label_is_found(void **state)
{
    (void)state;
#define LABELS {2, 0}
    ASSERT_TABLE(table("2,5,6\n0,7,8\n", (ts_dataset_options){.label = "0"}), 2, 5, 6, 7, 8);
    ASSERT_TABLE(table("5,2,6\n7,0,8\n", (ts_dataset_options){.label = "-2"}), 2, 5, 6, 7, 8);
    ASSERT_TABLE(table("a,y,b\n5,2,6\n7,0,8\n", (ts_dataset_options){.label = "y"}), 2, 5, 6, 7, 8);
    ASSERT_TABLE(table("a,label,b\n5,2,6\n7,0,8\n", (ts_dataset_options){0}), 2, 5, 6, 7, 8);
    ASSERT_TABLE(
        table("1,2,3\n5,6,2\n7,8,0\n9,9,9\n", (ts_dataset_options){.header = 1, .limit = 2}), 2, 5,
        6, 7, 8);
#undef LABELS
}

static void words_become_classes_in_sorted_order(void **state)
{
    ts_dataset *d =
        table("x,kind\n1,pear\n2,\"apple, \"\"red\"\"\"\n3,pear\n4,3\n", (ts_dataset_options){0});

    (void)state;
    assert_int_equal(ts_dataset_classes(d), 3);
    assert_string_equal(ts_dataset_class_name(d, 0), "3");
    assert_string_equal(ts_dataset_class_name(d, 1), "apple, \"red\"");
    assert_string_equal(ts_dataset_class_name(d, 2), "pear");
#define LABELS {2, 1, 2, 0}
    ASSERT_TABLE(d, 1, 1, 2, 3, 4);
#undef LABELS
}

/* Nothing that is meant as a number is taken for a word, and nothing that is missing for a class. */
static void what_is_no_word_is_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"a;b\n12,5;0\n3,1;1\n", "t.csv, line 2: '12,5' in column 0 (a) is not a number"},
        {"12,5;3,5;0\n3,1;1,1;1\n", "t.csv, line 1: '12,5' in column 0 is not a number"},
        {"12,5;3,5\n3,1;1,1\n", "t.csv, line 1: '12,5' in column 0 is not a number"},
        {"a;b\n1;1.234,5\n2;x\n", NULL},
        {"a,b\n1,\"1,234\"\n2,\"5,678\"\n",
         "t.csv, line 2: '1,234' in column 1 (b) is not a number"},
        {"a,b\n1e300,0\n1e301,1\n", "t.csv, line 2: '1e300' in column 0 (a) is not a number"},
        {"a,b\n0,inf\n1,-inf\n", "t.csv, line 2: 'inf' in column 1 (b) is not a number"},
        {"a,b\n1,x\n2,\n3,y\n", "t.csv, line 3: the label is missing, in column 1 (b)"},
        {"a,b\n1,0\n2,NA\n3,1\n", "t.csv, line 3: the label is missing, in column 1 (b)"},
        {"a,b\n1,0.5\n2,?\n3,1.5\n", "t.csv, line 3: the label is missing, in column 1 (b)"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_dataset *d = NULL;
        if (cases[i].words)
            assert_refused(cases[i].text, (ts_dataset_options){0}, TS_ERR_PARSE, cases[i].words);
        else
            assert_ok(parse(cases[i].text, (ts_dataset_options){0}, &d));
        if (cases[i].words)
            assert_refused(cases[i].text, (ts_dataset_options){.missing = "mean"}, TS_ERR_PARSE,
                           cases[i].words);
        ts_dataset_free(d);
    }
#define LABELS {0, 1}
    ASSERT_TABLE(table("a,b\n1,x\n2,\n3,y\n", (ts_dataset_options){.missing = "drop"}), 1, 1, 3);
    ASSERT_TABLE(
        table("a,b\n1,\"1,2\"\n3,\"2,1\"\n", (ts_dataset_options){.task = TS_TASK_CLASSES}), 1, 1,
        3);
#undef LABELS
}

/* A first line of words is a row where they come up again, and names where they do not. */
static void a_table_of_words_needs_no_names(void **state)
{
    (void)state;
#define LABELS {1, 0, 1}
    ASSERT_TABLE(table("red,yes\nblue,no\nred,yes\n", (ts_dataset_options){0}), 2, 0, 1, 1, 0, 0,
                 1);
    ASSERT_TABLE(table("c,w\nred,yes\nblue,no\nred,yes\n", (ts_dataset_options){0}), 2, 0, 1, 1, 0,
                 0, 1);
#undef LABELS
}

/* Another file of the same table: with all columns, without the label, or with an empty one. */
static void rows_to_predict_for(void **state)
{
    static const char columns[] = "c\twords\tblue\tred\nw\tlabel\tno\tyes\nn\tnumber\t2\n";
    const ts_dataset_options o = {.columns = columns, .task = TS_TASK_CLASSES};
    static const char *const texts[] = {
        "c,w,n\nred,,5\n", "c,n\nred,5\n", "n,c\n5,red\n", "red,5\n", "red,,5\n", "w,c,n\n,red,5\n",
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(texts); i++) {
        ts_dataset *d = table(texts[i], o);
        assert_int_equal(ts_dataset_classes(d), 0);
#define LABELS {0}
        ASSERT_TABLE(d, 3, 0, 1, 5);
#undef LABELS
    }
    assert_refused("red,yes,5,6\n", o, TS_ERR_SHAPE, "t.csv has 4 columns, and 3 are needed");
    assert_refused("red\n", o, TS_ERR_SHAPE, "t.csv has 1 columns, and 3 are needed");
    assert_refused("c,w,n\nred,yes,5\nred,,5\n", o, TS_ERR_PARSE,
                   "t.csv, line 3: the label is missing, in column 1 (w)");
}

static void errors_name_the_line_and_the_column(void **state)
{
    const ts_dataset_options none = {0};

    (void)state;
    assert_refused("", none, TS_ERR_PARSE, "t.csv is empty");
    assert_refused("\n\n", none, TS_ERR_PARSE, "t.csv is empty");
    assert_refused("a,b\n", none, TS_ERR_PARSE, "t.csv has a header and no rows");
    assert_refused("1\n2\n", none, TS_ERR_PARSE,
                   "t.csv has one column: a row needs numbers and a label");
    assert_refused("1,2\n3,4,5\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: the row has 3 fields, and the first has 2");
    assert_refused("a,\"b\n2\"\n\n3,4\nx,4\n", none, TS_ERR_PARSE,
                   "t.csv, line 5: 'x' in column 0 (a) is not a number");
    assert_refused("1,2,3\n1,,3\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: '' in column 1 is not a number");
    assert_refused("1,2\nnan,2\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: 'nan' in column 0 is not a number");
    assert_refused("1,2\n1e99,2\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: '1e99' in column 0 is not a number");
    assert_refused("a,b\n1,2\n", (ts_dataset_options){.header = -1}, TS_ERR_PARSE,
                   "t.csv, line 1: 'a' in column 0 is not a number");
    assert_refused("1,2\n\"3,4\n5,6\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: a quote is never closed");
    assert_refused("1,2\n\"3\"\"", none, TS_ERR_PARSE, "t.csv, line 2: a quote is never closed");
    assert_refused("1,2\n\"3\"4,5\n", none, TS_ERR_PARSE,
                   "t.csv, line 2: a quoted field goes on after its quote");
    assert_refused("a,b\n1,2\n", (ts_dataset_options){.label = "c"}, TS_ERR_ARG,
                   "t.csv has no column called 'c'");
    assert_string_equal(ts_last_error()->hint, "its first line starts with 'a'");
    assert_refused("1,2\n", (ts_dataset_options){.label = "2"}, TS_ERR_ARG,
                   "t.csv has no column 2: it has 2");
    assert_refused("1,2\n", (ts_dataset_options){.label = "-3"}, TS_ERR_ARG,
                   "t.csv has no column -3: it has 2");
}

static void a_zero_byte_is_refused(void **state)
{
    char text[] = "1,2\n\0,3\n";
    ts_dataset *d = NULL;

    (void)state;
    assert_fails(ts_csv_parse("t.csv", text, sizeof(text) - 1, &(ts_dataset_options){0}, &d),
                 TS_ERR_PARSE, "t.csv is not text: it has a zero byte");
}

static void every_failure_is_reported_and_leaks_nothing(void **state)
{
    ts_dataset *d = NULL;
    ts_status s;
    int n = 0;

    (void)state;
    for (;; n++) {
        ts_fault_arm("alloc", n);
        s = parse("a,b\n1,x\n2,y\n", (ts_dataset_options){0}, &d);
        ts_fault_arm(NULL, -1);
        if (!s)
            break;
        assert_int_equal(s, TS_ERR_MEMORY);
        assert_null(d);
    }
    assert_true(n > 5);
    ts_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_in_every_spelling),
        cmocka_unit_test(the_label_is_found),
        cmocka_unit_test(words_become_classes_in_sorted_order),
        cmocka_unit_test(what_is_no_word_is_refused),
        cmocka_unit_test(a_table_of_words_needs_no_names),
        cmocka_unit_test(rows_to_predict_for),
        cmocka_unit_test(errors_name_the_line_and_the_column),
        cmocka_unit_test(a_zero_byte_is_refused),
        cmocka_unit_test(every_failure_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

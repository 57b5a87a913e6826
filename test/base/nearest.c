/* nearest.c - slips of the finger find their word; other words find none. */
#include "support.h"

static const char *const words[] = {"conv2d", "conv1d", "linear", "relu", "elu", "max_pool2d"};

static const char *nearest(const char *s)
{
    return ts_nearest(s, words, TS_COUNT(words));
}

static void slips_find_their_word(void **state)
{
    (void)state;
    assert_string_equal(nearest("cov2d"), "conv2d");
    assert_string_equal(nearest("covn2d"), "conv2d");
    assert_string_equal(nearest("linaer"), "linear");
    assert_string_equal(nearest("rellu"), "relu");
    assert_string_equal(nearest("maxpool2d"), "max_pool2d");
    assert_string_equal(nearest("linear"), "linear");
    assert_string_equal(nearest("conv3d"), "conv2d"); /* the first of equals */
}

static void other_words_find_none(void **state)
{
    char letters[2000];

    (void)state;
    memset(letters, 'a', sizeof(letters) - 1);
    letters[sizeof(letters) - 1] = 0;
    assert_null(nearest("transformer"));
    assert_null(nearest(""));
    assert_null(nearest("x"));
    assert_null(nearest(NULL));
    assert_null(nearest(letters));
    assert_null(ts_nearest("relu", words, 0));
    assert_null(ts_nearest("relu", (const char *const[]){letters}, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_find_their_word),
        cmocka_unit_test(other_words_find_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

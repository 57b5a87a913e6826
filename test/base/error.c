/* error.c - the thread's last error, its text, and what does not fit. */
#include "support.h"
#include <pthread.h>

static void text_has_every_part(void **state)
{
    (void)state;
    ts_fail_loc("fc1 (matmul), net.c:41", TS_ERR_SHAPE, "got %d and %d", 784, 512);
    ts_error_doing("inferring shapes");
    ts_error_hint("it takes %d", 512);
    assert_string_equal(ts_error_text(), "shape error: got 784 and 512\n"
                                         "  at     fc1 (matmul), net.c:41\n"
                                         "  while  inferring shapes\n"
                                         "  hint   it takes 512\n");
    assert_int_equal(ts_fail(TS_ERR_FILE, "gone"), TS_ERR_FILE);
    assert_string_equal(ts_error_text(), "file error: gone\n");
}

static void the_first_doing_stays(void **state)
{
    (void)state;
    ts_fail(TS_ERR_ARG, "x");
    ts_error_doing("the inner step");
    ts_error_doing("the outer step");
    assert_string_equal(ts_last_error()->doing, "the inner step");
}

static void an_error_may_quote_the_last(void **state)
{
    (void)state;
    ts_fail(TS_ERR_ARG, "inner");
    ts_fail_loc(ts_last_error()->message, TS_ERR_PARSE, "line 3: %s", ts_last_error()->message);
    assert_string_equal(ts_last_error()->message, "line 3: inner");
    assert_string_equal(ts_last_error()->where, "inner");
}

static void long_words_are_cut(void **state)
{
    char *s = malloc(100001);

    (void)state;
    memset(s, 'a', 100000);
    s[100000] = 0;
    ts_fail_loc(s, TS_ERR_ARG, "%s", s);
    ts_error_doing("%s", s);
    ts_error_hint("%s", s);
    assert_int_equal(strlen(ts_last_error()->message), sizeof(ts_last_error()->message) - 1);
    assert_int_equal(strlen(ts_last_error()->where), sizeof(ts_last_error()->where) - 1);
    assert_true(strlen(ts_error_text()) > 2000);
    free(s);
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    for (int i = TS_OK; i <= TS_ERR_INTERNAL; i++)
        assert_string_not_equal(ts_status_name((ts_status)i), "unknown error");
    assert_string_equal(ts_status_name((ts_status)99), "unknown error");
    assert_string_equal(ts_status_name((ts_status)-1), "unknown error");
    assert_string_equal(ts_version(), TS_VERSION);
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    ts_fail(TS_ERR_MEMORY, "another thread's");
    return NULL;
}

static void errors_belong_to_threads(void **state)
{
    pthread_t t;

    (void)state;
    ts_fail(TS_ERR_ARG, "mine");
    assert_int_equal(pthread_create(&t, NULL, fail_elsewhere, NULL), 0);
    pthread_join(t, NULL);
    assert_string_equal(ts_last_error()->message, "mine");
}

static void errors_can_be_moved(void **state)
{
    ts_error e;

    (void)state;
    ts_fail(TS_ERR_GRAD, "kept");
    e = *ts_last_error();
    ts_fail(TS_ERR_ARG, "other");
    ts_error_set(&e);
    assert_int_equal(ts_last_error()->code, TS_ERR_GRAD);
    assert_string_equal(ts_last_error()->message, "kept");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_has_every_part),         cmocka_unit_test(the_first_doing_stays),
        cmocka_unit_test(an_error_may_quote_the_last), cmocka_unit_test(long_words_are_cut),
        cmocka_unit_test(every_code_has_a_name),       cmocka_unit_test(errors_belong_to_threads),
        cmocka_unit_test(errors_can_be_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* random.c - random graphs on a GPU against the reference: run/random_graphs again. */
#include "again.h"

static void random_graphs(void **state)
{
    (void)state;
    again("run_random_graphs", "15");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

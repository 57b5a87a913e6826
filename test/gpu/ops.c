/* ops.c - every op and gradient on a GPU against the reference: op/native again. */
#include "again.h"

static void every_op(void **state)
{
    (void)state;
    again("op_native", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

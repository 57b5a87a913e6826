/* comm.c - processes: what a launcher's environment says, a process that is alone, and what is said
 * when MPI cannot be had. Real processes are in test/python/test_processes.py. */
#include "support.h"
#include <stdlib.h>

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE",
    "SLURM_PROCID",         "SLURM_NTASKS",         "SLURM_STEP_ID", "TESSERA_MPI"};

static int forget(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

static void assert_place(int rank, int size)
{
    int r = -1, n = -1;

    ts_comm_place(&r, &n);
    assert_int_equal(r, rank);
    assert_int_equal(n, size);
}

static void launchers_are_known(void **state)
{
    (void)state;
    assert_place(0, 1);
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NTASKS", "3", 1);
    assert_place(0, 1); /* a batch script, no step */
    setenv("SLURM_STEP_ID", "0", 1);
    assert_place(2, 3);
    setenv("PMI_RANK", "4", 1);
    setenv("PMI_SIZE", "5", 1);
    assert_place(4, 5);
    setenv("OMPI_COMM_WORLD_RANK", "6", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "7", 1);
    assert_place(6, 7);
    ts_comm_place(NULL, NULL);
}

static void nonsense_is_no_launcher(void **state)
{
    static const char *const wrong[][2] = {
        {"x", "2"}, {"0", ""}, {"2", "2"}, {"-1", "2"}, {"0", "2x"}};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("OMPI_COMM_WORLD_RANK", wrong[i][0], 1);
        setenv("OMPI_COMM_WORLD_SIZE", wrong[i][1], 1);
        assert_place(0, 1);
    }
}

static void alone_nothing_changes(void **state)
{
    float x[] = {1, 2};
    ts_comm *c;

    (void)state;
    setenv("TESSERA_MPI", "/nowhere", 1); /* not looked at */
    assert_ok(ts_comm_open(&c));
    assert_int_equal(c->rank, 0);
    assert_int_equal(c->size, 1);
    assert_ok(c->sum(c->self, TS_F32, x, 2));
    assert_ok(c->copy(c->self, x, sizeof(x)));
    assert_true(x[0] == 1 && x[1] == 2);
    ts_comm_close(c);
    ts_comm_close(NULL);
    assert_fails(ts_comm_open(NULL), TS_ERR_ARG, "there is no place for the comm");
}

static void mpi_that_is_not_there_is_named(void **state)
{
    ts_comm *c;

    (void)state;
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("TESSERA_MPI", "/nowhere/libtessera_mpi.so", 1);
    assert_int_equal(ts_comm_open(&c), TS_ERR_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(ts_last_error()->message, "cannot load MPI"));
    assert_non_null(strstr(ts_last_error()->message, "/nowhere/libtessera_mpi.so"));
#ifdef TS_HAVE_MPI
    assert_non_null(strstr(ts_last_error()->hint, "libtessera_mpi.so"));
#else
    assert_non_null(strstr(ts_last_error()->hint, "install libopenmpi-dev"));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(launchers_are_known, forget, forget),
        cmocka_unit_test_setup_teardown(nonsense_is_no_launcher, forget, forget),
        cmocka_unit_test_setup_teardown(alone_nothing_changes, forget, forget),
        cmocka_unit_test_setup_teardown(mpi_that_is_not_there_is_named, forget, forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* core_comm.c - the processes that train together: opened with the first engine that needs them,
 * and kept until the program ends, because engines may live as long. */
#include "core.h"

const ts_comm *core_comm(int rank, int size)
{
    static ts_comm *comm;
    ts_status s = TS_OK;

    if (!comm) {
        Py_BEGIN_ALLOW_THREADS s = ts_comm_open(&comm);
        Py_END_ALLOW_THREADS
    }
    if (s) {
        core_fail();
        return NULL;
    }
    if (comm->rank == rank && comm->size == size)
        return comm;
    PyErr_Format(
        PyExc_RuntimeError,
        "Options().Distributed says that this is process %d of %d, and the launcher that it "
        "is process %d of %d: start the script with mpirun or 'tessera run', and let "
        "Distributed find its place",
        rank, size, comm->rank, comm->size);
    return NULL;
}

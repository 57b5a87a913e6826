/* core.h - what the files of the extension module share.
 *
 *   _core.c       the module; executables and engines
 *   core_graph.c  graphs and values
 *   core_subscript.c  x[i:j] of tensors
 *   core_table.c  datasets in memory
 *   lower*.c      ATen calls into a graph
 */
#ifndef POPTORCH_CORE_H
#define POPTORCH_CORE_H

#include "lower.h"

#define CORE_METHOD(name, fn, how, doc)                                                            \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))(fn), how, doc                                          \
    }

typedef struct graph_object {
    PyObject_HEAD ts_graph *g;
    PyObject *files; /* names of source files, which nodes point at */
} graph_object;

/* _core.c */
PyObject *core_fail(void); /* raises the thread's last error */
bool core_dtype(const char *name, ts_dtype *out);
bool core_dims(PyObject *o, int *rank, int64_t dims[TS_MAX_RANK]);
PyObject *core_dims_tuple(int rank, const int64_t *dims);

/* core_graph.c */
extern PyTypeObject core_graph_type, core_value_type;

/* core_subscript.c: subscript(type, function or None) */
PyObject *core_subscript(PyObject *module, PyObject *args);

/* core_table.c */
extern PyTypeObject core_table_type;

/* core_comm.c: this process among those that train together; NULL with an exception set */
const ts_comm *core_comm(int rank, int size);

#endif

/* core.h - what the files of the extension module share.
 *
 *   _core.c       the module; executables and engines
 *   core_graph.c  graphs and values
 *   core_subscript.c  x[i:j] of tensors
 *   core_table.c  datasets in memory
 *   core_args.c   arguments of a call
 */
#ifndef POPTORCH_CORE_H
#define POPTORCH_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define TS_NO_LOCATIONS
#include "tessera.h"

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

/* core_args.c: a tuple as arguments; their lists live until core_args_free */
typedef struct core_args {
    ts_arg *args;
    int n;
    void **lists;
    int nlists;
} core_args;
bool core_args_of(PyObject *tuple, core_args *a); /* false: an exception is set */
void core_args_free(core_args *a);

/* core_graph.c */
ts_value *core_value(PyObject *o); /* the value inside, or NULL */
extern PyTypeObject core_graph_type, core_value_type;

/* core_subscript.c: subscript(type, function or None) */
PyObject *core_subscript(PyObject *module, PyObject *args);

/* core_table.c */
extern PyTypeObject core_table_type;

/* core_comm.c: this process among those that train together; NULL with an exception set */
const ts_comm *core_comm(int rank, int size);

#endif

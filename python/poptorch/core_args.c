/* core_args.c - Python objects as arguments of a word.
 *
 * A bool is an int, None is none. A list is one of tensors when there is a tensor or None in it
 * (indices that leave dims out), of numbers when there is a float, and else of ints. An int that
 * does not fit, and an object of any other kind (a generator, a layout), are none: no rule reads
 * them.
 */
#include "core.h"

static bool int_of(PyObject *o, int64_t *out)
{
    long long v = PyLong_AsLongLong(o);

    *out = v;
    if (v != -1 || !PyErr_Occurred())
        return true;
    PyErr_Clear();
    return false;
}

static double number_of(PyObject *o)
{
    int64_t i = 0;

    if (PyFloat_Check(o))
        return PyFloat_AS_DOUBLE(o);
    return PyLong_Check(o) && int_of(o, &i) ? (double)i : 0;
}

static ts_arg_kind list_kind(PyObject *list, Py_ssize_t n)
{
    ts_arg_kind kind = TS_ARG_INTS;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PySequence_Fast_GET_ITEM(list, i);

        if (o == Py_None || core_value(o))
            return TS_ARG_TENSORS;
        if (PyFloat_Check(o))
            kind = TS_ARG_NUMBERS;
    }
    return kind;
}

static bool list_of(PyObject *list, core_args *a, ts_arg *arg)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    union item {
        int64_t i;
        double f;
        ts_value *v;
    } *items = PyMem_New(union item, n + 1);

    if (!items) {
        PyErr_NoMemory();
        return false;
    }
    a->lists[a->nlists++] = items;
    arg->kind = list_kind(list, n);
    arg->n = (int)n;
    arg->as.ints = (const int64_t *)items;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = PySequence_Fast_GET_ITEM(list, k);

        if (arg->kind == TS_ARG_TENSORS)
            items[k].v = core_value(o);
        else if (arg->kind == TS_ARG_NUMBERS)
            items[k].f = number_of(o);
        else if (!PyLong_Check(o) || !int_of(o, &items[k].i))
            items[k].i = 0;
    }
    return true;
}

static bool arg_of(PyObject *o, core_args *a, ts_arg *arg)
{
    *arg = (ts_arg){.kind = TS_ARG_NONE};
    if (core_value(o)) {
        arg->kind = TS_ARG_TENSOR;
        arg->as.v = core_value(o);
    } else if (PyFloat_Check(o)) {
        arg->kind = TS_ARG_NUMBER;
        arg->as.f = PyFloat_AS_DOUBLE(o);
    } else if (PyLong_Check(o)) {
        arg->kind = int_of(o, &arg->as.i) ? TS_ARG_INT : TS_ARG_NONE;
    } else if (PyUnicode_Check(o)) {
        arg->kind = TS_ARG_TEXT;
        return (arg->as.s = PyUnicode_AsUTF8(o)) != NULL;
    } else if (PyList_Check(o) || PyTuple_Check(o)) {
        return list_of(o, a, arg);
    }
    return true;
}

bool core_args_of(PyObject *tuple, core_args *a)
{
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);

    *a = (core_args){.args = PyMem_New(ts_arg, n + 1), .lists = PyMem_New(void *, n + 1)};
    if (!a->args || !a->lists)
        PyErr_NoMemory();
    for (; a->args && a->lists && a->n < n; a->n++)
        if (!arg_of(PyTuple_GET_ITEM(tuple, a->n), a, &a->args[a->n]))
            break;
    if (!PyErr_Occurred())
        return true;
    core_args_free(a);
    return false;
}

void core_args_free(core_args *a)
{
    for (int i = 0; i < a->nlists; i++)
        PyMem_Free(a->lists[i]);
    PyMem_Free(a->lists);
    PyMem_Free(a->args);
    *a = (core_args){0};
}

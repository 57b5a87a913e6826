/* core_subscript.c - x[i:j] of tensors, seen before PyTorch asks i and j for numbers.
 *
 * Not every release of PyTorch tells a function mode of it. A Python __getitem__ in torch.Tensor
 * would do, but Python cannot take it back: the type keeps sq_item, and from then on a tensor
 * without dims counts as a sequence. So the slot itself is exchanged, of the class and of those
 * derived from it, and put back: every type is as it was, by the pointer.
 */
#include "core.h"

static binaryfunc plain; /* PyTorch's */
static PyObject *hook;   /* Python's: hook(x, index); NULL while nobody listens */

static bool is_open(PyObject *bound)
{
    return bound != Py_None && !PyLong_Check(bound);
}

static bool has_open_slice(PyObject *index)
{
    if (PySlice_Check(index)) {
        PySliceObject *s = (PySliceObject *)index;
        return is_open(s->start) || is_open(s->stop);
    }
    for (Py_ssize_t i = 0; PyTuple_Check(index) && i < PyTuple_GET_SIZE(index); i++)
        if (PySlice_Check(PyTuple_GET_ITEM(index, i)) && has_open_slice(PyTuple_GET_ITEM(index, i)))
            return true;
    return false;
}

static PyObject *subscript(PyObject *x, PyObject *index)
{
    if (!hook || !has_open_slice(index))
        return plain(x, index);
    return PyObject_CallFunctionObjArgs(hook, x, index, NULL);
}

/* A class made in between has inherited the other one: what counts is what is there now. */
static bool exchange(PyTypeObject *type, binaryfunc from, binaryfunc to)
{
    PyObject *derived = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
    bool done = derived != NULL;

    if (type->tp_as_mapping && type->tp_as_mapping->mp_subscript == from)
        type->tp_as_mapping->mp_subscript = to;
    for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(derived); i++)
        done = exchange((PyTypeObject *)PyList_GET_ITEM(derived, i), from, to);
    Py_XDECREF(derived);
    return done;
}

PyObject *core_subscript(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *next;
    bool done;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &next))
        return NULL;
    if (!plain && type->tp_as_mapping)
        plain = type->tp_as_mapping->mp_subscript;
    if (!plain) {
        PyErr_Format(PyExc_TypeError, "%s has no subscripts", type->tp_name);
        return NULL;
    }
    Py_CLEAR(hook);
    if (next != Py_None)
        hook = Py_NewRef(next);
    done = hook ? exchange(type, plain, subscript) : exchange(type, subscript, plain);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

/* core_graph.c - Graph and Value: a network being built, and a tensor in it. */
#include <stdlib.h>

#include "core.h"

enum { HOST_INPUTS = 64 }; /* of a node */

typedef struct value_object {
    PyObject_HEAD graph_object *graph;
    ts_value *v;
} value_object;

ts_value *core_value(PyObject *o)
{
    return Py_TYPE(o) == &core_value_type ? ((value_object *)o)->v : NULL;
}

static void value_free(value_object *self)
{
    Py_DECREF(self->graph);
    PyObject_Free(self);
}

static PyObject *value_shape(value_object *self, void *unused)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_rank(self->v);

    (void)unused;
    for (int i = 0; i < rank; i++)
        dims[i] = ts_dim(self->v, i);
    return core_dims_tuple(rank, dims);
}

static PyObject *value_dtype(value_object *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(ts_dtype_name(ts_dtype_of(self->v)));
}

static PyGetSetDef value_getset[] = {
    {"shape", (getter)value_shape, NULL, "its sizes", NULL},
    {"dtype", (getter)value_dtype, NULL, "its element type's name", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject core_value_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "poptorch._core.Value",
    .tp_basicsize = sizeof(value_object),
    .tp_dealloc = (destructor)value_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A tensor in a graph.",
    .tp_getset = value_getset,
};

/* NULL becomes the graph's error. */
static PyObject *value_new(graph_object *graph, ts_value *v)
{
    value_object *o;

    if (!v) {
        if (!ts_graph_check(graph->g))
            PyErr_SetString(PyExc_RuntimeError, "a call made no value and left no error");
        else
            core_fail();
        return NULL;
    }
    o = PyObject_New(value_object, &core_value_type);
    if (!o)
        return NULL;
    o->graph = (graph_object *)Py_NewRef((PyObject *)graph);
    o->v = v;
    return (PyObject *)o;
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    graph_object *self;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    self = (graph_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->g = ts_graph_new(name);
    self->files = PyDict_New();
    if (!self->files) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void graph_free(graph_object *self)
{
    ts_graph_free(self->g);
    Py_XDECREF(self->files);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *graph_here(graph_object *self, PyObject *args)
{
    PyObject *file;
    int line;

    if (!PyArg_ParseTuple(args, "Ui", &file, &line))
        return NULL;
    file = PyDict_SetDefault(self->files, file, file);
    if (!file)
        return NULL;
    ts_here(PyUnicode_AsUTF8(file), line);
    Py_RETURN_NONE;
}

typedef struct declared {
    const char *name;
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
} declared;

static bool declare(PyObject *args, declared *d)
{
    const char *dtype;
    PyObject *dims;

    return PyArg_ParseTuple(args, "ssO", &d->name, &dtype, &dims) && core_dtype(dtype, &d->dtype) &&
           core_dims(dims, &d->rank, d->dims);
}

static PyObject *graph_input(graph_object *self, PyObject *args)
{
    declared d;

    if (!declare(args, &d))
        return NULL;
    return value_new(self, ts_input_n(self->g, d.name, d.dtype, d.rank, d.dims));
}

/* Their values are written after the engine is made. */
static const ts_init zero = {.kind = TS_INIT_FULL};

static PyObject *graph_param(graph_object *self, PyObject *args)
{
    declared d;

    if (!declare(args, &d))
        return NULL;
    return value_new(self, ts_param_n(self->g, d.name, d.dtype, zero, d.rank, d.dims));
}

static PyObject *graph_buffer(graph_object *self, PyObject *args)
{
    declared d;

    if (!declare(args, &d))
        return NULL;
    return value_new(self, ts_buffer_n(self->g, d.name, d.dtype, zero, d.rank, d.dims));
}

static PyObject *graph_const(graph_object *self, PyObject *args)
{
    const char *dtype;
    PyObject *dims;
    unsigned long long address;
    declared d;

    if (!PyArg_ParseTuple(args, "sOK", &dtype, &dims, &address) || !core_dtype(dtype, &d.dtype) ||
        !core_dims(dims, &d.rank, d.dims))
        return NULL;
    return value_new(
        self, ts_const_n(self->g, d.dtype, (const void *)(uintptr_t)address, d.rank, d.dims));
}

static PyObject *graph_full(graph_object *self, PyObject *args)
{
    const char *dtype;
    PyObject *dims;
    double value;
    declared d;

    if (!PyArg_ParseTuple(args, "sOd", &dtype, &dims, &value) || !core_dtype(dtype, &d.dtype) ||
        !core_dims(dims, &d.rank, d.dims))
        return NULL;
    return value_new(self, ts_full_n(self->g, d.dtype, value, d.rank, d.dims));
}

enum { RESULTS = 4096 }; /* pieces that are split: steps of a recurrent layer */

/* What a word cannot do is told apart from what is wrong. */
static PyObject *refused(const char *name, ts_status s)
{
    if (s != TS_ERR_UNSUPPORTED)
        return core_fail();
    if (!ts_word_known(name))
        return PyErr_Format(PyExc_NotImplementedError, "%s", name);
    return PyErr_Format(PyExc_NotImplementedError, "%s: %s", name, ts_last_error()->message);
}

static PyObject *results(graph_object *self, int n, ts_value *const *out)
{
    PyObject *t = PyTuple_New(n);

    for (int i = 0; t && i < n; i++) {
        PyObject *v = out[i] ? value_new(self, out[i]) : Py_NewRef(Py_None);

        if (!v) {
            Py_DECREF(t);
            return NULL;
        }
        PyTuple_SET_ITEM(t, i, v);
    }
    return t;
}

static bool answer_of(const char *dtype, PyObject *dims, ts_answer *a)
{
    return core_dtype(dtype, &a->dtype) && core_dims(dims, &a->rank, a->dims);
}

static PyObject *graph_lower(graph_object *self, PyObject *args)
{
    const char *name, *dtype; /* None: the library says what PyTorch would answer */
    PyObject *dims, *given;
    ts_value *out[RESULTS];
    ts_answer answer;
    core_args a;
    ts_status s;
    int n = 0;

    if (!PyArg_ParseTuple(args, "szOO!", &name, &dtype, &dims, &PyTuple_Type, &given) ||
        (dtype && !answer_of(dtype, dims, &answer)) || !core_args_of(given, &a))
        return NULL;
    s = ts_word(self->g, name, dtype ? &answer : NULL, a.n, a.args, RESULTS, out, &n);
    core_args_free(&a);
    return s ? refused(name, s) : results(self, n, out);
}

static PyObject *graph_put(graph_object *self, PyObject *args)
{
    const char *name, *dtype;
    PyObject *dims, *given, *y;
    ts_value *x = NULL;
    ts_answer answer;
    core_args a;
    ts_status s;
    int which;

    if (!PyArg_ParseTuple(args, "ssOO!Oi", &name, &dtype, &dims, &PyTuple_Type, &given, &y,
                          &which) ||
        !answer_of(dtype, dims, &answer) || !core_args_of(given, &a))
        return NULL;
    s = ts_word_put(self->g, name, &answer, a.n, a.args, which, core_value(y), &x);
    core_args_free(&a);
    return s ? refused(name, s) : value_new(self, x);
}

static PyObject *graph_done(graph_object *self)
{
    if (ts_graph_check(self->g))
        return core_fail();
    Py_RETURN_NONE;
}

static PyObject *graph_host_call(graph_object *self, PyObject *args)
{
    ts_value *in[HOST_INPUTS], *out[8] = {NULL};
    const char *types;
    PyObject *list, *t;
    int id, n, nout, gradient = -1;

    if (!PyArg_ParseTuple(args, "iO!s|i", &id, &PyList_Type, &list, &types, &gradient))
        return NULL;
    n = (int)PyList_GET_SIZE(list);
    if (n > HOST_INPUTS) {
        PyErr_Format(PyExc_ValueError, "a host call takes at most %d tensors", HOST_INPUTS);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        in[i] = core_value(PyList_GET_ITEM(list, i));
    nout = ts_host_op(id, gradient, n, in, types, out);
    if (!nout)
        return value_new(self, NULL);
    t = PyTuple_New(nout);
    for (int i = 0; t && i < nout; i++) {
        PyObject *v = value_new(self, out[i]);

        if (!v)
            Py_CLEAR(t);
        else
            PyTuple_SET_ITEM(t, i, v);
    }
    return t;
}

static PyObject *graph_tap(graph_object *self, PyObject *args)
{
    PyObject *v;
    int id, gradient;

    if (!PyArg_ParseTuple(args, "Oii", &v, &id, &gradient))
        return NULL;
    return value_new(self, ts_tap(core_value(v), id, gradient));
}

static PyObject *graph_detach(graph_object *self, PyObject *v)
{
    return value_new(self, ts_detach(core_value(v)));
}

static PyObject *graph_cast(graph_object *self, PyObject *args)
{
    const char *name;
    PyObject *v;
    ts_dtype t;

    if (!PyArg_ParseTuple(args, "Os", &v, &name) || !core_dtype(name, &t))
        return NULL;
    return value_new(self, ts_cast(core_value(v), t));
}

static PyObject *graph_assign(graph_object *self, PyObject *args)
{
    PyObject *buffer, *next;

    if (!PyArg_ParseTuple(args, "OO", &buffer, &next))
        return NULL;
    ts_assign(core_value(buffer), core_value(next));
    return graph_done(self);
}

static PyObject *graph_output(graph_object *self, PyObject *args)
{
    PyObject *v;
    const char *name;

    if (!PyArg_ParseTuple(args, "Os", &v, &name))
        return NULL;
    ts_output(core_value(v), name);
    return graph_done(self);
}

static PyObject *graph_loss(graph_object *self, PyObject *v)
{
    ts_loss(core_value(v));
    return graph_done(self);
}

static PyObject *graph_block_begin(graph_object *self, PyObject *name)
{
    const char *s = PyUnicode_AsUTF8(name);

    if (!s)
        return NULL;
    ts_block_begin(self->g, s);
    return graph_done(self);
}

static PyObject *graph_block_end(graph_object *self, PyObject *unused)
{
    (void)unused;
    ts_block_end(self->g);
    return graph_done(self);
}

static PyObject *graph_scope_begin(graph_object *self, PyObject *name)
{
    const char *s = PyUnicode_AsUTF8(name);

    if (!s)
        return NULL;
    ts_scope_begin(self->g, s);
    return graph_done(self);
}

static PyObject *graph_scope_end(graph_object *self, PyObject *unused)
{
    (void)unused;
    ts_scope_end(self->g);
    return graph_done(self);
}

static PyObject *graph_text(graph_object *self, PyObject *unused)
{
    char *text = ts_graph_text(self->g);
    PyObject *o;

    (void)unused;
    if (!text)
        return core_fail();
    o = PyUnicode_FromString(text);
    free(text);
    return o;
}

static PyMethodDef graph_methods[] = {
    CORE_METHOD("here", graph_here, METH_VARARGS,
                "here(file, line): where the next nodes come from"),
    CORE_METHOD("input", graph_input, METH_VARARGS, "input(name, dtype, dims) -> Value"),
    CORE_METHOD("param", graph_param, METH_VARARGS, "param(name, dtype, dims) -> Value, trained"),
    CORE_METHOD("buffer", graph_buffer, METH_VARARGS, "buffer(name, dtype, dims) -> Value"),
    CORE_METHOD("const", graph_const, METH_VARARGS, "const(dtype, dims, address) -> Value; copied"),
    CORE_METHOD("full", graph_full, METH_VARARGS, "full(dtype, dims, number) -> Value"),
    CORE_METHOD(
        "lower", graph_lower, METH_VARARGS,
        "lower(op, dtype, dims, args) -> Values: an ATen call with all its arguments, and the\n"
        "dtype and dims of PyTorch's first result; without a dtype those that follow from the\n"
        "arguments. NotImplementedError names what is missing."),
    CORE_METHOD(
        "put", graph_put, METH_VARARGS,
        "put(op, dtype, dims, args, value, i) -> Value: the first argument of a view, with the\n"
        "elements that its result i shows replaced by value's"),
    CORE_METHOD("host_call", graph_host_call, METH_VARARGS,
                "host_call(id, values, types, gradient=-1) -> Values that the host computes"),
    CORE_METHOD("tap", graph_tap, METH_VARARGS,
                "tap(value, id, gradient) -> the value, which the host sees"),
    CORE_METHOD("detach", graph_detach, METH_O, "detach(value) -> Value without a gradient"),
    CORE_METHOD("cast", graph_cast, METH_VARARGS, "cast(value, dtype) -> Value"),
    CORE_METHOD("assign", graph_assign, METH_VARARGS,
                "assign(buffer, value): after each micro-batch"),
    CORE_METHOD("output", graph_output, METH_VARARGS, "output(value, name)"),
    CORE_METHOD("loss", graph_loss, METH_O, "loss(value): what training minimises"),
    CORE_METHOD("block_begin", graph_block_begin, METH_O, "block_begin(name)"),
    CORE_METHOD("block_end", graph_block_end, METH_NOARGS, "block_end()"),
    CORE_METHOD("scope_begin", graph_scope_begin, METH_O, "scope_begin(name)"),
    CORE_METHOD("scope_end", graph_scope_end, METH_NOARGS, "scope_end()"),
    CORE_METHOD("text", graph_text, METH_NOARGS, "text() -> the graph as text"),
    {NULL, NULL, 0, NULL},
};

PyTypeObject core_graph_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "poptorch._core.Graph",
    .tp_basicsize = sizeof(graph_object),
    .tp_dealloc = (destructor)graph_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Graph(name): a network being built.",
    .tp_methods = graph_methods,
    .tp_new = graph_new,
};

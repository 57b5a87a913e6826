/* core_table.c - rows of a dataset in memory, gathered by index.
 *
 * A table is what a loader's batch is made from, one column for each tensor of a sample:
 *
 *   plain    a row is copied
 *   pixels   a row of bytes [pixels][channels] becomes floats [channels][pixels]; `value` says
 *            which float each of the 256 bytes of a channel is. An image's ToTensor and Normalize
 *            come to just that.
 *
 * The memory is the caller's, who keeps it alive for as long as the table.
 */
#include "core.h"

#include <string.h>

enum {
    MAX_COLUMNS = 64,
    LET_GO = 1 << 18, /* bytes of a batch from which on other threads may run meanwhile */
};

typedef struct column {
    const char *from;
    Py_ssize_t bytes;   /* of a row */
    const float *value; /* [channels][256]; NULL in a plain column */
    Py_ssize_t channels;
} column;

typedef struct table_object {
    PyObject_HEAD Py_ssize_t rows;
    int ncolumns;
    column columns[MAX_COLUMNS];
} table_object;

static bool column_of(PyObject *o, column *c)
{
    unsigned long long from, value;

    if (!PyArg_ParseTuple(o, "KnKn", &from, &c->bytes, &value, &c->channels))
        return false;
    c->from = (const char *)(uintptr_t)from;
    c->value = (const float *)(uintptr_t)value;
    if (c->bytes < 0 || (value && (c->channels < 1 || c->bytes % c->channels))) {
        PyErr_SetString(PyExc_ValueError, "a column's row must be whole pixels");
        return false;
    }
    return true;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    table_object *self;
    PyObject *columns;
    Py_ssize_t rows;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nO!", &rows, &PyList_Type, &columns))
        return NULL;
    if (PyList_GET_SIZE(columns) > MAX_COLUMNS)
        return PyErr_Format(PyExc_ValueError, "a table has at most %d columns", MAX_COLUMNS);
    if (!(self = (table_object *)type->tp_alloc(type, 0)))
        return NULL;
    self->rows = rows;
    self->ncolumns = (int)PyList_GET_SIZE(columns);
    for (int i = 0; i < self->ncolumns; i++)
        if (!column_of(PyList_GET_ITEM(columns, i), &self->columns[i])) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

/* The list's indices; false, without an error, when one is not a plain int of a row: torch knows
 * what becomes of those. */
static bool indices_of(PyObject *list, Py_ssize_t rows, Py_ssize_t *out)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *o = PyList_GET_ITEM(list, i);

        if (!PyLong_CheckExact(o))
            return false;
        out[i] = PyLong_AsSsize_t(o);
        if (out[i] == -1 && PyErr_Occurred())
            PyErr_Clear();
        if (out[i] < 0 || out[i] >= rows)
            return false;
    }
    return true;
}

static void gather_plain(const column *c, const Py_ssize_t *index, Py_ssize_t n, char *to)
{
    for (Py_ssize_t i = 0; i < n; i++)
        memcpy(to + i * c->bytes, c->from + index[i] * c->bytes, (size_t)c->bytes);
}

static void gather_pixels(const column *c, const Py_ssize_t *index, Py_ssize_t n, float *to)
{
    Py_ssize_t pixels = c->bytes / c->channels;

    for (Py_ssize_t i = 0; i < n; i++) {
        const unsigned char *row = (const unsigned char *)c->from + index[i] * c->bytes;

        for (Py_ssize_t k = 0; k < c->channels; k++, to += pixels) {
            const float *value = c->value + 256 * k;

            if (c->channels == 1)
                for (Py_ssize_t p = 0; p < pixels; p++)
                    to[p] = value[row[p]];
            else
                for (Py_ssize_t p = 0; p < pixels; p++)
                    to[p] = value[row[p * c->channels + k]];
        }
    }
}

static void gather(const table_object *t, const Py_ssize_t *index, Py_ssize_t n, void **to)
{
    for (int k = 0; k < t->ncolumns; k++) {
        const column *c = &t->columns[k];

        if (c->value)
            gather_pixels(c, index, n, to[k]);
        else
            gather_plain(c, index, n, to[k]);
    }
}

static Py_ssize_t batch_bytes(const table_object *t, Py_ssize_t n)
{
    Py_ssize_t sum = 0;

    for (int k = 0; k < t->ncolumns; k++)
        sum += n * t->columns[k].bytes * (t->columns[k].value ? (Py_ssize_t)sizeof(float) : 1);
    return sum;
}

static PyObject *table_gather(table_object *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t n, few[256], *index = few;
    void *to[MAX_COLUMNS];
    bool known;

    if (nargs != self->ncolumns + 1 || !PyList_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "gather(list of indices, %d addresses)",
                            self->ncolumns);
    for (int k = 0; k < self->ncolumns; k++)
        if (!(to[k] = PyLong_AsVoidPtr(args[k + 1])) && PyErr_Occurred())
            return NULL;
    n = PyList_GET_SIZE(args[0]);
    if (n > 256 && !(index = PyMem_New(Py_ssize_t, n)))
        return PyErr_NoMemory();
    known = indices_of(args[0], self->rows, index);
    if (known && batch_bytes(self, n) >= LET_GO) {
        Py_BEGIN_ALLOW_THREADS gather(self, index, n, to);
        Py_END_ALLOW_THREADS
    } else if (known) {
        gather(self, index, n, to);
    }
    if (index != few)
        PyMem_Free(index);
    return PyBool_FromLong(known);
}

static PyMethodDef table_methods[] = {
    CORE_METHOD(
        "gather", table_gather, METH_FASTCALL,
        "gather(indices, address, ...) -> bool: the rows with these indices, column by column;\n"
        "False, and nothing is written, when an index is not an int of a row"),
    {NULL, NULL, 0, NULL},
};

PyTypeObject core_table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "poptorch._core.Table",
    .tp_basicsize = sizeof(table_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Table(rows, [(address, bytes of a row, address of values or 0, channels)])",
    .tp_methods = table_methods,
    .tp_new = table_new,
};

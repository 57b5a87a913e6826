/* _core.c - the extension module: graphs, executables and engines of tessera.h as Python objects.
 *
 *   Graph       being built: inputs, weights, constants, and lower(), which takes one ATen call
 *   Value       a tensor in it; keeps its graph alive
 *   Executable  what compile() gives
 *   Engine      a loaded executable; run() takes addresses and lets other threads go on
 *
 * Nothing here knows PyTorch: tensors cross as addresses (Tensor.data_ptr) and dtypes as the names
 * of tessera.h. Whoever passes an address answers for its size; _executor.py is the only caller.
 */
#include <string.h>
#include <time.h>

#include "core.h"
#include "tessera/device.h"
#include "tessera/plan.h"

static PyObject *error_type; /* (status name, message, where, doing, hint) */

PyObject *core_fail(void)
{
    const ts_error *e = ts_last_error();
    PyObject *args =
        Py_BuildValue("(sssss)", ts_status_name(e->code), e->message, e->where, e->doing, e->hint);

    if (args)
        PyErr_SetObject(error_type, args);
    Py_XDECREF(args);
    return NULL;
}

bool core_dtype(const char *name, ts_dtype *out)
{
    for (int t = TS_F32; t <= TS_BOOL; t++)
        if (!strcmp(ts_dtype_name((ts_dtype)t), name)) {
            *out = (ts_dtype)t;
            return true;
        }
    PyErr_Format(PyExc_ValueError, "no dtype is called %s", name);
    return false;
}

bool core_dims(PyObject *o, int *rank, int64_t dims[TS_MAX_RANK])
{
    Py_ssize_t n = PySequence_Size(o);

    if (n < 0)
        return false;
    if (n > TS_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "a tensor of %zd dims; %d is the most", n, TS_MAX_RANK);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(o, i);

        dims[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (dims[i] == -1 && PyErr_Occurred())
            return false;
    }
    *rank = (int)n;
    return true;
}

PyObject *core_dims_tuple(int rank, const int64_t *dims)
{
    PyObject *t = PyTuple_New(rank);

    for (int i = 0; t && i < rank; i++)
        PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(dims[i]));
    return t;
}

/* --- compiling -------------------------------------------------------------------------------- */

typedef struct executable_object {
    PyObject_HEAD ts_executable *x;
} executable_object;

static PyTypeObject executable_type;

static PyObject *executable_wrap(ts_executable *x)
{
    executable_object *o = PyObject_New(executable_object, &executable_type);

    if (!o) {
        ts_executable_free(x);
        return NULL;
    }
    o->x = x;
    return (PyObject *)o;
}

/* Calls a Python function with the percentage. An exception in it is printed, not raised: the
 * compilation goes on. */
static void report(void *arg, int percent)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *r = PyObject_CallFunction(arg, "i", percent);

    if (!r)
        PyErr_WriteUnraisable(arg);
    Py_XDECREF(r);
    PyGILState_Release(state);
}

/* --- options by name --- */

/* A number, a truth, some text or a tuple of numbers as the library reads it: 3, yes, "all",
 * 2,2,8,2. Text is borrowed from the value. */
static const char *text_of(PyObject *value, char *out, size_t size)
{
    size_t len = 0;

    out[0] = 0;
    if (PyUnicode_Check(value))
        return PyUnicode_AsUTF8(value);
    if (PyBool_Check(value))
        return value == Py_True ? "yes" : "no";
    if (PyTuple_Check(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value) && len < size; i++) {
            long long v = PyLong_AsLongLong(PyTuple_GET_ITEM(value, i));
            if (v == -1 && PyErr_Occurred())
                return NULL;
            len += (size_t)snprintf(out + len, size - len, "%s%lld", i ? "," : "", v);
        }
        return out;
    }
    if (PyFloat_Check(value)) {
        char *s = PyOS_double_to_string(PyFloat_AS_DOUBLE(value), 'r', 0, 0, NULL);
        snprintf(out, size, "%s", s ? s : "");
        PyMem_Free(s);
        return s ? out : NULL;
    }
    long long v = PyLong_AsLongLong(value);
    snprintf(out, size, "%lld", v);
    return v == -1 && PyErr_Occurred() ? NULL : out;
}

/* A field of a struct that only this file can make: true when `name` is one, and *ok says how it
 * went. */
typedef bool special_fn(void *record, const char *name, PyObject *value, bool *ok);

/* Every item of a dict is a field by its name; None leaves it as it is. A name that is none is
 * refused. */
static bool record_of(PyObject *dict, ts_record of, void *record, size_t size, special_fn *special)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "options are a dict");
        return false;
    }
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key), *text = "";
        char number[128];
        bool ok = true;
        if (name && special && special(record, name, value, &ok)) {
            if (!ok)
                return false;
            continue;
        }
        if (name && value == Py_None && ts_option_find(of, name))
            continue;
        if (value != Py_None)
            text = text_of(value, number, sizeof(number));
        if (!name || !text)
            return false;
        if (ts_record_set(of, record, size, name, text))
            return core_fail() != NULL;
    }
    return true;
}

static bool hyper_of(PyObject *dict, ts_hyper *h)
{
    return record_of(dict, TS_RECORD_HYPER, h, sizeof(*h), NULL);
}

/* The strings of a list, borrowed from it; the array is the caller's, also when this fails. */
static bool strings_of(PyObject *list, const char *const **out, int *n)
{
    const char **strings = PyMem_Calloc((size_t)PyList_GET_SIZE(list) + 1, sizeof(*strings));

    *out = strings;
    if (!strings) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (!(strings[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i))))
            return false;
    *n = (int)PyList_GET_SIZE(list);
    return true;
}

/* ([names], hyper) */
static bool group_of(PyObject *o, ts_group *g)
{
    PyObject *names, *hyper;

    return PyArg_ParseTuple(o, "O!O!", &PyList_Type, &names, &PyDict_Type, &hyper) &&
           hyper_of(hyper, &g->hyper) && strings_of(names, &g->params, &g->nparams);
}

static void groups_free(ts_group *groups, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; groups && i < n; i++)
        PyMem_Free((void *)groups[i].params);
    PyMem_Free(groups);
}

static ts_group *groups_of(PyObject *list)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    ts_group *groups = PyMem_Calloc((size_t)n + 1, sizeof(*groups));

    if (!groups)
        return (ts_group *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++)
        if (!group_of(PyList_GET_ITEM(list, i), &groups[i])) {
            groups_free(groups, n);
            return NULL;
        }
    return groups;
}

static bool optimizer_field(void *record, const char *name, PyObject *value, bool *ok)
{
    ts_optimizer *o = record;

    if (!strcmp(name, "hyper")) {
        *ok = hyper_of(value, &o->hyper);
        return true;
    }
    if (strcmp(name, "groups") != 0 || !PyList_Check(value))
        return false;
    o->ngroups = (int)PyList_GET_SIZE(value);
    *ok = (o->groups = groups_of(value)) != NULL;
    return true;
}

/* [(device, phase, [blocks])] */
static bool stages_of(PyObject *list, ts_options *opt)
{
    ts_stage *stages = PyMem_Calloc((size_t)PyList_GET_SIZE(list) + 1, sizeof(*stages));

    opt->stages = stages;
    if (!stages) {
        PyErr_NoMemory();
        return false;
    }
    opt->nstages = (int)PyList_GET_SIZE(list);
    for (int i = 0; i < opt->nstages; i++) {
        PyObject *blocks;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "iiO!", &stages[i].device, &stages[i].phase,
                              &PyList_Type, &blocks) ||
            !strings_of(blocks, &stages[i].blocks, &stages[i].nblocks))
            return false;
    }
    return true;
}

static void stages_free(const ts_options *opt)
{
    for (int i = 0; i < opt->nstages; i++)
        PyMem_Free((void *)opt->stages[i].blocks);
    PyMem_Free((void *)opt->stages);
}

/* [(name, grouping, size, read_all)] */
static bool replica_groups_of(PyObject *list, ts_options *opt)
{
    ts_replica_group *groups = PyMem_Calloc((size_t)PyList_GET_SIZE(list) + 1, sizeof(*groups));

    opt->replica_groups = groups;
    if (!groups) {
        PyErr_NoMemory();
        return false;
    }
    opt->nreplica_groups = (int)PyList_GET_SIZE(list);
    for (int i = 0; i < opt->nreplica_groups; i++) {
        int grouping, all;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "siip", &groups[i].state, &grouping,
                              &groups[i].size, &all))
            return false;
        groups[i].grouping = (ts_grouping)grouping;
        groups[i].read_all = all;
    }
    return true;
}

static PyObject *compile_graph(graph_object *graph, const ts_options *opt, PyObject *unused)
{
    ts_executable *x;
    ts_status s;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS s = ts_compile(graph->g, opt, &x);
    Py_END_ALLOW_THREADS return s ? core_fail() : executable_wrap(x);
}

/* What of ts_options is a Python object of its own. */
static bool options_field(void *record, const char *name, PyObject *value, bool *ok)
{
    ts_options *opt = record;

    if (!strcmp(name, "optimizer"))
        *ok = value == Py_None || record_of(value, TS_RECORD_OPTIMIZER, (void *)opt->optimizer,
                                            sizeof(ts_optimizer), optimizer_field);
    else if (!strcmp(name, "stages"))
        *ok = PyList_Check(value) && stages_of(value, opt);
    else if (!strcmp(name, "replica_groups"))
        *ok = PyList_Check(value) && replica_groups_of(value, opt);
    else if (!strcmp(name, "progress")) {
        *ok = true;
        opt->progress = value == Py_None ? NULL : report;
        opt->progress_arg = value;
    } else
        return false;
    if (!*ok && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s must be a list", name);
    return true;
}

/* (step, call) in cycles of the modelled IPU; None when the devices are none. */
static PyObject *model_cycles(graph_object *graph, const ts_options *opt, PyObject *unused)
{
    ts_plan_info *p;
    PyObject *result;

    (void)unused;
    if (ts_plan_new(graph->g, opt, &p))
        return core_fail();
    result = p->ipu ? Py_BuildValue("dd", p->ipu->step, p->ipu->call) : Py_BuildValue("");
    ts_plan_free(p);
    return result;
}

static PyObject *profile_loaded(graph_object *graph, const ts_options *opt, PyObject *loaded)
{
    if (!loaded || ts_profile_loaded(((executable_object *)loaded)->x, graph->g, opt))
        return core_fail();
    Py_RETURN_NONE;
}

/* What is made of a graph and a dictionary of ts_options; of an Executable too, if one is given. */
static PyObject *with_options(PyObject *args,
                              PyObject *(*make)(graph_object *graph, const ts_options *opt,
                                                PyObject *executable))
{
    PyObject *graph, *options, *executable = NULL, *result = NULL;
    ts_optimizer o = {0};
    ts_options opt = {.optimizer = &o};

    if (!PyArg_ParseTuple(args, "O!O!|O!", &core_graph_type, &graph, &PyDict_Type, &options,
                          &executable_type, &executable))
        return NULL;
    if (record_of(options, TS_RECORD_OPTIONS, &opt, sizeof(opt), options_field)) {
        PyObject *optimizer = PyDict_GetItemString(options, "optimizer");
        if (!optimizer || optimizer == Py_None)
            opt.optimizer = NULL;
        result = make((graph_object *)graph, &opt, executable);
    }
    PyMem_Free((void *)opt.replica_groups);
    stages_free(&opt);
    groups_free((ts_group *)o.groups, o.groups ? o.ngroups : 0);
    return result;
}

static PyObject *core_compile(PyObject *self, PyObject *args)
{
    (void)self;
    return with_options(args, compile_graph);
}

static PyObject *core_profile(PyObject *self, PyObject *args)
{
    (void)self;
    return with_options(args, profile_loaded);
}

static PyObject *core_cycles(PyObject *self, PyObject *args)
{
    (void)self;
    return with_options(args, model_cycles);
}

static void executable_free(executable_object *self)
{
    ts_executable_free(self->x);
    PyObject_Free(self);
}

static PyObject *executable_save(executable_object *self, PyObject *path)
{
    PyObject *bytes;
    ts_status s;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    s = ts_executable_save(self->x, PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    if (s)
        return core_fail();
    Py_RETURN_NONE;
}

static PyObject *core_load(PyObject *self, PyObject *path)
{
    PyObject *bytes;
    ts_executable *x;
    ts_status s;

    (void)self;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    s = ts_executable_load(PyBytes_AS_STRING(bytes), &x);
    Py_DECREF(bytes);
    return s ? core_fail() : executable_wrap(x);
}

/* [(name, dtype, dims, bytes)] of a role */
static PyObject *executable_tensors(executable_object *self, PyObject *args)
{
    const ts_tensor_info *t;
    PyObject *list;
    int role;

    if (!PyArg_ParseTuple(args, "i", &role) || !(list = PyList_New(0)))
        return NULL;
    for (int i = 0; (t = ts_executable_tensor(self->x, (ts_role)role, i)); i++) {
        PyObject *item = Py_BuildValue("(ssNn)", t->name, ts_dtype_name(t->dtype),
                                       core_dims_tuple(t->rank, t->dims), (Py_ssize_t)t->bytes);

        if (!item || PyList_Append(list, item)) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return list;
}

static PyObject *executable_stats(executable_object *self, PyObject *unused)
{
    ts_stats s = ts_executable_stats(self->x);

    (void)unused;
    return Py_BuildValue("{s:d,s:O,s:O,s:n,s:n,s:d,s:i}", "compile_seconds", s.compile_seconds,
                         "from_cache", s.from_cache ? Py_True : Py_False, "native",
                         s.native ? Py_True : Py_False, "state_bytes", (Py_ssize_t)s.state_bytes,
                         "peak_bytes", (Py_ssize_t)s.peak_bytes, "flops", s.flops, "kernels",
                         s.kernels);
}

static PyObject *executable_inspect(executable_object *self, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(ts_executable_inspect(self->x));
}

static PyMethodDef executable_methods[] = {
    CORE_METHOD("save", executable_save, METH_O, "save(path)"),
    CORE_METHOD(
        "tensors", executable_tensors, METH_VARARGS,
        "tensors(role) -> [(name, dtype, dims, bytes)]; role: 0 inputs, 1 outputs, 2 state"),
    CORE_METHOD("stats", executable_stats, METH_NOARGS, "stats() -> dict"),
    CORE_METHOD("inspect", executable_inspect, METH_NOARGS, "inspect() -> text, one line a fact"),
    {NULL, NULL, 0, NULL},
};

static PyTypeObject executable_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "poptorch._core.Executable",
    .tp_basicsize = sizeof(executable_object),
    .tp_dealloc = (destructor)executable_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A compiled graph.",
    .tp_methods = executable_methods,
};

/* --- running ---------------------------------------------------------------------------------- */

enum { RUN_TENSORS = 2048 };

typedef struct engine_object {
    PyObject_HEAD ts_engine *e;
    int nin, nout;
    bool busy;           /* a run goes on in another thread; guarded by the interpreter's lock */
    PyObject *host;      /* called by the graph: host(id, address of inputs, of results) */
    uint64_t cycles;     /* of the processor's counter, in the last run */
    PyObject *raised[3]; /* by it: type, value and traceback, or NULL */
    PyObject *weak;      /* references that do not keep it */
} engine_object;

static int count(const ts_executable *x, ts_role role)
{
    int n = 0;

    while (ts_executable_tensor(x, role, n))
        n++;
    return n;
}

/* What the function raises leaves from run(). */
static ts_status call_host(void *arg, int id, const void *const *in, void *const *out)
{
    engine_object *self = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *r = PyObject_CallFunction(self->host, "iKK", id, (unsigned long long)(uintptr_t)in,
                                        (unsigned long long)(uintptr_t)out);
    bool ok = r != NULL;

    if (!ok)
        PyErr_Fetch(&self->raised[0], &self->raised[1], &self->raised[2]);
    Py_XDECREF(r);
    PyGILState_Release(state);
    return ok ? TS_OK : TS_ERR_ARG;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    executable_object *x;
    unsigned long long seed;
    engine_object *self;
    const ts_comm *comm = NULL;
    ts_run_options opt;
    PyObject *host;
    int threads, rank = 0, processes = 1;
    PyObject *attachment = Py_None;
    ts_status s;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!KiO|iiO", &executable_type, &x, &seed, &threads, &host, &rank,
                          &processes, &attachment))
        return NULL;
    if (processes > 1 && !(comm = core_comm(rank, processes)))
        return NULL;
    if (!(self = (engine_object *)type->tp_alloc(type, 0)))
        return NULL;
    self->host = Py_NewRef(host);
    opt = (ts_run_options){
        .seed = seed, .threads = threads, .comm = comm, .host = call_host, .host_arg = self};
    if (attachment != Py_None &&
        !(opt.devices = PyCapsule_GetPointer(attachment, "poptorch.devices"))) {
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS s = ts_engine_new(x->x, &opt, &self->e);
    Py_END_ALLOW_THREADS if (s)
    {
        Py_DECREF(self);
        return core_fail();
    }
    self->nin = count(x->x, TS_ROLE_INPUT);
    self->nout = count(x->x, TS_ROLE_OUTPUT);
    return (PyObject *)self;
}

static void engine_free(engine_object *self)
{
    if (self->weak)
        PyObject_ClearWeakRefs((PyObject *)self);
    ts_engine_free(self->e);
    Py_XDECREF(self->host);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static bool claim(engine_object *self)
{
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "the model is running in another thread");
    return !self->busy && (self->busy = true);
}

/* A list of addresses, one for each of n tensors; None is a NULL. */
static bool addresses(PyObject *list, int n, const char *what, void **out)
{
    if (!PyList_Check(list) || PyList_GET_SIZE(list) != n || n > RUN_TENSORS) {
        PyErr_Format(PyExc_ValueError, "run() needs a list of %d %s, at most %d", n, what,
                     RUN_TENSORS);
        return false;
    }
    for (int i = 0; i < n; i++) {
        PyObject *o = PyList_GET_ITEM(list, i);

        out[i] = o == Py_None ? NULL : PyLong_AsVoidPtr(o);
        if (!out[i] && PyErr_Occurred())
            return false;
    }
    return true;
}

/* The processor's time stamp counter, or nanoseconds where there is none that we know. */
static uint64_t cycle_counter(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t x;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(x));
    return x;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static PyObject *engine_run(engine_object *self, PyObject *const *args, Py_ssize_t n)
{
    void *in[RUN_TENSORS], *out[RUN_TENSORS];
    uint64_t start;
    ts_status s;

    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "run(inputs, outputs)");
        return NULL;
    }
    if (!addresses(args[0], self->nin, "inputs", in) ||
        !addresses(args[1], self->nout, "outputs", out) || !claim(self))
        return NULL;
    start = cycle_counter();
    Py_BEGIN_ALLOW_THREADS s = ts_engine_run(self->e, (const void *const *)in, out);
    Py_END_ALLOW_THREADS self->cycles = cycle_counter() - start;
    self->busy = false;
    if (s && self->raised[0]) {
        PyErr_Restore(self->raised[0], self->raised[1], self->raised[2]);
        memset(self->raised, 0, sizeof(self->raised));
        return NULL;
    }
    if (s)
        return core_fail();
    Py_RETURN_NONE;
}

/* [(begun, computed, given)] of each micro-batch of the last run */
static PyObject *engine_times(engine_object *self, PyObject *unused)
{
    int n;
    const ts_times *t = ts_engine_times(self->e, &n);
    PyObject *list = PyList_New(n);

    (void)unused;
    for (int i = 0; list && i < n; i++) {
        PyObject *row = Py_BuildValue("(ddd)", t[i].begun, t[i].computed, t[i].given);

        if (!row) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static PyObject *engine_note(engine_object *self, PyObject *args)
{
    const char *kind, *name;
    double start, end;

    if (!PyArg_ParseTuple(args, "ssdd", &kind, &name, &start, &end))
        return NULL;
    ts_engine_note(self->e, kind, name, start, end);
    Py_RETURN_NONE;
}

static PyObject *engine_profile(engine_object *self, PyObject *unused)
{
    (void)unused;
    if (ts_engine_profile(self->e))
        return core_fail();
    Py_RETURN_NONE;
}

/* Between a state of the engine and the caller's memory. */
static PyObject *engine_move(engine_object *self, PyObject *args, bool write)
{
    const char *name;
    unsigned long long address;
    Py_ssize_t bytes;
    ts_status s;

    if (!PyArg_ParseTuple(args, "sKn", &name, &address, &bytes) || !claim(self))
        return NULL;
    s = write ? ts_engine_write(self->e, name, (const void *)(uintptr_t)address, (size_t)bytes)
              : ts_engine_read(self->e, name, (void *)(uintptr_t)address, (size_t)bytes);
    self->busy = false;
    if (s)
        return core_fail();
    Py_RETURN_NONE;
}

static PyObject *engine_read(engine_object *self, PyObject *args)
{
    return engine_move(self, args, false);
}

static PyObject *engine_write(engine_object *self, PyObject *args)
{
    return engine_move(self, args, true);
}

static PyObject *engine_set(engine_object *self, PyObject *args)
{
    const char *name;
    double value;
    ts_status s;

    if (!PyArg_ParseTuple(args, "sd", &name, &value) || !claim(self))
        return NULL;
    s = ts_engine_set(self->e, name, value);
    self->busy = false;
    if (s)
        return core_fail();
    Py_RETURN_NONE;
}

static PyObject *engine_copy(engine_object *self, PyObject *unused)
{
    ts_status s;

    (void)unused;
    if (!claim(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS s = ts_engine_copy(self->e);
    Py_END_ALLOW_THREADS self->busy = false;
    if (s)
        return core_fail();
    Py_RETURN_NONE;
}

static PyObject *engine_rng(engine_object *self, PyObject *unused)
{
    uint64_t seed, step;

    (void)unused;
    ts_engine_rng(self->e, &seed, &step);
    return Py_BuildValue("[KK]", (unsigned long long)seed, (unsigned long long)step);
}

static PyObject *engine_set_rng(engine_object *self, PyObject *args)
{
    unsigned long long seed, step;

    if (!PyArg_ParseTuple(args, "KK", &seed, &step))
        return NULL;
    ts_engine_set_rng(self->e, seed, step);
    Py_RETURN_NONE;
}

static PyObject *engine_cycles(engine_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->cycles);
}

static PyObject *engine_slots(engine_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(ts_engine_slots(self->e));
}

static PyMethodDef engine_methods[] = {
    CORE_METHOD("run", engine_run, METH_FASTCALL,
                "run(inputs, outputs): lists of addresses; None for an output that is not wanted"),
    CORE_METHOD("read", engine_read, METH_VARARGS, "read(name, address, bytes): state to memory"),
    CORE_METHOD("write", engine_write, METH_VARARGS,
                "write(name, address, bytes): memory to state"),
    CORE_METHOD("set", engine_set, METH_VARARGS, "set(name, number): a variable hyper-parameter"),
    CORE_METHOD("copy", engine_copy, METH_NOARGS,
                "copy(): the states of process 0, in all processes"),
    CORE_METHOD("rng", engine_rng, METH_NOARGS, "rng() -> [seed, step]"),
    CORE_METHOD("set_rng", engine_set_rng, METH_VARARGS, "set_rng(seed, step)"),
    CORE_METHOD("times", engine_times, METH_NOARGS,
                "times() -> [(begun, computed, given)] of the last run's micro-batches"),
    CORE_METHOD("note", engine_note, METH_VARARGS,
                "note(kind, name, start, end): what the host did, for the profile"),
    CORE_METHOD("profile", engine_profile, METH_NOARGS, "profile(): ends the measuring"),
    CORE_METHOD("cycles", engine_cycles, METH_NOARGS, "cycles() -> that the last run took"),
    CORE_METHOD("slots", engine_slots, METH_NOARGS,
                "slots() -> micro-batch results that a run returns"),
    {NULL, NULL, 0, NULL},
};

static PyTypeObject engine_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "poptorch._core.Engine",
    .tp_basicsize = sizeof(engine_object),
    .tp_dealloc = (destructor)engine_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Engine(executable, seed, threads, host): a loaded executable and its state.\n"
              "host(id, inputs, results) is what host calls call; addresses of addresses.",
    .tp_weaklistoffset = offsetof(engine_object, weak),
    .tp_methods = engine_methods,
    .tp_new = engine_new,
};

/* --- the module ------------------------------------------------------------------------------- */

static PyObject *core_supported(PyObject *self, PyObject *name)
{
    const char *s = PyUnicode_AsUTF8(name);

    (void)self;
    return s ? PyBool_FromLong(ts_word_known(s)) : NULL;
}

static PyObject *core_ops(PyObject *self, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    const char *word;

    (void)self;
    (void)unused;
    for (int i = 0; list && (word = ts_word_name(i)); i++) {
        PyObject *name = PyUnicode_FromFormat("%s%s", strstr(word, "::") ? "" : "aten::", word);

        if (!name || PyList_Append(list, name))
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static void detach(PyObject *capsule)
{
    ts_device_detach(PyCapsule_GetPointer(capsule, "poptorch.devices"));
}

/* Devices first, first + 1, ...; exclusive: for this process alone. */
static PyObject *core_attach(PyObject *self, PyObject *args)
{
    ts_attach_options opt = {0};
    ts_attachment *a;
    int first, *ids, exclusive;
    ts_status s;

    (void)self;
    if (!PyArg_ParseTuple(args, "iidp", &first, &opt.count, &opt.wait, &exclusive))
        return NULL;
    opt.exclusive = exclusive;
    opt.count = opt.count < 1 ? 1 : opt.count;
    if (!(ids = PyMem_Calloc((size_t)opt.count, sizeof(*ids))))
        return PyErr_NoMemory();
    for (int i = 0; i < opt.count; i++)
        ids[i] = first + i;
    opt.ids = ids;
    Py_BEGIN_ALLOW_THREADS s = ts_device_attach(&opt, &a);
    Py_END_ALLOW_THREADS PyMem_Free(ids);
    return s ? core_fail() : PyCapsule_New(a, "poptorch.devices", detach);
}

static PyMethodDef functions[] = {
    CORE_METHOD("attach", core_attach, METH_VARARGS,
                "attach(first, count, wait, exclusive) -> devices for Engine(); wait: seconds, -1 "
                "for ever"),
    CORE_METHOD(
        "compile", core_compile, METH_VARARGS,
        "compile(graph, options) -> Executable; options: a dict by the names of ts_options\n"
        "(doc/options.md). None leaves one as it is. optimizer: a dict too, whose hyper is\n"
        "one, and groups: [([names], hyper)]; stages: [(device, phase, [blocks])],\n"
        "replica_groups: [(name, type, size, read_all)], progress: called with a percentage"),
    CORE_METHOD("cycles", core_cycles, METH_VARARGS,
                "cycles(graph, options) -> (of a step, of a call) on the modelled IPU, or None"),
    CORE_METHOD("profile", core_profile, METH_VARARGS,
                "profile(graph, options, executable): of one that was loaded"),
    CORE_METHOD("load", core_load, METH_O, "load(path) -> Executable"),
    CORE_METHOD("subscript", core_subscript, METH_VARARGS,
                "subscript(type, function): x[i:j] of the type and those derived from it is\n"
                "function(x, index) when i or j is no int; None: as it was"),
    CORE_METHOD("supported", core_supported, METH_O, "supported(op): is there a row for it?"),
    CORE_METHOD("ops", core_ops, METH_NOARGS, "ops() -> the names of all rows"),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "poptorch._core", .m_doc = "tessera.h for poptorch.",
    .m_size = -1,          .m_methods = functions,
};

#ifdef TS_HAVE_SQLITE3
enum { PROFILES = 1 }; /* this build writes them */
#else
enum { PROFILES = 0 };
#endif

static bool fill(PyObject *m)
{
    error_type = PyErr_NewException("poptorch._core.Error", NULL, NULL);
    return error_type && !PyModule_AddObjectRef(m, "Error", error_type) &&
           !PyModule_AddType(m, &core_value_type) && !PyModule_AddType(m, &core_graph_type) &&
           !PyModule_AddType(m, &executable_type) && !PyModule_AddType(m, &engine_type) &&
           !PyModule_AddType(m, &core_table_type) &&
           !PyModule_AddIntConstant(m, "profiles", PROFILES) &&
           !PyModule_AddStringConstant(m, "version", ts_version());
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *m = PyModule_Create(&module);

    if (m && !fill(m))
        Py_CLEAR(m);
    return m;
}

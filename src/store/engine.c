/* engine.c - an engine's weights as a file, in one call each.
 *
 * A file holds what torch.save(model.state_dict()) does: names and tensors. Saving writes every
 * state of the engine, the optimiser's too, so that a run can go on; loading takes what has the name
 * of a state, from a state dict or from a checkpoint that has one inside.
 */
#include "run/engine.h"
#include "tessera/store.h"

static const ts_tensor_info *state_at(const ts_engine *e, int i)
{
    return ts_executable_tensor(e->exe, TS_ROLE_STATE, i);
}

/* --- saving --- */

static ts_status read_state(const ts_engine *e, const ts_tensor_info *t, ts_object *dict)
{
    ts_array a = {.dtype = t->dtype, .rank = t->rank, .bytes = t->bytes};
    ts_status s;

    memcpy(a.dims, t->dims, sizeof(a.dims));
    TS_TRY(ts_alloc(a.bytes, t->name, &a.data));
    s = ts_engine_read(e, t->name, a.data, a.bytes);
    if (!s)
        s = ts_object_set(dict, t->name, ts_object_new_tensor(&a));
    free(a.data);
    return s;
}

ts_status ts_engine_save(const ts_engine *e, const char *path)
{
    const ts_tensor_info *t;
    ts_object *dict;
    ts_status s = TS_OK;

    if (!e || !path)
        return ts_fail(TS_ERR_ARG, "saving an engine's weights needs the engine and a path");
    dict = ts_object_new_dict();
    if (!dict)
        return TS_ERR_MEMORY;
    for (int i = 0; !s && (t = state_at(e, i)); i++)
        s = read_state(e, t, dict);
    if (!s)
        s = ts_object_save(dict, path, TS_FILE_AUTO);
    ts_object_free(dict);
    return s;
}

/* --- loading --- */

static const ts_object *states_in(const ts_object *file)
{
    static const char *const places[] = {"model_state_dict", "state_dict", "model"};

    for (int i = 0; i < TS_COUNT(places); i++)
        if (ts_object_size(ts_object_get(file, places[i])))
            return ts_object_get(file, places[i]);
    return file;
}

static ts_status check(const ts_tensor_info *t, const ts_array *a)
{
    bool same = a->rank == t->rank && !memcmp(a->dims, t->dims, sizeof(*a->dims) * (size_t)a->rank);
    bool floats = ts_dtype_is_float(a->dtype) && ts_dtype_is_float(t->dtype);

    if (same && (a->dtype == t->dtype || floats))
        return TS_OK;
    return ts_fail(TS_ERR_SHAPE, "%s has %zu bytes of %s in the file and %zu of %s in the engine",
                   t->name, a->bytes, ts_dtype_name(a->dtype), t->bytes, ts_dtype_name(t->dtype));
}

/* Floats of another size are converted. */
static ts_status write_state(ts_engine *e, const ts_tensor_info *t, const ts_array *a)
{
    int64_t n = (int64_t)(t->bytes / ts_dtype_size(t->dtype));
    void *data;
    ts_status s;

    TS_TRY(check(t, a));
    if (a->dtype == t->dtype)
        return ts_engine_write(e, t->name, a->data, a->bytes);
    TS_TRY(ts_alloc(t->bytes, t->name, &data));
    for (int64_t i = 0; i < n; i++)
        ts_dtype_set(t->dtype, data, i, ts_dtype_get(a->dtype, a->data, i));
    s = ts_engine_write(e, t->name, data, t->bytes);
    free(data);
    return s;
}

static ts_status write_all(ts_engine *e, const ts_object *states, bool checking, int *taken)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = state_at(e, i)); i++) {
        const ts_array *a = ts_object_array(ts_object_get(states, t->name));
        if (!a)
            continue;
        TS_TRY(checking ? check(t, a) : write_state(e, t, a));
        ++*taken;
    }
    return TS_OK;
}

ts_status ts_engine_load(ts_engine *e, const char *path)
{
    int found = 0, taken = 0;
    ts_object *file;
    ts_status s;

    if (!e || !path)
        return ts_fail(TS_ERR_ARG, "loading an engine's weights needs the engine and a path");
    TS_TRY(ts_object_load(path, &file));
    s = write_all(e, states_in(file), true, &found); /* all or nothing */
    if (!s && !found)
        s = ts_fail(TS_ERR_ARG, "no tensor of %s has the name of a state of the engine", path);
    if (!s)
        s = write_all(e, states_in(file), false, &taken);
    ts_object_free(file);
    if (s)
        ts_error_doing("loading the weights of %s", path);
    return s;
}

/* store.c - the public calls: which format a file has, and files as a whole. */
#include "store/store.h"
#include <strings.h>

/* --- loading ---------------------------------------------------------------------------------- */

/* A zip is a checkpoint when it has a NAME/data.pkl, and NumPy's otherwise. */
static int64_t find_pickle(const ts_zip *z)
{
    static const char ending[] = "/data.pkl";

    for (int64_t i = 0; i < ts_zip_count(z); i++) {
        const char *name = ts_zip_name(z, i);
        size_t n = strlen(name), m = sizeof(ending) - 1;
        if (n >= m && n < 512 && !strcmp(name + n - m, ending))
            return i;
    }
    return -1;
}

static ts_status read_zip(const ts_input *in, ts_object **out)
{
    ts_zip *z;
    int64_t pickle;
    ts_status s;

    TS_TRY(ts_zip_open(in, &z));
    pickle = find_pickle(z);
    s = pickle >= 0 ? ts_pth_read(z, pickle, out) : ts_npz_read(z, out);
    ts_zip_close(z);
    return s;
}

/* With an entry first, or the end of an empty archive. */
static bool is_zip(const ts_head *h)
{
    return !memcmp(h->data, "PK\3\4", 4) || !memcmp(h->data, "PK\5\6", 4);
}

ts_status ts_head_read(const ts_input *in, ts_head *h)
{
    *h = (ts_head){.size = in->size};
    return ts_input_read(in, 0, h->data, TS_MIN(sizeof(h->data), in->size));
}

static ts_status load(const ts_input *in, ts_object **out)
{
    static const struct {
        bool (*is)(const ts_head *h);
        ts_status (*read)(const ts_input *in, ts_object **out);
    } formats[] = {
        {is_zip, read_zip},
        {ts_npy_is, ts_npy_read},
        {ts_legacy_is, ts_legacy_read},
        {ts_safetensors_is, ts_safetensors_read},
    };
    ts_head h;

    *out = NULL;
    if (!in->size)
        return ts_fail(TS_ERR_PARSE, "the file is empty");
    TS_TRY(ts_head_read(in, &h));
    for (int i = 0; i < TS_COUNT(formats); i++)
        if (formats[i].is(&h))
            return formats[i].read(in, out);
    ts_fail(TS_ERR_PARSE, "%lu bytes that are no checkpoint and no array", (unsigned long)in->size);
    ts_error_hint("PyTorch's .pth, safetensors, and NumPy's .npy and .npz are read");
    return TS_ERR_PARSE;
}

ts_status ts_object_load_memory(const void *data, size_t len, ts_object **out)
{
    ts_input in = {.mem = data, .size = len};

    if (!out || (!data && len))
        return ts_fail(TS_ERR_ARG, "ts_object_load_memory needs bytes and a place for the result");
    if (!data)
        in.mem = (const uint8_t *)"";
    return load(&in, out);
}

ts_status ts_object_load(const char *path, ts_object **out)
{
    return ts_object_load_with(path, NULL, out);
}

ts_status ts_object_load_with_sized(const char *path, const ts_load_options *given, size_t size,
                                    ts_object **out)
{
    ts_load_options opt;
    ts_input in;
    ts_status s;

    if (!path || !out)
        return ts_fail(TS_ERR_ARG, "ts_object_load needs a path and a place for the result");
    *out = NULL;
    TS_TRY(ts_take_sized("ts_object_load_with", given, size, &opt, sizeof(opt)));
    if (opt.memory < 0)
        return ts_fail(TS_ERR_ARG, "a file cannot take %ld bytes", (long)opt.memory);
    TS_TRY(ts_input_open(&in, path));
    in.memory = (uint64_t)opt.memory;
    in.shapes = opt.shapes;
    s = load(&in, out);
    ts_input_close(&in);
    if (s)
        ts_error_doing("reading %s", path);
    return s;
}

/* --- saving ----------------------------------------------------------------------------------- */

static const struct {
    const char *ending;
    ts_file_format format;
} endings[] = {
    {".pth", TS_FILE_PTH},  {".pt", TS_FILE_PTH},
    {".ckpt", TS_FILE_PTH}, {".safetensors", TS_FILE_SAFETENSORS},
    {".npz", TS_FILE_NPZ},  {".npy", TS_FILE_NPY},
};

static ts_status format_of(const char *path, ts_file_format *out)
{
    size_t n = strlen(path);

    for (int i = 0; i < TS_COUNT(endings); i++) {
        size_t m = strlen(endings[i].ending);
        if (n >= m && !strcasecmp(path + n - m, endings[i].ending)) {
            *out = endings[i].format;
            return TS_OK;
        }
    }
    ts_fail(TS_ERR_ARG, "the ending of %s says no format", path);
    ts_error_hint("use .pth, .pt, .ckpt, .safetensors, .npz or .npy, or give the format");
    return TS_ERR_ARG;
}

/* What was loaded by its shapes has nothing to save. What is too deep is refused when it is written. */
static bool is_whole(const ts_object *o, unsigned depth)
{
    const ts_array *a = ts_object_array(o);

    for (int64_t i = 0; i < ts_object_size(o) && depth < TS_STORE_DEPTH; i++)
        if (!is_whole(ts_object_at(o, i), depth + 1))
            return false;
    return !a || a->data || !a->bytes;
}

static ts_status save(const ts_object *o, const char *path, ts_file_format format)
{
    static ts_status (*const writers[])(const ts_object *o, ts_file_out *f) = {
        [TS_FILE_PTH] = ts_pth_write,
        [TS_FILE_SAFETENSORS] = ts_safetensors_write,
        [TS_FILE_NPZ] = ts_npz_write,
        [TS_FILE_NPY] = ts_npy_write,
    };
    ts_file_out f;

    if (format == TS_FILE_AUTO)
        TS_TRY(format_of(path, &format));
    if ((unsigned)format >= TS_COUNT(writers))
        return ts_fail(TS_ERR_ARG, "%d is no file format", (int)format);
    TS_TRY(ts_file_begin(&f, path));
    return ts_file_end(&f, 0644, writers[format](o, &f));
}

ts_status ts_object_save(const ts_object *o, const char *path, ts_file_format format)
{
    ts_status s;

    if (!o || !path)
        return ts_fail(TS_ERR_ARG, "ts_object_save needs an object and a path");
    if (!is_whole(o, 0))
        return ts_fail(TS_ERR_ARG, "tensors that were loaded by their shapes cannot be saved");
    s = save(o, path, format);
    if (s)
        ts_error_doing("saving %s", path);
    return s;
}

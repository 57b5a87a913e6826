/* weights.c - files of weights: the state dict in them, the model it belongs to, and what else the
 * file says.
 *
 * A file of `tessera train` carries its model as text beside the weights. One of a PyTorch script
 * does not: then the parameters' names and shapes decide, as they do for load_state_dict. The names
 * and shapes of a model are those of its states when compiled for the reference executor, which
 * needs no C compiler and takes no time.
 */
#include "net.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- what is in a file --- */

static bool is_state_dict(const ts_object *o)
{
    for (int64_t i = 0; i < ts_object_size(o); i++)
        if (ts_object_text(ts_object_key(o, i)) && ts_object_array(ts_object_at(o, i)))
            return true;
    return false;
}

const ts_object *weights_states(const ts_object *file)
{
    static const char *const places[] = {"model_state_dict", "state_dict", "model"};

    for (int i = 0; i < COUNT(places); i++)
        if (is_state_dict(ts_object_get(file, places[i])))
            return ts_object_get(file, places[i]);
    return is_state_dict(file) ? file : NULL;
}

/* The text under "tessera.model" and so on, or NULL. A training checkpoint has the same keys in a
 * dict of its own. */
static const char *fact(const void *file, const char *key)
{
    const char *s = ts_object_text(ts_object_get(ts_object_get(file, "__metadata__"), key));

    return s ? s : ts_object_text(ts_object_get(ts_object_get(file, "tessera"), key));
}

/* "T-shirt\nTrouser" -> names, which the first one owns. */
static int read_names(const char *text, char ***names)
{
    char *rest = strdup(text);
    int n = text[0] != 0;

    for (const char *p = text; *p; p++)
        n += *p == '\n' && p[1];
    *names = rest && n ? calloc((size_t)n, sizeof(**names)) : NULL;
    if (!*names) {
        free(rest);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        (*names)[i] = strsep(&rest, "\n");
        unescape_name((*names)[i]);
    }
    return n;
}

const char *weights_class(const weights *w, int64_t classes, int i)
{
    return w->nnames == classes && i < w->nnames ? w->names[i] : NULL;
}

void weights_tidy_names(weights *w)
{
    for (int i = 0; i < w->nnames; i++)
        printable(w->names[i], w->names[i], 0);
}

/* --- do weights and model fit? --- */

/* Batch norm counts its batches; nothing is computed with it. */
static bool ignored(const char *key)
{
    const char *dot = key ? strrchr(key, '.') : NULL;

    return key &&
           (!strcmp(dot ? dot + 1 : key, "num_batches_tracked") || !strcmp(key, "__metadata__"));
}

static bool has_state(const ts_executable *x, const char *name)
{
    const ts_tensor_info *t;

    for (int i = 0; name && (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++)
        if (!strcmp(t->name, name))
            return true;
    return false;
}

/* Any floats become f32 (weights_write); nothing else becomes another type. */
static bool can_become(ts_dtype from, ts_dtype to)
{
    return from == to || (to == TS_F32 && (from == TS_F64 || from == TS_F16 || from == TS_BF16));
}

/* What is wrong with the tensor for a state, in a few words; "" for nothing. */
static const char *misfit(const ts_tensor_info *t, const ts_object *o, char *out, size_t size)
{
    const ts_array *a = ts_object_array(o);
    char have[128], want[128];

    out[0] = 0;
    if (!o)
        snprintf(out, size, "missing in the file");
    else if (!a)
        snprintf(out, size, "is no tensor but %s", ts_kind_name(ts_object_kind(o)));
    else if (a->rank != t->rank || memcmp(a->dims, t->dims, sizeof(*a->dims) * (size_t)a->rank))
        snprintf(out, size, "is %s in the file, %s in the model",
                 a->rank ? shape_text(a->rank, a->dims, have, sizeof(have)) : "one number",
                 t->rank ? shape_text(t->rank, t->dims, want, sizeof(want)) : "one number");
    else if (!can_become(a->dtype, t->dtype))
        snprintf(out, size, "is %s in the file, %s in the model", ts_dtype_name(a->dtype),
                 ts_dtype_name(t->dtype));
    return out;
}

bool weights_fit(const ts_tensor_info *t, const ts_object *o)
{
    char text[400];

    return !misfit(t, o, text, sizeof(text))[0];
}

static int difference(FILE *out, const char *name, const char *what)
{
    char shown[256];

    if (out)
        fprintf(out, "\n    %-24s %s", printable(name, shown, sizeof(shown)), what);
    return 1;
}

/* What an engine that trains saves beside the weights (ts_engine_save): NAME.exp_avg and the like,
 * which nothing else can be called where NAME is a tensor itself, the count of steps, and numbers
 * that may change on the way, as lr. */
static bool of_optimizer(const ts_executable *x, const char *key)
{
    char name[1024];
    const char *dot = key ? strrchr(key, '.') : NULL;
    const ts_option *o;

    if (dot && (size_t)(dot - key) < sizeof(name)) {
        snprintf(name, sizeof(name), "%.*s", (int)(dot - key), key);
        return has_state(x, name);
    }
    for (int i = 0; key && (o = ts_option_at(TS_RECORD_HYPER, i)); i++)
        if (!strcmp(o->name, key))
            return true;
    return key && !strcmp(key, "step");
}

int weights_compare(const ts_executable *x, const ts_object *states, FILE *out)
{
    const ts_tensor_info *t;
    char text[400];
    int n = 0;

    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++)
        if (misfit(t, ts_object_get(states, t->name), text, sizeof(text))[0])
            n += difference(out, t->name, text);
    for (int64_t i = 0; i < ts_object_size(states); i++) {
        const char *key = ts_object_text(ts_object_key(states, i));
        if (!ignored(key) && !has_state(x, key) && !of_optimizer(x, key))
            n += difference(out, key ? key : "(no text)", "unexpected: the model has none");
    }
    return n;
}

int weights_misfit(const ts_executable *x, const ts_object *states, const char *model,
                   const char *where)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int count, code;

    if (!f)
        return failure("out of memory");
    count = weights_compare(x, states, f);
    fclose(f);
    code = explain(TS_ERR_SHAPE, where, "loading the weights",
                   "--model NAME|FILE says which model the weights are of",
                   "the weights do not fit the model '%s'; %d %s:%s", model, count,
                   count == 1 ? "tensor differs" : "tensors differ", text ? text : "");
    free(text);
    return code;
}

/* --- models --- */

/* An executable that knows the names and shapes of the model's states; nothing is compiled. */
static ts_status states_of(const ts_model *m, const ts_model_options *o, ts_executable **out)
{
    ts_graph *g;
    ts_status s = ts_model_graph(m, o, &g);

    *out = NULL;
    if (s)
        return s;
    s = ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE, .cache_dir = ""}, out);
    ts_graph_free(g);
    return s;
}

static const char **state_names(const ts_executable *x, int *n)
{
    const ts_tensor_info *t;
    const char **names;

    for (*n = 0; ts_executable_tensor(x, TS_ROLE_STATE, *n);)
        ++*n;
    names = calloc((size_t)*n + 1, sizeof(*names));
    for (int i = 0; names && (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++)
        names[i] = t->name;
    return names;
}

/* The tensors by the model's names; NULL where they have them, or have others altogether. */
static ts_object *called_by(const ts_model *m, const ts_object *states)
{
    ts_object *o = NULL;
    const char **names;
    ts_executable *x;
    int n;

    if (states_of(m, NULL, &x))
        return NULL;
    names = state_names(x, &n);
    if (names)
        o = weights_renamed(states, names, n);
    free(names);
    ts_executable_free(x);
    return o;
}

/* As many classes as the weights of the last layer that has the model's number of them say; else
 * what the description says. */
static int64_t count_classes(const ts_model *m, const ts_executable *x, const ts_object *states)
{
    int64_t classes = ts_model_classes(m), found = classes;
    const ts_tensor_info *t;
    ts_graph *g;

    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++) {
        const ts_array *a = ts_object_array(ts_object_get(states, t->name));
        if (a && t->rank == a->rank && t->rank && t->dims[0] == classes)
            found = a->dims[0];
    }
    if (found == classes || found <= 0 ||
        ts_model_graph(m, &(ts_model_options){.classes = found}, &g))
        return classes;
    ts_graph_free(g);
    return found;
}

static ts_status model_classes(const ts_model *m, const ts_object *states, int64_t *classes)
{
    ts_executable *x;
    ts_status s = states_of(m, NULL, &x);

    *classes = s ? 0 : count_classes(m, x, states);
    ts_executable_free(x);
    return s;
}

static ts_status fits(const ts_model *m, const ts_object *states, int64_t *classes, bool *out)
{
    ts_object *renamed = called_by(m, states);
    const ts_object *found = renamed ? renamed : states;
    ts_executable *x = NULL;
    ts_status s = model_classes(m, found, classes);

    if (!s)
        s = states_of(m, &(ts_model_options){.classes = *classes}, &x);
    *out = !s && !weights_compare(x, found, NULL);
    ts_executable_free(x);
    ts_object_free(renamed);
    return s;
}

/* The built-in model whose parameters have these names and shapes, for how many classes; *out is
 * NULL when none has. */
static int match(const ts_object *states, ts_model **out, int64_t *classes)
{
    bool found = false;

    *out = NULL;
    for (int i = 0; ts_model_builtin(i) && !found; i++) {
        ts_model_free(*out);
        if (ts_model_load(ts_model_builtin(i), out) || fits(*out, states, classes, &found)) {
            ts_model_free(*out);
            *out = NULL;
            return failed();
        }
    }
    if (!found) {
        ts_model_free(*out);
        *out = NULL;
    }
    return TOOL_OK;
}

/* --- the whole file --- */

static int no_states(const weights *w)
{
    return explain(TS_ERR_ARG, w->path, "looking for the weights",
                   "a checkpoint is what torch.save(model.state_dict(), ...) or 'tessera train' "
                   "writes",
                   "%s has no state dict: no dict of names and tensors", w->path);
}

static int no_model(const weights *w)
{
    return explain(TS_ERR_ARG, w->path, "looking for the model of the weights",
                   "name it: --model NAME or --model FILE; 'tessera models' lists the names",
                   "%s does not say which model it is of, and no built-in model has parameters of "
                   "these names and shapes",
                   w->path);
}

static void rename_states(weights *w)
{
    w->renamed = w->model ? called_by(w->model, w->states) : NULL;
    if (w->renamed)
        w->states = w->renamed;
}

static int find_model(weights *w, const char *model)
{
    const char *text = fact(w->file, "tessera.model");
    const char *name = fact(w->file, "tessera.model.name");
    ts_status s = TS_OK;
    int code;

    if (model)
        s = ts_model_load(model, &w->model);
    else if (text)
        s = ts_model_parse(text, name ? name : w->path, &w->model);
    else {
        code = match(w->states, &w->model, &w->classes);
        rename_states(w);
        return code;
    }
    rename_states(w);
    if (!s)
        s = model_classes(w->model, w->states, &w->classes);
    return s ? failed() : TOOL_OK;
}

static int bad_fact(const weights *w, const char *key, const char *value)
{
    char shown[100];

    return explain(TS_ERR_CORRUPT, w->path, "reading the metadata", NULL,
                   "%s is '%s', which makes no sense", key, printable(value, shown, sizeof(shown)));
}

static int read_facts(weights *w)
{
    const char *names = fact(w->file, "tessera.classes"), *bad;
    char shown[PATH_MAX];

    w->data = fact(w->file, "tessera.data");
    if (w->data && strcmp(w->data, printable(w->data, shown, sizeof(shown))))
        return bad_fact(w, "tessera.data", w->data);
    bad = recipe_read(&w->recipe, w->model, fact, w->file);
    if (bad)
        return bad_fact(w, bad, fact(w->file, bad));
    if (names)
        w->nnames = read_names(names, &w->names);
    return TOOL_OK;
}

int weights_load(const char *path, bool shapes, weights *out)
{
    *out = (weights){.path = strdup(path)};
    if (!out->path || ts_object_load_with(path, &(ts_load_options){.shapes = shapes}, &out->file)) {
        int code = out->path ? failed() : failure("out of memory");
        weights_free(out);
        return code;
    }
    out->states = weights_states(out->file);
    return TOOL_OK;
}

int weights_identify(weights *w, const char *model)
{
    int code = find_model(w, model);

    return code || !w->model ? code : read_facts(w);
}

/* Before the net is compiled: that takes longer. */
static int check_fit(const weights *w)
{
    ts_model_options o = {.rank = w->recipe.rank, .dims = w->recipe.dims, .classes = w->classes};
    ts_executable *x;
    char name[128];
    int code = TOOL_OK;

    if (states_of(w->model, &o, &x))
        return failed();
    if (weights_compare(x, w->states, NULL))
        code = weights_misfit(x, w->states, printable(ts_model_name(w->model), name, sizeof(name)),
                              w->path);
    ts_executable_free(x);
    return code;
}

int weights_open(const char *path, const char *model, weights *out)
{
    int code = weights_load(path, false, out);

    if (code)
        return code;
    code = out->states ? weights_identify(out, model) : no_states(out);
    if (!code && !out->model)
        code = no_model(out);
    if (!code)
        code = check_fit(out);
    if (code)
        weights_free(out);
    return code;
}

void weights_free(weights *w)
{
    free(w->path);
    ts_object_free(w->renamed);
    ts_object_free(w->file);
    ts_model_free(w->model);
    recipe_free(&w->recipe);
    if (w->names)
        free(w->names[0]);
    free(w->names);
    *w = (weights){0};
}

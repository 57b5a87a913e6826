/* export.c - a trained net as C files that need no library.
 *
 *   graph --states become constants--> graph --pass, plan--> program --nest.c--> NAME.c, NAME.h
 *
 * The passes are the usual ones but for those that serve vectors and threads, so what depends on
 * weights alone (the factors of a batch norm, say) is computed now. Values share one block of
 * scratch memory at the offsets of the plan; outputs are written where the caller wants them. A
 * kernel is a function of the memory it touches:
 *
 *   static void net_k0(float *v7, const float *in_images_0)      %7 = relu(conv(images, ...))
 *   void net_run_in(float *scratch, const float *input, float *output)
 *   {
 *       net_k0(scratch + 0, input);
 *       net_k1(output, scratch + 0);
 *   }
 */
#include "export/export.h"
#include <ctype.h>
#include <inttypes.h>
#include <math.h>

/* --- numbers --- */

void ts_export_number(ts_text *t, ts_dtype type, const void *data, int64_t i)
{
    double x = ts_dtype_get(type, data, i);
    char s[64];

    if (type == TS_F16 || type == TS_BF16)
        ts_format(s, sizeof(s), "0x%04x", ((const uint16_t *)data)[i]);
    else if (type == TS_I64 && ((const int64_t *)data)[i] == INT64_MIN)
        ts_format(s, sizeof(s), "INT64_MIN");
    else if (type == TS_I64)
        ts_format(s, sizeof(s), "%" PRId64, ((const int64_t *)data)[i]);
    else if (!ts_dtype_is_float(type))
        ts_format(s, sizeof(s), "%.0f", x);
    else if (!isfinite(x))
        ts_format(s, sizeof(s), isnan(x) ? "NAN" : x > 0 ? "INFINITY" : "-INFINITY");
    else {
        const char *end = type == TS_F32 ? "f" : "";
        ts_format(s, sizeof(s), type == TS_F32 ? "%.8g" : "%.17g", x);
        if (type == TS_F32 && (float)ts_to_real(s, NULL) != (float)x)
            ts_format(s, sizeof(s), "%.9g", x);
        ts_format(s + strlen(s), sizeof(s) - strlen(s), "%s%s", strpbrk(s, ".e") ? "" : ".0", end);
    }
    ts_text_add(t, s, strlen(s));
}

void ts_export_array(ts_text *t, ts_dtype type, const void *data, int64_t count)
{
    ts_text_printf(t, "{");
    for (int64_t i = 0; i < count; i++) {
        ts_text_add(t, i % 8 ? ", " : i ? ",\n    " : "\n    ", i % 8 ? 2 : i ? 6 : 5);
        ts_export_number(t, type, data, i);
    }
    ts_text_printf(t, "\n}");
}

/* --- names --- */

static const char *identifier(ts_arena *a, const char *s)
{
    char *name = ts_arena_printf(a, "%s%s", isdigit((unsigned char)s[0]) ? "n" : "", s);

    for (char *p = name; *p; p++)
        if ((unsigned char)*p > 127 || !isalnum((unsigned char)*p))
            *p = '_';
    return name;
}

static const char *upper(ts_arena *a, const char *s)
{
    char *name = ts_arena_strdup(a, s);

    for (char *p = name; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return name;
}

static ts_status find_name(ts_export *x)
{
    const char *wanted = x->opt->name;

    x->name = identifier(x->a, wanted ? wanted : x->g->name);
    if (wanted && (strcmp(x->name, wanted) || !isalpha((unsigned char)wanted[0]))) {
        ts_fail(TS_ERR_ARG, "'%s' cannot be the name of an exported net", wanted);
        ts_error_hint("it begins every name in the C files: letters, digits and _, a letter first");
        return TS_ERR_ARG;
    }
    if (!isalpha((unsigned char)x->name[0]))
        x->name = ts_arena_printf(x->a, "net%s", x->name);
    if (strlen(x->name) >= sizeof(((ts_c_files *)0)->name))
        return ts_fail(TS_ERR_ARG,
                       "the name of an exported net has %zu letters; up to %zu are allowed",
                       strlen(x->name), sizeof(((ts_c_files *)0)->name) - 1);
    x->upper = upper(x->a, x->name);
    x->r.prefix = ts_arena_printf(x->a, "%s_", x->name);
    return TS_OK;
}

/* --- the model: states become constants --- */

static ts_status same_shape(const ts_value *v, const ts_array *w)
{
    ts_arena *a;
    ts_type t;

    if (w->rank == v->type.rank &&
        !memcmp(w->dims, v->type.dim, sizeof(*w->dims) * (size_t)w->rank))
        return TS_OK;
    a = ts_arena_new();
    t = ts_type_of(w->dtype, w->rank, w->dims);
    ts_fail(TS_ERR_SHAPE, "the weights have %s for '%s', the net wants %s", ts_type_text(a, &t),
            v->name, ts_type_text(a, &v->type));
    ts_arena_free(a);
    return TS_ERR_SHAPE;
}

static ts_status weight(const ts_export *x, const ts_state *s, void *data)
{
    const ts_value *v = s->value;
    const ts_array *w = ts_object_array(ts_object_get(x->opt->weights, v->name));
    int64_t count = ts_type_count(&v->type);

    if (x->opt->engine)
        return ts_engine_read(x->opt->engine, v->name, data, ts_type_bytes(&v->type));
    if (!x->opt->weights) {
        ts_init_fill(&s->init, v->name, 0, v->type.dtype, count, data);
        return TS_OK;
    }
    if (!w) {
        ts_fail(TS_ERR_ARG, "the weights have no tensor '%s'", v->name);
        ts_error_hint("they are a dict of tensors by the names of the net's parameters");
        return TS_ERR_ARG;
    }
    TS_TRY(same_shape(v, w));
    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(v->type.dtype, data, i, ts_dtype_get(w->dtype, w->data, i));
    return TS_OK;
}

/* What the outputs need, by value id. */
static bool *needed(const ts_export *x)
{
    const ts_graph *g = x->g;
    bool *need = TS_NEWS(x->a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        need[g->outputs[i]->id] = true;
    ts_graph_mark_needed(g, need);
    return need;
}

/* Smaller ones are folded, and the bytes with them. */
static bool as_bytes(const ts_export *x, const ts_type *t)
{
    enum { LEAST = 4097 };

    return x->opt->int8 && t->dtype == TS_F32 && t->rank > 1 && ts_type_count(t) >= LEAST;
}

/* w = q * scale, the scale of a row so that its largest is 127. */
static ts_value *quantised(ts_export *x, const ts_value *state, float *data)
{
    const ts_type *t = &state->type;
    struct ts_rounded rounded = {state, data};
    int64_t rows = t->dim[0], n = ts_type_count(t) / rows, dims[TS_MAX_RANK];
    int8_t *q = ts_arena_alloc(x->a, (size_t)(rows * n));
    float *scale = TS_NEWS(x->a, float, rows);

    for (int i = 0; i < t->rank; i++)
        dims[i] = i ? 1 : rows;
    for (int64_t r = 0; r < rows; r++) {
        float most = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            most = fmaxf(most, fabsf(data[i]));
        scale[r] = most > 0 ? most / 127 : 1;
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            q[i] = (int8_t)rintf(data[i] / scale[r]);
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            data[i] = (float)q[i] * scale[r];
    }
    TS_PUSH(x->a, x->rounded, x->nrounded, rounded);
    return ts_mul(ts_cast(ts_const_n(x->model, TS_I8, q, t->rank, t->dim), TS_F32),
                  ts_const_n(x->model, TS_F32, scale, t->rank, dims));
}

static ts_status add_weight(ts_export *x, const ts_state *s, ts_value **map)
{
    const ts_type *t = &s->value->type;
    void *data = ts_arena_alloc(x->a, ts_type_bytes(t));
    ts_value *v;

    TS_TRY(weight(x, s, data));
    v = as_bytes(x, t) ? quantised(x, s->value, data)
                       : ts_const_n(x->model, t->dtype, data, t->rank, t->dim);
    if (!v)
        return ts_graph_check(x->model);
    v->node->layer = s->value->name;
    map[s->value->id] = v;
    return TS_OK;
}

static ts_status make_model(ts_export *x)
{
    const ts_graph *g = x->g;
    bool *need = needed(x);
    ts_value **map = TS_NEWS(x->a, ts_value *, g->nvalues);

    x->model = ts_graph_in(x->a, g->name);
    for (int i = 0; i < g->ninputs; i++)
        if (need[g->inputs[i]->id]) {
            ts_value *v = ts_graph_add_input(x->model, g->inputs[i]->name, g->inputs[i]->type);
            ts_param p = {.v = v, .graph = i};
            map[g->inputs[i]->id] = v;
            TS_PUSH(x->a, x->in, x->nin, p);
        }
    for (int i = 0; i < g->nstates; i++)
        if (need[g->states[i].value->id])
            TS_TRY(add_weight(x, &g->states[i], map));
    for (int i = 0; i < g->nnodes; i++)
        if (g->nodes[i]->nout && need[g->nodes[i]->out[0]->id])
            ts_graph_copy_node(x->model, g->nodes[i], map);
    for (int i = 0; i < g->noutputs; i++)
        ts_graph_add_output(x->model, map[g->outputs[i]->id], g->output_names[i]);
    return TS_OK;
}

static ts_status check(const ts_graph *g)
{
    TS_TRY(ts_graph_check(g));
    if (!g->noutputs) {
        ts_fail(TS_ERR_ARG, "the graph '%s' has no output to export", g->name);
        ts_error_hint("mark what a run should return with ts_output()");
        return TS_ERR_ARG;
    }
    if (g->nupdates) {
        ts_fail(TS_ERR_UNSUPPORTED, "the graph changes its state '%s'; only inference is exported",
                g->updates[0].state->name);
        ts_error_hint("build it without training: batch norm with .inference, no ts_assign");
        return TS_ERR_UNSUPPORTED;
    }
    return TS_OK;
}

static ts_status no_random(const ts_graph *g)
{
    for (int i = 0; i < g->nnodes; i++) {
        if (g->nodes[i]->op->flags & TS_HOST)
            return ts_fail_at(g->nodes[i], TS_ERR_UNSUPPORTED,
                              "exported C has no host to call, and the net has a host_call");
        if (g->nodes[i]->op->flags & TS_RANDOM) {
            ts_fail_at(g->nodes[i], TS_ERR_UNSUPPORTED,
                       "exported C has no random numbers, and '%s' makes some",
                       g->nodes[i]->op->name);
            ts_error_hint("build the net for inference: dropout does nothing there");
            return TS_ERR_UNSUPPORTED;
        }
    }
    return TS_OK;
}

/* Indices are 32 bits wide: many of the processors that this is for have no wider ones. */
static ts_status small_enough(const ts_graph *g)
{
    for (int i = 0; i < g->nvalues; i++)
        if (ts_type_count(&g->values[i]->type) > INT32_MAX)
            return ts_fail(TS_ERR_UNSUPPORTED,
                           "a tensor of %" PRId64 " elements is too large for exported C",
                           ts_type_count(&g->values[i]->type));
    return TS_OK;
}

/* --- the plan: outputs are the caller's memory --- */

static ts_status plan(ts_export *x)
{
    const ts_options opt = {.skip = "strips,split,layout,winograd,pad,attend,spread"};
    ts_program *p = TS_NEW(x->a, ts_program);
    const ts_graph *g;

    TS_TRY(ts_pass_all(x->a, x->model, &opt, &g));
    TS_TRY(no_random(g));
    if (x->opt->int8 && x->opt->calibrations)
        TS_TRY(ts_export_quantize(x, g, &g));
    TS_TRY(small_enough(g));
    p->g = g;
    p->place = TS_NEWS(x->a, ts_place, g->nvalues);
    TS_TRY(ts_plan_fuse(x->a, g, &opt, p));
    TS_TRY(ts_plan_schedule(x->a, p));
    TS_TRY(ts_plan_devices(x->a, &opt, p));
    for (int i = 0; i < g->noutputs; i++)
        if (p->place[g->outputs[i]->id].home == TS_HOME_BLOCK)
            p->place[g->outputs[i]->id].home = TS_HOME_OUTPUT;
    TS_TRY(ts_plan_memory(x->a, &opt, p));
    x->r.p = p;
    return TS_OK;
}

/* --- parameters --- */

static void name_param(ts_export *x, ts_param *p, const char *kind, const char *short_kind,
                       const char *name, bool alone, int i)
{
    p->name = alone ? kind
                    : ts_arena_printf(x->a, "%s_%s", short_kind,
                                      identifier(x->a, ts_arena_printf(x->a, "%s_%d", name, i)));
    p->size = ts_arena_printf(x->a, "%s_%s", x->upper, upper(x->a, p->name));
    p->type = ts_emit_memory_type(p->v->type.dtype);
    p->count = ts_type_count(&p->v->type);
}

static void find_params(ts_export *x)
{
    const ts_graph *g = x->r.p->g;
    const ts_type *t;

    for (int i = 0; i < x->nin; i++)
        name_param(x, &x->in[i], "input", "in", x->in[i].v->name, x->nin == 1, i);
    for (int i = 0; i < g->noutputs; i++) {
        ts_param p = {.v = g->outputs[i], .graph = i};
        name_param(x, &p, "output", "out", g->output_names[i], g->noutputs == 1, i);
        TS_PUSH(x->a, x->out, x->nout, p);
    }
    t = &x->out[0].v->type;
    x->classifies = x->nin == 1 && x->nout == 1 && t->rank == 2 && t->dim[0] == 1 &&
                    t->dim[1] > 1 && t->dtype == TS_F32;
}

/* The parameter that holds v, or NULL. */
static const ts_param *param_of(const ts_export *x, const ts_value *v)
{
    if (v->kind == TS_VALUE_INPUT)
        return &x->in[v->index];
    for (int i = 0; i < x->nout; i++)
        if (x->out[i].v == v && x->r.p->place[v->id].home == TS_HOME_OUTPUT)
            return &x->out[i];
    return NULL;
}

static void put_params(const ts_export *x, ts_text *t)
{
    for (int i = 0; i < x->nin; i++)
        ts_text_printf(t, "%sconst %s *%s", i ? ", " : "", x->in[i].type, x->in[i].name);
    for (int i = 0; i < x->nout; i++)
        ts_text_printf(t, "%s%s *%s", i || x->nin ? ", " : "", x->out[i].type, x->out[i].name);
}

static void put_args(const ts_export *x, ts_text *t)
{
    for (int i = 0; i < x->nin; i++)
        ts_text_printf(t, "%s%s", i ? ", " : "", x->in[i].name);
    for (int i = 0; i < x->nout; i++)
        ts_text_printf(t, "%s%s", i || x->nin ? ", " : "", x->out[i].name);
}

/* --- constants --- */

/* The state whose numbers these are, in whatever shape; or NULL. */
static const char *state_of(const ts_export *x, const ts_value *v)
{
    for (int i = 0; i < x->model->nnodes; i++) {
        const ts_node *n = x->model->nodes[i];
        if (n->op == TS_OP(const) && n->layer && ts_graph_find_state(x->g, n->layer) &&
            n->out[0]->type.dtype == v->type.dtype &&
            ts_type_count(&n->out[0]->type) == ts_type_count(&v->type) &&
            !memcmp(n->data, v->node->data, ts_type_bytes(&v->type)))
            return n->layer;
    }
    return NULL;
}

/* net_fc_weight; net_bn1_57 for what was computed from several. */
static const char *constant_name(const ts_export *x, const ts_value *v)
{
    const char *state = state_of(x, v), *layer = v->node->layer ? v->node->layer : "", *name;
    bool taken = !state;

    name = ts_arena_printf(x->a, "%s%s", x->r.prefix, identifier(x->a, state ? state : layer));
    for (int i = 0; i < x->r.p->g->nvalues; i++)
        taken = taken || (x->r.names[i] && !strcmp(x->r.names[i], name));
    return taken ? ts_arena_printf(x->a, "%s_%d", name, v->id) : name;
}

static void constants(ts_export *x, ts_c_files *out)
{
    const ts_graph *g = x->r.p->g;

    x->r.names = TS_NEWS(x->a, const char *, g->nvalues);
    for (int i = 0; i < g->nnodes; i++) {
        const ts_value *v = g->nodes[i]->nout ? g->nodes[i]->out[0] : NULL;
        if (!v || x->r.p->place[v->id].home != TS_HOME_CONST)
            continue;
        x->r.names[v->id] = constant_name(x, v);
        out->constant_bytes += ts_type_bytes(&v->type);
        ts_text_printf(&x->code, "\n/* %s */\nstatic const %s %s[%" PRId64 "] = ",
                       ts_type_text(x->a, &v->type), ts_emit_memory_type(v->type.dtype),
                       x->r.names[v->id], ts_type_count(&v->type));
        ts_export_array(&x->code, v->type.dtype, v->node->data, ts_type_count(&v->type));
        ts_text_printf(&x->code, ";\n");
    }
}

/* --- kernels --- */

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = text; (p = strstr(p, word)); p += len) {
        bool starts = p == text || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (starts && !(isalnum((unsigned char)p[len]) || p[len] == '_'))
            return true;
    }
    return false;
}

typedef struct touched { /* a value that a kernel reads or writes in memory */
    const ts_value *v;
    bool written;
} touched;

/* What the body really names: an element that is known needs no memory. */
static int touches(const ts_export *x, const ts_kernel *k, const char *body, touched *t)
{
    int n = 0;

    for (int i = 0; i < k->nroots; i++)
        t[n++] = (touched){k->roots[i], true};
    for (int i = 0; i < k->nreads; i++) {
        bool root = x->r.p->place[k->reads[i]->id].home == TS_HOME_CONST ||
                    !has_word(body, ts_render_pointer(&x->r, k->reads[i]));
        for (int j = 0; j < k->nroots; j++)
            root = root || k->roots[j] == k->reads[i];
        if (!root)
            t[n++] = (touched){k->reads[i], false};
    }
    return n;
}

static void put_head(ts_export *x, int i, const touched *t, int n)
{
    ts_text_printf(&x->code, "static void %sk%d(", x->r.prefix, i);
    for (int j = 0; j < n; j++)
        ts_text_printf(&x->code, "%s%s%s *%s", j ? ", " : "", t[j].written ? "" : "const ",
                       ts_emit_memory_type(t[j].v->type.dtype), ts_render_pointer(&x->r, t[j].v));
    ts_text_printf(&x->code, ")\n{\n");
}

/* "    net_k3(scratch + 1024, input);" */
static void put_call(ts_export *x, int i, const touched *t, int n, ts_text *calls)
{
    ts_text_printf(calls, "    %sk%d(", x->r.prefix, i);
    for (int j = 0; j < n; j++) {
        const ts_param *p = param_of(x, t[j].v);
        const char *type = ts_emit_memory_type(t[j].v->type.dtype);
        size_t floats = x->r.p->place[t[j].v->id].spot.offset / sizeof(float);
        ts_text_printf(calls, j ? ", " : "");
        if (p)
            ts_text_printf(calls, "%s", p->name);
        else if (t[j].v->type.dtype == TS_F32)
            ts_text_printf(calls, "scratch + %zu", floats);
        else
            ts_text_printf(calls, "(%s *)(void *)(scratch + %zu)", type, floats);
    }
    ts_text_printf(calls, ");\n");
}

static ts_status kernel(ts_export *x, int i, ts_text *calls)
{
    const ts_kernel *k = x->r.p->kernels[i];
    touched *t = TS_NEWS(x->a, touched, k->nroots + k->nreads);
    int n;

    x->r.body.len = 0;
    ts_render_describe(&x->r, k);
    ts_text_printf(&x->code, "\n/*\n");
    ts_text_add(&x->code, x->r.body.s, x->r.body.len);
    ts_text_printf(&x->code, " */\n");
    x->r.body.len = 0;
    x->r.next = 0;
    TS_TRY(ts_render_nest(&x->r, k));
    n = touches(x, k, x->r.body.s, t);
    put_head(x, i, t, n);
    ts_text_add(&x->code, x->r.body.s, x->r.body.len);
    ts_text_printf(&x->code, "}\n");
    put_call(x, i, t, n, calls);
    return TS_OK;
}

/* --- the functions of the header --- */

/* An output that no kernel writes: an input, a constant, or another output again. */
static void put_copies(const ts_export *x, ts_text *calls)
{
    for (int i = 0; i < x->nout; i++) {
        const ts_param *from = param_of(x, x->out[i].v);
        if (from == &x->out[i])
            continue;
        ts_text_printf(calls,
                       "    for (int32_t i = 0; i < %" PRId64 "; i++)\n        %s[i] = %s[i];\n",
                       x->out[i].count, x->out[i].name,
                       from ? from->name : ts_render_pointer(&x->r, x->out[i].v));
    }
}

static size_t scratch_floats(const ts_export *x)
{
    return TS_MAX(x->r.p->peak_bytes / sizeof(float), 1);
}

/* Is anything but floats in the scratch memory? */
static bool mixed(const ts_export *x)
{
    const ts_graph *g = x->r.p->g;

    for (int i = 0; i < g->nvalues; i++)
        if (x->r.p->place[i].home == TS_HOME_BLOCK && g->values[i]->type.dtype != TS_F32)
            return true;
    return false;
}

static void put_run_in(ts_export *x, const ts_text *calls)
{
    ts_text *t = &x->code;
    const char *body = calls->s ? calls->s : "";

    ts_text_printf(t, "\nvoid %srun_in(float *scratch, ", x->r.prefix);
    put_params(x, t);
    ts_text_printf(t, ")\n{\n%s", has_word(body, "scratch") ? "" : "    (void)scratch;\n");
    for (int i = 0; i < x->nin; i++)
        if (!has_word(body, x->in[i].name))
            ts_text_printf(t, "    (void)%s;\n", x->in[i].name);
    ts_text_printf(t, "%s}\n", body);
}

static void put_run(ts_export *x)
{
    ts_text *t = &x->code;
    bool any = mixed(x);

    if (any)
        ts_text_printf(
            t,
            "\nstatic union {\n    float f32[%s_SCRATCH];\n    double f64; /* aligns */\n"
            "    int64_t i64;\n} %sscratch;\n",
            x->upper, x->r.prefix);
    else
        ts_text_printf(t, "\nstatic float %sscratch[%s_SCRATCH];\n", x->r.prefix, x->upper);
    ts_text_printf(t, "\nvoid %srun(", x->r.prefix);
    put_params(x, t);
    ts_text_printf(t, ")\n{\n    %srun_in(%sscratch%s, ", x->r.prefix, x->r.prefix,
                   any ? ".f32" : "");
    put_args(x, t);
    ts_text_printf(t, ");\n}\n");
}

static void put_classify(ts_export *x)
{
    ts_text *t = &x->code;

    ts_text_printf(
        t,
        "\nint %sclassify(const %s *input)\n{\n    float scores[%s];\n    int best = 0;\n\n"
        "    %srun(input, scores);\n    for (int i = 1; i < %s; i++)\n"
        "        if (scores[i] > scores[best])\n            best = i;\n"
        "    return best;\n}\n",
        x->r.prefix, x->in[0].type, x->out[0].size, x->r.prefix, x->out[0].size);
}

/* --- files --- */

static void put_about(const ts_export *x, ts_text *t)
{
    const char *s = x->opt->about ? x->opt->about : "";

    for (; *s; s += *s == '\n') {
        size_t len = strcspn(s, "\n");
        ts_text_printf(t, len ? " * " : " *");
        ts_text_c(t, s, len);
        ts_text_printf(t, "\n");
        s += len;
    }
}

static void put_sizes(const ts_export *x, ts_text *t)
{
    for (int i = 0; i < x->nin + x->nout; i++) {
        const ts_param *p = i < x->nin ? &x->in[i] : &x->out[i - x->nin];
        ts_text_printf(t, "#define %s %" PRId64 " /* elements of %s, %s */\n", p->size, p->count,
                       p->name, ts_type_text(x->a, &p->v->type));
    }
    ts_text_printf(t, "#define %s_SCRATCH %zu /* floats of %sscratch memory */\n", x->upper,
                   scratch_floats(x), mixed(x) ? "double-aligned " : "");
}

static void put_prototypes(const ts_export *x, ts_text *t)
{
    ts_text_printf(t, "\n/* Uses static scratch memory: one call at a time. */\nvoid %srun(",
                   x->r.prefix);
    put_params(x, t);
    ts_text_printf(t,
                   ");\n/* The same in %s_SCRATCH floats of the caller's; what they hold before "
                   "does not matter. */\nvoid %srun_in(float *scratch, ",
                   x->upper, x->r.prefix);
    put_params(x, t);
    ts_text_printf(t, ");\n");
    if (x->classifies)
        ts_text_printf(t,
                       "/* The class with the best score. */\nint %sclassify(const %s *input);\n",
                       x->r.prefix, x->in[0].type);
}

static void put_header(const ts_export *x, const ts_c_files *out, ts_text *t)
{
    ts_text_printf(
        t,
        "/* %s.h - a trained net as C; made by Tessera " TS_VERSION ".\n *\n"
        " *   cc -std=c99 -O3 main.c %s.c -lm -o %s\n *\n"
        " * C99, no allocation, no library but libm. Memory: %zu bytes of constants, %zu "
        "bytes of scratch.\n",
        x->name, x->name, x->name, out->constant_bytes, out->scratch_bytes);
    if (x->opt->about && x->opt->about[0])
        ts_text_printf(t, " *\n");
    put_about(x, t);
    ts_text_printf(t, " */\n#ifndef %s_H\n#define %s_H\n\n#include <stdint.h>\n\n", x->upper,
                   x->upper);
    put_sizes(x, t);
    ts_text_printf(t, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    put_prototypes(x, t);
    ts_text_printf(t, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

static void put_source(ts_export *x, ts_text *t)
{
    ts_text prelude = {0};

    ts_plain_prelude(&x->r, x->code.s, &prelude);
    ts_text_printf(t,
                   "/* %s.c - made by Tessera " TS_VERSION "; %s.h says what it is. */\n"
                   "#include \"%s.h\"\n#include <math.h>\n",
                   x->name, x->name, x->name);
    if ((prelude.s && strstr(prelude.s, "memcpy(")) || strstr(x->code.s, "memcpy("))
        ts_text_printf(t, "#include <string.h>\n");
    if (prelude.len)
        ts_text_add(t, prelude.s, prelude.len);
    ts_text_add(t, x->code.s, x->code.len);
    ts_text_free(&prelude);
}

static ts_status write_files(ts_export *x, ts_c_files *out)
{
    ts_text calls = {0}, header = {0}, source = {0};
    ts_status s = TS_OK;

    constants(x, out);
    for (int i = 0; i < x->r.p->nkernels && !s; i++)
        s = kernel(x, i, &calls);
    put_copies(x, &calls);
    put_run_in(x, &calls);
    ts_text_free(&calls);
    if (s)
        return s;
    put_run(x);
    if (x->classifies)
        put_classify(x);
    out->scratch_bytes = scratch_floats(x) * sizeof(float);
    out->kernels = x->r.p->nkernels;
    out->int8_products = x->products;
    out->inputs = x->nin;
    out->outputs = x->nout;
    put_header(x, out, &header);
    put_source(x, &source);
    out->header = header.s;
    out->source = source.s;
    return TS_OK;
}

static ts_status make(ts_export *x, ts_c_files *out)
{
    TS_TRY(check(x->g));
    TS_TRY(find_name(x));
    ts_format(out->name, sizeof(out->name), "%s", x->name);
    TS_TRY(make_model(x));
    TS_TRY(plan(x));
    find_params(x);
    TS_TRY(write_files(x, out));
    return x->opt->no_example ? TS_OK : ts_export_example(x, out);
}

static ts_status check_calibration(const ts_export_options *o)
{
    if (o->calibrations >= 0 && (!o->calibrations || (o->calibration && o->int8)))
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "%" PRId64 " batches to calibrate with, %s", o->calibrations,
                   o->calibrations < 0 ? "which is no number of them"
                   : o->int8           ? "and no samples"
                                       : "for an export without int8");
}

ts_status ts_export_c_sized(const ts_graph *g, const ts_export_options *opt, size_t size,
                            ts_c_files *out, size_t out_size)
{
    ts_export_options own;
    ts_c_files files = {0};
    ts_export x = {.opt = &own, .g = g};
    ts_status s;

    if (!g || !out)
        return ts_fail(TS_ERR_ARG, "an export needs a graph and a place for the files");
    ts_give(&files, sizeof(files), out, out_size);
    TS_TRY(ts_take_sized("ts_export_c", opt, size, &own, sizeof(own)));
    TS_TRY(check_calibration(&own));
    x.a = x.r.a = ts_arena_new();
    s = make(&x, &files);
    if (s) {
        ts_error_doing("exporting the graph '%s'", g->name);
        ts_c_files_free(&files);
    }
    ts_give(&files, sizeof(files), out, out_size);
    ts_text_free(&x.r.body);
    ts_text_free(&x.code);
    ts_arena_free(x.a);
    return s;
}

void ts_c_files_free(ts_c_files *f)
{
    if (!f)
        return;
    free(f->header);
    free(f->source);
    free(f->example);
    free(f->expected);
    f->header = f->source = f->example = f->expected = NULL;
}

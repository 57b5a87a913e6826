/* example.c - a program that runs an exported net on a sample, and what it must print.
 *
 * The numbers it must print are those of an engine on this machine. The exported code rounds
 * differently in the last bits, so results are printed with as many digits (up to four) as leave
 * every one of them away from where the last digit turns.
 */
#include "export/export.h"
#include <inttypes.h>
#include <math.h>

enum { MOST_PRINTED = 64 }; /* numbers of an output */

/* --- the sample --- */

/* Element i of a made-up input; main.c has the same formula. Integers may be indices, and 0
 * is one. */
static double made_up(ts_dtype t, int64_t i)
{
    return ts_dtype_is_float(t) ? (double)((float)(i % 101 * 37 % 101) / 50.0f - 1.0f) : 0;
}

static bool halves(ts_dtype t)
{
    return t == TS_F16 || t == TS_BF16;
}

/* What a run is fed and gives back, by the numbers of the user's graph. */
typedef struct buffers {
    void **in, **out; /* one more out: the loss, which is not wanted */
} buffers;

static ts_status make_buffers(ts_export *x, buffers *b)
{
    b->in = TS_NEWS(x->a, void *, x->g->ninputs);
    b->out = TS_NEWS(x->a, void *, x->nout + 1);
    for (int i = 0; i < x->g->ninputs; i++)
        TS_TRY(ts_alloc(ts_type_bytes(&x->g->inputs[i]->type), "a sample", &b->in[i]));
    for (int i = 0; i < x->nout; i++)
        TS_TRY(ts_alloc(ts_type_bytes(&x->out[i].v->type), "its results", &b->out[i]));
    return TS_OK;
}

static void free_buffers(const ts_export *x, buffers *b)
{
    for (int i = 0; i < x->g->ninputs; i++)
        free(b->in[i]);
    for (int i = 0; i < x->nout; i++)
        free(b->out[i]);
}

/* Inputs that no output needs stay zero. */
static void fill(const ts_export *x, void *const *in)
{
    for (int i = 0; i < x->nin; i++) {
        const ts_param *p = &x->in[i];
        ts_dtype t = p->v->type.dtype;
        if (x->opt->samples)
            memcpy(in[p->graph], x->opt->samples[p->graph], ts_type_bytes(&p->v->type));
        else
            for (int64_t k = 0; k < p->count && !halves(t); k++)
                ts_dtype_set(t, in[p->graph], k, made_up(t, k));
    }
}

static void put_input(const ts_param *p, const void *data, bool stored, ts_text *t, ts_text *fill)
{
    ts_dtype type = p->v->type.dtype;

    if (stored) {
        ts_text_printf(t, "\nstatic const %s %s[%s] = ", p->type, p->name, p->size);
        ts_export_array(t, type, data, p->count);
        ts_text_printf(t, ";\n");
        return;
    }
    ts_text_printf(t, "\nstatic %s %s[%s];\n", p->type, p->name, p->size);
    if (ts_dtype_is_float(type) && !halves(type))
        ts_text_printf(fill,
                       "    for (int32_t i = 0; i < %s; i++)\n"
                       "        %s[i] = (float)(i %% 101 * 37 %% 101) / 50.0f - 1.0f;\n",
                       p->size, p->name);
}

/* --- what comes out --- */

static ts_status write_states(ts_export *x, ts_engine *e)
{
    const ts_graph *g = x->model;

    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        if (n->op == TS_OP(const) && n->layer && ts_graph_find_state(x->g, n->layer))
            TS_TRY(ts_engine_write(e, n->layer, n->data, ts_type_bytes(&n->out[0]->type)));
    }
    for (int i = 0; i < x->nrounded; i++)
        TS_TRY(ts_engine_write(e, x->rounded[i].state->name, x->rounded[i].data,
                               ts_type_bytes(&x->rounded[i].state->type)));
    return TS_OK;
}

static ts_status run_float(ts_export *x, ts_executable **exe, ts_engine **e, void *const *in,
                           void **out)
{
    TS_TRY(ts_compile(x->g, &(ts_options){.no_winograd = true}, exe));
    TS_TRY(ts_engine_new(*exe, NULL, e));
    TS_TRY(write_states(x, *e));
    return ts_engine_run(*e, (const void *const *)in, out);
}

/* The graph that is written, which has no loss and only the inputs that it needs. */
static ts_status run_bytes(ts_export *x, ts_executable **exe, ts_engine **e, void *const *in,
                           void **out)
{
    const ts_graph *g = x->r.p->g;
    const void **needed = TS_NEWS(x->a, const void *, x->nin + 1);

    for (int i = 0; i < x->nin; i++)
        needed[i] = in[x->in[i].graph];
    TS_TRY(ts_export_engine(x, g, g->noutputs, (const ts_value *const *)g->outputs, exe, e));
    return ts_engine_run(*e, needed, out);
}

static ts_status run(ts_export *x, void *const *in, void **out)
{
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    ts_status s = (x->products ? run_bytes : run_float)(x, &exe, &e, in, out);

    ts_engine_free(e);
    ts_executable_free(exe);
    return s;
}

static int64_t printed(const ts_param *p)
{
    return TS_MIN(p->count, MOST_PRINTED);
}

/* Would an error of a few bits change what is printed with so many digits? Of bytes: a number that
 * was rounded the other way. */
static bool turns(const ts_param *p, const void *data, int digits, double error)
{
    double scale = pow(10, digits), most = 1;

    for (int64_t i = 0; i < p->count; i++)
        most = fmax(most, fabs(ts_dtype_get(p->v->type.dtype, data, i)));
    for (int64_t i = 0; i < printed(p); i++) {
        double x = fabs(ts_dtype_get(p->v->type.dtype, data, i)) * scale;
        if (x != 0 && fabs(x - floor(x) - 0.5) < error * most * scale)
            return true;
    }
    return false;
}

static int choose_digits(const ts_export *x, void *const *out)
{
    int digits = 4;

    for (int i = 0; i < x->nout; i++)
        while (digits > !x->products &&
               turns(&x->out[i], out[i], digits, x->products ? 4e-3 : 4e-6))
            digits--;
    return digits;
}

static void put_expected(const ts_export *x, void *const *out, int digits, ts_text *t)
{
    for (int i = 0; i < x->nout; i++) {
        const ts_param *p = &x->out[i];
        ts_dtype type = p->v->type.dtype;
        for (int64_t k = 0; k < printed(p); k++)
            if (halves(type))
                ts_text_printf(t, "%s[%d] %d\n", p->name, (int)k, ((const uint16_t *)out[i])[k]);
            else
                ts_text_printf(t, "%s[%d] %.*f\n", p->name, (int)k,
                               ts_dtype_is_float(type) ? digits : 0, ts_dtype_get(type, out[i], k));
    }
    if (x->classifies) {
        const float *scores = out[0];
        int best = 0;
        for (int k = 1; k < x->out[0].count; k++)
            best = scores[k] > scores[best] ? k : best;
        ts_text_printf(t, "class %d\n", best);
    }
}

/* --- the program --- */

static void put_prints(const ts_export *x, int digits, ts_text *t)
{
    for (int i = 0; i < x->nout; i++) {
        const ts_param *p = &x->out[i];
        bool real = ts_dtype_is_float(p->v->type.dtype) && !halves(p->v->type.dtype);
        ts_text_printf(t,
                       "    for (int i = 0; i < %" PRId64 "; i++)\n"
                       "        printf(\"%s[%%d] %%.%df\\n\", i, (double)%s[i]);\n",
                       printed(p), p->name, real ? digits : 0, p->name);
    }
    if (x->classifies)
        ts_text_printf(t, "    printf(\"class %%d\\n\", %sclassify(input));\n", x->r.prefix);
}

static void put_main(const ts_export *x, void *const *in, int digits, ts_text *t)
{
    ts_text fill = {0};

    ts_text_printf(
        t,
        "/* main.c - runs the net on a sample and prints what comes out: expected.txt; made by "
        "Tessera. */\n#include \"%s.h\"\n#include <math.h>\n#include <stdio.h>\n",
        x->name);
    for (int i = 0; i < x->nin; i++)
        put_input(&x->in[i], in[x->in[i].graph], x->opt->samples != NULL, t, &fill);
    for (int i = 0; i < x->nout; i++)
        ts_text_printf(t, "%sstatic %s %s[%s];\n", i ? "" : "\n", x->out[i].type, x->out[i].name,
                       x->out[i].size);
    ts_text_printf(t, "\nint main(void)\n{\n%s    %srun(", fill.s ? fill.s : "", x->r.prefix);
    for (int i = 0; i < x->nin + x->nout; i++)
        ts_text_printf(t, "%s%s", i ? ", " : "",
                       i < x->nin ? x->in[i].name : x->out[i - x->nin].name);
    ts_text_printf(t, ");\n");
    put_prints(x, digits, t);
    ts_text_printf(t, "    return 0;\n}\n");
    ts_text_free(&fill);
}

static ts_status make(ts_export *x, buffers *b, ts_c_files *files)
{
    ts_text example = {0}, expected = {0};
    int digits;

    TS_TRY(make_buffers(x, b));
    fill(x, b->in);
    TS_TRY(run(x, b->in, b->out));
    digits = choose_digits(x, b->out);
    put_main(x, b->in, digits, &example);
    put_expected(x, b->out, digits, &expected);
    files->example = example.s;
    files->expected = expected.s;
    return TS_OK;
}

ts_status ts_export_example(ts_export *x, ts_c_files *files)
{
    buffers b = {0};
    ts_status s = make(x, &b, files);

    free_buffers(x, &b);
    return s;
}

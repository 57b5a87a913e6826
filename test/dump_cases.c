/* dump_cases.c - every op case by the reference executor, for test/python/test_ops.py.
 *
 *   dump_cases FOLDER     writes FOLDER/cases.json, one object a line, and FOLDER/cases.bin
 *
 *   {"line": 12, "text": "relu f32[3]", "op": "relu", "dtype": "f64", "attrs": {},
 *    "tensors": {"x0": ["f64", [3], 0], "y0": [...], "dx0": [...], "dy0": [...]}}
 * A tensor is its dtype, its shape and where its bytes start in cases.bin.
 */
#include "cases.h"

static void print_attr(FILE *f, const ts_attr *x)
{
    fprintf(f, "\"%s\": ", x->name);
    if (x->kind == 'i')
        fprintf(f, "%ld", (long)x->i);
    else if (x->kind == 'f')
        fprintf(f, "%.17g", x->f);
    else if (x->kind == 's')
        fprintf(f, "\"%s\"", x->s);
    else {
        fprintf(f, "[");
        for (int i = 0; i < x->n; i++)
            fprintf(f, "%s%ld", i ? ", " : "", (long)x->l[i]);
        fprintf(f, "]");
    }
}

static void print_tensor(FILE *json, FILE *bin, const char *name, const ts_tensor *t)
{
    fprintf(json, "\"%s\": [\"%s\", [", name, ts_dtype_name(t->type.dtype));
    for (int i = 0; i < t->type.rank; i++)
        fprintf(json, "%s%ld", i ? ", " : "", (long)t->type.dim[i]);
    fprintf(json, "], %ld]", ftell(bin));
    fwrite(t->data, 1, ts_type_bytes(&t->type), bin);
}

static void print_case(FILE *json, FILE *bin, const op_case *c, ts_dtype t, const ts_graph *g,
                       ts_ref *r)
{
    const char *comma = "";

    if (t == TS_F32 && c->nin && ts_dtype_is_float(c->in[0].dtype))
        t = c->in[0].dtype; /* as written */
    fprintf(json,
            "{\"line\": %d, \"op\": \"%s\", \"dtype\": \"%s\", \"text\": \"%s\", \"attrs\": {",
            c->line, c->op->name, ts_dtype_name(t), c->text);
    for (int i = 0; i < c->nattr; i++) {
        fprintf(json, i ? ", " : "");
        print_attr(json, &c->attr[i]);
    }
    fprintf(json, "}, \"tensors\": {");
    for (int i = 0; i < g->ninputs; i++, comma = ", ") {
        fputs(comma, json);
        print_tensor(json, bin, g->inputs[i]->name, ts_ref_tensor(r, g->inputs[i]));
    }
    for (int i = 0; i < g->nstates; i++, comma = ", ") {
        fputs(comma, json);
        print_tensor(json, bin, g->states[i].value->name, ts_ref_tensor(r, g->states[i].value));
    }
    for (int i = 0; i < g->noutputs; i++, comma = ", ") {
        fputs(comma, json);
        print_tensor(json, bin, g->output_names[i], ts_ref_tensor(r, g->outputs[i]));
    }
    fprintf(json, "}}\n");
}

static ts_status dump(FILE *json, FILE *bin, const op_case *base)
{
    static const ts_dtype types[] = {TS_F32, TS_F64, TS_F16, TS_BF16};

    for (int i = 0; i < TS_COUNT(types); i++) {
        op_case c;
        ts_arena *a;
        ts_graph *model;
        const ts_graph *g;
        ts_ref *r = NULL;
        ts_status s;
        if (!case_in(base, types[i], &c))
            continue;
        a = ts_arena_new();
        s = case_build(&c, &model);
        if (!s)
            s = case_grad(a, model, &g);
        if (!s)
            s = case_run(&c, g, &r);
        if (!s)
            print_case(json, bin, &c, types[i], g, r);
        else
            fprintf(stderr, "%s in %s:\n%s", base->text, ts_dtype_name(types[i]), ts_error_text());
        ts_ref_free(r);
        ts_graph_free(model);
        ts_arena_free(a);
        if (s)
            return s;
    }
    return TS_OK;
}

int main(int argc, char **argv)
{
    ts_arena *a = ts_arena_new();
    op_case *cases;
    FILE *json, *bin;
    int n = 0, failed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: dump_cases FOLDER\n");
        return 2;
    }
    json = fopen(ts_arena_printf(a, "%s/cases.json", argv[1]), "w");
    bin = fopen(ts_arena_printf(a, "%s/cases.bin", argv[1]), "w");
    if (!json || !bin || cases_load(a, &cases, &n)) {
        fprintf(stderr, "cannot write to %s, or: %s", argv[1], ts_error_text());
        return 1;
    }
    for (int i = 0; i < n; i++)
        failed += dump(json, bin, &cases[i]) != TS_OK;
    failed += fclose(json) != 0;
    failed += fclose(bin) != 0;
    ts_arena_free(a);
    return failed != 0;
}

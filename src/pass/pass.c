/* pass.c - the passes in order, and the one loop that runs, verifies, dumps and times them. */
#include "pass/pass.h"

static const struct {
    const char *name;
    ts_pass_fn *run;
} passes[] = {
    {"inference", ts_pass_inference}, /* no loss and no training, if asked for              */
    {"decompose", ts_pass_decompose}, /* composites become primitives                        */
    {"empty", ts_pass_empty},         /* tensors without elements are gone                   */
    {"crop", ts_pass_crop},           /* rows and columns that pooling drops                 */
    {"order", ts_pass_order},         /* the same whatever compiler built the builder        */
    {"cut", NULL},                    /* stages for several devices: plan/cut.c, by trial    */
    {"patches", ts_pass_patches},     /* convolutions whose windows lie apart, as products    */
    {"batch", ts_pass_batch},         /* samples that do not fill the lanes, in parts        */
    {"autodiff", ts_pass_autodiff},   /* the backward graph; inherits place and line         */
    {"optimizer", ts_pass_optimizer}, /* accumulation, scaling, clipping, the weight update  */
    {"simplify", ts_pass_simplify},   /* fold, algebra, common subexpressions, dead code     */
    {"slope", ts_pass_slope},         /* derivatives as one factor, made forward             */
    {"remake", ts_pass_remake},       /* what follows from less is made again, backward       */
    {"rounding", ts_pass_rounding},   /* products of halves in f32, rounded once             */
    {"runs", ts_pass_runs},           /* adds by index by way of the sorted index            */
    {"rows", ts_pass_rows},           /* products in the shape that is read                  */
    {"strips", ts_pass_strips},       /* recurrent weights as the loops read them            */
    {"split", ts_pass_split},         /* large sums in two steps                             */
    {"layout", ts_pass_layout},       /* batch in the lanes, or channels last                */
    {"winograd", ts_pass_winograd},   /* large 3x3 convolutions with fewer products          */
    {"pad", ts_pass_pad},             /* padding in memory where rows fill the vectors       */
    {"guard", ts_pass_guard},         /* checks of every result, if asked for                */
};

const char *ts_pass_name(int i)
{
    return i >= 0 && i < TS_COUNT(passes) ? passes[i].name : NULL;
}

bool ts_pass_skipped(const ts_options *opt, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = opt->skip; p && *p; p += strspn(p, ", ")) {
        size_t len = strcspn(p, ", ");
        if (len == n && !memcmp(p, name, n))
            return true;
        p += len;
    }
    return false;
}

static bool same_name(const char *name, const char *p, size_t len)
{
    return strlen(name) == len && !memcmp(p, name, len);
}

/* Every name in "fuse,layout" is a pass, or one of the plan's choices. */
static ts_status check_skip(const char *skip)
{
    for (const char *p = skip; p && *(p += strspn(p, ", ")); p += strcspn(p, ", ")) {
        size_t len = strcspn(p, ", ");
        bool known =
            same_name("fuse", p, len) || same_name("attend", p, len) || same_name("spread", p, len);
        for (int i = 0; ts_pass_name(i); i++)
            known = known || same_name(ts_pass_name(i), p, len);
        if (known)
            continue;
        ts_fail(TS_ERR_ARG, "there is no pass '%.*s' to skip", (int)TS_MIN(len, 100), p);
        ts_error_hint(
            "architecture.md in the documentation lists the passes; the plan has fuse, attend and "
            "spread");
        return TS_ERR_ARG;
    }
    return TS_OK;
}

static ts_status check_results(const ts_graph *g, const ts_options *opt)
{
    if (opt->optimizer && !g->loss) {
        ts_fail(TS_ERR_ARG, "there is an optimizer, and no loss for it to minimise");
        ts_error_hint("mark the loss with ts_loss(), or compile without an optimizer");
        return TS_ERR_ARG;
    }
    if (g->noutputs || g->loss || g->nupdates)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "nothing comes out of the graph '%s': it has no output and no loss",
            g->name);
    ts_error_hint("mark what a run should return with ts_output(); a NULL value marks nothing");
    return TS_ERR_ARG;
}

/* What a run gives back is made by a node: an input's memory is the caller's, a state's changes. ts_output copies
 * what is none; a text may say anything. */
static ts_status check_outputs(const ts_graph *g)
{
    for (int i = 0; i < g->noutputs; i++) {
        const ts_value *v = g->outputs[i];
        if (v->kind == TS_VALUE_NODE && v->node->op != TS_OP(const))
            continue;
        ts_fail(TS_ERR_ARG, "no op computes output %s", g->output_names[i]);
        ts_error_hint("make it a copy: %%y = nop(%%x), output %s = %%y", g->output_names[i]);
        return TS_ERR_ARG;
    }
    return TS_OK;
}

ts_status ts_pass_check(const ts_graph *g, const ts_options *opt)
{
    TS_TRY(check_skip(opt->skip));
    TS_TRY(check_results(g, opt));
    TS_TRY(check_outputs(g));
    if (opt->optimizer)
        TS_TRY(ts_optimizer_check(opt));
    return ts_replica_groups_check(g, opt);
}

static ts_status dump(const ts_graph *g, const char *folder, int i, const char *name)
{
    ts_text t = {0};
    ts_arena *a = ts_arena_new();
    ts_status s = ts_file_mkdirs(folder);

    ts_graph_print(g, &t);
    if (!s)
        s = ts_file_write(ts_arena_printf(a, "%s/%02d-%s.ir", folder, i, name), t.s, t.len);
    ts_text_free(&t);
    ts_arena_free(a);
    return s;
}

static int place(const char *name)
{
    int i = 0;

    while (i < TS_COUNT(passes) && strcmp(passes[i].name, name))
        i++;
    return i;
}

ts_status ts_pass_step(ts_arena *a, const char *name, ts_pass_fn *fn, const ts_graph *in,
                       const ts_options *opt, const ts_graph **out)
{
    double start = ts_now();
    ts_status s = fn(a, in, opt, out);

    if (!s)
        s = ts_graph_verify(*out);
    if (!s)
        s = check_outputs(*out); /* a pass may not hand an operand through as a result either */
    if (s) {
        ts_error_doing("running pass %s", name);
        return s;
    }
    ts_note(TS_LOG_DEBUG, "pass %s: %d nodes, %.2f ms", name, (*out)->nnodes,
            1e3 * (ts_now() - start));
    return opt->dump_dir ? dump(*out, opt->dump_dir, place(name), name) : TS_OK;
}

ts_status ts_pass_run(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                      const ts_graph **out)
{
    int i = place(name);

    if (i == TS_COUNT(passes) || !passes[i].run)
        return ts_fail(TS_ERR_ARG, "there is no pass '%s'", name);
    return ts_pass_step(a, name, passes[i].run, in, opt, out);
}

/* Rows first .. end - 1 */
static ts_status run_rows(ts_arena *a, int first, int end, const ts_graph *g, const ts_options *opt,
                          const ts_graph **out)
{
    TS_TRY(ts_graph_verify(g));
    for (int i = first; i < end; i++)
        if (passes[i].run && !ts_pass_skipped(opt, passes[i].name))
            TS_TRY(ts_pass_step(a, passes[i].name, passes[i].run, g, opt, &g));
    *out = g;
    return TS_OK;
}

ts_status ts_pass_all(ts_arena *a, const ts_graph *model, const ts_options *opt,
                      const ts_graph **out)
{
    return run_rows(a, 0, TS_COUNT(passes), model, opt, out);
}

ts_status ts_pass_until(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    return run_rows(a, 0, place(name), in, opt, out);
}

ts_status ts_pass_after(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    return run_rows(a, place(name) + 1, TS_COUNT(passes), in, opt, out);
}

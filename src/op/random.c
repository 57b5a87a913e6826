/* random.c - the ops that use random numbers. The number of element i depends on the engine's seed,
 * the node's stream, the micro-batch and i only; base/random.c is the generator, and the generated
 * code's prelude has the same text.
 */
#include "op/emit.h"
#include "op/op.h"
#include <math.h>

/* f32 and f64 only: rounded to a half, the largest of the numbers below 1 would be 1. */
ts_status ts_infer_rand(ts_node *n)
{
    TS_TRY(ts_infer_full(n));
    if (n->out[0]->type.dtype != TS_F32 && n->out[0]->type.dtype != TS_F64)
        return ts_fail_at(n, TS_ERR_TYPE, "rand makes f32 or f64, not %s",
                          ts_dtype_name(n->out[0]->type.dtype));
    return TS_OK;
}

ts_status ts_eval_rand(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    uint64_t stream = (uint64_t)ts_attr_int(n, "stream", 0);
    int64_t count = ts_type_count(&out->type);

    (void)in;
    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(out->type.dtype, out->data, i,
                     ts_random_unit(c->seed, stream, c->step, (uint64_t)i));
    return TS_OK;
}

/* Which number belongs to the element at these coordinates: they count in row-major order, whatever
 * the layout. */
static const ts_ix *flat_at(ts_emit *e, const ts_type *t, const ts_ix *const *at)
{
    const ts_ix *x = ts_ix_const(e->a, 0);

    for (int d = 0; d < t->rank; d++)
        x = ts_ix_add(e->a, ts_ix_mul(e->a, x, t->dim[d]), at[d]);
    return x;
}

typedef struct draw_arg {
    const ts_node *n;
    const ts_ix *flat;
    const char *x; /* what to round */
} draw_arg;

static const char *rand_body(ts_emit *e, void *arg)
{
    const draw_arg *r = arg;

    return ts_emit_temp(e, r->n->out[0]->type.dtype, "random_unit(c, %ld, %s)",
                        (long)ts_attr_int(r->n, "stream", 0), ts_ix_text(e->a, r->flat));
}

/* Lane l draws for element *flat + l * step. false: the lanes are not so far from each other */
static bool in_steps(ts_emit *e, const ts_ix **flat, int64_t *step)
{
    if (!ts_ix_linear(*flat, e->lane))
        return false;
    *step = ts_ix_coef(*flat, e->lane);
    *flat = ts_ix_add(e->a, *flat, ts_ix_mul(e->a, ts_ix_var(e->a, e->lane), -*step));
    return true;
}

const char *ts_emit_rand(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_type *t = &n->out[0]->type;
    draw_arg r = {n, flat_at(e, t, at), NULL};
    int64_t step;

    (void)out;
    e->need(e->where, "random");
    if (!e->lanes)
        return rand_body(e, &r);
    if (t->dtype != TS_F32 || !in_steps(e, &r.flat, &step))
        return ts_emit_lanes(e, t->dtype, rand_body, &r);
    return ts_emit_temp(e, t->dtype, "random_unit_x%d(c, %ld, %s, %ld)", e->lanes,
                        (long)ts_attr_int(n, "stream", 0), ts_ix_text(e->a, r.flat), (long)step);
}

/* --- round_random: f32 to f16 or bf16, up or down at random ---
 * Between neighbours a and b, x becomes b with probability (x-a)/(b-a): on average it is x. What is
 * a half already stays, and so do infinities and NaN. The largest half's neighbour is infinity,
 * and counts as the power of two that is not there: 65520 becomes 65504 or infinity, evenly, and
 * 65536 and beyond are infinity. */

ts_status ts_infer_round_random(ts_node *n)
{
    TS_TRY(ts_infer_cast(n));
    if (n->in[0]->type.dtype != TS_F32 || !ts_dtype_is_half(n->out[0]->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "round_random makes f16 or bf16 of f32, not %s of %s",
                          ts_dtype_name(n->out[0]->type.dtype),
                          ts_dtype_name(n->in[0]->type.dtype));
    return TS_OK;
}

/* x as a whole number of steps of the halves around it, then up where u is below what is left. */
static double round_random(ts_dtype t, double x, double u)
{
    int bits = t == TS_F16 ? 11 : 8, least = t == TS_F16 ? -24 : -133, exponent;
    double step, down;

    if (!isfinite(x))
        return x;
    frexp(x, &exponent);
    step = ldexp(1, TS_MAX(exponent - bits, least));
    down = floor(fabs(x) / step);
    return copysign((down + (u < fabs(x) / step - down)) * step, x);
}

ts_status ts_eval_round_random(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                               ts_tensor *out)
{
    uint64_t stream = (uint64_t)ts_attr_int(n, "stream", 0);
    int64_t count = ts_type_count(&out->type);
    ts_dtype t = out->type.dtype;

    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(t, out->data, i,
                     round_random(t, ts_dtype_get(TS_F32, in->data, i),
                                  ts_random_unit(c->seed, stream, c->step, (uint64_t)i)));
    return TS_OK;
}

static const char *round_body(ts_emit *e, void *arg)
{
    const draw_arg *r = arg;
    ts_dtype t = r->n->out[0]->type.dtype;

    return ts_emit_temp(e, t, "round_random_%s(c, %ld, %s, %s)", ts_dtype_name(t),
                        (long)ts_attr_int(r->n, "stream", 0), ts_ix_text(e->a, r->flat), r->x);
}

const char *ts_emit_round_random(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    ts_dtype t = n->out[0]->type.dtype;
    draw_arg r = {n, flat_at(e, &n->out[0]->type, at), ts_emit_at(e, n->in[0], at)};
    int64_t step;

    (void)out;
    e->need(e->where, "half");
    e->need(e->where, "random");
    e->need(e->where, "round random");
    if (!e->lanes)
        return round_body(e, &r);
    if (!in_steps(e, &r.flat, &step)) {
        r.x = ts_arena_printf(e->a, "%s[%s]", r.x, e->lane->name);
        return ts_emit_lanes(e, t, round_body, &r);
    }
    return ts_emit_temp(e, t, "round_random_%sx%d(c, %ld, %s, %ld, %s)", ts_dtype_name(t), e->lanes,
                        (long)ts_attr_int(n, "stream", 0), ts_ix_text(e->a, r.flat), (long)step,
                        r.x);
}

/* random.c - the ops that make random numbers. The value of element i depends on the engine's seed,
 * the node's stream, the micro-batch and i only; base/random.c is the generator, and the generated
 * code's prelude has the same text.
 */
#include "op/op.h"
#include "render/emit.h"

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

typedef struct rand_arg {
    const ts_node *n;
    const ts_ix *flat;
} rand_arg;

static const char *rand_body(ts_emit *e, void *arg)
{
    const rand_arg *r = arg;

    return ts_emit_temp(e, r->n->out[0]->type.dtype, "random_unit(c, %ld, %s)",
                        (long)ts_attr_int(r->n, "stream", 0), ts_ix_text(e->a, r->flat));
}

const char *ts_emit_rand(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_type *t = &n->out[0]->type;
    rand_arg r = {n, ts_ix_const(e->a, 0)};

    (void)out;
    for (int d = 0; d < t->rank; d++)
        r.flat = ts_ix_add(e->a, ts_ix_mul(e->a, r.flat, t->dim[d]), at[d]);
    e->need(e->where, "random");
    return e->lanes ? ts_emit_lanes(e, t->dtype, rand_body, &r) : rand_body(e, &r);
}

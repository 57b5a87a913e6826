/* replica.c - parameters that have a value for each group of replicas (ts_options.replica_groups):
 * whether that can be, and which group size each has. Nothing in the graph changes: the engine
 * keeps the values and the sums apart. A group adds up its own gradients, and the mean divides them
 * by the micro-batches of all replicas, grouped or not: each replica's loss is one of R that the
 * step is the mean of, so a parameter moves as far as its part of that mean says.
 */
#include "pass/pass.h"

int ts_replica_group_size(const ts_options *opt, const ts_replica_group *q)
{
    if (!q || q->grouping == TS_GROUPING_ALL)
        return TS_MAX(1, opt->replicas);
    return q->grouping == TS_GROUPING_NONE ? 1 : q->size;
}

const ts_replica_group *ts_replica_group_of(const ts_options *opt, const char *state,
                                            bool optimizer)
{
    const char *dot = optimizer ? strrchr(state, '.') : NULL; /* fc.weight.exp_avg */
    size_t n = dot ? (size_t)(dot - state) : strlen(state);

    for (int i = 0; i < opt->nreplica_groups; i++) {
        const ts_replica_group *q = &opt->replica_groups[i];
        if (strlen(q->state) == n && !memcmp(q->state, state, n) && q->grouping != TS_GROUPING_ALL)
            return q;
    }
    return NULL;
}

static ts_status check_group(const ts_graph *g, const ts_options *opt, const ts_replica_group *q)
{
    const ts_value *v = q->state ? ts_graph_find_state(g, q->state) : NULL;
    int R = TS_MAX(1, opt->replicas);

    if (!v)
        return ts_fail(TS_ERR_ARG, "replica_groups names '%s', which the graph does not have",
                       q->state ? q->state : "NULL");
    if ((unsigned)q->grouping > TS_GROUPING_NONE)
        return ts_fail(TS_ERR_ARG,
                       "the replicas of '%s' have the grouping %d, which does not exist", q->state,
                       q->grouping);
    if (v->type.rank == TS_MAX_RANK)
        return ts_fail(TS_ERR_ARG,
                       "'%s' has rank %d, so there is no dim left for its groups of replicas",
                       q->state, v->type.rank);
    if ((q->grouping == TS_GROUPING_CONSECUTIVE || q->grouping == TS_GROUPING_ORTHOGONAL) &&
        (q->size < 1 || R % q->size))
        return ts_fail(TS_ERR_ARG, "%d replicas cannot be divided into groups of %d for '%s'", R,
                       q->size, q->state);
    for (const ts_replica_group *p = opt->replica_groups; p < q; p++)
        if (!strcmp(p->state, q->state))
            return ts_fail(TS_ERR_ARG, "replica_groups names '%s' twice", q->state);
    return TS_OK;
}

/* What is made of all gradients would differ between replicas, and with it what they share. */
static ts_status check_whole(const ts_options *opt)
{
    bool apart = false;

    for (int i = 0; i < opt->nreplica_groups; i++)
        apart =
            apart || ts_replica_group_size(opt, &opt->replica_groups[i]) < TS_MAX(1, opt->replicas);
    if (apart && opt->processes > 1)
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "parameters with a value for each group of replicas are not supported with "
                       "several processes");
    if (apart && opt->optimizer && opt->optimizer->max_grad_norm > 0)
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "max_grad_norm is not supported with parameters that have a value for each "
                       "group of replicas: every group would have a norm of its own");
    return TS_OK;
}

ts_status ts_replica_groups_check(const ts_graph *g, const ts_options *opt)
{
    if (opt->nreplica_groups < 0 || (opt->nreplica_groups && !opt->replica_groups))
        return ts_fail(TS_ERR_ARG, "there are %d replica_groups at %s", opt->nreplica_groups,
                       opt->replica_groups ? "an address" : "NULL");
    for (int i = 0; i < opt->nreplica_groups; i++)
        TS_TRY(check_group(g, opt, &opt->replica_groups[i]));
    return check_whole(opt);
}

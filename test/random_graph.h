/* random_graph.h - random networks for the tests of both executors.
 *
 *   random_graph.c   the graph and its options
 *   random_ops.c     the families of ops it is made of
 *   random_gen.h     what those share
 */
#ifndef TS_TEST_RANDOM_GRAPH_H
#define TS_TEST_RANDOM_GRAPH_H

#include "graph/graph.h"

/* A graph and how to compile it. */
typedef struct trial {
    uint64_t seed;
    ts_graph *g;
    ts_options opt;
    ts_optimizer optimizer;
    bool trains;
} trial;

/* The seed decides everything. */
void test_random_graph(uint64_t seed, trial *t);

#endif

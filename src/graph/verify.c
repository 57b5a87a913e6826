/* verify.c - what a legal graph is. */
#include "graph/graph.h"

ts_status ts_graph_verify(const ts_graph *g)
{
    return ts_graph_check(g);
}

/* price.c - cycles of one core, from counts of multiply-adds and bytes.
 *
 * A price is for comparing: of two ways to do the same thing, or of work with what it costs to share
 * it. So it leaves out what all ways have in common, and it has no steps where the work has none.
 */
#include "machine/machine.h"

double ts_machine_rate(const ts_machine_model *m, int width)
{
    int turns = (int)((4 * width + m->unit - 1) / m->unit);

    return (double)m->units / TS_MAX(1, turns);
}

/* A quarter of 32 registers, or of 16, is for operands and what the compiler needs: 26 and 12 were
 * best of 16 to 28 and of 8 to 14 (82 to 89 % of the peak; one more and gcc spills). */
int ts_machine_accumulators(const ts_machine_model *m)
{
    return m->isa.registers >= 32 ? 26 : m->isa.registers * 3 / 4;
}

double ts_price_sums(const ts_machine_model *m, double sums)
{
    return sums / (m->isa.width * ts_machine_rate(m, m->isa.width));
}

double ts_price_bytes(const ts_machine_model *m, double bytes)
{
    if (bytes <= (double)m->level2)
        return bytes / m->near;
    return bytes / (bytes <= (double)m->level3 ? m->far : m->memory);
}

double ts_price_node(const ts_machine_model *m, const ts_node *n)
{
    return ts_price_sums(m, ts_node_sums(n));
}

double ts_price_kernel(const ts_machine_model *m, double sums, double bytes)
{
    return TS_MAX(ts_price_sums(m, sums), ts_price_bytes(m, bytes));
}

double ts_machine_seconds(const ts_machine_model *m, double cycles)
{
    return cycles / m->hertz;
}

double ts_price_shared(const ts_machine_model *m, double cycles, double pieces)
{
    double cores = TS_MIN(m->cores, TS_MAX(1, pieces)), rounds;

    if (cores <= 1)
        return cycles;
    rounds = (double)(int64_t)((pieces + cores - 1) / cores);
    return TS_MIN(cycles, cycles / pieces * rounds + m->meet);
}

int64_t ts_machine_grain(const ts_machine_model *m, int64_t pieces, double cycles)
{
    return TS_MAX(1, (int64_t)(m->meet * (double)pieces / (cycles + 1)));
}

int64_t ts_machine_kept(const ts_machine_model *m)
{
    return m->level2 / 4;
}

/* Half of a step's tensors are dead at any time: twice what the cores' second caches hold. Of 2, 4 and 8
 * MB on two cores with 1 MB each 4 was best. Never so much that it crowds the cache that all share. */
int64_t ts_machine_spread(const ts_machine_model *m)
{
    int64_t own = 2 * m->cores * m->level2;

    return m->level3 ? TS_MIN(own, TS_MAX(m->level3 / 2, 2 * m->level2)) : own;
}

/* price.c - what an op costs, from its row: the formula's operators and functions, in multiply-adds.
 *
 * Adds, comparisons and selections are as quick as a multiply-add; a division or a root keeps its unit
 * busy for five. EXP, LOG, TANH and ERF are polynomials over vectors (render/prelude.c): their length
 * and what is around them. The others call the C library for each lane, about 20 cycles or 300
 * multiply-adds, and those of special.h have loops.
 */
#include "op/op.h"
#include <ctype.h>

enum { DIVIDE = 5 };

static const struct {
    const char *name;
    int price;
} functions[] = {
    {"SQRT", DIVIDE}, {"EXP", 16},      {"LOG", 20},       {"TANH", 21},       {"ERF", 23},
    {"EXPM1", 20},    {"LOG1P", 30},    {"SIN", 30},       {"COS", 30},        {"POW", 60},
    {"ATAN2", 30},    {"FMOD", 300},    {"FLOORDIV", 300}, {"REMAINDER", 300}, {"ERFC", 500},
    {"ERFINV", 1000}, {"LGAMMA", 1000}, {"DIGAMMA", 1000}, {"ZETA", 2000},
};

static double function_price(const char *name, size_t len)
{
    for (int i = 0; i < TS_COUNT(functions); i++)
        if (strlen(functions[i].name) == len && !memcmp(functions[i].name, name, len))
            return functions[i].price;
    return 0; /* ONE, SEL and their like: the operators in them count */
}

double ts_op_price(const ts_op *op)
{
    double price = 0;
    const char *p = op->formula ? op->formula : "";

    while (*p) {
        size_t len = 0;
        while (isalnum((unsigned char)p[len]))
            len++;
        if (len)
            price += function_price(p, len);
        else
            price += *p == '/' ? DIVIDE : strchr("+-*<>!&|^", *p) ? 1 : 0;
        p += len ? len : 1;
    }
    return TS_MAX(1, price);
}

double ts_node_sums(const ts_node *n)
{
    double flops = ts_node_flops(n);

    if (n->op->flags & (TS_CONTRACT | TS_STEPS))
        return flops / 2;
    return n->op->flags & TS_POINT ? flops * ts_op_price(n->op) : flops;
}

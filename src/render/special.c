/* special.c - the functions of op/special.h as text, for the kernels that call them. */
#include "render/render.h"

static const struct {
    const char *word, *name, *args, *body; /* the word of formulas; no name: C has it */
} specials[] = {
    {"ERFC(", NULL, NULL, NULL},
    {"LGAMMA(", NULL, NULL, NULL},
#define SPECIAL(word, name, args, ...) {#word "(", #name, #args, #__VA_ARGS__},
#include "op/special.h"
#undef SPECIAL
};

/* One copy of each function: a float alone has the bits of one in a vector. */
static const char head[] =
    "\n#ifdef __clang__\n#define ONCE __attribute__((noinline))\n"
    "#else\n#define ONCE __attribute__((noinline, noclone))\n#endif\n"
    "extern double erfc(double), lgamma_r(double, int *), tan(double), copysign(double, double);\n"
    "static inline double log_gamma(double x)\n{\n    int sign;\n    return lgamma_r(x, "
    "&sign);\n}\n";

static bool formulas_have(const ts_render *r, const char *word)
{
    char op[64];

    for (int i = 0; i < r->nneeds; i++)
        if (sscanf(r->needs[i], "op %63s", op) == 1 && strstr(ts_op_find(op)->formula, word))
            return true;
    return false;
}

/* As text the body is one line; here it has one a statement again. A brace with a space behind it
 * is a block's. */
static void put_body(ts_text *out, const char *body)
{
    int depth = 1, inside = 0;

    for (const char *s = body; *s; s++) {
        inside += (*s == '(') - (*s == ')');
        if (*s != ' ' || inside || !strchr(";{}", s[-1])) {
            ts_text_add(out, s, 1);
            continue;
        }
        depth += (s[-1] == '{') - (s[1] == '}');
        ts_text_printf(out, "\n%*s", 4 * depth, "");
    }
}

void ts_special_functions(ts_render *r, ts_text *out)
{
    bool any = false;

    for (int i = 0; i < TS_COUNT(specials); i++) {
        if (!formulas_have(r, specials[i].word))
            continue;
        if (!any && !r->prefix)
            ts_text_printf(out, "%s", head);
        any = true;
        if (!specials[i].name)
            continue;
        ts_text_printf(out, "\nstatic %sdouble %sspecial_%s%s\n{\n    ", r->prefix ? "" : "ONCE ",
                       r->prefix ? r->prefix : "", specials[i].name, specials[i].args);
        put_body(out, specials[i].body);
        ts_text_printf(out, "\n}\n");
    }
}

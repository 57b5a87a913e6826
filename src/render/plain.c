/* plain.c - the functions that exported C calls, in C99 that any compiler takes.
 *
 * The ops' formulas are the same as everywhere (op/ops.h); here their capital names are written
 * out, so that nothing but functions is left to read:
 *
 *   SEL(x > 0, x, SEL(x <= 0, ZERO(x), x))     (x > 0 ? x : (x <= 0 ? 0.0f : x))
 *
 * In the texts below @ is the file's prefix, T the type, # its short name (f32), $ the ending of
 * its mathematical functions and constants (f, or nothing for double), %1 %2 %3 the arguments.
 */
#include "render/render.h"
#include <ctype.h>

typedef struct element {
    const char *name, *type, *ending;
    bool integer;
} element;

static const element elements[] = {
    {"f32", "float", "f", false},
    {"f64", "double", "", false},
    {"i32", "int32_t", "", true},
    {"i64", "int64_t", "", true},
};

typedef struct word {
    const char *name, *real, *integer; /* NULL: as of a real, by way of double */
} word;

static const word words[] = {
    {"SEL", "(%1 ? %2 : %3)", "(%1 ? %2 : %3)"},
    {"CMP", "(%1)", "(%1)"},
    {"NUM", "%1$", "%1"},
    {"ONE", "1.0$", "1"},
    {"ZERO", "0.0$", "0"},
    {"ABS", "fabs$(%1)", "(%1 < 0 ? -%1 : %1)"},
    {"FLOOR", "floor$(%1)", "%1"},
    {"CEIL", "ceil$(%1)", "%1"},
    {"RINT", "rint$(%1)", "%1"},
    {"TRUNC", "trunc$(%1)", "%1"},
    {"SQRT", "sqrt$(%1)", NULL},
    {"EXP", "exp$(%1)", NULL},
    {"EXPM1", "expm1$(%1)", NULL},
    {"LOG", "log$(%1)", NULL},
    {"LOG1P", "log1p$(%1)", NULL},
    {"SIN", "sin$(%1)", NULL},
    {"COS", "cos$(%1)", NULL},
    {"TANH", "tanh$(%1)", NULL},
    {"ERF", "erf$(%1)", NULL},
    {"ERFC", "(T)erfc((double)%1)", NULL},
    {"ERFINV", "(T)@special_erfinv(%1)", NULL},
    {"LGAMMA", "(T)lgamma((double)%1)", NULL},
    {"DIGAMMA", "(T)@special_digamma(%1)", NULL},
    {"ZETA", "(T)@special_zeta(%1, %2)", NULL},
    {"POW", "pow$(%1, %2)", NULL},
    {"ATAN2", "atan2$(%1, %2)", NULL},
    {"FMOD", "fmod$(%1, %2)", "(%2 ? %1 % %2 : 0)"},
    {"FLOORDIV", "@floor_div_#(%1, %2)", "@floor_div_#(%1, %2)"},
    {"REMAINDER", "@mod_#(%1, %2)", "@mod_#(%1, %2)"},
    {"NOT", NULL, "(~%1)"},
    {"AND", NULL, "(%1 & %2)"},
    {"OR", NULL, "(%1 | %2)"},
    {"XOR", NULL, "(%1 ^ %2)"},
    {"SHL", NULL, "((uint64_t)%2 < 8 * sizeof(T) ? (T)((uint64_t)%1 << %2) : 0)"},
    {"SHR", NULL, "(%1 >> ((uint64_t)%2 < 8 * sizeof(T) ? %2 : (T)(8 * sizeof(T) - 1)))"},
};

/* Those that formulas and kernels call, each before those that call it. */
static const struct {
    const char *name, *text;
    bool integer; /* with #: of integers, else of reals */
} helpers[] = {
    {"bits_f32",
     "static inline float @bits_f32(uint32_t u)\n{\n    float f;\n\n    memcpy(&f, &u, 4);\n"
     "    return f;\n}\n",
     false},
    {"f32_bits",
     "static inline uint32_t @f32_bits(float f)\n{\n    uint32_t u;\n\n    memcpy(&u, &f, 4);\n"
     "    return u;\n}\n",
     false},
    {"bf16_to_f32",
     "static inline float @bf16_to_f32(uint16_t x)\n{\n    return @bits_f32((uint32_t)x << "
     "16);\n}\n",
     false},
    {"f32_to_bf16",
     "static inline uint16_t @f32_to_bf16(float x)\n{\n    uint32_t u = @f32_bits(x);\n\n"
     "    if ((u & 0x7fffffff) > 0x7f800000) /* NaN */\n"
     "        return (uint16_t)((u >> 16) | 0x40);\n"
     "    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);\n}\n",
     false},
    {"f16_to_f32",
     "static inline float @f16_to_f32(uint16_t x)\n{\n"
     "    uint32_t sign = (uint32_t)(x & 0x8000) << 16, u = (uint32_t)(x & 0x7fff) << 13;\n"
     "    float f = @bits_f32(u) * 5.19229686e+33f; /* 2^112 moves the exponent */\n\n"
     "    if ((x & 0x7c00) == 0x7c00)\n        f = @bits_f32(u | 0x7f800000);\n"
     "    return @bits_f32(@f32_bits(f) | sign);\n}\n",
     false},
    {"f32_to_f16",
     "static inline uint16_t @f32_to_f16(float x)\n{\n"
     "    uint32_t u = @f32_bits(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff, r;\n\n"
     "    if (a > 0x7f800000)\n        r = 0x7e00; /* NaN */\n"
     "    else if (a >= 0x477ff000)\n        r = 0x7c00; /* too large */\n"
     "    else if (a < 0x38800000)        /* subnormal: rounds to multiples of 2^-24 */\n"
     "        r = @f32_bits(@bits_f32(a) + 0.5f) - 0x3f000000;\n"
     "    else\n        r = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;\n"
     "    return (uint16_t)(sign | r);\n}\n",
     false},
    {"round_f16_f32",
     "static inline float @round_f16_f32(float x)\n{\n    return @f16_to_f32(@f32_to_f16(x));\n}\n",
     false},
    {"round_bf16_f32",
     "static inline float @round_bf16_f32(float x)\n{\n    return "
     "@bf16_to_f32(@f32_to_bf16(x));\n}\n",
     false},
    {"floor_div_#",
     "static inline T @floor_div_#(T x, T y)\n{\n    T m, d;\n\n    if (y == 0)\n        return x "
     "/ y;\n"
     "    m = fmod$(x, y);\n    d = (x - m) / y;\n"
     "    return rint$(m != 0 && (m < 0) != (y < 0) ? d - 1 : d);\n}\n",
     false},
    {"mod_#",
     "static inline T @mod_#(T x, T y)\n{\n    T m = fmod$(x, y);\n\n"
     "    return m != 0 && (m < 0) != (y < 0) ? m + y : m;\n}\n",
     false},
    {"floor_div_#",
     "static inline T @floor_div_#(T x, T y)\n{\n"
     "    return y ? x / y - (x % y != 0 && (x < 0) != (y < 0)) : 0;\n}\n",
     true},
    {"mod_#",
     "static inline T @mod_#(T x, T y)\n{\n    T m = y ? x % y : 0;\n\n"
     "    return m != 0 && (m < 0) != (y < 0) ? m + y : m;\n}\n",
     true},
};

/* Writes `text` with its placeholders replaced. */
static void put(ts_text *out, const char *text, const char *prefix, const element *e,
                const char *const *args)
{
    for (; *text; text++) {
        bool name = isalnum((unsigned char)text[1]) || text[1] == '_';
        if (*text == '@')
            ts_text_printf(out, "%s", prefix);
        else if (*text == '#')
            ts_text_printf(out, "%s", e->name);
        else if (*text == '$')
            ts_text_printf(out, "%s", e->ending);
        else if (*text == '%' && args && text[1] >= '1' && text[1] <= '3')
            ts_text_printf(out, "%s", args[*++text - '1']);
        else if (*text == 'T' && !name)
            ts_text_printf(out, "%s", e->type);
        else
            ts_text_add(out, text, 1);
    }
}

/* --- formulas --- */

typedef struct formula {
    ts_arena *a;
    const char *prefix;
    const element *e;
} formula;

static const char *expand(const formula *f, const char *text, size_t len);

/* "a, f(b, c)" to its parts, each expanded. */
static void arguments(const formula *f, const char *s, size_t len, const char **args)
{
    size_t from = 0;
    int n = 0, depth = 0;

    for (size_t i = 0; i <= len && n < 3; i++) {
        if (i == len || (s[i] == ',' && !depth)) {
            while (s[from] == ' ')
                from++;
            args[n++] = expand(f, s + from, i - from);
            from = i + 1;
        } else
            depth += (s[i] == '(') - (s[i] == ')');
    }
}

static void put_word(const formula *f, const char *name, size_t len, const char *const *args,
                     ts_text *out)
{
    for (int i = 0; i < TS_COUNT(words); i++) {
        const word *w = &words[i];
        if (strlen(w->name) != len || memcmp(w->name, name, len))
            continue;
        if (f->e->integer && !w->integer) {
            const char *real[3];
            for (int k = 0; k < 3; k++)
                real[k] = ts_arena_printf(f->a, "(double)(%s)", args[k]);
            ts_text_printf(out, "(%s)", f->e->type);
            put(out, w->real, f->prefix, &elements[1], real);
        } else
            put(out, f->e->integer ? w->integer : w->real, f->prefix, f->e, args);
    }
}

static size_t closing(const char *s, size_t from)
{
    int depth = 0;

    do
        depth += (s[from] == '(') - (s[from] == ')');
    while (depth && s[++from]);
    return from;
}

static const char *expand(const formula *f, const char *text, size_t len)
{
    ts_text out = {0};
    const char *result;

    ts_text_add(&out, "", 0);
    for (size_t i = 0; i < len;) {
        const char *args[3] = {"", "", ""};
        size_t n = 0, end;
        while (i + n < len &&
               (isupper((unsigned char)text[i + n]) || (n && isdigit((unsigned char)text[i + n]))))
            n++;
        if (!n) {
            ts_text_add(&out, text + i++, 1);
            continue;
        }
        end = closing(text, i + n);
        arguments(f, text + i + n + 1, end - i - n - 1, args);
        put_word(f, text + i, n, args, &out);
        i = end + 1;
    }
    result = ts_arena_strdup(f->a, out.s ? out.s : "");
    ts_text_free(&out);
    return result;
}

/* static inline float net_relu_f32(float x) { return ...; } */
static void put_op(ts_render *r, const ts_op *op, const element *e, ts_text *out)
{
    formula f = {r->a, r->prefix, e};
    const char *text = expand(&f, op->formula, strlen(op->formula));

    if (e->integer && op == TS_OP(isnan)) /* no integer is; and gcc warns of x != x */
        text = "x - x";
    ts_text_printf(out, "\nstatic inline %s %s%s_%s(%s x%s%s%s%s)\n{\n    return %s;\n}\n",
                   op->result == 'b' ? "int32_t" : e->type, r->prefix, op->name, e->name,
                   op->nin == 3 ? "int32_t" : e->type, op->nin > 1 ? ", " : "",
                   op->nin > 1 ? ts_arena_printf(r->a, "%s y", e->type) : "",
                   op->nin > 2 ? ", " : "",
                   op->nin > 2 ? ts_arena_printf(r->a, "%s z", e->type) : "", text);
}

static void put_ops(ts_render *r, ts_text *out)
{
    for (int i = 0; i < r->nneeds; i++) {
        char op[64], suffix[32];
        if (sscanf(r->needs[i], "op %63s %31s", op, suffix) != 2)
            continue;
        for (int k = 0; k < TS_COUNT(elements); k++)
            if (!strcmp(elements[k].name, suffix))
                put_op(r, ts_op_find(op), &elements[k], out);
    }
}

/* --- helpers --- */

/* Puts helper i as the elements e need it in front of what calls it. */
static void put_helper(ts_render *r, int i, const element *e, const char *code, ts_text *ops)
{
    ts_text name = {0}, all = {0};

    put(&name, helpers[i].name, "", e, NULL);
    ts_text_printf(&all, "%s%s(", r->prefix, name.s);
    if (strstr(code, all.s) || (ops->s && strstr(ops->s, all.s))) {
        all.len = 0;
        ts_text_printf(&all, "\n");
        put(&all, helpers[i].text, r->prefix, e, NULL);
        ts_text_add(&all, ops->s ? ops->s : "", ops->len);
        ts_text_free(ops);
        *ops = all;
        all = (ts_text){0};
    }
    ts_text_free(&name);
    ts_text_free(&all);
}

void ts_plain_prelude(ts_render *r, const char *code, ts_text *out)
{
    ts_text ops = {0};

    ts_special_functions(r, &ops);
    put_ops(r, &ops);
    for (int i = TS_COUNT(helpers) - 1; i >= 0; i--)
        for (int k = 0; k < TS_COUNT(elements); k++)
            if (strchr(helpers[i].name, '#') ? helpers[i].integer == elements[k].integer : !k)
                put_helper(r, i, &elements[k], code, &ops);
    if (ops.len)
        ts_text_add(out, ops.s, ops.len);
    ts_text_free(&ops);
}

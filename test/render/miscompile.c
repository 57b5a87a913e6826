/* miscompile.c - gcc 12.2 takes a function that stores to static arrays of two vector widths in one
 * loop for pure and deletes its call, unless told not to look for pure functions. The flags of
 * every build must give the right numbers; whether this compiler fails without them is only
 * reported. */
#include "render/render.h"
#include "run/run.h"
#include "support.h"

static const char text[] =
    "typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));\n"
    "typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));\n"
    "static float wide[64], narrow[64];\n"
    "static __attribute__((noinline)) void fill(const float *x, int n)\n"
    "{\n"
    "    for (int i = 0; i < n; i++) {\n"
    "        *(v8 *)(wide + 8 * i) = *(const v8 *)(x + 8 * i) * 2.0f;\n"
    "        *(v4 *)(narrow + 4 * i) = *(const v4 *)(x + 8 * i) + 1.0f;\n"
    "    }\n"
    "}\n"
    "__attribute__((visibility(\"default\"))) float tessera_check(const float *x, int n)\n"
    "{\n"
    "    float sum = 0;\n"
    "    fill(x, n);\n"
    "    for (int i = 0; i < 8 * n; i++)\n"
    "        sum += wide[i];\n"
    "    for (int i = 0; i < 4 * n; i++)\n"
    "        sum += narrow[i];\n"
    "    return sum;\n"
    "}\n";

/* Compiled for `isa`, with `more` flags, which win, through a script that adds them at the end. */
static float run(const ts_isa *isa, const char *more)
{
    ts_source src = {.text = (char *)text, .len = sizeof(text) - 1, .isa = *isa};
    ts_arena *a = ts_arena_new();
    ts_options opt = {0};
    float x[64], sum, (*check)(const float *, int);
    void *library, *symbol;
    char *object, cc[256];
    size_t bytes;

    snprintf(cc, sizeof(cc), "sh -c 'exec cc \"$@\" %s' cc", more);
    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    opt.cc = cc;
    src.flags = ts_cc_flags(a, isa, ts_cc_identity(a, &opt));
    assert_ok(ts_cc_build(&src, &opt, NULL, &object, &bytes));
    ts_arena_free(a);
    assert_ok(ts_library_open(object, bytes, &library));
    free(object);
    symbol = ts_library_symbol(library, "tessera_check");
    assert_non_null(symbol);
    memcpy(&check, &symbol, sizeof(check));
    sum = check(x, 8);
    ts_library_close(library);
    return sum;
}

static float want(void)
{
    float sum = 0;

    for (int i = 0; i < 64; i++)
        sum += 2 * (float)i;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 4; k++)
            sum += (float)(8 * i + k) + 1;
    return sum;
}

static void right_with_our_flags(void **state)
{
    static const char *const names[] = {"x86-64-v4-amx",      "x86-64-v4-bf16", "x86-64-v4",
                                        "x86-64-v4-amx-in-c", "x86-64-v3",      "portable"};

    (void)state;
    for (int i = 0; i < TS_COUNT(names); i++) {
        ts_isa isa;
        if (ts_isa_check(names[i]))
            continue;
        assert_ok(ts_isa_find(names[i], &isa));
        assert_true(run(&isa, "") == want());
    }
}

static void without_them(void **state)
{
    ts_isa isa;

    (void)state;
    assert_ok(ts_isa_find(NULL, &isa));
    print_message("without the flags this compiler is %s\n",
                  run(&isa, "-fipa-pure-const -fipa-modref") == want() ? "right" : "wrong");
}

/* The flags reach gcc, and clang is spared what it does not know. */
static void flags_by_compiler(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_isa isa;

    (void)state;
    assert_ok(ts_isa_find(NULL, &isa));
    assert_non_null(strstr(ts_cc_flags(a, &isa, "cc: cc (Debian) 12.2"), "-fno-ipa-pure-const"));
    assert_non_null(strstr(ts_cc_flags(a, &isa, "cc: cc (Debian) 12.2"), "-fno-ipa-modref"));
    assert_null(strstr(ts_cc_flags(a, &isa, "cc: Debian clang version 14"), "-fno-ipa-"));
    ts_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_with_our_flags),
        cmocka_unit_test(without_them),
        cmocka_unit_test(flags_by_compiler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

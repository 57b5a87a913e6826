/* miscompile.c - gcc 12.2 takes a function that stores to static arrays of two vector widths in one
 * loop for pure and deletes its call, unless told not to look for pure functions. The flags of
 * every build must give the right numbers; whether this compiler fails without them is only
 * reported. */
#include "render/render.h"
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

static float run(const ts_isa *isa)
{
    ts_source src = {.text = (char *)text, .len = sizeof(text) - 1, .isa = *isa};
    float x[64], sum, (*check)(const float *, int);
    void *library, *symbol;
    char *object;
    size_t bytes;

    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    assert_ok(ts_cc_build(&src, &(ts_options){0}, &object, &bytes));
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

/* `flags` without the word. */
static void drop(char *flags, const char *word)
{
    char *p = strstr(flags, word);

    assert_non_null(p); /* every build has it */
    memset(p, ' ', strlen(word));
}

static void right_with_our_flags(void **state)
{
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "portable"};

    (void)state;
    for (int i = 0; i < TS_COUNT(names); i++) {
        ts_isa isa;
        if (ts_isa_check(names[i]))
            continue;
        assert_ok(ts_isa_find(names[i], &isa));
        assert_true(run(&isa) == want());
    }
}

static void without_them(void **state)
{
    char flags[1024];
    ts_isa isa;

    (void)state;
    assert_ok(ts_isa_find(NULL, &isa));
    snprintf(flags, sizeof(flags), "%s", isa.flags);
    drop(flags, "-fno-ipa-pure-const");
    drop(flags, "-fno-ipa-modref");
    isa.flags = flags;
    print_message("without the flags this compiler is %s\n",
                  run(&isa) == want() ? "right" : "wrong");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_with_our_flags),
        cmocka_unit_test(without_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

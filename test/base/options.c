/* options.c - walks the table of options. Every field has a row; an option that is part of the
 * program is part of the key, and one that is not, is not; what the rows say is what doc/options.md
 * says. A new field fails here until it has a row, and a row until it has a sample below. */
#include "cache/cache.h"
#include "plan/plan.h"
#include "render/render.h"
#include "support.h"
#include <ctype.h>
#include <limits.h>
#include <sys/stat.h>

static const char *const names[] = {"ts_options", "ts_run_options", "ts_optimizer", "ts_hyper"};

/* --- every field has a row --- */

/* The header from a struct's first brace on, comments taken out. */
static char *body_of(const char *name)
{
    char *path = NULL, *text, *begin, *end, what[64];
    size_t len;

    assert_true(asprintf(&path, "%s/include/tessera.h", getenv("TS_SOURCE_ROOT")) > 0);
    assert_ok(ts_file_read(path, &text, &len));
    free(path);
    snprintf(what, sizeof(what), "typedef struct %s {", name);
    begin = strstr(text, what);
    assert_non_null(begin);
    begin = strdup(strchr(begin, '{') + 1);
    free(text);
    *strstr(begin, "\n}") = 0;
    while ((text = strstr(begin, "/*"))) {
        end = strstr(text, "*/") + 2;
        memmove(text, end, strlen(end) + 1);
    }
    return begin;
}

/* The name that a declarator declares: its last word, or "progress" of "void (*progress)(...)". */
static void declared(const char *s, char *out, size_t size)
{
    const char *p = strstr(s, "(*"), *end;

    p = p ? p + 2 : s + strcspn(s, "[");
    for (end = p + (p[0] && p[-1] == '*' ? strcspn(p, ")") : 0); end > s; end--)
        if (isalnum((unsigned char)end[-1]) || end[-1] == '_')
            break;
    for (p = end; p > s && (isalnum((unsigned char)p[-1]) || p[-1] == '_');)
        p--;
    snprintf(out, size, "%.*s", (int)(end - p), p);
}

static void every_field_has_a_row(void **state)
{
    (void)state;
    for (int of = 0; of < TS_COUNT(names); of++) {
        char *body = body_of(names[of]), *rest = body, field[64], *end;
        int n = 0;
        while ((end = strchr(rest, ';'))) {
            *end = 0;
            for (char *more, *one = rest; one; one = more) {
                more = strchr(one, '(') ? NULL : strchr(one, ',');
                if (more)
                    *more++ = 0;
                declared(one, field, sizeof(field));
                if (!ts_option_at((ts_record)of, n))
                    fail_msg("%s.%s has no row in base/options.def", names[of], field);
                assert_string_equal(ts_option_at((ts_record)of, n++)->name, field);
            }
            rest = end + 1;
        }
        assert_null(ts_option_at((ts_record)of, n));
        free(body);
    }
}

/* --- a net in which every option matters --- */

enum { BATCH = 8, CHANNELS = 32 };

static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, CHANNELS, 16, 16), *skip;

    ts_block_begin(g, "b1");
    x = ts_relu(ts_conv2d(x, "c1", CHANNELS, 3, .padding = 1));
    skip = ts_conv2d(x, "c0", CHANNELS, 1); /* read by b3 only */
    ts_block_end(g);
    ts_block_begin(g, "b2");
    x = ts_checkpoint(ts_relu(ts_conv2d(x, "c2", CHANNELS, 3, .padding = 1)));
    x = ts_cast(ts_tanh(ts_cast(x, TS_F16)), TS_F32);
    ts_block_end(g);
    ts_block_begin(g, "b3");
    x = ts_add(ts_linear(ts_flatten(x, 1), "f1", 20), ts_linear(ts_flatten(skip, 1), "f0", 20));
    x = ts_linear(ts_relu(x), "f2", 10);
    ts_block_end(g);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, ts_input(g, "labels", TS_I32, BATCH)));
    return g;
}

static const char *const b1[] = {"b1", "b2"}, *const b2[] = {"b2"}, *const b3[] = {"b3"};
static const ts_stage stages[] = {{b1, 2, 0, 0}, {b3, 1, 1, 0}},
                      others[] = {{b3, 1, 0, 0}, {b1, 2, 1, 0}},
                      phases[] = {{b1, 1, 0, 0}, {b2, 1, 0, 1}, {b3, 1, 0, 2}};
static const ts_replica_group own = {.state = "f1.weight", .grouping = TS_GROUPING_NONE};
static ts_optimizer adam;

#define TRAINING .optimizer = &adam
#define PIPELINE TRAINING, .stages = stages, .nstages = 2, .gradient_accumulation = 8
#define PHASES                                                                                     \
    TRAINING, .stages = phases, .nstages = 3, .schedule = TS_SCHEDULE_PHASED,                      \
              .offload = TS_OFFLOAD_ALL

/* For each option that is part of the program: options, and others that differ in it alone. What
 * tells the two programs apart is their text, or else what a run is told about (a description), or
 * whether they fit (a limit). */
typedef enum tells { TEXT, DESCRIPTION, LIMIT } tells;
static const struct {
    const char *name;
    ts_options one, other;
    tells tells;
} samples[] = {
    {"optimizer", {0}, {TRAINING}, TEXT},
    {"device_iterations", {TRAINING}, {TRAINING, .device_iterations = 2}, DESCRIPTION},
    {"gradient_accumulation", {TRAINING}, {TRAINING, .gradient_accumulation = 2}, TEXT},
    {"accumulate_sum",
     {TRAINING, .gradient_accumulation = 2},
     {TRAINING, .gradient_accumulation = 2, .accumulate_sum = true},
     TEXT},
    {"accumulate_running",
     {TRAINING, .gradient_accumulation = 2},
     {TRAINING, .gradient_accumulation = 2, .accumulate_running = true},
     TEXT},
    {"output_mode", {TRAINING}, {TRAINING, .output_mode = TS_OUTPUT_ALL}, DESCRIPTION},
    {"output_period",
     {.device_iterations = 4, .output_mode = TS_OUTPUT_EVERY_N},
     {.device_iterations = 4, .output_mode = TS_OUTPUT_EVERY_N, .output_period = 2},
     DESCRIPTION},
    {"skip", {0}, {.skip = "layout"}, TEXT},
    {"no_winograd", {0}, {.no_winograd = true}, TEXT},
    {"stages",
     {TRAINING, .stages = stages, .nstages = 2},
     {TRAINING, .stages = others, .nstages = 2},
     TEXT},
    {"nstages",
     {TRAINING, .stages = stages, .nstages = 1},
     {TRAINING, .stages = stages, .nstages = 2},
     LIMIT}, /* a list that says not all blocks is refused */
    {"devices", {TRAINING}, {TRAINING, .devices = 2}, TEXT},
    {"schedule", {PIPELINE}, {PIPELINE, .schedule = TS_SCHEDULE_SHARDED}, TEXT},
    {"separate_backward", {PHASES}, {PHASES, .separate_backward = true}, TEXT},
    {"offload_by_pass", {PHASES}, {PHASES, .offload_by_pass = true}, TEXT},
    {"queue_depth", {PIPELINE}, {PIPELINE, .queue_depth = 5}, TEXT},
    {"recompute", {TRAINING}, {TRAINING, .recompute = true}, TEXT},
    {"stochastic_rounding", {TRAINING}, {TRAINING, .stochastic_rounding = true}, TEXT},
    {"replicas", {TRAINING}, {TRAINING, .replicas = 2}, TEXT},
    {"processes", {TRAINING}, {TRAINING, .processes = 2}, TEXT},
    {"replica_groups",
     {TRAINING, .replicas = 2},
     {TRAINING, .replicas = 2, .replica_groups = &own, .nreplica_groups = 1},
     DESCRIPTION},
    {"nreplica_groups",
     {TRAINING, .replicas = 2, .replica_groups = &own},
     {TRAINING, .replicas = 2, .replica_groups = &own, .nreplica_groups = 1},
     DESCRIPTION},
    {"offload", {TRAINING}, {TRAINING, .offload = TS_OFFLOAD_OPTIMIZER}, TEXT},
    {"offload_least",
     {TRAINING, .offload = TS_OFFLOAD_OPTIMIZER},
     {TRAINING, .offload = TS_OFFLOAD_OPTIMIZER, .offload_least = {100000, 0, 0, 0}},
     TEXT},
    {"shard_optimizer",
     {TRAINING, .replicas = 2},
     {TRAINING, .replicas = 2, .shard_optimizer = true},
     TEXT},
    {"shard_least",
     {TRAINING, .replicas = 2, .shard_optimizer = true},
     {TRAINING, .replicas = 2, .shard_optimizer = true, .shard_least = 100000},
     TEXT},
    {"device_kind", {TRAINING}, {TRAINING, .device_kind = TS_DEVICE_MK1}, LIMIT},
    {"device_memory", {TRAINING}, {TRAINING, .device_memory = 1 << 20}, LIMIT},
    {"exceptions", {TRAINING}, {TRAINING, .exceptions = true}, TEXT},
    {"inference", {0}, {.inference = true}, TEXT},
};

/* The generated C and the order of the devices; "" when there is no such program. */
static char *program(const ts_graph *g, const ts_options *opt)
{
    ts_arena *a = ts_arena_new();
    const ts_graph *small;
    const ts_program *p;
    const ts_source *src;
    ts_plan_info *info;
    char *text = NULL;

    if (ts_plan_passes(a, g, opt, &small) || ts_plan(a, small, opt, &p) ||
        ts_source_make(a, p, opt, &src) || ts_plan_new(g, opt, &info)) {
        ts_arena_free(a);
        return strdup("");
    }
    assert_true(asprintf(&text, "%s\n%s\n%d sends, depth %d, %d moves, %lld bytes\n", src->text,
                         info->schedule, info->nsends, info->nsends ? info->sends[0].depth : 0,
                         info->nmoves, (long long)info->devices[0].peak) > 0);
    ts_plan_free(info);
    ts_arena_free(a);
    return text;
}

/* What a run is told, of the reference executor, which needs no compiler. */
static char *description(const ts_graph *g, ts_options opt)
{
    ts_executable *x;
    char *text;

    opt.executor = TS_EXECUTOR_REFERENCE;
    assert_ok(ts_compile(g, &opt, &x));
    text = strdup(ts_executable_inspect(x));
    ts_executable_free(x);
    return text;
}

static void key_of(const ts_graph *g, const ts_options *opt, char hash[33])
{
    ts_arena *a = ts_arena_new();
    const char *cc = ts_cc_identity(a, opt);

    memcpy(hash, ts_cache_key(a, g, opt, cc ? cc : "none").hash, 33);
    ts_arena_free(a);
}

static bool same_key(const ts_graph *g, const ts_options *a, const ts_options *b)
{
    char one[33], other[33];

    key_of(g, a, one);
    key_of(g, b, other);
    return !strcmp(one, other);
}

static void what_makes_the_program_is_in_the_key(void **state)
{
    const ts_option *o;
    ts_graph *g = net();

    (void)state;
    adam = ts_adam(0.01);
    for (int i = 0; (o = ts_option_at(TS_RECORD_OPTIONS, i)); i++) {
        int k = 0;
        if (ts_option_in_key(TS_RECORD_OPTIONS, i) != TS_KEY_PROGRAM)
            continue;
        while (k < TS_COUNT(samples) && strcmp(samples[k].name, o->name))
            k++;
        if (k == TS_COUNT(samples))
            fail_msg("%s has no sample above", o->name);
        const ts_options *one = &samples[k].one, *other = &samples[k].other;
        if (same_key(g, one, other))
            fail_msg("%s changes the program, and not the key", o->name);
        if (samples[k].tells == LIMIT)
            continue;
        bool text = samples[k].tells == TEXT;
        char *p = text ? program(g, one) : description(g, *one);
        char *q = text ? program(g, other) : description(g, *other);
        if (!*p || !*q)
            fail_msg("the samples of %s: %s", o->name, ts_error_text());
        if (!strcmp(p, q))
            fail_msg("the samples of %s make the same program", o->name);
        free(p);
        free(q);
    }
    ts_graph_free(g);
}

static void report(void *arg, int percent)
{
    (void)arg;
    (void)percent;
}

static void what_does_not_is_not(void **state)
{
    ts_options changed[] = {
        {.executor = TS_EXECUTOR_NATIVE},
        {.cache_dir = "elsewhere"},
        {.cache_limit = 1},
        {.dump_dir = "dump"},
        {.progress = report},
        {.progress_arg = changed},
        {.profile = "profile"},
        {.profile_calls = 3},
    };
    ts_graph *g = net();
    const ts_option *o;
    int n = 0;

    (void)state;
    for (int i = 0; (o = ts_option_at(TS_RECORD_OPTIONS, i)); i++)
        n += ts_option_in_key(TS_RECORD_OPTIONS, i) == TS_KEY_NOTHING;
    assert_int_equal(n, TS_COUNT(changed));
    for (int i = 0; i < n; i++) {
        ts_options dumped = changed[i];
        dumped.dump_dir = dumped.profile = NULL;
        assert_true(same_key(g, &(ts_options){0}, &changed[i]));
        char *p = program(g, &(ts_options){0}), *q = program(g, &dumped);
        assert_string_equal(p, q);
        free(p);
        free(q);
    }
    ts_graph_free(g);
}

/* The compiler and the instructions have entries of the key that say more than the options. */
static void named_entries(void **state)
{
    char *folder = test_folder(), *path = NULL;
    const char *script = "#!/bin/sh\nexec cc \"$@\"\n";
    ts_graph *g = net();

    (void)state;
    assert_true(asprintf(&path, "%s/cc2", folder) > 0);
    assert_ok(ts_file_write(path, script, strlen(script)));
    assert_int_equal(chmod(path, 0700), 0);
    assert_false(same_key(g, &(ts_options){0}, &(ts_options){.cc = path}));
    assert_false(same_key(g, &(ts_options){.isa = "x86-64-v3"}, &(ts_options){.isa = "portable"}));
    assert_true(same_key(g, &(ts_options){.devices = 1}, &(ts_options){.devices = 0}));
    free(path);
    ts_graph_free(g);
    test_folder_remove(folder);
    free(folder);
}

/* The same of the optimizer: all that a run cannot change is in the key. */
static void every_field_of_the_optimizer(void **state)
{
    ts_graph *g = net();
    const ts_option *o;

    (void)state;
    for (int of = TS_RECORD_OPTIMIZER; of <= TS_RECORD_HYPER; of++)
        for (int i = 0; (o = ts_option_at((ts_record)of, i)); i++) {
            static const char *const to[] = {"yes", "7", "0.375", NULL, "all"};
            ts_optimizer one = ts_lamb(0.01), other = one;
            char word[32] = "";
            if (o->kind == TS_OPTION_DATA || !strcmp(o->name, "ngroups"))
                continue;
            if (o->words && strchr(o->words, ' '))
                snprintf(word, sizeof(word), "%s", strrchr(o->words, ' ') + 1);
            if (o->kind == TS_OPTION_BOOL)
                assert_ok(ts_record_set((ts_record)of,
                                        of == TS_RECORD_HYPER ? (void *)&one.hyper : (void *)&one,
                                        sizeof(one), o->name, "no"));
            assert_ok(ts_record_set(
                (ts_record)of, of == TS_RECORD_HYPER ? (void *)&other.hyper : (void *)&other,
                sizeof(other), o->name, o->kind == TS_OPTION_WORD ? word : to[o->kind]));
            if (same_key(g, &(ts_options){.optimizer = &one}, &(ts_options){.optimizer = &other}))
                fail_msg("%s.%s is not in the key", names[of], o->name);
        }
    ts_graph_free(g);
}

/* --- by name --- */

static void set_and_read_by_name(void **state)
{
    ts_options o = {0};
    char text[64];

    (void)state;
    assert_ok(ts_options_set(&o, "recompute", "yes"));
    assert_ok(ts_options_set(&o, "schedule", "phased"));
    assert_ok(ts_options_set(&o, "offload", "weights,activations"));
    assert_ok(ts_options_set(&o, "offload_least", "3,4"));
    assert_ok(ts_options_set(&o, "device_memory", "12345678901"));
    assert_ok(ts_options_set(&o, "isa", "portable"));
    assert_true(o.recompute && o.schedule == TS_SCHEDULE_PHASED && o.device_memory == 12345678901);
    assert_int_equal(o.offload, TS_OFFLOAD_WEIGHTS | TS_OFFLOAD_ACTIVATIONS);
    assert_true(o.offload_least[0] == 3 && o.offload_least[1] == 4 && o.offload_least[3] == 4);
    assert_string_equal(o.isa, "portable");
    assert_ok(ts_record_get(TS_RECORD_OPTIONS, &o, sizeof(o), "offload", text, sizeof(text)));
    assert_string_equal(text, "weights,activations");
    assert_ok(ts_options_set(&o, "offload", "all"));
    assert_int_equal(o.offload, TS_OFFLOAD_ALL);

    assert_fails(ts_options_set(&o, "recompte", "yes"), TS_ERR_ARG,
                 "ts_options has no option 'recompte'");
    assert_string_equal(ts_last_error()->hint, "did you mean 'recompute'?");
    assert_fails(ts_options_set(&o, "recompute", "maybe"), TS_ERR_ARG,
                 "recompute is 'maybe'; it can be yes or no");
    assert_fails(ts_options_set(&o, "replicas", "1025"), TS_ERR_ARG,
                 "replicas is 1025; it can be at most 1024");
    assert_fails(ts_options_set(&o, "replicas", "99999999999999999999"), TS_ERR_ARG,
                 "replicas is 9223372036854775807; it can be at most 1024");
    assert_fails(ts_options_set(&o, "replicas", "two"), TS_ERR_ARG,
                 "replicas must be a whole number, not 'two'");
    assert_fails(ts_options_set(&o, "schedule", "piped"), TS_ERR_ARG,
                 "schedule is 'piped'; it can be one of: pipelined sharded phased");
    assert_fails(ts_options_set(&o, "offload", "weights,wieghts"), TS_ERR_ARG,
                 "offload has 'wieghts'; it can have, with commas: optimizer weights accumulators "
                 "activations; or all, or none");
    assert_fails(ts_options_set(&o, "stages", "b1"), TS_ERR_ARG,
                 "ts_options.stages cannot be said in words");
    assert_int_equal(ts_options_set(&o, NULL, "1"), TS_ERR_ARG);
    assert_fails(ts_record_set((ts_record)9, &o, sizeof(o), "isa", ""), TS_ERR_ARG,
                 "there is no record 9");
    assert_null(ts_option_at((ts_record)9, 0));
    assert_fails(ts_record_set(TS_RECORD_OPTIONS, &o, offsetof(ts_options, isa), "isa", ""),
                 TS_ERR_ARG, "ts_options has no option 'isa'"); /* of an older program */
}

/* --- the page --- */

static void page_of(ts_text *t, ts_record of)
{
    const ts_option *o;

    ts_text_printf(t, "\n## %s\n\n| field | values | 0 means | program | |\n", names[of]);
    ts_text_printf(t, "| --- | --- | --- | --- | --- |\n");
    for (int i = 0; (o = ts_option_at(of, i)); i++) {
        char values[200] = "";
        bool whole = o->high == INT_MAX || o->high == INT64_MAX;
        switch (o->kind) {
        case TS_OPTION_BOOL:
            snprintf(values, sizeof(values), "yes, no");
            break;
        case TS_OPTION_INT:
            snprintf(values, sizeof(values), whole ? "a whole number" : "%lld to %lld",
                     (long long)o->low, (long long)o->high);
            break;
        case TS_OPTION_REAL:
            snprintf(values, sizeof(values), "a number");
            break;
        case TS_OPTION_WORD:
            snprintf(values, sizeof(values), "one of: %s", o->words);
            break;
        case TS_OPTION_BITS:
            snprintf(values, sizeof(values), "some of: %s", o->words);
            break;
        case TS_OPTION_TEXT:
            snprintf(values, sizeof(values), "text");
            break;
        case TS_OPTION_DATA:
            break;
        }
        ts_text_printf(t, "| `%s` | %s | ", o->name, values);
        if (o->usual)
            ts_text_printf(t, "%lld ", (long long)o->usual);
        ts_text_printf(t, "| %s | %s |\n", o->program ? "yes" : "", o->about);
    }
}

static void the_page_is_up_to_date(void **state)
{
    ts_text t = {0};
    char *path = NULL, *page;
    size_t len;

    (void)state;
    ts_text_printf(&t,
                   "# Options\n\n"
                   "Written from `src/base/options.def` by `make golden`; change them there. The C "
                   "header says more\nof each. A field that is part of the program makes another "
                   "one, found under another key of the\ncache, when it changes.\n");
    for (int of = 0; of < TS_COUNT(names); of++)
        page_of(&t, (ts_record)of);
    assert_true(asprintf(&path, "%s/doc/options.md", getenv("TS_SOURCE_ROOT")) > 0);
    if (getenv("TS_GOLDEN_UPDATE"))
        assert_ok(ts_file_write(path, t.s, t.len));
    assert_ok(ts_file_read(path, &page, &len));
    assert_string_equal(page, t.s);
    free(page);
    free(path);
    ts_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_a_row),
        cmocka_unit_test(what_makes_the_program_is_in_the_key),
        cmocka_unit_test(what_does_not_is_not),
        cmocka_unit_test(named_entries),
        cmocka_unit_test(every_field_of_the_optimizer),
        cmocka_unit_test(set_and_read_by_name),
        cmocka_unit_test(the_page_is_up_to_date),
    };

    setenv("TESSERA_MACHINE", "unit=32", 1); /* the net's convolutions are Winograd's then */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

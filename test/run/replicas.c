/* replicas.c - parameters that groups of replicas have values of their own of. */
#include "run/engine.h"
#include "support.h"

enum { BATCH = 4, A = 2, D = 2, R = 4, IN = 6, OUT = 5 };
enum { MB = D * A * R };

/* Of R replicas in groups of `size`, who is with whom. */
static const struct {
    ts_grouping grouping;
    int size, groups;
    int of[R];
} kinds[] = {
    {TS_GROUP_ALL, 0, 1, {0, 0, 0, 0}},         {TS_GROUP_CONSECUTIVE, 2, 2, {0, 0, 1, 1}},
    {TS_GROUP_ORTHOGONAL, 2, 2, {0, 1, 0, 1}},  {TS_GROUP_NONE, 0, 4, {0, 1, 2, 3}},
    {TS_GROUP_CONSECUTIVE, 4, 1, {0, 0, 0, 0}}, {TS_GROUP_ORTHOGONAL, 1, 4, {0, 1, 2, 3}},
};
static const char *const params[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, IN), *t = ts_input(g, "labels", TS_I32, BATCH);

    x = ts_linear(ts_tanh(ts_linear(x, "fc1", 40)), "fc2", OUT);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    return g;
}

static void group_all(ts_grouping grouping, int size, ts_replica_group *out)
{
    for (int i = 0; i < TS_COUNT(params); i++)
        out[i] = (ts_replica_group){.state = params[i], .grouping = grouping, .size = size};
}

typedef struct trainer {
    ts_executable *x;
    ts_engine *e;
} trainer;

static trainer train_with(ts_options opt, const ts_optimizer *o)
{
    ts_graph *g = net();
    trainer t;

    opt.optimizer = o;
    opt.device_iterations = D;
    opt.gradient_accumulation = A;
    opt.cache_dir = opt.cache_dir ? opt.cache_dir : "";
    assert_ok(ts_compile(g, &opt, &t.x));
    assert_ok(ts_engine_new(t.x, &(ts_run_options){.threads = 2, .seed = 3}, &t.e));
    ts_graph_free(g);
    return t;
}

static void end(trainer t)
{
    ts_engine_free(t.e);
    ts_executable_free(t.x);
}

/* Two calls with the rows of all replicas, or of those in `group` only. */
static void step(trainer t, const int *of, int group)
{
    static float x[MB * BATCH * IN];
    static int32_t labels[MB * BATCH];
    int n = 0;

    for (int i = 0; i < MB; i++) {
        if (of && of[i % R] != group)
            continue;
        for (int k = 0; k < BATCH * IN; k++)
            x[n * BATCH * IN + k] = (float)((i * BATCH * IN + k) * 37 % 101) / 101;
        for (int k = 0; k < BATCH; k++)
            labels[n * BATCH + k] = (i * BATCH + k) * 7 % OUT;
        n++;
    }
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(t.e, (const void *[]){x, labels}, (void *[]){NULL, NULL}));
}

static char *read_state(trainer t, const ts_tensor_info *info)
{
    char *data = malloc(info->bytes);

    assert_ok(ts_engine_read(t.e, info->name, data, info->bytes));
    return data;
}

/* Row `group` of every state that has groups is the state of the run of that group alone. */
static void compare(trainer all, trainer alone, int groups, int group)
{
    const ts_tensor_info *a, *b;

    for (int i = 0; (b = ts_executable_tensor(alone.x, TS_ROLE_STATE, i)); i++) {
        char *x, *y;
        a = ts_executable_tensor(all.x, TS_ROLE_STATE, i);
        x = read_state(all, a);
        y = read_state(alone, b);
        assert_string_equal(a->name, b->name);
        if (groups > 1 && b->rank) {
            assert_int_equal(a->rank, b->rank + 1);
            assert_int_equal(a->dims[0], groups);
            assert_int_equal(a->bytes, b->bytes * (size_t)groups);
            assert_memory_equal(x + (size_t)group * b->bytes, y, b->bytes);
        } else {
            assert_int_equal(a->bytes, b->bytes);
            assert_memory_equal(x, y, b->bytes);
        }
        free(x);
        free(y);
    }
}

/* With all its parameters grouped, a group trains as a run with its replicas and rows alone. */
static void groups_are_runs_of_their_own(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    char *folder = test_folder(); /* a cache: each program once */

    (void)state;
    for (int k = 0; k < 4; k++) {
        ts_replica_group groups[TS_COUNT(params)];
        trainer all;
        group_all(kinds[k].grouping, kinds[k].size, groups);
        all = train_with((ts_options){.replicas = R,
                                      .replica_groups = groups,
                                      .nreplica_groups = TS_COUNT(params),
                                      .cache_dir = folder},
                         &adam);
        step(all, NULL, 0);
        for (int i = 0; i < kinds[k].groups; i++) {
            trainer alone = train_with(
                (ts_options){.replicas = R / kinds[k].groups, .cache_dir = folder}, &adam);
            step(alone, kinds[k].of, i);
            compare(all, alone, kinds[k].groups, i);
            end(alone);
        }
        end(all);
    }
    test_folder_remove(folder);
    free(folder);
}

/* What replicas share stays equal, whatever they do not share. By both executors, and by sum. */
static void the_rest_is_shared(void **state)
{
    ts_replica_group some[] = {
        {.state = "fc1.weight", .grouping = TS_GROUP_ORTHOGONAL, .size = 2, .read_all = true}};
    ts_optimizer sgd = ts_sgd(0.05);
    float w[2][R][40 * IN], shared[2][OUT * 40];

    (void)state;
    sgd.hyper.momentum = 0.9;
    for (int k = 0; k < 2; k++) {
        trainer t = train_with((ts_options){.replicas = R,
                                            .replica_groups = some,
                                            .nreplica_groups = 1,
                                            .accumulate_sum = true,
                                            .executor = k ? TS_EXEC_REFERENCE : TS_EXEC_NATIVE},
                               &sgd);
        step(t, NULL, 0);
        for (int i = 0; i < t.x->nstates; i++) {
            const ts_slot *s = &t.x->states[i];
            for (int r = 1; r < R && s->groups == 1; r++)
                assert_memory_equal(ts_engine_state(t.e, r, s, s->at),
                                    ts_engine_state(t.e, 0, s, s->at), s->info.bytes);
            assert_int_equal(s->groups, strncmp(s->info.name, "fc1.weight", 10) ? 1 : 2);
        }
        assert_ok(ts_engine_read(t.e, "fc1.weight", w[k], sizeof(w[k])));
        assert_ok(ts_engine_read(t.e, "fc2.weight", shared[k], sizeof(shared[k])));
        assert_memory_equal(w[k][0], w[k][2], sizeof(w[k][0]));
        assert_memory_equal(w[k][1], w[k][3], sizeof(w[k][0]));
        assert_true(memcmp(w[k][0], w[k][1], sizeof(w[k][0])) != 0);
        end(t);
    }
    for (int i = 0; i < 40 * IN; i++)
        assert_float_equal(w[0][1][i], w[1][1][i], 1e-4);
    for (int i = 0; i < OUT * 40; i++)
        assert_float_equal(shared[0][i], shared[1][i], 1e-4);
}

/* y = x + w, w by groups; and what each way to read it gives. */
static void values_of_groups(void **state)
{
    static const float values[R] = {10, 20, 30, 40};
    float in[R] = {1, 2, 3, 4}, out[R], back[R], all[R];

    (void)state;
    for (int k = 0; k < 2 * TS_COUNT(kinds); k++) {
        int groups = kinds[k / 2].groups, rows = k % 2 && kinds[k / 2].grouping ? R : groups;
        ts_replica_group q = {.state = "w",
                              .grouping = kinds[k / 2].grouping,
                              .size = kinds[k / 2].size,
                              .read_all = k % 2};
        ts_options opt = {.replicas = R,
                          .replica_groups = &q,
                          .nreplica_groups = 1,
                          .executor = k % 3 ? TS_EXEC_REFERENCE : TS_EXEC_AUTO,
                          .cache_dir = ""};
        ts_graph *g = ts_graph_new("add");
        ts_value *x = ts_input(g, "x", TS_F32, 1);
        const ts_tensor_info *info;
        ts_executable *exe;
        ts_engine *e;
        ts_output(ts_add(x, ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 7, 0}), 1)), "y");
        assert_ok(ts_compile(g, &opt, &exe));
        assert_ok(ts_engine_new(exe, NULL, &e));
        info = ts_executable_tensor(exe, TS_ROLE_STATE, 0);
        assert_int_equal(info->rank, kinds[k / 2].grouping ? 2 : 1);
        assert_int_equal(info->dims[0], rows);
        assert_int_equal(info->bytes, (size_t)rows * sizeof(float));
        assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){out}));
        for (int r = 0; r < R; r++)
            assert_float_equal(out[r], in[r] + 7, 0);
        assert_ok(ts_engine_write(e, "w", values, (size_t)groups * sizeof(float)));
        assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){out}));
        assert_ok(ts_engine_read(e, "w", back, info->bytes));
        for (int r = 0; r < R; r++) {
            all[r] = values[kinds[k / 2].of[r]];
            assert_float_equal(out[r], in[r] + all[r], 0);
        }
        assert_memory_equal(back, rows == R ? all : values, info->bytes);
        assert_ok(ts_engine_write(e, "w", back, info->bytes)); /* what was read can be written */
        assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){back}));
        assert_memory_equal(back, out, sizeof(out));
        assert_int_equal(ts_engine_read(e, "w", back, info->bytes + 4), TS_ERR_ARG);
        ts_engine_free(e);
        ts_executable_free(exe);
        ts_graph_free(g);
    }
}

/* The file knows the groups, and so does the cache. */
static void groups_are_kept(void **state)
{
    ts_replica_group groups[TS_COUNT(params)];
    ts_optimizer adam = ts_adamw(0.01);
    char *folder = test_folder(), path[4096];
    ts_options opt = {.replicas = R,
                      .replica_groups = groups,
                      .nreplica_groups = TS_COUNT(params),
                      .cache_dir = folder};
    trainer t, other, loaded;

    (void)state;
    group_all(TS_GROUP_ORTHOGONAL, 2, groups);
    t = train_with(opt, &adam);
    groups[3].read_all = true;
    other = train_with(opt, &adam);
    assert_false(ts_executable_stats(other.x).from_cache);
    assert_int_equal(ts_executable_tensor(other.x, TS_ROLE_STATE, 3)->dims[0], R);
    end(other);
    groups[3].read_all = false;
    other = train_with(opt, &adam);
    assert_true(ts_executable_stats(other.x).from_cache);
    snprintf(path, sizeof(path), "%s/net.tse", folder);
    assert_ok(ts_executable_save(t.x, path));
    assert_ok(ts_executable_load(path, &loaded.x));
    assert_ok(ts_engine_new(loaded.x, &(ts_run_options){.threads = 2, .seed = 3}, &loaded.e));
    step(t, NULL, 0);
    step(other, NULL, 0);
    step(loaded, NULL, 0);
    compare(t, other, 1, 0);
    compare(t, loaded, 1, 0);
    assert_non_null(strstr(ts_executable_inspect(t.x), "f32[2,40,6]"));
    end(t);
    end(other);
    end(loaded);
    test_folder_remove(folder);
    free(folder);
}

static void groups_that_cannot_be(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    ts_graph *g = net();
    ts_value *deep = ts_param(g, "deep", TS_F32, ((ts_init){0}), 1, 1, 1, 1, 1, 1, 1, 1);
    ts_replica_group q[2] = {{.state = "fc1.bias", .grouping = TS_GROUP_CONSECUTIVE, .size = 3}};
    ts_options opt = {.optimizer = &adam,
                      .replicas = R,
                      .replica_groups = q,
                      .nreplica_groups = 1,
                      .cache_dir = ""};
    ts_executable *x;

    (void)state;
    ts_output(deep, "deep");
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "4 replicas cannot be divided into groups of 3 for 'fc1.bias'");
    q[0].size = 0;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "4 replicas cannot be divided into groups of 0 for 'fc1.bias'");
    q[0].state = "fc9";
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "replica_groups names 'fc9', which the graph does not have");
    q[0] = (ts_replica_group){.state = "deep", .grouping = TS_GROUP_NONE};
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "'deep' has rank 8, so there is no dim left for its groups of replicas");
    q[0] = (ts_replica_group){.state = "fc1.bias", .grouping = 4};
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "the replicas of 'fc1.bias' have the grouping 4, which does not exist");
    q[0].grouping = TS_GROUP_NONE;
    q[1] = q[0];
    opt.nreplica_groups = 2;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG, "replica_groups names 'fc1.bias' twice");
    opt.nreplica_groups = 1;
    opt.processes = 2;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_UNSUPPORTED,
                 "parameters with a value for each group of replicas are not supported with "
                 "several processes");
    opt.processes = 1;
    adam.max_grad_norm = 1;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_UNSUPPORTED,
                 "max_grad_norm is not supported with parameters that have a value for each group "
                 "of replicas: every group would have a norm of its own");
    opt.replica_groups = NULL;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG, "there are 1 replica_groups at NULL");
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_runs_of_their_own),
        cmocka_unit_test(the_rest_is_shared),
        cmocka_unit_test(values_of_groups),
        cmocka_unit_test(groups_are_kept),
        cmocka_unit_test(groups_that_cannot_be),
    };
    return cmocka_run_group_tests_name("run replicas", tests, NULL, NULL);
}

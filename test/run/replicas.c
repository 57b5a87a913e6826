/* replicas.c - parameters that groups of replicas have values of their own of, and the optimiser's
 * state split over the replicas. */
#include "run/engine.h"
#include "support.h"
#include <inttypes.h>

enum { BATCH = 4, A = 2, D = 2, R = 4, IN = 6, OUT = 5 };
enum { MB = D * A * R };

/* Of R replicas in groups of `size`, who is with whom. */
static const struct {
    ts_grouping grouping;
    int size, groups;
    int of[R];
} kinds[] = {
    {TS_GROUPING_ALL, 0, 1, {0, 0, 0, 0}},         {TS_GROUPING_CONSECUTIVE, 2, 2, {0, 0, 1, 1}},
    {TS_GROUPING_ORTHOGONAL, 2, 2, {0, 1, 0, 1}},  {TS_GROUPING_NONE, 0, 4, {0, 1, 2, 3}},
    {TS_GROUPING_CONSECUTIVE, 4, 1, {0, 0, 0, 0}}, {TS_GROUPING_ORTHOGONAL, 1, 4, {0, 1, 2, 3}},
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

/* The groups of a run with all its parameters grouped, each beside a run with its replicas and rows
 * alone. */
static void compare_groups(int k, bool sum, const ts_optimizer *o, const ts_optimizer *o_alone,
                           const char *folder)
{
    ts_replica_group groups[TS_COUNT(params)];
    trainer all;

    group_all(kinds[k].grouping, kinds[k].size, groups);
    all = train_with((ts_options){.replicas = R,
                                  .accumulate_sum = sum,
                                  .replica_groups = groups,
                                  .nreplica_groups = TS_COUNT(params),
                                  .cache_dir = folder},
                     o);
    step(all, NULL, 0);
    for (int i = 0; i < kinds[k].groups; i++) {
        trainer alone = train_with((ts_options){.replicas = R / kinds[k].groups,
                                                .accumulate_sum = sum,
                                                .cache_dir = folder},
                                   o_alone);
        step(alone, kinds[k].of, i);
        compare(all, alone, kinds[k].groups, i);
        end(alone);
    }
    end(all);
}

/* Added up, a group's gradients are those of the run alone. A mean is over all replicas, so it is
 * a part of that run's: a step as far as one with a part of the learning rate. */
static void groups_are_runs_of_their_own(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    char *folder = test_folder(); /* a cache: each program once */

    (void)state;
    for (int k = 0; k < 4; k++) {
        ts_optimizer sgd = ts_sgd(0.25), part = ts_sgd(0.25 / kinds[k].groups);
        sgd.variable = part.variable = 0; /* else it is a state, and differs */
        compare_groups(k, true, &adam, &adam, folder);
        compare_groups(k, false, &sgd, &part, folder);
    }
    test_folder_remove(folder);
    free(folder);
}

/* What replicas share stays equal, whatever they do not share. By both executors, and by sum. */
static void the_rest_is_shared(void **state)
{
    ts_replica_group some[] = {
        {.state = "fc1.weight", .grouping = TS_GROUPING_ORTHOGONAL, .size = 2, .read_all = true}};
    ts_optimizer sgd = ts_sgd(0.05);
    float w[2][R][40 * IN], shared[2][OUT * 40];

    (void)state;
    sgd.hyper.momentum = 0.9;
    for (int k = 0; k < 2; k++) {
        trainer t =
            train_with((ts_options){.replicas = R,
                                    .replica_groups = some,
                                    .nreplica_groups = 1,
                                    .accumulate_sum = true,
                                    .executor = k ? TS_EXECUTOR_REFERENCE : TS_EXECUTOR_NATIVE},
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
                          .executor = k % 3 ? TS_EXECUTOR_REFERENCE : TS_EXECUTOR_AUTO,
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
    group_all(TS_GROUPING_ORTHOGONAL, 2, groups);
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
    ts_replica_group q[2] = {{.state = "fc1.bias", .grouping = TS_GROUPING_CONSECUTIVE, .size = 3}};
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
    q[0] = (ts_replica_group){.state = "deep", .grouping = TS_GROUPING_NONE};
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "'deep' has rank 8, so there is no dim left for its groups of replicas");
    q[0] = (ts_replica_group){.state = "fc1.bias", .grouping = 4};
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG,
                 "the replicas of 'fc1.bias' have the grouping 4, which does not exist");
    q[0].grouping = TS_GROUPING_NONE;
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

/* --- the optimiser's state, split --- */

enum { SIDE = 4 };

/* Convolutions and linear layers in two blocks; the batch decides how they lie in memory. */
static ts_graph *picture_net(int64_t batch)
{
    ts_graph *g = ts_graph_new("pictures");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 8, SIDE, SIDE),
             *t = ts_input(g, "labels", TS_I32, batch);

    ts_block_begin(g, "B1");
    x = ts_relu(ts_conv2d(x, "conv", 16, 3, .padding = 1));
    x = ts_max_pool2d(x, 2);
    ts_block_end(g);
    ts_block_begin(g, "B2");
    x = ts_tanh(ts_linear(ts_flatten(x, 1), "fc1", 83));
    x = ts_linear(x, "fc2", 10);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    ts_block_end(g);
    return g;
}

/* Trains twice; the losses of all micro-batches, then all states. */
static float *train_pictures(ts_options opt, int64_t batch, size_t *count, ts_stats *stats)
{
    size_t rows = (size_t)(MB * batch), pixels = 8 * SIDE * SIDE;
    float *x = calloc(rows * pixels, sizeof(float)), *all, *at;
    int32_t *labels = calloc(rows, sizeof(int32_t));
    ts_graph *g = picture_net(batch);
    trainer t;

    for (size_t i = 0; i < rows * pixels; i++)
        x[i] = (float)((i * 2654435761u >> 9) % 1000) / 1000;
    for (size_t i = 0; i < rows; i++)
        labels[i] = (int32_t)(i * 7 % 10);
    opt.replicas = R;
    opt.device_iterations = D;
    opt.gradient_accumulation = A;
    opt.output_mode = TS_OUTPUT_ALL;
    opt.cache_dir = "";
    assert_ok(ts_compile(g, &opt, &t.x));
    assert_ok(ts_engine_new(t.x, &(ts_run_options){.threads = 3, .seed = 3}, &t.e));
    *count = MB;
    for (int i = 0; ts_executable_tensor(t.x, TS_ROLE_STATE, i); i++)
        *count += ts_executable_tensor(t.x, TS_ROLE_STATE, i)->bytes / sizeof(float) + 1;
    at = all = calloc(*count, sizeof(float));
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(t.e, (const void *[]){x, labels}, (void *[]){NULL, at}));
    at += MB;
    for (int i = 0; ts_executable_tensor(t.x, TS_ROLE_STATE, i); i++) {
        const ts_tensor_info *info = ts_executable_tensor(t.x, TS_ROLE_STATE, i);
        assert_ok(ts_engine_read(t.e, info->name, at, info->bytes));
        at += info->bytes / sizeof(float) + 1;
    }
    for (int i = 0; i < t.x->nstates; i++) { /* all replicas have all of the weights */
        const ts_slot *s = &t.x->states[i];
        for (int r = 1; r < R && s->use == TS_USE_OTHER; r++)
            assert_memory_equal(ts_engine_state(t.e, r, s, s->at),
                                ts_engine_state(t.e, 0, s, s->at), s->info.bytes);
        assert_int_equal(s->share > 0, opt.shard_optimizer && s->info.rank);
    }
    *stats = ts_executable_stats(t.x);
    end(t);
    ts_graph_free(g);
    free(x);
    free(labels);
    return all;
}

static void shards_give_the_same_bits(void **state)
{
    static const char *const first[] = {"B1"}, *const second[] = {"B2"};
    ts_stage stages[] = {{first, 1, .device = 0}, {second, 1, .device = 1}};
    ts_stage phases[] = {{first, 1, .phase = 0}, {second, 1, .phase = 1}};
    ts_optimizer adam = ts_adamw(0.01), sgd = ts_sgd(0.05), rms = ts_rmsprop(0.01), clipped = adam;
    struct {
        int64_t batch;
        ts_options opt;
    } cases[] = {
        {16, {.optimizer = &adam}}, /* the batch in the lanes, rows filled up */
        {3, {.optimizer = &sgd, .nstages = 2, .stages = stages}}, /* channels last */
        {4, {.optimizer = &clipped, .accumulate_running = true}},
        {2, {.optimizer = &rms, .offload = 7, .accumulate_sum = true}},
        {2,
         {.optimizer = &adam,
          .schedule = TS_SCHEDULE_PHASED,
          .nstages = 2,
          .stages = phases,
          .offload = TS_OFFLOAD_ALL}},
        {2, {.optimizer = &rms, .executor = TS_EXECUTOR_REFERENCE}},
    };

    (void)state;
    sgd.hyper.momentum = 0.9;
    clipped.max_grad_norm = 0.1;
    clipped.max_grad_value = 0.05;
    clipped.first_type = TS_F16;
    clipped.hyper.eps = 0;
    rms.hyper.momentum = 0.5;
    rms.centered = true;
    for (int k = 0; k < TS_COUNT(cases); k++) {
        size_t n, m;
        ts_stats whole_stats, stats;
        float *whole = train_pictures(cases[k].opt, cases[k].batch, &n, &whole_stats), *sharded;
        cases[k].opt.shard_optimizer = true;
        cases[k].opt.shard_least = 1;
        sharded = train_pictures(cases[k].opt, cases[k].batch, &m, &stats);
        assert_int_equal(n, m);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&whole[i], &sharded[i], sizeof(float)))
                fail_msg("case %d, element %zu is %.9g, not %.9g", k, i, (double)sharded[i],
                         (double)whole[i]);
        if (k < 3)
            assert_true(stats.state_bytes < whole_stats.state_bytes);
        free(whole);
        free(sharded);
    }
}

/* What is planned for a device falls by what the other replicas keep, and the plan says so. */
static void the_plan_of_shards(void **state)
{
    ts_optimizer adam = ts_adamw(0.01), lamb = ts_lamb(0.01);
    ts_options opt = {.optimizer = &adam, .replicas = R, .cache_dir = ""};
    int64_t moved = 2 * 83 * 64 * 3 / 4 * (int64_t)sizeof(float); /* two moments of fc1.weight */
    ts_graph *g = picture_net(3);
    ts_plan_info *whole, *sharded;
    ts_executable *x;
    char fact[64];

    (void)state;
    assert_ok(ts_plan_new(g, &opt, &whole));
    opt.shard_optimizer = true;
    opt.shard_least = 5000; /* fc1.weight only */
    assert_ok(ts_plan_new(g, &opt, &sharded));
    assert_int_equal(whole->devices[0].sharded, 0);
    assert_int_equal(sharded->devices[0].sharded, moved);
    assert_int_equal(whole->devices[0].states - sharded->devices[0].states, moved);
    ts_plan_free(whole);
    ts_plan_free(sharded);
    assert_ok(ts_compile(g, &opt, &x));
    snprintf(fact, sizeof(fact), "sharded_bytes          %" PRId64 "\n", moved);
    assert_non_null(strstr(ts_executable_inspect(x), fact));
    ts_executable_free(x);
    opt.shard_least = 0; /* 8192: none */
    assert_ok(ts_plan_new(g, &opt, &sharded));
    assert_int_equal(sharded->devices[0].sharded, 0);
    ts_plan_free(sharded);
    opt.shard_least = -1;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_ARG, "shard_least is -1; it must not be negative");
    opt.shard_least = 1;
    opt.optimizer = &lamb;
    assert_fails(ts_compile(g, &opt, &x), TS_ERR_UNSUPPORTED,
                 "shard_optimizer is not supported with LAMB, whose step depends on all of a "
                 "parameter");
    ts_graph_free(g);
}

/* Small tensors stay on the device. */
static void the_least_that_is_offloaded(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    ts_options opt = {.optimizer = &adam, .offload = TS_OFFLOAD_OPTIMIZER};
    size_t bytes[3];
    ts_graph *g = picture_net(3);

    (void)state;
    for (int i = 0; i < 3; i++) {
        ts_stats stats;
        opt.offload_least[0] = i == 0 ? 0 : i == 1 ? 84 : 1 << 20;
        opt.offload_least[1] = 1; /* of something else */
        assert_ok(ts_estimate(g, &opt, &stats));
        bytes[i] = stats.state_bytes;
    }
    /* two moments of the biases (16, 83, 10), each in lines of 64 bytes; then of the weights too */
    assert_int_equal(bytes[1] - bytes[0], 2 * (64 + 384 + 64));
    assert_true(bytes[2] - bytes[1] >= 2 * sizeof(float) * (16 * 8 * 9 + 83 * 64 + 10 * 83));
    opt.offload_least[0] = -1;
    assert_int_equal(ts_estimate(g, &opt, &(ts_stats){0}), TS_ERR_ARG);
    ts_graph_free(g);
}

/* A checkpoint of one is one of the other: whole tensors go in and out. */
static void shards_are_kept(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    ts_options opt = {.replicas = R, .shard_optimizer = true, .shard_least = 100};
    trainer whole = train_with((ts_options){.replicas = R}, &adam), from, to[3];
    char *folder = test_folder(), path[4096];

    (void)state;
    from = train_with(opt, &adam);
    step(from, NULL, 0);
    step(whole, NULL, 0);
    opt.executor = TS_EXECUTOR_REFERENCE;
    to[0] = train_with(opt, &adam);
    snprintf(path, sizeof(path), "%s/reference.tse", folder);
    assert_ok(ts_executable_save(to[0].x, path));
    assert_ok(ts_executable_load(path, &to[1].x));
    snprintf(path, sizeof(path), "%s/native.tse", folder);
    assert_ok(ts_executable_save(from.x, path));
    assert_ok(ts_executable_load(path, &to[2].x));
    for (int k = 0; k < 3; k++) {
        if (k)
            assert_ok(ts_engine_new(to[k].x, &(ts_run_options){.threads = 2}, &to[k].e));
        for (int i = 0; ts_executable_tensor(from.x, TS_ROLE_STATE, i); i++) {
            const ts_tensor_info *t = ts_executable_tensor(from.x, TS_ROLE_STATE, i);
            char *data = read_state(from, t);
            assert_ok(ts_engine_write(to[k].e, t->name, data, t->bytes));
            free(data);
        }
        compare(from, to[k], 1, 0);
    }
    compare(whole, from, 1, 0);
    step(whole, NULL, 0);
    step(to[2], NULL, 0);
    compare(whole, to[2], 1, 0);
    step(to[0], NULL, 0);
    step(to[1], NULL, 0);
    compare(to[0], to[1], 1, 0);
    end(whole);
    end(from);
    for (int k = 0; k < 3; k++)
        end(to[k]);
    test_folder_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_runs_of_their_own),
        cmocka_unit_test(the_rest_is_shared),
        cmocka_unit_test(values_of_groups),
        cmocka_unit_test(groups_are_kept),
        cmocka_unit_test(groups_that_cannot_be),
        cmocka_unit_test(shards_give_the_same_bits),
        cmocka_unit_test(the_plan_of_shards),
        cmocka_unit_test(the_least_that_is_offloaded),
        cmocka_unit_test(shards_are_kept),
    };
    return cmocka_run_group_tests_name("run replicas", tests, NULL, NULL);
}

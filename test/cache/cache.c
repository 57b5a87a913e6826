/* cache.c - the cache of executables: hits, misses that say why, files not to trust, processes at
 * the same time, a bounded size, and folders that cannot be written. */
#include "cache/cache.h"
#include "render/render.h"
#include "support.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *folder; /* the test's own: cache/, cc (a script that counts), runs, log */

static const char *at(const char *name)
{
    static char path[4][4096];
    static int which;

    which = (which + 1) % 4;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

/* The system's compiler; each run but --version adds a line to "runs". No optimisation: faster. */
static void write_compiler(const char *name)
{
    char script[8192];

    snprintf(script, sizeof(script),
             "#!/bin/sh\n[ \"$1\" = --version ] || echo run >>'%s'\nexec cc \"$@\" -O0\n",
             at("runs"));
    assert_ok(ts_file_write(at(name), script, strlen(script)));
    assert_int_equal(chmod(at(name), 0755), 0);
}

static int open_folder(void **state)
{
    (void)state;
    folder = test_folder();
    write_compiler("cc");
    setenv("TESSERA_LOG", "debug", 1);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    unsetenv("TESSERA_LOG");
    umount(at("cache"));
    chmod(at("cache"), 0700);
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static int compiler_runs(void)
{
    struct stat st;

    return stat(at("runs"), &st) ? 0 : (int)(st.st_size / 4);
}

static ts_graph *net(const char *name, int line)
{
    ts_graph *g = ts_graph_new(name);

    ts_here("net.c", line);
    ts_output(ts_relu(ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2)), "y");
    ts_here(NULL, 0);
    return g;
}

static ts_options options(void)
{
    static char cc[4200], cache[4096];

    snprintf(cc, sizeof(cc), "'%s'", at("cc"));
    snprintf(cache, sizeof(cache), "%s", at("cache"));
    return (ts_options){.cache_dir = cache, .cc = cc, .executor = TS_EXECUTOR_NATIVE};
}

/* Compiles with what it logs in "log"; says whether it came from the cache. */
static bool compile_graph(const ts_graph *g, const ts_options *opt)
{
    int err = dup(2), log = open(at("log"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ts_executable *x = NULL;
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6], loss;
    ts_engine *e;
    bool hit;
    ts_status s;

    dup2(log, 2);
    s = ts_compile(g, opt, &x);
    dup2(err, 2);
    close(err);
    close(log);
    assert_ok(s);
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &e));
    assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){out, &loss}));
    hit = ts_executable_stats(x).from_cache;
    ts_engine_free(e);
    ts_executable_free(x);
    return hit;
}

static bool compile(const ts_options *opt)
{
    ts_graph *g = net("net", 1);
    bool hit = compile_graph(g, opt);

    ts_graph_free(g);
    return hit;
}

static bool hit(void)
{
    ts_options opt = options();

    return compile(&opt);
}

static char *log_text(void)
{
    static char text[16384];
    char *s;
    size_t n;

    assert_ok(ts_file_read(at("log"), &s, &n));
    snprintf(text, sizeof(text), "%s", s);
    free(s);
    return text;
}

static void assert_logged(const char *words)
{
    if (!strstr(log_text(), words))
        fail_msg("no '%s' in the log:\n%s", words, log_text());
}

static int warnings(void)
{
    int n = 0;

    for (const char *p = log_text(); (p = strstr(p, "tessera: warn: ")); p++)
        n++;
    return n;
}

/* The cached file, when there is one. */
static const char *cached(void)
{
    static char path[8192];
    DIR *d = opendir(at("cache"));
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".tse")) {
            snprintf(path, sizeof(path), "%s/%s", at("cache"), e->d_name);
            n++;
        }
    closedir(d);
    assert_int_equal(n, 1);
    return path;
}

/* --- finding --- */

static void found_again(void **state)
{
    struct stat st;

    (void)state;
    assert_false(hit());
    assert_int_equal(warnings(), 0);
    assert_true(hit());
    assert_logged("cache hit");
    assert_int_equal(warnings(), 0);
    assert_int_equal(compiler_runs(), 1);
    assert_int_equal(test_folder_count(at("cache")), 1); /* no lock, no temporary file */
    assert_int_equal(stat(at("cache"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(cached(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void off(void **state)
{
    ts_options opt = options();

    (void)state;
    opt.cache_dir = "";
    assert_false(compile(&opt));
    assert_false(compile(&opt));
    assert_int_equal(compiler_runs(), 2);
}

static void the_environment_names_it(void **state)
{
    ts_options opt = options();
    char xdg[8192];

    (void)state;
    opt.cache_dir = NULL;
    setenv("XDG_CACHE_HOME", at("xdg"), 1);
    setenv("POPTORCH_CACHE_DIR", at("poptorch"), 1);
    setenv("TESSERA_CACHE_DIR", at("own"), 1);
    assert_false(compile(&opt));
    assert_int_equal(test_folder_count(at("own")), 1);
    unsetenv("TESSERA_CACHE_DIR");
    assert_false(compile(&opt));
    assert_int_equal(test_folder_count(at("poptorch")), 1);
    unsetenv("POPTORCH_CACHE_DIR");
    assert_false(compile(&opt));
    snprintf(xdg, sizeof(xdg), "%s/tessera", at("xdg"));
    assert_int_equal(test_folder_count(xdg), 1);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", at("home"), 1);
    assert_false(compile(&opt));
    snprintf(xdg, sizeof(xdg), "%s/.cache/tessera", at("home"));
    assert_int_equal(test_folder_count(xdg), 1);
    assert_true(compile(&opt));
    setenv("TESSERA_CACHE_DIR", "", 1); /* as the other tests have it */
    assert_false(compile(&opt));
}

static void lines_do_not_matter(void **state)
{
    ts_options opt = options();
    ts_graph *a = net("net", 10), *b = net("net", 20);

    (void)state;
    assert_false(compile_graph(a, &opt));
    assert_true(compile_graph(b, &opt));
    ts_graph_free(a);
    ts_graph_free(b);
}

static void constants_matter(void **state)
{
    ts_options opt = options();

    (void)state;
    for (int i = 0; i < 2; i++) {
        ts_graph *g = ts_graph_new("net");
        float data[6] = {1, 2, 3, 4, 5, (float)i};
        ts_output(ts_mul(ts_input(g, "x", TS_F32, 2, 3), ts_const(g, TS_F32, data, 2, 3)), "y");
        assert_false(compile_graph(g, &opt));
        assert_true(compile_graph(g, &opt));
        ts_graph_free(g);
    }
}

/* Each option that changes the code changes the key, in its own entry. */
static void misses_say_why(void **state)
{
    ts_options opt = options();
    char cc2[4096];
    ts_graph *other = ts_graph_new("net");

    (void)state;
    assert_false(compile(&opt));
    assert_logged("cache miss: nothing of the model 'net'");
    opt.device_iterations = 1; /* what 0 means */
    assert_true(compile(&opt));
    opt.output_mode = TS_OUTPUT_FINAL;
    assert_false(compile(&opt));
    assert_logged("cache miss: output_mode changed from the usual to final");
    opt.isa = "portable";
    assert_false(compile(&opt));
    assert_logged("cache miss: isa changed from ");
    assert_logged("to portable");
    assert_logged("cache miss: flags changed");
    write_compiler("cc2");
    snprintf(cc2, sizeof(cc2), "%s", at("cc2"));
    opt.cc = cc2;
    assert_false(compile(&opt));
    assert_logged("cache miss: compiler changed from ");
    ts_output(ts_neg(ts_input(other, "x", TS_F32, 2, 2)), "y");
    assert_false(compile_graph(other, &opt));
    assert_logged("cache miss: model changed from ");
    assert_null(strstr(log_text(), "compiler changed"));
    ts_graph_free(other);
}

/* On one device too: the kernels and the memory are others. */
static void recompute_matters(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_tanh(ts_linear(ts_input(g, "x", TS_F32, 2, 3), "a", 64));
    ts_optimizer sgd = ts_sgd(0.5);
    ts_options opt = options();

    (void)state;
    x = ts_linear(ts_tanh(ts_linear(ts_checkpoint(x), "b", 64)), "c", 2);
    ts_loss(ts_sum(x, 0, NULL, false));
    opt.optimizer = &sgd;
    assert_false(compile_graph(g, &opt));
    opt.recompute = true;
    assert_false(compile_graph(g, &opt));
    assert_logged("cache miss: recompute changed from the usual to yes");
    opt.recompute = false;
    assert_true(compile_graph(g, &opt));
    ts_graph_free(g);
}

/* fc.bias after one step on ones, whose gradient is 2; the first one of all is 0. */
static float trained(const ts_graph *g, const ts_options *opt, bool *hit)
{
    static const float in[6] = {1, 1, 1, 1, 1, 1}, zero[2];
    float out[4], loss, bias[2];
    ts_executable *x;
    ts_engine *e;

    assert_ok(ts_compile(g, opt, &x));
    *hit = ts_executable_stats(x).from_cache;
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &e));
    assert_ok(ts_engine_write(e, "fc.bias", zero, sizeof(zero)));
    assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){out, &loss}));
    assert_ok(ts_engine_read(e, "fc.bias", bias, sizeof(bias)));
    ts_engine_free(e);
    ts_executable_free(x);
    return bias[0];
}

/* What a run may change is no part of the key: the first values are the caller's all the same. */
static void rates_that_may_change_do_not_matter(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *y = ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2);
    const char *const bias[] = {"fc.bias"};
    ts_group group = {.params = bias, .nparams = 1, .hyper = ts_sgd(0.5).hyper};
    ts_optimizer o = ts_sgd(0.25);
    ts_options opt = options();
    bool found;

    (void)state;
    ts_output(y, "y");
    ts_loss(ts_sum(y, 0, NULL, false));
    opt.optimizer = &o;
    assert_true(trained(g, &opt, &found) == -0.5f && !found);
    o.hyper.lr = 0.125;
    assert_true(trained(g, &opt, &found) == -0.25f && found);
    o.hyper.lr = -1; /* wrong is wrong, cached or not */
    assert_int_equal(ts_compile(g, &opt, &(ts_executable *){NULL}), TS_ERR_ARG);
    o.hyper.lr = 0.125;
    o.groups = &group;
    o.ngroups = 1;
    assert_true(trained(g, &opt, &found) == -1 && !found);
    group.hyper.lr = 2;
    assert_true(trained(g, &opt, &found) == -4 && found);
    o.variable |= TS_HYPER_LOSS_SCALING | TS_HYPER_WEIGHT_DECAY;
    o.loss_scaling = 16;
    assert_true(trained(g, &opt, &found) == -4 && !found);
    o.loss_scaling = 1024;
    group.hyper.weight_decay = 0.5;
    assert_true(trained(g, &opt, &found) == -4 && found);
    o.automatic_scaling = true;
    assert_true(trained(g, &opt, &found) == -4 && !found);
    o.loss_scaling = 16; /* where it starts */
    assert_true(trained(g, &opt, &found) == -4 && found);
    o.scaling_period = 2;
    assert_true(trained(g, &opt, &found) == -4 && !found);
    o.automatic_scaling = false;
    o.variable = 0;
    assert_true(trained(g, &opt, &found) == -4 && !found);
    group.hyper.lr = 1;
    assert_true(trained(g, &opt, &found) == -2 && !found);
    ts_graph_free(g);
}

static void optimizers_matter(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *y = ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 2);
    const char *const bias[] = {"fc.bias"};
    ts_group group = {.params = bias, .nparams = 1, .hyper = ts_sgd(0.5).hyper};
    ts_optimizer o = ts_sgd(0.1);
    ts_options opt = options();

    (void)state;
    ts_output(y, "y");
    ts_loss(ts_sum(y, 0, NULL, false));
    opt.optimizer = &o;
    assert_false(compile_graph(g, &opt));
    assert_true(compile_graph(g, &opt));
    o.hyper.weight_decay = 0.25;
    assert_false(compile_graph(g, &opt));
    assert_logged("cache miss: optimizer changed from ");
    o.groups = &group;
    o.ngroups = 1;
    assert_false(compile_graph(g, &opt));
    assert_true(compile_graph(g, &opt));
    o.variable = 0;
    assert_false(compile_graph(g, &opt));
    ts_graph_free(g);
}

/* Where passes are dumped they must run. */
static void dumps_are_written(void **state)
{
    ts_options opt = options();
    char dump[4096];

    (void)state;
    assert_false(compile(&opt));
    snprintf(dump, sizeof(dump), "%s", at("dump"));
    opt.dump_dir = dump;
    assert_false(compile(&opt));
    assert_true(test_folder_count(at("dump")) > 0);
}

/* --- files not to trust --- */

/* After `spoil` the file is not used, one line says why, and the one made instead is good. */
static void check_refused(void (*spoil)(const char *path), const char *words)
{
    assert_false(hit());
    spoil(cached());
    assert_false(hit());
    assert_int_equal(warnings(), 1);
    assert_logged("tessera: warn: not using the cached ");
    assert_logged(words);
    assert_true(hit());
    assert_int_equal(compiler_runs(), 2);
}

static void flip_a_byte(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char c;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, 5000), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, 5000), 1);
    close(fd);
}

static void corrupt(void **state)
{
    (void)state;
    check_refused(flip_a_byte, "the checksum of the ");
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 5000), 0);
}

static void truncated(void **state)
{
    (void)state;
    check_refused(cut, "is cut off in its ");
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void emptied(void **state)
{
    (void)state;
    check_refused(empty, "is not a Tessera executable");
}

static void give_away(const char *path)
{
    assert_int_equal(chown(path, 65534, (gid_t)-1), 0);
}

static void foreign_owner(void **state)
{
    (void)state;
    if (geteuid()) {
        print_message("only root can give a file away\n");
        skip();
    }
    check_refused(give_away, "it belongs to user 65534");
}

static void open_to_group(const char *path)
{
    assert_int_equal(chmod(path, 0660), 0);
}

static void group_writable(void **state)
{
    (void)state;
    check_refused(open_to_group, "others may write it, its mode is 660");
}

static void link_it(const char *path)
{
    assert_int_equal(rename(path, at("elsewhere")), 0);
    assert_int_equal(symlink(at("elsewhere"), path), 0);
}

static void symlinked(void **state)
{
    struct stat st;

    (void)state;
    check_refused(link_it, "it is a symbolic link");
    assert_int_equal(lstat(cached(), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(access(at("elsewhere"), F_OK), 0); /* not followed, not written */
}

static void replace_by_pipe(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void a_pipe(void **state)
{
    (void)state;
    check_refused(replace_by_pipe, "it is not a regular file");
}

/* Rewrites the file as if x had been so. */
static void rewrite(const char *path, void (*change)(ts_executable *x))
{
    ts_text t = {0};
    ts_executable *x;
    char *file;
    size_t n;

    assert_ok(ts_file_read(path, &file, &n));
    assert_ok(ts_executable_unpack(path, file, n, &x));
    free(file);
    change(x);
    assert_ok(ts_executable_pack(x, &t));
    assert_ok(ts_file_write_private(path, t.s, t.len));
    ts_text_free(&t);
    ts_executable_free(x);
}

static void age(ts_executable *x)
{
    x->version = "0.0.9";
}

static void made_older(const char *path)
{
    rewrite(path, age);
}

static void old_version(void **state)
{
    (void)state;
    check_refused(made_older, "tessera 0.0.9 made it");
}

static void rename_key(ts_executable *x)
{
    memset(x->key.hash, 'f', 32);
}

static void made_for_another(const char *path)
{
    rewrite(path, rename_key);
}

static void another_key(void **state)
{
    (void)state;
    check_refused(made_for_another, "it was made for another key, ffff");
}

/* --- processes --- */

static void eight_at_once(void **state)
{
    enum { N = 8 };
    pid_t pids[N];
    int hits = 0;

    (void)state;
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (!pids[i]) {
            ts_graph *g = net("net", 1);
            ts_options opt = options();
            ts_executable *x;
            unsetenv("TESSERA_LOG");
            if (ts_compile(g, &opt, &x))
                _exit(2);
            _exit(ts_executable_stats(x).from_cache ? 1 : 0);
        }
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_in_range(WEXITSTATUS(status), 0, 1);
        hits += WEXITSTATUS(status);
    }
    assert_int_equal(hits, N - 1);
    assert_int_equal(compiler_runs(), 1);
    assert_int_equal(test_folder_count(at("cache")), 1);
}

/* A process that dies while it compiles leaves a lock file that locks nothing. */
static void a_killed_process(void **state)
{
    pid_t pid;
    int status;

    (void)state;
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        ts_graph *g = net("net", 1);
        ts_options opt = options();
        ts_arena *a = ts_arena_new();
        ts_key key = ts_cache_key(a, g, &opt, ts_cc_identity(a, &opt));
        ts_cache *c = ts_cache_open(&opt, "net", &key);
        ts_executable *x;
        unsetenv("TESSERA_LOG");
        _exit(ts_cache_find(c, &x) ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    assert_int_equal(test_folder_count(at("cache")), 1);
    assert_false(hit());
    assert_true(hit());
    assert_int_equal(test_folder_count(at("cache")), 1);
}

/* --- size --- */

static void set_age(const char *path, int seconds)
{
    struct timespec t[2];

    clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static bool compile_named(const char *name, ts_options *opt)
{
    ts_graph *g = net(name, 1);
    bool hit = compile_graph(g, opt);

    ts_graph_free(g);
    return hit;
}

static void the_oldest_goes(void **state)
{
    ts_options opt = options();
    char first[8192];
    struct stat st;

    (void)state;
    assert_false(compile_named("a", &opt));
    snprintf(first, sizeof(first), "%s", cached());
    assert_int_equal(stat(first, &st), 0);
    set_age(first, 100);
    opt.cache_limit = 5 * st.st_size / 2; /* two fit, three do not */
    assert_false(compile_named("b", &opt));
    assert_int_equal(test_folder_count(at("cache")), 2);
    assert_true(compile_named("a", &opt)); /* used now: b is the oldest */
    assert_false(compile_named("c", &opt));
    assert_logged("had to make room");
    assert_int_equal(test_folder_count(at("cache")), 2);
    assert_true(compile_named("a", &opt));
    assert_true(compile_named("c", &opt));
    assert_false(compile_named("b", &opt));
    opt.cache_limit = 1; /* what was just made stays all the same */
    assert_false(compile_named("d", &opt));
    assert_int_equal(test_folder_count(at("cache")), 1);
    assert_true(compile_named("d", &opt));
}

static void leftovers_go(void **state)
{
    char old[8192], fresh[8192], mine[8192];
    int held;

    (void)state;
    assert_ok(ts_file_mkdirs(at("cache")));
    snprintf(old, sizeof(old), "%s/%032x.tse.77.abcdef", at("cache"), 1);
    snprintf(fresh, sizeof(fresh), "%s/%032x.tse.78.abcdef", at("cache"), 2);
    snprintf(mine, sizeof(mine), "%s/notes.txt", at("cache"));
    assert_ok(ts_file_write(old, "x", 1));
    assert_ok(ts_file_write(fresh, "x", 1));
    assert_ok(ts_file_write(mine, "x", 1));
    held = open(fresh, O_RDONLY); /* by the process that writes it */
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_false(hit());
    assert_int_not_equal(access(old, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);
    close(held);
    assert_int_equal(access(mine, F_OK), 0);
}

/* --- folders that do not work: each in a process of its own, the warning comes once in one --- */

static void in_child(void (*body)(void))
{
    pid_t pid;
    int status;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        body();
        _exit(0); /* a failed assertion has already left with another status */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void warns_once(void)
{
    CHECK(!hit());
    CHECK(warnings() == 1);
    CHECK(strstr(log_text(), "tessera: warn: going on without the cache "));
    CHECK(!hit());
    CHECK(warnings() == 0);
}

static void unwritable_body(void)
{
    if (!geteuid())
        CHECK(!seteuid(65534));
    warns_once();
}

static void unwritable(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("cache"), 0555), 0);
    assert_ok(ts_file_write(at("runs"), "", 0));
    assert_ok(ts_file_write(at("log"), "", 0));
    assert_int_equal(chmod(folder, 0755) | chmod(at("runs"), 0666) | chmod(at("log"), 0666), 0);
    in_child(unwritable_body);
    assert_int_equal(compiler_runs(), 2);
}

/* One of which not even the names can be seen, as another user's. */
static void unreadable(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("cache"), 0000), 0);
    assert_ok(ts_file_write(at("runs"), "", 0));
    assert_ok(ts_file_write(at("log"), "", 0));
    assert_int_equal(chmod(folder, 0755) | chmod(at("runs"), 0666) | chmod(at("log"), 0666), 0);
    in_child(unwritable_body);
    assert_int_equal(compiler_runs(), 2);
    assert_int_equal(chmod(at("cache"), 0700), 0);
}

static void not_a_folder(void **state)
{
    (void)state;
    assert_ok(ts_file_write(at("cache"), "x", 1));
    in_child(warns_once);
    assert_int_equal(compiler_runs(), 2);
}

/* ENOSPC from every step of writing. */
static const char *full_step;
static void full_body(void)
{
    ts_options opt = options();
    ts_graph *g = net("net", 1);
    ts_arena *a = ts_arena_new();
    ts_key key = ts_cache_key(a, g, &opt, ts_cc_identity(a, &opt));
    ts_cache *c;
    ts_executable *x = NULL, *y = NULL;

    CHECK(!ts_compile(g, &(ts_options){.cc = opt.cc, .cache_dir = ""}, &x));
    c = ts_cache_open(&opt, "net", &key);
    CHECK(!ts_cache_find(c, &y));
    ts_fault_arm(full_step, 0);
    ts_cache_put(c, x);
    ts_fault_arm(NULL, -1);
    ts_cache_close(c);
    ts_executable_free(x);
    ts_graph_free(g);
    ts_arena_free(a);
    CHECK(!test_folder_count(at("cache")));
    CHECK(!hit());
    CHECK(hit());
}

static void full_disk(void **state)
{
    static const char *const steps[] = {"create", "write", "fsync", "rename", "manifest"};

    (void)state;
    for (int i = 0; i < TS_COUNT(steps); i++) {
        full_step = steps[i];
        in_child(full_body);
        test_folder_remove(at("cache"));
    }
}

/* A file system with room for the lock and not for the executable. */
static void really_full_disk(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("cache"), 0700), 0);
    if (mount("tmpfs", at("cache"), "tmpfs", 0, "size=4096,mode=0700")) {
        print_message("cannot mount a tmpfs here: %s\n", strerror(errno));
        skip();
    }
    in_child(warns_once);
    assert_int_equal(test_folder_count(at("cache")), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        CASE(found_again),
        CASE(off),
        CASE(the_environment_names_it),
        CASE(lines_do_not_matter),
        CASE(constants_matter),
        CASE(misses_say_why),
        CASE(recompute_matters),
        CASE(optimizers_matter),
        CASE(rates_that_may_change_do_not_matter),
        CASE(dumps_are_written),
        CASE(corrupt),
        CASE(truncated),
        CASE(emptied),
        CASE(foreign_owner),
        CASE(group_writable),
        CASE(symlinked),
        CASE(a_pipe),
        CASE(old_version),
        CASE(another_key),
        CASE(eight_at_once),
        CASE(a_killed_process),
        CASE(the_oldest_goes),
        CASE(leftovers_go),
        CASE(unwritable),
        CASE(unreadable),
        CASE(not_a_folder),
        CASE(full_disk),
        CASE(really_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

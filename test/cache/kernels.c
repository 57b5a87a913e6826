/* kernels.c - object code of kernels that is kept: a net that was changed is compiled in part, with the bits of
 * one compiled at once; files not to trust, processes at the same time, a bounded size, no place. */
#include "cache/cache.h"
#include "render/render.h"
#include "support.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 8, SIDE = 12, LAYERS = 6, STEPS = 3, MOST = 16 };

static char *folder; /* the test's own: caches, cc (a script that notes functions), names, log */

static const char *at(const char *name)
{
    static char path[4][4096];
    static int which;

    which = (which + 1) % 4;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

/* The system's compiler; kernels that it is given go to "names". No optimisation: faster. */
static int open_folder(void **state)
{
    char script[16384];

    (void)state;
    folder = test_folder();
    snprintf(script, sizeof(script),
             "#!/bin/sh\nfor w; do case $w in *.c) grep -h '^void k_' \"$w\" >>'%s';; esac; done\n"
             "exec cc \"$@\" -O0\n",
             at("names"));
    assert_ok(ts_file_write(at("cc"), script, strlen(script)));
    assert_int_equal(chmod(at("cc"), 0755), 0);
    setenv("TESSERA_LOG", "debug", 1);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    unsetenv("TESSERA_LOG");
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static char *text_of(const char *name)
{
    char *s;
    size_t n;

    assert_ok(ts_file_read(at(name), &s, &n));
    return s;
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

/* --- nets --- */

typedef struct variant {
    const char *name;
    int classes, more; /* layers */
    bool adam;
} variant;

static const variant first = {.name = "first", .classes = 10};
static const variant other_last = {.name = "other last layer", .classes = 7};

static ts_graph *net(const variant *v)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, 3, SIDE, SIDE);
    ts_value *t = ts_input(g, "labels", TS_I32, BATCH);

    for (int i = 0; i < LAYERS + v->more; i++) {
        char name[16];
        snprintf(name, sizeof(name), "conv%d", i);
        x = ts_relu(ts_conv2d(x, name, 5 + 3 * i, 3, .padding = 1));
    }
    x = ts_linear(ts_flatten(ts_max_pool2d(x, 4), 1), "last", v->classes);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    return g;
}

typedef struct results {
    float y[BATCH * MOST], loss;
} results;

static void run(ts_executable *x, results *r)
{
    static float in[BATCH * 3 * SIDE * SIDE];
    static const int32_t labels[BATCH] = {1, 2, 3, 4, 5, 6, 0, 1};
    ts_engine *e;

    for (int i = 0; i < TS_COUNT(in); i++)
        in[i] = (float)(i * 37 % 101) / 50 - 1;
    *r = (results){0};
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &e));
    for (int i = 0; i < STEPS; i++)
        assert_ok(ts_engine_run(e, (const void *[]){in, labels}, (void *[]){r->y, &r->loss}));
    ts_engine_free(e);
}

static ts_status compile_in(const variant *v, const char *cache, int64_t limit, ts_executable **x)
{
    ts_optimizer o = v->adam ? ts_adam(0.01) : ts_sgd(0.01);
    ts_graph *g = net(v);
    char cc[4200], dir[4096];
    ts_status s;

    snprintf(cc, sizeof(cc), "'%s'", at("cc"));
    snprintf(dir, sizeof(dir), "%s", cache[0] ? at(cache) : "");
    s = ts_compile(g,
                   &(ts_options){.cache_dir = dir,
                                 .cache_limit = limit,
                                 .cc = cc,
                                 .executor = TS_EXECUTOR_NATIVE,
                                 .optimizer = &o},
                   x);
    ts_graph_free(g);
    return s;
}

/* With what it logs in "log"; returns how many kernels the compiler was given. */
static int compile_limited(const variant *v, const char *cache, int64_t limit, results *r)
{
    int err = dup(2), log = open(at("log"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), n;
    ts_executable *x = NULL;
    ts_status s;
    char *names;

    assert_ok(ts_file_write(at("names"), "", 0));
    dup2(log, 2);
    s = compile_in(v, cache, limit, &x);
    dup2(err, 2);
    close(err);
    close(log);
    assert_ok(s);
    assert_false(ts_executable_stats(x).from_cache);
    run(x, r);
    ts_executable_free(x);
    names = text_of("names");
    n = count(names, "void k_");
    free(names);
    return n;
}

static int compile(const variant *v, const char *cache, results *r)
{
    return compile_limited(v, cache, 0, r);
}

static int warnings(const char *words)
{
    char *log = text_of("log");
    int n = count(log, "tessera: warn: ");

    if (n && !strstr(log, words))
        fail_msg("no '%s' in the log:\n%s", words, log);
    free(log);
    return n;
}

/* --- files --- */

/* Calls it for each name of object code; returns how many there are. */
static int each_kernel(const char *cache, void (*visit)(const char *path))
{
    char path[5000], kernels[4200];
    DIR *d;
    int n = 0;

    snprintf(kernels, sizeof(kernels), "%s/kernels", at(cache));
    d = opendir(kernels);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof(path), "%s/%s", kernels, e->d_name);
        if (visit)
            visit(path);
    }
    if (d)
        closedir(d);
    return n;
}

/* --- what is compiled --- */

/* Each after the first net, in a cache of their own. */
static void what_did_not_change_is_not_compiled(void **state)
{
    static const variant others[] = {{.name = "other last layer", .classes = 7},
                                     {.name = "other optimizer", .classes = 10, .adam = true},
                                     {.name = "one layer more", .classes = 10, .more = 1}};
    results r, alone;

    (void)state;
    for (int i = 0; i < TS_COUNT(others); i++) {
        int whole, part, cold;
        char a[16], b[16];
        snprintf(a, sizeof(a), "a%d", i);
        snprintf(b, sizeof(b), "b%d", i);
        whole = compile(&first, a, &r);
        part = compile(&others[i], a, &r);
        cold = compile(&others[i], b, &alone);
        assert_true(whole > 20);
        if (part >= cold - cold / 4)
            fail_msg("%s: %d kernels of %d", others[i].name, part, cold);
        assert_memory_equal(&r, &alone, sizeof(r));
    }
}

/* The same program in another cache is the same text, and only what is new is given to the compiler. */
static void only_what_is_new(void **state)
{
    char *before, *new;
    results r;

    (void)state;
    compile(&first, "a", &r);
    before = text_of("names");
    assert_true(compile(&other_last, "a", &r) > 0);
    new = text_of("names");
    for (char *line = strtok(new, "\n"); line; line = strtok(NULL, "\n"))
        assert_null(strstr(before, line));
    free(before);
    free(new);
}

static void the_source_is_whole(void **state)
{
    ts_executable *x, *y;

    (void)state;
    unsetenv("TESSERA_LOG");
    assert_ok(compile_in(&first, "a", 0, &x));
    ts_executable_free(x);
    assert_ok(compile_in(&other_last, "a", 0, &x));
    assert_ok(compile_in(&other_last, "b", 0, &y));
    assert_string_equal(ts_executable_source(x), ts_executable_source(y));
    ts_executable_free(x);
    ts_executable_free(y);
}

static void without_a_cache(void **state)
{
    ts_executable *x;

    (void)state;
    unsetenv("TESSERA_LOG");
    assert_ok(compile_in(&first, "", 0, &x));
    ts_executable_free(x);
    assert_int_not_equal(access(at("kernels"), F_OK), 0);
    assert_int_equal(test_folder_count(folder), 2); /* the compiler, and what it was given */
}

/* Two compiles with more and less work spared: what is heavy serves as light. */
static void heavy_serves_light(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_kept k = {.folder = ts_arena_strdup(a, at("k")), .origin = "l", .maker = "m"};
    ts_kept_search s = {.a = a, .in = &k};
    const char *heavy[] = {"k_1", "k_2"}, *light[] = {"k_3"};

    (void)state;
    ts_kept_put(a, &k, &(ts_kept_unit){.code = "x", .bytes = 1, .names = heavy, .nnames = 2});
    ts_kept_put(a, &k, &(ts_kept_unit){"y", 1, light, 1, true});
    assert_true(ts_kept_find(&s, "k_1", false));
    assert_true(ts_kept_find(&s, "k_2", true));
    assert_int_equal(s.nfiles, 1); /* two names of one file */
    assert_true(ts_kept_find(&s, "k_3", true));
    assert_false(ts_kept_find(&s, "k_3", false));
    k.maker = "n";
    assert_false(ts_kept_find(&s, "k_1", false));
    k.maker = "m";
    k.origin = "m";
    assert_false(ts_kept_find(&s, "k_1", false));
    ts_arena_free(a);
}

/* --- files not to trust --- */

/* After `spoil` of all of them none is used, one line says why, and those made instead are good. */
static void check_refused(void (*spoil)(const char *path), const char *words)
{
    const variant again = {.classes = 5};
    results r, alone;
    int whole;

    compile(&first, "a", &r);
    each_kernel("a", spoil);
    whole = compile(&other_last, "a", &r);
    assert_int_equal(warnings(words), 1);
    assert_int_equal(whole, compile(&other_last, "b", &alone));
    assert_memory_equal(&r, &alone, sizeof(r));
    assert_true(compile(&again, "a", &r) < whole / 2);
    assert_int_equal(warnings(""), 0);
}

static bool is_first_name(const char *path)
{
    static ino_t seen[1000];
    static int n;
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    for (int i = 0; i < n; i++)
        if (seen[i] == st.st_ino)
            return false;
    seen[n++ % TS_COUNT(seen)] = st.st_ino;
    return true;
}

static void flip_a_byte(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char c;

    assert_true(fd >= 0);
    if (is_first_name(path)) {
        assert_int_equal(pread(fd, &c, 1, 500), 1);
        c ^= 1;
        assert_int_equal(pwrite(fd, &c, 1, 500), 1);
    }
    close(fd);
}

static void damaged(void **state)
{
    (void)state;
    check_refused(flip_a_byte, "its checksum is wrong");
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 700), 0);
}

static void truncated(void **state)
{
    (void)state;
    check_refused(cut, "it is cut off, or no object of kernels");
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void emptied(void **state)
{
    (void)state;
    check_refused(empty, "it is cut off, or no object of kernels");
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
    char there[5100];

    snprintf(there, sizeof(there), "%s.there", at(strrchr(path, '/') + 1));
    assert_int_equal(rename(path, there), 0);
    assert_int_equal(symlink(there, path), 0);
}

static void symlinked(void **state)
{
    (void)state;
    check_refused(link_it, "it is a symbolic link");
}

/* All names become those of one file. */
static void confuse(const char *path)
{
    static char one[5000];

    if (!one[0] || access(one, F_OK)) {
        snprintf(one, sizeof(one), "%s", at("one"));
        assert_int_equal(link(path, one), 0);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(one, path), 0);
}

static void other_kernels(void **state)
{
    results r, alone;

    (void)state;
    compile(&first, "a", &r);
    each_kernel("a", confuse);
    compile(&other_last, "a", &r);
    assert_int_equal(warnings("it was made for other kernels"), 1);
    compile(&other_last, "b", &alone);
    assert_memory_equal(&r, &alone, sizeof(r));
}

/* Whole, ours, and not for this linker: all is compiled. */
static void not_linkable(void **state)
{
    char key[TS_KEPT_KEY + 1], name[64];
    results r, alone;
    DIR *d;

    (void)state;
    compile(&first, "a", &r);
    d = opendir(at("a/kernels"));
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ts_text t = {0};
        ts_kept_object o;
        char *file;
        size_t len;
        if (e->d_name[0] == '.')
            continue;
        snprintf(key, sizeof(key), "%.32s", e->d_name);
        snprintf(name, sizeof(name), "a/kernels/%s.o", key);
        assert_ok(ts_file_read(at(name), &file, &len));
        assert_ok(ts_kept_unpack(file, len, &o));
        ts_kept_pack(&(ts_kept_object){.code = "nonsense",
                                       .bytes = 8,
                                       .origin = o.origin,
                                       .origin_len = o.origin_len,
                                       .keys = o.keys,
                                       .nkeys = o.nkeys},
                     &t);
        assert_int_equal(unlink(at(name)), 0);
        assert_ok(ts_file_write_private(at(name), t.s, t.len));
        ts_text_free(&t);
        free(file);
    }
    closedir(d);
    compile(&other_last, "a", &r);
    assert_int_equal(warnings("not using the kernels in "), 1);
    compile(&other_last, "b", &alone);
    assert_memory_equal(&r, &alone, sizeof(r));
}

/* --- processes --- */

static void some_at_once(void **state)
{
    enum { N = 3 };
    pid_t pids[N];
    results r, alone;

    (void)state;
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (!pids[i]) {
            const variant v = {.classes = 3 + i};
            ts_executable *x;
            unsetenv("TESSERA_LOG");
            _exit(compile_in(&v, "a", 0, &x) ? 1 : 0);
        }
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    }
    assert_true(compile(&first, "a", &r) < compile(&first, "b", &alone) / 2);
    assert_memory_equal(&r, &alone, sizeof(r));
    assert_int_equal(warnings(""), 0);
}

/* --- size --- */

static void the_oldest_go(void **state)
{
    results r;
    int n;

    (void)state;
    compile(&first, "a", &r);
    n = each_kernel("a", NULL);
    assert_true(n > 20);
    compile_limited(&other_last, "a", 1, &r);
    assert_int_equal(each_kernel("a", NULL), 0);
    assert_true(compile(&first, "b", &r) >= 20);
    assert_int_equal(each_kernel("b", NULL), n);
}

/* They are listed file by file, and removed with all their names. */
static void listed_and_removed(void **state)
{
    ts_cache_entry *entries;
    char dir[4096];
    int n, kernels = 0, names;
    results r;

    (void)state;
    compile(&first, "a", &r);
    snprintf(dir, sizeof(dir), "%s", at("a"));
    names = each_kernel("a", NULL);
    assert_ok(ts_cache_list(dir, &entries, &n));
    for (int i = 0; i < n; i++) {
        kernels += entries[i].kernels;
        assert_string_equal(entries[i].problem, "");
    }
    assert_int_equal(kernels, names);
    assert_true(n < names);
    for (int i = 0; i < n; i++)
        assert_ok(ts_cache_remove(dir, entries[i].file));
    free(entries);
    assert_int_equal(each_kernel("a", NULL), 0);
    assert_int_equal(ts_cache_remove(dir, "kernels/../x"), TS_ERR_ARG);
    assert_int_equal(ts_cache_remove(dir, "kernels/x"), TS_ERR_ARG);
}

static void damaged_is_listed(void **state)
{
    ts_cache_entry *entries;
    char dir[4096];
    int n, problems = 0;
    results r;

    (void)state;
    compile(&first, "a", &r);
    each_kernel("a", empty);
    snprintf(dir, sizeof(dir), "%s", at("a"));
    assert_ok(ts_cache_list(dir, &entries, &n));
    for (int i = 0; i < n; i++)
        problems += strstr(entries[i].problem, "it is cut off") != NULL;
    assert_int_equal(problems, n - 1); /* all but the executable */
    free(entries);
}

/* --- no place --- */

/* From every step of writing: there is nothing to find the next time, and nothing is said. */
static void a_full_disk(void **state)
{
    static const char *const steps[] = {"create", "write", "link", "mkdir"};
    const char *names[] = {"k_1", "k_2"};

    (void)state;
    for (int i = 0; i < TS_COUNT(steps); i++) {
        ts_arena *a = ts_arena_new();
        ts_kept k = {.folder = ts_arena_printf(a, "%s%d", at("k"), i), .origin = "l", .maker = "m"};
        ts_kept_search s = {.a = a, .in = &k};
        ts_fault_arm(steps[i], 0);
        ts_kept_put(a, &k, &(ts_kept_unit){.code = "x", .bytes = 1, .names = names, .nnames = 2});
        ts_fault_arm(NULL, -1);
        assert_false(ts_kept_find(&s, "k_2", false));
        ts_arena_free(a);
    }
}

static void not_a_folder(void **state)
{
    results r, alone;

    (void)state;
    assert_ok(ts_file_mkdirs(at("a")));
    assert_ok(ts_file_write(at("a/kernels"), "x", 1));
    compile(&first, "a", &r);
    assert_int_equal(warnings(""), 0);
    compile(&first, "b", &alone);
    assert_memory_equal(&r, &alone, sizeof(r));
}

/* As another user, who may read but not write: what is there is not theirs. */
static void read_only_body(void)
{
    ts_executable *x;

    if (!geteuid() && seteuid(65534))
        _exit(1);
    setenv("TESSERA_LOG", "error", 1);
    _exit(compile_in(&other_last, "a", 0, &x) ? 1 : 0);
}

static void read_only(void **state)
{
    results r;
    pid_t pid;
    int status, n;

    (void)state;
    compile(&first, "a", &r);
    n = each_kernel("a", NULL);
    assert_int_equal(chmod(folder, 0755) | chmod(at("a"), 0555) | chmod(at("a/kernels"), 0555) |
                         chmod(at("names"), 0666),
                     0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        read_only_body();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    assert_int_equal(chmod(at("a"), 0700) | chmod(at("a/kernels"), 0700), 0);
    assert_int_equal(each_kernel("a", NULL), n);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        CASE(what_did_not_change_is_not_compiled),
        CASE(only_what_is_new),
        CASE(the_source_is_whole),
        CASE(without_a_cache),
        CASE(heavy_serves_light),
        CASE(damaged),
        CASE(truncated),
        CASE(emptied),
        CASE(foreign_owner),
        CASE(group_writable),
        CASE(symlinked),
        CASE(other_kernels),
        CASE(not_linkable),
        CASE(some_at_once),
        CASE(the_oldest_go),
        CASE(listed_and_removed),
        CASE(damaged_is_listed),
        CASE(a_full_disk),
        CASE(not_a_folder),
        CASE(read_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

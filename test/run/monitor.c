/* monitor.c - virtual devices across processes: ids, exclusive use, waiting, processes that die,
 * and a folder that others have written to. */
#include "run/run.h"
#include "support.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *runtime;    /* XDG_RUNTIME_DIR */
static char folder[512]; /* in it */

static int setup(void **state)
{
    (void)state;
    runtime = test_folder();
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    unsetenv("TESSERA_DEVICES");
    unsetenv("TESSERA_MONITOR");
    snprintf(folder, sizeof(folder), "%s/tessera", runtime);
    return 0;
}

static int teardown(void **state)
{
    struct stat st;

    (void)state;
    if (!lstat(folder, &st) && S_ISDIR(st.st_mode)) /* a test makes something else of it */
        test_folder_remove(folder);
    test_folder_remove(runtime);
    free(runtime);
    return 0;
}

static int listed(ts_device_use *out, int most)
{
    ts_device_use *uses;
    int n;

    assert_ok(ts_device_list(&uses, &n));
    for (int i = 0; i < n && i < most; i++)
        out[i] = uses[i];
    free(uses);
    return n;
}

static int count(void)
{
    return listed(NULL, 0);
}

static void wait_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* A process that has these devices until it is killed. */
static pid_t other(ts_attach_options o)
{
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (!pid) {
        ts_attachment *a;
        c = ts_device_attach(&o, &a) ? 'n' : 'y';
        (void)!write(ready[1], &c, 1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void ids_are_those_that_are_free(void **state)
{
    ts_attachment *a, *b, *c;
    ts_device_use u[4];

    (void)state;
    assert_int_equal(count(), 0);
    assert_ok(ts_device_attach(&(ts_attach_options){.count = 2}, &a));
    assert_ok(ts_device_attach(NULL, &b));
    assert_int_equal(ts_device_id(a, 0), 0);
    assert_int_equal(ts_device_id(a, 1), 1);
    assert_int_equal(ts_device_id(a, 2), -1);
    assert_int_equal(ts_device_id(b, 0), 2);
    assert_int_equal(listed(u, 4), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(u[i].device, i);
        assert_int_equal(u[i].pid, getpid());
        assert_true(u[i].command[0] && u[i].user[0] && u[i].seconds >= 0);
    }
    assert_non_null(strstr(u[0].command, "monitor"));
    ts_device_detach(a);
    assert_ok(ts_device_attach(&(ts_attach_options){.count = 3}, &c));
    assert_int_equal(ts_device_id(c, 0), 0);
    assert_int_equal(ts_device_id(c, 1), 1);
    assert_int_equal(ts_device_id(c, 2), 3);
    ts_device_detach(b);
    ts_device_detach(c);
    assert_int_equal(test_folder_count(folder), 0);
}

static void a_process_that_is_killed_is_gone(void **state)
{
    pid_t one = other((ts_attach_options){.count = 2}), two = other((ts_attach_options){0});
    ts_device_use u[4];

    (void)state;
    assert_int_equal(listed(u, 4), 3);
    assert_int_equal(u[0].pid, TS_MIN(one, two));
    assert_int_equal(u[2].pid, TS_MAX(one, two));
    assert_int_equal(test_folder_count(folder), 2);
    kill(one, SIGKILL); /* a zombie does not count either */
    for (int i = 0; i < 500 && count() == 3; i++)
        wait_a_little();
    assert_int_equal(listed(u, 4), 1);
    assert_int_equal(u[0].pid, two);
    assert_int_equal(u[0].device, 2);
    assert_int_equal(test_folder_count(folder), 1); /* its file was taken away */
    end(one);
    end(two);
    assert_int_equal(count(), 0);
}

static void exclusive_devices_are_waited_for(void **state)
{
    int three = 3;
    ts_attach_options o = {.count = 1, .ids = &three};
    pid_t pid = other((ts_attach_options){.count = 1, .ids = &three, .exclusive = true});
    ts_attachment *a;
    double start;
    pid_t killer;

    (void)state;
    assert_fails(ts_device_attach(&o, &a), TS_ERR_ARG, "device 3 is in use by another process");
    assert_null(a);
    start = ts_now();
    o.wait = 0.15;
    assert_int_equal(ts_device_attach(&o, &a), TS_ERR_ARG);
    assert_true(ts_now() - start >= 0.15);
    killer = fork();
    if (!killer) {
        wait_a_little();
        kill(pid, SIGKILL);
        _exit(0);
    }
    o.wait = -1;
    assert_ok(ts_device_attach(&o, &a));
    assert_int_equal(ts_device_id(a, 0), 3);
    waitpid(killer, NULL, 0);
    end(pid);
    ts_device_detach(a);

    pid = other((ts_attach_options){.count = 1, .ids = &three}); /* shared: only the others' */
    o = (ts_attach_options){.count = 1, .ids = &three};
    assert_ok(ts_device_attach(&o, &a));
    ts_device_detach(a);
    o.exclusive = true;
    assert_int_equal(ts_device_attach(&o, &a), TS_ERR_ARG);
    end(pid);
}

static void wrong_requests_say_so(void **state)
{
    ts_attachment *a;
    int twice[] = {1, 1}, far = 4096;

    (void)state;
    assert_fails(ts_device_attach(&(ts_attach_options){.count = 2, .ids = twice}, &a), TS_ERR_ARG,
                 "device 1 is asked for twice");
    assert_fails(ts_device_attach(&(ts_attach_options){.count = 1, .ids = &far}, &a), TS_ERR_ARG,
                 "there is no device 4096; they have the numbers 0 to 4095");
    assert_fails(ts_device_attach(&(ts_attach_options){.count = -1}, &a), TS_ERR_ARG,
                 "-1 devices cannot be attached; there are 4096");
    setenv("TESSERA_DEVICES", "2", 1);
    assert_int_equal(ts_device_count(), 2);
    assert_fails(ts_device_attach(&(ts_attach_options){.count = 3}, &a), TS_ERR_ARG,
                 "3 devices cannot be attached; there are 2");
    pid_t pid = other((ts_attach_options){0});
    assert_fails(ts_device_attach(&(ts_attach_options){.count = 2}, &a), TS_ERR_ARG,
                 "2 devices are not free; TESSERA_DEVICES says that there are 2");
    end(pid);
    assert_ok(ts_device_attach(&(ts_attach_options){.count = 2}, &a));
    ts_device_detach(a);
    ts_device_detach(NULL);
}

/* --- a folder that is not as it should be --- */

static void put(const char *name, const void *data, size_t n)
{
    char path[1024];

    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
}

static void copy_as(const char *from, const char *to, size_t cut)
{
    char path[1024], *data;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", folder, from);
    assert_ok(ts_file_read(path, &data, &n));
    put(to, data, cut ? n - cut : n);
    free(data);
}

static void find_file(char *name, size_t size)
{
    DIR *d = opendir(folder);

    name[0] = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(name, size, "%s", e->d_name);
    closedir(d);
}

static void made_up_files_count_nothing(void **state)
{
    static char noise[65536];
    test_random r = {7};
    char name[256], other_name[300], path[1024], target[1024];
    ts_attachment *a;

    (void)state;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)test_next(&r);
    assert_ok(ts_device_attach(NULL, &a));
    find_file(name, sizeof(name));
    copy_as(name, "1.1.0", 0); /* another process's name */
    copy_as(name, "not a number", 0);
    snprintf(other_name, sizeof(other_name), "%s7", name);
    copy_as(name, other_name, 1); /* cut short */
    snprintf(other_name, sizeof(other_name), "%s8", name);
    put(other_name, noise, 0);
    snprintf(other_name, sizeof(other_name), "%s9", name);
    put(other_name, noise, sizeof(noise));
    snprintf(path, sizeof(path), "%s/%s.link", folder, name);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof(path), "%s/%s1", folder, name);
    snprintf(target, sizeof(target), "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof(path), "%s/%s2", folder, name);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(count(), 1);
    snprintf(other_name, sizeof(other_name), "%s3", name);
    copy_as(name, other_name, 0);
    assert_int_equal(count(), 1); /* the same process and device again: one row */
    snprintf(path, sizeof(path), "%s/%s", folder, other_name);
    if (!geteuid()) { /* of somebody else: not even looked at */
        assert_int_equal(unlink(target), 0);
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(count(), 0);
    }
    ts_device_detach(a);
}

/* Every byte of a file, changed: no crash, and ids that are none do not count. */
static void damaged_files_do_no_harm(void **state)
{
    char name[256], other_name[300], path[1024], *data;
    test_random r = {3};
    ts_attachment *a;
    size_t n;

    (void)state;
    assert_ok(ts_device_attach(&(ts_attach_options){.count = 2}, &a));
    find_file(name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_ok(ts_file_read(path, &data, &n));
    snprintf(other_name, sizeof(other_name), "%s5", name);
    for (int i = 0; i < 300; i++) {
        ts_device_use *uses;
        int found;
        size_t at = (size_t)test_between(&r, 0, (int64_t)n - 1);
        char was = data[at];
        data[at] = (char)test_next(&r);
        put(other_name, data, n);
        data[at] = was;
        assert_ok(ts_device_list(&uses, &found));
        assert_in_range(found, 2, 4);
        for (int k = 0; k < found; k++)
            assert_in_range(uses[k].device, 0, 4095);
        free(uses);
    }
    free(data);
    ts_device_detach(a);
}

static ts_executable *small(int batch)
{
    ts_graph *g = ts_graph_new("small");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 8);
    ts_executable *out;

    ts_output(ts_linear(x, "fc", 4), "y");
    assert_ok(ts_compile(g, &(ts_options){.cache_dir = ""}, &out));
    ts_graph_free(g);
    return out;
}

static void run_once(ts_engine *e)
{
    static float x[64 * 8], y[64 * 4];

    assert_ok(ts_engine_run(e, (const void *[]){x}, (void *[]){y}));
}

static void a_folder_of_others_stops_no_run(void **state)
{
    ts_executable *x = small(2);
    ts_engine *e;
    ts_attachment *a;

    (void)state;
    assert_int_equal(mkdir(folder, 0755), 0);
    assert_int_equal(ts_device_attach(NULL, &a), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "the folder of attached devices"));
    assert_ok(ts_engine_new(x, NULL, &e));
    run_once(e);
    ts_engine_free(e);
    assert_int_equal(test_folder_count(folder), 0);
    rmdir(folder);
    assert_int_equal(symlink("/tmp", folder), 0);
    assert_int_equal(ts_device_attach(NULL, &a), TS_ERR_FILE);
    assert_int_equal(count(), 0);
    unlink(folder);
    setenv("XDG_RUNTIME_DIR", "/proc/nowhere", 1);
    assert_ok(ts_engine_new(x, NULL, &e));
    run_once(e);
    ts_engine_free(e);
    ts_executable_free(x);
}

/* --- engines --- */

static void an_engine_is_seen(void **state)
{
    ts_executable *x = small(64);
    ts_engine *e, *second;
    ts_device_use u[2];
    ts_stats stats = ts_executable_stats(x);

    (void)state;
    assert_ok(ts_engine_new(x, NULL, &e));
    assert_int_equal(listed(u, 2), 1);
    assert_int_equal(u[0].calls, 0);
    assert_int_equal(u[0].memory, (int64_t)stats.peak_bytes);
    for (int i = 0; i < 3; i++)
        run_once(e);
    assert_ok(ts_engine_new(x, NULL, &second)); /* a process's engines share its devices */
    run_once(second);
    assert_int_equal(listed(u, 2), 1);
    assert_int_equal(u[0].device, 0);
    assert_int_equal(u[0].calls, 4);
    assert_int_equal(u[0].memory, 2 * (int64_t)stats.peak_bytes);
    assert_true(u[0].busy > 0 && u[0].busy <= 2 * u[0].seconds);
    ts_engine_free(e);
    ts_engine_free(second);
    ts_executable_free(x);
    assert_int_equal(count(), 0);
}

static void an_engine_takes_the_devices_it_is_given(void **state)
{
    ts_executable *x = small(64);
    int seven = 7;
    ts_attachment *a;
    ts_device_use u[2];
    ts_engine *e;

    (void)state;
    assert_ok(ts_device_attach(&(ts_attach_options){.count = 1, .ids = &seven}, &a));
    assert_ok(ts_engine_new(x, &(ts_run_options){.devices = a}, &e));
    run_once(e);
    ts_device_detach(a); /* the engine has it still */
    assert_int_equal(listed(u, 2), 1);
    assert_int_equal(u[0].device, 7);
    assert_int_equal(u[0].calls, 1);
    ts_engine_free(e);
    assert_int_equal(count(), 0);
    ts_executable_free(x);
}

static void an_engine_is_never_refused(void **state)
{
    ts_executable *x = small(64);
    ts_device_use u[2];
    ts_engine *e;
    pid_t pid;

    (void)state;
    setenv("TESSERA_DEVICES", "1", 1);
    pid = other((ts_attach_options){.exclusive = true});
    assert_ok(ts_engine_new(x, NULL, &e));
    run_once(e);
    assert_int_equal(listed(u, 2), 2);
    assert_int_equal(u[0].device, 0);
    assert_int_equal(u[1].device, 0);
    end(pid);
    ts_engine_free(e);
    assert_int_equal(count(), 0);
    setenv("TESSERA_MONITOR", "0", 1);
    assert_ok(ts_engine_new(x, NULL, &e));
    run_once(e);
    assert_int_equal(test_folder_count(folder), 0);
    ts_engine_free(e);
    ts_executable_free(x);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(ids_are_those_that_are_free),
        TEST(a_process_that_is_killed_is_gone),
        TEST(exclusive_devices_are_waited_for),
        TEST(wrong_requests_say_so),
        TEST(made_up_files_count_nothing),
        TEST(damaged_files_do_no_harm),
        TEST(a_folder_of_others_stops_no_run),
        TEST(an_engine_is_seen),
        TEST(an_engine_takes_the_devices_it_is_given),
        TEST(an_engine_is_never_refused),
    };
    return cmocka_run_group_tests_name("run monitor", tests, NULL, NULL);
}

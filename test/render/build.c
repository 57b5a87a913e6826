/* build.c - the C compiler as a child process: missing, failing, killed, named with blanks. */
#include "render/render.h"
#include "run/run.h"
#include "support.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder; /* the test's own, and TMPDIR */
static char *path_then, *tmp_then;

static const char *at(const char *name)
{
    static char path[4][4096];
    static int which;

    which = (which + 1) % 4;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

static int open_folder(void **state)
{
    (void)state;
    folder = test_folder();
    path_then = strdup(getenv("PATH"));
    tmp_then = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    assert_int_equal(mkdir(at("tmp"), 0700), 0);
    setenv("TMPDIR", at("tmp"), 1);
    unsetenv("CC");
    unsetenv("TESSERA_CC");
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    setenv("PATH", path_then, 1);
    if (tmp_then)
        setenv("TMPDIR", tmp_then, 1);
    else
        unsetenv("TMPDIR");
    free(path_then);
    free(tmp_then);
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static const char *script(const char *name, const char *text)
{
    assert_ok(ts_file_write(at(name), text, strlen(text)));
    assert_int_equal(chmod(at(name), 0755), 0);
    return at(name);
}

static ts_status build_as(const char *text, ts_options opt, char **object, size_t *bytes)
{
    ts_source src = {.text = (char *)text, .len = strlen(text)};
    ts_arena *a = ts_arena_new();
    ts_status s;

    assert_ok(ts_isa_find("portable", &src.isa));
    src.flags = ts_cc_flags(a, &src.isa, ts_cc_identity(a, &opt));
    s = ts_cc_build(&src, &opt, NULL, object, bytes);
    ts_arena_free(a);
    return s;
}

static ts_status build(const char *text, const char *cc, char **object, size_t *bytes)
{
    return build_as(text, (ts_options){.cc = cc}, object, bytes);
}

static void check_fails(const char *text, const char *cc, const char *words, bool kept)
{
    char *object;
    size_t bytes;

    assert_int_equal(build(text, cc, &object, &bytes), TS_ERR_COMPILER);
    if (!strstr(ts_last_error()->message, words))
        fail_msg("no '%s' in: %s", words, ts_error_text());
    assert_int_equal(test_folder_count(at("tmp")), kept);
}

static void check_works(const char *cc)
{
    char *object;
    size_t bytes;

    assert_ok(build("int tessera_module = 1;", cc, &object, &bytes));
    assert_memory_equal(object,
                        "\x7f"
                        "ELF",
                        4);
    free(object);
    assert_int_equal(test_folder_count(at("tmp")), 0); /* nothing is left */
}

static void works(void **state)
{
    (void)state;
    check_works(NULL);
    check_works("cc");
    check_works("  cc  -DX ");
}

/* The source and the compiler's words stay where the hint says they are. */
static void a_failing_compiler(void **state)
{
    char c_path[4096], *text;
    size_t n;

    (void)state;
    check_fails("int x = 1;\nint y = nonsense;\n", NULL, "step.c:2:9: error: ", true);
    assert_non_null(strstr(ts_last_error()->message, "'cc' failed with status 1"));
    assert_int_equal(sscanf(ts_last_error()->hint, "the source is kept in %4000[^,],", c_path), 1);
    assert_ok(ts_file_read(c_path, &text, &n));
    assert_string_equal(text, "int x = 1;\nint y = nonsense;\n");
    free(text);
}

static void a_silent_compiler(void **state)
{
    (void)state;
    check_fails("", script("cc", "#!/bin/sh\nexit 3\n"), "failed with status 3: no message", true);
}

static void a_killed_compiler(void **state)
{
    (void)state;
    check_fails("", script("cc", "#!/bin/sh\necho half a line\nkill -9 $$\n"),
                "was killed by signal 9 (Killed): half a line", true);
}

/* Ctrl-C reaches the compiler too, and there is nothing to look at. */
static void an_interrupted_compiler(void **state)
{
    (void)state;
    check_fails("", script("cc", "#!/bin/sh\nkill -INT $$\n"), "was killed by signal 2", false);
    assert_string_equal(ts_last_error()->hint, "");
}

/* A process that is killed while the compiler runs leaves no folder, and what the compiler does
 * then brings none back. */
static void a_killed_process(void **state)
{
    const char *cc = script("slow", "#!/bin/sh\ncase $1 in --version) exit;; esac\n"
                                    "touch \"$0.begun\"\nsleep 0.1\ntouch \"$TMPDIR/more\"\n");
    pid_t pid = fork();
    char *object;
    size_t bytes;

    (void)state;
    if (!pid) {
        build("", cc, &object, &bytes);
        _exit(0);
    }
    for (int i = 0; i < 1000 && access(at("slow.begun"), F_OK); i++)
        usleep(10000);
    assert_int_equal(test_folder_count(at("tmp")), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < 1000 && test_folder_count(at("tmp")); i++)
        usleep(10000);
    assert_int_equal(test_folder_count(at("tmp")), 0);
}

/* Says it succeeded, and made nothing. */
static void a_lying_compiler(void **state)
{
    (void)state;
    check_fails("", script("cc", "#!/bin/sh\nexit 0\n"), "made no file", false);
}

static void a_missing_compiler(void **state)
{
    ts_arena *a = ts_arena_new();

    (void)state;
    check_fails("", at("nowhere/cc"), "cannot run the C compiler '", false);
    assert_non_null(strstr(ts_last_error()->hint, "TESSERA_CC"));
    check_fails("", " ", "cannot run the C compiler ' '", false);
    assert_null(ts_cc_identity(a, &(ts_options){.cc = at("nowhere/cc")}));
    setenv("PATH", folder, 1);
    check_fails("", NULL, "cannot run the C compiler 'cc'", false);
    assert_null(ts_cc_identity(a, &(ts_options){0}));
    setenv("PATH", path_then, 1);
    assert_non_null(ts_cc_identity(a, &(ts_options){0}));
    ts_arena_free(a);
}

static void blanks_in_names(void **state)
{
    char text[8192], cc[8192];

    (void)state;
    snprintf(text, sizeof(text), "#!/bin/sh\nfor w; do echo \"<$w>\"; done >'%s'\nexec cc \"$@\"\n",
             at("words"));
    script("my cc", text);
    snprintf(cc, sizeof(cc), "'%s' -DA='a b' \"-DB=c  d\" -DC=e\\ f -DD=\\\"g\\\"", at("my cc"));
    check_works(cc);
    {
        static const char *const want[] = {"<-DA=a b>\n", "<-DB=c  d>\n", "<-DC=e f>\n",
                                           "<-DD=\"g\">\n"};
        char *words;
        size_t n;
        assert_ok(ts_file_read(at("words"), &words, &n));
        for (int i = 0; i < TS_COUNT(want); i++)
            assert_non_null(strstr(words, want[i]));
        free(words);
    }
}

static void which_compiler(void **state)
{
    ts_arena *a = ts_arena_new();
    const char *one = script("one", "#!/bin/sh\necho first compiler\necho more\n");
    const char *two = script("two", "#!/bin/sh\necho second\n");

    (void)state;
    setenv("CC", one, 1);
    assert_non_null(strstr(ts_cc_identity(a, &(ts_options){0}), "one: first compiler"));
    assert_null(strstr(ts_cc_identity(a, &(ts_options){0}), "more"));
    setenv("TESSERA_CC", two, 1);
    assert_non_null(strstr(ts_cc_identity(a, &(ts_options){0}), "two: second"));
    assert_non_null(strstr(ts_cc_identity(a, &(ts_options){.cc = one}), "one: first compiler"));
    unsetenv("CC");
    unsetenv("TESSERA_CC");
    ts_arena_free(a);
}

/* Many kernels of some 20 KB each, then a table that sums them. `bad` is one that does not
 * compile; `odd` is the mark of every other. */
static char *marked_source(int kernels, int bad, const char *odd)
{
    ts_text t = {0};

    ts_text_printf(&t, "static int twice(int x) { return 2 * x; }\n");
    for (int i = 0; i < kernels; i++) {
        ts_text_printf(&t, "\n%sint k%d(int x)\n{\n", i % 2 ? odd : TS_UNIT, i);
        for (int n = 0; n < 1000; n++)
            ts_text_printf(&t, "    /* line %4d */\n", n);
        ts_text_printf(
            &t, i == bad ? "    return nonsense;\n}\n" : "    return twice(x) + %d;\n}\n", i);
    }
    ts_text_printf(&t, "\n" TS_UNIT);
    for (int i = 0; i < kernels; i++)
        ts_text_printf(&t, "int k%d(int);\n", i);
    ts_text_printf(&t, "__attribute__((visibility(\"default\"))) int sum(int x)\n{\n    return 0");
    for (int i = 0; i < kernels; i++)
        ts_text_printf(&t, " + k%d(x)", i);
    ts_text_printf(&t, ";\n}\n");
    return t.s;
}

static char *long_source(int kernels, int bad)
{
    return marked_source(kernels, bad, TS_UNIT);
}

/* What the table of so many kernels gives. */
static void check_sum(const char *object, size_t bytes, int n)
{
    int (*sum)(int);
    void *library, *symbol;

    assert_ok(ts_library_open(object, bytes, &library));
    symbol = ts_library_symbol(library, "sum");
    assert_non_null(symbol);
    memcpy(&sum, &symbol, sizeof(sum));
    assert_int_equal(sum(3), 6 * n + n * (n - 1) / 2);
    ts_library_close(library);
}

/* How many units were compiled, from the words a script saw. */
static int units(const char *words)
{
    int n = 0;

    for (const char *p = words; (p = strstr(p, "<-c>")); p++)
        n++;
    return n;
}

static void long_sources_in_units(void **state)
{
    static const int sizes[] = {1, 5, 20, 200}, expected[] = {0, 0, 4, 40};
    char text[8192], cc[4096];

    (void)state;
    snprintf(text, sizeof(text),
             "#!/bin/sh\nfor w; do echo \"<$w>\"; done >>'%s'\nexec cc \"$@\"\n", at("words"));
    snprintf(cc, sizeof(cc), "%s", script("cc", text));
    for (int i = 0; i < TS_COUNT(sizes); i++) {
        char *source = long_source(sizes[i], -1), *object, *words;
        size_t bytes;
        unlink(at("words"));
        assert_ok(build(source, cc, &object, &bytes));
        check_sum(object, bytes, sizes[i]);
        assert_ok(ts_file_read(at("words"), &words, &bytes));
        assert_int_equal(units(words), expected[i]);
        free(words);
        free(object);
        free(source);
        assert_int_equal(test_folder_count(at("tmp")), 0);
    }
}

/* Options for what takes little of a step are the compiler's own, too. */
static void light_units_of_every_compiler(void **state)
{
    static const char *const compilers[] = {"gcc", "clang"};
    char *source = marked_source(20, -1, TS_UNIT_LIGHT), *object;
    size_t bytes;

    (void)state;
    for (int i = 0; i < TS_COUNT(compilers); i++) {
        assert_ok(build(source, compilers[i], &object, &bytes));
        check_sum(object, bytes, 20);
        free(object);
    }
    free(source);
}

static void a_unit_that_fails(void **state)
{
    char *source = long_source(40, 17), c_path[4096];

    (void)state;
    check_fails(source, NULL, "error: ", true);
    assert_non_null(strstr(ts_last_error()->message, "nonsense"));
    assert_int_equal(sscanf(ts_last_error()->hint, "the source is kept in %4000[^,],", c_path), 1);
    assert_int_equal(access(c_path, R_OK), 0);
    free(source);
    source = long_source(40, -1);
    test_folder_remove(at("tmp"));
    assert_int_equal(mkdir(at("tmp"), 0700), 0);
    for (int n = 0; n < 10; n++) { /* the identity, eight units, the link */
        char *object;
        size_t bytes;
        ts_fault_arm("compiler", n);
        assert_int_equal(build(source, NULL, &object, &bytes), n ? TS_ERR_COMPILER : TS_OK);
        ts_fault_arm(NULL, -1);
        if (!n)
            free(object);
        assert_int_equal(test_folder_count(at("tmp")), 0);
    }
    free(source);
}

/* --- how far it is --- */

static void note_percent(void *arg, int percent)
{
    ts_text_printf(arg, " %d", percent);
}

/* What is told while `kernels` are compiled. */
static char *told(int kernels, const char *cc)
{
    char *source = long_source(kernels, -1), *object;
    ts_text seen = {0};
    size_t bytes;

    assert_ok(build_as(source,
                       (ts_options){.cc = cc, .progress = note_percent, .progress_arg = &seen},
                       &object, &bytes));
    free(object);
    free(source);
    return seen.s;
}

/* A compiler that writes a function's assembler text, and waits until that was told: three of the
 * kernels and the table, which are one unit. */
static void functions_of_one_unit(void **state)
{
    const char *cc =
        script("cc", "#!/bin/sh\ncase $1 in --version) exit;; esac\n"
                     "for i in 0 1 2; do\n"
                     "  printf '\\tret\\n\\t.size\\tk%d, .-k%d\\n' $i $i >>$TMPDIR/x.s\n"
                     "  sleep 0.5\n"
                     "done\nrm $TMPDIR/x.s\nexec cc \"$@\"\n");
    char *seen = told(3, cc);

    (void)state;
    assert_string_equal(seen, " 52 65 77 90");
    free(seen);
}

/* Each of four units counts when it ends, and the last is waited for, whoever compiles it. */
static void every_unit(void **state)
{
    char *seen = told(20, NULL);
    int last = 40, n = 0;

    (void)state;
    for (char *p = seen; *p; n++) {
        int percent = (int)strtol(p, &p, 10);
        assert_true(percent > last);
        last = percent;
    }
    assert_true(n >= 2);
    assert_int_equal(last, 90);
    free(seen);
}

static void no_room_for_scratch(void **state)
{
    char *object;
    size_t bytes;

    (void)state;
    setenv("TMPDIR", at("nowhere"), 1);
    assert_int_equal(build("", NULL, &object, &bytes), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "cannot make a folder in "));
}

static void instruction_sets(void **state)
{
    ts_isa isa;

    (void)state;
    assert_ok(ts_isa_check("portable"));
    assert_ok(ts_isa_find(NULL, &isa));
    assert_ok(ts_isa_check(isa.name));
    assert_int_equal(ts_isa_check("x86-64-v9"), TS_ERR_UNSUPPORTED);
    assert_int_equal(ts_isa_find("x86-64-v9", &isa), TS_ERR_ARG);
}

/* They come last, are an entry of the key (cache.c asks for the same text), and end no comment. */
static void more_options(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_isa isa;
    char *then = getenv("TESSERA_CFLAGS") ? strdup(getenv("TESSERA_CFLAGS")) : NULL;
    const char *flags;

    (void)state;
    assert_ok(ts_isa_find("portable", &isa));
    setenv("TESSERA_CFLAGS", "-O1 -DMORE", 1);
    flags = ts_cc_flags(a, &isa, "cc");
    assert_string_equal(flags + strlen(flags) - 11, " -O1 -DMORE");
    assert_non_null(strstr(ts_cc_by_hand(a, &(ts_options){0}, flags), " -O1 -DMORE "));
    setenv("TESSERA_CFLAGS", "-D'X=*/int'", 1);
    flags = ts_cc_flags(a, &isa, "cc");
    assert_null(strstr(ts_cc_by_hand(a, &(ts_options){0}, flags), "*/"));
    check_works(NULL);
    setenv("TESSERA_CFLAGS", "-no-such-option", 1);
    check_fails("int tessera_module = 1;", NULL, "no-such-option", true);
    unsetenv("TESSERA_CFLAGS");
    if (then)
        setenv("TESSERA_CFLAGS", then, 1);
    free(then);
    ts_arena_free(a);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        CASE(works),
        CASE(a_failing_compiler),
        CASE(a_silent_compiler),
        CASE(a_killed_compiler),
        CASE(an_interrupted_compiler),
        CASE(a_killed_process),
        CASE(a_lying_compiler),
        CASE(a_missing_compiler),
        CASE(blanks_in_names),
        CASE(which_compiler),
        CASE(long_sources_in_units),
        CASE(light_units_of_every_compiler),
        CASE(a_unit_that_fails),
        CASE(functions_of_one_unit),
        CASE(every_unit),
        CASE(no_room_for_scratch),
        CASE(instruction_sets),
        CASE(more_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* bar.c - lines as tqdm writes them, and what a terminal shows of one bar, nested bars, bars that
 * are interrupted and bars for which it is too narrow. */
#include "show/show.h"
#include "support.h"
#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

/* --- lines --- */

static const struct {
    ts_bar_view v;
    const char *want; /* tqdm.format_meter of the same */
} lines[] = {
    {{"Epochs", "it", "loss=0.345", 2, 5, 3.42, 0, 0, false},
     "Epochs:  40%|████      | 2/5 [00:03<00:05,  1.71s/it, loss=0.345]"},
    {{"Epochs", "it", "loss=0.345", 2, 5, 3.42, 0, 70, false},
     "Epochs:  40%|██████         | 2/5 [00:03<00:05,  1.71s/it, loss=0.345]"},
    {{"batches", "it", "", 263, 3750, 0.175, 1501.24, 60, false},
     "batches:   7%|▋        | 263/3750 [00:00<00:02, 1501.24it/s]"},
    {{"batches", "it", "", 263, 3750, 0.175, 1501.24, 60, true},
     "batches:   7%|6        | 263/3750 [00:00<00:02, 1501.24it/s]"},
    {{"Epochs", "it", "", 0, 5, 0, 0, 40, true}, "Epochs:   0%|     | 0/5 [00:00<?, ?it/s]"},
    {{"items", "it", "", 7, 0, 2, 0, 40, false}, "items: 7it [00:02,  3.50it/s]"},
    {{"items", "it", "", 9, 5, 2, 0, 40, false}, "items: 9it [00:02,  4.50it/s]"},
    {{"long", "it", "", 5, 5, 7325, 0, 50, false},
     "long: 100%|█████| 5/5 [2:02:05<00:00, 1465.00s/it]"},
    {{"a label much longer than the screen is", "it", "", 1, 8, 2, 0, 30, false},
     "a label much longer than the s"},
    {{"x", "it", "", 1, 8, 2, 0, 1, false}, "x"},
    {{"", "img", "", 1, 8, 2, 0, 0, true}, " 12%|#2        | 1/8 [00:02<00:14,  2.00s/img]"},
    {{"", "img", "", 1, 3, 0, 0, 0, true}, " 33%|###3      | 1/3 [00:00<?, ?img/s]"},
    {{"", "it", "", 1, 200, 1, 0, 0, true}, "  0%|          | 1/200 [00:01<03:19,  1.00it/s]"},
    {{"", "it", "", 3, 200, 1, 0, 0, true}, "  2%|1         | 3/200 [00:01<01:05,  3.00it/s]"},
    /* ours alone: no unit, no rate */
    {{"Graph", "", "", 45, 100, 9, 0, 0, false}, "Graph:  45%|████▌     | 45/100 [00:09<00:11]"},
};

static void lines_are_tqdms(void **state)
{
    ts_text t = {0};

    (void)state;
    for (int i = 0; i < TS_COUNT(lines); i++) {
        ts_bar_line(&t, &lines[i].v);
        assert_string_equal(t.s, lines[i].want);
    }
    ts_text_free(&t);
}

/* Any width from 1 on: never a column too many, and from some width on always all of them. */
static void lines_fit(void **state)
{
    ts_bar_view v = {.label = "Größe", .unit = "it", .postfix = "loss=1", .n = 3, .total = 7};
    ts_text t = {0};

    (void)state;
    for (v.width = 1; v.width < 200; v.width++) {
        ts_bar_line(&t, &v);
        assert_true(ts_utf8_columns(t.s) <= v.width);
        if (v.width > 60)
            assert_int_equal(ts_utf8_columns(t.s), v.width);
    }
    ts_text_free(&t);
}

static void odd_numbers(void **state)
{
    static const int64_t odd[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    ts_text t = {0};

    (void)state;
    for (int i = 0; i < TS_COUNT(odd); i++)
        for (int j = 0; j < TS_COUNT(odd); j++) {
            ts_bar_line(&t, &(ts_bar_view){"x", "it", "", odd[i], odd[j], 1e300, 1e-300, 50, true});
            assert_true(ts_utf8_columns(t.s) <= 50);
        }
    ts_text_free(&t);
}

/* --- a terminal --- */

enum { ROWS = 40, COLUMNS = 300 };

typedef struct terminal {
    int master, stderr_then;
    char raw[1 << 16];
    int screen[ROWS][COLUMNS], row, column;
} terminal;

static terminal term;

static void term_open(int columns)
{
    struct winsize w = {.ws_row = ROWS, .ws_col = (unsigned short)columns};
    struct termios plain;
    int slave;

    memset(&term, 0, sizeof(term));
    assert_int_equal(openpty(&term.master, &slave, NULL, NULL, &w), 0);
    assert_int_equal(tcgetattr(slave, &plain), 0);
    cfmakeraw(&plain);
    assert_int_equal(tcsetattr(slave, TCSANOW, &plain), 0);
    assert_int_equal(fcntl(term.master, F_SETFL, O_NONBLOCK), 0);
    fflush(stderr);
    term.stderr_then = dup(STDERR_FILENO);
    assert_true(dup2(slave, STDERR_FILENO) >= 0);
    close(slave);
}

/* What a terminal does with the bytes; "\n" comes with the "\r" that its driver would add. */
static void term_show(const char *s)
{
    while (*s) {
        int c;

        if (!strncmp(s, "\033[K", 3)) {
            memset(&term.screen[term.row][term.column], 0,
                   sizeof(int) * (size_t)(COLUMNS - term.column));
            s += 3;
            continue;
        }
        if (!strncmp(s, "\033[A", 3)) {
            assert_true(--term.row >= 0);
            s += 3;
            continue;
        }
        c = ts_utf8_next(&s);
        if (c == '\r') {
            term.column = 0;
        } else if (c == '\n') {
            assert_true(++term.row < ROWS);
            term.column = 0;
        } else {
            assert_true(c >= ' ');
            assert_true(term.column < COLUMNS);
            term.screen[term.row][term.column++] = c;
        }
    }
}

/* Takes what was written since the last look; the whole text stays in term.raw. */
static void term_look(void)
{
    size_t n = strlen(term.raw);
    ssize_t got;

    while ((got = read(term.master, term.raw + n, sizeof(term.raw) - 1 - n)) > 0) {
        term.raw[n + (size_t)got] = 0;
        term_show(term.raw + n);
        n += (size_t)got;
    }
}

static void term_close(void)
{
    term_look();
    dup2(term.stderr_then, STDERR_FILENO);
    close(term.stderr_then);
    close(term.master);
}

static bool row_has(int row, const char *words)
{
    char line[COLUMNS + 1];

    for (int i = 0; i < COLUMNS; i++) {
        int c = term.screen[row][i];
        line[i] = (char)(c == 0 ? ' ' : c < 128 ? c : '*'); /* a block */
    }
    line[COLUMNS] = 0;
    return words[0] ? strstr(line, words) != NULL : strspn(line, " ") == COLUMNS;
}

static int row_length(int row)
{
    int n = COLUMNS;

    while (n && !term.screen[row][n - 1])
        n--;
    return n;
}

static void pause_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static int setup(void **state)
{
    (void)state;
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("TERM", "xterm", 1);
    unsetenv("TESSERA_PROGRESS");
    unsetenv("COLUMNS");
    return 0;
}

static void one_bar(void **state)
{
    ts_bar *b;

    (void)state;
    term_open(80);
    b = ts_bar_open(&(ts_bar_options){.label = "Epochs", .total = 5});
    term_look();
    assert_true(row_has(0, "Epochs:   0%|"));
    assert_true(row_has(0, "| 0/5 [00:00<?, ?it/s]"));
    assert_int_equal(row_length(0), 77);
    ts_bar_postfix(b, "loss=%.3f", 0.345);
    pause_ms(110);
    ts_bar_update(b, 2);
    term_look();
    assert_true(row_has(0, "Epochs:  40%|*"));
    assert_true(row_has(0, "| 2/5 [00:0"));
    assert_true(row_has(0, "it/s, loss=0.345]"));
    ts_bar_update(b, 3);
    ts_bar_close(b);
    term_close();
    assert_true(row_has(0, "Epochs: 100%|*"));
    assert_true(row_has(0, "| 5/5 ["));
    assert_int_equal(term.row, 1);
    assert_int_equal(term.column, 0);
}

/* One that cannot move its cursor gets lines only, and no bar, unless it is asked for. */
static void dumb_terminals(void **state)
{
    (void)state;
    setenv("TERM", "dumb", 1);
    term_open(80);
    ts_bar_close(ts_bar_open(&(ts_bar_options){.label = "Epochs", .total = 5}));
    ts_bar_print("a line");
    term_close();
    assert_string_equal(term.raw, "a line\n");
    setenv("TESSERA_PROGRESS", "1", 1);
    term_open(80);
    ts_bar_close(ts_bar_open(&(ts_bar_options){.label = "Epochs", .total = 5}));
    term_close();
    assert_true(row_has(0, "Epochs:   0%|"));
}

/* About ten updates a second, however many come. */
static void throttled(void **state)
{
    ts_bar *b;
    int64_t updates = 0;
    int draws = 0;
    double end;

    (void)state;
    term_open(80);
    b = ts_bar_open(&(ts_bar_options){.label = "x"});
    for (end = ts_now() + 0.45; ts_now() < end; updates++)
        ts_bar_update(b, 1);
    ts_bar_close(b);
    term_close();
    for (const char *s = term.raw; (s = strchr(s, '\r')); s++)
        draws++;
    assert_true(updates > 100);
    assert_in_range(draws, 3, 6);
    assert_true(row_has(0, "it/s]"));
}

static void nested_bars(void **state)
{
    ts_bar *epochs, *batches;

    (void)state;
    term_open(60);
    epochs = ts_bar_open(&(ts_bar_options){.label = "epochs", .total = 2});
    for (int i = 0; i < 2; i++) {
        batches =
            ts_bar_open(&(ts_bar_options){.label = "batches", .total = 10, .transient = true});
        pause_ms(110);
        ts_bar_update(batches, 7);
        term_look();
        assert_true(row_has(0, "epochs: "));
        assert_true(row_has(1, "batches:  70%|"));
        assert_int_equal(term.row, 0);
        ts_bar_close(batches);
        ts_bar_update(epochs, 1);
        term_look();
        assert_true(row_has(1, ""));
    }
    ts_bar_close(epochs);
    term_close();
    assert_true(row_has(0, "epochs: 100%|"));
    assert_true(row_has(1, ""));
    assert_int_equal(term.row, 1);
    assert_int_equal(term.column, 0);
}

/* An inner bar that stays ends up above the outer one, as tqdm's do. */
static void nested_bars_that_stay(void **state)
{
    ts_bar *outer, *inner;

    (void)state;
    term_open(60);
    outer = ts_bar_open(&(ts_bar_options){.label = "outer", .total = 2});
    inner = ts_bar_open(&(ts_bar_options){.label = "inner", .total = 3});
    ts_bar_update(inner, 3);
    ts_bar_close(inner);
    ts_bar_print("a line between");
    ts_bar_update(outer, 2);
    ts_bar_close(outer);
    term_close();
    assert_true(row_has(0, "inner: 100%|"));
    assert_true(row_has(1, "a line between"));
    assert_int_equal(row_length(1), strlen("a line between"));
    assert_true(row_has(2, "outer: 100%|"));
    assert_true(row_has(3, ""));
    assert_int_equal(term.row, 3);
}

/* Ctrl-C: the terminal echoes it behind the bar, and the bars are closed, outermost first
 * or last. */
static void interrupted(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        ts_bar *b[2];

        term_open(60);
        b[0] = ts_bar_open(&(ts_bar_options){.label = "epochs", .total = 2});
        b[1] = ts_bar_open(&(ts_bar_options){.label = "batches", .total = 9, .transient = true});
        term_look();
        assert_true(term.column <= 57);
        term_show("^C");
        ts_bar_close(b[first]);
        ts_bar_close(b[!first]);
        term_close();
        assert_true(row_has(0, "epochs:   0%|"));
        assert_false(row_has(0, "^C"));
        assert_true(row_has(1, ""));
        assert_int_equal(term.row, 1);
        assert_int_equal(term.column, 0);
    }
}

static void narrow_and_zero(void **state)
{
    static const int widths[] = {0, 1, 2, 3, 4, 5, 20};

    (void)state;
    for (int i = 0; i < TS_COUNT(widths); i++) {
        ts_bar *b;

        term_open(widths[i]);
        b = ts_bar_open(&(ts_bar_options){.label = "a label longer than it all", .total = 3});
        ts_bar_update(b, 3);
        ts_bar_close(b);
        term_close();
        assert_int_equal(term.row, 1);
        if (widths[i])
            assert_int_equal(row_length(0), TS_MAX(1, widths[i] - 3));
        else
            assert_true(row_has(0, "all: 100%|**********| 3/3 ["));
    }
    setenv("COLUMNS", "50", 1);
    term_open(0);
    ts_bar_close(ts_bar_open(&(ts_bar_options){.label = "x", .total = 3}));
    term_close();
    assert_int_equal(row_length(0), 47);
}

static void unknown_total(void **state)
{
    ts_bar *b;

    (void)state;
    term_open(80);
    b = ts_bar_open(&(ts_bar_options){.label = "files", .unit = "file"});
    ts_bar_update(b, 12);
    ts_bar_close(b);
    ts_bar_close(ts_bar_open(NULL));
    term_close();
    assert_true(row_has(0, "files: 12file [00:00, "));
    assert_true(row_has(1, "0it [00:00, "));
}

static void without_utf8(void **state)
{
    ts_bar *b;

    (void)state;
    setenv("LC_ALL", "C", 1);
    term_open(60);
    b = ts_bar_open(&(ts_bar_options){.label = "bad \033[2J\n\xff", .total = 4});
    ts_bar_postfix(b, "%s", "\007");
    ts_bar_update(b, 4);
    ts_bar_close(b);
    term_close();
    assert_true(row_has(0, "bad ?[2J??: 100%|#"));
    assert_true(row_has(0, ", ?]"));
    assert_true(row_has(1, ""));
}

static void when_nothing_is_shown(void **state)
{
    ts_bar *b;

    (void)state;
    term_open(80);
    assert_null(ts_bar_open(&(ts_bar_options){.quiet = true}));
    setenv("TESSERA_PROGRESS", "0", 1);
    b = ts_bar_open(&(ts_bar_options){.total = 3});
    assert_null(b);
    ts_bar_update(b, 1);
    ts_bar_postfix(b, "x");
    ts_bar_close(b);
    term_close();
    assert_string_equal(term.raw, "");
}

static void more_bars_than_lines(void **state)
{
    ts_bar *b[20];

    (void)state;
    term_open(80);
    for (int i = 0; i < 20; i++)
        b[i] = ts_bar_open(&(ts_bar_options){.label = "x", .total = 2});
    for (int i = 0; i < 20; i++) {
        ts_bar_update(b[i], INT64_MAX);
        ts_bar_update(b[i], INT64_MAX);
        ts_bar_close(b[i]);
    }
    term_close();
    assert_true(row_has(0, "x: 9223372036854775807it ["));
    assert_int_equal(term.row, 8);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        CASE(lines_are_tqdms),
        CASE(lines_fit),
        CASE(odd_numbers),
        CASE(dumb_terminals),
        CASE(one_bar),
        CASE(throttled),
        CASE(nested_bars),
        CASE(nested_bars_that_stay),
        CASE(interrupted),
        CASE(narrow_and_zero),
        CASE(unknown_total),
        CASE(without_utf8),
        CASE(when_nothing_is_shown),
        CASE(more_bars_than_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* support.h - what the tests share. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "tessera.h"
#include "tessera/cache.h"
#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/export.h"
#include "tessera/model.h"
#include "tessera/plan.h"
#include "tessera/show.h"
#include "tessera/store.h"

/* A machine that tests of choices are made for, wherever they run: two cores of Zen 4. */
#define TEST_MACHINE                                                                               \
    "cores=2 line=64 level1=32768 level2=1048576 level3=33554432 unit=32 units=2 latency=4 "       \
    "near=32 "                                                                                     \
    "far=25 memory=8 meet=1024 hertz=3.5e9"

/* A small generator whose numbers are the same everywhere. */
typedef struct test_random {
    uint64_t state;
} test_random;
uint64_t test_next(test_random *r);
int64_t test_between(test_random *r, int64_t lo, int64_t hi); /* both included */

/* A folder of its own for a test; test_folder_remove takes it away with the files in it. */
char *test_folder(void); /* free() it */
void test_folder_remove(const char *path);
int test_folder_count(const char *path); /* files in it */

/* All states of an engine, which are f32, one behind the other; free() them. */
float *test_states(const ts_executable *x, const ts_engine *e, size_t *count);

/* The library built with another compiler or a sanitizer generates the same code: what proves that
 * code again may be shorter. */
bool test_brief(void);

/* `make soak` has time for what `make test` proves by fewer cases. */
bool test_soaks(void);

/* The GPU that TESSERA_DEVICE chooses for everything, or NULL. Exits as a skipped test, and says why,
 * when there is none. */
const char *test_device(void);

/* With TS_NVRTC=1, that the text a GPU was given compiles for two generations of NVIDIA's too; without
 * NVRTC it says so once. False: it does not, and the error's text is printed. */
bool test_cuda_text(const ts_executable *x);

/* ts_status is TS_OK, or fails with the error's text. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != TS_OK)                                                                       \
            fail_msg("%s", ts_error_text());                                                       \
    } while (0)
/* The call fails with this code and exactly these words. */
#define assert_fails(call, code_, words)                                                           \
    do {                                                                                           \
        assert_int_equal(call, code_);                                                             \
        assert_int_equal(ts_last_error()->code, code_);                                            \
        assert_string_equal(ts_last_error()->message, words);                                      \
    } while (0)

#endif

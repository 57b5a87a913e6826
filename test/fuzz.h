/* fuzz.h - damaged inputs for parsers, the same ones in every run. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Calls `one` with mutations of the seeds: flipped bits, cut, repeated and spliced parts, numbers
 * at their limits. It may refuse them; it may not crash, read out of bounds, leak or hang, and a
 * run that does is reported with its number. `data` is a block of its own of exactly `len` bytes.
 *
 *   TS_FUZZ=N         N runs instead of default_runs, or 8 times that under the address sanitizer
 *   TS_FUZZ_FIRST=I   starting with run I, to repeat one: TS_FUZZ=1 TS_FUZZ_FIRST=I
 */
void fuzz(const char *name, const void *const seeds[], const size_t lens[], int nseeds,
          long default_runs, void (*one)(const uint8_t *data, size_t len));

#endif

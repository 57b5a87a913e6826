/* cache.h - executables of earlier compiles, found by a key of named entries. */
#ifndef TS_CACHE_H
#define TS_CACHE_H

#include "render/render.h"
#include "run/run.h"
#include "tessera/cache.h"

typedef struct ts_cache ts_cache;
/* What the code of `model` depends on; `cc` is the compiler's identity. */
ts_key ts_cache_key(ts_arena *a, const ts_graph *model, const ts_options *opt, const char *cc);
/* The executable of that key, ready to run; or false, and then this process is the one to make it:
 * the others that want it wait until ts_cache_close. */
ts_cache *ts_cache_open(const ts_options *opt, const char *model, const ts_key *key);
bool ts_cache_find(ts_cache *c, ts_executable **out);
/* Where object code of its kernels may be, and may be kept; NULL without a cache. */
const ts_kept *ts_cache_kept(ts_cache *c);
void ts_cache_put(ts_cache *c, const ts_executable *x);
void ts_cache_close(ts_cache *c);
/* The compiler that made the newest executable of a model of that name, or NULL: what to look for
 * where there is no compiler. */
const char *ts_cache_compiler(ts_arena *a, const ts_options *opt, const char *model);

#endif

/* cache.h - executables of earlier compiles: looking into their folder.
 */
#ifndef TESSERA_CACHE_H
#define TESSERA_CACHE_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_cache_entry {
    char file[64];     /* its name in the folder                     */
    char model[64];    /* of the executable in it, or ""             */
    char problem[256]; /* why it is not used any more, or ""         */
    int64_t bytes;
    int64_t used; /* when it was made or last used: seconds since 1970 */
    int kernels;  /* whose object code it is, 0: it is an executable   */
} ts_cache_entry;
/* In these calls dir is as ts_options.cache_dir. The folder as a path; "" when the cache is off. */
TS_API ts_status ts_cache_folder(const char *dir, char *path, size_t size);
TS_API int64_t ts_cache_limit(void); /* bytes it may hold by default */
/* All that is in it, the last used first; free(*entries). No folder is no entry. */
TS_API ts_status ts_cache_list_sized(const char *dir, ts_cache_entry **entries, size_t size,
                                     int *count);
static inline ts_status ts_cache_list(const char *dir, ts_cache_entry **entries, int *count)
{
    return ts_cache_list_sized(dir, entries, sizeof(**entries), count);
}
TS_API ts_status ts_cache_remove(const char *dir, const char *file);

#ifdef __cplusplus
}
#endif
#endif

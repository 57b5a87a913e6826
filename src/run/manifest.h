/* manifest.h - the parts of the manifest, between its files. */
#ifndef TS_MANIFEST_H
#define TS_MANIFEST_H

#include "run/run.h"
#include <jansson.h>

json_t *ts_manifest_devices(const ts_executable *x);
const char *ts_manifest_read_devices(ts_executable *x, json_t *j); /* NULL, or what is wrong */

#endif

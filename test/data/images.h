/* images.h - the small images in test/data/images, and a test's way out of a build that has no
 * library to read them with. */
#ifndef TEST_DATA_IMAGES_H
#define TEST_DATA_IMAGES_H

#include "support.h"

static inline void needs_image_libraries(void)
{
#if !defined(TS_HAVE_PNG) || !defined(TS_HAVE_JPEG)
    print_message("needs a build with libpng and libjpeg\n");
    skip();
#endif
}

static inline const char *image_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("TS_SOURCE_ROOT");

    snprintf(path, sizeof(path), "%s/test/data/images/%s", root ? root : ".", name);
    return path;
}

/* A file's bytes; free() them. */
static inline char *image_bytes(const char *name, size_t *len)
{
    char *data = NULL;

    assert_ok(ts_file_read(image_path(name), &data, len));
    return data;
}

#endif

/* follow.c - how far the C compiler is.
 *
 * gcc writes a function's assembler text as soon as the function is compiled, to a file in $TMPDIR, which
 * is the folder of the build; it ends with
 *
 *         .size   k7, .-k7
 *
 * clang keeps it in memory: what it is at is not seen before it is done.
 */
#include "render/render.h"
#include <dirent.h>

static int functions_in(const char *path)
{
    static const char end[] = "\n\t.size\t";
    char *text;
    size_t len;
    int n = 0;

    if (ts_file_read(path, &text, &len)) /* gone meanwhile */
        return 0;
    for (const char *p = text; (p = strstr(p, end)); p += strlen(end))
        n++;
    free(text);
    return n;
}

int ts_cc_functions(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d))) {
        size_t len = strlen(e->d_name);
        ts_text path = {0};
        if (len < 2 || strcmp(e->d_name + len - 2, ".s"))
            continue;
        ts_text_printf(&path, "%s/%s", folder, e->d_name);
        n += functions_in(path.s);
        ts_text_free(&path);
    }
    if (d)
        closedir(d);
    return n;
}

/* sized.c - structs that grow: of a caller built with another version of the header.
 *
 * A call says how large the struct is as the caller knows it. What an older caller does not know is
 * 0, which is what it did before; what a newer one knows and we do not must be 0, or it would ask
 * for something and not get it. (The kernel's copy_struct_from_user() does the same.)
 */
#include "base/base.h"

ts_status ts_take_sized(const char *call, const void *in, size_t size, void *out, size_t room)
{
    const unsigned char *bytes = in;

    memset(out, 0, room);
    if (!in)
        return TS_OK;
    memcpy(out, in, TS_MIN(size, room));
    for (size_t i = room; i < size; i++)
        if (bytes[i]) {
            ts_fail(TS_ERR_ARG, "%s is asked for what this library, version %s, does not know",
                    call, ts_version());
            ts_error_hint("the program was built for a newer version of the library");
            return TS_ERR_ARG;
        }
    return TS_OK;
}

void ts_give(const void *in, size_t room, void *out, size_t size)
{
    memcpy(out, in, TS_MIN(size, room));
    if (size > room)
        memset((char *)out + room, 0, size - room);
}

ts_status ts_give_list(void *list, int n, size_t room, size_t size)
{
    void **items = list, *out;

    if (size == room || !*items)
        return TS_OK;
    out = calloc((size_t)n + 1, size);
    for (int i = 0; out && i < n; i++)
        ts_give((char *)*items + (size_t)i * room, room, (char *)out + (size_t)i * size, size);
    free(*items);
    *items = out;
    return out ? TS_OK : ts_fail(TS_ERR_MEMORY, "no memory for a list of %d", n);
}

ts_status ts_take_options(const char *call, const ts_options *in, size_t size,
                          size_t optimizer_size, ts_options *out, ts_optimizer *optimizer)
{
    TS_TRY(ts_take_sized(call, in, size, out, sizeof(*out)));
    if (!out->optimizer)
        return TS_OK;
    TS_TRY(ts_take_sized(call, out->optimizer, optimizer_size, optimizer, sizeof(*optimizer)));
    out->optimizer = optimizer;
    return TS_OK;
}

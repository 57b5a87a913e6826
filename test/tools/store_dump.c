/* store_dump.c - a checkpoint as a Python literal, for test/python/test_store.py.
 *
 *   store_dump FILE    {'epoch': 3, 'w': Tensor('f32', [2], '0000803f00000040'),
 *                       'lr': Float('0x1p-3')}
 */
#include "tessera/store.h"
#include <stdio.h>

static void dump_text(const char *s)
{
    putchar('\'');
    for (; *s; s++)
        if (*s == '\'' || *s == '\\' || (unsigned char)*s < ' ')
            printf("\\x%02x", (unsigned char)*s);
        else
            putchar(*s);
    putchar('\'');
}

static void dump_tensor(const ts_array *a)
{
    const unsigned char *p = a->data;

    printf("Tensor('%s', [", ts_dtype_name(a->dtype));
    for (int i = 0; i < a->rank; i++)
        printf("%ld, ", (long)a->dims[i]);
    printf("], '");
    for (size_t i = 0; i < a->bytes; i++)
        printf("%02x", p[i]);
    printf("')");
}

static void dump(const ts_object *o);

static void dump_items(const ts_object *o, const char *brackets)
{
    putchar(brackets[0]);
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        if (ts_object_kind(o) == TS_KIND_DICT) {
            dump(ts_object_key(o, i));
            fputs(": ", stdout);
        }
        dump(ts_object_at(o, i));
        fputs(", ", stdout);
    }
    putchar(brackets[1]);
}

static void dump(const ts_object *o)
{
    switch (ts_object_kind(o)) {
    case TS_KIND_NONE:
        fputs("None", stdout);
        break;
    case TS_KIND_BOOL:
        fputs(ts_object_int(o, 0) ? "True" : "False", stdout);
        break;
    case TS_KIND_INT:
        printf("%ld", (long)ts_object_int(o, 0));
        break;
    case TS_KIND_FLOAT:
        printf("Float('%a')", ts_object_number(o, 0));
        break;
    case TS_KIND_TEXT:
        dump_text(ts_object_text(o));
        break;
    case TS_KIND_LIST:
        dump_items(o, "[]");
        break;
    case TS_KIND_TUPLE:
        dump_items(o, "()");
        break;
    case TS_KIND_DICT:
        dump_items(o, "{}");
        break;
    case TS_KIND_TENSOR:
        dump_tensor(ts_object_array(o));
        break;
    }
}

int main(int argc, char **argv)
{
    ts_object *o;

    if (argc != 2) {
        fputs("usage: store_dump FILE\n", stderr);
        return 2;
    }
    if (ts_object_load(argv[1], &o)) {
        fputs(ts_error_text(), stderr);
        return 1;
    }
    dump(o);
    ts_object_free(o);
    return 0;
}

/* hdf5.c - HDF5 files that this test writes itself: events become pictures with labels, plain
 * arrays samples, and what is wrong or damaged is said. */
#include "data/data.h"
#include "fuzz.h"
#include "support.h"
#include <signal.h>
#include <unistd.h>

#ifdef TS_HAVE_HDF5
#include <hdf5.h>

enum { EVENTS = 3, PLANES = 2, WIDTH = 6, HEIGHT = 4, PIXELS = WIDTH * HEIGHT, ROOM = 256 };

typedef struct extent {
    uint64_t first;
    uint32_t n, id;
} extent;
typedef struct meta {
    uint8_t valid;
    uint64_t sizes[2];
} meta;
typedef struct voxel {
    uint64_t id;
    float value;
} voxel;
typedef struct events { /* of one product */
    extent events[EVENTS], planes[EVENTS * PLANES];
    meta metas[EVENTS * PLANES];
    voxel voxels[ROOM];
    int nvoxels;
} events;

static char *folder, path[4096];

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
    snprintf(path, sizeof(path), "%s/events.h5", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    test_folder_remove(folder);
    free(folder);
    return 0;
}

/* --- writing --- */

static hid_t create(void)
{
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(f > 0);
    return f;
}

/* In chunks, packed, as larcv's are. */
static void write_array(hid_t at, const char *name, hid_t type, int rank, const hsize_t *dims,
                        const void *data)
{
    hid_t how = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, dims, NULL), d;
    hsize_t chunk[8];

    for (int i = 0; i < rank; i++)
        chunk[i] = dims[i] < 16 ? dims[i] : 16;
    assert_true(H5Pset_chunk(how, rank, chunk) >= 0 && H5Pset_deflate(how, 1) >= 0);
    d = H5Dcreate2(at, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    assert_true(d > 0 && H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(d);
    H5Sclose(space);
    H5Pclose(how);
}

static void write_table(hid_t at, const char *name, hid_t type, hsize_t rows, const void *data)
{
    write_array(at, name, type, 1, &rows, data);
    H5Tclose(type);
}

static hid_t extent_type(bool with_id)
{
    hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(extent));

    H5Tinsert(t, "first", offsetof(extent, first), H5T_NATIVE_UINT64);
    H5Tinsert(t, "N", offsetof(extent, n), H5T_NATIVE_UINT32);
    if (with_id)
        H5Tinsert(t, "ID", offsetof(extent, id), H5T_NATIVE_UINT32);
    return t;
}

static hid_t meta_type(void)
{
    hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(meta));
    hid_t pair = H5Tarray_create2(H5T_NATIVE_UINT64, 1, (hsize_t[]){2});

    H5Tinsert(t, "valid", offsetof(meta, valid), H5T_NATIVE_UINT8);
    H5Tinsert(t, "number_of_voxels", offsetof(meta, sizes), pair);
    H5Tclose(pair);
    return t;
}

static hid_t voxel_type(void)
{
    hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(voxel));

    H5Tinsert(t, "id", offsetof(voxel, id), H5T_NATIVE_UINT64);
    H5Tinsert(t, "value", offsetof(voxel, value), H5T_NATIVE_FLOAT);
    return t;
}

static void write_product(hid_t file, const char *name, const events *e)
{
    hid_t data = H5Lexists(file, "Data", H5P_DEFAULT) > 0
                     ? H5Gopen2(file, "Data", H5P_DEFAULT)
                     : H5Gcreate2(file, "Data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t g = H5Gcreate2(data, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    write_table(g, "extents", extent_type(false), EVENTS, e->events);
    write_table(g, "voxel_extents", extent_type(true), EVENTS * PLANES, e->planes);
    write_table(g, "image_meta", meta_type(), EVENTS * PLANES, e->metas);
    write_table(g, "voxels", voxel_type(), (hsize_t)e->nvoxels, e->voxels);
    H5Gclose(g);
    H5Gclose(data);
}

/* Every third pixel is there; of labels with the classes 0, 1 and 2. The second projection of an
 * event stands first in the file. */
static events make_events(bool labels)
{
    events e = {.nvoxels = 0};

    for (int i = 0; i < EVENTS * PLANES; i++) {
        e.events[i / PLANES] = (extent){(uint64_t)(i / PLANES * PLANES), PLANES, 0};
        e.planes[i] = (extent){(uint64_t)e.nvoxels, 0, (uint32_t)(i % PLANES ? 0 : 1)};
        e.metas[i] = (meta){1, {WIDTH, HEIGHT}};
        for (int k = i % 3; k < PIXELS; k += 3, e.planes[i].n++)
            e.voxels[e.nvoxels++] =
                (voxel){(uint64_t)k, labels ? (float)((i + k) % 3) : 0.5f + (float)(100 * i + k)};
    }
    return e;
}

static void write_both(const events *x, const events *y)
{
    hid_t f = create();

    write_product(f, "sparse2d_wire_group", x);
    if (y)
        write_product(f, "sparse2d_cosmicseg_group", y);
    H5Fclose(f);
}

/* --- events --- */

/* The value of a pixel as make_events wrote it, or 0. */
static float want_pixel(int event, int plane, int row, int column)
{
    int i = event * PLANES + (plane ? 0 : 1), k = column * HEIGHT + row;

    return k % 3 == i % 3 ? 0.5f + (float)(100 * i + k) : 0;
}

static int want_label(int event, int plane, int row, int column)
{
    int i = event * PLANES + (plane ? 0 : 1), k = column * HEIGHT + row;

    return k % 3 == i % 3 ? (i + k) % 3 : 0;
}

static void sparse_events_become_dense(void **state)
{
    events x = make_events(false), y = make_events(true);
    int64_t dims[TS_MAX_RANK];
    ts_dataset *d;

    (void)state;
    write_both(&x, &y);
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = path}, &d));
    assert_int_equal(ts_dataset_count(d), EVENTS);
    assert_int_equal(ts_dataset_label_shape(d, dims), 3);
    assert_int_equal(dims[0] * 10000 + dims[1] * 100 + dims[2],
                     PLANES * 10000 + HEIGHT * 100 + WIDTH);
    assert_int_equal(ts_dataset_label_count(d), PLANES * PIXELS);
    assert_string_equal(ts_dataset_class_name(d, 2), "neutrino");
    for (int i = 0; i < EVENTS * PLANES * PIXELS; i++) {
        int e = i / PIXELS / PLANES, p = i / PIXELS % PLANES, k = i % PIXELS;
        assert_true(((float *)d->sample.data)[i] == want_pixel(e, p, k / WIDTH, k % WIDTH));
        assert_int_equal(d->labels[i], want_label(e, p, k / WIDTH, k % WIDTH));
    }
    ts_dataset_free(d);
}

static void load_fails(ts_dataset_options o, ts_status code, const char *part)
{
    ts_dataset *d;

    o.name = path;
    assert_int_equal(ts_dataset_load(&o, &d), code);
    assert_null(d);
    if (!strstr(ts_last_error()->message, part))
        fail_msg("'%s' is not in '%s'", part, ts_last_error()->message);
}

/* The mean of a block, and its largest label; a limit reads no more events. */
static void events_are_made_smaller_as_they_are_read(void **state)
{
    events x = make_events(false), y = make_events(true);
    ts_dataset *d;

    (void)state;
    write_both(&x, &y);
    assert_ok(
        ts_dataset_load(&(ts_dataset_options){.name = path, .downsample = 2, .limit = 2}, &d));
    assert_int_equal(d->count, 2);
    assert_int_equal(d->sample.dims[1] * 10 + d->sample.dims[2], HEIGHT / 2 * 10 + WIDTH / 2);
    for (int i = 0; i < 2 * PLANES * PIXELS / 4; i++) {
        int e = i / (PIXELS / 4) / PLANES, p = i / (PIXELS / 4) % PLANES, k = i % (PIXELS / 4);
        int row = k / (WIDTH / 2) * 2, column = k % (WIDTH / 2) * 2, most = 0;
        double sum = 0;
        for (int b = 0; b < 4; b++) {
            sum += want_pixel(e, p, row + b / 2, column + b % 2);
            most = TS_MAX(most, want_label(e, p, row + b / 2, column + b % 2));
        }
        assert_true(((float *)d->sample.data)[i] == (float)(sum / 4));
        assert_int_equal(d->labels[i], most);
    }
    ts_dataset_free(d);
    load_fails((ts_dataset_options){.downsample = 3}, TS_ERR_ARG, "cannot be made 3 times smaller");
}

static void products_are_found_or_named(void **state)
{
    events x = make_events(false), y = make_events(true);
    ts_dataset *d;
    hid_t f;

    (void)state;
    write_both(&x, NULL); /* to predict for */
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = path}, &d));
    assert_int_equal(ts_dataset_classes(d), 0);
    ts_dataset_free(d);
    f = create();
    write_product(f, "sparse2d_a_group", &x);
    write_product(f, "sparse2d_b_group", &x);
    write_product(f, "sparse2d_c_group", &y);
    write_product(f, "sparse2d_d_group", &y);
    H5Fclose(f);
    load_fails((ts_dataset_options){0}, TS_ERR_ARG, "a, b, c, d");
    load_fails((ts_dataset_options){.samples = "a"}, TS_ERR_ARG,
               "which of its products are the lab");
    load_fails((ts_dataset_options){.samples = "e"}, TS_ERR_ARG,
               "which of its products are the sam");
    assert_ok(
        ts_dataset_load(&(ts_dataset_options){.name = path, .samples = "b", .label = "d"}, &d));
    assert_int_equal(ts_dataset_classes(d), 3);
    assert_string_equal(ts_dataset_class_name(d, 1), "1");
    ts_dataset_free(d);
    load_fails((ts_dataset_options){.samples = "b", .label = "a"}, TS_ERR_CORRUPT, "classes");
}

/* Each table that lies is told from one that does not. */
static void what_tables_claim_is_checked(void **state)
{
    enum { CASES = 9 };

    (void)state;
    for (int i = 0; i < CASES; i++) {
        static const char *const said[CASES] = {"projections", "pixels",       "pixels",
                                                "not there",   "not there",    "none of its",
                                                "none of its", "the first is", "twice"};
        events x = make_events(false), y = make_events(true);
        switch (i) {
        case 0:
            x.events[1].n = 200;
            break;
        case 1:
            x.metas[2].sizes[0] = UINT64_MAX;
            break;
        case 2:
            x.metas[0].sizes[1] = x.metas[1].sizes[1] = 0;
            break;
        case 3:
            y.planes[3].first = UINT64_MAX;
            break;
        case 4:
            x.planes[3].n = UINT32_MAX;
            break;
        case 5:
            x.voxels[4].id = PIXELS;
            break;
        case 6:
            x.voxels[4].value = (float)(0.0 / 0.0);
            break;
        case 7:
            x.metas[2].sizes[0] = x.metas[3].sizes[0] = WIDTH + 2;
            break;
        default:
            x.planes[0].id = 0;
        }
        write_both(&x, &y);
        load_fails((ts_dataset_options){.samples = "wire", .label = "cosmicseg"},
                   i == 7 ? TS_ERR_SHAPE : TS_ERR_CORRUPT, said[i]);
    }
}

/* Two events of 32768 x 32768 in 64 planes are 550 GB; their file has a few kilobytes. */
static void dense_pictures_are_held_against_the_memory(void **state)
{
    events x = make_events(false);

    (void)state;
    for (int i = 0; i < EVENTS * PLANES; i++) {
        x.metas[i].sizes[0] = x.metas[i].sizes[1] = 32768;
    }
    for (int i = 0; i < EVENTS; i++)
        x.events[i] = (extent){0, PLANES, 0};
    if ((double)sysconf(_SC_PHYS_PAGES) * 4096 > 90e9)
        skip();
    write_both(&x, NULL);
    load_fails((ts_dataset_options){.samples = "wire"}, TS_ERR_MEMORY, "more than half");
}

/* --- plain arrays --- */

static void write_plain(const char *x, const char *y, int labels_rank)
{
    hid_t f = create();
    double samples[4 * 2 * 4 * 6];
    int16_t labels[4 * 4 * 6];

    for (int i = 0; i < TS_COUNT(samples); i++)
        samples[i] = i / 8.0;
    for (int i = 0; i < TS_COUNT(labels); i++)
        labels[i] = (int16_t)(i % 5);
    write_array(f, x, H5T_NATIVE_DOUBLE, 4, (hsize_t[]){4, 2, 4, 6}, samples);
    write_array(f, y, H5T_NATIVE_INT16, labels_rank, (hsize_t[]){4, 4, 6}, labels);
    H5Fclose(f);
}

static void plain_arrays_are_samples(void **state)
{
    ts_dataset *d;

    (void)state;
    write_plain("x", "y", 1);
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = path, .limit = 3}, &d));
    assert_int_equal(d->count, 3);
    assert_int_equal(d->sample.dtype, TS_F32);
    assert_int_equal(d->sample.dims[2], 6);
    assert_true(((float *)d->sample.data)[9] == 9 / 8.0f);
    assert_int_equal(d->labels[2], 2);
    assert_int_equal(d->label_rank, 0);
    ts_dataset_free(d);
    write_plain("a", "b", 3);
    load_fails((ts_dataset_options){0}, TS_ERR_PARSE, "has no samples and labels");
    assert_ok(ts_dataset_load(
        &(ts_dataset_options){.name = path, .samples = "a", .label = "b", .downsample = 2}, &d));
    assert_int_equal(d->label_rank, 2);
    assert_int_equal(d->nlabels, 6);
    assert_int_equal(d->nclasses, 5);
    assert_int_equal(d->labels[0], 4 % 5 > 2 ? 2 : 0); /* of 0 1 / 6%5 7%5: the largest */
    assert_true(((float *)d->sample.data)[0] == (0 + 1 + 6 + 7) / 32.0f);
    ts_dataset_free(d);
    write_plain("x_train", "y_train", 2);
    load_fails((ts_dataset_options){.split = TS_SPLIT_TEST}, TS_ERR_PARSE, "for this split");
}

/* What another file has is not looked at. */
static void links_that_lead_out_are_refused(void **state)
{
    char other[4200];
    hid_t f;

    (void)state;
    write_plain("x", "y", 1);
    snprintf(other, sizeof(other), "%s.other.h5", path);
    assert_int_equal(rename(path, other), 0);
    f = create();
    H5Lcreate_external(other, "x", f, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external(other, "y", f, "y", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(f);
    load_fails((ts_dataset_options){0}, TS_ERR_PARSE, "has no samples");
    load_fails((ts_dataset_options){.samples = "x"}, TS_ERR_CORRUPT, "has no x");
}

static void what_an_array_claims_is_checked(void **state)
{
    hid_t f = create(), how = H5Pcreate(H5P_DATASET_CREATE), space, d;

    (void)state;
    space = H5Screate_simple(2, (hsize_t[]){1 << 20, 1 << 20}, NULL);
    H5Pset_chunk(how, 2, (hsize_t[]){16, 16});
    d = H5Dcreate2(f, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dclose(d);
    H5Sclose(space);
    H5Pclose(how);
    H5Fclose(f);
    load_fails((ts_dataset_options){0}, TS_ERR_CORRUPT, "more than a file of");
}

/* --- damage --- */

static char *read_whole(size_t *len)
{
    char *data;

    assert_ok(ts_file_read(path, &data, len));
    return data;
}

static void a_file_that_ends_early_is_refused(void **state)
{
    events x = make_events(false), y = make_events(true);
    size_t len;
    char *whole;

    (void)state;
    write_both(&x, &y);
    whole = read_whole(&len);
    for (size_t n = 0; n < len; n += len / 24 + 1) {
        assert_ok(ts_file_write(path, whole, n));
        load_fails((ts_dataset_options){0}, TS_ERR_CORRUPT, "does not read as HDF5");
    }
    free(whole);
}

static void open_damaged(const uint8_t *data, size_t len)
{
    ts_dataset *d;
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    fclose(f);
    if (ts_dataset_load(&(ts_dataset_options){.name = path}, &d))
        return;
    assert_true(ts_dataset_count(d) > 0);
    ts_dataset_free(d);
}

static void damaged_files_are_refused_or_read(void **state)
{
    long runs = test_brief() ? 40 : 400; /* each is a process */
    events x = make_events(false), y = make_events(true);
    char *seeds[2];
    size_t lens[2];

    (void)state;
    write_both(&x, &y);
    seeds[0] = read_whole(&lens[0]);
    write_plain("x", "y", 3);
    seeds[1] = read_whole(&lens[1]);
    fuzz("HDF5", (const void *const[]){seeds[0], seeds[1]}, lens, 2, runs, open_damaged);
    free(seeds[0]);
    free(seeds[1]);
}

/* Wherever it happens, in the process that reads and in the one that takes over. */
static void running_out_of_memory_is_an_error(void **state)
{
    events x = make_events(false), y = make_events(true);
    ts_dataset *d = NULL;
    ts_status s = TS_ERR_MEMORY;
    int failed = 0;

    (void)state;
    write_both(&x, &y);
    for (; failed < 200 && s; failed += s != TS_OK) {
        ts_fault_arm("alloc", failed);
        s = ts_dataset_load(&(ts_dataset_options){.name = path}, &d);
        assert_true(!s || s == TS_ERR_MEMORY);
    }
    assert_true(failed > 10 && !s);
    ts_dataset_free(d);
    ts_fault_arm("fork", 0);
    load_fails((ts_dataset_options){0}, TS_ERR_MEMORY, "cannot start a process");
}

static ts_status crashes(const ts_dataset_options *opt, ts_dataset **out)
{
    (void)out;
    raise(SIGSEGV);
    return ts_fail(TS_ERR_ARG, "%s", opt->name);
}

static void a_reader_that_crashes_ends_itself_only(void **state)
{
    ts_dataset *d;

    (void)state;
    assert_fails(ts_dataset_apart(crashes, &(ts_dataset_options){.name = "x.h5"}, &d),
                 TS_ERR_CORRUPT, "x.h5 is damaged in a way that its reader does not survive");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sparse_events_become_dense, setup, teardown),
        cmocka_unit_test_setup_teardown(events_are_made_smaller_as_they_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(products_are_found_or_named, setup, teardown),
        cmocka_unit_test_setup_teardown(what_tables_claim_is_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(dense_pictures_are_held_against_the_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(plain_arrays_are_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(links_that_lead_out_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_an_array_claims_is_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_ends_early_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_files_are_refused_or_read, setup, teardown),
        cmocka_unit_test(a_reader_that_crashes_ends_itself_only),
        cmocka_unit_test_setup_teardown(running_out_of_memory_is_an_error, setup, teardown),
    };

    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void a_build_without_it_says_so(void **state)
{
    ts_dataset *d;

    (void)state;
    assert_int_equal(ts_hdf5_open(&(ts_dataset_options){.name = "x.h5"}, &d), TS_ERR_UNSUPPORTED);
    assert_string_equal(ts_last_error()->message, "x.h5: this build does not read HDF5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_build_without_it_says_so)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif

/* download.c - one file of a known dataset, through libcurl.
 *
 *   URL/name.gz  ->  DIR/name.gz.part  -- unpacked, its SHA-256 is the known one -->  DIR/name.gz
 *
 * A part that is there already is continued, by a range request; one that turns out wrong is thrown
 * away. The part is locked, so that of two processes one waits for the other; neither waits for a
 * server that sends nothing.
 */
#include "data/data.h"

#ifdef TS_HAVE_CURL
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    TRIES = 5,
    CONNECT_SECONDS = 20,
    STALL_SECONDS = 30,
    SLOWEST = 100, /* bytes a second */
    REDIRECTS = 5,
    SLACK = 1 << 16,
};

typedef struct transfer {
    const ts_known_file *file;
    const ts_dataset_options *opt;
    char url[4096], path[PATH_MAX], part[PATH_MAX];
    char why[CURL_ERROR_SIZE];
    int fd;          /* of the part, locked */
    int64_t offset;  /* where this try began */
    int64_t most;    /* the part never gets larger */
    int64_t arrived; /* bytes of this try, when last looked */
    double since;    /* that many since then */
    double stall;    /* seconds without a byte that end it */
    bool too_long, disk_failed, stalled;
} transfer;

static int64_t size_of(const transfer *t)
{
    off_t n = lseek(t->fd, 0, SEEK_END);

    return n < 0 ? 0 : (int64_t)n;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    size_t len = size * n;

    if (size_of(t) + (int64_t)len > t->most) {
        t->too_long = true;
        return 0;
    }
    for (size_t done = 0; done < len;) {
        ssize_t put = ts_fault("write") ? -1 : write(t->fd, data + done, len - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            t->disk_failed = true;
            snprintf(t->why, sizeof(t->why), "%s", strerror(errno));
            return 0;
        }
        done += (size_t)put;
    }
    return len;
}

/* libcurl asks about once a second, also when nothing comes. Its own limit looks at the mean speed
 * of some seconds, which a burst at the start keeps up for long. */
static int on_progress(void *arg, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    transfer *t = arg;
    double now = ts_now();

    (void)up_total, (void)up;
    if ((int64_t)done != t->arrived) {
        t->arrived = (int64_t)done;
        t->since = now;
    }
    t->stalled = now - t->since > t->stall;
    if (t->stalled || !t->opt->progress)
        return t->stalled;
    return !t->opt->progress(t->opt->progress_arg, t->file->name, t->offset + (int64_t)done,
                             total ? t->offset + (int64_t)total : 0);
}

static CURLcode set_options(CURL *c, transfer *t)
{
    CURLcode e = curl_easy_setopt(c, CURLOPT_URL, t->url);

    e = e ? e : curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    e = e ? e : curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    e = e ? e : curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    e = e ? e : curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    e = e ? e : curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    e = e ? e : curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    e = e ? e : curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    e = e ? e : curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST);
    e = e ? e : curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    e = e ? e : curl_easy_setopt(c, CURLOPT_USERAGENT, "tessera/" TS_VERSION);
    e = e ? e : curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why);
    e = e ? e : curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    e = e ? e : curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    e = e ? e : curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    e = e ? e : curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    e = e ? e : curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    return e ? e : curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->offset);
}

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static CURLcode try_once(transfer *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CURLcode e;
    CURL *c;

    pthread_once(&once, start_curl);
    c = curl_easy_init();
    if (!c)
        return CURLE_OUT_OF_MEMORY;
    t->offset = size_of(t);
    t->arrived = 0;
    t->since = ts_now();
    t->why[0] = 0;
    e = set_options(c, t);
    e = e ? e : curl_easy_perform(c);
    curl_easy_cleanup(c);
    if (!t->why[0])
        snprintf(t->why, sizeof(t->why), "%s", curl_easy_strerror(e));
    return e;
}

/* A server or a line that gave up: what came stays, and the next try asks for the rest. */
static bool worth_another(CURLcode e)
{
    return e == CURLE_PARTIAL_FILE || e == CURLE_RECV_ERROR || e == CURLE_SEND_ERROR ||
           e == CURLE_GOT_NOTHING || e == CURLE_RANGE_ERROR;
}

static ts_status failed(const transfer *t, CURLcode e)
{
    if (e == CURLE_ABORTED_BY_CALLBACK && !t->stalled)
        return ts_fail(TS_ERR_FILE, "the download of %s was stopped", t->file->name);
    if (t->too_long)
        return ts_fail(TS_ERR_CORRUPT, "%s sends more than the %ld bytes that the file can have",
                       t->url, (long)t->most);
    if (t->disk_failed)
        return ts_fail(TS_ERR_FILE, "cannot write %s: %s", t->part, t->why);
    if (t->stalled)
        ts_fail(TS_ERR_FILE, "cannot download %s: nothing came for %g seconds", t->url, t->stall);
    else
        ts_fail(TS_ERR_FILE, "cannot download %s: %s", t->url, t->why);
    ts_error_hint("check the address; what has arrived is kept, and another try continues it");
    return TS_ERR_FILE;
}

static ts_status fetch(transfer *t)
{
    CURLcode e = CURLE_OK;

    for (int i = 0; i < TRIES; i++) {
        e = try_once(t);
        if (!e)
            return TS_OK;
        if (e == CURLE_RANGE_ERROR && ftruncate(t->fd, 0)) /* it cannot continue: all again */
            break;
        if (!worth_another(e))
            break;
    }
    return failed(t, e);
}

/* Unpacked because that is what is known: the packing differs between those who offer the files. */
static ts_status check_content(const transfer *t, const char *data, size_t len)
{
    unsigned char sum[SHA256_DIGEST_LENGTH];
    char text[2 * SHA256_DIGEST_LENGTH + 1];
    void *content;
    size_t bytes;

    TS_TRY(ts_gzip_unpack(t->url, data, len, t->file->bytes, &content, &bytes));
    SHA256(content, bytes, sum);
    free(content);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(text + 2 * i, 3, "%02x", sum[i]);
    if (!strcmp(text, t->file->sha256))
        return TS_OK;
    ts_fail(TS_ERR_CORRUPT, "%s is not the file it should be: its SHA-256 is %s, not %s", t->url,
            text, t->file->sha256);
    ts_error_hint("the address offers another file of this name; nothing of it was kept");
    return TS_ERR_CORRUPT;
}

static ts_status check_and_keep(const transfer *t)
{
    char *data;
    size_t len;
    ts_status s;

    TS_TRY(ts_file_read(t->part, &data, &len));
    s = check_content(t, data, len);
    if (!s)
        s = ts_file_write(t->path, data, len);
    free(data);
    return s;
}

/* With the lock. A part from who knows when may be of something else: then all again, once. */
static ts_status fetch_and_check(transfer *t)
{
    bool continued = size_of(t) > 0;
    ts_status s;

    if (!access(t->path, F_OK))
        return TS_OK; /* another process was faster */
    TS_TRY(fetch(t));
    s = check_and_keep(t);
    if (s == TS_ERR_CORRUPT && continued && !ftruncate(t->fd, 0)) {
        TS_TRY(fetch(t));
        s = check_and_keep(t);
    }
    return s;
}

static bool name_paths(transfer *t, const char *url, const char *folder)
{
    size_t n = strlen(url);

    while (n && url[n - 1] == '/')
        n--;
    return (size_t)snprintf(t->url, sizeof(t->url), "%.*s/%s", (int)TS_MIN(n, sizeof(t->url)), url,
                            t->file->name) < sizeof(t->url) &&
           ts_path_join(t->path, sizeof(t->path), folder, t->file->name) &&
           (size_t)snprintf(t->part, sizeof(t->part), "%s.part", t->path) < sizeof(t->part);
}

static int open_locked(const char *path)
{
    int fd = ts_fault("create") ? -1 : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    while (fd >= 0 && flock(fd, LOCK_EX))
        if (errno != EINTR) {
            close(fd);
            return -1;
        }
    return fd;
}

ts_status ts_download(const char *url, const char *folder, const ts_known_file *file,
                      const ts_dataset_options *opt)
{
    transfer t = {.file = file,
                  .opt = opt,
                  .most = (int64_t)file->bytes + SLACK,
                  .stall = opt->stall_seconds > 0 ? opt->stall_seconds : STALL_SECONDS};
    ts_status s;

    if (!name_paths(&t, url, folder))
        return ts_fail(TS_ERR_ARG, "the address %.60s... or the folder %.60s... is too long", url,
                       folder);
    TS_TRY(ts_file_mkdirs(folder));
    t.fd = open_locked(t.part);
    if (t.fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot open %s: %s", t.part, strerror(errno));
    s = fetch_and_check(&t);
    if (!s || s == TS_ERR_CORRUPT)
        unlink(t.part);
    close(t.fd);
    return s;
}

#else

ts_status ts_download(const char *url, const char *folder, const ts_known_file *file,
                      const ts_dataset_options *opt)
{
    (void)folder, (void)opt;
    ts_fail(TS_ERR_UNSUPPORTED, "%s/%s cannot be downloaded: this build has no libcurl", url,
            file->name);
    ts_error_hint("build Tessera with libcurl (Debian: libcurl4-openssl-dev), or download the file "
                  "with another program");
    return TS_ERR_UNSUPPORTED;
}

#endif

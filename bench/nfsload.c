/*
 * nfsload: drives one NFSv3 or NFSv4.1 workload over ONE TCP connection with a fixed number of calls in flight.
 *
 * It speaks XDR by hand over a bare socket, so that the client costs far less CPU than any server
 * it measures: requests are a small header plus a pointer into a random buffer (writev, no copy),
 * replies are parsed in place in the receive buffer.
 *
 * Invariants
 *   L1  At most `depth` calls are in flight; a slot sends its next call when its reply came.
 *   L2  Contents are incompressible and no two blocks are alike: every MiB of a file is a window of a random
 *       pool, at one of two million offsets drawn from (seed, number of the MiB).
 *   L3  The clock covers the calls of the workload, including the final COMMIT of write workloads,
 *       and neither MOUNT nor preparation.
 *   L4  Any status that is not NFS3_OK ends the run with an error: a fast failure is not a result.
 *
 * --files N makes the workloads on directories go round the first N names.
 *
 * Output: one JSON object on stdout.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NFS = 100003, MOUNT = 100005 };
enum { P_GETATTR = 1, P_LOOKUP = 3, P_READ = 6, P_WRITE = 7, P_CREATE = 8, P_MKDIR = 9, P_REMOVE = 12, P_FSINFO = 19, P_COMMIT = 21 };
enum { UNSTABLE = 0, FILE_SYNC = 2 };

#define SLOTS_MAX 256
#define HEADER_MAX 1024
#define XFER_MAX (1u << 20)
#define PAGE 4096u
#define POOL_BYTES (16u << 20)
#define RECEIVE_BYTES (4u << 20)

typedef struct {
    uint32_t len;
    uint8_t data[128];
} handle;

typedef struct {
    char header[HEADER_MAX];
    size_t header_len, sent;
    const char *payload;
    size_t payload_len;
    uint64_t started_ns;
    uint64_t item; /* block number or file number */
    int stage;     /* workload-specific step within the item */
    handle fh;     /* of the file this slot works on */
} slot;

static struct {
    const char *host, *export, *workload, *path;
    int port, mount_port, vers;
    uint64_t size, count, files, seed;
    uint32_t depth, xfer;
    int verify;
} opt = {.host = "127.0.0.1", .export = "/", .port = 2049, .mount_port = 0, .vers = 3, .size = 64 << 20, .count = 1000, .seed = 1, .depth = 16, .xfer = XFER_MAX};

static int sock = -1;
static slot slots[SLOTS_MAX];
static uint32_t queue[SLOTS_MAX], queue_head, queue_len; /* slots whose call is not fully sent */
static char *pool, *rx;
static size_t rx_begin, rx_end;
static uint64_t next_item, items, done_items, bytes_moved;
static handle root, dir, file;
static uint32_t *latency_us;
static uint64_t latency_count;
static uint32_t xid_epoch = 1;
static uint64_t write_verifier;
static int have_verifier;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "nfsload: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void fill_pool(void)
{
    /* Twice the window, so that any block fits behind any offset. */
    pool = malloc(POOL_BYTES + XFER_MAX);
    if (!pool)
        die("no memory");
    uint64_t x = 0x1234567;
    for (size_t i = 0; i < (POOL_BYTES + XFER_MAX) / 8; i++)
        ((uint64_t *)pool)[i] = x = mix(x + i);
}

/* Block `n` of up to a MiB: 8-byte aligned, so two million different blocks (L2). */
static const char *content(uint64_t n)
{
    return pool + (mix(opt.seed * 1000003u + n) % (POOL_BYTES / 8)) * 8;
}

/* What a sequential write puts at `offset`, whatever its transfer size (a power of two). */
static const char *content_at(uint64_t offset) { return content(offset / XFER_MAX) + offset % XFER_MAX; }

/* ---- XDR out ---- */

typedef struct {
    char *p;
} out;

static void u32(out *o, uint32_t v)
{
    v = htonl(v);
    memcpy(o->p, &v, 4);
    o->p += 4;
}
static void u64(out *o, uint64_t v)
{
    u32(o, (uint32_t)(v >> 32));
    u32(o, (uint32_t)v);
}
static void opaque(out *o, const void *data, uint32_t len)
{
    u32(o, len);
    memcpy(o->p, data, len);
    memset(o->p + len, 0, (4 - len % 4) % 4);
    o->p += (len + 3) / 4 * 4;
}
static void put_handle(out *o, const handle *h) { opaque(o, h->data, h->len); }
static void put_string(out *o, const char *s) { opaque(o, s, (uint32_t)strlen(s)); }

/* RFC 5531 section 9, call body with AUTH_SYS as root. */
static out call(slot *s, uint32_t program, uint32_t procedure)
{
    out o = {s->header + 4};
    u32(&o, (xid_epoch++ << 8) | (uint32_t)(s - slots));
    u32(&o, 0);
    u32(&o, 2);
    u32(&o, program);
    u32(&o, program == NFS ? (uint32_t)opt.vers : 3);
    u32(&o, procedure);
    u32(&o, 1);
    u32(&o, 28); /* stamp, name "load", uid, gid, one group */
    u32(&o, 1);
    put_string(&o, "load");
    u32(&o, 0);
    u32(&o, 0);
    u32(&o, 1);
    u32(&o, 0);
    u32(&o, 0);
    u32(&o, 0);
    s->payload = NULL;
    s->payload_len = 0;
    return o;
}

static void enqueue(slot *s, out o)
{
    s->header_len = (size_t)(o.p - s->header);
    s->sent = 0;
    s->started_ns = now_ns();
    out mark = {s->header};
    u32(&mark, 0x80000000u | (uint32_t)(s->header_len - 4 + s->payload_len));
    queue[(queue_head + queue_len++) % SLOTS_MAX] = (uint32_t)(s - slots);
}

/* ---- the socket ---- */

static void send_some(void)
{
    while (queue_len) {
        struct iovec iov[64];
        int n = 0;
        for (uint32_t i = 0; i < queue_len && n < 62; i++) {
            slot *s = &slots[queue[(queue_head + i) % SLOTS_MAX]];
            if (s->sent < s->header_len)
                iov[n++] = (struct iovec){s->header + s->sent, s->header_len - s->sent};
            size_t done = s->sent > s->header_len ? s->sent - s->header_len : 0;
            if (s->payload_len > done)
                iov[n++] = (struct iovec){(char *)s->payload + done, s->payload_len - done};
        }
        ssize_t w = writev(sock, iov, n);
        if (w < 0) {
            if (errno == EAGAIN)
                return;
            die("the server closed the connection: %s", strerror(errno));
        }
        while (w > 0 && queue_len) {
            slot *s = &slots[queue[queue_head]];
            size_t left = s->header_len + s->payload_len - s->sent;
            size_t take = (size_t)w < left ? (size_t)w : left;
            s->sent += take;
            w -= (ssize_t)take;
            if (take == left) {
                queue_head = (queue_head + 1) % SLOTS_MAX;
                queue_len--;
            }
        }
    }
}

/* ---- XDR in ---- */

typedef struct {
    const uint8_t *p, *end;
} in;

static uint32_t g32(in *i)
{
    if (i->end - i->p < 4)
        die("short reply");
    uint32_t v;
    memcpy(&v, i->p, 4);
    i->p += 4;
    return ntohl(v);
}
static uint64_t g64(in *i)
{
    uint64_t hi = g32(i);
    return hi << 32 | g32(i);
}
static void skip(in *i, size_t n)
{
    if ((size_t)(i->end - i->p) < n)
        die("short reply");
    i->p += n;
}
static handle g_handle(in *i)
{
    handle h = {.len = g32(i)};
    if (h.len > sizeof h.data)
        die("handle too long");
    const uint8_t *at = i->p;
    skip(i, (h.len + 3) / 4 * 4);
    memcpy(h.data, at, h.len);
    return h;
}
static void post_attr(in *i)
{
    if (g32(i))
        skip(i, 84);
}
static void wcc(in *i)
{
    if (g32(i))
        skip(i, 24);
    post_attr(i);
}

/* RFC 5531 section 9, reply body. Returns the slot. */
static slot *reply(in *i)
{
    uint32_t xid = g32(i);
    if (g32(i) != 1 || g32(i) != 0)
        die("the server denied a call");
    g32(i);
    uint32_t verifier = g32(i);
    skip(i, (verifier + 3) / 4 * 4);
    uint32_t accept = g32(i);
    if (accept)
        die("the server refused a call: accept status %u", accept);
    if ((xid & 255) >= SLOTS_MAX)
        die("unknown xid");
    return &slots[xid & 255];
}

/* Waits for at least one whole record; fragments of one record are joined in place. */
static int next_record(in *record, int block)
{
    for (;;) {
        size_t have = rx_end - rx_begin;
        uint32_t mark;
        if (have >= 4) {
            memcpy(&mark, rx + rx_begin, 4);
            mark = ntohl(mark);
            size_t len = mark & 0x7fffffff;
            if (len > XFER_MAX + 65536)
                die("reply of %zu bytes", len);
            if (have >= 4 + len && (mark & 0x80000000u)) {
                record->p = (uint8_t *)rx + rx_begin + 4;
                record->end = record->p + len;
                rx_begin += 4 + len;
                return 1;
            }
            if (have >= 8 + len && !(mark & 0x80000000u)) {
                /* Join: cut the second marker out, keep its last-fragment bit and the summed length. */
                uint32_t second;
                memcpy(&second, rx + rx_begin + 4 + len, 4);
                second = ntohl(second);
                memmove(rx + rx_begin + 8, rx + rx_begin + 4, len);
                rx_begin += 4;
                mark = htonl((second & 0x80000000u) | (uint32_t)(len + (second & 0x7fffffff)));
                memcpy(rx + rx_begin, &mark, 4);
                continue;
            }
        }
        if (rx_begin == rx_end)
            rx_begin = rx_end = 0;
        else if (RECEIVE_BYTES - rx_begin < XFER_MAX + 65536) {
            memmove(rx, rx + rx_begin, have);
            rx_begin = 0;
            rx_end = have;
        }
        ssize_t n = recv(sock, rx + rx_end, RECEIVE_BYTES - rx_end, MSG_DONTWAIT);
        if (n == 0)
            die("the server closed the connection");
        if (n < 0 && errno != EAGAIN)
            die("receive: %s", strerror(errno));
        if (n > 0) {
            rx_end += (size_t)n;
            continue;
        }
        if (!block)
            return 0;
        struct pollfd pfd = {sock, (short)(POLLIN | (queue_len ? POLLOUT : 0)), 0};
        int ready = poll(&pfd, 1, 60000);
        if (ready == 0)
            die("no reply within 60 s");
        if (pfd.revents & POLLOUT)
            send_some();
    }
}

static void connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, opt.host, &a.sin_addr) != 1)
        die("not an IPv4 address: %s", opt.host);
    if (sock >= 0)
        close(sock);
    sock = socket(AF_INET, SOCK_STREAM, 0);
    /* Ganesha and knfsd want a privileged port unless told otherwise. */
    for (int port_own = 1023; port_own > 600; port_own--) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_own), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (bind(sock, (struct sockaddr *)&own, sizeof own))
            continue;
        if (!connect(sock, (struct sockaddr *)&a, sizeof a))
            goto connected;
        if (errno != EADDRNOTAVAIL && errno != EADDRINUSE)
            die("%s:%d: %s", opt.host, port, strerror(errno));
        close(sock);
        sock = socket(AF_INET, SOCK_STREAM, 0);
    }
    if (connect(sock, (struct sockaddr *)&a, sizeof a))
        die("%s:%d: %s", opt.host, port, strerror(errno));
connected:;
    int one = 1;
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    rx_begin = rx_end = 0;
    queue_len = 0;
    if (fcntl(sock, F_SETFL, O_NONBLOCK))
        die("fcntl: %s", strerror(errno));
}

/* One call, alone; returns the body after the RPC header. */
static in alone(out o)
{
    enqueue(&slots[0], o);
    send_some();
    in i;
    next_record(&i, 1);
    reply(&i);
    return i;
}

static handle mount_export(void)
{
    out o = call(&slots[0], MOUNT, 1);
    put_string(&o, opt.export);
    in i = alone(o);
    uint32_t status = g32(&i);
    if (status)
        die("MNT %s: status %u", opt.export, status);
    return g_handle(&i);
}

static int lookup(const handle *in_dir, const char *name, handle *found)
{
    out o = call(&slots[0], NFS, P_LOOKUP);
    put_handle(&o, in_dir);
    put_string(&o, name);
    in i = alone(o);
    if (g32(&i))
        return 0;
    *found = g_handle(&i);
    return 1;
}

static void put_sattr(out *o, uint32_t mode)
{
    u32(o, 1);
    u32(o, mode);
    for (int k = 0; k < 5; k++)
        u32(o, 0); /* uid, gid, size, atime, mtime: leave */
}

/* Handles of CREATE and MKDIR are optional in a reply; a server that leaves them out costs a LOOKUP. */
static handle made(const handle *in_dir, const char *name, uint32_t procedure)
{
    out o = call(&slots[0], NFS, procedure);
    put_handle(&o, in_dir);
    put_string(&o, name);
    if (procedure == P_CREATE)
        u32(&o, 0);
    put_sattr(&o, procedure == P_CREATE ? 0644 : 0755);
    in i = alone(o);
    uint32_t status = g32(&i);
    handle h;
    if (status && status != 17)
        die("making %s: status %u", name, status);
    if (!status && g32(&i))
        return g_handle(&i);
    if (!lookup(in_dir, name, &h))
        die("%s was made but is not found", name);
    return h;
}

/* ---- workloads ---- */

static void file_name(char *name, uint64_t item) { sprintf(name, "f%08llx.%llu", (unsigned long long)mix(item) & 0xffffffff, (unsigned long long)item); }

static uint64_t random_offset(uint64_t item)
{
    return mix(opt.seed * 7919 + item) % (opt.size / opt.xfer) * opt.xfer;
}

static int is(const char *w) { return !strcmp(opt.workload, w); }

static void finish_item(slot *s);
static void check_data(slot *s, const uint8_t *data, uint32_t len);

#include "nfsload4.h"

static void send_read(slot *s, uint64_t offset)
{
    out o = call(s, NFS, P_READ);
    put_handle(&o, &file);
    u64(&o, offset);
    u32(&o, opt.xfer);
    enqueue(s, o);
}

static void send_write(slot *s, const handle *fh, uint64_t offset, uint32_t len, uint32_t stable)
{
    out o = call(s, NFS, P_WRITE);
    put_handle(&o, fh);
    u64(&o, offset);
    u32(&o, len);
    u32(&o, stable);
    u32(&o, len);
    s->payload = is("seqwrite") ? content_at(offset) : content(s->item);
    s->payload_len = len;
    enqueue(s, o);
}

static void send_name(slot *s, uint32_t procedure)
{
    char name[64];
    file_name(name, opt.files ? s->item % opt.files : s->item);
    out o = call(s, NFS, procedure);
    put_handle(&o, &dir);
    put_string(&o, name);
    if (procedure == P_CREATE) {
        u32(&o, 0);
        put_sattr(&o, 0644);
    }
    enqueue(s, o);
}

static void send_commit(slot *s, const handle *fh)
{
    out o = call(s, NFS, P_COMMIT);
    put_handle(&o, fh);
    u64(&o, 0);
    u32(&o, 0);
    enqueue(s, o);
}

static void start_item(slot *s)
{
    if (next_item == items)
        return;
    s->item = next_item++;
    s->stage = 0;
    if (opt.vers == 4) {
        start_item4(s);
        return;
    }
    if (is("seqread"))
        send_read(s, s->item * opt.xfer);
    else if (is("randread"))
        send_read(s, random_offset(s->item));
    else if (is("seqwrite"))
        send_write(s, &file, s->item * opt.xfer, opt.xfer, UNSTABLE);
    else if (is("randwrite"))
        send_write(s, &file, random_offset(s->item), opt.xfer, UNSTABLE);
    else if (is("create-sync") || is("create-unstable"))
        send_name(s, P_CREATE);
    else if (is("lookup"))
        send_name(s, P_LOOKUP);
    else if (is("remove"))
        send_name(s, P_REMOVE);
    else
        die("unknown workload %s", opt.workload);
}

static void finish_item(slot *s)
{
    uint64_t us = (now_ns() - s->started_ns) / 1000;
    latency_us[latency_count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
    done_items++;
    start_item(s);
}

static void check_data(slot *s, const uint8_t *data, uint32_t len)
{
    /* A file made by seqwrite with the same seed. */
    uint64_t at = is("randread") ? random_offset(s->item) : s->item * opt.xfer;
    if (memcmp(data, content_at(at), len))
        die("wrong bytes at offset %llu", (unsigned long long)at);
}

static void on_read(slot *s, in *i)
{
    post_attr(i);
    uint32_t count = g32(i);
    uint32_t eof = g32(i);
    uint32_t len = g32(i);
    if (count != len || (len != opt.xfer && !eof) || len == 0)
        die("READ of %u bytes answered %u", opt.xfer, len);
    const uint8_t *data = i->p;
    skip(i, len);
    if (opt.verify)
        check_data(s, data, len);
    bytes_moved += len;
    finish_item(s);
}

static void on_write(slot *s, in *i, uint32_t len)
{
    wcc(i);
    uint32_t count = g32(i);
    g32(i);
    uint64_t verifier = g64(i);
    if (count != len)
        die("WRITE of %u bytes took %u", len, count);
    if (have_verifier && verifier != write_verifier)
        die("the write verifier changed: the server restarted");
    have_verifier = 1;
    write_verifier = verifier;
    bytes_moved += len;
    finish_item(s);
}

static void on_created(slot *s, in *i)
{
    if (!g32(i))
        die("CREATE gave no handle");
    s->fh = g_handle(i);
    s->stage = 1;
    uint64_t started = s->started_ns;
    send_write(s, &s->fh, 0, PAGE, is("create-sync") ? FILE_SYNC : UNSTABLE);
    s->started_ns = started;
}

static void on_found(slot *s, in *i)
{
    handle fh = g_handle(i);
    s->stage = 1;
    out o = call(s, NFS, P_GETATTR);
    put_handle(&o, &fh);
    uint64_t started = s->started_ns;
    enqueue(s, o);
    s->started_ns = started;
}

static void on_reply(slot *s, in *i)
{
    if (opt.vers == 4) {
        on_reply4(s, i);
        return;
    }
    uint32_t status = g32(i);
    if (status)
        die("%s: status %u at item %llu", opt.workload, status, (unsigned long long)s->item);
    if (is("seqread") || is("randread"))
        on_read(s, i);
    else if (is("seqwrite") || is("randwrite"))
        on_write(s, i, opt.xfer);
    else if (is("create-sync") || is("create-unstable"))
        s->stage ? on_write(s, i, PAGE) : on_created(s, i);
    else if (is("lookup") && s->stage == 0)
        on_found(s, i);
    else
        finish_item(s);
}

static void run(void)
{
    for (uint32_t d = 0; d < opt.depth; d++)
        start_item(&slots[d]);
    send_some();
    while (done_items < items) {
        in i;
        next_record(&i, 1);
        do
            on_reply(reply(&i), &i);
        while (next_record(&i, 0));
        send_some();
    }
}

static void commit_file(void)
{
    if (opt.vers == 4)
        send_commit4(&slots[0], &file);
    else
        send_commit(&slots[0], &file);
    send_some();
    in i;
    next_record(&i, 1);
    reply(&i);
    if (opt.vers == 4) {
        begin4(&i);
        good4(&i, O_PUTFH);
        good4(&i, O_COMMIT);
        verifier4(&i);
        return;
    }
    uint32_t status = g32(&i);
    if (status)
        die("COMMIT: status %u", status);
    wcc(&i);
    if (have_verifier && g64(&i) != write_verifier)
        die("the write verifier changed before COMMIT");
}

static uint32_t fsinfo_limit(void)
{
    out o = call(&slots[0], NFS, P_FSINFO);
    put_handle(&o, &root);
    in i = alone(o);
    if (g32(&i))
        die("FSINFO failed");
    post_attr(&i);
    uint32_t rtmax = g32(&i);
    skip(&i, 8);
    uint32_t wtmax = g32(&i);
    return rtmax < wtmax ? rtmax : wtmax;
}

static void prepare(void)
{
    if (opt.vers == 4) {
        prepare4();
    } else {
        connect_to(opt.mount_port);
        root = mount_export();
        connect_to(opt.port);
        uint32_t limit = fsinfo_limit();
        while (opt.xfer > limit && opt.xfer > 8)
            opt.xfer /= 2;
    }
    int on_files = is("create-sync") || is("create-unstable") || is("lookup") || is("remove");
    if (on_files) {
        dir = opt.vers == 4 ? made_dir4(&root, opt.path) : made(&root, opt.path, P_MKDIR);
        items = opt.count;
        return;
    }
    file = opt.vers == 4 ? made_file4(&root, opt.path) : made(&root, opt.path, P_CREATE);
    items = is("randread") || is("randwrite") ? opt.count : opt.size / opt.xfer;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void report(double seconds, double cpu)
{
    qsort(latency_us, latency_count, sizeof *latency_us, by_value);
#define AT(q) (latency_count ? latency_us[(uint64_t)((double)(latency_count - 1) * (q))] : 0)
    printf("{\"workload\": \"%s\", \"seconds\": %.6f, \"ops\": %llu, \"bytes\": %llu, \"ops_per_s\": %.1f, \"mb_per_s\": %.2f, "
           "\"client_cpu_s\": %.4f, \"xfer_bytes\": %u, \"depth\": %u, \"p50_us\": %u, \"p99_us\": %u, \"max_us\": %u}\n",
           opt.workload, seconds, (unsigned long long)done_items, (unsigned long long)bytes_moved, (double)done_items / seconds,
           (double)bytes_moved / seconds / 1e6, cpu, opt.xfer, opt.depth, AT(0.5), AT(0.99), AT(1.0));
}

static uint64_t number(const char *s)
{
    char *end;
    double v = strtod(s, &end);
    uint64_t unit = *end == 'k' ? 1u << 10 : *end == 'm' ? 1u << 20 : *end == 'g' ? 1u << 30 : 1;
    if (end == s || v < 0 || (*end && unit == 1))
        die("not a number: %s", s);
    return (uint64_t)(v * (double)unit);
}

static void parse(int argc, char **argv)
{
    int a = 1;
    for (; a + 1 < argc && !strncmp(argv[a], "--", 2); a += 2) {
        const char *k = argv[a] + 2, *v = argv[a + 1];
        if (!strcmp(k, "host")) opt.host = v;
        else if (!strcmp(k, "export")) opt.export = v;
        else if (!strcmp(k, "port")) opt.port = (int)number(v);
        else if (!strcmp(k, "vers")) opt.vers = (int)number(v);
        else if (!strcmp(k, "mount-port")) opt.mount_port = (int)number(v);
        else if (!strcmp(k, "size")) opt.size = number(v);
        else if (!strcmp(k, "count")) opt.count = number(v);
        else if (!strcmp(k, "files")) opt.files = number(v);
        else if (!strcmp(k, "seed")) opt.seed = number(v);
        else if (!strcmp(k, "depth")) opt.depth = (uint32_t)number(v);
        else if (!strcmp(k, "xfer")) opt.xfer = (uint32_t)number(v);
        else if (!strcmp(k, "verify")) opt.verify = (int)number(v);
        else die("unknown option --%s", k);
    }
    if (argc - a != 2)
        die("usage: nfsload [--vers 3|4 --host A --port N --mount-port N --export PATH --size N --count N --files N --depth N --xfer N --seed N --verify 1] WORKLOAD FILE-OR-DIR\n"
            "workloads: seqwrite seqread randread randwrite drop (on a file), create-sync create-unstable lookup remove (in a directory)");
    opt.workload = argv[a];
    opt.path = argv[a + 1];
    if (!opt.mount_port)
        opt.mount_port = opt.port;
    if (opt.vers != 3 && opt.vers != 4)
        die("version 3, or 4 for NFSv4.1");
    if (opt.depth < 1 || opt.depth > SLOTS_MAX - 1 || opt.xfer < 8 || opt.xfer > XFER_MAX || (opt.xfer & (opt.xfer - 1)) || opt.size < opt.xfer)
        die("depth 1..255, xfer a power of two up to 1m, size at least xfer");
}

/* Removes one file of the root, there or not: cleaning up between runs, not a measurement. */
static void drop(void)
{
    if (opt.vers == 4) {
        drop4();
        return;
    }
    connect_to(opt.mount_port);
    root = mount_export();
    connect_to(opt.port);
    out o = call(&slots[0], NFS, P_REMOVE);
    put_handle(&o, &root);
    put_string(&o, opt.path);
    in i = alone(o);
    uint32_t status = g32(&i);
    if (status && status != 2)
        die("REMOVE %s: status %u", opt.path, status);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    rx = malloc(RECEIVE_BYTES);
    if (!rx)
        die("no memory");
    if (is("drop")) {
        drop();
        return 0;
    }
    fill_pool();
    prepare();
    latency_us = calloc(items + 1, sizeof *latency_us);
    if (!latency_us)
        die("no memory");
    double cpu = cpu_s();
    uint64_t started = now_ns();
    run();
    if (is("seqwrite") || is("randwrite"))
        commit_file();
    double seconds = (double)(now_ns() - started) / 1e9;
    report(seconds, cpu_s() - cpu);
    return 0;
}

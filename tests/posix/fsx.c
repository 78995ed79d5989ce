// One file, random operations, a shadow copy in memory: the file must read as the shadow at every step.
//
//   fsx [-s seed] [-n operations] [-l bytes_max] [-d] FILE
//
// Reads, writes, mapped reads and writes, truncation both ways, holes, zeroed ranges, preallocation, copies within
// the file, fsync, and reopening (which drops what the kernel may keep) are mixed. -d adds O_DIRECT reads and
// writes. The seed is printed; the same seed makes the same run. The exit status is 0 if nothing differed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HISTORY 40
#define PAGE 4096

static uint64_t rng_state;
static char history[HISTORY][96];
static unsigned long step;
static uint8_t *shadow, *scratch;
static size_t size_bytes, size_max = 1 << 20;
static const char *path;
static int fd = -1, fd_direct = -1, use_direct;

static uint64_t rng(void) {  // splitmix64
    uint64_t z = (rng_state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static size_t below(size_t bound) { return bound ? rng() % bound : 0; }

static void fail(const char *what) {
    int why = errno;
    fprintf(stderr, "fsx: step %lu: %s (%s)\nlast operations:\n", step, what, strerror(why));
    for (unsigned i = 0; i < HISTORY; i++) {
        const char *line = history[(step + 1 + i) % HISTORY];
        if (*line) fprintf(stderr, "  %s\n", line);
    }
    exit(1);
}

static void note(const char *op, size_t offset, size_t len) {
    snprintf(history[step % HISTORY], sizeof history[0], "%lu %s offset %zu len %zu size %zu", step, op, offset, len,
             size_bytes);
}

static void same(const uint8_t *got, size_t offset, size_t len, const char *how) {
    for (size_t i = 0; i < len; i++) {
        if (got[i] == shadow[offset + i]) continue;
        char text[160];
        size_t run = 1;
        while (i + run < len && got[i + run] != shadow[offset + i + run]) run++;
        snprintf(text, sizeof text, "%s: byte %zu is %02x, should be %02x; %zu bytes differ", how, offset + i, got[i],
                 shadow[offset + i], run);
        errno = 0;
        fail(text);
    }
}

static void same_size(void) {
    struct stat st;
    if (fstat(fd, &st)) fail("fstat");
    if ((size_t)st.st_size != size_bytes) {
        char text[100];
        snprintf(text, sizeof text, "size is %lld, should be %zu", (long long)st.st_size, size_bytes);
        errno = 0;
        fail(text);
    }
}

static void grow(size_t end) {  // the shadow beyond the size is always zero
    if (end > size_bytes) size_bytes = end;
}

static void fill(size_t len) {
    uint64_t kind = below(8);
    for (size_t i = 0; i < len; i++) scratch[i] = kind == 0 ? 0 : kind < 3 ? (uint8_t)step : (uint8_t)rng();
}

static void range(size_t *offset, size_t *len, size_t bound) {
    static const size_t units[] = {1, 1, 512, PAGE, 128 << 10};
    size_t unit = units[below(5)];
    *offset = below(bound) / unit * unit;
    size_t longest = below(10) ? 64 << 10 : size_max;
    *len = 1 + below(longest);
    if (unit > 1 && below(2)) *len = (*len + unit - 1) / unit * unit;
    if (*offset + *len > size_max) *len = size_max - *offset;
}

static void open_file(void) {
    if (fd >= 0 && close(fd)) fail("close");
    if ((fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0) fail("open");
    if (!use_direct) return;
    if (fd_direct >= 0 && close(fd_direct)) fail("close");
    if ((fd_direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC)) < 0) fail("open O_DIRECT");
}

static void do_read(void) {
    size_t offset, len;
    range(&offset, &len, size_bytes + 1);
    int direct = use_direct && below(3) == 0;
    if (direct) offset = offset / PAGE * PAGE, len = (len + PAGE - 1) / PAGE * PAGE;
    note(direct ? "read direct" : "read", offset, len);
    size_t expected = offset >= size_bytes ? 0 : size_bytes - offset < len ? size_bytes - offset : len;
    ssize_t got = pread(direct ? fd_direct : fd, scratch, len, offset);
    if (got < 0) fail("read");
    if ((size_t)got != expected) errno = 0, fail("read: wrong count");
    same(scratch, offset, got, "read");
}

static void do_write(void) {
    size_t offset, len;
    range(&offset, &len, size_max);
    int direct = use_direct && below(3) == 0;
    if (direct) {
        offset = offset / PAGE * PAGE;
        len = len / PAGE * PAGE;
    }
    if (!len) return;
    note(direct ? "write direct" : "write", offset, len);
    fill(len);
    ssize_t put = pwrite(direct ? fd_direct : fd, scratch, len, offset);
    if (put < 0 || (size_t)put != len) fail("write");
    memcpy(shadow + offset, scratch, len);
    grow(offset + len);
}

static void do_append(void) {
    size_t len = 1 + below(8192);
    if (size_bytes + len > size_max) return;
    note("append", size_bytes, len);
    fill(len);
    int at_end = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (at_end < 0) fail("open O_APPEND");
    if (write(at_end, scratch, len) != (ssize_t)len) fail("append");
    if (close(at_end)) fail("close");
    memcpy(shadow + size_bytes, scratch, len);
    grow(size_bytes + len);
}

static void do_truncate(void) {
    size_t to = below(4) ? below(size_max + 1) : below(size_bytes + 1);
    note("truncate", to, 0);
    if (below(2) ? ftruncate(fd, to) : truncate(path, to)) fail("truncate");
    if (to < size_bytes) memset(shadow + to, 0, size_bytes - to);
    size_bytes = to;
}

static void do_map(int writing) {
    if (!size_bytes) return;
    size_t offset, len;
    range(&offset, &len, size_bytes);
    if (offset + len > size_bytes) len = size_bytes - offset;
    note(writing ? "map write" : "map read", offset, len);
    size_t start = offset / PAGE * PAGE;
    uint8_t *map = mmap(NULL, offset + len - start, writing ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, start);
    if (map == MAP_FAILED) fail("mmap");
    if (writing) {
        fill(len);
        memcpy(map + (offset - start), scratch, len);
        memcpy(shadow + offset, scratch, len);
        if (below(2) && msync(map, offset + len - start, MS_SYNC)) fail("msync");
    } else {
        same(map + (offset - start), offset, len, "map read");
    }
    if (munmap(map, offset + len - start)) fail("munmap");
}

static void do_fallocate(const char *name, int mode) {
    size_t offset, len;
    range(&offset, &len, size_max);
    note(name, offset, len);
    if (fallocate(fd, mode, offset, len)) fail(name);
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        size_t end = offset + len;
        if (mode & FALLOC_FL_KEEP_SIZE && end > size_bytes) end = size_bytes;
        if (end > offset) memset(shadow + offset, 0, end - offset);
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE)) grow(offset + len);
}

static void do_copy(void) {
    if (size_bytes < 2) return;
    size_t from, len;
    range(&from, &len, size_bytes);
    if (from + len > size_bytes) len = size_bytes - from;
    size_t to = below(size_max);
    if (to + len > size_max) len = size_max - to;
    if (!len || (from < to + len && to < from + len)) return;
    note("copy to", to, len);
    loff_t in = from, out = to;
    size_t left = len;
    while (left) {
        ssize_t n = copy_file_range(fd, &in, fd, &out, left, 0);
        if (n <= 0) fail("copy_file_range");
        left -= n;
    }
    memmove(shadow + to, shadow + from, len);
    grow(to + len);
}

static void do_seek(void) {
    size_t offset = below(size_bytes + 1);
    note("seek data", offset, 0);
    off_t data = lseek(fd, offset, SEEK_DATA);
    if (data < 0 && errno != ENXIO) fail("SEEK_DATA");
    size_t end = data < 0 ? size_bytes : (size_t)data;
    for (size_t i = offset; i < end && i < size_bytes; i++)
        if (shadow[i]) errno = 0, fail("SEEK_DATA skipped data");
    off_t hole = lseek(fd, offset, SEEK_HOLE);
    if (hole < 0 && !(errno == ENXIO && offset >= size_bytes)) fail("SEEK_HOLE");
    if (hole >= 0 && ((size_t)hole < offset || (size_t)hole > size_bytes)) errno = 0, fail("SEEK_HOLE out of the file");
}

static void one(void) {
    switch (below(20)) {
    case 0: case 1: case 2: case 3: return do_read();
    case 4: case 5: case 6: case 7: return do_write();
    case 8: case 9: return do_map(0);
    case 10: case 11: return do_map(1);
    case 12: return do_truncate();
    case 13: return do_fallocate("punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    case 14: return do_fallocate("zero", below(2) ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
    case 15: return do_fallocate("allocate", below(2) ? 0 : FALLOC_FL_KEEP_SIZE);
    case 16: return do_copy();
    case 17: return do_append();
    case 18: return do_seek();
    default:
        if (below(3)) {
            note("fsync", 0, 0);
            if (below(2) ? fsync(fd) : fdatasync(fd)) fail("fsync");
        } else {
            note("reopen", 0, 0);
            if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) fail("fadvise");
            open_file();
        }
    }
}

int main(int argc, char **argv) {
    unsigned long seed = time(NULL), operations = 10000;
    int option;
    while ((option = getopt(argc, argv, "s:n:l:d")) != -1) {
        if (option == 's') seed = strtoul(optarg, NULL, 0);
        else if (option == 'n') operations = strtoul(optarg, NULL, 0);
        else if (option == 'l') size_max = strtoul(optarg, NULL, 0);
        else if (option == 'd') use_direct = 1;
        else return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: fsx [-s seed] [-n operations] [-l bytes_max] [-d] FILE\n");
        return 2;
    }
    path = argv[optind];
    rng_state = seed;
    size_max = (size_max + PAGE - 1) / PAGE * PAGE;
    shadow = calloc(1, size_max);
    if (!shadow || posix_memalign((void **)&scratch, PAGE, size_max + PAGE)) return 2;
    printf("fsx: seed %lu, %lu operations, up to %zu bytes%s\n", seed, operations, size_max,
           use_direct ? ", with O_DIRECT" : "");
    fflush(stdout);
    unlink(path);
    open_file();
    for (step = 1; step <= operations; step++) {
        one();
        same_size();
    }
    note("final read", 0, size_bytes);
    open_file();
    if (pread(fd, scratch, size_max, 0) != (ssize_t)size_bytes) fail("final read");
    same(scratch, 0, size_bytes, "final read");
    return 0;
}

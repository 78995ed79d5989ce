// Writes one file while O_DIRECT is set and taken away on its open file: a write begins with the kernel's pages and is
// asked for as one past them. Writes are parts of pages, since the kernel keeps such a page locked until the answer. Each
// writer has pages of its own and reads back what it wrote.
//
//   toggle FILE SECONDS WRITERS      writers are threads, which share the open file with the one that toggles
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PART = 512, PAGES_EACH = 16, WRITERS_MAX = 16 };

static int fd, seconds;
static volatile int over;
static long counts[WRITERS_MAX];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *write_pages(void *arg) {
    long self = (long)arg;
    unsigned char *page, *back;
    if (posix_memalign((void **)&page, PAGE, PAGE) || posix_memalign((void **)&back, PAGE, PAGE)) fail("memory");
    for (long count = 0; !over; count++) {
        off_t at = (self * PAGES_EACH + count % PAGES_EACH) * (off_t)PAGE + count % (PAGE / PART) * PART;
        memset(page, (int)(count % 251), PART);
        if (pwrite(fd, page, PART, at) != PART) fail("pwrite");
        if (count % 8 == 0) {
            if (pread(fd, back, PART, at) != PART) fail("pread");
            if (memcmp(page, back, PART)) {
                fprintf(stderr, "page %ld is not as it was written\n", (long)(at / PAGE));
                exit(1);
            }
        }
        counts[self] = count;
    }
    return NULL;
}

static void *toggle(void *unused) {
    (void)unused;
    while (!over) {
        if (fcntl(fd, F_SETFL, O_DIRECT) || fcntl(fd, F_SETFL, 0)) fail("fcntl");
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    seconds = atoi(argv[2]);
    long writers = atol(argv[3]);
    if (writers < 1 || writers > WRITERS_MAX) return 2;
    fd = open(argv[1], O_RDWR | O_CREAT, 0666);
    // Never shorter: others may use what lies behind.
    if (fd < 0 || pwrite(fd, "", 1, (off_t)PAGE * PAGES_EACH * WRITERS_MAX - 1) != 1) fail(argv[1]);
    pthread_t toggler, threads[WRITERS_MAX];
    if (pthread_create(&toggler, NULL, toggle, NULL)) fail("thread");
    for (long n = 0; n < writers; n++) {
        if (pthread_create(&threads[n], NULL, write_pages, (void *)n)) fail("thread");
    }
    sleep((unsigned)seconds);
    over = 1;
    pthread_join(toggler, NULL);
    long least = counts[0];
    for (long n = 0; n < writers; n++) {
        pthread_join(threads[n], NULL);
        least = counts[n] < least ? counts[n] : least;
    }
    printf("%ld\n", least);
    return 0;
}

// Many processes at random in one tree: every operation must succeed or fail in a way that POSIX allows.
//
//   load [-s seed] [-p processes] [-n operations] DIR
//
// Data is written in units of 512 bytes, each stamped with its place in the file and a checksum, so a unit that
// is neither zero nor whole is a torn or misplaced write. At the end the tree is walked: the link
// count of every file equals its names, that of every directory its subdirectories plus two; then it is removed.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define UNIT 512
#define DIRS 6
#define FILES 24

static uint64_t rng_state;
static unsigned self;
static unsigned long step;

static uint64_t rng(void) {
    uint64_t z = (rng_state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static unsigned below(unsigned bound) { return rng() % bound; }

static void fail(const char *what, const char *path) {
    fprintf(stderr, "load: process %u step %lu: %s %s: %s\n", self, step, what, path, strerror(errno));
    exit(1);
}

static void allowed(int result, const char *what, const char *path, const int *errors) {
    if (result >= 0) return;
    for (; *errors; errors++)
        if (errno == *errors) return;
    fail(what, path);
}

#define ALLOWED(call, path, ...) allowed(call, #call, path, (const int[]){__VA_ARGS__, 0})

static void dir_name(char *out) {
    unsigned depth = below(3), at = sprintf(out, ".");
    for (unsigned i = 0; i < depth; i++) at += sprintf(out + at, "/d%u", below(DIRS));
}

static void file_name(char *out) {
    dir_name(out);
    sprintf(out + strlen(out), "/f%u", below(FILES));
}

static uint64_t sum(const uint64_t *words) {
    uint64_t total = 0x1234567;
    for (unsigned i = 1; i < UNIT / 8; i++) total = (total ^ words[i]) * 0x100000001B3ull;
    return total | 1;
}

static void stamp(uint64_t *words, uint64_t offset) {
    words[1] = offset;
    words[2] = self;
    words[3] = step;
    for (unsigned i = 4; i < UNIT / 8; i++) words[i] = step * i + self;
    words[0] = sum(words);
}

static void check(const uint64_t *words, uint64_t offset, const char *path) {
    uint64_t any = 0;
    for (unsigned i = 0; i < UNIT / 8; i++) any |= words[i];
    if (!any) return;
    errno = 0;
    if (words[0] != sum(words)) fail("torn unit in", path);
    if (words[1] != offset) fail("misplaced unit in", path);
}

static void transfer(const char *path, int writing) {
    int fd = open(path, (writing ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW, 0644);
    ALLOWED(fd, path, ENOENT, ENOTDIR, ELOOP, EISDIR);
    if (fd < 0) return;
    uint64_t buffer[64 * UNIT / 8];
    unsigned units = 1 + below(64);
    uint64_t offset = (uint64_t)below(512) * UNIT;
    if (writing) {
        for (unsigned i = 0; i < units; i++) stamp(buffer + i * UNIT / 8, offset + i * UNIT);
        if (pwrite(fd, buffer, units * UNIT, offset) != (ssize_t)(units * UNIT)) fail("pwrite", path);
        if (below(16) == 0 && fsync(fd)) fail("fsync", path);
    } else {
        ssize_t got = pread(fd, buffer, units * UNIT, offset);
        if (got < 0) fail("pread", path);
        for (unsigned i = 0; i < got / UNIT; i++) check(buffer + i * UNIT / 8, offset + i * UNIT, path);
    }
    if (close(fd)) fail("close", path);
}

static void list(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) {
        ALLOWED(-1, path, ENOENT, ENOTDIR);
        return;
    }
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)); errno = 0) {
        if (!*entry->d_name) fail("empty name in", path);
    }
    if (errno && errno != ENOENT) fail("readdir", path);
    closedir(dir);
}

static void one(void) {
    char a[128], b[128];
    struct stat st;
    file_name(a);
    file_name(b);
    switch (below(18)) {
    case 0: case 1: case 2: transfer(a, 1); break;
    case 3: case 4: transfer(a, 0); break;
    case 5: ALLOWED(rename(a, b), b, ENOENT, ENOTDIR, EISDIR); break;
    case 6: ALLOWED(link(a, b), b, ENOENT, EEXIST, ENOTDIR, EPERM); break;
    case 7: ALLOWED(symlink("f1", a), a, ENOENT, EEXIST, ENOTDIR); break;
    case 8: case 9: ALLOWED(unlink(a), a, ENOENT, ENOTDIR, EISDIR); break;
    case 10:
        dir_name(a);
        ALLOWED(mkdir(a, 0755), a, ENOENT, EEXIST, ENOTDIR);
        break;
    case 11:
        dir_name(a);
        if (a[1] && below(3) == 0) ALLOWED(rmdir(a), a, ENOENT, ENOTEMPTY, EEXIST, ENOTDIR);
        break;
    case 12:
        dir_name(a), dir_name(b);
        if (a[1] && b[1]) ALLOWED(rename(a, b), b, ENOENT, ENOTEMPTY, EEXIST, EINVAL, ENOTDIR);
        break;
    case 13: ALLOWED(truncate(a, (off_t)below(512) * UNIT), a, ENOENT, ENOTDIR, ELOOP); break;
    case 14:
        ALLOWED(lstat(a, &st), a, ENOENT, ENOTDIR);
        break;
    case 15: dir_name(a), list(a); break;
    case 16: ALLOWED(lsetxattr(a, "user.load", &step, sizeof step, 0), a, ENOENT, ENOTDIR, EPERM); break;
    default: ALLOWED(renameat2(AT_FDCWD, a, AT_FDCWD, b, 2 /* exchange */), b, ENOENT, ENOTDIR); break;
    }
}

static struct { ino_t ino; nlink_t names, nlink; } seen[65536];
static unsigned seen_count;
static unsigned long names_found;

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)ftw;
    names_found++;
    errno = 0;
    if (type == FTW_DNR || type == FTW_NS) fail("cannot walk", path);
    if (type == FTW_D) {
        unsigned subdirs = 0;
        DIR *dir = opendir(path);
        if (!dir) fail("opendir", path);
        for (struct dirent *entry; (entry = readdir(dir));) subdirs += entry->d_type == DT_DIR;
        closedir(dir);
        if (st->st_nlink != subdirs) {  // `.` and `..` are listed too
            fprintf(stderr, "load: %s: %lu links, but %u subdirectories\n", path, (unsigned long)st->st_nlink, subdirs);
            exit(1);
        }
        return 0;
    }
    unsigned i = 0;
    while (i < seen_count && seen[i].ino != st->st_ino) i++;
    if (i == seen_count) {
        if (seen_count == 65536) fail("too many files at", path);
        seen[seen_count].ino = st->st_ino;
        seen[seen_count++].nlink = st->st_nlink;
    }
    seen[i].names++;
    if (S_ISREG(st->st_mode)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) fail("open", path);
        uint64_t unit[UNIT / 8];
        for (uint64_t offset = 0; pread(fd, unit, UNIT, offset) == UNIT; offset += UNIT) check(unit, offset, path);
        close(fd);
    }
    return 0;
}

static int erase(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    if (ftw->level && (type == FTW_DP ? rmdir(path) : unlink(path))) fail("cannot remove", path);
    return 0;
}

int main(int argc, char **argv) {
    unsigned long seed = 1, processes = 8, operations = 2000;
    int option, failed = 0, status;
    while ((option = getopt(argc, argv, "s:p:n:")) != -1) {
        if (option == 's') seed = strtoul(optarg, NULL, 0);
        else if (option == 'p') processes = strtoul(optarg, NULL, 0);
        else if (option == 'n') operations = strtoul(optarg, NULL, 0);
        else return 2;
    }
    if (optind + 1 != argc || chdir(argv[optind])) {
        fprintf(stderr, "usage: load [-s seed] [-p processes] [-n operations] DIR\n");
        return 2;
    }
    printf("load: seed %lu, %lu processes, %lu operations each\n", seed, processes, operations);
    fflush(stdout);
    for (self = 1; self <= processes; self++) {
        pid_t pid = fork();
        if (pid < 0) return 2;
        if (pid) continue;
        rng_state = seed * 1000003 + self;
        for (step = 1; step <= operations; step++) one();
        _exit(0);
    }
    while (wait(&status) > 0) failed |= status != 0;
    if (failed) return 1;
    self = 0;
    if (nftw(".", visit, 32, FTW_PHYS)) return 1;
    for (unsigned i = 0; i < seen_count; i++) {
        if (seen[i].names == seen[i].nlink) continue;
        fprintf(stderr, "load: inode %lu has %lu links but %lu names\n", (unsigned long)seen[i].ino,
                (unsigned long)seen[i].nlink, (unsigned long)seen[i].names);
        return 1;
    }
    if (nftw(".", erase, 32, FTW_PHYS | FTW_DEPTH)) return 1;
    printf("load: %lu names of %u files were consistent\n", names_found, seen_count);
    return 0;
}

/* LD_PRELOAD: a machine of 512 MiB. A passphrase is hashed with an eighth of the memory, and at least 64 MiB (larder-crypt,
 * Work::for_memory): on a large machine each of hundreds of guesses of a test costs a second of a core. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char MEMORY[] = "MemTotal: 524288 kB\nMemFree: 393216 kB\nMemAvailable: 393216 kB\n";

static int opened(const char *name, const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
	if (strcmp(path, "/proc/meminfo") != 0)
		return next(path, flags, mode);
	int file = memfd_create("meminfo", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (file >= 0 && (write(file, MEMORY, sizeof MEMORY - 1) < 0 || lseek(file, 0, SEEK_SET) < 0)) {
		close(file);
		return -1;
	}
	return file;
}

static mode_t mode_of(int flags, va_list rest)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_of(flags, rest);
	va_end(rest);
	return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_of(flags, rest);
	va_end(rest);
	return opened("open64", path, flags, mode);
}

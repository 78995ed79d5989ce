/* Local users who exchange names while a server works on them. Usage: exchanger ROLE FOLDER NAME [OTHER], until SIGTERM.
 *
 *   exchange  exchanges NAME and OTHER, again and again
 *   flicker   makes the file NAME and renames it to OTHER, so that NAME comes and goes
 *   claim     makes the file NAME where it is free, and looks whether it kept the name: only its owner may take it
 *
 * The last line says "TRIES LOST".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;
static int folder;
static const char *name, *other;
static long tries, lost;

static void end(int signal) { (void)signal; ended = 1; }

static void pause_us(long us) {
    struct timespec time = {0, us * 1000};
    nanosleep(&time, 0);
}

static void exchange(void) {
    /* RENAME_EXCHANGE */
    if (syscall(SYS_renameat2, folder, name, folder, other, 2) == 0) {
        tries++;
        pause_us(tries % 7 * 100);
    }
}

static void flicker(void) {
    int file = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (file >= 0) {
        close(file);
        tries++;
    }
    pause_us(20);
    /* Also what a server has put there meanwhile: otherwise the name is never free again. */
    renameat(folder, name, folder, other);
}

static void claim(void) {
    struct stat mine, there;
    int file = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file < 0)
        return;
    tries++;
    /* Long enough for a slow server that has seen another file here, not for one that looks now. */
    pause_us(tries % 4 * 1000 + 60);
    fstat(file, &mine);
    if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || there.st_ino != mine.st_ino)
        lost++;
    else
        unlinkat(folder, name, 0);
    close(file);
}

int main(int count, char **words) {
    if (count < 4 || (folder = open(words[2], O_PATH | O_DIRECTORY)) < 0)
        return 2;
    name = words[3];
    other = count > 4 ? words[4] : "";
    void (*role)(void) = strcmp(words[1], "exchange") == 0 ? exchange
                         : strcmp(words[1], "flicker") == 0 ? flicker
                                                            : claim;
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    while (!ended)
        role();
    printf("%ld %ld\n", tries, lost);
    return 0;
}

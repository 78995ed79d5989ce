/*
 * nfsprobe URL: libnfs' asynchronous API with many requests in flight, as a media player or qemu would use it.
 * Makes 64 files at once, writes and reads 64 blocks of one file in flight, and compares. Says "ok" at the end.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <nfsc/libnfs.h>

#define FILES 64
#define BLOCKS 64
#define BLOCK_BYTES 65536

static int waiting;
static char blocks[BLOCKS][BLOCK_BYTES];

static void fail(const char *what, const char *why)
{
    printf("%s: %s\n", what, why);
    exit(1);
}

static void turn(struct nfs_context *nfs)
{
    struct pollfd pfd = {.fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs)};
    if (poll(&pfd, 1, 30000) <= 0)
        fail("poll", "no answer within 30 s");
    if (nfs_service(nfs, pfd.revents) < 0)
        fail("service", nfs_get_error(nfs));
}

static void made(int status, struct nfs_context *nfs, void *data, void *private_data)
{
    (void)private_data;
    if (status < 0)
        fail("creat", data ? (char *)data : nfs_get_error(nfs));
    waiting--;
}

static void wrote(int status, struct nfs_context *nfs, void *data, void *private_data)
{
    (void)data, (void)private_data;
    if (status != BLOCK_BYTES)
        fail("pwrite", nfs_get_error(nfs));
    waiting--;
}

static void got(int status, struct nfs_context *nfs, void *data, void *private_data)
{
    intptr_t n = (intptr_t)private_data;
    if (status != BLOCK_BYTES)
        fail("pread", nfs_get_error(nfs));
    if (memcmp(data, blocks[n], BLOCK_BYTES))
        fail("pread", "wrong bytes");
    waiting--;
}

int main(int argc, char **argv)
{
    struct nfs_context *nfs = nfs_init_context();
    if (argc != 2 || !nfs)
        return 2;
    /* nfs_parse_url_dir takes the whole path as the directory to mount. */
    struct nfs_url *url = nfs_parse_url_dir(nfs, argv[1]);
    if (!url)
        fail("url", nfs_get_error(nfs));
    char *export = strdup(url->path), *folder = strrchr(export, '/');
    *folder++ = 0;
    if (nfs_mount(nfs, url->server, export))
        fail("mount", nfs_get_error(nfs));
    if (nfs_chdir(nfs, folder))
        fail("chdir", nfs_get_error(nfs));

    for (int n = 0; n < FILES; n++) {
        char name[64];
        snprintf(name, sizeof name, "async%d", n);
        if (nfs_creat_async(nfs, name, 0644, made, NULL))
            fail("creat", nfs_get_error(nfs));
        waiting++;
    }
    while (waiting)
        turn(nfs);

    struct nfsfh *fh;
    if (nfs_open(nfs, "async7", O_RDWR, &fh))
        fail("open", nfs_get_error(nfs));
    for (int n = 0; n < BLOCKS; n++) {
        for (int k = 0; k < BLOCK_BYTES; k++)
            blocks[n][k] = (char)(rand() >> 7);
        if (nfs_pwrite_async(nfs, fh, (uint64_t)n * BLOCK_BYTES, BLOCK_BYTES, blocks[n], wrote, NULL))
            fail("pwrite", nfs_get_error(nfs));
        waiting++;
    }
    while (waiting)
        turn(nfs);
    if (nfs_fsync(nfs, fh))
        fail("fsync", nfs_get_error(nfs));
    for (intptr_t n = BLOCKS - 1; n >= 0; n--) {
        if (nfs_pread_async(nfs, fh, (uint64_t)n * BLOCK_BYTES, BLOCK_BYTES, got, (void *)n))
            fail("pread", nfs_get_error(nfs));
        waiting++;
    }
    while (waiting)
        turn(nfs);
    struct nfs_stat_64 st;
    if (nfs_stat64(nfs, "async7", &st) || st.nfs_size != (uint64_t)BLOCKS * BLOCK_BYTES)
        fail("stat", "wrong size");
    nfs_close(nfs, fh);
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    printf("ok\n");
    return 0;
}

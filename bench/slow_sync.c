/* A disk whose syncs take longer: what makes bytes durable returns that much later.
 *
 * Loaded before libc into the servers of a benchmark (LD_PRELOAD), ours and others' alike.
 * LEDGERMQ_BENCH_SYNC_US: how much longer, in microseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

static void take_longer(void) {
    const char *text = getenv("LEDGERMQ_BENCH_SYNC_US");
    long us = text == NULL ? 0 : strtol(text, NULL, 10);
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&left, &left) != 0)
        ;
}

#define SLOWED(name, types, names)                                  \
    int name types {                                                \
        int (*next) types = (int (*) types)dlsym(RTLD_NEXT, #name); \
        int failed = next names;                                    \
        int number = errno;                                         \
        take_longer();                                              \
        errno = number;                                             \
        return failed;                                              \
    }

SLOWED(fsync, (int fd), (fd))
SLOWED(fdatasync, (int fd), (fd))
SLOWED(syncfs, (int fd), (fd))
SLOWED(msync, (void *begin, size_t size, int how), (begin, size, how))

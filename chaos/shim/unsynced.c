/*
 * Notes of what was written and not synced, so that the harness can take it away: a loss of power.
 *
 * While `control.notes` or `control.lies` is set, each change of a file is preceded by a note of
 * what it replaces, and each sync that returned is followed by one. Killing a process leaves its
 * writes in the page cache; chaos/shim/unsynced.py then puts back what no sync had reached.
 * Names are as good as synced: files that were made, renamed or removed stay so.
 *
 * One journal for a broker. `control.notes_end` grows once a note is whole, so that a process that
 * dies in the middle leaves none of it. Its layout is that of chaos/shim/unsynced.py.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define JOURNAL_MAX ((int64_t)1 << 30) /* bytes; what comes later is not noted, and counted */

enum kind { ZEROS = 1, BYTES = 2, SYNC = 3, FRESH = 4, SYNC_ALL = 5 };

struct note {
    int64_t kind;
    int64_t device, inode;
    int64_t offset;      /* of a change: where; of a sync: notes before here are durable */
    int64_t length;      /* how many bytes there were; they follow where they are not zeros */
    int64_t size_before; /* of the file */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;

/* Directories are synced too: with `syncfs`, all that lies in their file system. */
static int is_noting_syncs(int fd, struct stat *found) {
    struct control *control = shim_control;
    if (control == NULL || !(atomic_load(&control->notes) || atomic_load(&control->lies)))
        return 0;
    return shim_is_ours(fd) && fstat(fd, found) == 0;
}

static int is_noting(int fd, struct stat *found) {
    return is_noting_syncs(fd, found) && S_ISREG(found->st_mode);
}

/* Appends a note; the lock is held. */
static void append(struct note note, const struct stat *found, const void *bytes) {
    int64_t end = atomic_load(&shim_control->notes_end);
    size_t length = note.kind == BYTES ? (size_t)note.length : 0;
    note.device = (int64_t)found->st_dev;
    note.inode = (int64_t)found->st_ino;
    struct iovec parts[] = {{&note, sizeof note}, {(void *)bytes, length}};
    ssize_t size = (ssize_t)(sizeof note + length);
    if (journal < 0)
        journal = NEXT(open)(shim_journal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0 || end + size > JOURNAL_MAX || NEXT(pwritev)(journal, parts, 2, end) != size)
        atomic_fetch_add(&shim_control->notes_lost, 1);
    else
        atomic_store(&shim_control->notes_end, end + size);
}

static int is_zero(const char *bytes, size_t length) {
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Notes what lies in a file now; a file that cannot be read by `fd` is opened once more. */
static void note_bytes(int fd, const struct stat *found, off_t at, size_t length) {
    struct note note = {.kind = ZEROS, .offset = at, .length = (int64_t)length,
                        .size_before = found->st_size};
    char *bytes = length ? malloc(length) : NULL;
    ssize_t got = length && bytes ? pread(fd, bytes, length, at) : 0;
    if (got < 0 && errno == EBADF) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = NEXT(open)(path, O_RDONLY | O_CLOEXEC);
        got = again < 0 ? -1 : pread(again, bytes, length, at);
        if (again >= 0)
            close(again);
    }
    if (got != (ssize_t)length)
        atomic_fetch_add(&shim_control->notes_lost, 1);
    else {
        note.kind = is_zero(bytes, length) ? ZEROS : BYTES;
        append(note, found, bytes);
    }
    free(bytes);
}

int shim_begin_change(int fd, off_t at, size_t size) {
    struct stat found;
    int before = errno;
    if (!is_noting(fd, &found))
        return 0;
    pthread_mutex_lock(&lock);
    fstat(fd, &found); /* it may have grown while we waited */
    if (at < 0) {
        int flags = fcntl(fd, F_GETFL);
        at = flags >= 0 && flags & O_APPEND ? found.st_size : lseek(fd, 0, SEEK_CUR);
    }
    off_t there = found.st_size > at ? found.st_size - at : 0;
    note_bytes(fd, &found, at, (off_t)size < there ? size : (size_t)there);
    errno = before;
    return 1;
}

int shim_begin_cut(int fd, off_t size) {
    struct stat found;
    int before = errno;
    if (!is_noting(fd, &found))
        return 0;
    pthread_mutex_lock(&lock);
    fstat(fd, &found);
    off_t position = lseek(fd, 0, SEEK_CUR), at = size;
    note_bytes(fd, &found, size, 0);
    while (at < found.st_size) { /* what is written of it, not its holes */
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            break;
        off_t end = lseek(fd, begin, SEEK_HOLE);
        if (end > found.st_size)
            end = found.st_size;
        note_bytes(fd, &found, begin, (size_t)(end - begin));
        at = end;
    }
    lseek(fd, position, SEEK_SET);
    errno = before;
    return 1;
}

void shim_end_change(int begun) {
    if (begun)
        pthread_mutex_unlock(&lock);
}

int64_t shim_begin_sync(int fd) {
    struct stat found;
    int before = errno;
    int64_t end = -1;
    if (is_noting_syncs(fd, &found)) {
        pthread_mutex_lock(&lock); /* what is noted is written */
        end = atomic_load(&shim_control->notes_end);
        pthread_mutex_unlock(&lock);
    }
    errno = before;
    return end;
}

void shim_end_sync(int fd, int64_t begun, int of_all) {
    struct stat found;
    int before = errno;
    if (begun >= 0 && is_noting_syncs(fd, &found)) {
        pthread_mutex_lock(&lock);
        append((struct note){.kind = of_all ? SYNC_ALL : SYNC, .offset = begun}, &found, NULL);
        pthread_mutex_unlock(&lock);
    }
    errno = before;
}

/* A file that was opened and is empty may have the inode of one that is gone. */
static int opened(int fd, int flags) {
    struct stat found;
    int before = errno;
    if (fd >= 0 && flags & (O_CREAT | O_TRUNC) && is_noting(fd, &found) && found.st_size == 0) {
        pthread_mutex_lock(&lock);
        append((struct note){.kind = FRESH}, &found, NULL);
        pthread_mutex_unlock(&lock);
    }
    errno = before;
    return fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPENED(call)                     \
    va_list rest;                        \
    va_start(rest, flags);               \
    mode_t mode = mode_of(flags, rest);  \
    va_end(rest);                        \
    return opened(call, flags)

int open(const char *path, int flags, ...) { OPENED(NEXT(open)(path, flags, mode)); }
int open64(const char *path, int flags, ...) { OPENED(NEXT(open64)(path, flags, mode)); }
int openat(int in, const char *path, int flags, ...) {
    OPENED(NEXT(openat)(in, path, flags, mode));
}
int openat64(int in, const char *path, int flags, ...) {
    OPENED(NEXT(openat64)(in, path, flags, mode));
}

int ftruncate(int fd, off_t size) {
    int begun = shim_begin_cut(fd, size), failed = NEXT(ftruncate)(fd, size);
    shim_end_change(begun);
    return failed;
}
int ftruncate64(int fd, off64_t size) {
    int begun = shim_begin_cut(fd, size), failed = NEXT(ftruncate64)(fd, size);
    shim_end_change(begun);
    return failed;
}

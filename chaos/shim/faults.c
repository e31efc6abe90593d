/*
 * Between a broker and its disk and clock: preloaded into its process, commanded by a mapped file.
 *
 * LEDGERMQ_SHIM names the control file, LEDGERMQ_SHIM_ROOT the directory whose files are concerned.
 * All zeros change nothing. The layout of `struct control` is that of chaos/shim/control.py.
 *
 * Calls go to the C library unless a fault takes them: dlsym(RTLD_NEXT), see dlsym(3), ld.so(8).
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control *shim_control;
char shim_journal[PATH_MAX];
static char root[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LEDGERMQ_SHIM"), *under = getenv("LEDGERMQ_SHIM_ROOT");
    if (path == NULL || under == NULL || strlen(under) >= sizeof root - 1
        || strlen(path) >= sizeof shim_journal - sizeof ".unsynced")
        return;
    int fd = NEXT(open)(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof *shim_control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED)
        return;
    strcpy(root, under);
    sprintf(shim_journal, "%s.unsynced", path);
    shim_control = found;
}

int shim_is_ours(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    size_t length = strlen(root);
    return size > (ssize_t)length && strncmp(path, root, length) == 0 && path[length] == '/';
}

/* Waits as long as it is told to, in parts, so that a fault that is lifted ends the wait. */
static void wait_a_while(_Atomic int64_t *told_us) {
    int64_t left = atomic_load(told_us);
    if (left > 0)
        atomic_fetch_add(&shim_control->delayed, 1);
    while (left > 0 && atomic_load(told_us) > 0) {
        int64_t part = left < 20000 ? left : 20000;
        struct timespec pause = {.tv_sec = 0, .tv_nsec = part * 1000};
        nanosleep(&pause, NULL);
        left -= part;
    }
}

/* Takes one of the failures that are left. */
static int fails(_Atomic int64_t *code, _Atomic int64_t *left, _Atomic int64_t *count) {
    int64_t wanted = atomic_load(code);
    if (wanted == 0)
        return 0;
    if (atomic_fetch_sub(left, 1) <= 0) {
        atomic_fetch_add(left, 1);
        return 0;
    }
    atomic_fetch_add(count, 1);
    errno = (int)wanted;
    return 1;
}

static int is_on(void) {
    return shim_control != NULL
        && (atomic_load(&shim_control->sync_errno) || atomic_load(&shim_control->write_errno)
            || atomic_load(&shim_control->delay_us));
}

static int sync_fails(int fd) {
    if (!is_on() || !shim_is_ours(fd))
        return 0;
    wait_a_while(&shim_control->delay_us);
    return fails(&shim_control->sync_errno, &shim_control->sync_fails, &shim_control->syncs_failed);
}

static int write_fails(int fd) {
    if (!is_on() || !shim_is_ours(fd))
        return 0;
    wait_a_while(&shim_control->delay_us);
    return fails(&shim_control->write_errno, &shim_control->write_fails, &shim_control->writes_failed);
}

enum step { WRITE = 1, SYNC = 2, DONE = 4 };

/* Ends the process where a step is the one that was named, as a crash does: at once. */
static void maybe_crash(int fd, int64_t step) {
    if (shim_control == NULL || atomic_load(&shim_control->crash_of) != step || !shim_is_ours(fd)
        || atomic_load(&shim_control->crash_in) <= 0
        || atomic_fetch_sub(&shim_control->crash_in, 1) != 1)
        return;
    atomic_fetch_add(&shim_control->crashes, 1);
    kill(getpid(), SIGKILL);
}

static int lies_to(int fd) {
    if (shim_control == NULL || !atomic_load(&shim_control->lies) || !shim_is_ours(fd))
        return 0;
    atomic_fetch_add(&shim_control->syncs_lied, 1);
    return 1;
}

static int synced(int fd, int (*sync)(int), int of_all) {
    maybe_crash(fd, SYNC);
    if (shim_control != NULL && atomic_load(&shim_control->sync_us) && shim_is_ours(fd))
        wait_a_while(&shim_control->sync_us);
    if (sync_fails(fd))
        return -1;
    if (lies_to(fd))
        return 0;
    int64_t begun = shim_begin_sync(fd);
    int failed = sync(fd);
    if (!failed)
        shim_end_sync(fd, begun, of_all);
    maybe_crash(fd, SYNC | DONE);
    return failed;
}

int fsync(int fd) { return synced(fd, NEXT(fsync), 0); }
int fdatasync(int fd) { return synced(fd, NEXT(fdatasync), 0); }
int syncfs(int fd) { return synced(fd, NEXT(syncfs), 1); }

static size_t bytes_of(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int at = 0; at < count; at++)
        size += parts[at].iov_len;
    return size;
}

#define WRITTEN(at, size, call)                       \
    maybe_crash(fd, WRITE);                           \
    if (write_fails(fd))                              \
        return -1;                                    \
    int begun = shim_begin_change(fd, at, size);      \
    ssize_t written = call;                           \
    shim_end_change(begun);                           \
    maybe_crash(fd, WRITE | DONE);                    \
    return written

ssize_t write(int fd, const void *data, size_t size) {
    WRITTEN(-1, size, NEXT(write)(fd, data, size));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    WRITTEN(at, size, NEXT(pwrite)(fd, data, size, at));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    WRITTEN(at, size, NEXT(pwrite64)(fd, data, size, at));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    WRITTEN(at, bytes_of(parts, count), NEXT(pwritev)(fd, parts, count, at));
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    WRITTEN(at, bytes_of(parts, count), NEXT(pwritev64)(fd, parts, count, at));
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    WRITTEN(at, bytes_of(parts, count), NEXT(pwritev2)(fd, parts, count, at, flags));
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    WRITTEN(at, bytes_of(parts, count), NEXT(pwritev64v2)(fd, parts, count, at, flags));
}

static int64_t nanoseconds(const struct timespec *told) {
    return (int64_t)told->tv_sec * 1000000000 + told->tv_nsec;
}

static struct timespec timespec_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* What a clock gains in a time, to the nanosecond: in steps of a microsecond a slow clock would go
 * back between two of them. */
static int64_t gain(int64_t passed, int64_t ppm) {
    return passed / 1000000 * ppm + passed % 1000000 * ppm / 1000000;
}

/* How far the monotonic clock of this process is ahead by now: what it gained by drifting stays, or
 * it would go back when the drift ends. */
static int64_t gained(int64_t now) {
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    static int64_t since, speed, kept;
    int64_t wanted = atomic_load(&shim_control->drift_ppm);
    while (atomic_flag_test_and_set(&busy))
        ;
    if (wanted != speed) {
        kept += gain(now - since, speed);
        since = now;
        speed = wanted;
    }
    int64_t ahead = kept + gain(now - since, speed);
    atomic_flag_clear(&busy);
    return ahead;
}

/* By how much a clock that tells `told` is wrong; `drifts`: whether it goes at another speed just
 * now. What a monotonic clock gained hangs on what it tells alone, so that no later one is less. */
static int64_t wrong_by(clockid_t clock, const struct timespec *told, int *drifts) {
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int is_steady = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    struct timespec steady = *told;
    if (shim_control == NULL || !(is_wall || is_steady))
        return 0;
    if (is_wall && NEXT(clock_gettime)(CLOCK_MONOTONIC, &steady))
        return 0;
    int64_t now = nanoseconds(&steady), ahead = gained(now);
    *drifts = atomic_load(&shim_control->drift_ppm) != 0;
    if (is_steady)
        return ahead;
    int64_t skew = atomic_load(&shim_control->skew_ns), turn = atomic_load(&shim_control->strobe_ns);
    if (turn > 0 && now / turn % 2)
        skew = 0;
    return skew + (*drifts ? ahead : 0);
}

int clock_gettime(clockid_t clock, struct timespec *told) {
    int drifts = 0, failed = NEXT(clock_gettime)(clock, told);
    int64_t by = failed ? 0 : wrong_by(clock, told, &drifts);
    if (by != 0) {
        int64_t wrong = nanoseconds(told) + by;
        told->tv_sec = wrong / 1000000000;
        told->tv_nsec = wrong % 1000000000;
        /* What a drift has left behind is no wrong time any more. */
        if (drifts || clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
            atomic_fetch_add(&shim_control->times_told, 1);
    }
    return failed;
}

/*
 * The kernel waits by its own clock, which does not drift: it is asked to wait for so long as the
 * wait takes by the clock of this process, and until when that clock tells the wanted time.
 */

#define FAR_S 1000000000 /* Later than that by a monotonic clock waits for ever. */

static int64_t true_span(int64_t span) {
    int64_t ppm = shim_control == NULL ? 0 : atomic_load(&shim_control->drift_ppm);
    return (int64_t)((__int128)span * 1000000 / (1000000 + ppm));
}

static int true_ms(int ms) {
    int64_t span = ms <= 0 ? ms : (true_span((int64_t)ms * 1000000) + 999999) / 1000000;
    return span > INT_MAX ? INT_MAX : (int)span;
}

/* When the true monotonic clock will tell what ours tells at a deadline. */
static struct timespec true_deadline(const struct timespec *wanted) {
    struct timespec told;
    if (shim_control == NULL || wanted->tv_sec >= FAR_S || NEXT(clock_gettime)(CLOCK_MONOTONIC, &told))
        return *wanted;
    int64_t now = nanoseconds(&told), left = nanoseconds(wanted) - now - gained(now);
    return timespec_of(left > 0 ? now + true_span(left) : now);
}

int poll(struct pollfd *files, nfds_t count, int ms) {
    return NEXT(poll)(files, count, true_ms(ms));
}
int epoll_wait(int fd, struct epoll_event *events, int most, int ms) {
    return NEXT(epoll_wait)(fd, events, most, true_ms(ms));
}
int epoll_pwait(int fd, struct epoll_event *events, int most, int ms, const sigset_t *signals) {
    return NEXT(epoll_pwait)(fd, events, most, true_ms(ms), signals);
}

int clock_nanosleep(
    clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left
) {
    struct timespec until = *wanted;
    if (clock == CLOCK_MONOTONIC && wanted->tv_sec < FAR_S)
        until = flags & TIMER_ABSTIME ? true_deadline(wanted)
                                      : timespec_of(true_span(nanoseconds(wanted)));
    return NEXT(clock_nanosleep)(clock, flags, &until, left);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline) {
    struct timespec until = clock == CLOCK_MONOTONIC ? true_deadline(deadline) : *deadline;
    return NEXT(sem_clockwait)(semaphore, clock, &until);
}

/* Which clock a condition goes by it does not say; deadlines of the wall clock are far. */
int pthread_cond_timedwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline
) {
    static const char name[] = "pthread_cond_timedwait";
    /* Without its version an older one may be found, of which conditions are shaped otherwise. */
    void *versioned = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    void *next = versioned == NULL ? dlsym(RTLD_NEXT, name) : versioned;
    struct timespec until = true_deadline(deadline);
    return ((__typeof__(&pthread_cond_timedwait))next)(condition, mutex, &until);
}

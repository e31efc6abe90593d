/* What the parts of the library share; see faults.c. */
#ifndef LEDGERMQ_SHIM_H
#define LEDGERMQ_SHIM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* The mapped file; its layout is that of chaos/shim/control.py. */
struct control {
    /* Commands, written by the harness. */
    _Atomic int64_t sync_errno;  /* what syncs fail with; 0: they do not */
    _Atomic int64_t sync_fails;  /* how many more of them do */
    _Atomic int64_t write_errno; /* the same of writes */
    _Atomic int64_t write_fails;
    _Atomic int64_t delay_us;    /* how long each sync and write takes longer */
    _Atomic int64_t skew_ns;     /* by how much the wall clock is wrong */
    _Atomic int64_t strobe_ns;   /* it is wrong and right in turn, for so long each */
    _Atomic int64_t drift_ppm;   /* by how much all clocks go faster */
    _Atomic int64_t notes;       /* what is written is noted until it is synced */
    _Atomic int64_t lies;        /* syncs return, and do nothing */
    _Atomic int64_t sync_us;     /* how long each sync takes longer */
    _Atomic int64_t crash_in;    /* the process ends at this step from now, 0: at none */
    _Atomic int64_t crash_of;    /* which steps count: 1 writes, 2 syncs; 4 more: once it is done */
    /* Counts, written here. */
    _Atomic int64_t syncs_failed;
    _Atomic int64_t writes_failed;
    _Atomic int64_t delayed;
    _Atomic int64_t times_told;  /* wrong ones */
    _Atomic int64_t syncs_lied;
    _Atomic int64_t notes_end;   /* where the next note begins in the journal */
    _Atomic int64_t notes_lost;  /* changes that could not be noted */
    _Atomic int64_t crashes;     /* ends at a step */
};

extern struct control *shim_control; /* NULL: nothing is commanded */
extern char shim_journal[];          /* the file of the notes */

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether a file lies in the directory that is concerned. */
int shim_is_ours(int fd);

/* Around a change of a file: notes what it will replace. Between the two no other change is made
 * to any file, and errno stays. `at` < 0: where the file's own position is. */
int shim_begin_change(int fd, off_t at, size_t size);
int shim_begin_cut(int fd, off_t size);
void shim_end_change(int begun);

/* Around a sync: what is noted before `shim_begin_sync` is durable once it has returned 0; of this
 * file, or of all files. */
int64_t shim_begin_sync(int fd);
void shim_end_sync(int fd, int64_t begun, int of_all);

#endif

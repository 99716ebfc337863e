/* Where a thread is, asked again and again: a timer interrupts it, and what it was about to run is noted.

   One thread of the process at a time is asked. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { MOST = 1 << 16 };

static uintptr_t places[MOST];
static _Atomic long noted;
static timer_t timer;
static struct sigaction before;

static void note(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  const long own = atomic_fetch_add(&noted, 1);
#if defined(__x86_64__)
  if (own < MOST) places[own] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[16];
#elif defined(__aarch64__)
  if (own < MOST) places[own] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
}

/* Ask the thread that calls, every so many nanoseconds.  Returns 0, or -1 where there is no such timer. */
int tcomp_sampling_begin(long nanoseconds) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = note;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
  atomic_store(&noted, 0);
  if (sigaction(SIGPROF, &action, &before)) return -1;
  const struct itimerspec every = {{0, nanoseconds}, {0, nanoseconds}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) {
    sigaction(SIGPROF, &before, 0);
    return -1;
  }
  if (!timer_settime(timer, 0, &every, 0)) return 0;
  timer_delete(timer);
  sigaction(SIGPROF, &before, 0);
  return -1;
}

/* No more.  Returns how many places were noted; `found` points to them. */
long tcomp_sampling_end(const uintptr_t **found) {
  timer_delete(timer);
  /* What the timer still has on its way is for this thread, and is dropped rather than left to end the process. */
  struct sigaction ignored;
  memset(&ignored, 0, sizeof ignored);
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPROF, &ignored, 0);
  sigaction(SIGPROF, &before, 0);
  *found = places;
  const long count = atomic_load(&noted);
  return count < MOST ? count : MOST;
}

/* Threads that stay ready between kernels.

   Kernels hold OpenMP's parallel regions, which gcc makes into calls of GOMP_parallel; the linker turns these into calls
   of what is here.  A region must not need all of its threads: each asks for its number, takes tiles from shares until
   none is left, and ends.  So whoever calls a region begins at once, threads join as they come, and at the end the caller
   waits for those that have joined, never for one that has not.

   There is one thread for each processor that the process may use, bound to it, so that a thread that is woken never
   lands where the caller runs.  A thread watches for work for a tenth of a millisecond after its last and then sleeps. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What the linker calls instead of GOMP's and OpenMP's functions. */
#define GNU(name) __wrap_GOMP_##name
#define OPENMP(name) __wrap_omp_##name

enum { REGIONS = 64, MOST_THREADS = 1024, LINE = 64 };

/* Nanoseconds that a thread watches for more work, and that a caller watches the last tiles.  Between a forward pass and
   its backward pass autograd takes tens of microseconds, and to wake a thread takes as long. */
enum { WATCHED = 100000, AWAITED = 20000 };

typedef void region_function(void *);

/* A region under way.  `state` is, from the low bits on: 16 bits of threads inside, 16 of numbers given out, 16 of
   numbers there are, and one that says whether more may join. */
typedef struct {
  _Alignas(LINE) _Atomic uint64_t state;
  _Atomic uint32_t left;    /* changes when the last thread inside leaves a region that none may join */
  _Atomic int processor;    /* where the caller was */
  region_function *function;
  void *data;
} region;

/* A thread; `core` is the first processor of the core that its processor belongs to. */
typedef struct {
  _Alignas(LINE) _Atomic uint32_t asleep;
  _Atomic int busy;
  int processor, core;
} worker;

#define INSIDE(state) ((state) & 0xffff)
#define GIVEN(state) ((state) >> 16 & 0xffff)
#define THERE(state) ((state) >> 32 & 0xffff)
static const uint64_t OPEN = 1ull << 48, A_NUMBER = 1ull << 16;

/* What is known of threads.  Zeros are where it begins, and where it begins again in a forked child: the system clears it
   there, for the threads stay with the parent. */
static struct {
  region regions[REGIONS];
  worker workers[MOST_THREADS];
  _Alignas(LINE) _Atomic uint32_t changes;
  _Alignas(LINE) _Atomic uint64_t taken, open_regions;
  _Atomic int worker_count; /* 0 before the first region, -1 where there is one processor */
  int granted;
  pthread_mutex_t starting;
} *pool;
static _Atomic(int (*)(void)) openmp_limit;
static __thread int own_number, own_count = 1, inside;

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void pause_a_little(void) {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

/* Take part in a region.  Returns whether it was joined in time. */
static int join(region *r) {
  uint64_t state = atomic_load_explicit(&r->state, memory_order_relaxed);
  do {
    if (!(state & OPEN) || GIVEN(state) >= THERE(state)) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&r->state, &state, state + A_NUMBER + 1, memory_order_acquire,
                                                  memory_order_relaxed));
  own_number = GIVEN(state), own_count = THERE(state), inside = 1;
  r->function(r->data);
  own_number = 0, own_count = 1, inside = 0;
  state = atomic_fetch_sub_explicit(&r->state, 1, memory_order_acq_rel) - 1;
  if (!(state & OPEN) && INSIDE(state) == 0) {
    /* The caller may be gone, and another in its place: it looks again, that is all. */
    atomic_fetch_add_explicit(&r->left, 1, memory_order_release);
    futex_wake(&r->left);
  }
  return 1;
}

static int join_any(int processor) {
  int joined = 0;
  for (uint64_t mask = atomic_load_explicit(&pool->open_regions, memory_order_acquire); mask; mask &= mask - 1) {
    region *r = &pool->regions[__builtin_ctzll(mask)];
    if (atomic_load_explicit(&r->processor, memory_order_relaxed) != processor) joined |= join(r);
  }
  return joined;
}

static int caller_is_on(int processor) {
  for (uint64_t mask = atomic_load_explicit(&pool->open_regions, memory_order_relaxed); mask; mask &= mask - 1)
    if (atomic_load_explicit(&pool->regions[__builtin_ctzll(mask)].processor, memory_order_relaxed) == processor) return 1;
  return 0;
}

static void *work(void *argument) {
  worker *self = argument;
  pthread_setname_np(pthread_self(), "tcomp");
  for (;;) {
    uint32_t seen = atomic_load(&pool->changes);
    atomic_store_explicit(&self->busy, 1, memory_order_relaxed);
    int joined = join_any(self->processor);
    atomic_store_explicit(&self->busy, 0, memory_order_relaxed);
    if (joined) continue;
    for (uint64_t end = now() + WATCHED; atomic_load(&pool->changes) == seen && now() < end;)
      for (int i = 0; i < 16; i++) pause_a_little();
    if (atomic_load(&pool->changes) != seen && !caller_is_on(self->processor)) continue;
    atomic_store(&self->asleep, 1);
    /* Whoever changes this now sees that the thread sleeps, or is seen here. */
    if (atomic_load(&pool->changes) != seen && !caller_is_on(self->processor)) atomic_store(&self->asleep, 0);
    while (atomic_load(&self->asleep)) futex_wait(&self->asleep, 1);
  }
  return NULL;
}

/* Processors that a control group grants, rounded up; a large number where it sets no limit. */
static int quota(void) {
  long long share = -1, period = 0;
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file) {
    if (fscanf(file, "%lld %lld", &share, &period) != 2) share = -1;
    fclose(file);
  }
  return share > 0 && period > 0 ? (int)((share + period - 1) / period) : MOST_THREADS;
}

/* The first processor of a processor's core; itself where the system does not tell. */
static int core_of(int processor) {
  char path[96];
  int first = processor;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
  FILE *file = fopen(path, "re");
  if (file) {
    if (fscanf(file, "%d", &first) != 1) first = processor;
    fclose(file);
  }
  return first;
}

/* Start a thread on a processor.  Returns whether that was possible. */
static int begin(worker *w, int processor, pthread_attr_t *attributes) {
  pthread_t thread;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)processor, &one);
  w->processor = processor, w->core = core_of(processor);
  atomic_store(&w->asleep, 0), atomic_store(&w->busy, 0);
  return !pthread_attr_setaffinity_np(attributes, sizeof one, &one) && !pthread_create(&thread, attributes, work, w);
}

static void start(void) {
  pthread_mutex_lock(&pool->starting);
  if (atomic_load(&pool->worker_count) == 0) {
    cpu_set_t usable;
    int count = 0;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (sched_getaffinity(0, sizeof usable, &usable)) CPU_ZERO(&usable);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    /* One processor of each core comes before the second of any. */
    for (int second = 0; second < 2 && CPU_COUNT(&usable) > 1; second++)
      for (int processor = 0; processor < CPU_SETSIZE && count < MOST_THREADS; processor++)
        if (CPU_ISSET((size_t)processor, &usable) && (core_of(processor) != processor) == second)
          count += begin(&pool->workers[count], processor, &attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    pool->granted = quota();
    atomic_store(&pool->worker_count, count ? count : -1);
  }
  pthread_mutex_unlock(&pool->starting);
}

/* Wake so many threads that sleep: not where the caller is, and on its core only if there are no others. */
static void wake(int wanted, int processor) {
  int count = atomic_load_explicit(&pool->worker_count, memory_order_acquire), core = -1;
  for (int i = 0; i < count; i++)
    if (pool->workers[i].processor == processor) core = pool->workers[i].core;
  for (int same = 0; same < 2; same++)
    for (int i = 0; i < count && wanted > 0; i++) {
      worker *w = &pool->workers[i];
      uint32_t one = 1;
      if (w->processor == processor || (w->core == core) != same || atomic_load(&w->busy)) continue;
      wanted--;
      if (atomic_load(&w->asleep) && atomic_compare_exchange_strong(&w->asleep, &one, 0)) futex_wake(&w->asleep);
    }
}

static region *take(void) {
  uint64_t mask = atomic_load_explicit(&pool->taken, memory_order_relaxed);
  while (~mask) {
    int free = __builtin_ctzll(~mask);
    if (atomic_compare_exchange_weak_explicit(&pool->taken, &mask, mask | 1ull << free, memory_order_acquire,
                                              memory_order_relaxed))
      return &pool->regions[free];
  }
  return NULL;
}

static void leave(region *r) {
  uint64_t bit = 1ull << (r - pool->regions);
  atomic_fetch_and_explicit(&pool->open_regions, ~bit, memory_order_relaxed);
  uint64_t state = atomic_fetch_and_explicit(&r->state, ~OPEN, memory_order_acq_rel) & ~OPEN;
  for (uint64_t end = 0; INSIDE(state); state = atomic_load_explicit(&r->state, memory_order_acquire)) {
    uint32_t left = atomic_load_explicit(&r->left, memory_order_acquire);
    if (!end) end = now() + AWAITED;
    if (now() < end) {
      for (int i = 0; i < 16; i++) pause_a_little();
    } else if (INSIDE(atomic_load(&r->state))) {
      futex_wait(&r->left, left);
    }
  }
  atomic_fetch_and_explicit(&pool->taken, ~bit, memory_order_release);
}

void GNU(parallel)(region_function *function, void *data, unsigned count, unsigned flags) {
  (void)flags;
  if (count > 1 && !inside && atomic_load_explicit(&pool->worker_count, memory_order_acquire) == 0) start();
  int ready = atomic_load_explicit(&pool->worker_count, memory_order_acquire);
  region *r = count > 1 && !inside && ready > 0 ? take() : NULL;
  if (!r) {
    function(data);
    return;
  }
  if (count > 0xffff) count = 0xffff;
  int processor = sched_getcpu();
  r->function = function, r->data = data;
  atomic_store_explicit(&r->processor, processor, memory_order_relaxed);
  atomic_store_explicit(&r->state, OPEN | (uint64_t)count << 32 | A_NUMBER, memory_order_release);
  atomic_fetch_or_explicit(&pool->open_regions, 1ull << (r - pool->regions), memory_order_release);
  atomic_fetch_add(&pool->changes, 1);
  wake((int)count - 1, processor);
  own_number = 0, own_count = (int)count, inside = 1;
  function(data);
  own_number = 0, own_count = 1, inside = 0;
  leave(r);
}

int OPENMP(get_thread_num)(void) { return own_number; }
int OPENMP(get_num_threads)(void) { return own_count; }

/* Where to ask for the limit that users set by OpenMP's variables and functions. */
void tcomp_ask_openmp(int (*limit)(void)) { atomic_store(&openmp_limit, limit); }

int OPENMP(get_max_threads)(void) {
  int (*limit)(void) = atomic_load_explicit(&openmp_limit, memory_order_relaxed);
  int wanted = limit ? limit() : INT_MAX;
  if (inside || wanted < 2) return 1;
  if (atomic_load_explicit(&pool->worker_count, memory_order_acquire) == 0) start();
  int most = atomic_load_explicit(&pool->worker_count, memory_order_acquire);
  most = most < pool->granted ? most : pool->granted;
  most = wanted < most ? wanted : most;
  return most < 1 ? 1 : most;
}

/* Returns whether there can be threads; before anything else is called. */
int tcomp_threads_begin(void) {
  if (pool) return 1;
  void *memory = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  if (madvise(memory, sizeof *pool, MADV_WIPEONFORK)) {
    munmap(memory, sizeof *pool);
    return 0;
  }
  pool = memory;
  return 1;
}

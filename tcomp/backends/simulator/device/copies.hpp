// Asynchronous copies to shared memory and atomics: accesses that are calls of the text.
#pragma once

#include "threads.hpp"

extern "C" {
// Copies ``read`` bytes and fills up with zeros; of 0 bytes it reads nothing, whatever the address is.
void tc_sim_copy_async(void *shared, const void *global, u32 bytes, u32 read) {
  u32 site = TC_CALLER;
  Thread &self = *run.self;
  Copy copy = {(address_t)shared, {}, bytes, self.copy_group, site, 0};
  if (read) {
    copy.missing = load_for_copy((address_t)global, read, site);
    memcpy(copy.bytes, global, read);
  }
  store((address_t)shared, bytes, STORE, IS_PENDING, site);
  self.copies.push(copy);
}

void tc_sim_copy_async_commit() { run.self->copy_group++; }

// Carries out all copies but those of the newest groups; from then on they are writes of this thread.
void tc_sim_copy_async_wait(int newest) {
  u32 site = TC_CALLER, counting = run.counting;
  Thread &self = *run.self;
  u64 kept = 0;
  run.counting = 0;
  for (u64 i = 0; i < self.copies.count; i++) {
    Copy copy = self.copies[i];
    if (copy.group + (u32)newest >= self.copy_group) {
      self.copies[kept++] = copy;
      continue;
    }
    store(copy.shared, copy.size, STORE, IS_LANDING, site);
    memcpy((void *)copy.shared, copy.bytes, copy.size);
    if (TC_UNLIKELY(copy.missing)) mark_as_missing(copy);
  }
  self.copies.count = kept;
  run.counting = counting;
}
}

// Atomics run one after another anyhow: what remains is to check the access.
#define TC_ATOMIC(name, T, parameters, value)                      \
  T name(T *at, parameters) {                                      \
    store((address_t)at, sizeof(T), ATOMIC, IS_ATOMIC, TC_CALLER); \
    T old = *at;                                                   \
    *at = value;                                                   \
    return old;                                                    \
  }
#define TC_ATOMIC_INTEGERS(name, value)                        \
  TC_ATOMIC(name, int, int x, value)                           \
  TC_ATOMIC(name, unsigned, unsigned x, value)                 \
  TC_ATOMIC(name, long long, long long x, value)               \
  TC_ATOMIC(name, unsigned long long, unsigned long long x, value)
#define TC_COMMA ,
TC_ATOMIC(atomicAdd, int, int x, (int)((unsigned)old + (unsigned)x))
TC_ATOMIC(atomicAdd, unsigned, unsigned x, old + x)
TC_ATOMIC(atomicAdd, unsigned long long, unsigned long long x, old + x)
TC_ATOMIC(atomicAdd, float, float x, old + x)
TC_ATOMIC(atomicAdd, double, double x, old + x)
TC_ATOMIC(atomicSub, int, int x, (int)((unsigned)old - (unsigned)x))
TC_ATOMIC(atomicSub, unsigned, unsigned x, old - x)
TC_ATOMIC_INTEGERS(atomicMin, x < old ? x : old)
TC_ATOMIC_INTEGERS(atomicMax, old < x ? x : old)
TC_ATOMIC_INTEGERS(atomicAnd, old & x)
TC_ATOMIC_INTEGERS(atomicOr, old | x)
TC_ATOMIC_INTEGERS(atomicXor, old ^ x)
TC_ATOMIC(atomicExch, int, int x, x)
TC_ATOMIC(atomicExch, unsigned, unsigned x, x)
TC_ATOMIC(atomicExch, unsigned long long, unsigned long long x, x)
TC_ATOMIC(atomicExch, float, float x, x)
TC_ATOMIC(atomicCAS, int, int expected TC_COMMA int x, old == expected ? x : old)
TC_ATOMIC(atomicCAS, unsigned, unsigned expected TC_COMMA unsigned x, old == expected ? x : old)
TC_ATOMIC(atomicCAS, unsigned long long, unsigned long long expected TC_COMMA unsigned long long x,
          old == expected ? x : old)
TC_ATOMIC(atomicCAS, unsigned short, unsigned short expected TC_COMMA unsigned short x, old == expected ? x : old)

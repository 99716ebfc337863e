// Barriers in shared memory, and copies of boxes of tensors that report to them, as kernels' texts call them.
#pragma once

extern "C" {
void tc_sim_barrier_init(void *barrier, unsigned count);
void tc_sim_barriers_visible();
void tc_sim_barrier_arrive(void *barrier, unsigned bytes);
void tc_sim_barrier_wait(void *barrier, unsigned parity);
void tc_sim_tensor_copy(void *shared, const void *description, void *barrier, unsigned rank, const int *at);
}

#define __grid_constant__
struct tc_tensor_map { const void *description; };  // a device has 128 bytes here, of its own making

static __forceinline__ void tc_barrier_init(unsigned long long *barrier, unsigned count) { tc_sim_barrier_init(barrier, count); }
static __forceinline__ void tc_barriers_visible() { tc_sim_barriers_visible(); }
static __forceinline__ void tc_barrier_expect(unsigned long long *barrier, unsigned bytes) { tc_sim_barrier_arrive(barrier, bytes); }
static __forceinline__ void tc_barrier_arrive(unsigned long long *barrier) { tc_sim_barrier_arrive(barrier, 0); }
static __forceinline__ void tc_barrier_wait(unsigned long long *barrier, unsigned parity) { tc_sim_barrier_wait(barrier, parity); }
template <int count>
static __forceinline__ void tc_registers_down() {}
template <int count>
static __forceinline__ void tc_registers_up() {}

#define TC_TENSOR_COPY(rank, parameters, ...)                                                              \
  static __forceinline__ void tc_tensor_copy##rank(void *shared, const tc_tensor_map &map, unsigned long long *barrier, \
                                                   parameters) {                                           \
    const int at[] = {__VA_ARGS__};                                                                        \
    tc_sim_tensor_copy(shared, map.description, barrier, rank, at);                                        \
  }
#define TC_AND ,
TC_TENSOR_COPY(2, int x TC_AND int y, x, y)
TC_TENSOR_COPY(3, int x TC_AND int y TC_AND int z, x, y, z)
TC_TENSOR_COPY(4, int x TC_AND int y TC_AND int z TC_AND int u, x, y, z, u)
TC_TENSOR_COPY(5, int x TC_AND int y TC_AND int z TC_AND int u TC_AND int v, x, y, z, u, v)
#undef TC_AND
#undef TC_TENSOR_COPY

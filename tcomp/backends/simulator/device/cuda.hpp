// What a kernel's CUDA text finds when g++ compiles it for the simulator: the part of CUDA C++ that kernels of this
// project use.  Loads and stores of the text are seen through the calls that -fsanitize=thread puts in front of them;
// everything that CUDA does beyond C++ is a function of the runtime.  No other header is read, to compile fast.
#pragma once

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// Each shared variable has its own red zone behind or before it.  The section tells the loader where they are.
#define TC_IN_SHARED __attribute__((section("tc_shared")))
#define TC_SHARED_BEHIND_GUARD(number)                                                          \
  static TC_IN_SHARED __attribute__((used, aligned(128))) unsigned char tc_guard_##number[1024]; \
  static TC_IN_SHARED
#define TC_SHARED(number) TC_SHARED_BEHIND_GUARD(number)
#define __shared__ TC_SHARED(__COUNTER__)

// Threads, blocks and grid.  The members convert to the value for the thread that runs.
extern "C" {
unsigned tc_sim_thread_x() __attribute__((const));
unsigned tc_sim_thread_y() __attribute__((const));
unsigned tc_sim_thread_z() __attribute__((const));
unsigned tc_sim_block_x() __attribute__((const));
unsigned tc_sim_block_y() __attribute__((const));
unsigned tc_sim_block_z() __attribute__((const));
unsigned tc_sim_block_extent(int axis) __attribute__((const));
unsigned tc_sim_grid_extent(int axis) __attribute__((const));
void tc_sim_barrier(int site);
unsigned long long tc_sim_collective(int kind, unsigned mask, unsigned long long bits, int operand, int width, int site);
unsigned tc_sim_active_lanes(int site);
void tc_sim_executed(unsigned line);
void tc_sim_copy_async(void *shared, const void *global, unsigned bytes, unsigned read);
void tc_sim_copy_async_commit();
void tc_sim_copy_async_wait(int newest);
unsigned tc_sim_shared_address(const void *at);
void tc_sim_fence_registers();
void tc_sim_fence_proxy();
void tc_sim_begin_product(const void *arrival, int site);
void tc_sim_close_products();
void tc_sim_wait_products(int newest);
}

template <unsigned (*value)()>
struct TcComponent {
  __forceinline__ constexpr operator unsigned() const { return value(); }
};
template <unsigned (*value)(int), int axis>
struct TcExtent {
  __forceinline__ constexpr operator unsigned() const { return value(axis); }
};
static constexpr struct {
  TcComponent<tc_sim_thread_x> x;
  TcComponent<tc_sim_thread_y> y;
  TcComponent<tc_sim_thread_z> z;
} threadIdx{};
static constexpr struct {
  TcComponent<tc_sim_block_x> x;
  TcComponent<tc_sim_block_y> y;
  TcComponent<tc_sim_block_z> z;
} blockIdx{};
static constexpr struct {
  TcExtent<tc_sim_block_extent, 0> x;
  TcExtent<tc_sim_block_extent, 1> y;
  TcExtent<tc_sim_block_extent, 2> z;
} blockDim{};
static constexpr struct {
  TcExtent<tc_sim_grid_extent, 0> x;
  TcExtent<tc_sim_grid_extent, 1> y;
  TcExtent<tc_sim_grid_extent, 2> z;
} gridDim{};
static constexpr int warpSize = 32;

// The number tells barriers apart wherever the optimiser copies them.
#define __syncthreads() tc_sim_barrier(__COUNTER__)
#define TC_FENCE __asm__ volatile("" ::: "memory")
static __forceinline__ void __threadfence() { TC_FENCE; }
static __forceinline__ void __threadfence_block() { TC_FENCE; }

// Warp collectives; the numbers are those of threads.hpp.
enum { TC_SYNC, TC_SHUFFLE, TC_SHUFFLE_UP, TC_SHUFFLE_DOWN, TC_SHUFFLE_XOR, TC_BALLOT, TC_LDMATRIX, TC_LDMATRIX_TURNED,
       TC_MMA_F16, TC_MMA_BF16, TC_MMA_TF32, TC_MMA_S8, TC_MMA_U8, TC_MMA_F64, TC_MMA_E4M3, TC_MMA_E5M2,
       TC_MMA_S8_U8, TC_MMA_U8_S8, TC_MMA_E4M3_E5M2, TC_MMA_E5M2_E4M3 };

static __forceinline__ void __syncwarp(unsigned mask = 0xffffffffu, int site = __builtin_LINE()) {
  tc_sim_collective(TC_SYNC, mask, 0, 0, 32, site);
}

template <class T>
static __forceinline__ T tc_sim_shuffle(int kind, unsigned mask, T value, int operand, int width, int site) {
  union {
    T value;
    unsigned long long bits;
  } both;
  both.bits = 0;
  both.value = value;
  both.bits = tc_sim_collective(kind, mask, both.bits, operand, width, site);
  return both.value;
}

template <class T>
static __forceinline__ T __shfl_sync(unsigned mask, T v, int lane, int width = 32, int site = __builtin_LINE()) {
  return tc_sim_shuffle(TC_SHUFFLE, mask, v, lane, width, site);
}
template <class T>
static __forceinline__ T __shfl_up_sync(unsigned mask, T v, int d, int width = 32, int site = __builtin_LINE()) {
  return tc_sim_shuffle(TC_SHUFFLE_UP, mask, v, d, width, site);
}
template <class T>
static __forceinline__ T __shfl_down_sync(unsigned mask, T v, int d, int width = 32, int site = __builtin_LINE()) {
  return tc_sim_shuffle(TC_SHUFFLE_DOWN, mask, v, d, width, site);
}
template <class T>
static __forceinline__ T __shfl_xor_sync(unsigned mask, T v, int d, int width = 32, int site = __builtin_LINE()) {
  return tc_sim_shuffle(TC_SHUFFLE_XOR, mask, v, d, width, site);
}
static __forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, int site = __builtin_LINE()) {
  return (unsigned)tc_sim_collective(TC_BALLOT, mask, predicate != 0, 0, 32, site);
}
static __forceinline__ int __any_sync(unsigned mask, int predicate, int site = __builtin_LINE()) {
  return tc_sim_collective(TC_BALLOT, mask, predicate != 0, 1, 32, site) != 0;
}
static __forceinline__ int __all_sync(unsigned mask, int predicate, int site = __builtin_LINE()) {
  return tc_sim_collective(TC_BALLOT, mask, predicate == 0, 2, 32, site) == 0;
}
static __forceinline__ unsigned __activemask(int site = __builtin_LINE()) { return tc_sim_active_lanes(site); }

#include "products.hpp"
#include "tensors.hpp"

// Atomics, defined by the runtime.
int atomicAdd(int *, int);
unsigned atomicAdd(unsigned *, unsigned);
unsigned long long atomicAdd(unsigned long long *, unsigned long long);
float atomicAdd(float *, float);
double atomicAdd(double *, double);
int atomicSub(int *, int);
unsigned atomicSub(unsigned *, unsigned);
#define TC_ATOMIC(name)              \
  int name(int *, int);              \
  unsigned name(unsigned *, unsigned); \
  long long name(long long *, long long); \
  unsigned long long name(unsigned long long *, unsigned long long);
TC_ATOMIC(atomicMin)
TC_ATOMIC(atomicMax)
TC_ATOMIC(atomicAnd)
TC_ATOMIC(atomicOr)
TC_ATOMIC(atomicXor)
int atomicExch(int *, int);
unsigned atomicExch(unsigned *, unsigned);
unsigned long long atomicExch(unsigned long long *, unsigned long long);
float atomicExch(float *, float);
int atomicCAS(int *, int, int);
unsigned atomicCAS(unsigned *, unsigned, unsigned);
unsigned long long atomicCAS(unsigned long long *, unsigned long long, unsigned long long);
unsigned short atomicCAS(unsigned short *, unsigned short, unsigned short);
#undef TC_ATOMIC

// Vectors.
#define TC_VECTOR2(T, name, alignment)            \
  struct __align__(alignment) name { T x, y; };   \
  static __forceinline__ name make_##name(T x, T y) { return {x, y}; }
#define TC_VECTOR3(T, name)                       \
  struct name { T x, y, z; };                     \
  static __forceinline__ name make_##name(T x, T y, T z) { return {x, y, z}; }
#define TC_VECTOR4(T, name, alignment)                \
  struct __align__(alignment) name { T x, y, z, w; }; \
  static __forceinline__ name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
TC_VECTOR2(signed char, char2, 2)
TC_VECTOR2(unsigned char, uchar2, 2)
TC_VECTOR2(short, short2, 4)
TC_VECTOR2(unsigned short, ushort2, 4)
TC_VECTOR2(int, int2, 8)
TC_VECTOR2(unsigned, uint2, 8)
TC_VECTOR2(float, float2, 8)
TC_VECTOR2(long long, longlong2, 16)
TC_VECTOR2(unsigned long long, ulonglong2, 16)
TC_VECTOR2(double, double2, 16)
TC_VECTOR3(int, int3)
TC_VECTOR3(unsigned, uint3)
TC_VECTOR3(float, float3)
TC_VECTOR4(signed char, char4, 4)
TC_VECTOR4(unsigned char, uchar4, 4)
TC_VECTOR4(short, short4, 8)
TC_VECTOR4(unsigned short, ushort4, 8)
TC_VECTOR4(int, int4, 16)
TC_VECTOR4(unsigned, uint4, 16)
TC_VECTOR4(float, float4, 16)
#undef TC_VECTOR2
#undef TC_VECTOR3
#undef TC_VECTOR4

template <class T>
static __forceinline__ T __ldg(const T *p) { return *p; }

// Bits.
template <class To, class From>
static __forceinline__ To tc_sim_bits(From from) {
  union {
    From from;
    To to;
  } both;
  both.from = from;
  return both.to;
}
static __forceinline__ float __int_as_float(int x) { return tc_sim_bits<float>(x); }
static __forceinline__ int __float_as_int(float x) { return tc_sim_bits<int>(x); }
static __forceinline__ float __uint_as_float(unsigned x) { return tc_sim_bits<float>(x); }
static __forceinline__ unsigned __float_as_uint(float x) { return tc_sim_bits<unsigned>(x); }
static __forceinline__ double __longlong_as_double(long long x) { return tc_sim_bits<double>(x); }
static __forceinline__ long long __double_as_longlong(double x) { return tc_sim_bits<long long>(x); }
static __forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
static __forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static __forceinline__ int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static __forceinline__ int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static __forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
static __forceinline__ int __ffsll(long long x) { return __builtin_ffsll(x); }
static __forceinline__ int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static __forceinline__ unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}

// float16 is kept as its bits, as on the device; both directions are the runtime's.
extern "C" float tc_from_float16(unsigned short) __attribute__((const));
extern "C" unsigned short tc_to_float16(float) __attribute__((const));
// What float does not hold becomes odd there, so that it is on the right side of the middle when it is rounded again.
static __forceinline__ unsigned short tc_to_float16(double value) {
  union { float f; unsigned u; } near = {(float)value};
  if (near.f == value || value != value) return tc_to_float16(near.f);
  if (__builtin_fabs(near.f) > __builtin_fabs(value)) near.u--;
  near.u |= 1;
  return tc_to_float16(near.f);
}

// Asynchronous copies arrive when they are waited for, not before.
static __forceinline__ void tc_copy_async16(void *shared, const void *global, int read = 16) {
  tc_sim_copy_async(shared, global, 16, (unsigned)read);
}
static __forceinline__ void tc_copy_async8(void *shared, const void *global, int read = 8) {
  tc_sim_copy_async(shared, global, 8, (unsigned)read);
}
static __forceinline__ void tc_copy_async4(void *shared, const void *global, int read = 4) {
  tc_sim_copy_async(shared, global, 4, (unsigned)read);
}
static __forceinline__ void tc_copy_async_commit() { tc_sim_copy_async_commit(); }
template <int N>
static __forceinline__ void tc_copy_async_wait() { tc_sim_copy_async_wait(N); }

// Extrema.
#define TC_EXTREMA(T)                                                    \
  static __forceinline__ T min(T a, T b) { return b < a ? b : a; }       \
  static __forceinline__ T max(T a, T b) { return a < b ? b : a; }
TC_EXTREMA(int)
TC_EXTREMA(unsigned)
TC_EXTREMA(long)
TC_EXTREMA(unsigned long)
TC_EXTREMA(long long)
TC_EXTREMA(unsigned long long)
#undef TC_EXTREMA
#define TC_EXTREMA(T, f)                                                           \
  static __forceinline__ T min(T a, T b) { return __builtin_fmin##f(a, b); }       \
  static __forceinline__ T max(T a, T b) { return __builtin_fmax##f(a, b); }
TC_EXTREMA(float, f)
TC_EXTREMA(double, )
#undef TC_EXTREMA

// Mathematics: the C library's under its own names, and what CUDA adds, which the runtime defines.
#define TC_MATH1(name)    \
  double name(double);    \
  float name##f(float);
#define TC_MATH2(name)            \
  double name(double, double);    \
  float name##f(float, float);
#define TC_MATH3(name)                    \
  double name(double, double, double);    \
  float name##f(float, float, float);
#define TC_MATH4(name)                            \
  double name(double, double, double, double);    \
  float name##f(float, float, float, float);
#define TC_MATH_INT1(name) \
  double name(double, int); \
  float name##f(float, int);
#define TC_MATH_INT2(name) \
  double name(int, double); \
  float name##f(int, float);
extern "C" {
#include "functions.def"
int abs(int);
long labs(long);
long long llabs(long long);
int ilogb(double);
int ilogbf(float);
long lrint(double);
long lrintf(float);
long long llrint(double);
long long llrintf(float);
long lround(double);
long lroundf(float);
long long llround(double);
long long llroundf(float);
}
#undef TC_MATH1
#undef TC_MATH2
#undef TC_MATH3
#undef TC_MATH4
#undef TC_MATH_INT1
#undef TC_MATH_INT2
static __forceinline__ bool isnan(float x) { return __builtin_isnan(x); }
static __forceinline__ bool isnan(double x) { return __builtin_isnan(x); }
static __forceinline__ bool isinf(float x) { return __builtin_isinf(x); }
static __forceinline__ bool isinf(double x) { return __builtin_isinf(x); }
static __forceinline__ bool isfinite(float x) { return __builtin_isfinite(x); }
static __forceinline__ bool isfinite(double x) { return __builtin_isfinite(x); }
static __forceinline__ bool signbit(float x) { return __builtin_signbit(x); }
static __forceinline__ bool signbit(double x) { return __builtin_signbit(x); }
static __forceinline__ float __expf(float x) { return expf(x); }
static __forceinline__ float __logf(float x) { return logf(x); }
static __forceinline__ float __sinf(float x) { return sinf(x); }
static __forceinline__ float __cosf(float x) { return cosf(x); }
static __forceinline__ float __powf(float x, float y) { return powf(x, y); }
static __forceinline__ float __fdividef(float x, float y) { return x / y; }

// What kernels of tcomp use of HIP, for compiling them with clang where ROCm is not installed.  Functions of the
// mathematical library are declared only: such a text compiles, but does not link.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(count) __attribute__((aligned(count)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define TC_IN static __device__ __forceinline__

struct __align__(8) uint2 { unsigned int x, y; };
struct __align__(16) uint4 { unsigned int x, y, z, w; };

struct tc_Thread {
  struct X { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_x(); } };
  struct Y { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_y(); } };
  struct Z { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_z(); } };
  X x;
  Y y;
  Z z;
};
struct tc_Block {
  struct X { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_x(); } };
  struct Y { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_y(); } };
  struct Z { __device__ __forceinline__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_z(); } };
  X x;
  Y y;
  Z z;
};
struct tc_Grid {
  struct X {
    __device__ __forceinline__ operator unsigned int() const {
      return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
    }
  };
  struct Y {
    __device__ __forceinline__ operator unsigned int() const {
      return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y();
    }
  };
  struct Z {
    __device__ __forceinline__ operator unsigned int() const {
      return __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z();
    }
  };
  X x;
  Y y;
  Z z;
};
static const __device__ tc_Thread threadIdx = {};
static const __device__ tc_Block blockIdx = {};
static const __device__ tc_Grid gridDim = {};

TC_IN void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

TC_IN int tc_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
TC_IN int __shfl_xor(int value, int mask, int width) {
  const int own = tc_lane(), other = own ^ mask;
  return __builtin_amdgcn_ds_bpermute((other < ((own + width) & ~(width - 1)) ? other : own) << 2, value);
}
TC_IN unsigned int __shfl_xor(unsigned int value, int mask, int width) {
  return (unsigned int)__shfl_xor((int)value, mask, width);
}
TC_IN float __shfl_xor(float value, int mask, int width) {
  return __builtin_bit_cast(float, __shfl_xor(__builtin_bit_cast(int, value), mask, width));
}
TC_IN long long __shfl_xor(long long value, int mask, int width) {
  const unsigned int low = (unsigned int)__shfl_xor((int)value, mask, width);
  return (long long)((unsigned long long)(unsigned int)__shfl_xor((int)(value >> 32), mask, width) << 32 | low);
}
TC_IN unsigned long long __shfl_xor(unsigned long long value, int mask, int width) {
  return (unsigned long long)__shfl_xor((long long)value, mask, width);
}
TC_IN double __shfl_xor(double value, int mask, int width) {
  return __builtin_bit_cast(double, __shfl_xor(__builtin_bit_cast(long long, value), mask, width));
}

TC_IN unsigned long long atomicExch(unsigned long long *place, unsigned long long value) {
  return __atomic_exchange_n(place, value, __ATOMIC_RELAXED);
}
template <class T> TC_IN T atomicAdd(T *place, T value) {
  return __hip_atomic_fetch_add(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> TC_IN T atomicMin(T *place, T value) {
  return __hip_atomic_fetch_min(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> TC_IN T atomicMax(T *place, T value) {
  return __hip_atomic_fetch_max(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> TC_IN T atomicCAS(T *place, T expected, T value) {
  __hip_atomic_compare_exchange_strong(place, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}
TC_IN float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
TC_IN float __uint_as_float(unsigned int bits) { return __builtin_bit_cast(float, bits); }
TC_IN unsigned int __float_as_uint(float value) { return __builtin_bit_cast(unsigned int, value); }
TC_IN double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }

#define TC_NATIVE(name) \
  TC_IN float name##f(float x) { return __builtin_##name##f(x); } \
  TC_IN double name(double x) { return __builtin_##name(x); }
TC_NATIVE(ceil) TC_NATIVE(fabs) TC_NATIVE(floor) TC_NATIVE(round) TC_NATIVE(rint) TC_NATIVE(sqrt) TC_NATIVE(trunc)
TC_IN float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
TC_IN double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
TC_IN float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
TC_IN double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
TC_IN float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
TC_IN double fmax(double x, double y) { return __builtin_fmax(x, y); }
TC_IN float fminf(float x, float y) { return __builtin_fminf(x, y); }
TC_IN double fmin(double x, double y) { return __builtin_fmin(x, y); }
TC_IN float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
TC_IN double copysign(double x, double y) { return __builtin_copysign(x, y); }
TC_IN float expf(float x) { return __builtin_expf(x); }
TC_IN float exp2f(float x) { return __builtin_exp2f(x); }
TC_IN float logf(float x) { return __builtin_logf(x); }
TC_IN float log2f(float x) { return __builtin_log2f(x); }
TC_IN float log10f(float x) { return __builtin_log10f(x); }
TC_IN float powf(float x, float y) { return __builtin_powf(x, y); }

#define TC_ONE(name) \
  extern "C" __device__ float name##f(float); \
  extern "C" __device__ double name(double);
#define TC_TWO(name) \
  extern "C" __device__ float name##f(float, float); \
  extern "C" __device__ double name(double, double);
TC_ONE(acos) TC_ONE(acosh) TC_ONE(asin) TC_ONE(asinh) TC_ONE(atan) TC_ONE(atanh) TC_ONE(cbrt) TC_ONE(cos) TC_ONE(cosh)
TC_ONE(cospi) TC_ONE(cyl_bessel_i0) TC_ONE(cyl_bessel_i1) TC_ONE(erf) TC_ONE(erfc) TC_ONE(erfcinv) TC_ONE(erfcx)
TC_ONE(erfinv) TC_ONE(exp10) TC_ONE(expm1) TC_ONE(j0) TC_ONE(j1) TC_ONE(lgamma) TC_ONE(log1p) TC_ONE(logb)
TC_ONE(normcdf) TC_ONE(normcdfinv) TC_ONE(rcbrt) TC_ONE(sin) TC_ONE(sinh) TC_ONE(sinpi) TC_ONE(tan) TC_ONE(tanh)
TC_ONE(tgamma) TC_ONE(y0) TC_ONE(y1)
TC_TWO(atan2) TC_TWO(fdim) TC_TWO(fmod) TC_TWO(hypot) TC_TWO(nextafter) TC_TWO(remainder) TC_TWO(rhypot)
extern "C" __device__ double exp(double);
extern "C" __device__ double exp2(double);
extern "C" __device__ double log(double);
extern "C" __device__ double log2(double);
extern "C" __device__ double log10(double);
extern "C" __device__ double pow(double, double);
extern "C" __device__ float norm3df(float, float, float);
extern "C" __device__ double norm3d(double, double, double);
extern "C" __device__ float rnorm3df(float, float, float);
extern "C" __device__ double rnorm3d(double, double, double);
extern "C" __device__ float norm4df(float, float, float, float);
extern "C" __device__ double norm4d(double, double, double, double);
extern "C" __device__ float rnorm4df(float, float, float, float);
extern "C" __device__ double rnorm4d(double, double, double, double);

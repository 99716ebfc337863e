// f, specialised to N = 256, D = 1024
static inline void tc_get16_float(float *values, const __global float *source) {
#ifndef TC_ANYWHERE
  *(float4 *)values = *(const __global float4 *)source;
#else
  *(float4 *)values = vload4(0, (const __global float *)source);
#endif
}
static inline float tc_max_float32(float a, float b) { return a > b || a != a ? a : b; }

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
f_0(const __global float *restrict I, __global float *restrict O)
{
  const int thread = (int)get_local_id(0);
  const int t_d = (int)get_local_id(0);
  __local float float_parts[256];
  const int b_n = (int)get_group_id(0);
  float m_acc;
  float e_1[4];
  float s_acc;
  // m starts (256 threads)
  {
    m_acc = -INFINITY;
  }
  // m(n) max=! I(n, d) (256 threads, 256 to an element)
  float m_acc_part = -INFINITY;
  float I_side_by_side[4] __attribute__((aligned(16)));
  tc_get16_float(I_side_by_side, &I[1024 * b_n + 4 * t_d]);
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    m_acc_part = tc_max_float32(m_acc_part, I_side_by_side[d_part]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  float_parts[thread] = m_acc_part;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = 128; apart > 0; apart /= 2) {
    if (thread < apart) float_parts[thread] = m_acc_part = tc_max_float32(m_acc_part, float_parts[thread + apart]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  m_acc_part = float_parts[0];
  {
    m_acc = tc_max_float32(m_acc, m_acc_part);
  }
  // e(n, d) = exp(I(n, d) - m(n)) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    e_1[d_part] = exp(I[b_n * 1024 + d] - m_acc);
  }
  // s starts (256 threads)
  {
    s_acc = 0.0f;
  }
  // s(n) +=! e(n, d) (256 threads, 256 to an element)
  float s_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    s_acc_part += e_1[d_part];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  float_parts[thread] = s_acc_part;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = 128; apart > 0; apart /= 2) {
    if (thread < apart) float_parts[thread] = s_acc_part = s_acc_part + float_parts[thread + apart];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  s_acc_part = float_parts[0];
  {
    s_acc += s_acc_part;
  }
  // O(n, d) = e(n, d) / s(n) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    O[b_n * 1024 + d] = e_1[d_part] / s_acc;
  }
}

// f_0: (256, 1, 1) blocks of (256, 1, 1): I, O

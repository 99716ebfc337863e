// f, specialised to M = 4000, N = 4096, K = 1024
// How a tensor lies, as the driver writes it down.
#ifdef __CUDACC__
struct __align__(64) tc_tensor_map { unsigned long long words[16]; };
#endif
#ifdef __CUDACC__
static __device__ __forceinline__ unsigned int tc_shared_address(const void *at) { return (unsigned int)__cvta_generic_to_shared(at); }
#endif
// So many arrivals end a phase.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_barrier_init(unsigned long long *barrier, const unsigned int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(tc_shared_address(barrier)), "r"(count) : "memory");
}
#endif
// What a thread has initialised is there for copies, too.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_barriers_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#endif
#ifdef __CUDACC__
template <int count>
static __device__ __forceinline__ void tc_registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count)); }
#endif
// Waits until the phase with a parity is over.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_barrier_wait(unsigned long long *barrier, const unsigned int parity) {
  unsigned int over;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}" : "=r"(over) : "r"(tc_shared_address(barrier)), "r"(parity) : "memory");
  } while (!over);
}
#endif
// Arrives, and lets the phase last until so many bytes have come.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_barrier_expect(unsigned long long *barrier, const unsigned int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(tc_shared_address(barrier)), "r"(bytes) : "memory");
}
#endif
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_tensor_copy2(void *shared, const tc_tensor_map &map, unsigned long long *barrier,
    const int c0, const int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" :: "r"(tc_shared_address(shared)), "l"(&map), "r"(c0), "r"(c1),
      "r"(tc_shared_address(barrier)) : "memory");
}
#endif
#ifdef __CUDACC__
template <int count>
static __device__ __forceinline__ void tc_registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count)); }
#endif
// The compiler takes sums to change here: it moves no instruction that uses them across.
#ifdef __CUDACC__
template <int rows, int columns>
static __device__ __forceinline__ void tc_settle(float (&sums)[rows][columns]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) asm volatile("" : "+f"(sums[i][j]) :: "memory");
}
template <int rows, int columns>
static __device__ __forceinline__ void tc_settle(int (&sums)[rows][columns]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) asm volatile("" : "+r"(sums[i][j]) :: "memory");
}
#endif
// Before a product uses sums that other instructions have used.
#ifdef __CUDACC__
template <class T, int rows, int columns>
static __device__ __forceinline__ void tc_wgmma_fence(T (&sums)[rows][columns]) {
  tc_settle(sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
#endif
// 64 x 256 x 16; an operand is turned if neighbours along its side lie together.
#ifdef __CUDACC__
template <int turned_a, int turned_b>
static __device__ __forceinline__ void tc_wgmma_f16_n256(
    float (&low)[64], float (&high)[64],
    const unsigned long long a, const unsigned long long b) {
  asm volatile("{\n.reg .pred all;\nsetp.eq.u32 all, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
      "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%4"
      "7,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,"
      "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%9"
      "2,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
      "}, %128, %129, all, 1, 1, %130, %131;\n}"
      : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1]), "+f"(low[2]), "+f"(low[3]), "+f"(high[2]), "+f"(high[3]),
        "+f"(low[4]), "+f"(low[5]), "+f"(high[4]), "+f"(high[5]), "+f"(low[6]), "+f"(low[7]), "+f"(high[6]), "+f"(high[7]),
        "+f"(low[8]), "+f"(low[9]), "+f"(high[8]), "+f"(high[9]), "+f"(low[10]), "+f"(low[11]), "+f"(high[10]), "+f"(high[11]),
        "+f"(low[12]), "+f"(low[13]), "+f"(high[12]), "+f"(high[13]), "+f"(low[14]), "+f"(low[15]), "+f"(high[14]), "+f"(high[15]),
        "+f"(low[16]), "+f"(low[17]), "+f"(high[16]), "+f"(high[17]), "+f"(low[18]), "+f"(low[19]), "+f"(high[18]), "+f"(high[19]),
        "+f"(low[20]), "+f"(low[21]), "+f"(high[20]), "+f"(high[21]), "+f"(low[22]), "+f"(low[23]), "+f"(high[22]), "+f"(high[23]),
        "+f"(low[24]), "+f"(low[25]), "+f"(high[24]), "+f"(high[25]), "+f"(low[26]), "+f"(low[27]), "+f"(high[26]), "+f"(high[27]),
        "+f"(low[28]), "+f"(low[29]), "+f"(high[28]), "+f"(high[29]), "+f"(low[30]), "+f"(low[31]), "+f"(high[30]), "+f"(high[31]),
        "+f"(low[32]), "+f"(low[33]), "+f"(high[32]), "+f"(high[33]), "+f"(low[34]), "+f"(low[35]), "+f"(high[34]), "+f"(high[35]),
        "+f"(low[36]), "+f"(low[37]), "+f"(high[36]), "+f"(high[37]), "+f"(low[38]), "+f"(low[39]), "+f"(high[38]), "+f"(high[39]),
        "+f"(low[40]), "+f"(low[41]), "+f"(high[40]), "+f"(high[41]), "+f"(low[42]), "+f"(low[43]), "+f"(high[42]), "+f"(high[43]),
        "+f"(low[44]), "+f"(low[45]), "+f"(high[44]), "+f"(high[45]), "+f"(low[46]), "+f"(low[47]), "+f"(high[46]), "+f"(high[47]),
        "+f"(low[48]), "+f"(low[49]), "+f"(high[48]), "+f"(high[49]), "+f"(low[50]), "+f"(low[51]), "+f"(high[50]), "+f"(high[51]),
        "+f"(low[52]), "+f"(low[53]), "+f"(high[52]), "+f"(high[53]), "+f"(low[54]), "+f"(low[55]), "+f"(high[54]), "+f"(high[55]),
        "+f"(low[56]), "+f"(low[57]), "+f"(high[56]), "+f"(high[57]), "+f"(low[58]), "+f"(low[59]), "+f"(high[58]), "+f"(high[59]),
        "+f"(low[60]), "+f"(low[61]), "+f"(high[60]), "+f"(high[61]), "+f"(low[62]), "+f"(low[63]), "+f"(high[62]), "+f"(high[63])
      : "l"(a), "l"(b), "n"(turned_a), "n"(turned_b));
}
#endif
// Of an operand in swizzled rows: bytes from panel to panel, and from 8 rows to the next.
static __device__ __forceinline__ unsigned long long tc_descriptor(const void *first, const unsigned int panel, const unsigned int rows) {
  const unsigned int low = (tc_shared_address(first) & 0x3ffff) >> 4 | panel >> 4 << 16;
  return (unsigned long long)(rows >> 4 | 1u << 30) << 32 | low;
}
// Closes a group of products.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#endif
// Waits for all groups of products of this thread but the newest.
#ifdef __CUDACC__
template <int newest, class T, int rows, int columns>
static __device__ __forceinline__ void tc_wgmma_wait(T (&sums)[rows][columns]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(newest) : "memory");
  tc_settle(sums);
}
#endif
// Arrives.
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_barrier_arrive(unsigned long long *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(tc_shared_address(barrier)) : "memory");
}
#endif
template <class T>
static __device__ __forceinline__ void tc_get4(T *values, const T *global) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<unsigned int *>(values) = *reinterpret_cast<const unsigned int *>(global);
#else
  for (int i = 0; i < (int)(4 / sizeof(T)); i++) values[i] = global[i];
#endif
}
#ifdef __CUDACC__
static __device__ __forceinline__ unsigned short tc_to_float16(float value) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // where the other conversion reads sums of warpgroups, ptxas runs products in turn
  unsigned int both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(0.0f), "f"(value));
  return (unsigned short)both;
#else
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}
static __device__ __forceinline__ unsigned short tc_to_float16(double value) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
  return bits;
}
#endif
#ifdef __CUDACC__
static __device__ __forceinline__ float tc_from_float16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif
// Of four lanes each has a word of four rows; then each has the row of its number.
static __device__ __forceinline__ void tc_turn_words(unsigned int (&own)[4], const int lane, const unsigned int mask) {
  #pragma unroll
  for (int apart = 1; apart < 4; apart *= 2)
    #pragma unroll
    for (int j = 0; j < 4; j++)
      if ((j & apart) == 0) {
        const bool second = lane & apart;
        const unsigned int got = __shfl_xor_sync(mask, second ? own[j] : own[j + apart], apart);
        own[j] = second ? got : own[j];
        own[j + apart] = second ? own[j + apart] : got;
      }
}
// Of four lanes each has a pair of four rows of pairs; then each has the row of its number.
static __device__ __forceinline__ void tc_turn_quad(unsigned short (&own)[8], const int lane, const unsigned int mask) {
  unsigned int pairs[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) pairs[j] = own[2 * j] | (unsigned int)own[2 * j + 1] << 16;
  tc_turn_words(pairs, lane, mask);
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    own[2 * j] = (unsigned short)pairs[j];
    own[2 * j + 1] = (unsigned short)(pairs[j] >> 16);
  }
}
template <class T>
static __device__ __forceinline__ void tc_put16(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(384, 1)
f_0(
    const unsigned short *__restrict__ bias,
    unsigned short *__restrict__ D,
    const __grid_constant__ tc_tensor_map A_map,
    const __grid_constant__ tc_tensor_map B_map)
{
  const int thread = threadIdx.x + 4 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  extern __shared__ __align__(1024) unsigned char tc_dynamic[];
  unsigned short (&A_tile)[4][8192] = *reinterpret_cast<unsigned short (*)[4][8192]>(tc_dynamic + 0);
  unsigned short (&B_tile)[4][16384] = *reinterpret_cast<unsigned short (*)[4][16384]>(tc_dynamic + 65536);
  unsigned long long (&full)[4] = *reinterpret_cast<unsigned long long (*)[4]>(tc_dynamic + 196608);
  unsigned long long (&empty)[4] = *reinterpret_cast<unsigned long long (*)[4]>(tc_dynamic + 196640);
  if (thread == 0) {
    for (int stage = 0; stage < 4; ++stage) {
      tc_barrier_init(&full[stage], 1);
      tc_barrier_init(&empty[stage], 8);
    }
    tc_barriers_visible();
  }
  __syncthreads();
  if (thread >= 256) {  // a warpgroup that fetches
    tc_registers_down<32>();
    if (thread == 256) {
      int stage = 0, parity = 1;
      for (unsigned int tile = blockIdx.x; tile < 512; tile += 132) {  // tiles in turn
        const unsigned int block_row = tile / 256 * 16 + tile % 256 % 16;
        const unsigned int block_column = tile % 256 / 16;
        const int b_m = block_row;
        const int b_n = block_column;
        for (int k_tile = 0; k_tile < 16; ++k_tile) {  // tiles of steps
          tc_barrier_wait(&empty[stage], parity);
          tc_barrier_expect(&full[stage], 49152);
          #pragma unroll
          for (int box = 0; box < 16; ++box) {
            tc_tensor_copy2(&A_tile[stage][1024 * (box % 8) + 512 * (8 * box / 64)], A_map, &full[stage], 64 * k_tile, 128 * b_m + 8 * box);
          }
          #pragma unroll
          for (int panel = 0; panel < 4; ++panel) {
            tc_tensor_copy2(&B_tile[stage][4096 * panel], B_map, &full[stage], 256 * b_n + 64 * panel, 64 * k_tile);
          }
          stage = stage + 1 == 4 ? 0 : stage + 1;
          parity ^= stage == 0;
        }
      }
    }
  } else {
    tc_registers_up<240>();
    int stage = 0, parity = 0;
    for (unsigned int tile = blockIdx.x; tile < 512; tile += 132) {  // tiles in turn
      const unsigned int block_row = tile / 256 * 16 + tile % 256 % 16;
      const unsigned int block_column = tile % 256 / 16;
      const int b_m = block_row;
      const int b_n = block_column;
      float C_acc[2][64];
      // C starts (64 x 4 threads, whole tiles)
      #pragma unroll
      for (int m_part = 0; m_part < 2; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 32; ++n_part) {
          #pragma unroll
          for (int n_part_1 = 0; n_part_1 < 2; ++n_part_1) {
            C_acc[m_part][2 * n_part + n_part_1] = 0.0f;
          }
        }
      }
      for (int k_tile = 0; k_tile < 16; ++k_tile) {  // tiles of steps
        tc_barrier_wait(&full[stage], parity);
        // C(m, n) +=! A(m, k) * B(k, n) (64 x 4 threads, matrices by warpgroups)
        tc_wgmma_fence(C_acc);
        #pragma unroll
        for (int step = 0; step < 4; ++step) {
          tc_wgmma_f16_n256<0, 1>(C_acc[0], C_acc[1], tc_descriptor(&A_tile[stage][4096 * (thread / 128) + 16 * step], 128, 1024), tc_descriptor(&B_tile[stage][1024 * step], 8192, 1024));
        }
        tc_wgmma_commit();
        tc_wgmma_wait<1>(C_acc);
        if (k_tile > 0 && thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 3 : stage - 1]);
        stage = stage + 1 == 4 ? 0 : stage + 1;
        parity ^= stage == 0;
      }
      tc_wgmma_wait<0>(C_acc);
      if (thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 3 : stage - 1]);
      // C is stored; D(m, n) = float16(float(C(m, n)) + float(bias(n))) (64 x 4 threads)
      if (t_m + 128 * b_m < 4000) {
        #pragma unroll
        for (int m_part = 0; m_part < 2; ++m_part) {
          if (128 * b_m + t_m + 64 * m_part < 4000) {
            #pragma unroll
            for (int n_part_turn = 0; n_part_turn < 8; ++n_part_turn) {
              __align__(16) unsigned short D_side_by_side[8];
              #pragma unroll
              for (int n_part_chunk = 0; n_part_chunk < 4; ++n_part_chunk) {
                __align__(4) unsigned short bias_side_by_side[2];
                tc_get4(bias_side_by_side, &bias[256 * b_n + 2 * t_n + 32 * n_part_turn + 8 * n_part_chunk]);
                #pragma unroll
                for (int n_part_1 = 0; n_part_1 < 2; ++n_part_1) {
                  unsigned short C_1_;
                  C_1_ = tc_to_float16(C_acc[m_part][8 * n_part_turn + 2 * n_part_chunk + n_part_1]);
                  D_side_by_side[2 * n_part_chunk + n_part_1] = tc_to_float16(((float)tc_from_float16(C_1_)) + ((float)tc_from_float16(bias_side_by_side[n_part_1])));
                }
              }
              tc_turn_quad(D_side_by_side, thread, 0xfu << thread % 32 / 4 * 4);
              tc_put16(&D[524288 * b_m + 4096 * t_m + 262144 * m_part + 256 * b_n + 32 * n_part_turn + 8 * t_n], D_side_by_side);
            }
          }
        }
      }
    }
  }
}

// f_0<<<(132, 1, 1), (4, 96, 1), 196672>>>(bias, D)

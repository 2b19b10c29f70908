// The PTX instructions that CUDA C++ has no names for, one thin function each (PTX ISA 8.0 and
// later).
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

namespace octet::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- mbarrier: a barrier in shared memory that also counts the bytes of bulk copies.

__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
// Makes the initialised barriers known to the copy engine.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Whether the phase has ended already. Asked long before it matters, it saves the wait its latency.
__device__ __forceinline__ bool mbarrier_test(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// --- Bulk copy of `bytes` (a multiple of 16, both sides aligned to 16) from global to shared
// memory.

__device__ __forceinline__ void bulk_copy(void* shared, const void* global, std::uint32_t bytes,
                                          std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// What is read once: such lines leave the L2 before all others.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, std::uint32_t bytes,
                                          std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Brings `bytes` (a multiple of 16, aligned to 16) of global memory into the L2.
__device__ __forceinline__ void bulk_prefetch(const void* global, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Orders this thread's ordinary stores to shared memory before what the tensor cores and the copy
// engine do there after the next barrier.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four matrices of 8 rows of 16 bytes to shared memory: lane i names row i % 8 of matrix i / 8 and
// holds bytes 4 (i % 4) to + 3 of row i / 4 of each.
__device__ __forceinline__ void store_matrices(std::uint32_t row_address, std::uint32_t a,
                                               std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(a),
      "r"(b), "r"(c), "r"(d)
      : "memory");
}

// --- Barrier 1..15 among `threads` threads of the block.

// The number is an immediate: one in a register would claim all sixteen.
template <int barrier, int threads>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

// Counts this thread in, and does not wait.
template <int barrier, int threads>
__device__ __forceinline__ void named_barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

// A barrier of its own for each warpgroup, of up to four; `group` is the same in all its threads.
__device__ __forceinline__ void warpgroup_barrier(int group) {
  switch (group) {
    case 0:
      return named_barrier<1, 128>();
    case 1:
      return named_barrier<2, 128>();
    case 2:
      return named_barrier<3, 128>();
    default:
      return named_barrier<4, 128>();
  }
}

// --- Registers of a warpgroup: a block's warpgroups hand them to one another. All four warps.

template <int registers>
__device__ __forceinline__ void give_up_registers_above() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers_up_to() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// --- wgmma: four warps multiply a 64-row A by a B of 8 n columns, both in shared memory, both with
// their k index contiguous.

// swizzle_row: bytes of a swizzled row, 128, 64 or 32; eight rows follow one another.
template <int swizzle_row>
__device__ __forceinline__ std::uint64_t matrix_descriptor(const void* start) {
  constexpr std::uint64_t mode = swizzle_row == 128 ? 1 : swizzle_row == 64 ? 2 : 3;
  constexpr std::uint64_t stride = 8 * swizzle_row / 16;
  return static_cast<std::uint64_t>((shared_address(start) & 0x3FFFF) >> 4) | (1ull << 16) |
         (stride << 32) | (mode << 62);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Waits until at most `groups` of this thread's committed groups, the newest, still run.
template <int groups>
__device__ __forceinline__ void wgmma_wait_all_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// d = (accumulate ? d : 0) + A B for one step of k = 32: e4m3 x e4m3 into float32 (of which the
// tensor core keeps 14 bits while it adds).
__device__ __forceinline__ void wgmma_e4m3(float (&d)[4], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3}, %4, %5, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_e4m3(float (&d)[8], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, "
      "1, "
      "1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// --- Numbers.

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approximate(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats to e4m3, to nearest even, saturating: `low` in bits 0 to 7.
__device__ __forceinline__ std::uint32_t to_e4m3x2(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
// Four floats to e4m3, x[0] in bits 0 to 7.
__device__ __forceinline__ std::uint32_t to_e4m3x4(const float (&x)[4]) {
  std::uint32_t codes;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}\n"
      : "=r"(codes)
      : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
  return codes;
}
// The same from two float16x2.
__device__ __forceinline__ std::uint32_t float16x2_to_e4m3x4(std::uint32_t first,
                                                             std::uint32_t second) {
  std::uint32_t codes;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f16x2 low, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f16x2 high, %2;\n"
      "mov.b32 %0, {low, high};\n"
      "}\n"
      : "=r"(codes)
      : "r"(first), "r"(second));
  return codes;
}
// Two floats to float16 (low in bits 0 to 15), what is too large to infinity.
__device__ __forceinline__ std::uint32_t to_float16x2(float low, float high) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
}
__device__ __forceinline__ std::uint32_t exp2_float16x2(std::uint32_t x) {
  std::uint32_t y;
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
// The exact values of two e4m3 codes (low in x).
__device__ __forceinline__ float2 from_e4m3x2(std::uint32_t codes) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// --- Programmatic dependent launch: wait for the kernels before; let the next one begin.

__device__ __forceinline__ void wait_for_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void launch_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Adds to a counter in global memory, ordered after this thread's earlier writes and before its
// later reads; returns the value before.
__device__ __forceinline__ std::uint32_t atomic_add_ordered(std::uint32_t* counter,
                                                            std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
}

// --- Words that threads of different blocks leave for one another, with no order among them.

__device__ __forceinline__ float2 load_relaxed(const float2* from) {
  float2 value;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0,%1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ float4 load_relaxed(const float4* from) {
  float4 value;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(float2* to, const float2& value) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1,%2};" ::"l"(to), "f"(value.x), "f"(value.y)
               : "memory");
}
__device__ __forceinline__ void store_relaxed(float4* to, const float4& value) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}

}  // namespace octet::ptx

// Hopper's narrow matrix products beside those of ptx.cuh, one thin function for each shape that
// decode uses (PTX ISA 8.0): d = (accumulate ? d : 0) + A B. A is 64 rows of k in shared memory, B
// is 8, 16 or 32 columns there, its k index contiguous (descriptors, ptx.cuh). d lies as
// wgmma_e4m3.cuh says.
#pragma once

#include <cstdint>

#include "core/cuda/ptx.cuh"

namespace octet::ptx {

// For an A whose 64 rows lie contiguous, k being the slower index: panels of swizzle_row bytes of
// rows, `next_panel` bytes from one to the next; the eight k of a core matrix follow one another.
template <int swizzle_row>
__device__ __forceinline__ std::uint64_t transposed_descriptor(const void* start,
                                                               std::uint64_t next_panel) {
  constexpr std::uint64_t mode = swizzle_row == 128 ? 1 : swizzle_row == 64 ? 2 : 3;
  constexpr std::uint64_t stride = 8 * swizzle_row / 16;
  return static_cast<std::uint64_t>((shared_address(start) & 0x3FFFF) >> 4) |
         (next_panel / 16 << 16) | (stride << 32) | (mode << 62);
}

// e4m3, k = 32; the tensor core keeps 14 bits of a sum while it adds.
__device__ __forceinline__ void wgmma_e4m3(float (&d)[16], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// int8, k = 32, into exact 32-bit integers.
__device__ __forceinline__ void wgmma_int8(std::int32_t (&d)[4], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 "
      "{%0,%1,%2,%3}, %4, %5, p;\n"
      "}\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_int8(std::int32_t (&d)[8], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p;\n"
      "}\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_int8(std::int32_t (&d)[16], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p;\n"
      "}\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// bfloat16, k = 16. transposed: A lies with its 64 rows contiguous and k as the slower index.
template <bool transposed>
__device__ __forceinline__ void wgmma_bfloat16(float (&d)[4], std::uint64_t a, std::uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3}, %4, %5, p, 1, 1, %7, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(transposed ? 1 : 0));
}
template <bool transposed>
__device__ __forceinline__ void wgmma_bfloat16(float (&d)[8], std::uint64_t a, std::uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, %11, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(transposed ? 1 : 0));
}

}  // namespace octet::ptx

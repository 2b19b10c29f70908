// The tensor core's instructions for one warp (sm_80 and later), and the conversions of 8-bit codes
// that feed them. PTX ISA, "mma.m16n8k16": with g = lane / 4 and c = lane % 4, a thread holds
//   A [16 x 16]: a[0] (row g, columns 2c and 2c+1), a[1] (g+8, 2c ..), a[2] (g, 2c+8 ..),
//                a[3] (g+8, 2c+8 ..)
//   B [16 x 8]:  b[0] (rows 2c and 2c+1, column g), b[1] (rows 2c+8 and 2c+9, column g)
//   D [16 x 8]:  d[0], d[1] (row g, columns 2c and 2c+1), d[2], d[3] (row g+8, the same)
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace octet {

struct Float16Product {
  static __device__ __forceinline__ void add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  // `low` in the lower half.
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    const __half2 halves = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&halves);
  }
};

struct Bfloat16Product {
  static __device__ __forceinline__ void add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    const __nv_bfloat162 halves = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&halves);
  }
};

// An 8 x 8 matrix of 16-bit elements, two of a row in each thread as in D above, to its transpose.
__device__ __forceinline__ std::uint32_t transpose_8x8(std::uint32_t pair) {
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

// Four 8 x 8 matrices of 16-bit elements from shared memory; lane i names row i % 8 of matrix i
// / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4],
                                                         std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// 16 bytes from global to shared memory, not waited for; zeros where `valid` is false.
__device__ __forceinline__ void copy_16_bytes(std::uint32_t shared, const void* global,
                                              bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int groups>
__device__ __forceinline__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// Four codes of a word to float16, exactly: elements 0 and 1 in .x, 2 and 3 in .y.
struct E4m3Codes {
  static __device__ __forceinline__ uint2 to_float16(std::uint32_t codes) {
#if __CUDA_ARCH__ >= 890
    uint2 halves;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}\n"
        : "=r"(halves.x), "=r"(halves.y)
        : "r"(codes));
    return halves;
#else
    // Exponent and mantissa in binary16's places make 2^-8 of the value, subnormals included. The
    // NaN's code needs a look of its own.
    const auto pair = [](std::uint32_t spread) {  // a code in the upper byte of each half
      const std::uint32_t bits = (spread & 0x80008000u) | ((spread & 0x7F007F00u) >> 1);
      const __half2 scaled =
          __hmul2(*reinterpret_cast<const __half2*>(&bits), __floats2half2_rn(256.0f, 256.0f));
      std::uint32_t value = *reinterpret_cast<const std::uint32_t*>(&scaled);
      if ((spread & 0x7F00u) == 0x7F00u) value |= 0x7E00u;
      if ((spread & 0x7F000000u) == 0x7F000000u) value |= 0x7E000000u;
      return value;
    };
    return make_uint2(pair(__byte_perm(codes, 0, 0x1404)), pair(__byte_perm(codes, 0, 0x3424)));
#endif
  }
};

struct Int8Codes {
  static __device__ __forceinline__ uint2 to_float16(std::uint32_t codes) {
    // 0x6400 + u is the float16 1024 + u; u = code + 128.
    const std::uint32_t shifted = codes ^ 0x80808080u;
    const auto pair = [](std::uint32_t bits) {
      const __half2 value =
          __hsub2(*reinterpret_cast<const __half2*>(&bits), __floats2half2_rn(1152.0f, 1152.0f));
      return *reinterpret_cast<const std::uint32_t*>(&value);
    };
    return make_uint2(pair(__byte_perm(shifted, 0x64646464u, 0x4140)),
                      pair(__byte_perm(shifted, 0x64646464u, 0x4342)));
  }
};

}  // namespace octet

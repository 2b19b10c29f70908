// Roundings that are bit for bit those of core/{bfloat16,float16,float8_e4m3}.h, NaNs included,
// which the GPU's own conversions replace by one of theirs.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

namespace octet {

__device__ __forceinline__ bool is_nan_bits(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

// A NaN comes out as it went in: the GPU's arithmetic would make it one of its own, and a compiler
// that sees through the subtraction may take it for the whole expression, to which it is equal but
// for a NaN's bits.
__device__ __forceinline__ float difference(float a, float b) {
  float result;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return is_nan_bits(__float_as_uint(a)) ? a : result;
}
__device__ __forceinline__ float quotient(float a, float b) {
  return is_nan_bits(__float_as_uint(a)) ? a : __fdiv_rn(a, b);
}

__device__ __forceinline__ std::uint32_t bfloat16_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (is_nan_bits(bits)) return (bits >> 16) | 0x40u;
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}

// The smallest bfloat16 that is not below a finite `value` >= 0.
__device__ __forceinline__ std::uint32_t bfloat16_bits_up(float value) {
  return (__float_as_uint(value) + 0xFFFFu) >> 16;
}

__device__ __forceinline__ float bfloat16_value(std::uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// Saturates at 65504, infinities too.
__device__ __forceinline__ std::uint32_t float16_bits_saturating(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (is_nan_bits(bits)) return ((bits >> 16) & 0x8000u) | 0x7E00u;
  return __half_as_ushort(__float2half_rn(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

// Saturates at 448, infinities too.
__device__ __forceinline__ std::uint32_t e4m3_code(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (is_nan_bits(bits)) return ((bits >> 24) & 0x80u) | 0x7Fu;
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

// Saturates at 127; a NaN becomes 0.
__device__ __forceinline__ std::uint32_t int8_code(float value) {
  if (is_nan_bits(__float_as_uint(value))) return 0;
  return static_cast<std::uint32_t>(__float2int_rn(fminf(fmaxf(value, -127.0f), 127.0f))) & 0xFFu;
}

}  // namespace octet

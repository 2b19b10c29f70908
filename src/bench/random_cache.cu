#include <algorithm>
#include <numeric>
#include <random>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "bench/random_cache_fill.h"
#include "core/cuda/check.h"
#include "core/cuda/ptx.cuh"
#include "kv/element_order.h"

namespace octet {

namespace {

// A well mixed 64-bit hash (the finaliser of splitmix64): element i of a stream of random bits.
__device__ std::uint64_t mixed(std::uint64_t i) {
  i += 0x9E3779B97F4A7C15ull;
  i = (i ^ (i >> 30)) * 0xBF58476D1CE4E5B9ull;
  i = (i ^ (i >> 27)) * 0x94D049BB133111EBull;
  return i ^ (i >> 31);
}

// N(0, 1) by Box and Muller.
__device__ float random_normal(std::uint64_t i) {
  const std::uint64_t bits = mixed(i);
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  const float v = static_cast<float>(bits & 0xFFFFFF) * 0x1p-24f;
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

// A number's element in the cache, of one or two bytes. Past the context it is NaN, where the
// format has one.
__device__ std::uint32_t stored(KvDtype dtype, float x, bool past_end) {
  switch (dtype) {
    case KvDtype::fp8:
      return past_end ? 0x7F : ptx::to_e4m3x2(x, 0) & 0xFF;
    case KvDtype::int8:
      return past_end ? 0x80
                      : static_cast<std::uint32_t>(
                            __float2int_rn(fminf(fmaxf(x, -127.0f), 127.0f)) & 0xFF);
    default:
      return past_end ? 0x7FFF
                      : static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16(x)));
  }
}

// One warp writes one token of one side: blockIdx.x is (place in the table, KV head), each warp
// strides over the page's tokens and both sides.
__global__ void fill_kernel(const FillParameters p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t logical = blockIdx.x / p.kv_heads;
  const int head = static_cast<int>(blockIdx.x % p.kv_heads);
  const int first_token = static_cast<int>(logical % p.pages_per_sequence) * page_tokens;
  const int length = p.lengths[logical / p.pages_per_sequence];
  if (first_token >= length) return;
  std::byte* run = p.arena + (static_cast<std::size_t>(p.table[logical]) * p.kv_heads +
                              static_cast<std::size_t>(head)) *
                                 p.run_bytes;
  for (int item = static_cast<int>(threadIdx.x / 32); item < 2 * page_tokens;
       item += blockDim.x / 32) {
    const bool is_value = item >= page_tokens;
    const int token = item % page_tokens;
    const bool past_end = first_token + token >= length;
    const std::uint64_t seed = ((logical * p.kv_heads + head) * 2 * page_tokens + item) * 512;
    const KvSidePolicy& side = is_value ? p.value : p.key;
    float largest = 0;
    for (int i = lane; i < p.head_dim; i += 32) {
      largest = fmaxf(largest, fabsf(random_normal(seed + i) + (is_value ? p.value_mean : 0)));
    }
    for (int step = 1; step < 32; step *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    }
    float scale = 1;
    if (is_static(side.scales)) scale = (is_value ? p.value_scales : p.key_scales)[head];
    if (side.scales == KvScales::dynamic) {
      const float largest_code = side.dtype == KvDtype::int8 ? 127.0f : 448.0f;
      const auto bits =
          static_cast<std::uint16_t>((__float_as_uint(largest / largest_code) + 0xFFFFu) >> 16);
      scale = __uint_as_float(static_cast<unsigned>(bits) << 16);
      if (lane == 0) {
        const std::size_t offset = is_value ? p.value_scale_offset : p.key_scale_offset;
        reinterpret_cast<std::uint16_t*>(run + offset)[token] = past_end ? 0x7FFF : bits;
      }
    }
    for (int i = lane; i < p.head_dim; i += 32) {
      const float x = random_normal(seed + i) + (is_value ? p.value_mean : 0);
      const std::uint32_t code = stored(side.dtype, x / scale, past_end);
      const std::size_t bytes = bytes_of(side.dtype);
      const std::size_t offset =
          is_value ? p.value_offset + element_offset(p.value_order, bytes, p.head_dim, token, i)
                   : element_offset(p.key_order, bytes, p.head_dim, token, i);
      run[offset] = static_cast<std::byte>(code & 0xFF);
      if (bytes == 2) run[offset + 1] = static_cast<std::byte>(code >> 8);
    }
  }
}

}  // namespace

void launch_random_cache_fill(const FillParameters& parameters, std::int64_t places,
                              cudaStream_t stream) {
  fill_kernel<<<static_cast<unsigned>(places * parameters.kv_heads), 256, 0, stream>>>(parameters);
  check_cuda(cudaGetLastError(), "launch of the cache's filling");
}

}  // namespace octet

// The rows of an item of the prefill kernel: where they are, their query and their output. Internal
// to src/ops/attention.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/prefill_sm90_products.cuh"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

// A computing thread has two rows of its warpgroup's 64.
__device__ __forceinline__ int row_of_thread(int r) {
  return 16 * static_cast<int>(threadIdx.x / 32 % 4) + static_cast<int>(threadIdx.x % 32 / 4) +
         8 * r;
}
// Their places among the sequence's rows, found anew where they are needed: registers to keep them
// there are not.
__device__ __forceinline__ int row_place(const PrefillBlock& item, int group, int r) {
  return item.first_row + 64 * group + row_of_thread(r);
}
// The newest key that a row sees. Places past the last row see what that sees; their query is 0,
// and their output is not stored.
__device__ __forceinline__ int row_position(const PrefillParameters& p, const PrefillBlock& item,
                                            int place) {
  return item.first_position + min(place, item.rows - 1) / p.group;
}

// The item's query rows as e4m3, scaled by a power of two: A operands in registers, or rows in
// shared memory.
template <typename Config>
__device__ __forceinline__ float load_query(const PrefillParameters& p,
                                            PrefillShared<Config>& shared, const PrefillBlock& item,
                                            int group, int n,
                                            std::uint32_t (&query)[Config::query_steps][4]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const __nv_bfloat16* from[2];
  bool valid[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int place = row_place(item, group, r);
    valid[r] = place < item.rows;
    from[r] = static_cast<const __nv_bfloat16*>(p.query) +
              (item.query_row + place / p.group) * p.query_stride +
              (item.kv_head * p.group + place % p.group) * Config::head_dim + 4 * (lane % 4);
  }
  // a[i] of a step: row i % 2, k = 16 (i / 2) + 4 (lane % 4) and the next three.
  uint2 raw[Config::query_steps][4];
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw[step][i] = make_uint2(0, 0);
      if (valid[i % 2]) {
        raw[step][i] = *reinterpret_cast<const uint2*>(from[i % 2] + 32 * step + 16 * (i / 2));
      }
    }
  }
  __nv_bfloat162 largest = __float2bfloat162_rn(0.0f);
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      largest =
          __hmax2(largest, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].x)));
      largest =
          __hmax2(largest, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].y)));
    }
  }
  float maximum = fmaxf(__low2float(largest), __high2float(largest));
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, step));
  }
  if (lane == 0) {
    shared.query_maximum[n % 2][4 * group + warp] = maximum;
    ptx::mbarrier_arrive(&shared.query_ready);
  }
  ptx::mbarrier_wait(&shared.query_ready, n & 1);
  const PrefillQueryScale scale = query_scale(shared, n);
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 low =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].x));
      const float2 high =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].y));
      const std::uint32_t codes = ptx::to_e4m3x2(low.x * scale.up, low.y * scale.up) |
                                  ptx::to_e4m3x2(high.x * scale.up, high.y * scale.up) << 16;
      if constexpr (Config::query_in_registers) {
        query[step][i] = codes;
      } else {
        constexpr int row_bytes = Config::panel_row;
        const int row = 16 * warp + lane / 4 + 8 * (i % 2);
        const int column = 32 * step + 16 * (i / 2) + 4 * (lane % 4);
        const int offset = row * row_bytes + column % row_bytes;
        *reinterpret_cast<std::uint32_t*>(
            shared.query[group] + column / row_bytes * 64 * row_bytes +
            (offset ^ (offset / 128 % (row_bytes / 16) * 16))) = codes;
      }
    }
  }
  if constexpr (!Config::query_in_registers) {
    ptx::fence_async_shared();
    ptx::warpgroup_barrier(group);
  }
  return scale.down;
}

template <typename Config>
__device__ __forceinline__ void store_pair(const PrefillParameters& p, std::int64_t at, float low,
                                           float high) {
  if (p.output_float32) {
    *reinterpret_cast<float2*>(static_cast<float*>(p.output) + at) = make_float2(low, high);
  } else {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(p.output) + at) =
        __floats2bfloat162_rn(low, high);
  }
}

template <typename Config>
__device__ __forceinline__ void store_output(const PrefillParameters& p, const PrefillBlock& item,
                                             int group, const PrefillState<Config>& state) {
  const int lane = threadIdx.x % 32;
  constexpr int sums = Config::last_registers - 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Columns 0, 1 and 2 of the sums are terms, each in sixteenths of the one before; lanes 0 and 1
    // of a row's four hold them.
    const float low = state.last_output[sums + 2 * r];
    const float high = state.last_output[sums + 2 * r + 1];
    float sum = lane % 4 == 0 ? low + high * 0x1p-4f : lane % 4 == 1 ? low * 0x1p-8f : 0.0f;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float scale = 1.0f / sum;
    const int place = row_place(item, group, r);
    if (place >= item.rows) continue;
    const std::int64_t at = (item.query_row + place / p.group) * p.output_stride +
                            (item.kv_head * p.group + place % p.group) * Config::head_dim +
                            2 * (lane % 4);
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        store_pair<Config>(p, at + 64 * chunk + 8 * j, state.output[chunk][4 * j + 2 * r] * scale,
                           state.output[chunk][4 * j + 2 * r + 1] * scale);
      }
    }
#pragma unroll
    for (int j = 0; j < sums / 4; ++j) {
      store_pair<Config>(p, at + 64 * (Config::chunks - 1) + 8 * j,
                         state.last_output[4 * j + 2 * r] * scale,
                         state.last_output[4 * j + 2 * r + 1] * scale);
    }
  }
}

}  // namespace octet

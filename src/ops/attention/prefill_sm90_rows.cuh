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
// The thread's number, of which the compiler does not know that it is the one of before: what
// follows from it is found anew where it is needed. Registers to keep it there are not, and the
// compiler would.
__device__ __forceinline__ int thread_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
// The rows' places among the sequence's.
__device__ __forceinline__ int row_place(const PrefillBlock& item, int group, int r) {
  const int thread = thread_anew();
  return item.first_row + 64 * group + 16 * (thread / 32 % 4) + thread % 32 / 4 + 8 * r;
}
// The newest key that a row sees. Places past the last row see what that sees; their query is 0,
// and their output is not stored.
__device__ __forceinline__ int row_position(const PrefillParameters& p, const PrefillBlock& item,
                                            int place) {
  return item.first_position + min(place, item.rows - 1) / p.group;
}
// Writes those of the warp's rows where it will look them up.
template <typename Config>
__device__ __forceinline__ void store_positions(const PrefillParameters& p,
                                                PrefillShared<Config>& shared,
                                                const PrefillBlock& item, int group) {
  const int thread = thread_anew();
  const int row = 16 * (thread / 32 % 4) + thread % 16;
  if (thread % 32 < 16) {
    shared.positions[group][row] = row_position(p, item, item.first_row + 64 * group + row);
  }
  __syncwarp();
}

// Static scales of the item's KV head.
template <typename Config>
__device__ __forceinline__ float key_scale(const PrefillParameters& p, const PrefillBlock& item) {
  return Config::scaled || p.key_scales == nullptr ? 1.0f : p.key_scales[item.kv_head];
}
template <typename Config>
__device__ __forceinline__ float value_scale(const PrefillParameters& p, const PrefillBlock& item) {
  return Config::scaled || p.value_scales == nullptr ? 1.0f : p.value_scales[item.kv_head];
}

// The warpgroups pass a token, so that they do not do the same at the same time. Left alone they
// fall into step.
__device__ __forceinline__ void take_turn(int group) {
  if (group == 0) {
    ptx::named_barrier<5, 256>();
  } else {
    ptx::named_barrier<6, 256>();
  }
}
__device__ __forceinline__ void give_turn(int group) {
  if (group == 0) {
    ptx::named_barrier_arrive<6, 256>();
  } else {
    ptx::named_barrier_arrive<5, 256>();
  }
}

// What decides which of an item's tiles are masked: every row of the warpgroup sees the keys in
// [from, to).
struct PrefillSeen {
  int from;
  int to;

  __device__ __forceinline__ PrefillSeen(const PrefillParameters& p, const PrefillBlock& item,
                                         int group) {
    const int first_row = item.first_row + 64 * group;
    to = row_position(p, item, first_row) + 1;
    from = p.window > 0 ? row_position(p, item, first_row + 63) - p.window + 1 : 0;
  }
  __device__ __forceinline__ bool all(int first_key, int keys = prefill_tile_keys) const {
    return first_key >= from && first_key + keys <= to;
  }
};

// A thread's share of the item's query rows: of a step's [i], row i % 2, dimensions 32 step +
// 16 (i / 2) + 4 (lane % 4) and the next three.
template <typename Config>
__device__ __forceinline__ void read_query(const PrefillParameters& p, const PrefillBlock& item,
                                           int group, uint2 (&raw)[Config::query_steps][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int place = row_place(item, group, r);
    const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(p.query) +
                                (item.query_row + place / p.group) * p.query_stride +
                                (item.kv_head * p.group + place % p.group) * Config::head_dim +
                                4 * (lane % 4);
#pragma unroll
    for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        raw[step][2 * half + r] =
            place < item.rows ? *reinterpret_cast<const uint2*>(from + 32 * step + 16 * half)
                              : make_uint2(0, 0);
      }
    }
  }
}
__device__ __forceinline__ float2 bfloat16_pair(std::uint32_t bits) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}

// The largest squared norm of the thread's two rows.
template <typename Config>
__device__ __forceinline__ float query_squares(const uint2 (&raw)[Config::query_steps][4]) {
  float squares[2] = {0, 0};
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 low = bfloat16_pair(raw[step][i].x);
      const float2 high = bfloat16_pair(raw[step][i].y);
      squares[i % 2] += low.x * low.x + low.y * low.y + (high.x * high.x + high.y * high.y);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    squares[r] += __shfl_xor_sync(~0u, squares[r], 1);
    squares[r] += __shfl_xor_sync(~0u, squares[r], 2);
  }
  return fmaxf(squares[0], squares[1]);
}

// After this the compiler no longer knows that it has the elements as floats already, and keeps but
// what was read.
template <typename Config>
__device__ __forceinline__ void forget_floats(uint2 (&raw)[Config::query_steps][4]) {
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(raw[step][i].x), "+r"(raw[step][i].y));
  }
}

// Tells the block of the warp's query, and waits for what its other warps tell.
template <typename Config>
__device__ __forceinline__ PrefillQueryScale agree_on_scale(PrefillShared<Config>& shared,
                                                            int group, int n, float squares) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    squares = fmaxf(squares, __shfl_xor_sync(~0u, squares, step));
  }
  if (threadIdx.x % 32 == 0) {
    shared.query_squares[n % 2][4 * group + threadIdx.x / 32 % 4] = squares;
    ptx::mbarrier_arrive(&shared.query_ready[n % 2]);
  }
  ptx::mbarrier_wait(&shared.query_ready[n % 2], n / 2 & 1);
  return query_scale(shared, n);
}

// What a thread's two query rows are multiplied by before they are rounded. Beside e4m3 keys that
// is one power of two for the item's rows. Beside int8 keys each row's largest element becomes 127,
// and a factor that it leaves in shared memory brings its scores to where that power of two would
// have them, in float16's range.
struct PrefillQueryRounding {
  float up[2];
};
template <typename Config>
__device__ __forceinline__ PrefillQueryRounding
query_rounding(PrefillShared<Config>& shared, int group, const uint2 (&raw)[Config::query_steps][4],
               const PrefillQueryScale& scale) {
  PrefillQueryRounding rounding = {{scale.up, scale.up}};
  if constexpr (Config::keys == PrefillKeys::int8) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      __nv_bfloat162 pair = __float2bfloat162_rn(0);
#pragma unroll
      for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
        for (int i = r; i < 4; i += 2) {
          pair = __hmax2(pair, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].x)));
          pair = __hmax2(pair, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&raw[step][i].y)));
        }
      }
      float largest = fmaxf(__low2float(pair), __high2float(pair));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      largest = fmaxf(largest, 1e-30f);
      rounding.up[r] = 127.0f / largest;
      if (threadIdx.x % 4 == 0) {
        shared.score_factors[group][row_of_thread(r)] = largest * (1.0f / 127) * scale.up;
      }
    }
    __syncwarp();
  }
  return rounding;
}

template <typename Config>
__device__ __forceinline__ std::uint32_t round_query(uint2 raw, float up) {
  const float2 low = bfloat16_pair(raw.x);
  const float2 high = bfloat16_pair(raw.y);
  if constexpr (Config::keys == PrefillKeys::int8) {
    // Added to 1.5 * 2^23, whose last bit is 1, a number is rounded, and is the last byte.
    const auto code = [&](float x) { return __float_as_uint(__fmaf_rn(x, up, 12582912.0f)); };
    return __byte_perm(__byte_perm(code(low.x), code(low.y), 0x0040),
                       __byte_perm(code(high.x), code(high.y), 0x0040), 0x5410);
  } else {
    return ptx::to_e4m3x4({low.x * up, low.y * up, high.x * up, high.y * up});
  }
}

// The item's query rows, rounded: A operands in registers. Returns what is left to multiply scores
// by.
template <typename Config>
__device__ __forceinline__ float load_query(const PrefillParameters& p,
                                            PrefillShared<Config>& shared, const PrefillBlock& item,
                                            int group, int n,
                                            std::uint32_t (&query)[Config::query_steps][4]) {
  uint2 raw[Config::query_steps][4];
  read_query<Config>(p, item, group, raw);
  const PrefillQueryScale scale = agree_on_scale(shared, group, n, query_squares<Config>(raw));
  const PrefillQueryRounding rounding = query_rounding<Config>(shared, group, raw, scale);
  forget_floats<Config>(raw);
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      query[step][i] = round_query<Config>(raw[step][i], rounding.up[i % 2]);
    }
  }
  return scale.down;
}

// The same as rows in shared memory.
template <typename Config>
__device__ __forceinline__ float load_query(const PrefillParameters& p,
                                            PrefillShared<Config>& shared, const PrefillBlock& item,
                                            int group, int n) {
  uint2 raw[Config::query_steps][4];
  read_query<Config>(p, item, group, raw);
  const PrefillQueryScale scale = agree_on_scale(shared, group, n, query_squares<Config>(raw));
  const PrefillQueryRounding rounding = query_rounding<Config>(shared, group, raw, scale);
  forget_floats<Config>(raw);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < Config::query_steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr int row_bytes = Config::panel_row;
      const int row = row_of_thread(i % 2);
      const int column = 32 * step + 16 * (i / 2) + 4 * (lane % 4);
      const int offset = row * row_bytes + column % row_bytes;
      *reinterpret_cast<std::uint32_t*>(shared.query[group] + column / row_bytes * 64 * row_bytes +
                                        (offset ^ (offset / 128 % (row_bytes / 16) * 16))) =
          round_query<Config>(raw[step][i], rounding.up[i % 2]);
    }
  }
  ptx::fence_async_shared();
  ptx::warpgroup_barrier(group);
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
                                             int group, const PrefillSums<Config>& sums) {
  const int lane = threadIdx.x % 32;
  constexpr int first_sum = Config::last_registers - 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Columns 0, 1 and 2 of the sums are terms, each in sixteenths of the one before; lanes 0 and 1
    // of a row's four hold them.
    const float low = sums.last_output[first_sum + 2 * r];
    const float high = sums.last_output[first_sum + 2 * r + 1];
    float sum = lane % 4 == 0 ? low + high * 0x1p-4f : lane % 4 == 1 ? low * 0x1p-8f : 0.0f;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float scale = value_scale<Config>(p, item) / sum;
    const int place = row_place(item, group, r);
    if (place >= item.rows) continue;
    const std::int64_t at = (item.query_row + place / p.group) * p.output_stride +
                            (item.kv_head * p.group + place % p.group) * Config::head_dim +
                            2 * (lane % 4);
#pragma unroll
    for (int chunk = 0; chunk < Config::chunks - 1; ++chunk) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        store_pair<Config>(p, at + 64 * chunk + 8 * j, sums.output[chunk][4 * j + 2 * r] * scale,
                           sums.output[chunk][4 * j + 2 * r + 1] * scale);
      }
    }
#pragma unroll
    for (int j = 0; j < first_sum / 4; ++j) {
      store_pair<Config>(p, at + 64 * (Config::chunks - 1) + 8 * j,
                         sums.last_output[4 * j + 2 * r] * scale,
                         sums.last_output[4 * j + 2 * r + 1] * scale);
    }
  }
}

}  // namespace octet

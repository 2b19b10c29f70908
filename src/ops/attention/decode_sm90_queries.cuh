// A pair's queries as the decode kernel's columns. Internal to src/ops/attention.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"

namespace octet {

// The columns of two neighbouring dimensions of a query: beside e4m3 keys two terms of e4m3, beside
// int8 keys two of int8, the first of which has the largest element at 127.
template <typename Config>
__device__ __forceinline__ void store_query_terms(std::uint8_t* query, int q, int dimension,
                                                  float2 x, float up) {
  std::uint32_t terms[2];
  if constexpr (Config::keys == DecodeKeys::bfloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x.x, x.y);
    terms[0] = *reinterpret_cast<const std::uint32_t*>(&pair);
  } else if constexpr (Config::keys == DecodeKeys::int8) {
    const float a = x.x * up;
    const float b = x.y * up;
    const float high_a = rintf(a);
    const float high_b = rintf(b);
    const auto code = [](float value) { return static_cast<std::uint32_t>(__float2int_rn(value)); };
    terms[0] = (code(high_a) & 0xFF) | (code(high_b) & 0xFF) << 8;
    terms[1] = (code((a - high_a) * (1 / Config::query_low_term)) & 0xFF) |
               (code((b - high_b) * (1 / Config::query_low_term)) & 0xFF) << 8;
  } else {
    const float a = x.x * up;
    const float b = x.y * up;
    terms[0] = ptx::to_e4m3x2(a, b);
    const float2 rounded = ptx::from_e4m3x2(terms[0]);
    terms[1] = ptx::to_e4m3x2((a - rounded.x) / Config::query_low_term,
                              (b - rounded.y) / Config::query_low_term);
  }
  const int byte = dimension * Config::element_bytes;
  const int panel = byte / Config::panel_row * Config::columns * Config::panel_row;
#pragma unroll
  for (int term = 0; term < Config::terms; ++term) {
    const int offset = (Config::terms * q + term) * Config::panel_row + byte % Config::panel_row;
    const int swizzled = offset ^ (offset / 128 % (Config::panel_row / 16) * 16);
    if constexpr (Config::element_bytes == 2) {
      *reinterpret_cast<std::uint32_t*>(query + panel + swizzled) = terms[term];
    } else {
      *reinterpret_cast<std::uint16_t*>(query + panel + swizzled) =
          static_cast<std::uint16_t>(terms[term]);
    }
  }
}

// The queries of a pair as columns, and what their scores are multiplied by. A warp takes every
// fourth query.
template <typename Config>
__device__ void prepare_queries(const DecodeParameters& p, const DecodeWalk& walk,
                                DecodeShared<Config>& shared, int group) {
  constexpr int pairs = Config::head_dim / 2;
  constexpr int each = (pairs + 31) / 32;
  constexpr float log2_e = 1.44269504088896341f;
  constexpr int mine = (Config::queries + 3) / 4;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  // All of a warp's queries are on their way before the first is looked at.
  __nv_bfloat162 loaded[mine][each] = {};
#pragma unroll
  for (int n = 0; n < mine; ++n) {
    const std::int64_t place = query_place<Config>(p, walk.sequence, walk.head, warp + 4 * n,
                                                   p.query_stride, Config::head_dim);
    if (place < 0) continue;
    const auto* from =
        reinterpret_cast<const __nv_bfloat162*>(static_cast<const __nv_bfloat16*>(p.query) + place);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (lane + 32 * i < pairs) loaded[n][i] = from[lane + 32 * i];
    }
  }
#pragma unroll
  for (int n = 0; n < mine; ++n) {
    const int q = warp + 4 * n;
    float2 x[each];
#pragma unroll
    for (int i = 0; i < each; ++i) x[i] = __bfloat1622float2(loaded[n][i]);
    const bool exists = q + DecodeHead<Config>(p, walk.head).first_query < p.total_queries;
    float up = 1;
    float down = 1;
    if constexpr (Config::keys != DecodeKeys::bfloat16) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < each; ++i) largest = fmaxf(largest, fmaxf(fabsf(x[i].x), fabsf(x[i].y)));
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
      }
      if constexpr (Config::keys == DecodeKeys::int8) {
        largest = fmaxf(largest, 1e-30f);
        up = 127.0f * ptx::reciprocal_approximate(largest);
        down = largest * (1.0f / 127);
      } else {
        // A power of two that brings the largest element to [128, 256): the exponent's bits. Below
        // 2^-111 a query is as good as 0.
        const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), 16);
        up = __uint_as_float(static_cast<unsigned>(261 - exponent) << 23);
        down = __uint_as_float(static_cast<unsigned>(exponent - 7) << 23);
      }
    }
    if (lane == 0) {
      if (p.has_query_extras) {
        const DecodeHead<Config> of(p, walk.head);
        if (p.key_scales != nullptr) down *= p.key_scales[of.kv_head];
        float mean = 0;
        if (p.query_means != nullptr && exists) {
          mean =
              p.scale_log2 *
              p.query_means[query_place<Config>(p, walk.sequence, walk.head, q, p.query_heads, 1)];
        }
        shared.query_mean[group][q] = mean;
        float sink = no_score;
        if (p.sinks != nullptr && exists) {
          sink = p.sinks[of.kv_head * p.group + (q + of.first_query) % p.group] * log2_e;
          // Without a soft cap nothing is added to the scores, and the sink is lowered instead.
          if (p.soft_cap_log2 == 0) sink -= mean;
        }
        shared.query_sink[group][q] = sink;
      }
      shared.query_scale[group][q] = down * p.scale_log2;
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (lane + 32 * i < pairs) {
        store_query_terms<Config>(shared.query[group], q, 2 * (lane + 32 * i), x[i], up);
      }
    }
  }
}

}  // namespace octet

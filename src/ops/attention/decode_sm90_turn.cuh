// A turn of the decode kernel: scores, weights, products. Internal to src/ops/attention.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma_narrow.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"
#include "ops/attention/sm90_pages.cuh"

namespace octet {

// Sets the values of keys outside [first, last) of a page to 0. One warpgroup.
template <typename Config>
__device__ void clear_values(std::uint8_t* values, int first, int last) {
  if constexpr (Config::element_bytes == 1) {
    clear_transposed_values<Config::head_dim, 128>(values, first, last);
  } else {
    for (int piece = threadIdx.x % 128; piece < Config::side_bytes / 16; piece += 128) {
      const int key = piece * 16 / Config::panel_row % 64;
      if (key < first || key >= last) {
        *reinterpret_cast<uint4*>(values + piece * 16) = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

// What a computing thread carries from turn to turn. It holds rows `row` and `row` + 8 of the
// tensor core's 64 (tokens of S^T, dimensions of O^T) and the queries of Config::query_of.
template <typename Config>
struct DecodeState {
  static constexpr int queries = Config::thread_queries;
  // Of a query and row the sum; with single-level accumulation the tensor core's own, both terms.
  static constexpr int outputs = Config::single_level ? 4 * Config::column_blocks : 2 * queries;
  float output[Config::value_blocks][outputs];
  float maximum[queries];
  float sum[queries];  // over this thread's tokens

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < queries; ++i) {
      maximum[i] = no_score;
      sum[i] = 0;
    }
#pragma unroll
    for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
      for (int i = 0; i < outputs; ++i) output[b][i] = 0;
    }
  }
  __device__ __forceinline__ float value(int b, int i, int half) const {
    if constexpr (!Config::single_level) return output[b][2 * i + half];
    const float* place = &output[b][Config::place_of(i, half)];
    return Config::terms == 2 ? fmaf(place[1], Config::weight_low_term, place[0]) : place[0];
  }
};

// The keys that a turn holds, for the few turns at a sequence's or a window's ends.
struct DecodeEdge {
  int first_key;  // of the turn
  int visible_first;
  int visible_last;  // keys that any query row sees are in [visible_first, visible_last)
};

// Score is float, or std::int32_t beside int8 keys. Does not wait for the tensor core.
template <typename Config, typename Score>
__device__ __forceinline__ void decode_scores(
    const DecodeShared<Config>& shared, int group, int stage,
    Score (&s)[Config::turn_pages][4 * Config::column_blocks]) {
  constexpr int row = Config::panel_row;
  ptx::wgmma_fence();
#pragma unroll
  for (int x = 0; x < Config::turn_pages; ++x) {
#pragma unroll
    for (int byte = 0; byte < Config::row_bytes; byte += 32) {
      const std::uint64_t keys = ptx::matrix_descriptor<row>(shared.pages[group][stage][x] +
                                                             byte / row * 64 * row + byte % row);
      const std::uint64_t query = ptx::matrix_descriptor<row>(
          shared.query[group] + byte / row * Config::columns * row + byte % row);
      if constexpr (Config::keys == DecodeKeys::bfloat16) {
        ptx::wgmma_bfloat16<false>(s[x], keys, query, byte > 0);
      } else if constexpr (Config::keys == DecodeKeys::int8) {
        ptx::wgmma_int8(s[x], keys, query, byte > 0);
      } else {
        ptx::wgmma_e4m3(s[x], keys, query, byte > 0);
      }
    }
  }
  ptx::wgmma_commit();
}

template <typename Config>
__device__ __forceinline__ void decode_products(
    const DecodeShared<Config>& shared, int group, int stage, bool accumulate,
    float (&t)[Config::value_blocks][4 * Config::column_blocks]) {
  constexpr int steps = Config::weight_row / 32;  // of a page
  constexpr int row = Config::panel_row;
  ptx::wgmma_fence();
#pragma unroll
  for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
    for (int k = 0; k < steps * Config::turn_pages; ++k) {
      const std::uint8_t* values = shared.pages[group][stage][k / steps] + Config::side_bytes;
      const std::uint64_t weights = ptx::matrix_descriptor<Config::weight_row>(
          shared.weights[group][k / steps] + k % steps * 32);
      if constexpr (Config::element_bytes == 2) {
        // Panels of row / 2 dimensions, in rows of tokens.
        ptx::wgmma_bfloat16<true>(
            t[b],
            ptx::transposed_descriptor<row>(values + b * 64 * 128 + k % steps * 16 * row, 64 * row),
            weights, accumulate || k > 0);
      } else {
        ptx::wgmma_e4m3(t[b], ptx::matrix_descriptor<64>(values + b * 4096 + k % steps * 32),
                        weights, accumulate || k > 0);
      }
    }
  }
  ptx::wgmma_commit();
}

// A turn's scales: what scores are multiplied by, the logarithm of the value's scale, and the
// scale's inverse.
template <typename Config>
struct DecodeTurnScales {
  float key[Config::turn_pages][2];
  float value_log[Config::turn_pages][2];
  float inverse[Config::turn_pages][2];

  __device__ __forceinline__ void load(const DecodeParameters& p,
                                       const DecodeShared<Config>& shared, int group, int stage,
                                       int row) {
#pragma unroll
    for (int x = 0; x < Config::turn_pages; ++x) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        key[x][half] = 1;
        value_log[x][half] = 0;
        inverse[x][half] = 1;
        if constexpr (Config::element_bytes == 1) {
          const std::uint16_t* scales = &shared.scales[group][stage][x][row + 8 * half];
          if (p.keys_scaled) {
            key[x][half] = __uint_as_float(static_cast<unsigned>(scales[0]) << 16);
          }
          if (p.values_scaled) {
            const float scale = __uint_as_float(static_cast<unsigned>(scales[64]) << 16);
            value_log[x][half] = ptx::log2_approximate(scale);
            inverse[x][half] = ptx::reciprocal_approximate(scale);
          }
        }
      }
    }
  }
};

// cap * tanh(score / cap), both in powers of two and factor 2 / cap without them; exact to a few
// units of float32's last place of the cap.
__device__ __forceinline__ float soft_capped(float score, float cap, float factor) {
  const float grown = ptx::exp2_approximate(score * factor);
  return cap * (1.0f - 2.0f * ptx::reciprocal_approximate(grown + 1.0f));
}

// Lanes four apart hold neighbouring tokens and swap terms (or queries), so that each writes whole
// words. Returns the sum of the weights as they were rounded, each times its token's inverse scale.
template <typename Config>
__device__ __forceinline__ void store_weights(std::uint8_t* weights,
                                              const float (&w)[Config::thread_queries][2],
                                              const float (&inverse)[2],
                                              float (&sum)[Config::thread_queries]) {
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int column = lane % 4;
  const bool odd = (lane & 4) != 0;
#pragma unroll
  for (int n = 0; n < Config::column_blocks; ++n) {
    if constexpr (Config::terms == 2) {
      // The even lane writes four high terms, the odd one four low ones.
      const std::uint32_t high = ptx::to_e4m3x2(w[n][0], w[n][1]);
      const float2 h = ptx::from_e4m3x2(high);
      const std::uint32_t low = ptx::to_e4m3x2((w[n][0] - h.x) / Config::weight_low_term,
                                               (w[n][1] - h.y) / Config::weight_low_term);
      const float2 l = ptx::from_e4m3x2(low);
      sum[n] = fmaf(fmaf(l.x, Config::weight_low_term, h.x), inverse[0], sum[n]);
      sum[n] = fmaf(fmaf(l.y, Config::weight_low_term, h.y), inverse[1], sum[n]);
      const std::uint32_t other = __shfl_xor_sync(~0u, odd ? high : low, 4);
      const std::uint32_t word = __byte_perm(odd ? low : high, other, odd ? 0x1504 : 0x5140);
      const int row = 2 * (column + 4 * n) + (odd ? 1 : 0);
      *reinterpret_cast<std::uint32_t*>(
          &weights[row * Config::weight_row + (warp ^ column) * 16 + lane / 8 * 4]) = word;
    } else {
      // The even lane writes the first query's weights, the odd one the second's.
      std::uint32_t packed[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(w[2 * n + i][0], w[2 * n + i][1]);
        const float2 rounded = __bfloat1622float2(pair);
        sum[2 * n + i] = fmaf(rounded.x, inverse[0], sum[2 * n + i]);
        sum[2 * n + i] = fmaf(rounded.y, inverse[1], sum[2 * n + i]);
        packed[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
      const std::uint32_t other = __shfl_xor_sync(~0u, odd ? packed[0] : packed[1], 4);
      const std::uint32_t first = odd ? other : packed[0];
      const std::uint32_t second = odd ? packed[1] : other;
      const int row = 8 * n + 2 * column + (odd ? 1 : 0);
      std::uint8_t* to = &weights[row * Config::weight_row + lane / 8 * 4];
      *reinterpret_cast<std::uint32_t*>(to + ((2 * warp) ^ (row % 8)) * 16) =
          __byte_perm(first, second, 0x5410);
      *reinterpret_cast<std::uint32_t*>(to + ((2 * warp + 1) ^ (row % 8)) * 16) =
          __byte_perm(first, second, 0x7632);
    }
  }
}

// One turn: scores, weights, products, and their addition to the state. first_query: of the pair's
// queries among those of its KV head.
template <typename Config>
__device__ __forceinline__ void decode_turn(const DecodeParameters& p, DecodeShared<Config>& shared,
                                            DecodeState<Config>& state, int group, int count,
                                            int first_query, bool at_edge, const DecodeEdge& edge) {
  constexpr int pages = Config::turn_pages;
  constexpr int queries = Config::thread_queries;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16 + lane / 4;
  const int column = lane % 4;
  const int stage = count % Config::stages;
  using Score = std::conditional_t<Config::keys == DecodeKeys::int8, std::int32_t, float>;

  ptx::mbarrier_wait(&shared.full[group][stage], (count / Config::stages) & 1);
  Score s[pages][4 * Config::column_blocks];
  decode_scores(shared, group, stage, s);
  DecodeTurnScales<Config> scales;
  scales.load(p, shared, group, stage, row);
  ptx::wgmma_wait();

  // Scores in powers of two, the value's scale folded in; its inverse weighs the row sum.
  float scores[pages][queries][2];
#pragma unroll
  for (int x = 0; x < pages; ++x) {
#pragma unroll
    for (int i = 0; i < queries; ++i) {
      const int q = Config::query_of(column, i);
      const float query_scale = shared.query_scale[group][q];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Score* place = &s[x][Config::place_of(i, half)];
        float product = static_cast<float>(place[0]);
        if constexpr (Config::terms == 2) {
          product = fmaf(static_cast<float>(place[1]), Config::query_low_term, product);
        }
        const float factor = query_scale * scales.key[x][half];
        if (p.soft_cap_log2 > 0) {
          const float score = fmaf(product, factor, shared.query_mean[group][q]);
          scores[x][i][half] =
              soft_capped(score, p.soft_cap_log2, p.soft_cap_factor) + scales.value_log[x][half];
        } else {
          scores[x][i][half] = fmaf(product, factor, scales.value_log[x][half]);
        }
      }
    }
  }
  if (at_edge) {
#pragma unroll
    for (int x = 0; x < pages; ++x) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = edge.first_key + 64 * x + row + 8 * half;
        if (key < edge.visible_first || key >= edge.visible_last) scales.inverse[x][half] = 0;
#pragma unroll
        for (int i = 0; i < queries; ++i) {
          // The key after the last that the query's row sees.
          const int q = Config::query_of(column, i) + first_query;
          const int end = edge.visible_last - max(p.turns.query_rows - 1 - q / p.group, 0);
          const bool seen = key < end && key >= edge.visible_first &&
                            (p.turns.window == 0 || key >= end - p.turns.window);
          if (!seen) scores[x][i][half] = -INFINITY;
        }
      }
      const int first = edge.visible_first - edge.first_key - 64 * x;
      const int last = edge.visible_last - edge.first_key - 64 * x;
      if (first > 0 || last < 64) {
        clear_values<Config>(shared.pages[group][stage][x] + Config::side_bytes, first, last);
      }
    }
  }

  // The turn's maximum of each query: over this thread's tokens, the warp's, the block's.
  float maximum[queries];
#pragma unroll
  for (int i = 0; i < queries; ++i) {
    maximum[i] = no_score;
#pragma unroll
    for (int x = 0; x < pages; ++x) {
      maximum[i] = fmaxf(maximum[i], fmaxf(scores[x][i][0], scores[x][i][1]));
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      maximum[i] = fmaxf(maximum[i], __shfl_xor_sync(~0u, maximum[i], step));
    }
    if (lane < 4) shared.warp_maximum[group][warp][Config::query_of(column, i)] = maximum[i];
  }
  ptx::warpgroup_barrier(group);

  // Weights relative to the turn's maximum (single-level: to that of all turns so far), as they are
  // rounded; the row sum is that of the rounded ones.
  float sum[queries] = {};
#pragma unroll
  for (int i = 0; i < queries; ++i) {
    const int q = Config::query_of(column, i);
    maximum[i] = fmaxf(fmaxf(shared.warp_maximum[group][0][q], shared.warp_maximum[group][1][q]),
                       fmaxf(shared.warp_maximum[group][2][q], shared.warp_maximum[group][3][q]));
    if constexpr (Config::single_level) maximum[i] = fmaxf(maximum[i], state.maximum[i]);
  }
#pragma unroll
  for (int x = 0; x < pages; ++x) {
    float w[queries][2];
#pragma unroll
    for (int i = 0; i < queries; ++i) {
      const float shift = Config::weight_log2 - maximum[i];
      w[i][0] = ptx::exp2_approximate(scores[x][i][0] + shift);
      w[i][1] = ptx::exp2_approximate(scores[x][i][1] + shift);
    }
    store_weights<Config>(shared.weights[group][x], w, scales.inverse[x], sum);
  }
  ptx::fence_async_shared();
  ptx::warpgroup_barrier(group);

  float alpha[queries];
  float beta[queries];
  const auto weigh = [&] {
#pragma unroll
    for (int i = 0; i < queries; ++i) {
      const float highest = fmaxf(state.maximum[i], maximum[i]);
      alpha[i] = ptx::exp2_approximate(state.maximum[i] - highest);
      beta[i] = ptx::exp2_approximate(maximum[i] - highest);
      state.maximum[i] = highest;
      state.sum[i] = fmaf(sum[i], beta[i], state.sum[i] * alpha[i]);
    }
  };
  if constexpr (Config::single_level) {
    weigh();
#pragma unroll
    for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
      for (int i = 0; i < queries; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int term = 0; term < Config::terms; ++term) {
            state.output[b][Config::place_of(i, half) + term] *= alpha[i];
          }
        }
      }
    }
    decode_products(shared, group, stage, true, state.output);
    ptx::wgmma_wait();
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[group][stage]);
  } else {
    float t[Config::value_blocks][4 * Config::column_blocks];
    decode_products(shared, group, stage, false, t);
    weigh();
    ptx::wgmma_wait();
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[group][stage]);
#pragma unroll
    for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
      for (int i = 0; i < queries; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* place = &t[b][Config::place_of(i, half)];
          float product = place[0];
          if constexpr (Config::terms == 2) {
            product = fmaf(place[1], Config::weight_low_term, product);
          }
          float& output = state.output[b][2 * i + half];
          output = fmaf(product, beta[i], output * alpha[i]);
        }
      }
    }
  }
}

}  // namespace octet

// Decode on tensor cores of 16 bits. Internal to src/ops/attention; docs/kernels/attention_cuda.md
// says why it is so.
//
// A block takes a piece of the line of turns (decode_sm90_work.h); of a turn's tiles of 32 keys its
// warps take every fourth, each with a softmax of its own, straight from global memory into the
// registers that the tensor core reads: no key or value is needed by two warps. Scores are computed
// as K q^T and outputs as V^T w^T, so that a tile of eight queries fills the narrow operand and a
// thread's outputs belong to the queries whose scores it holds.
//
// Keys are dealt to the rows of K so that lane c of four, which loads 8 neighbouring bytes of a
// transposed value row, holds the weights of just those tokens: with u = 2 (g / 2) + s, row g of
// the tile's sixteen s is token 16 (u / 4) + 2 (u % 4) + g % 2, and row g + 8 is 8 further on.
#pragma once

#include <cstdint>

#include "core/cuda/launch.cuh"
#include "core/cuda/mma.cuh"
#include "core/cuda/numbers.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/warp.cuh"
#include "kv/kv_layout.h"
#include "ops/attention/attention_cuda_pages.cuh"
#include "ops/attention/attention_decode_cuda_parameters.h"

namespace octet {

inline constexpr int decode_tile_keys = 32;

// head_dim: the widest that is taken; query_tiles: of eight queries.
template <int head_dim_, int query_tiles_>
struct AttentionDecodeConfig {
  static constexpr int head_dim = head_dim_;
  static constexpr int query_tiles = query_tiles_;
  static constexpr int queries = 8 * query_tiles;
  static constexpr int warps = attention_decode_warps;
  static constexpr int threads = 32 * warps;
  static constexpr int part_row = head_dim + 4;  // so that a warp's stores meet all banks
};

template <typename Config>
struct AttentionDecodeShared {
  // The tensor core's B operands, in the order in which keys come.
  uint2 query[Config::head_dim / 16][Config::query_tiles][32];
  float query_factor[Config::queries];           // of a score, to a power of two's exponent
  float query_mean[Config::queries];             // what a soft cap must have added back, likewise
  float2 state[Config::warps][Config::queries];  // maximum, sum
  union {
    float output[Config::warps][Config::queries][Config::part_row];
    float factors[Config::queries][max_attention_decode_blocks];
  };
  bool is_last;
};

// What a warp knows of its queries: d[0] and d[2] of a tile are of query 8 tile + 2 c, d[1] and
// d[3] of the next.
template <typename Config>
struct AttentionDecodeState {
  float output[Config::head_dim / 16][Config::query_tiles][4];
  float maximum[Config::query_tiles][2];
  float sum[Config::query_tiles][2];  // of this lane's keys

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& rows : output) {
#pragma unroll
      for (auto& tile : rows) {
#pragma unroll
        for (float& x : tile) x = 0;
      }
    }
#pragma unroll
    for (int tile = 0; tile < Config::query_tiles; ++tile) {
      maximum[tile][0] = maximum[tile][1] = attention_no_score;
      sum[tile][0] = sum[tile][1] = 0;
    }
  }

  __device__ __forceinline__ void scale(int tile, int column, float factor) {
    sum[tile][column] *= factor;
#pragma unroll
    for (auto& rows : output) {
      rows[tile][column] *= factor;
      rows[tile][column + 2] *= factor;
    }
  }
};

template <typename Config>
using AttentionDecodeTile = float[2][Config::query_tiles][4];

// Token of row g of sixteen s, in the tile.
__device__ __forceinline__ int decode_token(int sixteen, int row) {
  const int u = 2 * (row / 2) + sixteen;
  return 16 * (u / 4) + 2 * (u % 4) + row % 2;
}

// scores += K q^T. Element: bytes of a key's; Codes: of 8 bits, to float16.
template <typename Config, typename Product, typename Codes, int element_bytes>
__device__ __forceinline__ void add_decode_scores(const AttentionDecodeShared<Config>& shared,
                                                  const AttentionSide& side, const std::byte* run,
                                                  int first_token, int row_bytes,
                                                  AttentionDecodeTile<Config>& scores) {
  constexpr int chunks = Config::head_dim * element_bytes / 64;
  constexpr int at_once = chunks < 4 ? chunks : 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = 16 * (lane % 4);
  const std::byte* elements = run + side.offset;
#pragma unroll
  for (int first = 0; first < chunks; first += at_once) {
    uint4 words[2][2][at_once];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const PageRow row(side.panel_shift, first_token + decode_token(s, lane / 4) + 8 * half);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int byte = 64 * (first + i) + piece;
          words[s][half][i] = byte < row_bytes ? load_16_bytes(elements + row.offset(byte))
                                               : make_uint4(0, 0, 0, 0);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      constexpr int steps = element_bytes == 1 ? 4 : 2;
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        uint2 query[Config::query_tiles];
#pragma unroll
        for (int tile = 0; tile < Config::query_tiles; ++tile) {
          query[tile] = shared.query[(first + i) * steps + step][tile][lane];
        }
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          std::uint32_t keys[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4& of_row = words[s][half][i];
            uint2 pair;
            if constexpr (element_bytes == 1) {
              pair = Codes::to_float16(word_of(of_row, step));
            } else {
              pair = make_uint2(word_of(of_row, 2 * step), word_of(of_row, 2 * step + 1));
            }
            keys[half] = pair.x;
            keys[half + 2] = pair.y;
          }
#pragma unroll
          for (int tile = 0; tile < Config::query_tiles; ++tile) {
            Product::add(scores[s][tile], keys, query[tile].x, query[tile].y);
          }
        }
      }
    }
  }
}

// Which of a tile's tokens count, where not all do.
struct DecodeTokens {
  int first;  // of the tile, in the sequence
  int begin;  // tokens [begin, end) of the sequence count
  int end;
  bool all;
  __device__ __forceinline__ bool has(int token) const {
    return first + token >= begin && first + token < end;
  }
  // All ones in the bytes of the tokens of a word of a transposed row that count.
  __device__ __forceinline__ std::uint32_t mask(int token) const {
    return (has(token) ? 0xFFu : 0) | (has(token + 1) ? 0xFF00u : 0) |
           (has(token + 8) ? 0xFF0000u : 0) | (has(token + 9) ? 0xFF000000u : 0);
  }
};

// output += V^T w^T from transposed values of 8 bits: tile i of 16 dimensions has dimension
// 16 i + g in row g, and 8 further on in row g + 8.
template <typename Config, typename Codes>
__device__ __forceinline__ void add_decode_codes(const AttentionSide& side, const std::byte* run,
                                                 const DecodeTokens& tokens, int head_dim,
                                                 const uint2 (&weights)[2][Config::query_tiles],
                                                 AttentionDecodeState<Config>& state) {
  constexpr int tiles = Config::head_dim / 16;
  constexpr int at_once = tiles < 16 ? tiles : 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int place = tokens.first % page_tokens + 8 * (lane % 4);
  const std::byte* elements = run + side.offset;
#pragma unroll
  for (int first = 0; first < tiles; first += at_once) {
    uint2 words[at_once][2];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dimension = 16 * (first + i) + lane / 4 + 8 * half;
        words[i][half] = dimension < head_dim
                             ? load_8_bytes(elements + transposed_offset(dimension, place))
                             : make_uint2(0, 0);
      }
    }
    if (!tokens.all) {
      const std::uint32_t masks[2] = {tokens.mask(decode_token(0, 2 * (lane % 4))),
                                      tokens.mask(decode_token(1, 2 * (lane % 4)))};
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          words[i][half].x &= masks[0];
          words[i][half].y &= masks[1];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint2 low = Codes::to_float16(s == 0 ? words[i][0].x : words[i][0].y);
        const uint2 high = Codes::to_float16(s == 0 ? words[i][1].x : words[i][1].y);
        const std::uint32_t values[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
        for (int tile = 0; tile < Config::query_tiles; ++tile) {
          Float16Product::add(state.output[first + i][tile], values, weights[s][tile].x,
                              weights[s][tile].y);
        }
      }
    }
  }
}

// The same from rows of 16-bit values: tile 4 m + i has dimension 64 m + 8 g + 2 i in row g, and
// the next in row g + 8.
template <typename Config, typename Product>
__device__ __forceinline__ void add_decode_rows(const AttentionSide& side, const std::byte* run,
                                                const DecodeTokens& tokens, int head_dim,
                                                const uint2 (&weights)[2][Config::query_tiles],
                                                AttentionDecodeState<Config>& state) {
  constexpr int blocks = Config::head_dim / 64;
  constexpr int at_once = blocks < 2 ? blocks : 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::byte* elements = run + side.offset;
#pragma unroll
  for (int first = 0; first < blocks; first += at_once) {
    uint4 words[at_once][2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int token = decode_token(s, 2 * (lane % 4)) + k % 2 + k / 2 * 8;
        const PageRow row(side.panel_shift, tokens.first % page_tokens + token);
        const bool counts = tokens.all || tokens.has(token);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int dimension = 64 * (first + i) + lane / 4 * 8;
          words[i][s][k] = counts && dimension < head_dim
                               ? load_16_bytes(elements + row.offset(2 * dimension))
                               : make_uint4(0, 0, 0, 0);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const std::uint32_t of[4] = {word_of(words[i][s][0], word), word_of(words[i][s][1], word),
                                       word_of(words[i][s][2], word),
                                       word_of(words[i][s][3], word)};
          const std::uint32_t values[4] = {
              __byte_perm(of[0], of[1], 0x5410), __byte_perm(of[0], of[1], 0x7632),
              __byte_perm(of[2], of[3], 0x5410), __byte_perm(of[2], of[3], 0x7632)};
#pragma unroll
          for (int tile = 0; tile < Config::query_tiles; ++tile) {
            Product::add(state.output[4 * (first + i) + word][tile], values, weights[s][tile].x,
                         weights[s][tile].y);
          }
        }
      }
    }
  }
}

// Scores to weights, in place; maxima and sums are brought up to date, and outputs where a maximum
// has grown by more than 2^8. Weights have the values' scales in them and are relative to the
// largest such product, so that none of them is too small for float16 that matters.
template <typename Config>
__device__ __forceinline__ void weigh_decode_tile(const AttentionParameters& p,
                                                  const AttentionDecodeShared<Config>& shared,
                                                  const std::byte* run, const DecodeTokens& tokens,
                                                  AttentionDecodeTile<Config>& scores,
                                                  AttentionDecodeState<Config>& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ValueScale value_scales[2][2];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = decode_token(s, lane / 4) + 8 * half;
      const int in_page = tokens.first % page_tokens + token;
      const bool counts = tokens.all || tokens.has(token);
      const float key_scale =
          p.key.is_scaled ? load_scale(run + p.key.scale_offset, in_page) : 1.0f;
      if (p.value.is_scaled && counts) {
        value_scales[s][half] = ValueScale(load_scale(run + p.value.scale_offset, in_page));
      }
#pragma unroll
      for (int tile = 0; tile < Config::query_tiles; ++tile) {
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          float& score = scores[s][tile][2 * half + column];
          const int query = 8 * tile + 2 * (lane % 4) + column;
          score *= key_scale * shared.query_factor[query];
          if (p.soft_cap_log2 > 0) {
            score = soft_capped(score + shared.query_mean[query], p.soft_cap_log2);
          }
          score = counts ? score + value_scales[s][half].log2 : -INFINITY;
        }
      }
    }
  }
  bool grows = false;
  float highest[Config::query_tiles][2];
#pragma unroll
  for (int tile = 0; tile < Config::query_tiles; ++tile) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      float x = fmaxf(fmaxf(scores[0][tile][column], scores[0][tile][column + 2]),
                      fmaxf(scores[1][tile][column], scores[1][tile][column + 2]));
#pragma unroll
      for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
      highest[tile][column] = x;
      grows |= x > state.maximum[tile][column] + 8.0f;
    }
  }
  if (__any_sync(~0u, grows)) {
#pragma unroll
    for (int tile = 0; tile < Config::query_tiles; ++tile) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const float maximum = fmaxf(state.maximum[tile][column], highest[tile][column]);
        state.scale(tile, column, ptx::exp2_approximate(state.maximum[tile][column] - maximum));
        state.maximum[tile][column] = maximum;
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int tile = 0; tile < Config::query_tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = ptx::exp2_approximate(scores[s][tile][i] - state.maximum[tile][i % 2]);
        state.sum[tile][i % 2] =
            fmaf(weight, value_scales[s][i / 2].inverse, state.sum[tile][i % 2]);
        scores[s][tile][i] = weight;
      }
    }
  }
}

// The weights as the tensor core's B operands.
template <typename Config, typename Product>
__device__ __forceinline__ void pack_decode_weights(const AttentionDecodeTile<Config>& weights,
                                                    uint2 (&packed)[2][Config::query_tiles]) {
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int tile = 0; tile < Config::query_tiles; ++tile) {
      const float(&w)[4] = weights[s][tile];
      packed[s][tile] = make_uint2(transpose_8x8(Product::pack(w[0], w[1])),
                                   transpose_8x8(Product::pack(w[2], w[3])));
    }
  }
}

template <typename Config>
__device__ __forceinline__ void take_decode_tile(const AttentionParameters& p,
                                                 const AttentionDecodeShared<Config>& shared,
                                                 const std::byte* run, const DecodeTokens& tokens,
                                                 AttentionDecodeState<Config>& state) {
  AttentionDecodeTile<Config> scores = {};
  const int first = tokens.first % page_tokens;
  switch (p.key.dtype) {
    case KvDtype::fp8:
      add_decode_scores<Config, Float16Product, E4m3Codes, 1>(shared, p.key, run, first, p.head_dim,
                                                              scores);
      break;
    case KvDtype::int8:
      add_decode_scores<Config, Float16Product, Int8Codes, 1>(shared, p.key, run, first, p.head_dim,
                                                              scores);
      break;
    case KvDtype::float16:
      add_decode_scores<Config, Float16Product, void, 2>(shared, p.key, run, first, 2 * p.head_dim,
                                                         scores);
      break;
    default:
      add_decode_scores<Config, Bfloat16Product, void, 2>(shared, p.key, run, first, 2 * p.head_dim,
                                                          scores);
  }
  weigh_decode_tile<Config>(p, shared, run, tokens, scores, state);
  uint2 weights[2][Config::query_tiles];
  if (p.value.dtype == KvDtype::bfloat16) {
    pack_decode_weights<Config, Bfloat16Product>(scores, weights);
    add_decode_rows<Config, Bfloat16Product>(p.value, run, tokens, p.head_dim, weights, state);
    return;
  }
  pack_decode_weights<Config, Float16Product>(scores, weights);
  switch (p.value.dtype) {
    case KvDtype::fp8:
      add_decode_codes<Config, E4m3Codes>(p.value, run, tokens, p.head_dim, weights, state);
      break;
    case KvDtype::int8:
      add_decode_codes<Config, Int8Codes>(p.value, run, tokens, p.head_dim, weights, state);
      break;
    default:
      add_decode_rows<Config, Float16Product>(p.value, run, tokens, p.head_dim, weights, state);
  }
}

}  // namespace octet

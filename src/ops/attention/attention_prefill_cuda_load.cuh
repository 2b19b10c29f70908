// How tiles of keys and values come into shared memory, as 16-bit operands. Internal to
// src/ops/attention.
#pragma once

#include <type_traits>

#include "core/cuda/mma.cuh"
#include "core/cuda/warp.cuh"
#include "ops/attention/attention_cuda_pages.cuh"
#include "ops/attention/attention_prefill_cuda_parameters.h"

namespace octet {

// head_dim: the widest that is taken. Warps are row_warps x dimension_warps: each takes sixteen
// rows and its share of the outputs' dimensions.
template <int head_dim_, int row_warps_, int dimension_warps_, int tile_keys_, bool key_codes_,
          bool value_codes_>
struct AttentionPrefillConfig {
  static constexpr int head_dim = head_dim_;
  static constexpr int row_warps = row_warps_;
  static constexpr int dimension_warps = dimension_warps_;
  static constexpr int warps = row_warps * dimension_warps;
  static constexpr int threads = 32 * warps;
  static constexpr int tile_rows = 16 * row_warps;
  static constexpr int tile_keys = tile_keys_;
  static constexpr bool key_codes = key_codes_;
  static constexpr bool value_codes = value_codes_;
  // Queries stay in registers where they fit beside the outputs.
  static constexpr bool query_in_registers = head_dim <= 128;
  // Of a multiprocessor, as registers and shared memory allow.
  static constexpr int blocks = warps > 4                                       ? 1
                                : head_dim <= 128 && !key_codes && !value_codes ? 3
                                                                                : 2;
  static constexpr int side_bytes = 2 * head_dim * tile_keys;
  // Pieces of 16 bytes of a side of a tile in the page, for each thread.
  static constexpr int row_pieces = head_dim * tile_keys * 2 / 16 / threads;
  static constexpr int code_pieces = row_pieces / 2;
};

// Of the tokens of a tile: what a score is multiplied by and has added to it, and what a row's sum
// takes a weight by.
template <int tokens>
struct PrefillScales {
  alignas(16) float2 score[tokens];
  float inverse[tokens];
};

template <typename Config>
struct AttentionPrefillShared {
  struct Stage {
    alignas(128) std::uint8_t key[Config::side_bytes];
    alignas(128) std::uint8_t value[Config::side_bytes];
  };
  Stage stages[2];
  // Read into registers once from the second stage where it is kept there.
  alignas(128) std::uint8_t
      query[Config::query_in_registers ? 128 : 2 * Config::head_dim * Config::tile_rows];
  PrefillScales<Config::tile_keys> scales[2];
  float query_factor[Config::tile_rows];
  float query_mean[Config::tile_rows];
};

// Rows of 16-bit elements in panels of 128 bytes of all rows, each piece of 16 bytes XORed with its
// row: the pages' own order where head_dim is a multiple of 64. Eight, sixteen, ... rows further on
// the place is as many rows of 128 bytes further on, and an even piece further on it differs by an
// XOR of bits that the rows leave alone, so that one register serves for many places.
template <int rows>
__device__ __forceinline__ std::uint32_t panel_offset(int row, int piece) {
  return static_cast<std::uint32_t>(piece / 8 * (rows * 128) + row * 128 +
                                    (((piece % 8) ^ (row % 8)) * 16));
}
// Rows of `tokens` 16-bit elements, a row for each dimension; likewise.
template <int tokens>
__device__ __forceinline__ std::uint32_t transposed_piece_offset(int dimension, int piece) {
  constexpr int pieces = tokens / 8;  // of a row: 8, 4 or 2
  return static_cast<std::uint32_t>(dimension * tokens * 2 +
                                    ((piece ^ (dimension / (8 / pieces) % pieces)) * 16));
}

// A thread's share of a tile of one side of 16-bit elements, copied by the memory system.
template <typename Config>
__device__ __forceinline__ void copy_prefill_rows(const AttentionSide& side, const std::byte* run,
                                                  int head_dim, int token, int end,
                                                  std::uint8_t* to) {
  constexpr int keys = Config::tile_keys;
  constexpr int panel_pieces = 8 * keys;
  static_assert(panel_pieces % Config::threads == 0);
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t shared = ptx::shared_address(to) + 16 * static_cast<std::uint32_t>(thread);
  const std::byte* elements = run + side.offset;
  if (side.panel_shift == 7) {
    // The page has the same panels: pieces keep their order.
    const std::byte* from = elements + token * 128 + thread * 16;
#pragma unroll
    for (int i = 0; i < Config::row_pieces; ++i) {
      constexpr int threads = Config::threads;
      const int panel = i * threads / panel_pieces;
      const int first = i * threads % panel_pieces;
      copy_16_bytes(shared + 16 * i * threads, from + panel * (page_tokens * 128) + first * 16,
                    first / 8 + thread / 8 < end && 64 * panel < head_dim);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < Config::row_pieces; ++i) {
    const int index = thread + i * Config::threads;
    const int row = index / 8 % keys;
    const int piece = index / panel_pieces * 8 + (index % 8 ^ row % 8);
    copy_16_bytes(shared + static_cast<std::uint32_t>(16 * i * Config::threads),
                  elements + PageRow(side.panel_shift, token + row).offset(16 * piece),
                  row < end && 8 * piece < head_dim);
  }
}

// A thread's share of a tile of 8-bit keys, or of transposed 8-bit values, on its way.
template <typename Config, bool is_value>
struct PrefillCodes {
  static constexpr int keys = Config::tile_keys;
  static constexpr int row_pieces = is_value ? keys / 16 : Config::head_dim / 16;
  static constexpr int row_step = Config::threads / row_pieces;  // rows from piece to piece
  uint4 held[Config::code_pieces];

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / row_pieces; }
  static __device__ __forceinline__ int piece() {
    return static_cast<int>(threadIdx.x) % row_pieces;
  }

  // `token`: the tile's first, in its page.
  __device__ __forceinline__ void begin(const AttentionSide& side, const std::byte* run,
                                        int head_dim, int token) {
    const std::byte* elements = run + side.offset;
    const std::byte* first =
        elements + (is_value ? transposed_offset(row(), token + 16 * piece())
                             : PageRow(side.panel_shift, token + row()).offset(16 * piece()));
#pragma unroll
    for (int i = 0; i < Config::code_pieces; ++i) {
      const std::byte* from = first;
      bool exists;
      if constexpr (is_value) {
        from += i * row_step * page_tokens;
        exists = row() + i * row_step < head_dim;
      } else {
        if constexpr (row_step % 8 == 0) {
          from += (i * row_step) << side.panel_shift;
        } else {
          from = elements +
                 PageRow(side.panel_shift, token + row() + i * row_step).offset(16 * piece());
        }
        exists = 16 * piece() < head_dim;
      }
      held[i] = exists ? load_16_bytes(from) : make_uint4(0, 0, 0, 0);
    }
  }

  // To 16 bits, into shared memory. `end`: tokens of the tile that are in the context; values of
  // those past it become zeros, since no weight can cancel a NaN.
  template <typename Codes>
  __device__ __forceinline__ void finish(int end, std::uint8_t* to) {
#pragma unroll
    for (int i = 0; i < Config::code_pieces; ++i) {
      uint4 codes = held[i];
      if (is_value && end < keys) {
        codes.x &= mask(0, end);
        codes.y &= mask(1, end);
        codes.z &= mask(2, end);
        codes.w &= mask(3, end);
      }
      const uint2 words[4] = {Codes::to_float16(codes.x), Codes::to_float16(codes.y),
                              Codes::to_float16(codes.z), Codes::to_float16(codes.w)};
      if constexpr (is_value) {
        std::uint8_t* at = to + i * row_step * keys * 2;
        *reinterpret_cast<uint4*>(at + transposed_piece_offset<keys>(row(), 2 * piece())) =
            make_uint4(words[0].x, words[1].x, words[2].x, words[3].x);
        *reinterpret_cast<uint4*>(at + transposed_piece_offset<keys>(row(), 2 * piece() + 1)) =
            make_uint4(words[0].y, words[1].y, words[2].y, words[3].y);
      } else {
        const int of_row = row_step % 8 == 0 ? row() : row() + i * row_step;
        std::uint8_t* at = to + (row_step % 8 == 0 ? i * row_step * 128 : 0);
        *reinterpret_cast<uint4*>(at + panel_offset<keys>(of_row, 2 * piece())) =
            make_uint4(words[0].x, words[0].y, words[1].x, words[1].y);
        *reinterpret_cast<uint4*>(at + panel_offset<keys>(of_row, 2 * piece() + 1)) =
            make_uint4(words[2].x, words[2].y, words[3].x, words[3].y);
      }
    }
  }

 private:
  // Word w of a sixteen holds tokens 2 w, 2 w + 1, 2 w + 8 and 2 w + 9.
  static __device__ __forceinline__ std::uint32_t mask(int word, int end) {
    const int token = 16 * piece() + 2 * word;
    return (token < end ? 0xFFu : 0) | (token + 1 < end ? 0xFF00u : 0) |
           (token + 8 < end ? 0xFF0000u : 0) | (token + 9 < end ? 0xFF000000u : 0);
  }
};
struct NoPrefillCodes {};

// Both sides of a tile of keys.
template <typename Config>
struct PrefillTileLoad {
  std::conditional_t<Config::key_codes, PrefillCodes<Config, false>, NoPrefillCodes> key;
  std::conditional_t<Config::value_codes, PrefillCodes<Config, true>, NoPrefillCodes> value;
  float key_scale;
  ValueScale value_scale;
  int end;

  // `tile` of the sequence's keys, in `page`, into a stage that nobody reads any more.
  __device__ __forceinline__ void begin(const AttentionParameters& p,
                                        const AttentionPrefillTile& of, int kv_head, int tile,
                                        std::int32_t page, AttentionPrefillShared<Config>& shared) {
    constexpr int page_tiles = page_tokens / Config::tile_keys;
    const std::byte* run = run_of(p, page, kv_head);
    const int token = tile % page_tiles * Config::tile_keys;
    end = min(of.context - tile * Config::tile_keys, Config::tile_keys);
    auto& stage = shared.stages[tile % 2];
    if constexpr (Config::key_codes) {
      key.begin(p.key, run, p.head_dim, token);
    } else {
      copy_prefill_rows<Config>(p.key, run, p.head_dim, token, end, stage.key);
    }
    if constexpr (Config::value_codes) {
      value.begin(p.value, run, p.head_dim, token);
    } else {
      copy_prefill_rows<Config>(p.value, run, p.head_dim, token, end, stage.value);
    }
    commit_copies();
    if constexpr (Config::key_codes || Config::value_codes) {
      const int thread = static_cast<int>(threadIdx.x);
      if (thread < Config::tile_keys) {
        const bool counts = thread < end;
        key_scale =
            p.key.is_scaled && counts ? load_scale(run + p.key.scale_offset, token + thread) : 1.0f;
        value_scale = p.value.is_scaled && counts
                          ? ValueScale(load_scale(run + p.value.scale_offset, token + thread))
                          : ValueScale();
      }
    }
  }

  __device__ __forceinline__ void finish(const AttentionParameters& p, int tile,
                                         AttentionPrefillShared<Config>& shared) {
    auto& stage = shared.stages[tile % 2];
    if constexpr (Config::key_codes) {
      if (p.key.dtype == KvDtype::int8) {
        key.template finish<Int8Codes>(end, stage.key);
      } else {
        key.template finish<E4m3Codes>(end, stage.key);
      }
    }
    if constexpr (Config::value_codes) {
      if (p.value.dtype == KvDtype::int8) {
        value.template finish<Int8Codes>(end, stage.value);
      } else {
        value.template finish<E4m3Codes>(end, stage.value);
      }
    }
    if constexpr (Config::key_codes || Config::value_codes) {
      if (static_cast<int>(threadIdx.x) < Config::tile_keys) {
        shared.scales[tile % 2].score[threadIdx.x] = make_float2(key_scale, value_scale.log2);
        shared.scales[tile % 2].inverse[threadIdx.x] = value_scale.inverse;
      }
    }
  }
};

}  // namespace octet

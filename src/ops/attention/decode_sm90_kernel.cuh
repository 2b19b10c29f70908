// The Hopper decode kernel for e4m3 keys and values. Internal to src/ops/attention; the design and
// its figures are in docs/kernels/decode_sm90.md.
//
// A block fills a multiprocessor: a few warpgroups that compute, each with a warp that loads for
// it. A warpgroup takes its own piece of the work (decode_sm90_work.h) and meets the others of its
// block only at the end, to add up parts of the same pair. For a turn of pages:
//   S^T = K q^T       tokens fill the tensor core's 64 rows; a query is two columns, high and low
//   w = round(exp2(S - turn's maximum)), two terms again
//   T^T = V^T w^T     from zero, then O = O * alpha + T * beta in float32
// K and V^T are operands as they lie in the page; nothing is transposed or converted on the way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_merge.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"

namespace octet {

// The loading warp: every lane holds a page's address. Pages that no kernel of this step writes are
// asked for before the kernels ahead have ended, as many as the stages hold.
template <typename Config>
__device__ void decode_load(const DecodeParameters& p, DecodeShared<Config>& shared, int group,
                            int piece) {
  const int lane = threadIdx.x % 32;
  int count = 0;
  bool waited = !p.older_pages_settled;
  if (waited) ptx::wait_for_previous_kernels();
  for (DecodeWalk walk(p, piece); !walk.done(); walk.next(p)) {
    const int first_page = p.turns.first_page(walk.length) + walk.turn * Config::turn_pages;
    const int last_page = p.turns.first_page(walk.length) + p.turns.pages(walk.length);
    const std::int32_t* table =
        p.page_table + static_cast<std::int64_t>(walk.sequence) * p.page_table_stride;
    // Pages from here on hold the newest tokens.
    const int new_page = (walk.length - p.turns.query_rows) / 64;
    const std::byte* run = nullptr;
    for (int turn = 0; turn < walk.part_turns; ++turn, ++count) {
      const int stage = count % Config::stages;
      if (turn % (32 / Config::turn_pages) == 0) {
        const int page = first_page + turn * Config::turn_pages + lane;
        if (page < last_page) {
          const int id = table[page];
          const int slab = id / p.pages_per_slab;
          run = p.layer + static_cast<std::size_t>(slab) * p.slab_bytes +
                static_cast<std::size_t>(id - slab * p.pages_per_slab) * p.page_bytes +
                static_cast<std::size_t>(walk.kv_head) * p.run_bytes;
        }
      }
      const int pages = min(Config::turn_pages, last_page - first_page - turn * Config::turn_pages);
      if (!waited && first_page + turn * Config::turn_pages + pages > new_page) {
        ptx::wait_for_previous_kernels();
        waited = true;
      }
      if (count >= Config::stages) {
        ptx::mbarrier_wait(&shared.empty[group][stage], (count / Config::stages - 1) & 1);
      }
      if (lane == 0) {
        ptx::mbarrier_expect(&shared.full[group][stage],
                             pages * (2 * Config::side_bytes + Config::scale_bytes));
      }
      __syncwarp();
      const int owner = turn % (32 / Config::turn_pages) * Config::turn_pages;
      const int x = lane - owner;
      if (x >= 0 && x < pages) {
        ptx::bulk_copy(shared.pages[group][stage][x], run, 2 * Config::side_bytes,
                       &shared.full[group][stage]);
        if (Config::scaled) {
          ptx::bulk_copy(shared.scales[group][stage][x], run + 2 * Config::side_bytes,
                         Config::scale_bytes, &shared.full[group][stage]);
        }
      }
    }
  }
}

// The queries of a pair as e4m3 columns: 2 q and 2 q + 1 are the high and low terms of query q,
// scaled by a power of two that brings its largest element to [128, 256). A warp takes every fourth
// query.
template <typename Config>
__device__ void prepare_queries(const DecodeParameters& p, const DecodeWalk& walk,
                                DecodeShared<Config>& shared, int group) {
  constexpr int each = Config::head_dim / 32;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  for (int q = warp; q < Config::queries; q += 4) {
    float x[each] = {};
    if (q < p.turns.query_rows * p.group) {
      const std::int64_t row =
          static_cast<std::int64_t>(walk.sequence) * p.turns.query_rows + q / p.group;
      const int head = walk.kv_head * p.group + q % p.group;
      const auto* from = reinterpret_cast<const __nv_bfloat162*>(
          static_cast<const __nv_bfloat16*>(p.query) + row * p.query_stride +
          head * Config::head_dim + lane * each);
#pragma unroll
      for (int i = 0; i < each / 2; ++i) {
        const float2 pair = __bfloat1622float2(from[i]);
        x[2 * i] = pair.x;
        x[2 * i + 1] = pair.y;
      }
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    }
    // The exponent's bits; below 2^-111 a query is as good as 0.
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), 16);
    const float up = __uint_as_float(static_cast<unsigned>(261 - exponent) << 23);
    if (lane == 0) {
      shared.query_scale[group][q] =
          __uint_as_float(static_cast<unsigned>(exponent - 7) << 23) * p.scale_log2;
    }
    const int panel = lane * each / Config::panel_row * Config::columns * Config::panel_row;
#pragma unroll
    for (int i = 0; i < each; i += 2) {
      const float a = x[i] * up;
      const float b = x[i + 1] * up;
      const std::uint32_t high = ptx::to_e4m3x2(a, b);
      const float2 rounded = ptx::from_e4m3x2(high);
      const std::uint32_t low =
          ptx::to_e4m3x2((a - rounded.x) / low_term, (b - rounded.y) / low_term);
      const int column = (lane * each + i) % Config::panel_row;
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        const int offset = (2 * q + term) * Config::panel_row + column;
        const int swizzled = offset ^ (offset / 128 % (Config::panel_row / 16) * 16);
        *reinterpret_cast<std::uint16_t*>(&shared.query[group][panel + swizzled]) =
            static_cast<std::uint16_t>(term == 0 ? high : low);
      }
    }
  }
}

// Sets the values of keys outside [first, last) of a page to 0: a weight of 0 would not silence a
// NaN.
template <typename Config>
__device__ void clear_values(std::uint8_t* values, int first, int last) {
  for (int piece = threadIdx.x % 128; piece < Config::head_dim * 4; piece += 128) {
    const int row = piece / 4;
    const int token = (piece % 4 ^ (row >> 1) % 4) * 16;
    auto* words = reinterpret_cast<std::uint32_t*>(values + piece * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t mask = 0;
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const int key = token + 2 * i + byte % 2 + byte / 2 * 8;  // transposed_place, backwards
        if (key >= first && key < last) mask |= 0xFFu << (8 * byte);
      }
      words[i] &= mask;
    }
  }
}

// What a computing thread carries from turn to turn. It holds rows `row` and `row` + 8 of the
// tensor core's 64 (tokens of S^T, dimensions of O^T) and queries `lane % 4` + 4 n.
template <typename Config>
struct DecodeState {
  float output[Config::value_blocks][2 * Config::column_groups];
  float maximum[Config::column_groups];
  float sum[Config::column_groups];  // over this thread's tokens

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < Config::column_groups; ++n) {
      maximum[n] = no_score;
      sum[n] = 0;
#pragma unroll
      for (int b = 0; b < Config::value_blocks; ++b) {
        output[b][2 * n] = 0;
        output[b][2 * n + 1] = 0;
      }
    }
  }
};

// The keys that a turn holds, for the few turns at a sequence's or a window's ends.
struct DecodeEdge {
  int first_key;  // of the turn
  int visible_first;
  int visible_last;  // keys that any query row sees are in [visible_first, visible_last)
};

template <typename Config>
__device__ __forceinline__ void decode_scores(
    const DecodeShared<Config>& shared, int group, int stage,
    float (&s)[Config::turn_pages][4 * Config::column_groups]) {
  constexpr int row = Config::panel_row;
  ptx::wgmma_fence();
#pragma unroll
  for (int x = 0; x < Config::turn_pages; ++x) {
#pragma unroll
    for (int k = 0; k < Config::head_dim; k += 32) {
      ptx::wgmma_e4m3(
          s[x],
          ptx::matrix_descriptor<row>(shared.pages[group][stage][x] + k / row * 64 * row + k % row),
          ptx::matrix_descriptor<row>(shared.query[group] + k / row * Config::columns * row +
                                      k % row),
          k > 0);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait();
}

template <typename Config>
__device__ __forceinline__ void decode_products(
    const DecodeShared<Config>& shared, int group, int stage,
    float (&t)[Config::value_blocks][4 * Config::column_groups]) {
  ptx::wgmma_fence();
#pragma unroll
  for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
    for (int k = 0; k < 2 * Config::turn_pages; ++k) {
      ptx::wgmma_e4m3(t[b],
                      ptx::matrix_descriptor<64>(shared.pages[group][stage][k / 2] +
                                                 Config::side_bytes + b * 4096 + k % 2 * 32),
                      ptx::matrix_descriptor<64>(shared.weights[group][k / 2] + k % 2 * 32), k > 0);
    }
  }
  ptx::wgmma_commit();
}

// One turn: scores, weights, products, and their addition to the state.
template <typename Config>
__device__ __forceinline__ void decode_turn(const DecodeParameters& p, DecodeShared<Config>& shared,
                                            DecodeState<Config>& state, int group, int count,
                                            bool at_edge, const DecodeEdge& edge) {
  constexpr int pages = Config::turn_pages;
  constexpr int groups = Config::column_groups;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16 + lane / 4;
  const int column = lane % 4;
  const int stage = count % Config::stages;

  ptx::mbarrier_wait(&shared.full[group][stage], (count / Config::stages) & 1);
  float s[pages][4 * groups];
  decode_scores(shared, group, stage, s);

  // Scores in powers of two, the value's scale folded in; its inverse weighs the row sum.
  float inverse[pages][2];
  float scores[pages][groups][2];
#pragma unroll
  for (int x = 0; x < pages; ++x) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float key_scale = 1;
      float value_log = 0;
      inverse[x][half] = 1;
      if (Config::scaled) {
        const std::uint16_t* scales = &shared.scales[group][stage][x][row + 8 * half];
        key_scale = __uint_as_float(static_cast<unsigned>(scales[0]) << 16);
        const float value_scale = __uint_as_float(static_cast<unsigned>(scales[64]) << 16);
        value_log = ptx::log2_approximate(value_scale);
        inverse[x][half] = ptx::reciprocal_approximate(value_scale);
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const float high = s[x][4 * n + 2 * half];
        const float low = s[x][4 * n + 2 * half + 1];
        scores[x][n][half] = fmaf(fmaf(low, low_term, high),
                                  shared.query_scale[group][column + 4 * n] * key_scale, value_log);
      }
      if (at_edge) {
        const int key = edge.first_key + 64 * x + row + 8 * half;
        if (key < edge.visible_first || key >= edge.visible_last) inverse[x][half] = 0;
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          // The key after the last that the query's row sees.
          const int end =
              edge.visible_last - max(p.turns.query_rows - 1 - (column + 4 * n) / p.group, 0);
          const bool seen = key < end && key >= edge.visible_first &&
                            (p.turns.window == 0 || key >= end - p.turns.window);
          if (!seen) scores[x][n][half] = -INFINITY;
        }
      }
    }
  }
  if (at_edge) {
#pragma unroll
    for (int x = 0; x < pages; ++x) {
      const int first = edge.visible_first - edge.first_key - 64 * x;
      const int last = edge.visible_last - edge.first_key - 64 * x;
      if (first > 0 || last < 64) {
        clear_values<Config>(shared.pages[group][stage][x] + Config::side_bytes, first, last);
      }
    }
  }

  // The turn's maximum of each query: over this thread's tokens, the warp's, the block's.
  float maximum[groups];
#pragma unroll
  for (int n = 0; n < groups; ++n) {
    maximum[n] = no_score;
#pragma unroll
    for (int x = 0; x < pages; ++x) {
      maximum[n] = fmaxf(maximum[n], fmaxf(scores[x][n][0], scores[x][n][1]));
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      maximum[n] = fmaxf(maximum[n], __shfl_xor_sync(~0u, maximum[n], step));
    }
    if (lane < 4) shared.warp_maximum[group][warp][column + 4 * n] = maximum[n];
  }
  ptx::warpgroup_barrier(group);

  // Weights, the largest 256, as two terms; the row sum is that of the rounded weights. Lanes four
  // apart hold neighbouring tokens and swap terms, so that each writes one word: the even one four
  // high terms, the odd one four low ones.
  float sum[groups];
  const bool odd = (lane & 4) != 0;
#pragma unroll
  for (int n = 0; n < groups; ++n) {
    const int q = column + 4 * n;
    maximum[n] = fmaxf(fmaxf(shared.warp_maximum[group][0][q], shared.warp_maximum[group][1][q]),
                       fmaxf(shared.warp_maximum[group][2][q], shared.warp_maximum[group][3][q]));
    const float shift = 8.0f - maximum[n];
    sum[n] = 0;
#pragma unroll
    for (int x = 0; x < pages; ++x) {
      const float w0 = ptx::exp2_approximate(scores[x][n][0] + shift);
      const float w1 = ptx::exp2_approximate(scores[x][n][1] + shift);
      const std::uint32_t high = ptx::to_e4m3x2(w0, w1);
      const float2 h = ptx::from_e4m3x2(high);
      const std::uint32_t low = ptx::to_e4m3x2((w0 - h.x) / low_term, (w1 - h.y) / low_term);
      const float2 l = ptx::from_e4m3x2(low);
      sum[n] = fmaf(fmaf(l.x, low_term, h.x), inverse[x][0], sum[n]);
      sum[n] = fmaf(fmaf(l.y, low_term, h.y), inverse[x][1], sum[n]);
      const std::uint32_t other = __shfl_xor_sync(~0u, odd ? high : low, 4);
      const std::uint32_t word = __byte_perm(odd ? low : high, other, odd ? 0x1504 : 0x5140);
      *reinterpret_cast<std::uint32_t*>(
          &shared.weights[group][x][(2 * q + odd) * 64 + (warp ^ column) * 16 + lane / 8 * 4]) =
          word;
    }
  }
  ptx::fence_async_shared();
  ptx::warpgroup_barrier(group);

  float t[Config::value_blocks][4 * groups];
  decode_products(shared, group, stage, t);
  float alpha[groups];
  float beta[groups];
#pragma unroll
  for (int n = 0; n < groups; ++n) {
    const float highest = fmaxf(state.maximum[n], maximum[n]);
    alpha[n] = ptx::exp2_approximate(state.maximum[n] - highest);
    beta[n] = ptx::exp2_approximate(maximum[n] - highest);
    state.maximum[n] = highest;
    state.sum[n] = fmaf(sum[n], beta[n], state.sum[n] * alpha[n]);
  }
  ptx::wgmma_wait();
  if (lane == 0) ptx::mbarrier_arrive(&shared.empty[group][stage]);
#pragma unroll
  for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
    for (int i = 0; i < 2 * groups; ++i) {
      const float product = fmaf(t[b][2 * i + 1], low_term, t[b][2 * i]);
      state.output[b][i] = fmaf(product, beta[i / 2], state.output[b][i] * alpha[i / 2]);
    }
  }
}

// Ends a pair in this piece: writes the output where the piece has all of it, else leaves a part in
// shared memory.
template <typename Config>
__device__ void finish_pair(const DecodeParameters& p, const DecodeWalk& walk,
                            DecodeShared<Config>& shared, DecodeState<Config>& state, int group,
                            bool is_first) {
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16 + lane / 4;
  const int column = lane % 4;
#pragma unroll
  for (int n = 0; n < Config::column_groups; ++n) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      state.sum[n] += __shfl_xor_sync(~0u, state.sum[n], step);
    }
    if (lane < 4) shared.warp_sum[group][warp][column + 4 * n] = state.sum[n];
  }
  const int index = 2 * group + (is_first ? 0 : 1);
  const bool whole = walk.whole();
  if (!whole && threadIdx.x % 128 == 0) {
    shared.part_info[index] = {
        walk.line_turn - walk.turn, walk.pair_turns, walk.sequence, walk.kv_head, walk.turn,
        walk.turn + walk.part_turns};
  }
  ptx::warpgroup_barrier(group);

  DecodePart<Config>& part = shared.part(index);
#pragma unroll
  for (int n = 0; n < Config::column_groups; ++n) {
    const int q = column + 4 * n;
    const auto& sums = shared.warp_sum[group];
    const float sum = (sums[0][q] + sums[1][q]) + (sums[2][q] + sums[3][q]);
    if (!whole && row == 0) part.state[q] = make_float2(state.maximum[n], sum);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int b = 0; b < Config::value_blocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dimension = b * 64 + row + 8 * half;
        const float value = state.output[b][2 * n + half];
        if (!whole) {
          part.output[q][dimension] = value;
        } else if (q < p.turns.query_rows * p.group) {
          store_output<Config>(p, walk.sequence, walk.kv_head, q, dimension, value * scale);
        }
      }
    }
  }
}

// The same value in all lanes, known to the compiler as such: matrix descriptors live in registers
// of the warp.
__device__ __forceinline__ int uniform(unsigned value) {
  return static_cast<int>(__shfl_sync(~0u, value, 0));
}

// A computing warpgroup's piece, from its first page to what it leaves for the block.
template <typename Config>
__device__ void decode_piece(const DecodeParameters& p, DecodeShared<Config>& shared, int group,
                             int piece) {
  if (!p.older_pages_settled) ptx::wait_for_previous_kernels();
  if (threadIdx.x == 0) shared.shared_pairs = p.work.shared_pairs[blockIdx.x];
  DecodeWalk walk(p, piece);
  if (p.older_pages_settled) ptx::wait_for_previous_kernels();
  DecodeState<Config> state;
  int count = 0;
  for (bool is_first = true; !walk.done(); walk.next(p), is_first = false) {
    state.clear();
    prepare_queries<Config>(p, walk, shared, group);
    ptx::fence_async_shared();
    ptx::warpgroup_barrier(group);
    DecodeEdge edge;
    edge.visible_first = p.turns.first_key(walk.length);
    edge.visible_last = walk.length;
    edge.first_key = (p.turns.first_page(walk.length) + walk.turn * Config::turn_pages) * 64;
    // Turns of which every key is seen by every row.
    const int seen_first = p.turns.window == 0 ? 0 : walk.length - p.turns.window;
    const int seen_last = walk.length - p.turns.query_rows + 1;
    for (int turn = 0; turn < walk.part_turns; ++turn, ++count) {
      const bool at_edge =
          edge.first_key < seen_first || edge.first_key + 64 * Config::turn_pages > seen_last;
      decode_turn<Config>(p, shared, state, group, count, at_edge, edge);
      edge.first_key += 64 * Config::turn_pages;
    }
    finish_pair<Config>(p, walk, shared, state, group, is_first);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::threads, 1) decode_kernel(const DecodeParameters p) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared<Config>*>(
      raw + (1024 - ptx::shared_address(raw) % 1024) % 1024);
  if (threadIdx.x < Config::warpgroups) {
    for (int stage = 0; stage < Config::stages; ++stage) {
      ptx::mbarrier_init(&shared.full[threadIdx.x][stage], 1);
      ptx::mbarrier_init(&shared.empty[threadIdx.x][stage], 4);
    }
    ptx::mbarrier_init_fence();
    if (threadIdx.x < 2) shared.shared_slot[threadIdx.x] = -1;
    shared.part_info[2 * threadIdx.x].pair_start = -1;
    shared.part_info[2 * threadIdx.x + 1].pair_start = -1;
  }
  __syncthreads();
  ptx::launch_next_kernel();
  const int group = uniform(threadIdx.x / 128);
  if (threadIdx.x >= Config::compute_threads) {
    const int loader = uniform((threadIdx.x - Config::compute_threads) / 32);
    decode_load<Config>(p, shared, loader, blockIdx.x * Config::warpgroups + loader);
  } else {
    decode_piece<Config>(p, shared, group, blockIdx.x * Config::warpgroups + group);
  }
  // The loading warps come along, since a barrier of all threads is the plainest; they have no
  // slots.
  __syncthreads();
  merge_block<Config>(p, shared, group);
}

}  // namespace octet

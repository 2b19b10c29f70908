// The kernel of linear_chain.h. For *.cu files.
//
// Four or eight warps are a group; a multiprocessor's one block has eight warps (bfloat16) or
// sixteen (e4m3, which takes more instructions a byte). A group takes tiles of eight outputs in
// turn, a warp of it every fourth or eighth unit of 256 columns by way of a ring of its own, as in
// linear_stream.cuh. What is copied runs ahead over the ends of tiles and of steps alike.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "core/cuda/warp.cuh"
#include "ops/activation/gated_activation.cuh"
#include "ops/linear/linear_chain_parameters.h"
#include "ops/linear/linear_products.cuh"
#include "ops/linear/weight_ring.cuh"

namespace octet {

template <DataType type_, int group_warps_>
struct ChainShape {
  static constexpr DataType type = type_;
  static constexpr int group_warps = group_warps_;
  static constexpr int warps = type == DataType::float8_e4m3 ? 16 : 8;
  static constexpr int threads = 32 * warps;
  static constexpr int groups = warps / group_warps;
  // 164 KB of copies under way or waiting for their use: 5 us of what memory gives.
  static constexpr int stages = 5;
  using Ring = WeightRing<type, 1, stages>;

  // Of a group's tile: [warp][row][gate, up][output]. A warp is at most as many tiles ahead of one
  // whose sums wait to be added as there are buffers.
  static constexpr int row_sums = 2 * device_band_rows;
  static constexpr int warp_sums = linear_chain_most_rows * row_sums;
  static constexpr int tile_sums = group_warps * warp_sums;
  static constexpr int buffers = 4;
  // Numbers of tiles that a group has claimed. A warp may be `buffers` tiles behind another, which
  // claims up to stages + 1 tiles ahead.
  static constexpr int claims = 16;
  static_assert(buffers + stages + 1 < claims);

  static constexpr std::size_t sums_at = std::size_t{warps} * Ring::bytes;
  static constexpr std::size_t claims_at =
      sums_at + sizeof(float) * std::size_t{groups} * buffers * tile_sums;
  static constexpr std::size_t barriers_at =
      claims_at + sizeof(std::uint64_t) * std::size_t{groups} * claims;
  static constexpr std::size_t x_at =
      barriers_at + sizeof(std::uint64_t) * (warps * stages + 2 * groups * buffers);
  static_assert(x_at % 16 == 0);
};

// e4m3 codes as bfloat16's bits are worth 2^-120 of them (from_e4m3_bytes); x takes half of that
// back, the sum the rest. All of it exact for x below 2^68, and without an instruction for each two
// weights.
constexpr std::uint32_t two_to_60_pair = 0x5D805D80u;
constexpr float two_to_60 = 0x1p60f;

template <DataType type>
__device__ __forceinline__ std::uint32_t chain_input(std::uint32_t pair) {
  constexpr std::uint32_t minus_zeros = 0x80008000u;
  return type == DataType::float8_e4m3 ? fma_bfloat16x2(pair, two_to_60_pair, minus_zeros) : pair;
}

// Which tiles of a step a group takes, one after the other: the first ones are given, so that their
// weights are asked for before it is known where the other groups are. In a long step each of the
// others is the next that nobody has, which a warp claims for its group while it takes an earlier
// one: multiprocessors that memory serves faster take more.
class ChainTiles {
 public:
  // `claimed`: the group's, of `slots` numbers.
  __device__ __forceinline__ ChainTiles(const ChainParameters& p, int first, int apart,
                                        std::uint64_t* claimed)
      : p_(p), first_(first), apart_(apart), claimed_(claimed) {}

  // The tile that is number `index` of the group's in this step; past the last: none is left.
  template <int slots>
  __device__ __forceinline__ int at(int step, int index) const {
    if (index < p_.steps[step].given_tiles) return first_ + index * apart_;
    const std::uint32_t key = key_of(step, index);
    const volatile std::uint64_t* slot = claimed_ + index % slots;
    std::uint64_t claim = *slot;
    while (claim >> 32 != key) claim = *slot;
    return static_cast<int>(claim & 0xFFFFFFFFu);
  }

  __device__ __forceinline__ bool are_claimed(int step) const {
    return p_.steps[step].given_tiles != chain_tiles_all_given;
  }
  // How many were claimed before.
  __device__ __forceinline__ unsigned take_ticket(int step) const {
    return atomicAdd(p_.claims + step, 1u);
  }
  // The ticket that was taken at number `index` is for the one that is given_tiles further.
  template <int slots>
  __device__ __forceinline__ void put(int step, int index, unsigned ticket) const {
    const int given = p_.steps[step].given_tiles;
    const std::uint32_t tile = static_cast<std::uint32_t>(given * apart_) + ticket;
    *static_cast<volatile std::uint64_t*>(claimed_ + (index + given) % slots) =
        std::uint64_t{key_of(step, index + given)} << 32 | tile;
  }

 private:
  // Differs from what a slot held before, and from 0.
  static __device__ __forceinline__ std::uint32_t key_of(int step, int index) {
    return static_cast<std::uint32_t>(step + 1) << 28 | static_cast<std::uint32_t>(index);
  }

  const ChainParameters& p_;
  int first_;
  int apart_;
  std::uint64_t* claimed_;
};

// Where a warp's copies are: at a unit of a band of a tile of a step.
template <typename Shape>
class ChainCopies {
 public:
  __device__ __forceinline__ ChainCopies(const ChainParameters& p, const ChainTiles& tiles,
                                         int warp)
      : p_(p), tiles_(tiles), warp_(warp) {
    begin_step(0);
  }

  template <typename Ring>
  __device__ __forceinline__ void next(Ring& ring) {
    if (step_ < p_.count) {
      const ChainStepParameters& step = p_.steps[step_];
      ring.fill(source(step), step.row_bytes, static_cast<int>(step.row_bytes) - unit_ * unit_bytes,
                1);
      advance(step);
    }
    ring.end_fill();
  }

 private:
  static constexpr int unit_bytes = device_unit_bytes(Shape::type);
  static constexpr int unit_step =
      unit_bytes * (keeps_row_order(Shape::type) ? 1 : device_band_rows);

  __device__ __forceinline__ const std::uint8_t* source(const ChainStepParameters& step) const {
    return step.weights + static_cast<std::int64_t>(tile_) * device_band_rows * step.row_bytes +
           (is_up_ ? step.up_bytes : 0) + static_cast<std::int64_t>(unit_) * unit_step;
  }
  __device__ __forceinline__ void advance(const ChainStepParameters& step) {
    if (step.output == ChainOutput::gated && !is_up_) {
      is_up_ = true;
      return;
    }
    is_up_ = false;
    unit_ += Shape::group_warps;
    if (unit_ * device_unit_elements < step.columns) return;
    unit_ = warp_;
    tile_ = tiles_.at<Shape::claims>(step_, ++index_);
    if (tile_ * device_band_rows >= step.outputs) begin_step(step_ + 1);
  }
  // Or the next that has anything for this warp.
  __device__ __forceinline__ void begin_step(int step) {
    step_ = step;
    index_ = 0;
    tile_ = tiles_.at<Shape::claims>(0, 0);
    unit_ = warp_;
    while (step_ < p_.count && (tile_ * device_band_rows >= p_.steps[step_].outputs ||
                                unit_ * device_unit_elements >= p_.steps[step_].columns)) {
      ++step_;
    }
  }

  const ChainParameters& p_;
  const ChainTiles& tiles_;
  int warp_;
  int step_ = 0;
  int index_ = 0;
  int tile_ = 0;
  int unit_ = 0;
  bool is_up_ = false;
};

// Sums of one band: the tensor cores' two steps of a group add to one each.
struct ChainSums {
  float of_step[2][4] = {};

  __device__ __forceinline__ float at(int output) const {
    return of_step[0][output] + of_step[1][output + 2];
  }
};

// x as A, eight outputs as B; the second step's pairs of x are in A's rows 8 to 15, so that A is as
// it was loaded (multiply_float8_group).
template <DataType type>
__device__ __forceinline__ void multiply_chain_group(const std::uint8_t* stage,
                                                     const std::uint8_t* x, int lane, int group,
                                                     ChainSums& sums) {
  const uint4 words = load_four_words(x + 2 * device_group_elements * group);
  const std::uint32_t a[4] = {words.x, words.y, words.z, words.w};
  WeightFragment w;
  const int row = lane / 4;
  if constexpr (type == DataType::float8_e4m3) {
    const uint2 codes = load_two_words(stage + 256 * group + 32 * row + 8 * (lane % 4));
    spread_e4m3_bytes(codes.x, w.pairs);
    spread_e4m3_bytes(codes.y, w.pairs + 2);
  } else {
    WeightDecoder<type>::fragments(stage + StageLayout<type>::place(row), row, group, lane % 4, &w);
  }
  multiply_add(sums.of_step[0], a, w.pairs[0], w.pairs[2]);
  multiply_add(sums.of_step[1], a, w.pairs[1], w.pairs[3]);
}

// A unit of which `columns` are left. `x`: the thread's first elements of it.
template <DataType type>
__device__ __forceinline__ void multiply_chain_unit(const std::uint8_t* stage,
                                                    const std::uint8_t* x, int lane, int columns,
                                                    ChainSums& sums) {
  constexpr int groups = device_unit_elements / device_group_elements;
  if (columns > (groups - 1) * device_group_elements) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      multiply_chain_group<type>(stage, x, lane, group, sums);
    }
  } else {
    for (int group = 0; group * device_group_elements < columns; ++group) {
      multiply_chain_group<type>(stage, x, lane, group, sums);
    }
  }
}

// Where blocks wait for one another, by a counter that only grows, by one for each block and step.
class ChainBarrier {
 public:
  // After the kernels before; no block can have come through a barrier of this launch yet.
  __device__ __forceinline__ explicit ChainBarrier(unsigned long long* arrivals)
      : arrivals_(arrivals) {
    if (threadIdx.x != 0) return;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen_) : "l"(arrivals_) : "memory");
  }
  // Returns when all blocks have come this far, with what they wrote before. All threads.
  __device__ __forceinline__ void wait() {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(arrivals_), "l"(1ull)
                   : "memory");
      ++waits_;
      const unsigned long long wanted = (seen_ / gridDim.x + waits_) * gridDim.x;
      unsigned long long now;
      do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(arrivals_) : "memory");
      } while (now < wanted);
    }
    __syncthreads();
  }
  // Counts this block in, and does not wait. True in one thread of the last block to come.
  __device__ __forceinline__ bool arrive_last() {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    return (atomicAdd(arrivals_, 1ull) + 1) % gridDim.x == 0;
  }

 private:
  unsigned long long* arrivals_;
  unsigned long long seen_ = 0;
  unsigned waits_ = 0;
};

// Rows of x to shared memory, with zeros up to a whole group. What other blocks wrote is read past
// the L1, which may hold what was there before.
template <typename Shape>
__device__ __forceinline__ void load_chain_rows(const ChainParameters& p,
                                                const ChainStepParameters& step, std::uint8_t* x) {
  constexpr DataType type = Shape::type;
  const int items = step.columns / 8;
  const int padded = (step.columns + device_group_elements - 1) / device_group_elements * 4;
  for (int row = 0; row < p.rows; ++row) {
    const auto* from =
        reinterpret_cast<const uint4*>(step.x + static_cast<std::int64_t>(row) * step.columns);
    auto* to = reinterpret_cast<uint4*>(x + row * p.x_bytes);
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < padded; i += Shape::threads) {
      uint4 words = {};
      if (i < items) words = __ldcg(from + i);
      to[i] = make_uint4(chain_input<type>(words.x), chain_input<type>(words.y),
                         chain_input<type>(words.z), chain_input<type>(words.w));
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void norm_chain_rows(const ChainParameters& p,
                                                const ChainStepParameters& step, std::uint8_t* x,
                                                float (*scratch)[32]) {
  constexpr DataType type = Shape::type;
  constexpr int threads = Shape::threads;
  constexpr int held = 4096 / threads / 2;  // rows of 8,192 stay in registers
  const int items = step.columns / 4;
  const int padded = (step.columns + device_group_elements - 1) / device_group_elements * 8;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* weights = reinterpret_cast<const float4*>(step.norm);
  for (int row = 0; row < p.rows; ++row) {
    const auto* from =
        reinterpret_cast<const float4*>(p.residual + static_cast<std::int64_t>(row) * step.columns);
    auto* to = reinterpret_cast<uint2*>(x + row * p.x_bytes);
    float4 values[held];
    float4 norm[held];
    float sum = 0;
    const auto add = [&](const float4& v) {
      sum = fmaf(v.x, v.x, sum);
      sum = fmaf(v.y, v.y, sum);
      sum = fmaf(v.z, v.z, sum);
      sum = fmaf(v.w, v.w, sum);
    };
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const int i = thread + j * threads;
      if (i >= items) continue;
      values[j] = __ldcg(from + i);
      norm[j] = __ldg(weights + i);
    }
#pragma unroll
    for (int j = 0; j < held; ++j) {
      if (thread + j * threads < items) add(values[j]);
    }
    for (int i = thread + held * threads; i < items; i += threads) add(__ldcg(from + i));
    const float mean = block_sum(sum, scratch[row]) / static_cast<float>(step.columns);
    const float factor = 1.0f / sqrtf(mean + p.epsilon);
    const auto store = [&](int i, const float4& v, const float4& w) {
      to[i] = make_uint2(chain_input<type>(to_bfloat16x2(v.x * factor * w.x, v.y * factor * w.y)),
                         chain_input<type>(to_bfloat16x2(v.z * factor * w.z, v.w * factor * w.w)));
    };
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const int i = thread + j * threads;
      if (i < items) store(i, values[j], norm[j]);
    }
    for (int i = thread + held * threads; i < items; i += threads) {
      store(i, __ldcg(from + i), weights[i]);
    }
    for (int i = items + thread; i < padded; i += threads) to[i] = make_uint2(0, 0);
  }
}

// What a thread adds and multiplies to an output, loaded while the tile's products run.
struct ChainFinish {
  int output = -1;  // none
  int row = 0;
  float scale = 1;
  float up_scale = 1;
  float addend = 0;

  __device__ __forceinline__ void load(const ChainParameters& p, const ChainStepParameters& step,
                                       int tile, int lane) {
    output = tile * device_band_rows + lane % device_band_rows;
    row = lane / device_band_rows;
    if (row >= p.rows || output >= step.outputs) {
      output = -1;
      return;
    }
    if (step.scales != nullptr) {
      scale = step.scales[output];
      if (step.output == ChainOutput::gated) up_scale = step.scales[step.outputs + output];
    }
    if (step.bias != nullptr) addend = step.bias[output];
    if (step.output == ChainOutput::residual) {
      addend = __ldcg(p.residual + static_cast<std::int64_t>(row) * step.outputs + output);
    }
  }
  __device__ __forceinline__ void store(const ChainParameters& p, const ChainStepParameters& step,
                                        float sum, float up_sum) const {
    const std::int64_t place = static_cast<std::int64_t>(row) * step.outputs + output;
    const float total = sum * scale;
    switch (step.output) {
      case ChainOutput::residual:
        p.residual[place] = addend + total;
        break;
      case ChainOutput::gated:
        static_cast<__nv_bfloat16*>(step.y)[place] =
            __float2bfloat16_rn(activate(p.activation, total) * (up_sum * up_scale));
        break;
      case ChainOutput::float32:
        static_cast<float*>(step.y)[place] = total + addend;
        break;
      case ChainOutput::bfloat16:
        static_cast<__nv_bfloat16*>(step.y)[place] = __float2bfloat16_rn(total + addend);
        break;
    }
  }
};

// What a group's warps share: buffers of a tile's sums, and two barriers for each.
template <typename Shape>
struct ChainBuffers {
  float* sums;
  std::uint64_t* full;   // as many arrivals as there are warps
  std::uint64_t* empty;  // one: of the warp that has added them

  __device__ __forceinline__ float* of(int count) const {
    return sums + count % Shape::buffers * Shape::tile_sums;
  }
  // Of tile number `count` of the group in this launch.
  __device__ __forceinline__ void wait_empty(int count) const {
    if (count < Shape::buffers) return;
    ptx::mbarrier_wait(empty + count % Shape::buffers, (count / Shape::buffers - 1) & 1);
  }
  __device__ __forceinline__ void arrive_full(int count) const {
    ptx::mbarrier_arrive(full + count % Shape::buffers);
  }
  __device__ __forceinline__ void wait_full(int count) const {
    ptx::mbarrier_wait(full + count % Shape::buffers, (count / Shape::buffers) & 1);
  }
  __device__ __forceinline__ void arrive_empty(int count) const {
    ptx::mbarrier_arrive(empty + count % Shape::buffers);
  }
};

// A warp's part of the products of one step. `count`: tiles that the group has taken before.
//
// A tile's sums are added by one warp, which takes turns, and the others go on: they would wait for
// the slowest at every tile.
template <typename Shape, int bands>
__device__ __forceinline__ void multiply_chain_step(const ChainParameters& p, int step_index,
                                                    const ChainTiles& tiles, const std::uint8_t* x,
                                                    const ChainBuffers<Shape>& buffers, int& count,
                                                    typename Shape::Ring& ring,
                                                    ChainCopies<Shape>& copies) {
  constexpr DataType type = Shape::type;
  const ChainStepParameters& step = p.steps[step_index];
  const int warp = static_cast<int>(threadIdx.x) / 32 % Shape::group_warps;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Rows of A that x has not are its last: what they give is not looked at.
  const std::uint8_t* own_x = x + min(lane / 4, p.rows - 1) * p.x_bytes + 16 * (lane % 4);
  const bool are_claimed = tiles.are_claimed(step_index);
  for (int index = 0;; ++index, ++count) {
    const int tile = tiles.at<Shape::claims>(step_index, index);
    if (tile * device_band_rows >= step.outputs) break;
    const bool finishes = count % Shape::group_warps == warp;
    bool claims = finishes && are_claimed && lane == 0;
    unsigned ticket = 0;
    if (claims) ticket = tiles.take_ticket(step_index);
    ChainFinish finish;
    if (finishes) finish.load(p, step, tile, lane);
    ChainSums sums[bands];
    for (int start = warp * device_unit_elements; start < step.columns;
         start += Shape::group_warps * device_unit_elements) {
#pragma unroll
      for (int band = 0; band < bands; ++band) {
        const std::uint8_t* stage = ring.next();
        copies.next(ring);
        multiply_chain_unit<type>(stage, own_x + 2 * start, lane, step.columns - start, sums[band]);
      }
      // Not at the tile's end: copies of a long tile's last units need the next one's number.
      if (claims) tiles.put<Shape::claims>(step_index, index, ticket);
      claims = false;
    }
    if (claims) tiles.put<Shape::claims>(step_index, index, ticket);
    float* buffer = buffers.of(count);
    buffers.wait_empty(count);
    if (lane / 4 < p.rows) {
      float* to = buffer + warp * Shape::warp_sums + lane / 4 * Shape::row_sums + 2 * (lane % 4);
#pragma unroll
      for (int band = 0; band < bands; ++band) {
        *reinterpret_cast<float2*>(to + band * device_band_rows) =
            make_float2(sums[band].at(0), sums[band].at(1));
      }
    }
    __syncwarp();
    if (lane == 0) buffers.arrive_full(count);
    if (!finishes) continue;
    buffers.wait_full(count);
    float total[2] = {0, 0};
#pragma unroll
    for (int band = 0; band < bands; ++band) {
      if (finish.output < 0) continue;
#pragma unroll
      for (int w = 0; w < Shape::group_warps; ++w) {
        total[band] += buffer[w * Shape::warp_sums + finish.row * Shape::row_sums +
                              band * device_band_rows + lane % device_band_rows];
      }
      if constexpr (type == DataType::float8_e4m3) total[band] *= two_to_60;
    }
    __syncwarp();
    if (lane == 0) buffers.arrive_empty(count);
    if (finish.output >= 0) finish.store(p, step, total[0], total[1]);
  }
}

// Norms lie in memory that no step has read for a while.
__device__ __forceinline__ void prefetch_norms(const ChainParameters& p) {
  constexpr int line_bytes = 128;
  if (threadIdx.x != 0) return;
  for (int i = 0; i < p.count; ++i) {
    if (p.steps[i].norm == nullptr) continue;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(p.steps[i].norm);
    for (std::int64_t at = std::int64_t{blockIdx.x} * line_bytes;
         at < 4 * static_cast<std::int64_t>(p.steps[i].columns);
         at += std::int64_t{gridDim.x} * line_bytes) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(bytes + at));
    }
  }
}

// The number of the block among those of its launch, in the order in which they began: the last
// come where the kernel ahead still ran, and the last take the fewest tiles. All threads.
__device__ __forceinline__ int order_of_block(unsigned long long* tickets) {
  __shared__ int order;
  if (threadIdx.x == 0) order = static_cast<int>(atomicAdd(tickets, 1ull) % gridDim.x);
  __syncthreads();
  return order;
}

// What was claimed is forgotten where no block claims any more: that of the first step when it has
// ended, that of the others before they begin. (Of a launch of one step:
// ChainBarrier::arrive_last.)
__device__ __forceinline__ void forget_claims(const ChainParameters& p, int step) {
  if (blockIdx.x != 0 || threadIdx.x != 0 || p.count == 1) return;
  if (step == 0) {
    for (int i = 1; i < linear_chain_most_steps; ++i) p.claims[i] = 0;
  } else if (step == 1) {
    p.claims[0] = 0;
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    linear_chain(const __grid_constant__ ChainParameters p) {
#if __CUDA_ARCH__ >= 900  // of earlier GPUs none has the shared memory
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ float scratch[linear_chain_most_rows][32];
  const int all_warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = all_warp / Shape::group_warps;
  auto* claimed = reinterpret_cast<std::uint64_t*>(shared + Shape::claims_at);
  auto* barriers = reinterpret_cast<std::uint64_t*>(shared + Shape::barriers_at);
  std::uint64_t* full = barriers + Shape::warps * Shape::stages;
  std::uint64_t* empty = full + Shape::groups * Shape::buffers;
  if (threadIdx.x < Shape::groups * Shape::buffers) {
    ptx::mbarrier_init(full + threadIdx.x, Shape::group_warps);
    ptx::mbarrier_init(empty + threadIdx.x, 1);
  }
  if (threadIdx.x < Shape::groups * Shape::claims) claimed[threadIdx.x] = 0;
  // A step's tiles go round the multiprocessors, so that none has more than one above another.
  const int blocks = static_cast<int>(gridDim.x);
  const ChainTiles tiles(p, order_of_block(p.tickets) + blocks * group, blocks * Shape::groups,
                         claimed + group * Shape::claims);
  const ChainBuffers<Shape> buffers = {
      reinterpret_cast<float*>(shared + Shape::sums_at) + group * Shape::buffers * Shape::tile_sums,
      full + group * Shape::buffers, empty + group * Shape::buffers};
  std::uint8_t* x = shared + Shape::x_at;
  typename Shape::Ring ring(shared + all_warp * Shape::Ring::bytes,
                            barriers + all_warp * Shape::stages, lane);
  ChainCopies<Shape> copies(p, tiles, all_warp % Shape::group_warps);
#pragma unroll
  for (int i = 0; i < Shape::stages - 1; ++i) copies.next(ring);
  prefetch_norms(p);
  let_next_kernel_begin();
  begin_after_previous_kernels();
  ChainBarrier barrier(p.arrivals);
  int count = 0;
  for (int i = 0; i < p.count; ++i) {
    const ChainStepParameters& step = p.steps[i];
    if (i > 0) barrier.wait();
    forget_claims(p, i);
    if (step.input == ChainInput::rows) {
      load_chain_rows<Shape>(p, step, x);
    } else {
      norm_chain_rows<Shape>(p, step, x, scratch);
    }
    __syncthreads();
    if (step.output == ChainOutput::gated) {
      multiply_chain_step<Shape, 2>(p, i, tiles, x, buffers, count, ring, copies);
    } else {
      multiply_chain_step<Shape, 1>(p, i, tiles, x, buffers, count, ring, copies);
    }
  }
  if (p.count == 1 && tiles.are_claimed(0) && barrier.arrive_last()) p.claims[0] = 0;
#endif
}

template <typename Shape>
ChainKernel make_chain_kernel() {
  return {linear_chain<Shape>, Shape::threads, Shape::x_at,
          Shape::group_warps,  Shape::groups,  Shape::stages};
}

}  // namespace octet

// y = x W^T for up to 16 rows of x, at the speed at which memory gives W. For *.cu files.
//
// A block of four warps takes tiles of 8 or 16 outputs in turn. Each warp streams every fourth unit
// of 256 elements of the tile's rows through its own ring in shared memory and multiplies it on the
// tensor cores, with no barrier but the warp's own. A warp's sum runs over its units in ascending
// order; then the warps' sums are added in theirs: the order depends on K alone. x comes through
// the L1, half a unit ahead of its use.
//
// The rings are filled before the block waits for the kernels ahead, whose results the weights are
// not: so the memory stays busy while one kernel ends and the next begins. The next product's
// blocks come as this one's end, one for one (shared_bytes_of in linear_cuda.cc says why).
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "ops/linear/linear_products.cuh"
#include "ops/linear/linear_stream.h"
#include "ops/linear/weight_ring.cuh"

namespace octet {

template <DataType type, int bands>
struct StreamShape {
  // Of a multiprocessor; types that take work to decode need more warps.
  static constexpr int blocks = keeps_row_order(type) ? 2 : 3;
  // How many the registers have room for, the next kernel's included; scales take some.
  static constexpr int blocks_beside(bool wide, bool block_scales) {
    const bool scaled = block_scales || WeightDecoder<type>::scale_groups > 0;
    return wide ? blocks : scaled ? blocks + 1 : 2 * blocks;
  }
  static constexpr int outputs = bands * device_band_rows;
  static_assert(bands == 2 || keeps_row_order(type));
  // 52 KB of shared memory for a block: two fill half of a multiprocessor of Hopper's, and one fits
  // where a block may have no more than 99 KB.
  static constexpr int room = 13100 / (bands * StageLayout<type>::bytes);
  static constexpr int stages = room < 2 ? 2 : room > 6 ? 6 : room;
  using Ring = WeightRing<type, bands, stages>;

  // After the rings, two buffers of [warp][row of x][output] float32, and the barriers.
  static constexpr int sums(bool wide) { return linear_stream_warps * (wide ? 16 : 8) * outputs; }
  static constexpr std::size_t shared_bytes(bool wide) {
    return linear_stream_warps * (Ring::bytes + stages * sizeof(std::uint64_t)) +
           2 * sizeof(float) * static_cast<std::size_t>(sums(wide));
  }
};

// A thread's elements of a unit of one row of x.
template <bool contiguous>
class InputRow {
 public:
  // Rows that are not there are the last: what they give is not looked at.
  __device__ __forceinline__ InputRow(const LinearStreamParameters& p, int index, int thread)
      : row_(p.x + static_cast<std::int64_t>(min(index, p.rows - 1)) * p.x_stride),
        thread_(thread) {}

  // Of the group that begins at `start`, which ends within the row, by loads of 16 or 8 bytes.
  __device__ __forceinline__ uint4 load(int start) const {
    const __nv_bfloat16* at = row_ + start + (contiguous ? 8 : 4) * thread_;
    if constexpr (contiguous) {
      return *reinterpret_cast<const uint4*>(at);
    } else {
      const uint2 a = *reinterpret_cast<const uint2*>(at);
      const uint2 b = *reinterpret_cast<const uint2*>(at + 16);
      return make_uint4(a.x, a.y, b.x, b.y);
    }
  }
  // Of any group and alignment; zeros past the end.
  __device__ __forceinline__ uint4 load_slowly(int start, int k) const {
    const int first = start + (contiguous ? 8 : 4) * thread_;
    const int second = first + (contiguous ? 4 : 16);
    return make_uint4(pair(first, k), pair(first + 2, k), pair(second, k), pair(second + 2, k));
  }

 private:
  __device__ __forceinline__ std::uint32_t pair(int at, int k) const {
    const auto* bits = reinterpret_cast<const unsigned short*>(row_);
    const std::uint32_t low = at < k ? bits[at] : 0;
    const std::uint32_t high = at + 1 < k ? bits[at + 1] : 0;
    return low | high << 16;
  }

  const __nv_bfloat16* row_;
  int thread_;
};

// The scales of a thread's output of either band at element `element` of their rows.
__device__ __forceinline__ float2 load_block_scales(const LinearStreamParameters& p,
                                                    int first_output, int element, int lane) {
  const int column = p.block_shift >= 0 ? element >> p.block_shift : element / p.block_columns;
  const auto at = [&](int output) {
    const int there = min(output, p.outputs - 1) / p.block_rows;
    return p.scales[static_cast<std::int64_t>(there) * p.grid_columns + column];
  };
  const int output = first_output + lane / 4;
  return make_float2(at(output), at(output + device_band_rows));
}

// What a thread multiplies of half a unit of x.
template <bool wide>
struct HalfUnit {
  InputFragment<wide> groups[4];

  // From element `start` on; `fast` where the whole half ends within aligned rows.
  template <bool contiguous>
  __device__ __forceinline__ void load(const InputRow<contiguous>& low,
                                       const InputRow<contiguous>& high, int start, bool aligned,
                                       int k) {
    if (aligned && start + 4 * device_group_elements <= k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        groups[i].low = low.load(start + i * device_group_elements);
        if constexpr (wide) groups[i].high = high.load(start + i * device_group_elements);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        groups[i].low = low.load_slowly(start + i * device_group_elements, k);
        if constexpr (wide) {
          groups[i].high = high.load_slowly(start + i * device_group_elements, k);
        }
      }
    }
  }
};

struct NoScales {
  __device__ __forceinline__ NoScales(const std::uint8_t*, int) {}
};

// Groups first_group to first_group + 3 of all bands of the tile at `stage`, or the first `groups`
// of them. The unit begins at element `start`.
template <DataType type, int bands, bool block_scales, bool wide, int first_group, bool all>
__device__ __forceinline__ void multiply_groups(const LinearStreamParameters& p,
                                                const std::uint8_t* stage, int first_output,
                                                int start, int groups, int lane,
                                                const HalfUnit<wide>& x, TileSums& sums) {
  using Scales =
      std::conditional_t<(WeightDecoder<type>::scale_groups > 0), TileScales<type>, NoScales>;
  const Scales scales(stage, lane);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (!all && i >= groups) break;
    const int group = first_group + i;
    if constexpr (keeps_row_order(type)) {
#pragma unroll
      for (int band = 0; band < bands; ++band) {
        multiply_rows<type, wide>(stage, lane, group, x.groups[i], band, sums);
      }
    } else if constexpr (WeightDecoder<type>::scale_groups > 0) {
      multiply_quantised_slabs<type, wide>(stage, lane, group, x.groups[i], scales, sums);
    } else {
      float2 of_outputs = {};
      if constexpr (block_scales) {
        of_outputs =
            load_block_scales(p, first_output, start + group * device_group_elements, lane);
      }
      multiply_plain_slabs<type, block_scales, wide>(stage, lane, group, x.groups[i], of_outputs,
                                                     sums);
    }
  }
}

// A check at every group would keep the compiler from mixing their instructions.
template <DataType type, int bands, bool block_scales, bool wide, int first_group>
__device__ __forceinline__ void multiply_half(const LinearStreamParameters& p,
                                              const std::uint8_t* stage, int first_output,
                                              int start, int lane, const HalfUnit<wide>& x,
                                              TileSums& sums) {
  const int left = p.k - start - first_group * device_group_elements;
  if (left > 3 * device_group_elements) {
    multiply_groups<type, bands, block_scales, wide, first_group, true>(p, stage, first_output,
                                                                        start, 4, lane, x, sums);
  } else {
    const int groups = (left + device_group_elements - 1) / device_group_elements;
    multiply_groups<type, bands, block_scales, wide, first_group, false>(
        p, stage, first_output, start, groups, lane, x, sums);
  }
}

// Adds the warps' sums of a tile and writes them. Every thread of the block.
template <DataType type, int bands, bool block_scales, bool wide>
__device__ __forceinline__ void write_tile(const LinearStreamParameters& p, int first_output,
                                           const TileSums& sums, float* buffer) {
  constexpr int rows = wide ? 16 : 8;
  constexpr int outputs = bands * device_band_rows;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* of_warp = buffer + warp * rows * outputs;
#pragma unroll
  for (int upper = 0; upper < (wide ? 2 : 1); ++upper) {
#pragma unroll
    for (int band = 0; band < bands; ++band) {
      const int index = keeps_row_order(type) ? 2 * band + upper : 2 * upper + band;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * upper + (keeps_row_order(type) ? lane / 4 : 2 * (lane % 4) + i);
        const int output =
            device_band_rows * band + (keeps_row_order(type) ? 2 * (lane % 4) + i : lane / 4);
        of_warp[row * outputs + output] = sums.at(index, i);
      }
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < p.rows * outputs;
       at += 32 * linear_stream_warps) {
    const int output = first_output + at % outputs;
    if (output >= p.outputs) continue;
    float total = 0;
#pragma unroll
    for (int w = 0; w < linear_stream_warps; ++w) total += buffer[w * rows * outputs + at];
    if constexpr (!block_scales) {
      if (p.scales != nullptr) total *= p.scales[output / p.block_rows];
    }
    if (p.bias != nullptr) total += p.bias[output];
    const std::int64_t place = at / outputs * p.y_stride + output;
    if (p.y_float32) {
      static_cast<float*>(p.y)[place] = total;
    } else {
      static_cast<__nv_bfloat16*>(p.y)[place] = __float2bfloat16_rn(total);
    }
  }
}

template <DataType type, int bands, bool block_scales, bool wide>
__global__ void __launch_bounds__(32 * linear_stream_warps,
                                  StreamShape<type, bands>::blocks_beside(wide, block_scales))
    linear_stream(const __grid_constant__ LinearStreamParameters p) {
  using Shape = StreamShape<type, bands>;
  using Layout = StageLayout<type>;
  extern __shared__ __align__(128) std::uint8_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* buffers = reinterpret_cast<float*>(shared + linear_stream_warps * Shape::Ring::bytes);
  auto* barriers = reinterpret_cast<std::uint64_t*>(buffers + 2 * Shape::sums(wide));
  typename Shape::Ring ring(shared + warp * Shape::Ring::bytes, barriers + warp * Shape::stages,
                            lane);
  const int units = (p.k + device_unit_elements - 1) / device_unit_elements;
  const int step = static_cast<int>(gridDim.x) * Shape::outputs;
  const int first_output = static_cast<int>(blockIdx.x) * Shape::outputs;

  // The copies run ahead of the products over the same units of the same tiles.
  constexpr int unit_step = device_unit_bytes(type) * (Layout::rows ? 1 : device_band_rows);
  int copy_output = units > warp ? first_output : p.outputs;
  int copy_unit = warp;
  const auto copy_next = [&]() {
    if (copy_output < p.outputs) {
      ring.fill(
          p.weights + copy_output * p.row_bytes + static_cast<std::int64_t>(copy_unit) * unit_step,
          p.row_bytes, static_cast<int>(p.row_bytes) - copy_unit * Layout::unit_bytes,
          (p.outputs - copy_output + device_band_rows - 1) / device_band_rows);
      copy_unit += linear_stream_warps;
      if (copy_unit >= units) {
        copy_unit = warp;
        copy_output += step;
      }
    }
    ring.end_fill();
  };
#pragma unroll
  for (int i = 0; i < Shape::stages - 1; ++i) copy_next();
  let_next_kernel_begin();
  begin_after_previous_kernels();

  const InputRow<WeightDecoder<type>::contiguous> low(p, lane / 4, lane % 4);
  const InputRow<WeightDecoder<type>::contiguous> high(p, lane / 4 + 8, lane % 4);
  constexpr int half_unit = device_unit_elements / 2;
  HalfUnit<wide> first;
  HalfUnit<wide> second;
  if (warp < units) first.load(low, high, warp * device_unit_elements, p.x_aligned, p.k);
  int buffer = 0;
  for (int output = first_output; output < p.outputs; output += step) {
    TileSums sums;
    for (int unit = warp; unit < units; unit += linear_stream_warps) {
      const int start = unit * device_unit_elements;
      second.load(low, high, start + half_unit, p.x_aligned, p.k);
      const std::uint8_t* stage = ring.next();
      copy_next();
      multiply_half<type, bands, block_scales, wide, 0>(p, stage, output, start, lane, first, sums);
      const int next = unit + linear_stream_warps < units ? unit + linear_stream_warps : warp;
      first.load(low, high, next * device_unit_elements, p.x_aligned, p.k);
      multiply_half<type, bands, block_scales, wide, 4>(p, stage, output, start, lane, second,
                                                        sums);
    }
    write_tile<type, bands, block_scales, wide>(p, output, sums,
                                                buffers + buffer * Shape::sums(wide));
    buffer ^= 1;
  }
}

// Tiles of one band where two would take more shared memory than there is, or, for up to two rows
// of x, more than is needed: those are few beside the weights.
template <DataType type, bool block_scales = false>
LinearStreamKernel make_linear_stream_kernel(int rows) {
  constexpr int few_bands = keeps_row_order(type) ? 1 : 2;
  constexpr int bands = type == DataType::float32 ? 1 : 2;
  using Few = StreamShape<type, few_bands>;
  using Many = StreamShape<type, bands>;
  if (rows <= 2) {
    return {linear_stream<type, few_bands, block_scales, false>, Few::shared_bytes(false),
            Few::blocks, Few::outputs};
  }
  const bool wide = rows > 8;
  return {wide ? linear_stream<type, bands, block_scales, true>
               : linear_stream<type, bands, block_scales, false>,
          Many::shared_bytes(wide), Many::blocks, Many::outputs};
}

}  // namespace octet

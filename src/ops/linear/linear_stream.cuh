// y = x W^T for up to 16 rows of x, at the speed at which memory gives W. For *.cu files.
//
// A block of four warps takes bands of 8 outputs in turn. Each warp streams every fourth unit of
// 256 elements of the band's rows through its own ring in shared memory and multiplies it on the
// tensor cores, with no barrier but the warp's own. A warp's sum runs over its units in ascending
// order; then the warps' sums are added in theirs: the order depends on K alone. x comes through
// the L1.
//
// The rings are filled before the block waits for the kernels ahead, whose results the weights are
// not: so the memory stays busy while one kernel ends and the next begins. Half of a
// multiprocessor's shared memory and registers are left to that next kernel.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "ops/linear/linear_products.cuh"
#include "ops/linear/linear_stream.h"
#include "ops/linear/weight_ring.cuh"

namespace octet {

template <DataType type>
struct StreamShape {
  // Of a multiprocessor; types that take work to decode need more warps.
  static constexpr int blocks = keeps_row_order(type) ? 2 : 3;
  // As many as fit into half of a multiprocessor's 227 KB.
  static constexpr int room = (keeps_row_order(type) ? 13000 : 8600) / StageLayout<type>::bytes;
  static constexpr int stages = room < 2 ? 2 : room > 6 ? 6 : room;
  using Ring = WeightRing<type, stages>;

  // After the rings, two buffers of [warp][row of x][output] float32, and the barriers.
  static constexpr int sums(bool wide) {
    return linear_stream_warps * (wide ? 16 : 8) * device_band_rows;
  }
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

// The scales of a thread's two outputs at element `element` of their rows.
__device__ __forceinline__ float2 load_block_scales(const LinearStreamParameters& p,
                                                    int first_output, int element, int lane) {
  const int column = p.block_shift >= 0 ? element >> p.block_shift : element / p.block_columns;
  const int output = first_output + 2 * (lane % 4);
  const auto at = [&](int row) {
    const int there = min(row, p.outputs - 1) / p.block_rows;
    return p.scales[static_cast<std::int64_t>(there) * p.grid_columns + column];
  };
  return make_float2(at(output), at(output + 1));
}

// What a thread multiplies of one unit of x: four groups at a time, which are all the registers
// that there are for it.
template <bool contiguous, bool wide>
struct UnitInputs {
  InputRow<contiguous> low;
  InputRow<contiguous> high;
  InputFragment<wide> x[4];

  __device__ __forceinline__ UnitInputs(const LinearStreamParameters& p, int lane)
      : low(p, lane / 4, lane % 4), high(p, lane / 4 + 8, lane % 4) {}

  // The four groups from `start` on; `fast` where the whole unit ends within aligned rows.
  __device__ __forceinline__ void load(int start, bool fast, int k) {
    if (fast) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i].low = low.load(start + i * device_group_elements);
        if constexpr (wide) x[i].high = high.load(start + i * device_group_elements);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i].low = low.load_slowly(start + i * device_group_elements, k);
        if constexpr (wide) x[i].high = high.load_slowly(start + i * device_group_elements, k);
      }
    }
  }
};

// Groups first_group to first_group + 3 of a unit, of which `groups` are there.
template <DataType type, bool block_scales, bool wide, int first_group, typename Scales>
__device__ __forceinline__ void multiply_groups(const LinearStreamParameters& p,
                                                const std::uint8_t* stage, int first_output,
                                                int start, int groups, int lane,
                                                const InputFragment<wide> (&x)[4],
                                                const Scales& scales, float (&sum)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int group = first_group + i;
    if (group >= groups) break;
    if constexpr (WeightDecoder<type>::scale_groups > 0) {
      multiply_quantised_group<type, wide>(stage, lane, group, x[i], scales, sum);
    } else {
      float2 of_outputs = {};
      if constexpr (block_scales) {
        of_outputs =
            load_block_scales(p, first_output, start + group * device_group_elements, lane);
      }
      multiply_plain_group<type, block_scales, wide>(stage, lane, group, x[i], of_outputs, sum);
    }
  }
}

struct NoScales {
  __device__ __forceinline__ NoScales(const std::uint8_t*, int) {}
};

// Adds the warps' sums of a band and writes them. Every thread of the block.
template <bool block_scales, bool wide>
__device__ __forceinline__ void write_band(const LinearStreamParameters& p, int first_output,
                                           const float (&sum)[4], float* buffer) {
  constexpr int rows = wide ? 16 : 8;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* to = buffer + (warp * rows + lane / 4) * device_band_rows + 2 * (lane % 4);
  *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
  if constexpr (wide) {
    *reinterpret_cast<float2*>(to + 8 * device_band_rows) = make_float2(sum[2], sum[3]);
  }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.x);
  const int row = at / device_band_rows;
  const int output = first_output + at % device_band_rows;
  if (row >= p.rows || output >= p.outputs) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < linear_stream_warps; ++w) total += buffer[w * rows * device_band_rows + at];
  if constexpr (!block_scales) {
    if (p.scales != nullptr) total *= p.scales[output / p.block_rows];
  }
  if (p.bias != nullptr) total += p.bias[output];
  const std::int64_t place = row * p.y_stride + output;
  if (p.y_float32) {
    static_cast<float*>(p.y)[place] = total;
  } else {
    static_cast<__nv_bfloat16*>(p.y)[place] = __float2bfloat16_rn(total);
  }
}

template <DataType type, bool block_scales, bool wide>
__global__ void __launch_bounds__(32 * linear_stream_warps,
                                  (wide ? 1 : 2) * StreamShape<type>::blocks)
    linear_stream(const __grid_constant__ LinearStreamParameters p) {
  using Shape = StreamShape<type>;
  using Layout = StageLayout<type>;
  extern __shared__ __align__(128) std::uint8_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* sums = reinterpret_cast<float*>(shared + linear_stream_warps * Shape::Ring::bytes);
  auto* barriers = reinterpret_cast<std::uint64_t*>(sums + 2 * Shape::sums(wide));
  typename Shape::Ring ring(shared + warp * Shape::Ring::bytes, barriers + warp * Shape::stages,
                            lane);
  const int units = (p.k + device_unit_elements - 1) / device_unit_elements;
  const int step = static_cast<int>(gridDim.x) * device_band_rows;
  const int first_output = static_cast<int>(blockIdx.x) * device_band_rows;
  // From a unit to the next.
  constexpr int unit_step = Layout::rows ? Layout::unit_bytes : Layout::bytes;

  // The copies run ahead of the products over the same units of the same bands.
  int copy_output = units > warp ? first_output : p.outputs;
  int copy_unit = warp;
  const auto copy_next = [&]() {
    if (copy_output < p.outputs) {
      ring.fill(
          p.weights + copy_output * p.row_bytes + static_cast<std::int64_t>(copy_unit) * unit_step,
          p.row_bytes, static_cast<int>(p.row_bytes) - copy_unit * Layout::unit_bytes);
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

  using Scales =
      std::conditional_t<(WeightDecoder<type>::scale_groups > 0), OutputScales<type>, NoScales>;
  UnitInputs<WeightDecoder<type>::contiguous, wide> inputs(p, lane);
  int buffer = 0;
  for (int output = first_output; output < p.outputs; output += step) {
    float sum[4] = {0, 0, 0, 0};
    for (int unit = warp; unit < units; unit += linear_stream_warps) {
      const int start = unit * device_unit_elements;
      const int groups = (p.k - start + device_group_elements - 1) / device_group_elements;
      const bool fast = p.x_aligned && start + device_unit_elements <= p.k;
      inputs.load(start, fast, p.k);
      const std::uint8_t* stage = ring.next();
      copy_next();
      const Scales scales(stage, lane);
      multiply_groups<type, block_scales, wide, 0>(p, stage, output, start, groups, lane, inputs.x,
                                                   scales, sum);
      inputs.load(start + 4 * device_group_elements, fast, p.k);
      multiply_groups<type, block_scales, wide, 4>(p, stage, output, start, groups, lane, inputs.x,
                                                   scales, sum);
    }
    write_band<block_scales, wide>(p, output, sum, sums + buffer * Shape::sums(wide));
    buffer ^= 1;
  }
}

template <DataType type, bool block_scales = false>
LinearStreamKernel make_linear_stream_kernel(bool wide) {
  using Shape = StreamShape<type>;
  return {wide ? linear_stream<type, block_scales, true> : linear_stream<type, block_scales, false>,
          Shape::shared_bytes(wide), Shape::blocks};
}

}  // namespace octet

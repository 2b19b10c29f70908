// y = x W^T for up to 16 rows of x, at the speed at which memory gives W. For *.cu files.
//
// A block of four warps takes tiles of 8 or 16 outputs in turn. Each warp streams every fourth
// chunk of 256 elements of the tile's rows through its own ring in shared memory (asynchronous
// copies of 16 bytes, no barrier but the warp's own) and multiplies it on the tensor cores. A
// warp's sum runs over its chunks in ascending order; then the warps' sums are added in theirs: the
// order depends on K alone. x comes through the L1.
//
// The rings are filled before the block waits for the kernels ahead, whose results the weights are
// not: so the memory stays busy while one kernel ends and the next begins. Half of a
// multiprocessor's shared memory is left to that next kernel.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "ops/linear/linear_products.cuh"
#include "ops/linear/linear_stream.h"

namespace octet {

template <DataType type>
struct StreamShape {
  static constexpr int tiles = device_unit_bytes(type) > 288 ? 1 : 2;  // of 8 outputs
  static constexpr int outputs = 8 * tiles;
  static constexpr int stage_bytes = outputs * StageLayout<type>::row_bytes;
  // About 12 KB for each of eight warps.
  static constexpr int stages = 12288 / stage_bytes < 2   ? 2
                                : 12288 / stage_bytes > 5 ? 5
                                                          : 12288 / stage_bytes;
  static constexpr int ring_bytes = stages * stage_bytes;

  // Two buffers of [warp][row of x][output] float32 follow the rings.
  static constexpr int sums(bool wide) { return linear_stream_warps * (wide ? 16 : 8) * outputs; }
  static constexpr std::size_t shared_bytes(bool wide) {
    return static_cast<std::size_t>(linear_stream_warps * ring_bytes) +
           2 * sizeof(float) * static_cast<std::size_t>(sums(wide));
  }
};

// One row of x, or zeros for a row that is not there.
template <bool contiguous>
struct InputRow {
  const __nv_bfloat16* row;
  int k;  // 0 where there is no row
  bool aligned;

  __device__ __forceinline__ InputRow(const LinearStreamParameters& p, int index)
      : row(p.x + static_cast<std::int64_t>(index) * p.x_stride),
        k(index < p.rows ? p.k : 0),
        aligned(p.x_aligned) {}

  __device__ __forceinline__ std::uint32_t slow_pair(int at) const {
    const auto* bits = reinterpret_cast<const unsigned short*>(row);
    const std::uint32_t low = at < k ? bits[at] : 0;
    const std::uint32_t high = at + 1 < k ? bits[at + 1] : 0;
    return low | high << 16;
  }
  // The thread's eight elements of the group that starts at `start`; zeros past the end.
  __device__ __forceinline__ uint4 load(int start, int thread) const {
    const int first = start + (contiguous ? 8 : 4) * thread;
    const int second = first + (contiguous ? 4 : 16);
    if (first >= k) return make_uint4(0, 0, 0, 0);
    if (!aligned) {
      return make_uint4(slow_pair(first), slow_pair(first + 2), slow_pair(second),
                        slow_pair(second + 2));
    }
    if constexpr (contiguous) return *reinterpret_cast<const uint4*>(row + first);
    const uint2 a = *reinterpret_cast<const uint2*>(row + first);
    const uint2 b = *reinterpret_cast<const uint2*>(row + second);
    return make_uint4(a.x, a.y, b.x, b.y);
  }
};

// Starts copies of one chunk of a tile's rows. Rows past the last are the last once more.
template <DataType type>
__device__ __forceinline__ void copy_chunk(const LinearStreamParameters& p, int first_output,
                                           int chunk, int lane, std::uint8_t* stage) {
  using Layout = StageLayout<type>;
  const std::int64_t from = static_cast<std::int64_t>(chunk) * Layout::unit_bytes;
  const auto left = static_cast<int>(p.row_bytes - from < Layout::unit_bytes ? p.row_bytes - from
                                                                             : Layout::unit_bytes);
  constexpr int pieces = StreamShape<type>::outputs * Layout::pieces;
#pragma unroll
  for (int begin = 0; begin < pieces; begin += 32) {
    const int at = begin + lane;
    const int row = at / Layout::pieces;
    const int piece = at % Layout::pieces;
    if ((pieces % 32 != 0 && at >= pieces) || 16 * piece >= left) continue;
    const int output = min(first_output + row, p.outputs - 1);
    copy_16_bytes(stage + Layout::place(row, piece),
                  p.weights + output * p.row_bytes + from + 16 * piece);
  }
}

// The scales of a thread's two outputs of every tile, at element `element` of their rows.
template <int tiles>
__device__ __forceinline__ void load_block_scales(const LinearStreamParameters& p, int first_output,
                                                  int element, int lane,
                                                  float (&scales)[2 * tiles]) {
  const int column = p.block_shift >= 0 ? element >> p.block_shift : element / p.block_columns;
#pragma unroll
  for (int i = 0; i < 2 * tiles; ++i) {
    const int output = min(first_output + 8 * (i / 2) + 2 * (lane % 4) + i % 2, p.outputs - 1);
    scales[i] =
        p.scales[static_cast<std::int64_t>(output / p.block_rows) * p.grid_columns + column];
  }
}

template <DataType type, bool block_scales, bool wide>
__device__ __forceinline__ void multiply_chunk(const LinearStreamParameters& p,
                                               const std::uint8_t* stage, int first_output,
                                               int chunk, int lane,
                                               const InputFragment<wide> (&x)[8],
                                               float (&sums)[StreamShape<type>::tiles][4]) {
  constexpr int tiles = StreamShape<type>::tiles;
  const int start = chunk * device_unit_elements;
  const int groups = (p.k - start + device_group_elements - 1) / device_group_elements;
  if constexpr (is_plain(type)) {
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      if (group >= groups) break;
      float scales[2 * tiles];
      if constexpr (block_scales) {
        load_block_scales<tiles>(p, first_output, start + group * device_group_elements, lane,
                                 scales);
      }
      multiply_plain_group<type, tiles, block_scales, wide>(stage, lane, group, x[group], scales,
                                                            sums);
    }
  } else {
    UnitScales<type, tiles> scales;
    scales.load(stage, lane);
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      if (group >= groups) break;
      multiply_quantised_group<type, tiles, wide>(stage, lane, group, x[group], scales, sums);
    }
  }
}

// Adds the warps' sums of a tile and writes them. Every thread of the block.
template <DataType type, bool block_scales, bool wide>
__device__ __forceinline__ void write_tile(const LinearStreamParameters& p, int first_output,
                                           const float (&sums)[StreamShape<type>::tiles][4],
                                           float* buffer) {
  using Shape = StreamShape<type>;
  constexpr int rows = wide ? 16 : 8;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < Shape::tiles; ++tile) {
    float* to = buffer + (warp * rows + lane / 4) * Shape::outputs + 8 * tile + 2 * (lane % 4);
    *reinterpret_cast<float2*>(to) = make_float2(sums[tile][0], sums[tile][1]);
    if constexpr (wide) {
      *reinterpret_cast<float2*>(to + 8 * Shape::outputs) =
          make_float2(sums[tile][2], sums[tile][3]);
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < p.rows * Shape::outputs;
       at += 32 * linear_stream_warps) {
    const int row = at / Shape::outputs;
    const int output = first_output + at % Shape::outputs;
    if (output >= p.outputs) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < linear_stream_warps; ++w) sum += buffer[w * rows * Shape::outputs + at];
    if constexpr (!block_scales) {
      if (p.scales != nullptr) sum *= p.scales[output / p.block_rows];
    }
    if (p.bias != nullptr) sum += p.bias[output];
    const std::int64_t to = row * p.y_stride + output;
    if (p.y_float32) {
      static_cast<float*>(p.y)[to] = sum;
    } else {
      static_cast<__nv_bfloat16*>(p.y)[to] = __float2bfloat16_rn(sum);
    }
  }
}

template <DataType type, bool block_scales, bool wide>
__global__ void __launch_bounds__(32 * linear_stream_warps)
    linear_stream(const __grid_constant__ LinearStreamParameters p) {
  using Shape = StreamShape<type>;
  using Decoder = WeightDecoder<type>;
  extern __shared__ __align__(128) std::uint8_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint8_t* ring = shared + warp * Shape::ring_bytes;
  auto* buffers = reinterpret_cast<float*>(shared + linear_stream_warps * Shape::ring_bytes);
  const int chunks = (p.k + device_unit_elements - 1) / device_unit_elements;
  const int step = static_cast<int>(gridDim.x) * Shape::outputs;
  const int first_output = static_cast<int>(blockIdx.x) * Shape::outputs;

  // The copies run ahead of the products over the same chunks of the same tiles.
  int copy_output = chunks > warp ? first_output : p.outputs;
  int copy_chunk_index = warp;
  int copy_stage = 0;
  const auto copy_next = [&]() {
    if (copy_output < p.outputs) {
      copy_chunk<type>(p, copy_output, copy_chunk_index, lane,
                       ring + copy_stage * Shape::stage_bytes);
      copy_stage = copy_stage + 1 == Shape::stages ? 0 : copy_stage + 1;
      copy_chunk_index += linear_stream_warps;
      if (copy_chunk_index >= chunks) {
        copy_chunk_index = warp;
        copy_output += step;
      }
    }
    end_copy_group();
  };
#pragma unroll
  for (int i = 0; i < Shape::stages - 1; ++i) copy_next();
  let_next_kernel_begin();
  begin_after_previous_kernels();

  const InputRow<Decoder::contiguous> low(p, lane / 4);
  const InputRow<Decoder::contiguous> high(p, lane / 4 + 8);
  int stage = 0;
  int buffer = 0;
  for (int output = first_output; output < p.outputs; output += step) {
    float sums[Shape::tiles][4] = {};
    for (int chunk = warp; chunk < chunks; chunk += linear_stream_warps) {
      InputFragment<wide> x[8];
#pragma unroll
      for (int group = 0; group < 8; ++group) {
        const int start = chunk * device_unit_elements + group * device_group_elements;
        x[group].low = low.load(start, lane % 4);
        if constexpr (wide) x[group].high = high.load(start, lane % 4);
      }
      wait_for_copies_but<Shape::stages - 2>();
      __syncwarp();  // this chunk is there for all lanes, and the one before is used up
      copy_next();
      multiply_chunk<type, block_scales, wide>(p, ring + stage * Shape::stage_bytes, output, chunk,
                                               lane, x, sums);
      stage = stage + 1 == Shape::stages ? 0 : stage + 1;
    }
    write_tile<type, block_scales, wide>(p, output, sums, buffers + buffer * Shape::sums(wide));
    buffer ^= 1;
  }
}

template <DataType type, bool block_scales = false>
LinearStreamKernel make_linear_stream_kernel(bool wide) {
  using Shape = StreamShape<type>;
  return {wide ? linear_stream<type, block_scales, true> : linear_stream<type, block_scales, false>,
          Shape::shared_bytes(wide), Shape::outputs};
}

}  // namespace octet

// Products of packed weights in shared memory with rows of x on the tensor cores. For *.cu files.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "ops/linear/device_decode.cuh"

namespace octet {

// d += A B. Of A (16 rows of x), a[0] and a[2] are of row lane / 4, a[1] and a[3] of that + 8; of
// the result d[0] and d[1], d[2] and d[3] likewise, in outputs 2 (lane % 4) and the next. b0 and b1
// are of output lane / 4.
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// How 256 elements of a band of eight rows lie in shared memory: a slab as it is; of types that
// keep the order of rows the even rows and then, 64 bytes further than they would, the odd ones, so
// that the threads of a load meet no bank twice.
template <DataType type>
struct StageLayout {
  static constexpr int unit_bytes = device_unit_bytes(type);
  static constexpr bool rows = keeps_row_order(type);
  static constexpr int bytes = device_band_rows * unit_bytes + (rows ? 64 : 0);

  static __device__ __forceinline__ int place(int row) {
    return rows ? row / 2 * unit_bytes + row % 2 * (4 * unit_bytes + 64) : 0;
  }
};

// A of one group of 32 elements: what a thread has of row lane / 4 and, if wide, of that + 8.
template <bool wide>
struct InputFragment {
  uint4 low;
  uint4 high;

  // Of the group's first or second step of 16.
  __device__ __forceinline__ void step(int half, std::uint32_t (&a)[4]) const {
    a[0] = half == 0 ? low.x : low.z;
    a[2] = half == 0 ? low.y : low.w;
    a[1] = !wide ? 0 : half == 0 ? high.x : high.z;
    a[3] = !wide ? 0 : half == 0 ? high.y : high.w;
  }
};

// sum += scale * products, of a thread's two outputs.
template <bool wide>
__device__ __forceinline__ void add_scaled(float (&sum)[4], const float (&products)[4], float first,
                                           float second) {
  sum[0] = fmaf(first, products[0], sum[0]);
  sum[1] = fmaf(second, products[1], sum[1]);
  if constexpr (wide) {
    sum[2] = fmaf(first, products[2], sum[2]);
    sum[3] = fmaf(second, products[3], sum[3]);
  }
}

// The sums of a thread: the tensor cores' two steps of a group add to one each, so that neither
// waits for the other.
struct StepSums {
  float of_step[2][4] = {};
};

// sums += x W of one group, of a type without scales in its slabs, for the band at `stage`.
// `scales` are of the thread's two outputs, and not looked at where `scaled` is false.
template <DataType type, bool scaled, bool wide>
__device__ __forceinline__ void multiply_plain_group(const std::uint8_t* stage, int lane, int group,
                                                     const InputFragment<wide>& x, float2 scales,
                                                     StepSums& sums) {
  using Decoder = WeightDecoder<type>;
  WeightFragment weights[Decoder::terms];
  const int row = lane / 4;
  Decoder::fragments(stage + StageLayout<type>::place(row), row, group, lane % 4, weights);
  float products[4] = {0, 0, 0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t a[4];
    x.step(half, a);
#pragma unroll
    for (int term = 0; term < Decoder::terms; ++term) {
      multiply_add(scaled ? products : sums.of_step[half], a, weights[term].pairs[2 * half],
                   weights[term].pairs[2 * half + 1]);
    }
  }
  if constexpr (scaled) add_scaled<wide>(sums.of_step[0], products, scales.x, scales.y);
}

// The same for float8_e4m3, where decoding leaves no time for moving registers. Each step takes
// every other pair. Of up to eight rows of x the two steps are both given A as it was loaded, with
// the second step's pairs in rows 8 to 15: the upper half of the first step's result and the lower
// half of the second's mean nothing.
template <bool scaled, bool wide>
__device__ __forceinline__ void multiply_float8_group(const std::uint8_t* stage, int lane,
                                                      int group, const InputFragment<wide>& x,
                                                      float2 scales, StepSums& sums) {
  WeightFragment weights;
  WeightDecoder<DataType::float8_e4m3>::fragments(stage, lane / 4, group, lane % 4, &weights);
  StepSums products;
  StepSums& to = scaled ? products : sums;
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    std::uint32_t a[4] = {x.low.x, x.low.y, x.low.z, x.low.w};
    if constexpr (wide) {
      a[0] = step == 0 ? x.low.x : x.low.y;
      a[1] = step == 0 ? x.high.x : x.high.y;
      a[2] = step == 0 ? x.low.z : x.low.w;
      a[3] = step == 0 ? x.high.z : x.high.w;
    }
    multiply_add(to.of_step[step], a, weights.pairs[step], weights.pairs[step + 2]);
  }
  if constexpr (scaled) {
    add_scaled<true>(sums.of_step[0], products.of_step[0], scales.x, scales.y);
    add_scaled<true>(sums.of_step[1], products.of_step[1], scales.x, scales.y);
  }
}

// The sums of a band after its last group, as multiply_add() has them.
template <DataType type, bool wide>
__device__ __forceinline__ void join_steps(const StepSums& sums, float (&sum)[4]) {
  constexpr bool apart = type == DataType::float8_e4m3 && !wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[i] = sums.of_step[0][i] + sums.of_step[1][apart ? (i + 2) % 4 : i];
  }
}

// The scales of a thread's two outputs.
template <DataType type>
struct OutputScales {
  using Decoder = WeightDecoder<type>;
  typename Decoder::Scales first;
  typename Decoder::Scales second;

  __device__ __forceinline__ OutputScales(const std::uint8_t* stage, int lane)
      : first(Decoder::load_scales(stage, 2 * (lane % 4))),
        second(Decoder::load_scales(stage, 2 * (lane % 4) + 1)) {}
};

// The same for quantised types. Codes are multiplied as they are, and the sum over a scale's group
// is scaled in float32; a minimum multiplies the sum of x, which the tensor cores give too (B = 1).
template <DataType type, bool wide>
__device__ __forceinline__ void multiply_quantised_group(const std::uint8_t* stage, int lane,
                                                         int group, const InputFragment<wide>& x,
                                                         const OutputScales<type>& scales,
                                                         StepSums& sums) {
  float(&sum)[4] = sums.of_step[group % 2];
  using Decoder = WeightDecoder<type>;
  constexpr bool sixteen = Decoder::scale_groups == 16;
  WeightFragment weights;
  Decoder::fragments(stage, lane / 4, group, lane % 4, &weights);
  float products[4];
  float input_sum[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int index = sixteen ? 2 * group + half : group;
    std::uint32_t a[4];
    x.step(half, a);
    if (sixteen || half == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[i] = input_sum[i] = 0;
    }
    multiply_add(products, a, weights.pairs[2 * half], weights.pairs[2 * half + 1]);
    if constexpr (Decoder::has_minimum) multiply_add(input_sum, a, bfloat16_ones, bfloat16_ones);
    if (!sixteen && half == 0) continue;
    add_scaled<wide>(sum, products, scales.first.scale(index), scales.second.scale(index));
    if constexpr (Decoder::has_minimum) {
      add_scaled<wide>(sum, input_sum, scales.first.minimum(index), scales.second.minimum(index));
    }
  }
}

}  // namespace octet

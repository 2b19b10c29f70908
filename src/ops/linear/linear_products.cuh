// Products of packed weights in shared memory with rows of x on the tensor cores. For *.cu files.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "ops/linear/device_decode.cuh"

namespace octet {

// d += A B. Of A (16 rows), a[0] and a[2] are of row lane / 4, a[1] and a[3] of that + 8; of the
// result d[0] and d[1], d[2] and d[3] likewise, in columns 2 (lane % 4) and the next. b0 and b1 are
// of column lane / 4 of B (8 columns).
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

// One group of 32 elements of x: what a thread has of row lane / 4 and, if wide, of that + 8.
template <bool wide>
struct InputFragment {
  uint4 low;
  uint4 high;
};

// The sums of a thread over one tile. Types whose codes are decoded take two bands as the 16 rows
// of A and x as B, so that codes and scales are in the registers that they are computed in:
//   sum[2 h + band][i] is of output lane / 4 of the band and row 8 h + 2 (lane % 4) + i of x.
// Types that keep the order of rows, of which one band is a tile too, take x as A and a band as B:
//   sum[2 band + h][i] is of output 2 (lane % 4) + i of the band and row 8 h + lane / 4 of x.
// The tensor cores' two steps of a group add to sums of their own, so that neither waits for the
// other.
struct TileSums {
  float of_step[2][2][4] = {};

  __device__ __forceinline__ float at(int index, int i) const {
    const int at = 2 * (index % 2) + i;
    return of_step[0][index / 2][at] + of_step[1][index / 2][at];
  }
};

// sums += W x of one group of 32 elements, for the two bands at `stage`, of types in slabs without
// scales in them. `scales`: of the thread's output in either band; not looked at where `scaled` is
// false.
template <DataType type, bool scaled, bool wide>
__device__ __forceinline__ void multiply_plain_slabs(const std::uint8_t* stage, int lane, int group,
                                                     const InputFragment<wide>& x, float2 scales,
                                                     TileSums& sums) {
  WeightFragment weights[2];
#pragma unroll
  for (int band = 0; band < 2; ++band) {
    WeightDecoder<type>::fragments(stage + band * StageLayout<type>::bytes, lane / 4, group,
                                   lane % 4, &weights[band]);
  }
#pragma unroll
  for (int rows = 0; rows < (wide ? 2 : 1); ++rows) {
    const uint4& b = rows == 0 ? x.low : x.high;
    float products[2][4] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t a[4] = {weights[0].pairs[2 * step], weights[1].pairs[2 * step],
                                  weights[0].pairs[2 * step + 1], weights[1].pairs[2 * step + 1]};
      multiply_add(scaled ? products[step] : sums.of_step[step][rows], a, step == 0 ? b.x : b.z,
                   step == 0 ? b.y : b.w);
    }
    if constexpr (scaled) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.of_step[0][rows][i];
        sum = fmaf(i < 2 ? scales.x : scales.y, products[0][i] + products[1][i], sum);
      }
    }
  }
}

// The scales of a thread's output in either band.
template <DataType type>
struct TileScales {
  using Decoder = WeightDecoder<type>;
  typename Decoder::Scales first;
  typename Decoder::Scales second;

  __device__ __forceinline__ TileScales(const std::uint8_t* stage, int lane)
      : first(Decoder::load_scales(stage, lane / 4)),
        second(Decoder::load_scales(stage + StageLayout<type>::bytes, lane / 4)) {}
};

// The same for quantised types. Codes are multiplied as they are, and the sum over a scale's group
// is scaled in float32; a minimum multiplies the sum of x, which the tensor cores give too (A = 1).
template <DataType type, bool wide>
__device__ __forceinline__ void multiply_quantised_slabs(const std::uint8_t* stage, int lane,
                                                         int group, const InputFragment<wide>& x,
                                                         const TileScales<type>& scales,
                                                         TileSums& sums) {
  using Decoder = WeightDecoder<type>;
  constexpr bool sixteen = Decoder::scale_groups == 16;
  WeightFragment weights[2];
#pragma unroll
  for (int band = 0; band < 2; ++band) {
    Decoder::fragments(stage + band * StageLayout<type>::bytes, lane / 4, group, lane % 4,
                       &weights[band]);
  }
  float products[2][4];
  float input_sum[2][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const int index = sixteen ? 2 * group + step : group;
    const std::uint32_t a[4] = {weights[0].pairs[2 * step], weights[1].pairs[2 * step],
                                weights[0].pairs[2 * step + 1], weights[1].pairs[2 * step + 1]};
    const std::uint32_t ones[4] = {bfloat16_ones, bfloat16_ones, bfloat16_ones, bfloat16_ones};
    const bool last = sixteen || step == 1;
    float2 scale;
    float2 minimum;
    if (last) {
      scale = make_float2(scales.first.scale(index), scales.second.scale(index));
      if constexpr (Decoder::has_minimum) {
        minimum = make_float2(scales.first.minimum(index), scales.second.minimum(index));
      }
    }
#pragma unroll
    for (int rows = 0; rows < (wide ? 2 : 1); ++rows) {
      const uint4& b = rows == 0 ? x.low : x.high;
      if (sixteen || step == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) products[rows][i] = input_sum[rows][i] = 0;
      }
      multiply_add(products[rows], a, step == 0 ? b.x : b.z, step == 0 ? b.y : b.w);
      if constexpr (Decoder::has_minimum) {
        multiply_add(input_sum[rows], ones, step == 0 ? b.x : b.z, step == 0 ? b.y : b.w);
      }
      if (!last) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.of_step[group % 2][rows][i];
        sum = fmaf(i < 2 ? scale.x : scale.y, products[rows][i], sum);
        if constexpr (Decoder::has_minimum) {
          sum = fmaf(i < 2 ? minimum.x : minimum.y, input_sum[rows][i], sum);
        }
      }
    }
  }
}

// The same for types that keep the order of rows, one band at a time.
template <DataType type, bool wide>
__device__ __forceinline__ void multiply_rows(const std::uint8_t* stage, int lane, int group,
                                              const InputFragment<wide>& x, int band,
                                              TileSums& sums) {
  using Decoder = WeightDecoder<type>;
  WeightFragment weights[Decoder::terms];
  const int row = lane / 4;
  Decoder::fragments(stage + band * StageLayout<type>::bytes + StageLayout<type>::place(row), row,
                     group, lane % 4, weights);
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const std::uint32_t a[4] = {step == 0 ? x.low.x : x.low.z,
                                !wide       ? 0
                                : step == 0 ? x.high.x
                                            : x.high.z,
                                step == 0 ? x.low.y : x.low.w,
                                !wide       ? 0
                                : step == 0 ? x.high.y
                                            : x.high.w};
#pragma unroll
    for (int term = 0; term < Decoder::terms; ++term) {
      multiply_add(sums.of_step[step][band], a, weights[term].pairs[2 * step],
                   weights[term].pairs[2 * step + 1]);
    }
  }
}

}  // namespace octet

// Products of packed weights in shared memory with rows of x on the tensor cores: what the kernels
// for few and for more rows share. For *.cu files.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "ops/linear/device_decode.cuh"

namespace octet {

// --- Asynchronous copies to shared memory.

__device__ __forceinline__ void copy_16_bytes(std::uint8_t* shared, const std::uint8_t* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most `groups` of this thread's groups, the newest, are on their way.
template <int groups>
__device__ __forceinline__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// d += A B. Of A (16 rows of x), a[0] and a[2] are of row lane / 4, a[1] and a[3] of that + 8; of
// the result d[0] and d[1], d[2] and d[3] likewise, in outputs 2 (lane % 4) and the next. b0 and b1
// are of output lane / 4.
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// How units of 256 elements of several rows lie in shared memory: `row_bytes` apart, so that the
// threads of a load meet no bank twice. Plain types, whose units are powers of two, instead
// exchange a row's groups of 32 elements: group i lies where group i ^ swap(row) would.
template <DataType type>
struct StageLayout {
  static constexpr int unit_bytes = device_unit_bytes(type);
  static constexpr int group_bytes = unit_bytes / 8;  // of plain types
  static constexpr bool plain = is_plain(type);
  // Blocks are an odd number of 16 bytes apart; Q8_0's loads are twice as wide.
  static constexpr int row_bytes = plain                      ? unit_bytes
                                   : type == DataType::q8_0   ? unit_bytes + 16
                                   : unit_bytes / 16 % 2 == 1 ? unit_bytes
                                                              : unit_bytes + 16;
  static constexpr int pieces = unit_bytes / 16;  // of a row's unit

  static __device__ __forceinline__ int swap(int row) {
    if (type == DataType::float8_e4m3) return row & 3;
    return plain ? row & 1 : 0;
  }
  // Where a piece of 16 bytes of a row's unit goes.
  static __device__ __forceinline__ int place(int row, int piece) {
    return row * row_bytes + ((16 * piece) ^ (swap(row) * (plain ? group_bytes : 0)));
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

// What scales the products of one group, for `tiles` tiles of eight outputs whose rows begin at
// `stage`.
template <DataType type, int tiles>
struct UnitScales {
  using Decoder = WeightDecoder<type>;
  typename Decoder::Scales first[tiles];  // of output 2 (lane % 4)
  typename Decoder::Scales second[tiles];

  __device__ __forceinline__ void load(const std::uint8_t* stage, int lane) {
    constexpr int row_bytes = StageLayout<type>::row_bytes;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      const std::uint8_t* row = stage + (8 * tile + 2 * (lane % 4)) * row_bytes;
      first[tile] = Decoder::load_scales(row);
      second[tile] = Decoder::load_scales(row + row_bytes);
    }
  }
};

// sums += x W of one group of 32 elements for the tiles at `stage`, of a type without scales in its
// units: `scales` (of the thread's two outputs of every tile), or none where `scaled` is false.
template <DataType type, int tiles, bool scaled, bool wide>
__device__ __forceinline__ void multiply_plain_group(const std::uint8_t* stage, int lane, int group,
                                                     const InputFragment<wide>& x,
                                                     const float (&scales)[2 * tiles],
                                                     float (&sums)[tiles][4]) {
  using Layout = StageLayout<type>;
  using Decoder = WeightDecoder<type>;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    const int row = 8 * tile + lane / 4;
    WeightFragment weights[Decoder::terms];
    Decoder::fragments(stage + row * Layout::row_bytes, group ^ Layout::swap(row), lane % 4,
                       weights);
    float products[4] = {0, 0, 0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[4];
      x.step(half, a);
#pragma unroll
      for (int term = 0; term < Decoder::terms; ++term) {
        multiply_add(scaled ? products : sums[tile], a, weights[term].pairs[2 * half],
                     weights[term].pairs[2 * half + 1]);
      }
    }
    if constexpr (scaled) {
      add_scaled<wide>(sums[tile], products, scales[2 * tile], scales[2 * tile + 1]);
    }
  }
}

// The same for quantised types. Codes are multiplied as they are, and the sum over a scale's group
// is scaled in float32; a minimum multiplies the sum of x, which the tensor cores give too (B = 1).
template <DataType type, int tiles, bool wide>
__device__ __forceinline__ void multiply_quantised_group(const std::uint8_t* stage, int lane,
                                                         int group, const InputFragment<wide>& x,
                                                         const UnitScales<type, tiles>& scales,
                                                         float (&sums)[tiles][4]) {
  using Decoder = WeightDecoder<type>;
  constexpr bool sixteen = Decoder::scale_groups == 16;
  WeightFragment weights[tiles];
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    Decoder::fragments(stage + (8 * tile + lane / 4) * StageLayout<type>::row_bytes, group,
                       lane % 4, &weights[tile]);
  }
  float products[tiles][4];
  float input_sum[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool first = sixteen || half == 0;
    const bool last = sixteen || half == 1;
    const int index = sixteen ? 2 * group + half : group;
    std::uint32_t a[4];
    x.step(half, a);
    if constexpr (Decoder::has_minimum) {
      if (first) input_sum[0] = input_sum[1] = input_sum[2] = input_sum[3] = 0;
      multiply_add(input_sum, a, bfloat16_ones, bfloat16_ones);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      float(&sum)[4] = products[tile];
      if (first) sum[0] = sum[1] = sum[2] = sum[3] = 0;
      multiply_add(sum, a, weights[tile].pairs[2 * half], weights[tile].pairs[2 * half + 1]);
      if (!last) continue;
      add_scaled<wide>(sums[tile], sum, scales.first[tile].scale(index),
                       scales.second[tile].scale(index));
      if constexpr (Decoder::has_minimum) {
        add_scaled<wide>(sums[tile], input_sum, scales.first[tile].minimum(index),
                         scales.second[tile].minimum(index));
      }
    }
  }
}

}  // namespace octet

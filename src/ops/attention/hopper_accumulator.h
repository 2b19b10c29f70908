// Hopper's FP8 tensor core in arithmetic, so that what it loses can be shown on any CPU.
//
// Model (reports of DeepSeek-V3, section 3.5.2, and SageAttention2; the rates of loss that follow
// from it agree with what vLLM measured): a step multiplies 32 pairs of e4m3 numbers, shifts the
// products and the accumulator to the largest exponent among them, keeps 14 bits of each, drops the
// rest, adds, and keeps 14 bits of the sum. Dropping is toward zero: a bias, not noise, so a sum
// over a long context loses what its later terms are too small to add.
#pragma once

#include <span>

namespace octet {

inline constexpr int hopper_accumulator_bits = 14;
inline constexpr int hopper_step_products = 32;

// accumulator + sum of the products, as above. Products are exact in float32 for e4m3 operands; at
// most 32 of them. 2 <= bits <= 24.
float hopper_accumulate(float accumulator, std::span<const float> products,
                        int bits = hopper_accumulator_bits);

// How a kernel adds up a row's P V on such a tensor core.
struct HopperAccumulation {
  int tile_tokens = 64;
  // Tiles that the tensor core adds up by itself before its accumulator is added to a float32 one
  // (two-level accumulation) and starts again from zero; 0: never (single-level).
  int promote_every = 1;
  // The softmax weights of a tile are scaled by its own largest, so that it becomes 256; otherwise
  // by the largest so far, and tiles that lie far below it underflow.
  bool tile_local_scale = true;
  // The row sum is taken over the weights as they were rounded, which cancels their bias.
  bool sums_rounded_weights = true;
  int accumulator_bits = hopper_accumulator_bits;
};

struct HopperRow {
  std::span<const float> scores;        // [keys], what softmax is taken of; at least one
  const float* values = nullptr;        // [keys, head_dim], the stored e4m3 numbers
  std::span<const float> value_scales;  // [keys], positive; empty: all 1
  int head_dim = 0;
  // The order in which tiles are taken, a permutation of all of them; empty: ascending.
  std::span<const int> tile_order;
};

// output[head_dim] = sum_j softmax(scores)_j value_scales_j values_j, with weights rounded to e4m3
// and sums as `accumulation` says:
//   w_j = e4m3(p_j value_scales_j / t),  O += t sum_j w_j values_j,  l += t sum_j w_j /
//   value_scales_j
void hopper_weighted_values(const HopperAccumulation& accumulation, const HopperRow& row,
                            float* output);

}  // namespace octet

// Rotary position embedding (Su et al., arXiv 2104.09864) with Llama 3's frequency scaling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/context.h"

namespace octet {

// Llama 3.1's scaling: wavelengths above original_context / low_freq_factor are stretched by
// `factor`, those below original_context / high_freq_factor are kept, the ones between are blended.
struct Llama3RopeScaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_context = 8192;
};

struct RopeFrequencies {
  // Radians per position of each rotated pair, computed in double: [rotary_dim / 2].
  std::vector<double> inverse;
};
// inverse[i] = theta^(-2 i / rotary_dim), scaled. Throws Error{bad_input} for values that come from
// a broken file: a base or factor that is not positive and finite, an odd rotary_dim.
RopeFrequencies rope_frequencies(double theta, int rotary_dim,
                                 const std::optional<Llama3RopeScaling>& scaling);

// Which input elements form pair i of a head. The output is in half-split order either way, so that
// everything after this op (cache, means, scales, rotation) sees one order.
enum class RopePairing {
  half_split,   // (i, i + rotary_dim / 2): Hugging Face checkpoints
  interleaved,  // (2 i, 2 i + 1): the llama architecture's rows in GGUF files
};

// Cosines and sines of positions [0, positions()), computed in double and rounded to float32.
class RopeTable {
 public:
  // With room for max_positions, none of which are made yet: what no text reaches takes no memory
  // (two tables of 131,072 positions of 128 pairs are 268 MB).
  RopeTable(RopeFrequencies frequencies, std::int64_t max_positions);
  // Makes positions up to `end`, and up to 63 more, but none beyond max_positions. What is there
  // stays where it is.
  void extend(std::int64_t end);
  int pairs() const { return pairs_; }
  std::int64_t positions() const { return positions_; }
  const float* cosines(std::int64_t position) const { return &cosines_[position * pairs_]; }
  const float* sines(std::int64_t position) const { return &sines_[position * pairs_]; }

 private:
  RopeFrequencies frequencies_;
  int pairs_;
  std::int64_t max_positions_;
  std::int64_t positions_ = 0;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

// out[i]           = a cos - b sin
// out[i + pairs]   = b cos + a sin      for pair (a, b) of head h at positions[m]
//   x: [rows, heads, head_dim] float32, row stride `row_stride`, in place; elements past the
//   rotated ones stay. positions: [rows], each in [0, table.positions()); otherwise
//   Error{internal}.
struct RopeArgs {
  float* x = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_stride = 0;
  int heads = 0;
  int head_dim = 0;
  const std::int32_t* positions = nullptr;
  const RopeTable* table = nullptr;
  RopePairing pairing = RopePairing::half_split;
};
void rope(const OpContext& context, const RopeArgs& args);

}  // namespace octet

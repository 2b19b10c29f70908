// Decodes weights into panels for the tiles of linear_avx2.cc.
#include <cstdint>

#include <immintrin.h>

#include "ops/linear/linear_avx2.h"
#include "ops/linear/with_decoder_avx2.h"

namespace octet {
namespace {

constexpr int panel_outputs = panel_outputs_avx2;

// Stores the groups of a section, from `group` on, at every second vector of `to`.
template <class Decoder, int group>
[[gnu::always_inline]] inline void store_groups(Bytes block, const typename Decoder::Scales& scales,
                                                int section, float* to) {
  constexpr int step = 8 * panel_outputs;
  const auto quants = Decoder::template load<group>(block, section);
  _mm256_storeu_ps(to, Decoder::template vector<group, 0>(quants, scales, section));
  _mm256_storeu_ps(to + step, Decoder::template vector<group, 1>(quants, scales, section));
  _mm256_storeu_ps(to + 2 * step, Decoder::template vector<group, 2>(quants, scales, section));
  _mm256_storeu_ps(to + 3 * step, Decoder::template vector<group, 3>(quants, scales, section));
  if constexpr (group + 1 < Decoder::groups) {
    store_groups<Decoder, group + 1>(block, scales, section, to + 4 * step);
  }
}

template <class Decoder>
[[gnu::always_inline]] inline void decode_block_to_panel(Bytes block, float* to) {
  const auto scales = Decoder::prepare(block);
  for (int section = 0; section < Decoder::sections; ++section) {
    store_groups<Decoder, 0>(block, scales, section, to);
    to += 32 * Decoder::groups * panel_outputs;
  }
}

// Layout: [padded k / 8][2][8]; writes one of the two.
template <class Decoder>
void decode_row_to_panel(Bytes row, std::int64_t k, float* to) {
  const std::int64_t blocks = k / Decoder::block_elements;
  for (std::int64_t i = 0; i < blocks; ++i) {
    decode_block_to_panel<Decoder>(row + i * Decoder::block_bytes, to);
    to += Decoder::block_elements * panel_outputs;
  }
  if constexpr (Decoder::is_plain) {
    if (k % Decoder::block_elements != 0) {
      unsigned char tail[Decoder::block_bytes];
      copy_tail<Decoder>(row, k, tail);
      decode_block_to_panel<Decoder>(tail, to);
    }
  }
}

template <class Decoder>
void decode_panel_rows(const WeightRows& weights, float* panel) {
  const auto* data = reinterpret_cast<Bytes>(weights.data);
  for (int output = 0; output < panel_outputs; ++output) {
    float* to = panel + 8 * output;
    if (output < weights.outputs) {
      decode_row_to_panel<Decoder>(data + output * weights.row_bytes, weights.k, to);
    } else {
      for (std::int64_t i = 0; i < padded(weights.k); i += 8) {
        _mm256_storeu_ps(to + i * panel_outputs, _mm256_setzero_ps());
      }
    }
  }
}

}  // namespace

void decode_panel_avx2(const WeightRows& weights, Arithmetic arithmetic, void* panel) {
  auto* to = static_cast<float*>(panel);
  if (weights.dtype == DataType::float8_e4m3) {
    decode_panel_float8_avx2(weights, to);
  } else {
    with_decoder(weights.dtype,
                 [&](auto decoder) { decode_panel_rows<decltype(decoder)>(weights, to); });
  }
  if (arithmetic == Arithmetic::bfloat16) {
    for (std::int64_t i = 0; i < padded(weights.k) * panel_outputs; i += 8) {
      _mm256_storeu_ps(to + i, round_to_bfloat16_vector(_mm256_loadu_ps(to + i)));
    }
  }
}

}  // namespace octet

// Scalar decoding of stored weights: the reference that every faster decoder is compared with.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"

namespace octet {

// Decodes `out.size()` consecutive values of `dtype`, starting at a block boundary at `data`, to
// float32. out.size() must be a multiple of the block's elements. Block formats as ggml defines
// them (ggml-quants.c); each value is computed as the format's formula in float32, scales from
// float16.
void decode_blocks(DataType dtype, const std::byte* data, std::span<float> out);

// Multiplies a decoded row by its scales, as TensorScales defines it.
void apply_scales(const TensorScales& scales, std::int64_t row, std::span<float> values);

// Decodes row `row` of a tensor of rank 2 (or the whole of a tensor of rank 1, row 0), with its
// scales.
void decode_row(const TensorView& tensor, std::int64_t row, std::span<float> out);

}  // namespace octet

#include "files/block_decode.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "files/block_bytes.h"
#include "files/block_quants.h"

namespace octet {

namespace {

void decode_float32(const std::byte* data, float* out) { *out = load<float>(data); }
void decode_float16(const std::byte* data, float* out) { *out = float16_at(data); }
void decode_bfloat16(const std::byte* data, float* out) {
  *out = bfloat16_to_float(load<std::uint16_t>(data));
}

void decode_float8_e4m3(const std::byte* data, float* out) {
  *out = float8_e4m3_to_float(byte_at(data, 0));
}

using ElementDecoder = void (*)(const std::byte* data, float* out);

// Null for the block formats.
ElementDecoder element_decoder_of(DataType dtype) {
  switch (dtype) {
    case DataType::float32:
      return decode_float32;
    case DataType::float16:
      return decode_float16;
    case DataType::bfloat16:
      return decode_bfloat16;
    case DataType::float8_e4m3:
      return decode_float8_e4m3;
    default:
      return nullptr;
  }
}

void decode_quants(DataType dtype, const std::byte* block, std::span<float> out) {
  BlockQuants read;
  read_quants(dtype, block, &read);
  const auto together = static_cast<std::size_t>(elements_per_scale(dtype));
  const bool with_minimum = has_minimum(dtype);
  for (std::size_t group = 0; group < out.size() / together; ++group) {
    const float scale = read.scale[group];
    const float minimum = read.minimum[group];
    const std::int8_t* quants = read.quants + group * together;
    float* values = &out[group * together];
    for (std::size_t i = 0; i < together; ++i) {
      const float product = scale * static_cast<float>(quants[i]);
      values[i] = with_minimum ? product + minimum : product;
    }
  }
}

}  // namespace

void decode_blocks(DataType dtype, const std::byte* data, std::span<float> out) {
  const ElementDecoder decode_element = element_decoder_of(dtype);
  const DataTypeTraits traits = traits_of(dtype);
  if (decode_element == nullptr && !has_quants(dtype)) {
    throw_error(ErrorKind::internal, "decode_blocks: no decoder for type number {}",
                static_cast<int>(dtype));
  }
  if (out.size() % traits.block_elements != 0) {
    throw_error(ErrorKind::internal,
                "decode_blocks: {} values are no multiple of {}, the block of {}", out.size(),
                traits.block_elements, traits.name);
  }
  const std::byte* block = data;
  for (std::size_t done = 0; done < out.size(); done += traits.block_elements) {
    if (decode_element != nullptr) {
      decode_element(block, &out[done]);
    } else {
      decode_quants(dtype, block, out.subspan(done, traits.block_elements));
    }
    block += traits.block_bytes;
  }
}

void apply_scales(const TensorScales& scales, std::int64_t row, std::span<float> values) {
  const float* scale = scales.of_row(row);
  const auto block = static_cast<std::size_t>(scales.block_columns);
  for (std::size_t begin = 0; begin < values.size(); begin += block, ++scale) {
    const std::size_t end = std::min(values.size(), begin + block);
    for (std::size_t i = begin; i < end; ++i) values[i] *= *scale;
  }
}

void decode_row(const TensorView& tensor, std::int64_t row, std::span<float> out) {
  const std::size_t rank = tensor.shape.size();
  if (rank != 1 && rank != 2) {
    throw_error(ErrorKind::internal, "decode_row: tensor {} has shape {}, expected rank 1 or 2",
                tensor.name, format_shape(tensor.shape));
  }
  const std::int64_t rows = rank == 2 ? tensor.shape[0] : 1;
  const auto columns = static_cast<std::uint64_t>(tensor.shape.back());
  if (row < 0 || row >= rows || out.size() != columns) {
    throw_error(ErrorKind::internal,
                "decode_row: row {} into {} values was asked of tensor {} of shape {}", row,
                out.size(), tensor.name, format_shape(tensor.shape));
  }
  const std::size_t row_bytes = tensor.bytes / static_cast<std::size_t>(rows);
  decode_blocks(tensor.dtype, tensor.data + static_cast<std::size_t>(row) * row_bytes, out);
  if (tensor.scales != nullptr) apply_scales(*tensor.scales, row, out);
}

}  // namespace octet

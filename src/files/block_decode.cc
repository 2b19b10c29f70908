#include "files/block_decode.h"

#include <algorithm>
#include <cstddef>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "files/block_bytes.h"
#include "files/block_decode_small.h"

namespace octet {

namespace {

constexpr int block_32 = 32;        // elements of a block of the plain formats
constexpr int half_32 = 16;         // a byte holds elements j (low nibble) and j + 16 (high nibble)
constexpr int super_block = 256;    // elements of a block of the K formats
constexpr int sub_block = 32;       // elements that share a scale and a minimum in Q4_K and Q5_K
constexpr int q6_k_sub_block = 16;  // elements that share a scale in Q6_K

void decode_q4_0(const std::byte* block, float* out) {
  const float scale = float16_at(block);
  const std::byte* quants = block + 2;
  for (int j = 0; j < half_32; ++j) {
    out[j] = scale * static_cast<float>(low_nibble(quants, j) - 8);
    out[j + half_32] = scale * static_cast<float>(high_nibble(quants, j) - 8);
  }
}

void decode_q4_1(const std::byte* block, float* out) {
  const float scale = float16_at(block);
  const float minimum = float16_at(block + 2);
  const std::byte* quants = block + 4;
  for (int j = 0; j < half_32; ++j) {
    out[j] = scale * static_cast<float>(low_nibble(quants, j)) + minimum;
    out[j + half_32] = scale * static_cast<float>(high_nibble(quants, j)) + minimum;
  }
}

// Bit j of the 32 at `high_bits` is the fifth bit of element j.
int fifth_bit(std::uint32_t high_bits, int element) {
  return static_cast<int>((high_bits >> element) & 1u) << 4;
}

void decode_q5_0(const std::byte* block, float* out) {
  const float scale = float16_at(block);
  const auto high_bits = load<std::uint32_t>(block + 2);
  const std::byte* quants = block + 6;
  for (int j = 0; j < half_32; ++j) {
    const int low = low_nibble(quants, j) | fifth_bit(high_bits, j);
    const int high = high_nibble(quants, j) | fifth_bit(high_bits, j + half_32);
    out[j] = scale * static_cast<float>(low - 16);
    out[j + half_32] = scale * static_cast<float>(high - 16);
  }
}

void decode_q5_1(const std::byte* block, float* out) {
  const float scale = float16_at(block);
  const float minimum = float16_at(block + 2);
  const auto high_bits = load<std::uint32_t>(block + 4);
  const std::byte* quants = block + 8;
  for (int j = 0; j < half_32; ++j) {
    const int low = low_nibble(quants, j) | fifth_bit(high_bits, j);
    const int high = high_nibble(quants, j) | fifth_bit(high_bits, j + half_32);
    out[j] = scale * static_cast<float>(low) + minimum;
    out[j + half_32] = scale * static_cast<float>(high) + minimum;
  }
}

void decode_q8_0(const std::byte* block, float* out) {
  const float scale = float16_at(block);
  for (int j = 0; j < block_32; ++j) {
    out[j] = scale * static_cast<float>(signed_byte_at(block, 2 + j));
  }
}

struct SubBlockScale {
  int scale;
  int minimum;
};

// The 6-bit scale and minimum of sub-block `index` (0 to 7), packed in 12 bytes: sub-blocks 0 to 3
// take the low 6 bits of a byte each; 4 to 7 take a nibble of the last four bytes and the 2 bits
// that are left at the top of the first eight.
SubBlockScale sub_block_scale(const std::byte* packed, int index) {
  if (index < 4) return {byte_at(packed, index) & 63, byte_at(packed, index + 4) & 63};
  const int nibbles = byte_at(packed, index + 4);
  return {(nibbles & 15) | ((byte_at(packed, index - 4) >> 6) << 4),
          (nibbles >> 4) | ((byte_at(packed, index) >> 6) << 4)};
}

// Q4_K, and Q5_K where `high_bits` (32 bytes) is given: bit s of byte l is the fifth bit of element
// l of sub-block s.
void decode_k_with_minimum(const std::byte* block, const std::byte* high_bits,
                           const std::byte* quants, float* out) {
  const float scale = float16_at(block);
  const float minimum_scale = float16_at(block + 2);
  for (int s = 0; s < super_block / sub_block; ++s) {
    const SubBlockScale packed = sub_block_scale(block + 4, s);
    const float d = scale * static_cast<float>(packed.scale);
    const float m = minimum_scale * static_cast<float>(packed.minimum);
    const std::byte* bytes = quants + s / 2 * sub_block;  // shared by sub-blocks 2p and 2p + 1
    for (int l = 0; l < sub_block; ++l) {
      int q = s % 2 == 0 ? low_nibble(bytes, l) : high_nibble(bytes, l);
      if (high_bits != nullptr) q |= ((byte_at(high_bits, l) >> s) & 1) << 4;
      out[s * sub_block + l] = d * static_cast<float>(q) - m;
    }
  }
}

void decode_q4_k(const std::byte* block, float* out) {
  decode_k_with_minimum(block, nullptr, block + 16, out);
}

void decode_q5_k(const std::byte* block, float* out) {
  decode_k_with_minimum(block, block + 16, block + 48, out);
}

void decode_q6_k(const std::byte* block, float* out) {
  const float scale = float16_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + 64 * half;
    const std::byte* high = block + 128 + 32 * half;
    const std::byte* scales = block + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      // Quarters 0 and 1 take the low nibbles of 64 bytes, 2 and 3 the high ones; the two bits at
      // 2 * quarter of 32 bytes are bits 4 and 5.
      for (int l = 0; l < sub_block; ++l) {
        const int position = l + sub_block * (quarter % 2);
        const int low_bits = quarter < 2 ? low_nibble(low, position) : high_nibble(low, position);
        const int q = low_bits | (((byte_at(high, l) >> (2 * quarter)) & 3) << 4);
        const float d =
            scale * static_cast<float>(signed_byte_at(scales, l / q6_k_sub_block + 2 * quarter));
        out[128 * half + sub_block * quarter + l] = d * static_cast<float>(q - 32);
      }
    }
  }
}

void decode_float32(const std::byte* data, float* out) { *out = load<float>(data); }
void decode_float16(const std::byte* data, float* out) { *out = float16_at(data); }
void decode_bfloat16(const std::byte* data, float* out) {
  *out = bfloat16_to_float(load<std::uint16_t>(data));
}

void decode_float8_e4m3(const std::byte* data, float* out) {
  *out = float8_e4m3_to_float(byte_at(data, 0));
}

using BlockDecoder = void (*)(const std::byte* block, float* out);

BlockDecoder decoder_of(DataType dtype) {
  switch (dtype) {
    case DataType::float32:
      return decode_float32;
    case DataType::float16:
      return decode_float16;
    case DataType::bfloat16:
      return decode_bfloat16;
    case DataType::float8_e4m3:
      return decode_float8_e4m3;
    case DataType::q4_0:
      return decode_q4_0;
    case DataType::q4_1:
      return decode_q4_1;
    case DataType::q5_0:
      return decode_q5_0;
    case DataType::q5_1:
      return decode_q5_1;
    case DataType::q8_0:
      return decode_q8_0;
    case DataType::q2_k:
      return decode_q2_k;
    case DataType::q3_k:
      return decode_q3_k;
    case DataType::q4_k:
      return decode_q4_k;
    case DataType::q5_k:
      return decode_q5_k;
    case DataType::q6_k:
      return decode_q6_k;
    case DataType::iq4_nl:
      return decode_iq4_nl;
    case DataType::iq4_xs:
      return decode_iq4_xs;
    case DataType::mxfp4:
      return decode_mxfp4;
  }
  throw_error(ErrorKind::internal, "decode_blocks: no decoder for type number {}",
              static_cast<int>(dtype));
}

}  // namespace

void decode_blocks(DataType dtype, const std::byte* data, std::span<float> out) {
  const BlockDecoder decode = decoder_of(dtype);
  const DataTypeTraits traits = traits_of(dtype);
  if (out.size() % traits.block_elements != 0) {
    throw_error(ErrorKind::internal,
                "decode_blocks: {} values are no multiple of {}, the block of {}", out.size(),
                traits.block_elements, traits.name);
  }
  float* values = out.data();
  const std::byte* block = data;
  for (std::size_t done = 0; done < out.size(); done += traits.block_elements) {
    decode(block, values);
    block += traits.block_bytes;
    values += traits.block_elements;
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

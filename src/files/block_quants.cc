#include "files/block_quants.h"

#include "core/error.h"
#include "files/block_bytes.h"
#include "files/block_quants_small.h"

namespace octet {

namespace {

constexpr int block_32 = 32;        // elements of a block of the plain formats
constexpr int half_32 = 16;         // a byte holds elements j (low nibble) and j + 16 (high nibble)
constexpr int super_block = 256;    // elements of a block of the K formats
constexpr int sub_block = 32;       // elements that share a scale and a minimum in Q4_K and Q5_K
constexpr int q6_k_sub_block = 16;  // elements that share a scale in Q6_K

std::int8_t as_quant(int value) { return static_cast<std::int8_t>(value); }

void read_q4_0(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  for (int j = 0; j < half_32; ++j) {
    out->quants[j] = as_quant(low_nibble(block + 2, j) - 8);
    out->quants[j + half_32] = as_quant(high_nibble(block + 2, j) - 8);
  }
}

void read_q4_1(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  out->minimum[0] = float16_at(block + 2);
  for (int j = 0; j < half_32; ++j) {
    out->quants[j] = as_quant(low_nibble(block + 4, j));
    out->quants[j + half_32] = as_quant(high_nibble(block + 4, j));
  }
}

// 32 elements of 5 bits: bit j of the 32 at `high_bits` is the fifth bit of element j.
void read_five_bits(const std::byte* high_bits, const std::byte* nibbles, int subtract,
                    BlockQuants* out) {
  const auto bits = load<std::uint32_t>(high_bits);
  const auto fifth_bit = [bits](int element) {
    return static_cast<int>((bits >> element) & 1u) << 4;
  };
  for (int j = 0; j < half_32; ++j) {
    out->quants[j] = as_quant((low_nibble(nibbles, j) | fifth_bit(j)) - subtract);
    out->quants[j + half_32] =
        as_quant((high_nibble(nibbles, j) | fifth_bit(j + half_32)) - subtract);
  }
}

void read_q5_0(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  read_five_bits(block + 2, block + 6, 16, out);
}

void read_q5_1(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  out->minimum[0] = float16_at(block + 2);
  read_five_bits(block + 4, block + 8, 0, out);
}

void read_q8_0(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  for (int j = 0; j < block_32; ++j) out->quants[j] = signed_byte_at(block, 2 + j);
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
void read_k_with_minimum(const std::byte* block, const std::byte* high_bits,
                         const std::byte* nibbles, BlockQuants* out) {
  const float scale = float16_at(block);
  const float minimum_scale = float16_at(block + 2);
  for (int s = 0; s < super_block / sub_block; ++s) {
    const SubBlockScale packed = sub_block_scale(block + 4, s);
    out->scale[s] = scale * static_cast<float>(packed.scale);
    out->minimum[s] = -(minimum_scale * static_cast<float>(packed.minimum));
    const std::byte* bytes = nibbles + s / 2 * sub_block;  // shared by sub-blocks 2p and 2p + 1
    for (int l = 0; l < sub_block; ++l) {
      int q = s % 2 == 0 ? low_nibble(bytes, l) : high_nibble(bytes, l);
      if (high_bits != nullptr) q |= ((byte_at(high_bits, l) >> s) & 1) << 4;
      out->quants[s * sub_block + l] = as_quant(q);
    }
  }
}

void read_q6_k(const std::byte* block, BlockQuants* out) {
  const float scale = float16_at(block + 208);
  for (int s = 0; s < super_block / q6_k_sub_block; ++s) {
    out->scale[s] = scale * static_cast<float>(signed_byte_at(block, 192 + s));
  }
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + 64 * half;
    const std::byte* high = block + 128 + 32 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      // Quarters 0 and 1 take the low nibbles of 64 bytes, 2 and 3 the high ones; the two bits at
      // 2 * quarter of 32 bytes are bits 4 and 5.
      for (int l = 0; l < sub_block; ++l) {
        const int position = l + sub_block * (quarter % 2);
        const int low_bits = quarter < 2 ? low_nibble(low, position) : high_nibble(low, position);
        const int q = low_bits | (((byte_at(high, l) >> (2 * quarter)) & 3) << 4);
        out->quants[128 * half + sub_block * quarter + l] = as_quant(q - 32);
      }
    }
  }
}

}  // namespace

void read_quants(DataType dtype, const std::byte* block, BlockQuants* out) {
  for (float& minimum : out->minimum) minimum = 0;
  switch (dtype) {
    case DataType::q4_0:
      return read_q4_0(block, out);
    case DataType::q4_1:
      return read_q4_1(block, out);
    case DataType::q5_0:
      return read_q5_0(block, out);
    case DataType::q5_1:
      return read_q5_1(block, out);
    case DataType::q8_0:
      return read_q8_0(block, out);
    case DataType::q2_k:
      return read_q2_k(block, out);
    case DataType::q3_k:
      return read_q3_k(block, out);
    case DataType::q4_k:
      return read_k_with_minimum(block, nullptr, block + 16, out);
    case DataType::q5_k:
      return read_k_with_minimum(block, block + 16, block + 48, out);
    case DataType::q6_k:
      return read_q6_k(block, out);
    case DataType::iq4_nl:
      return read_iq4_nl(block, out);
    case DataType::iq4_xs:
      return read_iq4_xs(block, out);
    case DataType::mxfp4:
      return read_mxfp4(block, out);
    case DataType::float32:
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float8_e4m3:
      break;
  }
  throw_error(ErrorKind::internal, "read_quants: type number {} has no quants",
              static_cast<int>(dtype));
}

}  // namespace octet

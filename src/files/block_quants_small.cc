#include "files/block_quants_small.h"

#include <bit>
#include <cstdint>

#include "files/block_bytes.h"

namespace octet {

namespace {

constexpr int super_block = 256;
constexpr int sub_block = 16;  // elements that share a scale in Q2_K and Q3_K
constexpr int half_32 = 16;

// kvalues_iq4nl of ggml-common.h.
constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of an e2m1 code, kvalues_mxfp4 there: its minus zero is zero.
constexpr std::int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The two bits of an element of Q2_K and Q3_K: each byte holds those of elements that lie 32 apart
// in a half of 128.
int two_bits(const std::byte* quants, int element) {
  const int half = element / 128;
  const int shift = element % 128 / 32 * 2;
  return byte_at(quants, 32 * half + element % 32) >> shift & 3;
}

// The 6-bit scale of sub-block `index` of Q3_K: four bits in a nibble of the first eight bytes, two
// on top of them in the last four.
int q3_k_scale(const std::byte* packed, int index) {
  const int low = index < 8 ? low_nibble(packed, index) : high_nibble(packed, index - 8);
  const int high = byte_at(packed, 8 + index % 4) >> (index / 4 * 2) & 3;
  return low | high << 4;
}

void read_table(const std::int8_t* values, const std::byte* nibbles, std::int8_t* quants) {
  for (int j = 0; j < half_32; ++j) {
    quants[j] = values[low_nibble(nibbles, j)];
    quants[j + half_32] = values[high_nibble(nibbles, j)];
  }
}

}  // namespace

void read_q2_k(const std::byte* block, BlockQuants* out) {
  const float scale = float16_at(block + 80);
  const float minimum_scale = float16_at(block + 82);
  for (int s = 0; s < super_block / sub_block; ++s) {
    out->scale[s] = scale * static_cast<float>(low_nibble(block, s));
    out->minimum[s] = -(minimum_scale * static_cast<float>(high_nibble(block, s)));
  }
  for (int i = 0; i < super_block; ++i) {
    out->quants[i] = static_cast<std::int8_t>(two_bits(block + 16, i));
  }
}

void read_q3_k(const std::byte* block, BlockQuants* out) {
  const std::byte* high_bits = block;  // bit i / 32 of byte i % 32: clear where 4 is taken away
  const float scale = float16_at(block + 108);
  for (int s = 0; s < super_block / sub_block; ++s) {
    out->scale[s] = scale * static_cast<float>(q3_k_scale(block + 96, s) - 32);
  }
  for (int i = 0; i < super_block; ++i) {
    const int high = byte_at(high_bits, i % 32) >> (i / 32) & 1;
    out->quants[i] = static_cast<std::int8_t>(two_bits(block + 32, i) - (high == 1 ? 0 : 4));
  }
}

void read_iq4_nl(const std::byte* block, BlockQuants* out) {
  out->scale[0] = float16_at(block);
  read_table(iq4_values, block + 2, out->quants);
}

void read_iq4_xs(const std::byte* block, BlockQuants* out) {
  const float scale = float16_at(block);
  const int high_bits = load<std::uint16_t>(block + 2);
  for (int s = 0; s < super_block / 32; ++s) {
    const int low = s % 2 == 0 ? low_nibble(block + 4, s / 2) : high_nibble(block + 4, s / 2);
    const int sub_scale = low | (high_bits >> (2 * s) & 3) << 4;
    out->scale[s] = scale * static_cast<float>(sub_scale - 32);
    read_table(iq4_values, block + 8 + 16 * s, out->quants + 32 * s);
  }
}

void read_mxfp4(const std::byte* block, BlockQuants* out) {
  // 2^(e - 128): the values are doubled. The two least are subnormal.
  const std::uint32_t exponent = byte_at(block, 0);
  out->scale[0] =
      std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  read_table(mxfp4_values, block + 1, out->quants);
}

}  // namespace octet

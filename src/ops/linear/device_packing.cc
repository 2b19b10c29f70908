#include "ops/linear/device_packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"

namespace octet {

namespace {

constexpr int groups_of_unit = device_unit_elements / device_group_elements;
using Codes = std::array<std::uint8_t, device_unit_elements>;

int byte_of(const std::byte* data, int index) { return std::to_integer<int>(data[index]); }
std::uint8_t low_nibble(const std::byte* data, int index) {
  return static_cast<std::uint8_t>(byte_of(data, index) & 15);
}
std::uint8_t high_nibble(const std::byte* data, int index) {
  return static_cast<std::uint8_t>(byte_of(data, index) >> 4);
}

// The place in a group of 32 of element `index` (0 to 7) of thread `thread`.
constexpr int place_in_group(int thread, int index) {
  return index / 4 * 16 + 4 * thread + index % 4;
}

// Where a row's part of a slab goes: offsets are those of a row by itself, times eight.
struct SlabRow {
  std::byte* slab;
  int row;

  // An array of `bytes` bytes a row that begins `offset` bytes into a unit.
  std::byte* array(int offset, int bytes) const {
    return slab + device_band_rows * offset + row * bytes;
  }
};

// `bits` bits of every code, from bit `shift` on, as a plane (device_packing.h) that begins
// `offset` bytes into the row's unit.
template <int bits, int shift, bool nibbles_in_order = false>
void write_plane(const Codes& codes, SlabRow to, int offset) {
  std::array<std::uint32_t, 8 * bits> words{};
  for (int group = 0; group < groups_of_unit; ++group) {
    for (int thread = 0; thread < 4; ++thread) {
      for (int index = 0; index < 8; ++index) {
        const int element = group * device_group_elements + place_in_group(thread, index);
        const std::uint32_t code =
            static_cast<std::uint32_t>(codes[static_cast<std::size_t>(element)]) >> shift &
            ((1u << bits) - 1);
        const int half = index / 4;
        const int byte = index % 4;
        int word = 4 * group + thread;
        int bit = nibbles_in_order ? 4 * index : 8 * byte + 4 * half;
        if (bits == 8) {
          word = 2 * word + half;
          bit = 8 * byte;
        } else if (bits == 1) {
          word = 4 * (group / 4) + thread;
          bit = 8 * byte + 2 * (group % 4) + half;
        } else if (bits == 2) {
          word = 4 * (group / 2) + thread;
          bit = 8 * byte + 4 * (group % 2) + 2 * half;
        }
        words[static_cast<std::size_t>(word)] |= code << bit;
      }
    }
  }
  constexpr int words_together = bits == 8 ? 8 : 4;
  constexpr int bytes_together = 4 * words_together;
  for (int part = 0; part < 8 * bits / words_together; ++part) {
    std::memcpy(to.array(offset + part * bytes_together, bytes_together),
                words.data() + part * words_together, bytes_together);
  }
}

// Codes of a block of 32: 16 bytes whose low nibbles are the first 16 elements; `high_bits` (4
// bytes or null) hold the fifth bit of each.
void read_block_32(const std::byte* nibbles, const std::byte* high_bits, std::uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = low_nibble(nibbles, i);
    codes[i + 16] = high_nibble(nibbles, i);
  }
  if (high_bits == nullptr) return;
  for (int i = 0; i < 32; ++i) {
    codes[i] =
        static_cast<std::uint8_t>(codes[i] | (byte_of(high_bits, i / 8) >> (i % 8) & 1) << 4);
  }
}

// Where a block of 32 keeps what: offsets, -1 for what it has not.
struct Block32 {
  int bytes;
  int scale;
  int minimum;
  int high_bits;
  int codes;
};

constexpr Block32 block_32_of(DataType dtype) {
  switch (dtype) {
    case DataType::q4_0:
    case DataType::iq4_nl:
      return {18, 0, -1, -1, 2};
    case DataType::q4_1:
      return {20, 0, 2, -1, 4};
    case DataType::q5_0:
      return {22, 0, -1, 2, 6};
    case DataType::q5_1:
      return {24, 0, 2, 4, 8};
    case DataType::q8_0:
      return {34, 0, -1, -1, 2};
    case DataType::mxfp4:
      return {17, 0, -1, -1, 1};
    default:
      return {0, 0, 0, 0, 0};
  }
}

// `blocks` blocks of 32 elements, 8 or (at a row's end) fewer.
void pack_blocks_32(DataType dtype, const std::byte* stored, int blocks, SlabRow to) {
  const Block32 block = block_32_of(dtype);
  const bool bytes = dtype == DataType::q8_0;
  Codes codes{};
  const int scale_offset = (bytes ? 256 : 128) + (block.high_bits >= 0 ? 32 : 0);
  const int scale_bytes = dtype == DataType::mxfp4 ? 1 : 2;
  for (int b = 0; b < blocks; ++b) {
    const std::byte* from = stored + b * block.bytes;
    std::uint8_t* out = codes.data() + b * device_group_elements;
    if (bytes) {
      std::memcpy(out, from + block.codes, device_group_elements);
    } else {
      read_block_32(from + block.codes, block.high_bits < 0 ? nullptr : from + block.high_bits,
                    out);
    }
    const auto size = static_cast<std::size_t>(scale_bytes);
    std::memcpy(to.array(scale_offset, 8 * scale_bytes) + b * scale_bytes, from + block.scale,
                size);
    if (block.minimum < 0) continue;
    std::memcpy(to.array(scale_offset + 16, 16) + b * scale_bytes, from + block.minimum, size);
  }
  if (bytes) return write_plane<8, 0>(codes, to, 0);
  if (dtype == DataType::iq4_nl || dtype == DataType::mxfp4) {
    return write_plane<4, 0, true>(codes, to, 0);
  }
  write_plane<4, 0>(codes, to, 0);
  if (block.high_bits >= 0) write_plane<1, 4>(codes, to, 128);
}

// Q4_K and, with 32 bytes of fifth bits, Q5_K.
void pack_k_with_minimum(const std::byte* block, bool five_bits, SlabRow to) {
  const std::byte* high_bits = block + 16;
  const std::byte* nibbles = block + (five_bits ? 48 : 16);
  Codes codes;
  for (int e = 0; e < device_unit_elements; ++e) {
    const int sub_block = e / 32;
    const int byte = sub_block / 2 * 32 + e % 32;
    int code = sub_block % 2 == 0 ? low_nibble(nibbles, byte) : high_nibble(nibbles, byte);
    if (five_bits) code |= (byte_of(high_bits, e % 32) >> sub_block & 1) << 4;
    codes[static_cast<std::size_t>(e)] = static_cast<std::uint8_t>(code);
  }
  write_plane<4, 0>(codes, to, 0);
  if (five_bits) write_plane<1, 4>(codes, to, 128);
  std::memcpy(to.array(five_bits ? 160 : 128, 16), block, 16);
}

// The two bits of an element of Q2_K and Q3_K (files/block_quants_small.cc).
int two_bits(const std::byte* quants, int element) {
  return byte_of(quants, element / 128 * 32 + element % 32) >> (element % 128 / 32 * 2) & 3;
}

void pack_q2_k(const std::byte* block, SlabRow to) {
  Codes codes;
  for (int e = 0; e < device_unit_elements; ++e) {
    codes[static_cast<std::size_t>(e)] = static_cast<std::uint8_t>(two_bits(block + 16, e));
  }
  write_plane<2, 0>(codes, to, 0);
  std::memcpy(to.array(64, 16), block, 16);
  std::memcpy(to.array(80, 4), block + 80, 4);
}

void pack_q3_k(const std::byte* block, SlabRow to) {
  Codes codes;
  for (int e = 0; e < device_unit_elements; ++e) {
    const int high = byte_of(block, e % 32) >> (e / 32) & 1;
    codes[static_cast<std::size_t>(e)] =
        static_cast<std::uint8_t>(two_bits(block + 32, e) | high << 2);
  }
  write_plane<2, 0>(codes, to, 0);
  write_plane<1, 2>(codes, to, 64);
  std::memcpy(to.array(96, 12), block + 96, 12);
  std::memcpy(to.array(108, 2), block + 108, 2);
}

void pack_q6_k(const std::byte* block, SlabRow to) {
  Codes codes;
  for (int e = 0; e < device_unit_elements; ++e) {
    const int half = e / 128;
    const int quarter = e % 128 / 32;
    const int place = 64 * half + e % 32 + 32 * (quarter % 2);
    const int low = quarter < 2 ? low_nibble(block, place) : high_nibble(block, place);
    const int high = byte_of(block, 128 + 32 * half + e % 32) >> (2 * quarter) & 3;
    codes[static_cast<std::size_t>(e)] = static_cast<std::uint8_t>(low | high << 4);
  }
  write_plane<4, 0>(codes, to, 0);
  write_plane<2, 4>(codes, to, 128);
  std::memcpy(to.array(192, 16), block + 192, 16);
  std::memcpy(to.array(208, 2), block + 208, 2);
}

void pack_iq4_xs(const std::byte* block, SlabRow to) {
  Codes codes;
  const int high_bits = byte_of(block, 2) | byte_of(block, 3) << 8;
  for (int s = 0; s < groups_of_unit; ++s) {
    read_block_32(block + 8 + 16 * s, nullptr, codes.data() + 32 * s);
    const int low = s % 2 == 0 ? low_nibble(block + 4, s / 2) : high_nibble(block + 4, s / 2);
    const int scale = (low | (high_bits >> (2 * s) & 3) << 4) - 32;
    to.array(128, 8)[s] = static_cast<std::byte>(scale & 0xFF);
  }
  write_plane<4, 0, true>(codes, to, 0);
  std::memcpy(to.array(136, 2), block, 2);
}

void pack_super_block(DataType dtype, const std::byte* block, SlabRow to) {
  switch (dtype) {
    case DataType::q2_k:
      return pack_q2_k(block, to);
    case DataType::q3_k:
      return pack_q3_k(block, to);
    case DataType::q4_k:
      return pack_k_with_minimum(block, false, to);
    case DataType::q5_k:
      return pack_k_with_minimum(block, true, to);
    case DataType::q6_k:
      return pack_q6_k(block, to);
    case DataType::iq4_xs:
      return pack_iq4_xs(block, to);
    default:
      throw_error(ErrorKind::internal, "pack_device_row: {} has no blocks of 256",
                  traits_of(dtype).name);
  }
}

void pack_quantised_row(DataType dtype, std::int64_t columns, const std::byte* stored, SlabRow to) {
  const DataTypeTraits traits = traits_of(dtype);
  for (std::int64_t at = 0; at < columns; at += device_unit_elements) {
    if (traits.block_elements == device_unit_elements) {
      pack_super_block(dtype, stored, to);
      stored += traits.block_bytes;
    } else {
      const std::int64_t left =
          columns - at < device_unit_elements ? columns - at : device_unit_elements;
      const int blocks = static_cast<int>(left / device_group_elements);
      pack_blocks_32(dtype, stored, blocks, to);
      stored += blocks * static_cast<int>(traits.block_bytes);
    }
    to.slab += device_band_rows * device_unit_bytes(dtype);
  }
}

void pack_float8_row(std::int64_t columns, const std::byte* stored, SlabRow to) {
  constexpr std::int64_t place_in_word[] = {1, 3, 0, 2};
  for (std::int64_t at = 0; at < columns; at += device_group_elements) {
    std::byte* group = to.array(static_cast<int>(at % device_unit_elements), device_group_elements);
    const std::int64_t end = std::min<std::int64_t>(columns, at + device_group_elements);
    for (std::int64_t i = at; i < end; ++i) {
      group[(i - at) / 4 * 4 + place_in_word[i % 4]] = stored[i];
    }
    if ((at + device_group_elements) % device_unit_elements == 0) {
      to.slab += device_band_rows * device_unit_elements;
    }
  }
}

}  // namespace

void pack_device_band(DataType dtype, std::int64_t columns, int rows, const std::byte* stored,
                      std::int64_t stored_row_bytes, std::span<std::byte> packed) {
  const DataTypeTraits traits = traits_of(dtype);
  const std::int64_t row_bytes = device_row_bytes(dtype, columns);
  if (columns < 1 || columns % traits.block_elements != 0 || rows < 1 || rows > device_band_rows ||
      static_cast<std::int64_t>(packed.size()) != device_band_rows * row_bytes) {
    throw_error(ErrorKind::internal,
                "pack_device_band: {} rows of {} elements of {} do not fit {} bytes", rows, columns,
                traits.name, packed.size());
  }
  std::memset(packed.data(), 0, packed.size());
  for (int row = 0; row < rows; ++row, stored += stored_row_bytes) {
    const SlabRow to = {packed.data(), row};
    if (keeps_row_order(dtype)) {
      std::memcpy(packed.data() + row * row_bytes, stored,
                  static_cast<std::size_t>(columns) * traits.block_bytes);
    } else if (dtype == DataType::float8_e4m3) {
      pack_float8_row(columns, stored, to);
    } else {
      pack_quantised_row(dtype, columns, stored, to);
    }
  }
}

}  // namespace octet

// How rows of a stored matrix lie on the GPU.
//
// Plain types (float32, float16, bfloat16, float8_e4m3) keep their order; a row is padded with
// zeros to a multiple of 32 elements. Quantised types keep their bits and scales and change their
// order: a row is a sequence of units of 256 elements, each of planes of codes and then scales. A
// matrix product takes 32 elements of a row (a group) by four threads, thread t those at 4 t to
// 4 t + 3 and 16 + 4 t to 16 + 4 t + 3, which are called 0 to 7 here: the one and the other half of
// a group belong to one step of the tensor cores, and may have a scale of their own.
//
//   4 bits   128 bytes: word 4 group + t; byte i holds element i (low nibble) and 4 + i (high). For
//            types whose codes choose from a table nibble i of the word holds element i.
//   8 bits   256 bytes: words 2 (4 group + t) and the next; byte i of the first holds element i, of
//            the second element 4 + i.
//   1 bit     32 bytes: word 4 (group / 4) + t; element 4 s + i is bit 8 i + 2 (group % 4) + s.
//   2 bits    64 bytes: word 4 (group / 2) + t; element 4 s + i is at bit 8 i + 4 (group % 2) + 2
//   s.
//
//   type            planes          scales, in this order
//   Q4_0, IQ4_NL    4               8 float16
//   Q4_1            4               8 float16, 8 float16 minima
//   Q5_0            4 1             8 float16
//   Q5_1            4 1             8 float16, 8 float16 minima
//   Q8_0            8               8 float16
//   MXFP4           4               8 exponents of a byte, 8 unused
//   IQ4_XS          4               float16, 8 signed bytes (scale - 32), 6 unused
//   Q4_K            4               float16, float16 of the minima, the block's own 12 bytes
//   Q5_K            4 1             the same
//   Q2_K            2               the block's own 16 bytes, float16, float16 of the minima, 12
//   unused Q3_K            2 1             the block's own 12 bytes, float16, 2 unused Q6_K 4 2 16
//   signed bytes, float16, 14 unused
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/data_type.h"

namespace octet {

inline constexpr int device_unit_elements = 256;
inline constexpr int device_group_elements = 32;

constexpr bool is_plain(DataType dtype) { return traits_of(dtype).block_elements == 1; }

// Bytes of 256 elements.
constexpr int device_unit_bytes(DataType dtype) {
  switch (dtype) {
    case DataType::float32:
      return 1024;
    case DataType::float16:
    case DataType::bfloat16:
      return 512;
    case DataType::float8_e4m3:
      return 256;
    case DataType::q4_0:
    case DataType::iq4_nl:
    case DataType::iq4_xs:
    case DataType::mxfp4:
    case DataType::q4_k:
      return 144;
    case DataType::q4_1:
      return 160;
    case DataType::q5_0:
    case DataType::q5_k:
      return 176;
    case DataType::q5_1:
      return 192;
    case DataType::q8_0:
      return 272;
    case DataType::q2_k:
      return 96;
    case DataType::q3_k:
      return 112;
    case DataType::q6_k:
      return 224;
  }
  return 0;
}

// Bytes of a row of `columns` elements, padding included: a multiple of 16.
constexpr std::int64_t device_row_bytes(DataType dtype, std::int64_t columns) {
  if (is_plain(dtype)) {
    const std::int64_t padded =
        (columns + device_group_elements - 1) / device_group_elements * device_group_elements;
    return padded * traits_of(dtype).block_bytes;
  }
  return (columns + device_unit_elements - 1) / device_unit_elements * device_unit_bytes(dtype);
}

// Packs one row: `stored` holds `columns` elements as files have them (whole blocks), `packed`
// takes device_row_bytes().
void pack_device_row(DataType dtype, std::int64_t columns, const std::byte* stored,
                     std::span<std::byte> packed);

}  // namespace octet

// How the rows of a stored matrix lie on the GPU.
//
// float32, float16 and bfloat16 keep their order; a row is padded with zeros to a multiple of 32
// elements. All other types lie in slabs, so that a kernel streams what it multiplies at once as
// one piece and its threads read that without bank conflicts: eight rows (a band) by 256 elements
// (a unit), the slabs of a band one after another. Rows and elements past the end are zeros.
//
// A matrix product takes 32 elements of a row (a group) by four threads. Of float8_e4m3 thread t
// has elements 8 t to 8 t + 7; of quantised types those at 4 t to 4 t + 3 and 16 + 4 t to 16 + 4 t
// + 3, which are called 0 to 7 here: the one and the other half of a group belong to one step of
// the tensor cores, and may have a scale of their own.
//
// A slab of float8_e4m3 is [group 8][row 8][32 bytes], of each four of which bytes 0 to 3 hold
// elements 2, 0, 3 and 1, so that two neighbours are a shift apart from two halves of a word. One
// of a quantised type is planes of bits of codes and then arrays of scales. A plane is an array of
// words:
//   4 bits   [group 8][row 8][thread 4]; byte i holds element i (low nibble) and 4 + i (high). For
//            types whose codes choose from a table nibble i of the word holds element i.
//   8 bits   [group 8][row 8][thread 4][2]; byte i of the words holds element i and 4 + i.
//   1 bit    [group / 4][row 8][thread 4]; element 4 s + i is bit 8 i + 2 (group % 4) + s.
//   2 bits   [group / 2][row 8][thread 4]; element 4 s + i is at bit 8 i + 4 (group % 2) + 2 s.
//
//   type            planes          scales of each row, in arrays of their own, in this order
//   Q4_0, IQ4_NL    4               8 float16
//   Q4_1            4               8 float16; 8 float16 minima
//   Q5_0            4 1             8 float16
//   Q5_1            4 1             8 float16; 8 float16 minima
//   Q8_0            8               8 float16
//   MXFP4           4               8 exponents of a byte
//   IQ4_XS          4               8 signed bytes (scale - 32); float16
//   Q4_K            4               the block's first 16 bytes: 2 float16, 12 bytes
//   Q5_K            4 1             the same
//   Q2_K            2               the block's 16 bytes; 2 float16
//   Q3_K            2 1             the block's 12 bytes; float16
//   Q6_K            4 2             16 signed bytes; float16
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/data_type.h"

namespace octet {

inline constexpr int device_unit_elements = 256;
inline constexpr int device_group_elements = 32;
inline constexpr int device_band_rows = 8;

// Whether rows lie one after another as files have them.
constexpr bool keeps_row_order(DataType dtype) {
  return dtype == DataType::float32 || dtype == DataType::float16 || dtype == DataType::bfloat16;
}

// Bytes of 256 elements of one row; of eight rows a multiple of 16.
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
      return 84;
    case DataType::q3_k:
      return 110;
    case DataType::q6_k:
      return 210;
    case DataType::iq4_xs:
      return 138;
    case DataType::mxfp4:
      return 136;
  }
  return 0;
}

// Bytes of a row of `columns` elements, padding included.
constexpr std::int64_t device_row_bytes(DataType dtype, std::int64_t columns) {
  if (keeps_row_order(dtype)) {
    const std::int64_t padded =
        (columns + device_group_elements - 1) / device_group_elements * device_group_elements;
    return padded * traits_of(dtype).block_bytes;
  }
  return (columns + device_unit_elements - 1) / device_unit_elements * device_unit_bytes(dtype);
}

// Of a matrix or a part of one: whole bands.
constexpr std::int64_t device_matrix_bytes(DataType dtype, std::int64_t rows,
                                           std::int64_t columns) {
  return (rows + device_band_rows - 1) / device_band_rows * device_band_rows *
         device_row_bytes(dtype, columns);
}

// Packs a band: `rows` (1 to 8) rows of `columns` elements as files have them (whole blocks),
// `stored_row_bytes` apart, to eight times device_row_bytes().
void pack_device_band(DataType dtype, std::int64_t columns, int rows, const std::byte* stored,
                      std::int64_t stored_row_bytes, std::span<std::byte> packed);

}  // namespace octet

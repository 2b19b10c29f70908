// Picks the decoder of a type. Internal: for *_avx2.cc files alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/data_type.h"
#include "ops/linear/weight_decoder_avx2.h"
#include "ops/linear/weight_decoder_k_avx2.h"
#include "ops/linear/weight_decoder_small_avx2.h"

namespace octet {
namespace {

// Calls action(Decoder{}) for the decoder of `dtype`.
template <class Action>
void with_decoder(DataType dtype, const Action& action) {
  switch (dtype) {
    case DataType::float32:
      return action(Float32Decoder{});
    case DataType::float16:
      return action(Float16Decoder{});
    case DataType::bfloat16:
      return action(Bfloat16Decoder{});
    case DataType::float8_e4m3:
      return;  // has kernels of its own
    case DataType::q4_0:
      return action(Q40Decoder{});
    case DataType::q4_1:
      return action(Q41Decoder{});
    case DataType::q5_0:
      return action(Q50Decoder{});
    case DataType::q5_1:
      return action(Q51Decoder{});
    case DataType::q8_0:
      return action(Q80Decoder{});
    case DataType::q2_k:
      return action(Q2KDecoder{});
    case DataType::q3_k:
      return action(Q3KDecoder{});
    case DataType::q4_k:
      return action(Q4KDecoder{});
    case DataType::q5_k:
      return action(Q5KDecoder{});
    case DataType::q6_k:
      return action(Q6KDecoder{});
    case DataType::iq4_nl:
      return action(Iq4NlDecoder{});
    case DataType::iq4_xs:
      return action(Iq4XsDecoder{});
    case DataType::mxfp4:
      return action(Mxfp4Decoder{});
  }
}

// The last K mod 32 elements of a plain type, padded with zeros to a block that decoders can read.
template <class Decoder>
void copy_tail(Bytes row, std::int64_t k, unsigned char block[Decoder::block_bytes]) {
  static_assert(Decoder::is_plain);
  const std::int64_t elements = k % Decoder::block_elements;
  constexpr int element_bytes = Decoder::block_bytes / Decoder::block_elements;
  std::memset(block, 0, Decoder::block_bytes);
  std::memcpy(block, row + (k - elements) * element_bytes,
              static_cast<std::size_t>(elements * element_bytes));
}

}  // namespace
}  // namespace octet

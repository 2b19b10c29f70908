// Decoders of single blocks of GGUF's types of two and three bits, and of those whose four bits
// choose from a table. Internal: decode_blocks (files/block_decode.h) picks them.
#pragma once

#include <cstddef>

namespace octet {

void decode_q2_k(const std::byte* block, float* out);    // 84 bytes, 256 values
void decode_q3_k(const std::byte* block, float* out);    // 110 bytes, 256 values
void decode_iq4_nl(const std::byte* block, float* out);  // 18 bytes, 32 values
void decode_iq4_xs(const std::byte* block, float* out);  // 136 bytes, 256 values
void decode_mxfp4(const std::byte* block, float* out);   // 17 bytes, 32 values

}  // namespace octet

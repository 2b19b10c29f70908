// Single blocks of GGUF's types of two and three bits, and of those whose four bits choose from a
// table. Internal: read_quants (files/block_quants.h) picks them.
#pragma once

#include <cstddef>

#include "files/block_quants.h"

namespace octet {

void read_q2_k(const std::byte* block, BlockQuants* out);    // 84 bytes, 256 values
void read_q3_k(const std::byte* block, BlockQuants* out);    // 110 bytes, 256 values
void read_iq4_nl(const std::byte* block, BlockQuants* out);  // 18 bytes, 32 values
void read_iq4_xs(const std::byte* block, BlockQuants* out);  // 136 bytes, 256 values
void read_mxfp4(const std::byte* block, BlockQuants* out);   // 17 bytes, 32 values

}  // namespace octet

// How tensor cores add up attention's products of weights and values.
#pragma once

#include <cstdint>

namespace octet {

// Hopper's tensor core keeps 14 bits of a sum of e4m3 products. two_level: it adds up a page or two
// at a time, and those are added in float32. single_level: all of it is left to the tensor core, as
// in kernels that lost long contexts by it; it is there to be compared with.
enum class AttentionAccumulation : std::uint8_t { two_level, single_level };

}  // namespace octet

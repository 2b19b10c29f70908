// What every CPU operation needs to know of the machine it runs on.
#pragma once

#include <string_view>

#include "core/instruction_set.h"
#include "core/thread_pool.h"
#include "ops/attention_accumulation.h"

namespace octet {

// The arithmetic of matrices. Attention on the CPU rounds queries and weights to bfloat16 with
// bfloat16, and with the integers where BF16 dot products are the fastest (prefers_bfloat16).
enum class Arithmetic {
  float32,   // activations and decoded weights as they are; products accumulate in float32
  bfloat16,  // both are rounded to bfloat16 first; products accumulate in float32
  // Activations become 16-bit integers with a scale for 32 of them, and weights of block types stay
  // the integers that they are: the sum of a block is exact (ops/linear/linear_int16.h). Weights of
  // other types are multiplied as in float32.
  int16,
  // As int16, but where weights have at most five bits, activations have eight. Models keep int16
  // for the matrices where that costs most: queries, keys, values and the output.
  int8,
};

constexpr std::string_view name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::float32:
      return "float32";
    case Arithmetic::bfloat16:
      return "bfloat16";
    case Arithmetic::int16:
      return "int16";
    case Arithmetic::int8:
      return "int8";
  }
  return "?";
}

class AttentionObserver;  // ops/attention_observer.h

struct OpContext {
  ThreadPool* pool = nullptr;
  InstructionSet instruction_set = InstructionSet::portable;
  Arithmetic arithmetic = Arithmetic::float32;
  AttentionAccumulation accumulation = AttentionAccumulation::two_level;
  AttentionObserver* observer = nullptr;  // sees keys, values and queries; null: nobody does
};

}  // namespace octet

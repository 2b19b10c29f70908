// What every CPU operation needs to know of the machine it runs on.
#pragma once

#include "core/instruction_set.h"
#include "core/thread_pool.h"

namespace octet {

// The arithmetic of matrices: the dtype that activations and decoded weights are rounded to before
// they are multiplied. Products accumulate in float32 either way.
enum class Arithmetic { float32, bfloat16 };

class AttentionObserver;  // ops/attention_observer.h

struct OpContext {
  ThreadPool* pool = nullptr;
  InstructionSet instruction_set = InstructionSet::portable;
  Arithmetic arithmetic = Arithmetic::float32;
  AttentionObserver* observer = nullptr;  // sees keys, values and queries; null: nobody does
};

}  // namespace octet

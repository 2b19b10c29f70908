// exp of many floats.
#pragma once

#include <cstdint>

#include "core/instruction_set.h"

namespace octet {

// y[i] = e^x[i], on the calling thread; y may be x. In error by at most 1 unit in the last place;
// results that would be subnormal are 0 (vector_exp_avx2.h and portable_exp.h have the details).
// An element's bits do not depend on its position.
void exp_array(InstructionSet set, const float* x, float* y, std::int64_t count);

using ExpArray = void(const float* x, float* y, std::int64_t count);
ExpArray exp_array_avx2;  // x86-64 builds alone (ops/cpu/dispatch.h)

}  // namespace octet

// Prefill attention with exactly the roundings of a Hopper kernel: the oracle of such kernels.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/hopper_accumulator.h"

namespace octet {

// As attention(), over an fp8:fp8 cache in any page order and with any scales, with
//   the query of each row and head rounded to e4m3 by the scale absmax / 448,
//   q . k accumulated from zero by the tensor core, and
//   weights and sums as `accumulation` says, in tiles at absolute positions.
// Slow and obvious. Throws Error{unsupported} for other caches.
void attention_hopper_emulation(const AttentionArgs& args, const HopperAccumulation& accumulation);

}  // namespace octet

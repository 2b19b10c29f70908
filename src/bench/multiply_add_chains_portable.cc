#include "bench/cpu_machine.h"

namespace octet {

// As the portable kernels: a multiplication and an addition in baseline vectors.
double multiply_add_chains_portable(std::int64_t rounds, float* sink) {
  constexpr int chains = 64;
  float sums[chains];
  for (int i = 0; i < chains; ++i) sums[i] = static_cast<float>(i) + *sink;
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * 0.999f + 0.001f;
  }
  for (int i = 0; i < chains; ++i) *sink += sums[i];
  return 2.0 * chains * static_cast<double>(rounds);
}

}  // namespace octet

#include "ops/cpu/exp_array.h"
#include "ops/cpu/lanes_avx2.h"
#include "ops/cpu/vector_exp_avx2.h"

namespace octet {

void exp_array_avx2(const float* x, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, vector_exp(_mm256_loadu_ps(x + i)));
  if (i < count) {
    const __m256i lanes = first_lanes(count - i);
    _mm256_maskstore_ps(y + i, lanes, vector_exp(_mm256_maskload_ps(x + i, lanes)));
  }
}

}  // namespace octet

#include <immintrin.h>

#include "ops/activation/gated_activation_kernels.h"
#include "ops/cpu/lanes_avx2.h"
#include "ops/cpu/vector_exp_avx2.h"

namespace octet {
namespace {

template <Activation activation>
inline __m256 activate_vector(__m256 gate, __m256 up) {
  __m256 exponent = gate;
  if constexpr (activation == Activation::gelu_tanh) {
    const __m256 factor = _mm256_fmadd_ps(_mm256_set1_ps(gelu_cubic), _mm256_mul_ps(gate, gate),
                                          _mm256_set1_ps(gelu_linear));
    exponent = _mm256_mul_ps(gate, factor);
  }
  const __m256 negated = _mm256_xor_ps(exponent, _mm256_set1_ps(-0.0f));
  const __m256 denominator = _mm256_add_ps(_mm256_set1_ps(1.0f), vector_exp(negated));
  return _mm256_mul_ps(_mm256_div_ps(gate, denominator), up);
}

template <Activation activation>
void activate_range(const float* gate, const float* up, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(
        y + i, activate_vector<activation>(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i < count) {
    const __m256i lanes = first_lanes(count - i);
    _mm256_maskstore_ps(y + i, lanes,
                        activate_vector<activation>(_mm256_maskload_ps(gate + i, lanes),
                                                    _mm256_maskload_ps(up + i, lanes)));
  }
}

}  // namespace

GatedActivationRange* gated_activation_avx2(Activation activation) {
  return activation == Activation::silu ? activate_range<Activation::silu>
                                        : activate_range<Activation::gelu_tanh>;
}

}  // namespace octet

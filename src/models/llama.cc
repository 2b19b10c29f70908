// The llama family: Llama 2 and 3, SmolLM, and the many that share their architecture.
#include <cmath>

#include "core/error.h"
#include "models/dense_decoder.h"
#include "models/gguf_reader.h"

namespace octet {

namespace {

// Llama 3's scaling comes in GGUF files as a divisor per rotated pair.
void apply_rope_factors(const GgufModelReader& reader, int head_dim, RopeFrequencies* frequencies) {
  if (reader.file().find_tensor("rope_freqs.weight") == nullptr) return;
  const std::vector<float> factors = reader.vector("rope_freqs.weight", head_dim / 2);
  for (std::size_t pair = 0; pair < factors.size(); ++pair) {
    if (!std::isfinite(factors[pair]) || factors[pair] <= 0.0f) {
      throw_bad_input("{}: tensor rope_freqs.weight holds {} at {}, expected positive numbers",
                      reader.file().path(), factors[pair], pair);
    }
    frequencies->inverse[pair] /= factors[pair];
  }
}

std::unique_ptr<Model> load_llama(std::shared_ptr<const GgufFile> file,
                                  std::int64_t max_positions) {
  const GgufModelReader reader(std::move(file), "llama");
  ModelConfig config = reader.read_config();
  DenseWeights weights = read_dense_weights(reader, config, /*attention_biases=*/false);
  // The converter reorders the rows of each query and key head so that a pair lies together.
  weights.pairing = RopePairing::interleaved;
  weights.frequencies = rope_frequencies(config.rope_theta, config.head_dim, config.rope_scaling);
  apply_rope_factors(reader, config.head_dim, &weights.frequencies);
  reader.refuse_unused_tensors();
  return std::make_unique<DenseDecoder>(std::move(config), std::move(weights), reader.shared_file(),
                                        max_positions);
}

const FamilyRegistration registration("llama", load_llama);

}  // namespace

}  // namespace octet

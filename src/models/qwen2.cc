// The qwen2 family (Qwen2 and Qwen2.5, dense): llama with biases on queries, keys and values.
#include "models/dense_decoder.h"
#include "models/gguf_reader.h"

namespace octet {

namespace {

std::unique_ptr<Model> load_qwen2(std::shared_ptr<const GgufFile> file,
                                  std::int64_t max_positions) {
  const GgufModelReader reader(std::move(file), "qwen2");
  ModelConfig config = reader.read_config();
  DenseWeights weights = read_dense_weights(reader, config, /*attention_biases=*/true);
  weights.pairing = RopePairing::half_split;
  weights.frequencies = rope_frequencies(config.rope_theta, config.head_dim, config.rope_scaling);
  reader.refuse_unused_tensors();
  return std::make_unique<DenseDecoder>(std::move(config), std::move(weights), reader.shared_file(),
                                        max_positions);
}

const FamilyRegistration registration("qwen2", load_qwen2);

}  // namespace

}  // namespace octet

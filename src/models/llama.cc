// The llama family: Llama 2 and 3, SmolLM, and the many that share their architecture.
#include "models/dense_decoder.h"

namespace octet {

namespace {

std::unique_ptr<Model> load_llama(ModelReader& reader, const LoadOptions& options) {
  ModelConfig config = read_geometry(reader, "llama");
  config.activation = reader.read_activation(Activation::silu);
  config.ropes = {reader.read_rope(RopeUse::every_layer, config.head_dim)};
  reader.refuse_unknown_keys();
  DenseWeights weights = read_dense_weights(reader, &config, {});
  // The converter to GGUF reorders the rows of each query and key head so that a pair lies
  // together.
  weights.pairing = reader.format() == CheckpointFormat::gguf ? RopePairing::interleaved
                                                              : RopePairing::half_split;
  reader.refuse_unused_tensors();
  return make_dense_decoder(std::move(config), std::move(weights), reader.storage(), options);
}

const FamilyRegistration registration({.name = "llama",
                                       .gguf_architecture = "llama",
                                       .model_types = {"llama"},
                                       .config_defaults = {{"rope_theta", 10000.0},
                                                           {"rms_norm_eps", 1e-6}},
                                       .load = load_llama});

}  // namespace

}  // namespace octet

// The qwen2 family (Qwen2 and Qwen2.5, dense): llama with biases on queries, keys and values.
#include "models/dense_decoder.h"

namespace octet {

namespace {

std::unique_ptr<Model> load_qwen2(ModelReader& reader, const LoadOptions& options) {
  ModelConfig config = read_geometry(reader, "qwen2");
  config.activation = reader.read_activation(Activation::silu);
  config.ropes = {reader.read_rope(RopeUse::every_layer, config.head_dim)};
  reader.refuse_unknown_keys();
  DenseWeights weights = read_dense_weights(reader, &config, {.attention_biases = true});
  reader.refuse_unused_tensors();
  return make_dense_decoder(std::move(config), std::move(weights), reader.storage(), options);
}

const FamilyRegistration registration({.name = "qwen2",
                                       .gguf_architecture = "qwen2",
                                       .model_types = {"qwen2"},
                                       .config_defaults = {{"rope_theta", 10000.0},
                                                           {"rms_norm_eps", 1e-6}},
                                       .load = load_qwen2});

}  // namespace

}  // namespace octet

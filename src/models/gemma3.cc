// The gemma3 family (text): windowed layers with a full one every sixth, each kind with a rotary
// base of its own; norms before and after both blocks, of queries and of keys; a scaled embedding.
//
// Source: Gemma 3's report (arXiv 2503.19786) and transformers' modeling_gemma3.py. transformers
// rounds the embedding's scale to the checkpoint's dtype; here it is float32, as in llama.cpp and
// in transformers when it runs in float32.
#include <cmath>

#include "core/error.h"
#include "models/dense_decoder.h"

namespace octet {

namespace {

constexpr int full_rope = 0;
constexpr int windowed_rope = 1;
constexpr int default_period = 6;
constexpr int longest_window = 1 << 30;

void read_attention(ModelReader& reader, ModelConfig* config) {
  config->ropes = {reader.read_rope(RopeUse::full_layers, config->head_dim),
                   reader.read_rope(RopeUse::windowed_layers, config->head_dim)};
  const int window = reader.find_count(config_keys::window, longest_window, 0).value_or(0);
  const auto windowed = reader.find_windowed_layers(config->layers);
  if (window == 0 && reader.format() == CheckpointFormat::hugging_face) {
    throw_bad_input("{} is missing", reader.label(config_keys::window));
  }
  for (int layer = 0; layer < config->layers; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const bool is_windowed = windowed ? (*windowed)[index] : (layer + 1) % default_period != 0;
    // Without a window there is nothing to tell the layers apart by.
    if (window > 0 && is_windowed) config->attention[index] = {window, windowed_rope};
  }
}

// The softmax scale of GGUF files stands in no key: llama.cpp knows the largest model, whose scale
// is that of hidden_size / heads, by its 62 layers.
void read_softmax_scale(ModelReader& reader, ModelConfig* config) {
  constexpr ConfigKey scalar_key{"", "query_pre_attn_scalar"};
  constexpr int layers_of_27b = 62;
  double scalar = config->head_dim;
  if (reader.format() == CheckpointFormat::hugging_face) {
    scalar = reader.find_positive(scalar_key).value();
  } else if (config->layers == layers_of_27b) {
    scalar = config->hidden_size / config->query_heads;
  }
  config->softmax_scale = static_cast<float>(1.0 / std::sqrt(scalar));
}

// 0 means none, as llama.cpp reads it.
float read_soft_cap(ModelReader& reader) {
  const double cap = reader.find_number(config_keys::logit_soft_cap).value_or(0);
  if (!std::isfinite(cap) || cap < 0) {
    throw_bad_input("{} is {}, expected a positive finite number",
                    reader.label(config_keys::logit_soft_cap), cap);
  }
  return static_cast<float>(cap);
}

std::unique_ptr<Model> load_gemma3(ModelReader& reader, const LoadOptions& options) {
  ModelConfig config = read_geometry(reader, "gemma3");
  config.activation = reader.read_activation(Activation::gelu_tanh);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.logit_soft_cap = read_soft_cap(reader);
  read_softmax_scale(reader, &config);
  read_attention(reader, &config);
  reader.refuse_unknown_keys();
  DenseWeights weights = read_dense_weights(
      reader, &config, {.query_key_norms = true, .post_norms = true, .norms_around_one = true});
  reader.refuse_unused_tensors();
  return make_dense_decoder(std::move(config), std::move(weights), reader.storage(), options);
}

const FamilyRegistration registration({.name = "gemma3",
                                       .gguf_architecture = "gemma3",
                                       .model_types = {"gemma3_text", "gemma3"},
                                       // The folders of the larger models rely on these.
                                       .config_defaults = {{"num_attention_heads", 8},
                                                           {"num_key_value_heads", 4},
                                                           {"head_dim", 256},
                                                           {"max_position_embeddings", 131072},
                                                           {"rms_norm_eps", 1e-6},
                                                           {"query_pre_attn_scalar", 256},
                                                           {"rope_theta", 1e6},
                                                           {"tie_word_embeddings", 1}},
                                       .load = load_gemma3});

}  // namespace

}  // namespace octet

#include "models/folder_reader.h"

#include <array>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/printable.h"
#include "kv/kv_scale_names.h"

namespace octet {

namespace {

// Keys that say nothing of the forward pass of a trained model: names, versions, training, what the
// tokenizer and the file reader look at themselves, and defaults that transformers' base class
// writes.
constexpr std::array<std::string_view, 75> harmless_keys = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "compression_config",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "max_window_layers",
    "min_length",
    "mlp_dropout",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "quantization",
    "quantization_config",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

// Beside "text_config" in a model of text and images.
constexpr std::array<std::string_view, 9> keys_of_other_modalities = {
    "text_config",     "vision_config",     "boi_token_index",
    "eoi_token_index", "image_token_index", "image_token_id",
    "boi_token_id",    "eoi_token_id",      "mm_tokens_per_image",
};

// Keys that change the maths unless they say what is named here.
struct NeutralKey {
  std::string_view key;
  bool neutral;
};
constexpr std::array<NeutralKey, 10> neutral_flags = {{
    {"attention_bias", false},
    {"mlp_bias", false},
    {"qkv_bias", false},
    {"rope_interleaved", false},
    {"use_bidirectional_attention", false},
    {"use_qk_norm", false},
    {"use_mrope", false},
    {"is_encoder_decoder", false},
    {"add_cross_attention", false},
    {"is_llama_config", true},
}};
constexpr std::array<std::string_view, 3> neutral_if_null = {
    "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"};

// Scales of the KV cache are read with the cache's policy, and older exports keep the rope's
// frequencies.
bool is_no_weight(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || parse_kv_scale_name(name).has_value();
}

// As null, an empty list or object says that what its key stands for is not there.
bool is_empty(const JsonValue& value) {
  return (value.kind() == JsonKind::array && value.size() == 0) ||
         (value.kind() == JsonKind::object && value.keys().empty());
}

bool is_of_other_modality(std::string_view name) {
  for (const std::string_view part : {"vision_tower.", "multi_modal_projector.",
                                      "model.vision_tower.", "model.multi_modal_projector."}) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

}  // namespace

FolderModelReader::FolderModelReader(std::shared_ptr<const ModelFolder> folder,
                                     const ModelFamily& family)
    : folder_(std::move(folder)),
      family_(&family),
      root_(folder_->config()),
      config_(root_),
      quantization_(WeightQuantization::read(root_, folder_->quantization_file())) {
  if (const auto text = root_.find("text_config")) {
    config_ = *text;
    nested_ = true;
  }
  prefix_ = find_prefix();
  ties_embeddings();
}

// Whole models of several modalities put the text's part into one of its own.
std::string FolderModelReader::find_prefix() const {
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    if (folder_->tensors().find_stored(std::string(prefix) + "embed_tokens.weight")) return prefix;
  }
  return "model.";
}

std::optional<JsonValue> FolderModelReader::find(std::string_view key) {
  known_keys_.emplace(key);
  return config_.find(key);
}

std::optional<double> FolderModelReader::default_of(std::string_view key) const {
  for (const auto& [name, value] : family_->config_defaults) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::string FolderModelReader::label(ConfigKey key) const {
  return fmt::format("{}: key '{}{}'", config_.file(), nested_ ? "text_config." : "",
                     key.hugging_face);
}

std::string FolderModelReader::model_name() const {
  std::filesystem::path path(folder_->path());
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

bool FolderModelReader::has(ConfigKey key) {
  return !key.hugging_face.empty() && find(key.hugging_face).has_value();
}

std::optional<std::int64_t> FolderModelReader::find_integer(ConfigKey key) {
  if (key.hugging_face.empty()) return std::nullopt;
  if (const auto value = find(key.hugging_face)) return value->as_integer();
  const auto assumed = default_of(key.hugging_face);
  return assumed ? std::optional(static_cast<std::int64_t>(*assumed)) : std::nullopt;
}

std::optional<double> FolderModelReader::find_number(ConfigKey key) {
  if (key.hugging_face.empty()) return std::nullopt;
  if (const auto value = find(key.hugging_face)) return value->as_float();
  return default_of(key.hugging_face);
}

Activation FolderModelReader::read_activation(Activation otherwise) {
  std::optional<Activation> named;
  // Families use one or the other; where both stand, they must agree.
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const auto value = find(key);
    if (!value) continue;
    const std::string name = value->as_string();
    Activation activation = Activation::silu;
    if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
      activation = Activation::gelu_tanh;
    } else if (name != "silu" && name != "swish") {
      throw_unsupported(
          "{}: {} is not an activation octet applies; it knows silu and gelu_pytorch_tanh",
          value->where(), printable(name));
    }
    if (named && *named != activation) {
      throw_unsupported("{}: {} contradicts hidden_act", value->where(), printable(name));
    }
    named = activation;
  }
  return named.value_or(otherwise);
}

std::optional<std::vector<bool>> FolderModelReader::find_windowed_layers(int layers) {
  const auto period = find_count({"", "sliding_window_pattern"}, most_layers);
  const auto saved_period = find_count({"", "_sliding_window_pattern"}, most_layers);
  std::vector<bool> windowed;
  if (const auto kinds = find("layer_types")) {
    for (const std::string& kind : kinds->as_strings()) {
      if (kind != "sliding_attention" && kind != "full_attention") {
        throw_unsupported("{}: {} is not a kind of layer that octet's {} family has",
                          kinds->where(), printable(kind), family_->name);
      }
      windowed.push_back(kind == "sliding_attention");
    }
    if (windowed.size() != static_cast<std::size_t>(layers)) {
      throw_bad_input("{} names {} layers, expected {}", kinds->where(), windowed.size(), layers);
    }
    return windowed;
  }
  if (!period && !saved_period) return std::nullopt;
  const int every = period ? *period : *saved_period;
  for (int layer = 0; layer < layers; ++layer) windowed.push_back((layer + 1) % every != 0);
  return windowed;
}

bool FolderModelReader::ties_embeddings() {
  tied_ = default_of("tie_word_embeddings").value_or(0) != 0;
  if (const auto tied = root_.find_bool("tie_word_embeddings")) tied_ = *tied;
  if (const auto tied = config_.find_bool("tie_word_embeddings")) tied_ = *tied;
  return tied_;
}

std::vector<std::int32_t> FolderModelReader::end_tokens() {
  const auto read = [](const JsonValue& object) {
    std::vector<std::int32_t> tokens;
    const auto value = object.find("eos_token_id");
    if (!value) return tokens;
    const bool is_list = value->kind() == JsonKind::array;
    const std::vector<std::int64_t> ids =
        is_list ? value->as_integers() : std::vector<std::int64_t>{value->as_integer()};
    for (const std::int64_t id : ids) {
      if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
        throw_bad_input("{} holds {}, expected the ids of tokens", value->where(), id);
      }
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    return tokens;
  };
  std::vector<std::int32_t> tokens;
  if (folder_->generation_config()) tokens = read(*folder_->generation_config());
  if (tokens.empty()) tokens = read(root_);
  if (tokens.empty()) tokens = read(config_);
  return tokens;
}

// A window that is active and not applied is a wrong answer past it.
void FolderModelReader::refuse_windows() {
  if (!known_keys_.contains("sliding_window")) {
    const auto window = find("sliding_window");
    const auto used = find("use_sliding_window");
    if (window && (!used || used->as_bool())) {
      throw_unsupported("{} is {}, and the {} family of octet applies no window", window->where(),
                        window->as_integer(), family_->name);
    }
  }
  if (known_keys_.contains("layer_types")) return;
  const auto kinds = find("layer_types");
  if (!kinds) return;
  for (const std::string& kind : kinds->as_strings()) {
    if (kind == "full_attention") continue;
    throw_unsupported("{} names {}, and all layers of octet's {} family are full_attention",
                      kinds->where(), printable(kind), family_->name);
  }
}

void FolderModelReader::refuse_active_maths() {
  for (const auto& [key, neutral] : neutral_flags) {
    if (known_keys_.contains(key)) continue;
    const auto value = find(key);
    if (value && value->as_bool() != neutral) {
      throw_unsupported("{} is {}, which the {} family of octet does not apply", value->where(),
                        !neutral, family_->name);
    }
  }
  for (const std::string_view key : neutral_if_null) {
    if (known_keys_.contains(key)) continue;
    if (const auto value = find(key)) {
      throw_unsupported("{} is given, which the {} family of octet does not apply", value->where(),
                        family_->name);
    }
  }
  refuse_windows();
}

void FolderModelReader::refuse_unknown_keys() {
  refuse_active_maths();
  for (const std::string_view key : harmless_keys) known_keys_.emplace(key);
  known_keys_.emplace("vocab_size");
  refuse_unknown_keys_of(config_);
  if (!nested_) return;
  for (const std::string_view key : keys_of_other_modalities) known_keys_.emplace(key);
  refuse_unknown_keys_of(root_);
}

void FolderModelReader::refuse_unknown_keys_of(const JsonValue& object) const {
  for (const std::string& key : object.keys()) {
    if (known_keys_.contains(key)) continue;
    const auto value = object.find(key);
    if (!value || is_empty(*value)) continue;
    throw_unsupported(
        "{}: {} is a key that octet's {} family does not know, and it may change the model's maths",
        object.where(), printable(key), family_->name);
  }
}

std::string FolderModelReader::tensor_name(TensorRole role, int layer) const {
  if (layer != no_layer) {
    return fmt::format("{}layers.{}.{}", prefix_, layer, role.hugging_face);
  }
  // The output matrix stands beside the model, not in it.
  if (role.hugging_face == "lm_head.weight") {
    return prefix_ == "language_model.model." ? "language_model.lm_head.weight" : "lm_head.weight";
  }
  return prefix_ + std::string(role.hugging_face);
}

std::optional<TensorView> FolderModelReader::find_tensor(const std::string& name) {
  asked_.insert(name);
  auto weight = quantization_.find(folder_->tensors(), name);
  if (!weight) return std::nullopt;
  asked_.insert(weight->companions.begin(), weight->companions.end());
  return std::move(weight->tensor);
}

void FolderModelReader::refuse_unused_tensors() {
  // transformers ties the output to the embedding even where the file holds both.
  if (tied_) asked_.insert(tensor_name({"", "lm_head.weight"}, no_layer));
  for (const StoredTensor& tensor : folder_->tensors().tensors()) {
    const std::string& name = tensor.view.name;
    if (asked_.contains(name) || is_no_weight(name)) continue;
    if (nested_ && is_of_other_modality(name)) continue;
    throw_unsupported("{}: tensor {} has no place in octet's {} family, which would ignore it",
                      folder_->tensors().file_of(tensor), printable(name), family_->name);
  }
}

}  // namespace octet

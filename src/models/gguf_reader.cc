#include "models/gguf_reader.h"

#include <cmath>

#include "core/error.h"
#include "core/printable.h"
#include "files/block_decode.h"
#include "kv/kv_layout.h"

namespace octet {

namespace {

// Far beyond any model there is; keeps products of two in 64 bits and lists of layers small.
constexpr std::int64_t most_layers = 4096;
constexpr std::int64_t most_heads = 65536;
constexpr std::int64_t widest = 1 << 24;

}  // namespace

int GgufModelReader::read_count(std::string_view name, std::int64_t largest) const {
  const std::uint64_t value = file_->require_uint(key(name));
  if (value < 1 || value > static_cast<std::uint64_t>(largest)) {
    throw_bad_input("{}: {} is {}, expected 1 to {}", file_->path(), key(name), value, largest);
  }
  return static_cast<int>(value);
}

void GgufModelReader::refuse_unknown_rope() const {
  const std::string scaling_key = key("rope.scaling.type");
  const auto type = file_->find_string(scaling_key);
  if (type && *type != "none" && *type != "llama3") {
    throw_unsupported(
        "{}: {} {} is a context scaling octet does not apply; it knows none and the "
        "llama3 factors of rope_freqs.weight",
        file_->path(), scaling_key, printable(*type));
  }
  if (type && *type == "llama3" && file_->find_tensor("rope_freqs.weight") == nullptr) {
    throw_bad_input(
        "{}: {} is llama3, and tensor rope_freqs.weight, which holds its factors, is "
        "missing",
        file_->path(), scaling_key);
  }
  for (const std::string_view name :
       {"rope.scale_linear", "rope.scaling.factor", "rope.scaling.attn_factor"}) {
    const auto factor = file_->find_float(key(name));
    const bool explained = type && *type == "llama3";
    if (factor && *factor != 1.0 && *factor != 0.0 && !explained) {
      throw_unsupported("{}: {} is {}, a context scaling octet does not apply", file_->path(),
                        key(name), *factor);
    }
  }
}

void GgufModelReader::refuse_unknown_geometry() const {
  for (const std::string_view name :
       {"attention.sliding_window", "expert_count", "attention.max_alibi_bias",
        "attention.clamp_kqv", "logit_scale", "embedding_scale", "residual_scale",
        "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
    const std::string full = key(name);
    if (!file_->has(full)) continue;
    const auto integer = name == "attention.sliding_window" || name == "expert_count"
                             ? file_->find_uint(full)
                             : std::nullopt;
    const double value = integer ? static_cast<double>(*integer) : file_->find_float(full).value();
    if (value != 0.0) {
      throw_unsupported("{}: {} is {}, which the {} family of octet does not apply", file_->path(),
                        full, value, architecture_);
    }
  }
  for (const auto& [name, applied] :
       {std::pair("use_parallel_residual", false), {"attention.causal", true}}) {
    if (file_->find_bool(key(name)).value_or(applied) != applied) {
      throw_unsupported("{}: {} is {}, which the {} family of octet does not apply", file_->path(),
                        key(name), !applied, architecture_);
    }
  }
}

ModelConfig GgufModelReader::read_config() const {
  ModelConfig config;
  config.family = architecture_;
  config.name = file_->find_string("general.name").value_or("");
  config.layers = read_count("block_count", most_layers);
  config.hidden_size = read_count("embedding_length", widest);
  config.intermediate_size = read_count("feed_forward_length", widest);
  config.query_heads = read_count("attention.head_count", most_heads);
  config.kv_heads = file_->has(key("attention.head_count_kv"))
                        ? read_count("attention.head_count_kv", most_heads)
                        : config.query_heads;
  if (config.query_heads % config.kv_heads != 0) {
    throw_bad_input("{}: {} is {}, expected a multiple of the {} KV heads", file_->path(),
                    key("attention.head_count"), config.query_heads, config.kv_heads);
  }
  if (file_->has(key("attention.key_length"))) {
    config.head_dim = read_count("attention.key_length", max_head_dim);
  } else {
    if (config.hidden_size % config.query_heads != 0) {
      throw_bad_input("{}: {} is {}, expected a multiple of the {} heads", file_->path(),
                      key("embedding_length"), config.hidden_size, config.query_heads);
    }
    config.head_dim = config.hidden_size / config.query_heads;
  }
  if (config.head_dim % 8 != 0 || config.head_dim > max_head_dim) {
    throw_unsupported(
        "{}: a head_dim of {} is not one octet's attention takes; expected a multiple "
        "of 8 up to {}",
        file_->path(), config.head_dim, max_head_dim);
  }
  if (file_->has(key("attention.value_length")) &&
      read_count("attention.value_length", max_head_dim) != config.head_dim) {
    throw_unsupported("{}: {} differs from the keys' {}", file_->path(),
                      key("attention.value_length"), config.head_dim);
  }
  if (file_->has(key("rope.dimension_count")) &&
      read_count("rope.dimension_count", max_head_dim) != config.head_dim) {
    throw_unsupported(
        "{}: {} differs from the head_dim of {}, and octet's {} family rotates whole "
        "heads",
        file_->path(), key("rope.dimension_count"), config.head_dim, architecture_);
  }
  config.max_positions = read_count("context_length", 1 << 30);

  const double epsilon = file_->require_float(key("attention.layer_norm_rms_epsilon"));
  if (!(epsilon >= 0.0 && epsilon < 1.0)) {
    throw_bad_input("{}: {} is {}, expected a number in [0, 1)", file_->path(),
                    key("attention.layer_norm_rms_epsilon"), epsilon);
  }
  config.norm_epsilon = static_cast<float>(epsilon);
  config.rope_theta = file_->find_float(key("rope.freq_base")).value_or(10000.0);
  if (!std::isfinite(config.rope_theta) || config.rope_theta <= 0.0) {
    throw_bad_input("{}: {} is {}, expected a positive finite number", file_->path(),
                    key("rope.freq_base"), config.rope_theta);
  }
  refuse_unknown_rope();
  refuse_unknown_geometry();

  const TensorView* embedding = file_->find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    throw_bad_input("{}: tensor token_embd.weight is missing", file_->path());
  }
  if (embedding->shape.size() != 2 || embedding->shape[1] != config.hidden_size) {
    throw_bad_input("{}: tensor token_embd.weight has shape {}, expected [vocabulary, {}]",
                    file_->path(), format_shape(embedding->shape), config.hidden_size);
  }
  config.vocabulary_size = embedding->shape[0];
  config.tied_embeddings = file_->find_tensor("output.weight") == nullptr;
  return config;
}

const TensorView* GgufModelReader::find_tensor(std::string_view name,
                                               const std::vector<std::int64_t>& shape) const {
  const TensorView* tensor = file_->find_tensor(name);
  asked_.emplace(name);
  if (tensor != nullptr && tensor->shape != shape) {
    throw_bad_input("{}: tensor {} has shape {}, expected {}", file_->path(), name,
                    format_shape(tensor->shape), format_shape(shape));
  }
  return tensor;
}

const TensorView& GgufModelReader::tensor(std::string_view name,
                                          const std::vector<std::int64_t>& shape) const {
  const TensorView* found = find_tensor(name, shape);
  if (found == nullptr) throw_bad_input("{}: tensor {} is missing", file_->path(), name);
  return *found;
}

void GgufModelReader::refuse_unused_tensors() const {
  for (const TensorView& tensor : file_->tensors()) {
    if (asked_.contains(tensor.name)) continue;
    throw_unsupported("{}: tensor {} has no place in octet's {} family, which would ignore it",
                      file_->path(), printable(tensor.name), architecture_);
  }
}

std::vector<float> GgufModelReader::vector(std::string_view name, std::int64_t length) const {
  const TensorView& view = tensor(name, {length});
  std::vector<float> values(static_cast<std::size_t>(length));
  decode_row(view, 0, values);
  return values;
}

}  // namespace octet

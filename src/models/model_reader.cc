#include "models/model_reader.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "files/block_decode.h"
#include "kv/kv_layout.h"

namespace octet {

namespace {

// Far beyond any model there is; keeps products of two in 64 bits and lists of layers small.
constexpr std::int64_t most_heads = 65536;
constexpr std::int64_t widest = 1 << 24;
constexpr std::int64_t longest_context = 1 << 30;

void read_heads(ModelReader& reader, ModelConfig* config) {
  namespace keys = config_keys;
  config->query_heads = reader.require_count(keys::query_heads, most_heads);
  config->kv_heads = reader.find_count(keys::kv_heads, most_heads).value_or(config->query_heads);
  if (config->query_heads % config->kv_heads != 0) {
    throw_bad_input("{} is {}, expected a multiple of the {} KV heads",
                    reader.label(keys::query_heads), config->query_heads, config->kv_heads);
  }
  if (const auto head_dim = reader.find_count(keys::head_dim, max_head_dim)) {
    config->head_dim = *head_dim;
  } else {
    if (config->hidden_size % config->query_heads != 0) {
      throw_bad_input("{} is {}, expected a multiple of the {} heads",
                      reader.label(keys::hidden_size), config->hidden_size, config->query_heads);
    }
    config->head_dim = config->hidden_size / config->query_heads;
  }
  if (config->head_dim % 8 != 0 || config->head_dim > max_head_dim) {
    throw_unsupported(
        "{}: a head_dim of {} is not one octet's attention takes; expected a multiple of 8 up to "
        "{}",
        reader.path(), config->head_dim, max_head_dim);
  }
  if (const auto values = reader.find_count(keys::value_head_dim, max_head_dim);
      values && *values != config->head_dim) {
    throw_unsupported("{} differs from the keys' {}", reader.label(keys::value_head_dim),
                      config->head_dim);
  }
  if (const auto rotated = reader.find_count(keys::rotary_dim, max_head_dim);
      rotated && *rotated != config->head_dim) {
    throw_unsupported(
        "{} differs from the head_dim of {}, and octet's {} family rotates whole heads",
        reader.label(keys::rotary_dim), config->head_dim, config->family);
  }
}

}  // namespace

std::optional<int> ModelReader::find_count(ConfigKey key, std::int64_t largest,
                                           std::int64_t smallest) {
  const auto value = find_integer(key);
  if (!value) return std::nullopt;
  if (*value < smallest || *value > largest) {
    throw_bad_input("{} is {}, expected {} to {}", label(key), *value, smallest, largest);
  }
  return static_cast<int>(*value);
}

int ModelReader::require_count(ConfigKey key, std::int64_t largest) {
  const auto value = find_count(key, largest);
  if (!value) throw_bad_input("{} is missing", label(key));
  return *value;
}

double ModelReader::require_number(ConfigKey key) {
  const auto value = find_number(key);
  if (!value) throw_bad_input("{} is missing", label(key));
  return *value;
}

std::optional<double> ModelReader::find_positive(ConfigKey key) {
  const auto value = find_number(key);
  if (value && !(std::isfinite(*value) && *value > 0.0)) {
    throw_bad_input("{} is {}, expected a positive finite number", label(key), *value);
  }
  return value;
}

TensorView ModelReader::require_by_name(const std::string& name) {
  std::optional<TensorView> found = find_tensor(name);
  if (!found) throw_bad_input("{}: tensor {} is missing", path(), name);
  return std::move(*found);
}

TensorView ModelReader::require_tensor(TensorRole role, int layer,
                                       const std::vector<std::int64_t>& shape) {
  const std::string name = tensor_name(role, layer);
  if (const auto dtype = made_up_weights()) {
    // FP8 checkpoints keep the embedding and the output matrix in bfloat16.
    return {.name = name, .dtype = layer == no_layer ? DataType::bfloat16 : *dtype, .shape = shape};
  }
  TensorView tensor = require_by_name(name);
  if (tensor.shape != shape) {
    throw_bad_input("{}: tensor {} has shape {}, expected {}", path(), name,
                    format_shape(tensor.shape), format_shape(shape));
  }
  return tensor;
}

std::int64_t ModelReader::read_vocabulary_size(TensorRole embedding, std::int64_t hidden_size) {
  if (made_up_weights()) {
    return require_count(config_keys::vocabulary, std::numeric_limits<std::int32_t>::max());
  }
  const std::string name = tensor_name(embedding, no_layer);
  const TensorView table = require_by_name(name);
  if (table.shape.size() != 2 || table.shape[0] < 1 || table.shape[1] != hidden_size) {
    throw_bad_input("{}: tensor {} has shape {}, expected [vocabulary, {}]", path(), name,
                    format_shape(table.shape), hidden_size);
  }
  // GGUF files cut rows that no token has, and keep the number.
  const auto stated = find_integer(config_keys::vocabulary);
  if (stated && *stated != table.shape[0] && format() == CheckpointFormat::hugging_face) {
    throw_bad_input("{} is {}, and tensor {} has {} rows", label(config_keys::vocabulary), *stated,
                    name, table.shape[0]);
  }
  return table.shape[0];
}

std::vector<float> ModelReader::read_vector(TensorRole role, int layer, std::int64_t length,
                                            float add) {
  if (made_up_weights()) {
    const bool is_bias = role.hugging_face.ends_with("bias");
    return std::vector<float>(static_cast<std::size_t>(length), is_bias ? 0.0f : 1.0f);
  }
  const TensorView view = require_tensor(role, layer, {length});
  std::vector<float> values(static_cast<std::size_t>(length));
  decode_row(view, 0, values);
  for (float& value : values) value += add;
  return values;
}

ModelConfig read_geometry(ModelReader& reader, std::string_view family) {
  namespace keys = config_keys;
  ModelConfig config;
  config.family = family;
  config.name = reader.model_name();
  config.layers = reader.require_count(keys::layers, most_layers);
  config.hidden_size = reader.require_count(keys::hidden_size, widest);
  config.intermediate_size = reader.require_count(keys::intermediate_size, widest);
  read_heads(reader, &config);
  config.softmax_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.max_positions = reader.require_count(keys::context, longest_context);
  const double epsilon = reader.require_number(keys::norm_epsilon);
  if (!(epsilon >= 0.0 && epsilon < 1.0)) {
    throw_bad_input("{} is {}, expected a number in [0, 1)", reader.label(keys::norm_epsilon),
                    epsilon);
  }
  config.norm_epsilon = static_cast<float>(epsilon);
  config.attention.resize(static_cast<std::size_t>(config.layers));
  config.tied_embeddings = reader.ties_embeddings();
  config.end_tokens = reader.end_tokens();
  return config;
}

}  // namespace octet

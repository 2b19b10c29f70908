#include "files/weight_quantization.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/float8_e4m3.h"
#include "core/printable.h"
#include "files/block_decode.h"

namespace octet {

namespace {

// So that no product of a code and its scale is infinite.
constexpr float max_scale = std::numeric_limits<float>::max() / float8_e4m3_max;
constexpr std::int64_t column_step = 32;  // what the kernels decode at once

// `value` must be one of `accepted`.
void expect_word(const JsonValue& value, std::initializer_list<std::string_view> accepted) {
  const std::string word = value.as_string();
  std::string list;
  for (const std::string_view candidate : accepted) {
    if (word == candidate) return;
    if (!list.empty()) list += " or ";
    list += printable(candidate);
  }
  throw_unsupported("{} is {}, expected {}", value.where(), printable(word), list);
}

void expect_word(const JsonValue& object, std::string_view key,
                 std::initializer_list<std::string_view> accepted) {
  if (const auto value = object.find(key)) expect_word(*value, accepted);
}

void expect_bool(const JsonValue& object, std::string_view key, bool accepted) {
  const std::optional<JsonValue> value = object.find(key);
  if (value && value->as_bool() != accepted) {
    throw_unsupported("{} is {}, expected {}", value->where(), !accepted, accepted);
  }
}

void expect_absent(const JsonValue& object, std::string_view key) {
  if (const std::optional<JsonValue> value = object.find(key)) {
    throw_unsupported("{} is given, which octet does not apply", value->where());
  }
}

std::string_view without_suffix(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

bool is_float8_scale(std::string_view type) { return type == "F8_E8M0"; }

// 2^(code - 127); 255 is NaN.
float float8_e8m0_to_float(std::byte code) {
  if (code == std::byte{255}) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, std::to_integer<int>(code) - 127);
}

std::vector<float> read_scales(const Safetensors& tensors, const StoredTensor& scales) {
  std::vector<float> values(static_cast<std::size_t>(scales.view.elements()));
  if (is_float8_scale(scales.type)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = float8_e8m0_to_float(scales.view.data[i]);
    }
  } else {
    const bool is_float = scales.type == "F32" || scales.type == "F16" || scales.type == "BF16";
    if (!is_float) {
      throw_unsupported("{}: tensor {} has type {}, expected scales of F32, F16, BF16 or F8_E8M0",
                        tensors.file_of(scales), printable(scales.view.name), scales.type);
    }
    decode_blocks(scales.view.dtype, scales.view.data, values);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] <= max_scale) continue;  // false for NaN
    throw_bad_input("{}: tensor {} holds the scale {} at element {}, expected 0 to {}",
                    tensors.file_of(scales), printable(scales.view.name), values[i], i, max_scale);
  }
  return values;
}

// A checkpoint of symmetric weights may carry zero points, which then are zeros.
void refuse_zero_points(const Safetensors& tensors, const StoredTensor& points) {
  for (std::size_t i = 0; i < points.view.bytes; ++i) {
    if (points.view.data[i] == std::byte{0}) continue;
    throw_unsupported("{}: tensor {} holds values other than 0, expected symmetric weights",
                      tensors.file_of(points), printable(points.view.name));
  }
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a - 1) / b + 1; }

}  // namespace

// Reads the configuration of each method.
struct WeightQuantization::Reader {
  WeightQuantization& into;

  void read(const JsonValue& config) {
    into.file_ = config.file();
    // ModelOpt's early exports leave the method out.
    if (!config.has("quant_method") &&
        (config.has("quant_algo") || config.has("kv_cache_quant_algo"))) {
      into.method_ = "modelopt";
      return read_modelopt(config);
    }
    const JsonValue method = config.require("quant_method");
    into.method_ = method.as_string();
    if (into.method_ == "compressed-tensors") {
      read_compressed_tensors(config);
    } else if (into.method_ == "fp8") {
      read_fp8(config);
    } else if (into.method_ == "fbgemm_fp8") {
      config.refuse_keys_other_than(
          {"quant_method", "activation_scale_ub", "modules_to_not_convert"});
      into.per_channel_ = true;
    } else if (into.method_ == "modelopt") {
      read_modelopt(config);
    } else if (into.method_ == "quark") {
      read_quark(config);
    } else {
      throw_unsupported(
          "{} is {}, expected 'compressed-tensors', 'fp8', 'fbgemm_fp8', 'modelopt' or 'quark'",
          method.where(), printable(into.method_));
    }
  }

  void read_compressed_tensors(const JsonValue& config) {
    config.refuse_keys_other_than({"quant_method", "format", "config_groups", "ignore",
                                   "kv_cache_scheme", "quantization_status",
                                   "global_compression_ratio", "version", "sparsity_config",
                                   "transform_config", "moe_sparsity_config"});
    // Early checkpoints are called frozen. Weights that are stored as they were and only have
    // scales beside them are told by these: no family asks for a scale whose weight is not FP8.
    expect_word(config, "quantization_status", {"compressed", "frozen"});
    expect_word(config, "format",
                {"float-quantized", "naive-quantized", "mixed-precision", "dense"});
    expect_absent(config, "moe_sparsity_config");
    if (const auto transforms = config.find("transform_config");
        transforms && !transforms->keys().empty()) {
      expect_absent(config, "transform_config");
    }
    if (const auto sparsity = config.find("sparsity_config");
        sparsity && !sparsity->keys().empty()) {
      expect_word(*sparsity, "format", {"dense"});
      sparsity->require("format");
    }
    const std::optional<JsonValue> groups = config.find("config_groups");
    if (!groups) return;
    for (const std::string& name : groups->keys()) read_group(groups->require(name));
  }

  void read_group(const JsonValue& group) {
    group.refuse_keys_other_than(
        {"targets", "weights", "input_activations", "output_activations", "format"});
    expect_word(group, "format", {"float-quantized", "naive-quantized", "dense"});
    const std::optional<JsonValue> weights = group.find("weights");
    if (!weights) return;
    weights->refuse_keys_other_than({"num_bits", "type", "symmetric", "group_size", "strategy",
                                     "block_structure", "dynamic", "actorder", "observer",
                                     "observer_kwargs", "scale_dtype", "zp_dtype"});
    if (weights->require_uint("num_bits") != 8) {
      throw_unsupported("{} is {}, expected 8", weights->require("num_bits").where(),
                        weights->require_uint("num_bits"));
    }
    expect_word(weights->require("type"), {"float"});
    expect_bool(*weights, "symmetric", true);
    expect_bool(*weights, "dynamic", false);
    const JsonValue strategy = weights->require("strategy");
    expect_word(strategy, {"tensor", "channel", "block"});
    const std::string word = strategy.as_string();
    if (word == "tensor") into.per_tensor_ = true;
    if (word == "channel") into.per_channel_ = true;
    if (word == "block") into.set_block(weights->require("block_structure"));
  }

  void read_fp8(const JsonValue& config) {
    config.refuse_keys_other_than(
        {"quant_method", "activation_scheme", "fmt", "scale_fmt", "weight_block_size",
         "modules_to_not_convert", "modules_to_convert", "ignored_layers", "dequantize",
         "expert_dtype", "kv_cache_scheme", "is_checkpoint_fp8_serialized"});
    expect_bool(config, "is_checkpoint_fp8_serialized", true);
    expect_word(config, "fmt", {"e4m3", "float8_e4m3fn"});
    expect_word(config, "expert_dtype", {"fp8"});
    expect_word(config, "scale_fmt", {"float", "ue8m0"});
    if (const auto block = config.find("weight_block_size")) {
      into.set_block(*block);
    } else {
      into.per_tensor_ = true;
    }
  }

  void read_modelopt(const JsonValue& config) {
    config.refuse_keys_other_than({"quant_method", "quant_algo", "kv_cache_quant_algo",
                                   "kv_cache_scheme", "exclude_modules", "ignore", "group_size",
                                   "producer", "config_groups"});
    // A cache alone is quantised where an algorithm is named for it and none for the weights.
    // Exporters write null or "" for none.
    const bool names_none = config.has("quant_algo") ? config.require_string("quant_algo").empty()
                                                     : config.has("kv_cache_quant_algo") ||
                                                           config.has("kv_cache_scheme");
    if (names_none) {
      into.method_ = "none";
      return;
    }
    expect_word(config.require("quant_algo"), {"FP8"});
    into.per_tensor_ = true;
  }

  // Quark's weights are not read, but a cache that it quantised beside plain ones is.
  void read_quark(const JsonValue& config) {
    std::vector<JsonValue> places;
    if (const auto global = config.find("global_quant_config")) places.push_back(*global);
    for (const char* key : {"layer_quant_config", "layer_type_quant_config"}) {
      const auto layers = config.find(key);
      if (!layers) continue;
      for (const std::string& pattern : layers->keys()) {
        if (const auto layer = layers->find(pattern)) places.push_back(*layer);
      }
    }
    for (const JsonValue& place : places) {
      if (const auto weight = place.find("weight")) {
        throw_unsupported("{} is set, and quark's quantised weights are not supported",
                          weight->where());
      }
    }
    into.method_ = "none";
  }

  // ModelOpt's own file: {"producer": ..., "quantization": {"quant_algo": "FP8", ...}}.
  void read_modelopt_file(const JsonValue& file) {
    into.file_ = file.file();
    into.method_ = "modelopt";
    file.refuse_keys_other_than({"producer", "quantization"});
    read_modelopt(file.require("quantization"));
  }
};

std::optional<JsonValue> find_quantization_config(const JsonValue& config) {
  std::vector<JsonValue> places = {config};
  if (const auto text = config.find("text_config")) places.push_back(*text);
  for (const JsonValue& place : places) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      if (const auto found = place.find(key)) return found;
    }
  }
  return std::nullopt;
}

WeightQuantization WeightQuantization::read(const JsonValue& config,
                                            const std::optional<JsonValue>& quantization_file) {
  WeightQuantization quantization;
  Reader reader = {quantization};
  if (const auto found = find_quantization_config(config)) {
    reader.read(*found);
    return quantization;
  }
  if (quantization_file) reader.read_modelopt_file(*quantization_file);
  return quantization;
}

void WeightQuantization::set_block(const JsonValue& block) {
  const std::vector<std::int64_t> sizes = block.as_integers();
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1) {
    throw_bad_input("{} is {}, expected two sizes of at least 1", block.where(),
                    format_shape(sizes));
  }
  if (sizes[1] % column_step != 0) {
    throw_unsupported("{} is {}, expected a multiple of {} columns", block.where(),
                      format_shape(sizes), column_step);
  }
  if (block_ && (block_->rows != sizes[0] || block_->columns != sizes[1])) {
    throw_unsupported("{} is {}, expected the [{}, {}] of another group", block.where(),
                      format_shape(sizes), block_->rows, block_->columns);
  }
  block_ = Block{sizes[0], sizes[1]};
}

// "[1], [24, 1] or [1, 2]", for error messages.
std::string WeightQuantization::allowed_scales(const std::vector<std::int64_t>& shape) const {
  std::vector<std::string> forms;
  if (per_tensor_) forms.push_back("[1]");
  if (per_channel_) forms.push_back(fmt::format("[{}, 1]", shape[0]));
  if (block_) {
    forms.push_back(fmt::format("[{}, {}]", ceil_divide(shape[0], block_->rows),
                                ceil_divide(shape[1], block_->columns)));
  }
  std::string list;
  for (const std::string& form : forms) {
    if (!list.empty()) list += " or ";
    list += form;
  }
  return list;
}

TensorScales WeightQuantization::layout_of(const Safetensors& tensors, const StoredTensor& weight,
                                           const StoredTensor& scales) const {
  using Shape = std::vector<std::int64_t>;
  const Shape& matrix = weight.view.shape;
  const Shape& shape = scales.view.shape;
  if (matrix.size() != 2 || weight.view.bytes == 0) {
    throw_unsupported("{}: tensor {} of type {} has shape {}, expected a matrix",
                      tensors.file_of(weight), printable(weight.view.name), weight.type,
                      format_shape(matrix));
  }
  const bool is_one = shape == Shape{} || shape == Shape{1} || shape == Shape{1, 1};
  if (per_tensor_ && is_one) {
    return {.values = {}, .block_rows = matrix[0], .block_columns = matrix[1]};
  }
  if (per_channel_ && (shape == Shape{matrix[0]} || shape == Shape{matrix[0], 1})) {
    return {.values = {}, .block_rows = 1, .block_columns = matrix[1]};
  }
  if (block_) {
    const Shape grid = {ceil_divide(matrix[0], block_->rows),
                        ceil_divide(matrix[1], block_->columns)};
    if (shape == grid) {
      return {.values = {},
              .grid_columns = grid[1],
              .block_rows = block_->rows,
              .block_columns = block_->columns};
    }
  }
  throw_bad_input("{}: tensor {} has shape {}, expected {}, as {} says of weights of shape {}",
                  tensors.file_of(scales), printable(scales.view.name), format_shape(shape),
                  allowed_scales(matrix), file_, format_shape(matrix));
}

std::optional<StoredWeight> WeightQuantization::find(const Safetensors& tensors,
                                                     std::string_view name) const {
  const StoredTensor* stored = tensors.find_stored(name);
  if (stored == nullptr) return std::nullopt;
  StoredWeight weight = {*tensors.find(name), {}};  // refuses types that octet does not read
  if (weight.tensor.dtype != DataType::float8_e4m3) return weight;
  if (method_ == "none") {
    throw_bad_input("{}: tensor {} has type {}, but no configuration says how it is scaled",
                    tensors.file_of(*stored), printable(name), stored->type);
  }
  const auto companion = [&](const std::string& other) {
    const StoredTensor* found = tensors.find_stored(other);
    if (found != nullptr) weight.companions.push_back(other);
    return found;
  };
  const StoredTensor* scales = companion(fmt::format("{}_scale", name));
  const StoredTensor* block_scales = companion(fmt::format("{}_scale_inv", name));
  if ((scales == nullptr) == (block_scales == nullptr)) {
    throw_bad_input("{}: tensor {} has type {}, expected one of {} and {} beside it",
                    tensors.file_of(*stored), printable(name), stored->type,
                    printable(fmt::format("{}_scale", name)),
                    printable(fmt::format("{}_scale_inv", name)));
  }
  if (scales == nullptr) scales = block_scales;
  if (const auto* points = companion(fmt::format("{}_zero_point", name))) {
    refuse_zero_points(tensors, *points);
  }
  const std::string_view module = without_suffix(name, "weight");
  companion(fmt::format("{}input_scale", module));
  companion(fmt::format("{}input_zero_point", module));
  TensorScales layout = layout_of(tensors, *stored, *scales);
  layout.values = read_scales(tensors, *scales);
  weight.tensor.scales = std::make_shared<const TensorScales>(std::move(layout));
  return weight;
}

}  // namespace octet

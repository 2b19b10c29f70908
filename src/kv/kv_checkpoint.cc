#include "kv/kv_checkpoint.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// What octet does not apply, empty where it applies all; keys whose value is null say nothing.
std::string unknown_argument(const JsonValue& args) {
  constexpr std::array<std::string_view, 9> known = {
      "num_bits", "type",     "strategy",        "symmetric",   "dynamic",
      "observer", "zp_dtype", "observer_kwargs", "scale_dtype",
  };
  for (const std::string& key : args.keys()) {
    if (args.has(key) && std::find(known.begin(), known.end(), key) == known.end()) {
      return fmt::format("holds {}, which octet does not apply", printable(key));
    }
  }
  return {};
}

// compressed-tensors has true, false and "local": by the group, for formats of 4 bits.
std::optional<bool> read_dynamic(const JsonValue& args) {
  const std::optional<JsonValue> value = args.find("dynamic");
  if (!value) return false;
  if (value->kind() == JsonKind::string) return std::nullopt;
  return value->as_bool();
}

// compressed-tensors' QuantizationArgs. ModelOpt writes the same key with fewer fields: it knows
// symmetric numbers per tensor only.
KvCheckpointScheme read_quantization_args(const JsonValue& args, bool is_model_opt) {
  KvCheckpointScheme scheme;
  scheme.where = args.where();
  const std::int64_t bits = args.find_integer("num_bits").value_or(8);
  const std::string type = lower_case(args.find_string("type").value_or("int"));
  const std::string strategy = lower_case(args.find_string("strategy").value_or("tensor"));
  const std::optional<bool> dynamic = read_dynamic(args);
  scheme.dynamic = dynamic.value_or(false);
  scheme.per_head = strategy == "attn_head";
  // One scale per token is what octet's dynamic scales have for each head.
  const bool per_token = scheme.dynamic && strategy == "token";
  // compressed-tensors' own default is true, but its reader in other engines takes a missing key
  // for false; every writer writes it.
  const bool symmetric = args.find_bool("symmetric").value_or(is_model_opt);
  if (bits != 8 || type != "float") {
    scheme.problem =
        fmt::format("num_bits {} and type {}, expected 8 and 'float'", bits, printable(type));
  } else if (strategy != "tensor" && !scheme.per_head && !per_token) {
    scheme.problem =
        fmt::format("strategy {}, expected 'tensor' or 'attn_head'", printable(strategy));
  } else if (!symmetric) {
    scheme.problem = "symmetric is not true, expected symmetric scales";
  } else if (!dynamic) {
    scheme.problem = fmt::format("dynamic {}, expected true or false",
                                 printable(args.require_string("dynamic")));
  } else {
    scheme.problem = unknown_argument(args);
  }
  return scheme;
}

std::optional<KvCheckpointScheme> read_algorithm(const JsonValue& holder) {
  const std::optional<JsonValue> value = holder.find("kv_cache_quant_algo");
  if (!value) return std::nullopt;
  const std::string algorithm = value->as_string();
  if (algorithm.empty() || lower_case(algorithm) == "none") return std::nullopt;
  KvCheckpointScheme scheme;
  scheme.where = value->where();
  if (lower_case(algorithm) != "fp8") {
    scheme.problem = fmt::format("{}, expected 'FP8'", printable(algorithm));
  }
  return scheme;
}

// The one configuration that all patterns of export.kv_cache_group have in layer_quant_config.
std::optional<KvCheckpointScheme> read_quark(const JsonValue& quantization) {
  const std::optional<JsonValue> exported = quantization.find("export");
  if (!exported) return std::nullopt;
  const std::optional<JsonValue> group = exported->find("kv_cache_group");
  if (!group || group->size() == 0) return std::nullopt;
  KvCheckpointScheme scheme;
  scheme.where = group->where();
  std::optional<bool> dynamic;  // as the patterns before say
  const std::optional<JsonValue> layers = quantization.find("layer_quant_config");
  for (const std::string& pattern : group->as_strings()) {
    const std::optional<JsonValue> layer = layers ? layers->find(pattern) : std::nullopt;
    const std::optional<JsonValue> output = layer ? layer->find("output_tensors") : std::nullopt;
    if (!output) {
      scheme.problem =
          fmt::format("{} has no output_tensors in layer_quant_config", printable(pattern));
      return scheme;
    }
    const std::string dtype = lower_case(output->require_string("dtype"));
    const std::string qscheme = lower_case(output->require_string("qscheme"));
    if (dtype != "fp8_e4m3" || qscheme != "per_tensor") {
      scheme.problem = fmt::format(
          "{} has dtype {} and qscheme {}, expected 'fp8_e4m3' and "
          "'per_tensor'",
          printable(pattern), printable(dtype), printable(qscheme));
      return scheme;
    }
    scheme.dynamic = output->find_bool("is_dynamic").value_or(false);
    if (dynamic && *dynamic != scheme.dynamic) {
      scheme.problem =
          fmt::format("is_dynamic of {} is not that of the patterns before it", printable(pattern));
      return scheme;
    }
    dynamic = scheme.dynamic;
  }
  return scheme;
}

}  // namespace

std::optional<KvCheckpointScheme> read_kv_scheme(
    const JsonValue& config, const std::optional<JsonValue>& quantization_file) {
  if (const std::optional<JsonValue> quantization = find_quantization_config(config)) {
    const std::string method = lower_case(quantization->find_string("quant_method").value_or(""));
    if (method == "quark") return read_quark(*quantization);
    if (const std::optional<JsonValue> args = quantization->find("kv_cache_scheme")) {
      return read_quantization_args(*args, method.starts_with("modelopt"));
    }
    return read_algorithm(*quantization);
  }
  if (!quantization_file) return std::nullopt;
  const std::optional<JsonValue> holder = quantization_file->find("quantization");
  return holder ? read_algorithm(*holder) : std::nullopt;
}

std::shared_ptr<const KvCheckpoint> read_kv_checkpoint(const ModelFolder& folder) {
  auto checkpoint = std::make_shared<KvCheckpoint>();
  checkpoint->scheme = read_kv_scheme(folder.config(), folder.quantization_file());
  try {
    checkpoint->scales = read_kv_scales(folder.tensors());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input && error.kind() != ErrorKind::unsupported) throw;
    checkpoint->scales_problem = error.what();
  }
  return checkpoint;
}

}  // namespace octet

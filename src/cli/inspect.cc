// octet inspect: what a model file holds, and what its cache costs.
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/inspect_cache.h"
#include "cli/options.h"
#include "core/json.h"
#include "core/memory_info.h"
#include "core/printable.h"
#include "kv/kv_layout.h"
#include "models/checkpoint.h"

namespace octet {

namespace {

constexpr std::array<const char*, 6> cache_formats = {"float32", "bfloat16", "float16",
                                                      "int8",    "int8:fp8", "fp8"};

struct InspectFlags {
  std::string model;
  CacheFlags cache;
  bool json = false;
  bool tensors = false;
};

// A tensor as the file stores it, whether octet reads its type or not.
struct TensorLine {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
  std::int64_t parameters = 0;
};

struct WeightType {
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  std::size_t bytes = 0;
};

struct CacheCost {
  std::string format;
  double bytes_per_token = 0;
  std::int64_t tokens_that_fit = 0;  // beside the weights, in the memory that is free now
};

struct Inspection {
  std::string path;
  std::string format;
  std::uint64_t file_bytes = 0;
  ModelConfig config;
  std::map<std::string, WeightType> weights;
  WeightType all_weights;
  std::size_t available_bytes = 0;
  std::vector<CacheCost> caches;
  KvPolicy policy;   // what the cache flags make of the model
  CacheCost chosen;  // what that costs
};

std::vector<TensorLine> list_tensors(const Checkpoint& checkpoint) {
  std::vector<TensorLine> lines;
  const auto add = [&lines](const TensorView& view, std::string_view type) {
    lines.push_back({view.name, std::string(type), view.shape, view.bytes, view.elements()});
  };
  if (checkpoint.gguf) {
    for (const TensorView& tensor : checkpoint.gguf->tensors()) {
      add(tensor, traits_of(tensor.dtype).name);
    }
  } else {
    for (const StoredTensor& tensor : checkpoint.folder->tensors().tensors()) {
      add(tensor.view, tensor.type);
    }
  }
  return lines;
}

Inspection inspect(const std::string& path, const KvPolicyOptions& cache) {
  check_kv_policy_options(cache);
  Inspection result;
  result.path = path;
  const Checkpoint checkpoint = Checkpoint::open(path);
  result.format = checkpoint.gguf ? "gguf" : "hugging_face";
  result.file_bytes = checkpoint.file_bytes();
  // Loading checks every tensor's name and shape; one position keeps its tables small.
  LoadOptions one_position;
  one_position.max_positions = 1;
  const std::unique_ptr<Model> model = load_model(checkpoint, one_position);
  result.config = model->config();
  for (const TensorLine& tensor : list_tensors(checkpoint)) {
    for (WeightType* sum : {&result.weights[tensor.type], &result.all_weights}) {
      ++sum->tensors;
      sum->parameters += tensor.parameters;
      sum->bytes += tensor.bytes;
    }
  }
  result.available_bytes = available_memory_bytes();
  const double room = result.available_bytes > result.all_weights.bytes
                          ? static_cast<double>(result.available_bytes - result.all_weights.bytes)
                          : 0.0;
  const auto cost = [&](const std::string& format, const KvPolicy& policy) {
    const double bytes = KvLayout(result.config.kv_geometry(), policy).bytes_per_token();
    return CacheCost{format, bytes, static_cast<std::int64_t>(room / bytes)};
  };
  for (const char* format : cache_formats) {
    result.caches.push_back(
        cost(format, make_kv_policy({.dtype = format, .scales = "auto"}, result.config.layers)));
  }
  EngineOptions options;
  options.cache = cache;
  result.policy = make_kv_policy(cache_options(options, *model), result.config.kv_geometry());
  result.chosen = cost("chosen", result.policy);
  return result;
}

std::string as_json(const Inspection& result) {
  const ModelConfig& config = result.config;
  Json object;
  object["path"] = result.path;
  object["format"] = result.format;
  object["file_bytes"] = result.file_bytes;
  object["architecture"] = config.family;
  object["name"] = config.name;
  Json& geometry = object["geometry"];
  geometry["layers"] = config.layers;
  geometry["hidden_size"] = config.hidden_size;
  geometry["intermediate_size"] = config.intermediate_size;
  geometry["query_heads"] = config.query_heads;
  geometry["kv_heads"] = config.kv_heads;
  geometry["head_dim"] = config.head_dim;
  geometry["vocabulary_size"] = config.vocabulary_size;
  geometry["max_positions"] = config.max_positions;
  geometry["windows"] = Json::array();
  for (const LayerAttention& layer : config.attention) geometry["windows"].push_back(layer.window);
  geometry["norm_epsilon"] = config.norm_epsilon;
  geometry["rope_theta"] = config.ropes.front().theta;
  geometry["tied_embeddings"] = config.tied_embeddings;
  object["parameters"] = result.all_weights.parameters;
  object["weights"] = Json::object();
  for (const auto& [name, type] : result.weights) {
    Json& entry = object["weights"][name];
    entry["tensors"] = type.tensors;
    entry["parameters"] = type.parameters;
    entry["bytes"] = type.bytes;
  }
  object["available_memory_bytes"] = result.available_bytes;
  object["kv_cache"] = Json::object();
  for (const CacheCost& cache : result.caches) {
    Json& entry = object["kv_cache"][cache.format];
    entry["bytes_per_token"] = cache.bytes_per_token;
    entry["tokens_that_fit"] = cache.tokens_that_fit;
  }
  object["kv_cache_chosen"]["bytes_per_token"] = result.chosen.bytes_per_token;
  object["kv_cache_chosen"]["tokens_that_fit"] = result.chosen.tokens_that_fit;
  object["kv_cache_reason"] = result.policy.reason;
  object["kv_cache_scales_source"] = result.policy.scales_source;
  object["kv_cache_layers"] = cache_layers_as_json(result.policy, config.kv_geometry());
  return dump_json(object);
}

// ", window 512 in 15 of 18 layers", or nothing.
std::string describe_windows(const ModelConfig& config) {
  int window = 0;
  int layers = 0;
  for (const LayerAttention& layer : config.attention) {
    if (layer.window == 0) continue;
    window = layer.window;
    ++layers;
  }
  if (layers == 0) return "";
  return fmt::format(", window {} in {} of {} layers", window, layers, config.layers);
}

std::string as_text(const Inspection& result) {
  const ModelConfig& config = result.config;
  std::string text = fmt::format(
      "{}\n"
      "model      {}{}, {:.1f} M parameters, {:.1f} MB\n"
      "geometry   {} layers, hidden {}, feed-forward {}, vocabulary {}{}\n"
      "attention  {} query heads, {} KV heads, head_dim {}, context {}, rope theta {}{}\n"
      "weights    ",
      single_line(result.path), config.family,
      config.name.empty() ? "" : " (" + single_line(config.name) + ")",
      static_cast<double>(result.all_weights.parameters) / 1e6,
      static_cast<double>(result.all_weights.bytes) / 1e6, config.layers, config.hidden_size,
      config.intermediate_size, config.vocabulary_size, config.tied_embeddings ? " (tied)" : "",
      config.query_heads, config.kv_heads, config.head_dim, config.max_positions,
      config.ropes.front().theta, describe_windows(config));
  std::string separator;
  for (const auto& [name, type] : result.weights) {
    text += fmt::format("{}{} x {} ({:.1f} MB)", separator, name, type.tensors,
                        static_cast<double>(type.bytes) / 1e6);
    separator = ", ";
  }
  text += fmt::format("\ncache      {:<10} {:>12} {:>18}\n", "format", "bytes/token",
                      "tokens that fit");
  std::vector<CacheCost> caches = result.caches;
  caches.push_back(result.chosen);
  for (const CacheCost& cache : caches) {
    text += fmt::format("           {:<10} {:>12.0f} {:>18}\n", cache.format, cache.bytes_per_token,
                        cache.tokens_that_fit);
  }
  text += fmt::format("           in {:.1f} GB of memory that is free now, beside the weights\n",
                      static_cast<double>(result.available_bytes) / 1e9);
  return text + cache_layers_as_text(result.policy, config.kv_geometry());
}

// The listing needs no family: it shows files that octet does not run, too.
std::string tensors_as_json(const std::string& path, const std::vector<TensorLine>& tensors) {
  Json object;
  object["path"] = path;
  object["tensors"] = Json::array();
  for (const TensorLine& tensor : tensors) {
    Json entry;
    entry["name"] = tensor.name;
    entry["type"] = tensor.type;
    entry["shape"] = tensor.shape;
    entry["bytes"] = tensor.bytes;
    object["tensors"].push_back(std::move(entry));
  }
  return dump_json(object);
}

std::string tensors_as_text(const std::vector<TensorLine>& tensors) {
  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  for (const TensorLine& tensor : tensors) {
    name_width = std::max(name_width, single_line(tensor.name).size());
    shape_width = std::max(shape_width, format_shape(tensor.shape).size());
  }
  std::string text = fmt::format("{:<{}}  {:<8}  {:<{}}  {:>14}\n", "name", name_width, "type",
                                 "shape", shape_width, "bytes");
  std::size_t bytes = 0;
  for (const TensorLine& tensor : tensors) {
    text += fmt::format("{:<{}}  {:<8}  {:<{}}  {:>14}\n", single_line(tensor.name), name_width,
                        tensor.type, format_shape(tensor.shape), shape_width, tensor.bytes);
    bytes += tensor.bytes;
  }
  return text + fmt::format("{} tensors, {} bytes\n", tensors.size(), bytes);
}

void run_inspect(const InspectFlags& flags) {
  if (flags.tensors) {
    check_kv_policy_options(flags.cache.policy);
    const std::vector<TensorLine> tensors = list_tensors(Checkpoint::open(flags.model));
    std::cout << (flags.json ? tensors_as_json(flags.model, tensors) + '\n'
                             : tensors_as_text(tensors));
    return;
  }
  EngineOptions unused;
  flags.cache.apply_to(&unused, Device::cpu);
  const Inspection result = inspect(flags.model, flags.cache.policy);
  std::cout << (flags.json ? as_json(result) + '\n' : as_text(result));
}

}  // namespace

void add_inspect(CLI::App& program, CommandAction* run) {
  CLI::App* command =
      program.add_subcommand("inspect", "Show a model file's geometry, weights and cache costs");
  const auto flags = std::make_shared<InspectFlags>();
  add_model_flag(*command, &flags->model);
  command->add_flag("--json", flags->json, "Print one JSON object");
  CLI::Option* tensors = command->add_flag("--tensors", flags->tensors,
                                           "List the tensors instead: name, type, shape, bytes");
  flags->cache.add_to(*command);
  // The listing says nothing of a cache.
  for (CLI::Option* option : command->get_options()) {
    if (option->get_group() == cache_group) tensors->excludes(option);
  }
  command->callback([flags, run] { *run = [flags] { run_inspect(*flags); }; });
}

}  // namespace octet

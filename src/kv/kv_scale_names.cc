#include "kv/kv_scale_names.h"

#include <array>
#include <charconv>
#include <utility>

namespace octet {

namespace {

// What stands before "layers.N." in checkpoints of text models, and of models that hold one; a
// vision tower has layers too, and its own scales.
constexpr std::array<std::string_view, 7> text_model_prefixes = {
    "",          "model.",   "language_model.model.", "model.language_model.", "language_model.",
    "backbone.", "decoder.",
};

constexpr std::array<std::string_view, 3> attention_modules = {"self_attn.", "attention.",
                                                               "mixer."};

constexpr std::array<std::pair<std::string_view, KvScaleRole>, 25> scale_names = {{
    {"k_scale", KvScaleRole::key},
    {"v_scale", KvScaleRole::value},
    {"q_scale", KvScaleRole::query},
    {"k_proj.output_scale", KvScaleRole::key},
    {"v_proj.output_scale", KvScaleRole::value},
    {"q_proj.output_scale", KvScaleRole::query},
    {"k_proj.k_scale", KvScaleRole::key},
    {"v_proj.v_scale", KvScaleRole::value},
    {"q_proj.q_scale", KvScaleRole::query},
    {"qkv_proj.k_scale", KvScaleRole::key},
    {"qkv_proj.v_scale", KvScaleRole::value},
    {"qkv_proj.q_scale", KvScaleRole::query},
    {"qkqkv_proj.k_scale", KvScaleRole::key},
    {"qkqkv_proj.v_scale", KvScaleRole::value},
    {"qkqkv_proj.q_scale", KvScaleRole::query},
    {"k_cache.scale", KvScaleRole::key},
    {"v_cache.scale", KvScaleRole::value},
    {"q.scale", KvScaleRole::query},
    {"kv_scale", KvScaleRole::key_and_value},
    {"prob_scale", KvScaleRole::unused},
    {"prob_output_scale", KvScaleRole::unused},
    {"k_zero_point", KvScaleRole::zero_point},
    {"v_zero_point", KvScaleRole::zero_point},
    {"q_zero_point", KvScaleRole::zero_point},
    {"p_scale", KvScaleRole::unused},
}};

}  // namespace

std::optional<LayerTensorName> parse_layer_tensor(std::string_view tensor) {
  for (const std::string_view prefix : text_model_prefixes) {
    std::string_view rest = tensor;
    if (!rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    constexpr std::string_view layers = "layers.";
    if (!rest.starts_with(layers)) continue;
    rest.remove_prefix(layers.size());
    LayerTensorName name;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), name.layer);
    const auto digits = static_cast<std::size_t>(stop - rest.data());
    if (error != std::errc() || name.layer < 0 || digits == 0) return std::nullopt;
    if (digits > 1 && rest.front() == '0') return std::nullopt;
    rest.remove_prefix(digits);
    if (!rest.starts_with('.')) return std::nullopt;
    name.rest = rest.substr(1);
    return name;
  }
  return std::nullopt;
}

std::optional<KvScaleName> parse_kv_scale_name(std::string_view tensor) {
  const std::optional<LayerTensorName> name = parse_layer_tensor(tensor);
  if (!name) return std::nullopt;
  std::string_view rest = name->rest;
  bool in_attention = false;
  for (const std::string_view module : attention_modules) {
    if (!rest.starts_with(module)) continue;
    rest.remove_prefix(module.size());
    in_attention = true;
    break;
  }
  if (!in_attention) return std::nullopt;
  constexpr std::string_view internal = "attn.";
  if (rest.starts_with(internal)) rest.remove_prefix(internal.size());
  for (const auto& [scale, role] : scale_names) {
    if (rest == scale) return KvScaleName{name->layer, role};
  }
  return std::nullopt;
}

}  // namespace octet

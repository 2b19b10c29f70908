// Rotary embeddings as config.json states them: of old by "rope_theta" and "rope_scaling" (and
// "rope_local_base_freq" for windowed layers), since transformers 5 by "rope_parameters", one
// object for all layers or one for each kind of them.
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "models/folder_reader.h"

namespace octet {

namespace {

constexpr double plain_theta = 10000.0;

double positive(const JsonValue& object, std::string_view key) {
  const double value = object.require_float(key);
  if (!std::isfinite(value) || value <= 0.0) {
    throw_bad_input("{} is {}, expected a positive finite number", object.require(key).where(),
                    value);
  }
  return value;
}

std::string rope_type(const JsonValue& scaling) {
  // "type" is the older spelling.
  if (const auto type = scaling.find_string("rope_type")) return *type;
  return scaling.find_string("type").value_or("default");
}

void refuse_partial_rotation(const JsonValue& object) {
  const auto factor = object.find_float("partial_rotary_factor");
  if (factor && *factor != 1.0) {
    throw_unsupported("{} is {}, and octet's families rotate whole heads",
                      object.require("partial_rotary_factor").where(), *factor);
  }
}

void read_llama3(const JsonValue& scaling, RopeConfig* rope) {
  Llama3RopeScaling llama3;
  llama3.factor = positive(scaling, "factor");
  llama3.low_freq_factor = positive(scaling, "low_freq_factor");
  llama3.high_freq_factor = positive(scaling, "high_freq_factor");
  llama3.original_context = positive(scaling, "original_max_position_embeddings");
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    throw_bad_input("{} is {}, expected more than the {} of low_freq_factor",
                    scaling.require("high_freq_factor").where(), llama3.high_freq_factor,
                    llama3.low_freq_factor);
  }
  rope->llama3 = llama3;
}

// The type and what it needs; a key beyond that might change the maths.
void read_scaling(const JsonValue& scaling, RopeConfig* rope) {
  const std::string type = rope_type(scaling);
  refuse_partial_rotation(scaling);
  if (type == "default") {
    scaling.refuse_keys_other_than({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
  } else if (type == "linear") {
    scaling.refuse_keys_other_than(
        {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});
    rope->linear_factor = positive(scaling, "factor");
  } else if (type == "llama3") {
    scaling.refuse_keys_other_than({"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                    "factor", "low_freq_factor", "high_freq_factor",
                                    "original_max_position_embeddings"});
    read_llama3(scaling, rope);
  } else {
    throw_unsupported(
        "{}: the rope type {} is a context scaling octet does not apply; it knows default, linear "
        "and llama3",
        scaling.where(), printable(type));
  }
}

// Of "rope_parameters": the object itself, or the one of it that is for these layers.
std::optional<JsonValue> part_for(const JsonValue& parameters, RopeUse use) {
  const bool by_kind = parameters.has("full_attention") || parameters.has("sliding_attention");
  if (!by_kind) return parameters;
  parameters.refuse_keys_other_than({"full_attention", "sliding_attention"});
  return parameters.find(use == RopeUse::windowed_layers ? "sliding_attention" : "full_attention");
}

}  // namespace

RopeConfig FolderModelReader::read_rope(RopeUse use, int head_dim) {
  static_cast<void>(head_dim);  // no scaling that is known here depends on it
  const bool windowed = use == RopeUse::windowed_layers;
  const std::string_view theta_key = windowed ? "rope_local_base_freq" : "rope_theta";
  const auto parameters = find("rope_parameters");
  const auto scaling = find("rope_scaling");
  refuse_partial_rotation(config_);
  known_keys_.insert("partial_rotary_factor");
  RopeConfig rope;
  rope.theta = default_of(theta_key).value_or(plain_theta);
  if (find(theta_key)) rope.theta = positive(config_, theta_key);
  if (parameters && scaling) {
    throw_unsupported("{} and {} are both given, expected one of them", parameters->where(),
                      scaling->where());
  }
  if (parameters) {
    if (const auto part = part_for(*parameters, use)) {
      read_scaling(*part, &rope);
      if (part->has("rope_theta")) rope.theta = positive(*part, "rope_theta");
    }
  } else if (scaling && !windowed) {
    // Windowed layers are never scaled in this form.
    read_scaling(*scaling, &rope);
    if (scaling->has("rope_theta")) rope.theta = positive(*scaling, "rope_theta");
  }
  return rope;
}

}  // namespace octet

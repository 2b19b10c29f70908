#include "models/gguf_reader.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

// The base of windowed layers where the file states none: llama.cpp's converter leaves it out.
constexpr double default_theta = 10000.0;

}  // namespace

std::string GgufModelReader::key(std::string_view name) {
  std::string full = architecture_ + "." + std::string(name);
  known_keys_.insert(full);
  return full;
}

std::string GgufModelReader::label(ConfigKey key) const {
  return fmt::format("{}: {}.{}", file_->path(), architecture_, key.gguf);
}

std::string GgufModelReader::model_name() const {
  return file_->find_string("general.name").value_or("");
}

bool GgufModelReader::has(ConfigKey wanted) {
  return !wanted.gguf.empty() && file_->has(key(wanted.gguf));
}

std::optional<std::int64_t> GgufModelReader::find_integer(ConfigKey wanted) {
  if (wanted.gguf.empty()) return std::nullopt;
  const auto value = file_->find_uint(key(wanted.gguf));
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value && *value > most) {
    throw_bad_input("{} is {}, expected at most {}", label(wanted), *value, most);
  }
  return value ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

std::optional<double> GgufModelReader::find_number(ConfigKey wanted) {
  if (wanted.gguf.empty()) return std::nullopt;
  return file_->find_float(key(wanted.gguf));
}

double GgufModelReader::read_theta(std::string_view name, double otherwise) {
  const double theta = file_->find_float(key(name)).value_or(otherwise);
  if (!std::isfinite(theta) || theta <= 0.0) {
    throw_bad_input("{}: {} is {}, expected a positive finite number", file_->path(), key(name),
                    theta);
  }
  return theta;
}

RopeConfig GgufModelReader::read_rope(RopeUse use, int head_dim) {
  RopeConfig rope;
  if (use == RopeUse::windowed_layers) {
    // llama.cpp scales the contexts of full layers alone (conversion/gemma.py, llama-hparams.h).
    rope.theta = read_theta("rope.freq_base_swa", default_theta);
  } else {
    rope.theta = read_theta("rope.freq_base", default_theta);
    read_scaling(&rope, head_dim);
  }
  return rope;
}

// Llama 3's scaling comes in GGUF files as a divisor per rotated pair.
void GgufModelReader::read_scaling(RopeConfig* rope, int head_dim) {
  constexpr TensorRole divisors{"rope_freqs.weight", ""};
  const std::string type_key = key("rope.scaling.type");
  const std::string type = file_->find_string(type_key).value_or("none");
  if (type != "none" && type != "linear" && type != "llama3") {
    throw_unsupported(
        "{}: {} {} is a context scaling octet does not apply; it knows none, linear and the llama3 "
        "factors of rope_freqs.weight",
        file_->path(), type_key, printable(type));
  }
  if (find_tensor("rope_freqs.weight")) {
    rope->divisors = read_vector(divisors, no_layer, head_dim / 2);
    for (std::size_t pair = 0; pair < rope->divisors.size(); ++pair) {
      const float divisor = rope->divisors[pair];
      if (std::isfinite(divisor) && divisor > 0.0f) continue;
      throw_bad_input("{}: tensor rope_freqs.weight holds {} at {}, expected positive numbers",
                      file_->path(), divisor, pair);
    }
  } else if (type == "llama3") {
    throw_bad_input(
        "{}: {} is llama3, and tensor rope_freqs.weight, which holds its factors, is missing",
        file_->path(), type_key);
  }
  const ConfigKey factor_key{"rope.scaling.factor", ""};
  const auto factor = find_number(factor_key);
  if (type == "linear") {
    if (!factor) throw_bad_input("{} is missing, and {} is linear", label(factor_key), type_key);
    rope->linear_factor = find_positive(factor_key).value();
  }
  for (const std::string_view name :
       {"rope.scale_linear", "rope.scaling.factor", "rope.scaling.attn_factor"}) {
    const auto active = file_->find_float(key(name));
    const bool explained = type == "llama3" || (type == "linear" && name == "rope.scaling.factor");
    if (active && *active != 1.0 && *active != 0.0 && !explained) {
      throw_unsupported("{}: {} is {}, a context scaling octet does not apply", file_->path(),
                        key(name), *active);
    }
  }
}

// A number n says that each n-th layer is a full one; no converter writes another form for the
// families that octet runs.
std::optional<std::vector<bool>> GgufModelReader::find_windowed_layers(int layers) {
  const auto period = find_count({"attention.sliding_window_pattern", ""}, most_layers);
  if (!period) return std::nullopt;
  std::vector<bool> windowed;
  for (int layer = 0; layer < layers; ++layer) windowed.push_back((layer + 1) % *period != 0);
  return windowed;
}

// Keys that other models of an architecture use to change the maths: harmless where they say that
// nothing changes.
void GgufModelReader::refuse_active_maths() {
  for (const std::string_view name :
       {"attention.sliding_window", "expert_count", "attention.max_alibi_bias",
        "attention.clamp_kqv", "logit_scale", "embedding_scale", "residual_scale",
        "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
    const bool applied = known_keys_.contains(architecture_ + "." + std::string(name));
    const std::string full = key(name);
    if (applied || !file_->has(full)) continue;
    const bool counts = name == "attention.sliding_window" || name == "expert_count";
    const double value =
        counts ? static_cast<double>(file_->require_uint(full)) : file_->require_float(full);
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

void GgufModelReader::refuse_unknown_keys() {
  refuse_active_maths();
  for (const std::string_view harmless :
       {"vocab_size", "tensor_data_layout", "expert_used_count", "rope.scaling.finetuned",
        "rope.scaling.original_context_length", "rope.scaling.low_freq_factor",
        "rope.scaling.high_freq_factor"}) {
    key(harmless);
  }
  const std::string prefix = architecture_ + ".";
  for (const std::string& name : file_->keys()) {
    if (!name.starts_with(prefix) || known_keys_.contains(name)) continue;
    throw_unsupported(
        "{}: {} is a key that octet's {} family does not know, and it may change the model's maths",
        file_->path(), printable(name), architecture_);
  }
}

std::string GgufModelReader::tensor_name(TensorRole role, int layer) const {
  return layer == no_layer ? std::string(role.gguf) : fmt::format("blk.{}.{}", layer, role.gguf);
}

std::optional<TensorView> GgufModelReader::find_tensor(const std::string& name) {
  asked_.insert(name);
  const TensorView* found = file_->find_tensor(name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void GgufModelReader::refuse_unused_tensors() {
  for (const TensorView& tensor : file_->tensors()) {
    if (asked_.contains(tensor.name)) continue;
    throw_unsupported("{}: tensor {} has no place in octet's {} family, which would ignore it",
                      file_->path(), printable(tensor.name), architecture_);
  }
}

}  // namespace octet

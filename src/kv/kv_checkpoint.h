// What a checkpoint says of its KV cache: a scheme in its configuration, scales among its tensors.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "files/model_folder.h"
#include "kv/kv_scales.h"

namespace octet {

// The cache format that a configuration asks for; the only one that octet shares with other engines
// is fp8 (e4m3).
struct KvCheckpointScheme {
  std::string where;      // "m/config.json: key 'quantization_config.kv_cache_scheme'"
  bool per_head = false;  // strategy attn_head: one scale per KV head
  bool dynamic = false;   // scales are found as tokens are written, and none are stored
  // Why octet cannot cache as the scheme says; empty where it can. Kept rather than thrown, because
  // a flag that names another format wins.
  std::string problem;
};

struct KvCheckpoint {
  std::optional<KvCheckpointScheme> scheme;
  std::shared_ptr<const KvScaleSet> scales;  // null: it has none
  // Why its scales cannot be used, a sentence without its full stop; empty where they can. Kept
  // rather than thrown, because a cache that does not take them is none the worse.
  std::string scales_problem;
};

// Reads compressed-tensors' kv_cache_scheme, ModelOpt's (in config.json or hf_quant_config.json)
// and Quark's configuration. Throws Error{bad_input} that names file and key for values of a wrong
// type.
std::shared_ptr<const KvCheckpoint> read_kv_checkpoint(const ModelFolder& folder);

// The configuration's part alone. `quantization_file` is ModelOpt's, where there is one.
std::optional<KvCheckpointScheme> read_kv_scheme(const JsonValue& config,
                                                 const std::optional<JsonValue>& quantization_file);

}  // namespace octet

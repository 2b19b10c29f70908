// A model: token ids and a cache in, logits out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/page_pool.h"
#include "kv/sequence_rows.h"
#include "models/checkpoint.h"
#include "models/model_config.h"
#include "ops/context.h"
#include "ops/quantize/kv_write.h"

namespace octet {

// One step's work: rows of several sequences, flattened.
struct ForwardBatch {
  std::span<const std::int32_t> tokens;      // [rows], each in [0, vocabulary)
  std::span<const std::int32_t> positions;   // [rows]
  std::span<const SequenceRows> sequences;   // cover all rows
  std::span<const std::int32_t> logit_rows;  // ascending: the rows whose logits are wanted
  const PagePool* pool = nullptr;            // holds the pages that the sequences name
  KvWriteCounters* counters = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;

  // Writes the rows' keys and values into their pages and logits [logit_rows.size(), vocabulary]
  // float32. Not reentrant: a model owns its activations.
  virtual void forward(const OpContext& context, const ForwardBatch& batch, float* logits) = 0;

  // Of the file that load_model opened (files/content_hash.h); empty for a model made otherwise.
  const std::string& content_hash() const { return content_hash_; }
  void set_content_hash(std::string hash) { content_hash_ = std::move(hash); }

  // What the checkpoint says of its cache; null where it says nothing.
  const std::shared_ptr<const KvCheckpoint>& kv_checkpoint() const { return kv_checkpoint_; }
  void set_kv_checkpoint(std::shared_ptr<const KvCheckpoint> checkpoint) {
    kv_checkpoint_ = std::move(checkpoint);
  }

 private:
  std::string content_hash_;
  std::shared_ptr<const KvCheckpoint> kv_checkpoint_;
};

class ModelReader;

// A family as its own file describes it. `load` turns what the reader gives into a model;
// max_positions is that of load_model.
struct ModelFamily {
  std::string name;
  std::string gguf_architecture;         // general.architecture in GGUF files
  std::vector<std::string> model_types;  // model_type in config.json
  // What transformers assumes where config.json leaves a key out, true as 1.
  std::vector<std::pair<std::string_view, double>> config_defaults;
  std::function<std::unique_ptr<Model>(ModelReader& reader, std::int64_t max_positions)> load;
};

// A family registers itself from its own file:
//   const FamilyRegistration registration({"llama", "llama", {"llama"}, load_llama});
class FamilyRegistration {
 public:
  explicit FamilyRegistration(ModelFamily family);
};
std::vector<std::string> model_families();

// Opens the model of a checkpoint. max_positions bounds the positions that will be asked for (0:
// what the model was made for). Throws Error{unsupported} that names an architecture it does not
// know.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, std::int64_t max_positions = 0);

}  // namespace octet

// A model: token ids and a cache in, logits out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
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
  // So many of the first sequences go on with an answer: their one row follows a token of it, and
  // earlier steps have filled all their pages before it.
  std::int64_t decoding_sequences = 0;
  const PagePool* pool = nullptr;  // holds the pages that the sequences name
  KvWriteCounters* counters = nullptr;
};

// What a model is to be ready for: the most that a step brings, and how a GPU runs it.
struct ForwardSettings {
  std::int64_t rows = 0;
  std::int64_t sequences = 0;
  std::int64_t logit_rows = 0;
  bool cuda_graphs = true;
};

// How the token of a row of logits is drawn; engine/sampler.h says what each of these means.
struct DrawRow {
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;
  double uniform = 0;  // in [0, 1)
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;

  // Where it computes, and where the cache must lie.
  virtual Device device() const { return Device::cpu; }
  // The same weights on the CPU; null for a model that is there already.
  virtual std::unique_ptr<Model> make_cpu_model() const { return nullptr; }
  // Takes what steps of this size need, so that the memory left is the cache's.
  virtual void prepare(const ForwardSettings&) {}

  // Writes the rows' keys and values into their pages and logits [logit_rows.size(), vocabulary]
  // float32. Not reentrant: a model owns its activations.
  virtual void forward(const OpContext& context, const ForwardBatch& batch, float* logits) = 0;

  // Whether it can also do the following, which spares the logits the way to the host.
  virtual bool draws() const { return false; }
  // Writes the rows' keys and values, and one token for each logit row, drawn as draws[i] says from
  // the first `usable` logits; -1 where these hold a NaN or +inf, are all -inf, or take the host's
  // sampler.
  virtual void forward_and_draw(const OpContext& context, const ForwardBatch& batch,
                                std::span<const DrawRow> draws, std::int64_t usable,
                                std::span<std::int32_t> tokens);
  // Of logit row `row` of the last forward_and_draw(): [vocabulary].
  virtual void read_logits(std::int64_t row, std::span<float> logits);

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

// The model itself where it is on the CPU, else its weights there.
std::shared_ptr<Model> model_on_cpu(const std::shared_ptr<Model>& model);

struct LoadOptions {
  // Bounds the positions that will be asked for; 0: what the model was made for.
  std::int64_t max_positions = 0;
  Device device = Device::cpu;
  // Weights of this type (bfloat16 or float8_e4m3) made up on the GPU, where the checkpoint is a
  // geometry without any; the embedding and the output matrix are bfloat16.
  std::optional<DataType> random_weights;
  // Told how much of the weights lies on the device, from one thread; may be empty.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;
};

class ModelReader;

// A family as its own file describes it. `load` turns what the reader gives into a model.
struct ModelFamily {
  std::string name;
  std::string gguf_architecture;         // general.architecture in GGUF files
  std::vector<std::string> model_types;  // model_type in config.json
  // What transformers assumes where config.json leaves a key out, true as 1.
  std::vector<std::pair<std::string_view, double>> config_defaults;
  std::function<std::unique_ptr<Model>(ModelReader& reader, const LoadOptions& options)> load;
};

// A family registers itself from its own file:
//   const FamilyRegistration registration({"llama", "llama", {"llama"}, load_llama});
class FamilyRegistration {
 public:
  explicit FamilyRegistration(ModelFamily family);
};
std::vector<std::string> model_families();

// Opens the model of a checkpoint. Throws Error{unsupported} that names an architecture it does not
// know, and Error{device} or Error{out_of_memory} for a device that cannot be had or is too small.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options = {});

}  // namespace octet

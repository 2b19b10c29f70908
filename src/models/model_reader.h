// How a family reads a checkpoint: keys and tensors by what they mean, whatever the format calls
// them. A family that is written against this opens every format (docs/design.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"
#include "models/model_config.h"

namespace octet {

enum class CheckpointFormat { gguf, hugging_face };

// A configuration key as each format spells it ("" where a format has none). GGUF keys stand
// without their architecture, Hugging Face keys are those of config.json.
struct ConfigKey {
  std::string_view gguf;
  std::string_view hugging_face;
};

// A tensor as each format names it. Names of a layer's tensors stand without "blk.N." and
// "model.layers.N.", the others without "model.".
struct TensorRole {
  std::string_view gguf;
  std::string_view hugging_face;
};

inline constexpr int no_layer = -1;
// Far beyond any model there is; keeps lists of layers small.
inline constexpr std::int64_t most_layers = 4096;

// Which of a model's rotary embeddings.
enum class RopeUse { every_layer, full_layers, windowed_layers };

class ModelReader {
 public:
  virtual ~ModelReader() = default;

  virtual CheckpointFormat format() const = 0;
  // Of the checkpoint, for errors.
  virtual const std::string& path() const = 0;
  // "model.gguf: llama.block_count", for errors.
  virtual std::string label(ConfigKey key) const = 0;
  virtual std::string model_name() const = 0;

  // Nothing where the key is missing (or null); Error{bad_input} that names file, key and expected
  // type where it holds another type. A key that was asked for counts as known.
  virtual bool has(ConfigKey key) = 0;
  virtual std::optional<std::int64_t> find_integer(ConfigKey key) = 0;
  virtual std::optional<double> find_number(ConfigKey key) = 0;

  // The gated activation that the file names; `otherwise` where the format leaves it to the family.
  virtual Activation read_activation(Activation otherwise) = 0;
  virtual RopeConfig read_rope(RopeUse use, int head_dim) = 0;
  // Which layers have a window, where the file lists them one by one.
  virtual std::optional<std::vector<bool>> find_windowed_layers(int layers) = 0;
  virtual bool ties_embeddings() = 0;
  virtual std::vector<std::int32_t> end_tokens() = 0;

  // Throws Error{unsupported} that names a key which nothing above asked for and which may change
  // the model's maths: better no answer than a silently wrong one.
  virtual void refuse_unknown_keys() = 0;
  // The same for tensors.
  virtual void refuse_unused_tensors() = 0;

  virtual std::string tensor_name(TensorRole role, int layer) const = 0;
  // With its scales where it is packed. A tensor that was asked for counts as used.
  virtual std::optional<TensorView> find_tensor(const std::string& name) = 0;
  // The type of matrices whose bytes are made up elsewhere, where the checkpoint is to have none:
  // then require_tensor gives views without data, and norms are 1 and biases 0.
  virtual std::optional<DataType> made_up_weights() const { return std::nullopt; }
  // What keeps the tensors' bytes alive.
  virtual std::shared_ptr<const void> storage() const = 0;

  // As find_integer and find_number, within bounds.
  std::optional<int> find_count(ConfigKey key, std::int64_t largest, std::int64_t smallest = 1);
  int require_count(ConfigKey key, std::int64_t largest);
  double require_number(ConfigKey key);
  std::optional<double> find_positive(ConfigKey key);

  // The tensor with exactly this shape, outermost dimension first; no_layer: it belongs to none.
  TensorView require_tensor(TensorRole role, int layer, const std::vector<std::int64_t>& shape);
  // A vector, decoded: norms and biases. `add` is added to each element.
  std::vector<float> read_vector(TensorRole role, int layer, std::int64_t length, float add = 0);
  // The rows of an embedding of that width.
  std::int64_t read_vocabulary_size(TensorRole embedding, std::int64_t hidden_size);

 private:
  TensorView require_by_name(const std::string& name);
};

namespace config_keys {
inline constexpr ConfigKey layers{"block_count", "num_hidden_layers"};
inline constexpr ConfigKey hidden_size{"embedding_length", "hidden_size"};
inline constexpr ConfigKey intermediate_size{"feed_forward_length", "intermediate_size"};
inline constexpr ConfigKey query_heads{"attention.head_count", "num_attention_heads"};
inline constexpr ConfigKey kv_heads{"attention.head_count_kv", "num_key_value_heads"};
inline constexpr ConfigKey head_dim{"attention.key_length", "head_dim"};
inline constexpr ConfigKey value_head_dim{"attention.value_length", ""};
inline constexpr ConfigKey rotary_dim{"rope.dimension_count", ""};
inline constexpr ConfigKey context{"context_length", "max_position_embeddings"};
inline constexpr ConfigKey norm_epsilon{"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
inline constexpr ConfigKey vocabulary{"vocab_size", "vocab_size"};
inline constexpr ConfigKey window{"attention.sliding_window", "sliding_window"};
inline constexpr ConfigKey logit_soft_cap{"final_logit_softcapping", "final_logit_softcapping"};
}  // namespace config_keys

// The geometry that the families of dense decoders share. Every value is checked: heads that
// divide, a head_dim that the ops take, finite positive constants. The softmax scale is
// head_dim^-0.5. Left to the family: ropes, attention, activation, other scales.
ModelConfig read_geometry(ModelReader& reader, std::string_view family);

}  // namespace octet

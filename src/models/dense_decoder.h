// The decoder that llama and its descendants share: attention and a gated feed-forward block, each
// normed before, in some families after as well, and added to the residual stream. Families fill in
// the configuration and the weights, and that is where they differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "models/model.h"
#include "models/model_reader.h"
#include "ops/rope/rope.h"

namespace octet {

// Vectors that a family lacks are empty.
struct DenseLayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  TensorView query;                   // [query_heads * head_dim, hidden]
  TensorView key;                     // [kv_heads * head_dim, hidden]
  TensorView value;                   // [kv_heads * head_dim, hidden]
  std::vector<float> query_bias;      // one per output, in the rows' own order
  std::vector<float> key_bias;
  std::vector<float> value_bias;
  std::vector<float> query_norm;              // [head_dim], of each query head before rope
  std::vector<float> key_norm;                // [head_dim], of each key head before rope
  TensorView attention_output;                // [hidden, query_heads * head_dim]
  std::vector<float> post_attention_norm;     // [hidden], of what attention adds
  std::vector<float> feed_forward_norm;       // [hidden]
  TensorView gate;                            // [intermediate, hidden]
  TensorView up;                              // [intermediate, hidden]
  TensorView down;                            // [hidden, intermediate]
  std::vector<float> post_feed_forward_norm;  // [hidden], of what the feed-forward block adds
};

struct DenseWeights {
  TensorView embedding;  // [vocabulary, hidden]
  std::vector<DenseLayerWeights> layers;
  std::vector<float> output_norm;  // [hidden]
  TensorView output;               // [vocabulary, hidden]; the embedding again where tied
  RopePairing pairing = RopePairing::half_split;
};

// Which of the optional parts a family has.
struct DenseParts {
  bool attention_biases = false;
  bool query_key_norms = false;
  bool post_norms = false;
  // Norms multiply by 1 + w, where Hugging Face checkpoints store w (GGUF files store 1 + w).
  bool norms_around_one = false;
};

// Reads every weight, with its shape checked. Sets config->vocabulary_size.
DenseWeights read_dense_weights(ModelReader& reader, ModelConfig* config, const DenseParts& parts);

// On the device that the options name. `storage` keeps the weights' bytes alive.
std::unique_ptr<Model> make_dense_decoder(ModelConfig config, DenseWeights weights,
                                          std::shared_ptr<const void> storage,
                                          const LoadOptions& options);

// cos and sin for each of ModelConfig::ropes, with room for max_positions (0: what the model was
// made for), none of which are made yet.
std::vector<RopeTable> make_rope_tables(const ModelConfig& config, std::int64_t max_positions);

class DenseDecoder : public Model {
 public:
  // `storage` keeps the weights' bytes alive. max_positions bounds the positions that will be asked
  // for (0: what the model was made for).
  DenseDecoder(ModelConfig config, DenseWeights weights, std::shared_ptr<const void> storage,
               std::int64_t max_positions);

  const ModelConfig& config() const override { return config_; }
  void forward(const OpContext& context, const ForwardBatch& batch, float* logits) override;

 private:
  // Activations of one step, [rows, width] each; grown once and kept.
  struct Activations {
    std::vector<float> residual;
    std::vector<float> normed;
    std::vector<float> query;
    std::vector<float> key;
    std::vector<float> value;
    std::vector<float> attended;
    std::vector<float> gate;
    std::vector<float> up;
    std::vector<float> branch;  // what a block adds to the residual stream
    std::vector<float> sampled;
  };
  std::int64_t query_width() const;
  std::int64_t kv_width() const;
  void grow_activations(std::int64_t rows);
  void extend_rope_tables(const ForwardBatch& batch);
  void embed(const OpContext& context, const ForwardBatch& batch);
  // y = norm of x, whose [rows, width] are contiguous; y may be x.
  void apply_norm(const OpContext& context, const std::vector<float>& weight, const float* x,
                  std::int64_t rows, float* y) const;
  // Adds the branch to the residual stream and norms the sum into `normed`.
  void add_and_norm(const OpContext& context, const std::vector<float>& weight, std::int64_t rows);
  void project(const OpContext& context, const ForwardBatch& batch, int layer);
  void rotate(const OpContext& context, const ForwardBatch& batch, int layer);
  void write_and_attend(const OpContext& context, const ForwardBatch& batch, int layer);
  void attention_block(const OpContext& context, const ForwardBatch& batch, int layer);
  void feed_forward_block(const OpContext& context, std::int64_t rows, int layer);
  void output_head(const OpContext& context, const ForwardBatch& batch, float* logits);

  ModelConfig config_;
  DenseWeights weights_;
  std::shared_ptr<const void> storage_;
  std::vector<RopeTable> rope_tables_;  // one per ModelConfig::ropes
  Activations activations_;
};

}  // namespace octet

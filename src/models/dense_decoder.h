// The decoder that llama and its descendants share: pre-norm attention and SwiGLU, each added to
// the residual stream. Families fill in the weights and say where they differ.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "models/model.h"
#include "ops/rope/rope.h"

namespace octet {

struct DenseLayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  TensorView query;                   // [query_heads * head_dim, hidden]
  TensorView key;                     // [kv_heads * head_dim, hidden]
  TensorView value;                   // [kv_heads * head_dim, hidden]
  std::vector<float> query_bias;      // empty, or one per output; in the rows' own order
  std::vector<float> key_bias;
  std::vector<float> value_bias;
  TensorView attention_output;           // [hidden, query_heads * head_dim]
  std::vector<float> feed_forward_norm;  // [hidden]
  TensorView gate;                       // [intermediate, hidden]
  TensorView up;                         // [intermediate, hidden]
  TensorView down;                       // [hidden, intermediate]
};

struct DenseWeights {
  TensorView embedding;  // [vocabulary, hidden]
  std::vector<DenseLayerWeights> layers;
  std::vector<float> output_norm;  // [hidden]
  TensorView output;               // [vocabulary, hidden]; the embedding again where tied
  RopeFrequencies frequencies;
  RopePairing pairing = RopePairing::half_split;
};

class GgufModelReader;

// Reads every weight but the rope frequencies, with its shape checked.
DenseWeights read_dense_weights(const GgufModelReader& reader, const ModelConfig& config,
                                bool attention_biases);

class DenseDecoder : public Model {
 public:
  // `file` keeps the weights' bytes alive.
  DenseDecoder(ModelConfig config, DenseWeights weights, std::shared_ptr<const GgufFile> file,
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
  void attention_block(const OpContext& context, const ForwardBatch& batch, int layer);
  void feed_forward_block(const OpContext& context, std::int64_t rows, int layer);
  void output_head(const OpContext& context, const ForwardBatch& batch, float* logits);

  ModelConfig config_;
  DenseWeights weights_;
  std::shared_ptr<const GgufFile> file_;
  RopeTable rope_table_;
  Activations activations_;
};

}  // namespace octet

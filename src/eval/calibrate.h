// Takes the ranges of a model's keys, values and queries over texts, and writes them as scales.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "files/safetensors_writer.h"
#include "text/tokenizer.h"

namespace octet {

struct CalibrationOptions {
  bool per_head = false;  // else one scale per layer and side
  bool includes_query = false;
  bool takes_means = false;
  std::int64_t max_tokens = 0;        // over all texts; 0: all of them
  std::int64_t window_tokens = 2048;  // texts are read in pieces of this many tokens
};

// Largest magnitudes over everything that was read: a running maximum, never the last piece's.
struct LayerRanges {
  std::vector<float> key;    // [kv_heads], after rope
  std::vector<float> value;  // [kv_heads]
  std::vector<float> query;  // [query_heads], after rope
  std::int64_t rows = 0;     // tokens seen
};

struct Calibration {
  std::vector<LayerRanges> layers;
  std::vector<std::vector<float>> key_means;  // as KeyMeanSums gives them, each piece a text
  std::int64_t tokens = 0;
};

// Reads the texts from an exact cache. `progress` is called with the tokens done. Throws
// Error{bad_input} where there is no token to read, and Error{internal} that names the layer where
// one was not observed or gave a number that is not finite.
Calibration calibrate(const std::shared_ptr<Model>& model, const EngineOptions& machine,
                      std::span<const std::vector<TokenId>> texts,
                      const CalibrationOptions& options,
                      const std::function<void(std::int64_t)>& progress);

// A scale of absmax / 448, by which the largest magnitude becomes e4m3's largest number; 1 where
// all was zero.
float scale_of(float largest);

// "model.layers.N.self_attn.{k,v,q}_scale" as compressed-tensors names and shapes them: [1] per
// tensor, [heads, 1, 1] per head, float32.
std::vector<FloatTensor> scale_tensors(const Calibration& calibration,
                                       const CalibrationOptions& options);

// The value of "quantization_config" in config.json that makes engines read those tensors, as
// compressed-tensors writes it. `attention_class` is transformers' name of the model's attention,
// "LlamaAttention", which query scales hang on.
std::string quantization_config_json(const CalibrationOptions& options,
                                     const std::string& attention_class);

}  // namespace octet

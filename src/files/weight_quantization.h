// How the FP8 weights of a Hugging Face checkpoint are scaled.
//
// Read are the weights of compressed-tensors (formats float-quantized and naive-quantized: one
// scale for a matrix, for each output or for each block), of "fp8" (DeepSeek-V3's blocks, scaled by
// `weight_scale_inv`, or one scale), of "fbgemm_fp8" (one for each output) and of ModelOpt's FP8
// (one for a matrix). Everything else is refused by the name of its key.
//
// Weights stay packed: a view of the codes, with the scales in float32 beside it. What these
// checkpoints say of activations is not applied: octet computes with activations as they are, which
// their rounding to 8 bits only approximates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_value.h"
#include "core/tensor_view.h"
#include "files/safetensors.h"

namespace octet {

// "quantization_config" (or, of old, "compression_config") of `config`, else of its "text_config".
std::optional<JsonValue> find_quantization_config(const JsonValue& config);

// A tensor with all that belongs to its values.
struct StoredWeight {
  TensorView tensor;                    // with its scales, where it has any
  std::vector<std::string> companions;  // the other tensors that speak of it: scales, zero points
};

class WeightQuantization {
 public:
  // From find_quantization_config(config), else from ModelOpt's own file. Throws Error{unsupported}
  // or Error{bad_input} that names file and key.
  static WeightQuantization read(const JsonValue& config,
                                 const std::optional<JsonValue>& quantization_file);

  // "none", "compressed-tensors", "fp8", "fbgemm_fp8" or "modelopt".
  const std::string& method() const { return method_; }

  // The tensor `name` with its scales; nothing where there is none of this name. Throws
  // Error{bad_input} that names file and tensor where an FP8 weight has no scales, or such as do
  // not fit it: NaN, infinite, negative or above the largest float32 / 448.
  std::optional<StoredWeight> find(const Safetensors& tensors, std::string_view name) const;

 private:
  struct Block {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };
  struct Reader;

  void set_block(const JsonValue& block);
  std::string allowed_scales(const std::vector<std::int64_t>& shape) const;
  TensorScales layout_of(const Safetensors& tensors, const StoredTensor& weight,
                         const StoredTensor& scales) const;

  std::string method_ = "none";
  std::string file_;  // that says so
  // What a scale may stand for.
  bool per_tensor_ = false;
  bool per_channel_ = false;
  std::optional<Block> block_;
};

}  // namespace octet

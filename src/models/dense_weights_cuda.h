// The dense decoder's weights on a GPU: matrices that read the same input are one.
#pragma once

#include <vector>

#include "core/thread_pool.h"
#include "models/dense_decoder.h"
#include "ops/linear/device_weights.h"

namespace octet {

// Null: the family lacks it. Norms and biases are float32 on the device.
struct DenseLayerCuda {
  const float* attention_norm = nullptr;
  const DeviceMatrix* query_key_value = nullptr;  // rows: query heads, key heads, value heads
  const float* query_key_value_bias = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  const DeviceMatrix* attention_output = nullptr;
  const float* post_attention_norm = nullptr;
  const float* feed_forward_norm = nullptr;
  const DeviceMatrix* gate_up = nullptr;  // rows: gate, then up
  const DeviceMatrix* down = nullptr;
  const float* post_feed_forward_norm = nullptr;
};

class DenseWeightsCuda {
 public:
  // Matrices without bytes (TensorView::data is null) are made of random numbers. Throws as
  // DeviceWeights does.
  DenseWeightsCuda(const DenseWeights& weights, ThreadPool& pool,
                   const std::function<void(std::uint64_t done, std::uint64_t all)>& progress);
  DenseWeightsCuda(const DenseWeightsCuda&) = delete;
  DenseWeightsCuda& operator=(const DenseWeightsCuda&) = delete;

  const DeviceMatrix& embedding() const { return *embedding_; }
  const DenseLayerCuda& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  const float* output_norm() const { return output_norm_; }
  const DeviceMatrix& output() const { return *output_; }

 private:
  DeviceWeights arena_;
  const DeviceMatrix* embedding_ = nullptr;
  std::vector<DenseLayerCuda> layers_;
  const float* output_norm_ = nullptr;
  const DeviceMatrix* output_ = nullptr;
};

}  // namespace octet

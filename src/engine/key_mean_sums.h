// Key means as they are gathered, while texts are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_geometry.h"
#include "ops/quantize/kv_write.h"

namespace octet {

// For each KV head the mean of the running means of its keys,
//   1/T sum_t 1/(t+1) sum_{p<=t} k_p,
// which is what the queries of a text of T tokens see on average if each attends to all keys up to
// its own alike. So early keys weigh more (of 500 tokens the first 6.8 times the average and the
// last 0.002 times): they are what all later queries attend to, and what keys share, biases above
// all, turns with the position.
//
// The mean KL divergence over the first 768 tokens of the GPL, in nats, by the recipe:
//                                             fp8                        int8:fp8
//                                gemma-3-270m  Qwen2.5-Coder-0.5B  gemma-3-270m  Qwen2.5-Coder-0.5B
//   no mean                            8.2e-3              3.7e-2
//   plain mean of 500 tokens           7.8e-3              5.2e-3        1.0e-3              9.8e-3
//   mean of ten pieces of 50           1.4e-2              5.3e-3        1.4e-3              1.3e-3
//   mean of running means              8.0e-3              5.4e-3        1.1e-3              1.4e-3
// The plain mean leaves the first keys of Qwen2.5, whose biases reach 211, so far out that int8
// rounding turns the model's choice of a sink over; short pieces leave the later keys of gemma-3
// further out than they were.
class KeyMeanSums {
 public:
  explicit KeyMeanSums(std::span<const KvLayerGeometry> geometry);

  // Keys after rope. Texts come one after the other, each from position 0 on and in order.
  void add(const KvWriteArgs& args);

  // [kv_heads, head_dim] for each layer, texts weighed by their tokens; 0 where nothing was added.
  std::vector<std::vector<float>> means() const;

 private:
  struct Layer {
    std::vector<double> text_sum;  // of the keys of the current text
    std::vector<double> sum_of_means;
    std::int64_t keys = 0;  // of all texts
  };
  std::vector<Layer> layers_;
};

}  // namespace octet

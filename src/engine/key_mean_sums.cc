#include "engine/key_mean_sums.h"

#include <algorithm>

namespace octet {

KeyMeanSums::KeyMeanSums(std::span<const KvLayerGeometry> geometry) : layers_(geometry.size()) {
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    const auto width =
        static_cast<std::size_t>(geometry[layer].kv_heads * geometry[layer].head_dim);
    layers_[layer].text_sum.resize(width, 0.0);
    layers_[layer].sum_of_means.resize(width, 0.0);
  }
}

void KeyMeanSums::add(const KvWriteArgs& args) {
  Layer& layer = layers_[static_cast<std::size_t>(args.layer.layer)];
  for (const SequenceRows& sequence : args.sequences) {
    if (sequence.first_position == 0) std::fill(layer.text_sum.begin(), layer.text_sum.end(), 0.0);
    for (std::int64_t row = 0; row < sequence.rows; ++row) {
      const float* key = args.key + (sequence.first_row + row) * args.key_stride;
      const double share = 1.0 / static_cast<double>(sequence.first_position + row + 1);
      for (std::size_t i = 0; i < layer.text_sum.size(); ++i) {
        layer.text_sum[i] += key[i];
        layer.sum_of_means[i] += layer.text_sum[i] * share;
      }
    }
    layer.keys += sequence.rows;
  }
}

std::vector<std::vector<float>> KeyMeanSums::means() const {
  std::vector<std::vector<float>> means;
  for (const Layer& layer : layers_) {
    std::vector<float>& mean = means.emplace_back();
    const auto keys = static_cast<double>(std::max<std::int64_t>(layer.keys, 1));
    for (const double sum : layer.sum_of_means) mean.push_back(static_cast<float>(sum / keys));
  }
  return means;
}

}  // namespace octet

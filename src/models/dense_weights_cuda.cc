#include "models/dense_weights_cuda.h"

namespace octet {

namespace {

std::vector<float> joined(const std::vector<float>& first, const std::vector<float>& second,
                          const std::vector<float>& third) {
  std::vector<float> all(first);
  all.insert(all.end(), second.begin(), second.end());
  all.insert(all.end(), third.begin(), third.end());
  return all;
}

// Numbers that DeviceWeights gives, to be turned into pointers once everything lies there.
struct LayerNumbers {
  std::size_t attention_norm, query_key_value, bias, query_norm, key_norm, attention_output;
  std::size_t post_attention_norm, feed_forward_norm, gate_up, down, post_feed_forward_norm;
};

std::size_t add_matrix(DeviceWeights& arena, std::vector<TensorView> tensors, std::uint64_t seed) {
  const TensorView& first = tensors.front();
  if (first.data != nullptr) return arena.add(std::move(tensors));
  std::int64_t rows = 0;
  for (const TensorView& tensor : tensors) rows += tensor.shape[0];
  return arena.add_random(first.name, rows, first.shape[1], first.dtype, seed);
}

LayerNumbers add_layer(DeviceWeights& arena, const DenseLayerWeights& layer, std::uint64_t seed) {
  LayerNumbers numbers = {};
  numbers.attention_norm = arena.add_floats(layer.attention_norm);
  numbers.query_key_value = add_matrix(arena, {layer.query, layer.key, layer.value}, seed);
  numbers.bias = arena.add_floats(joined(layer.query_bias, layer.key_bias, layer.value_bias));
  numbers.query_norm = arena.add_floats(layer.query_norm);
  numbers.key_norm = arena.add_floats(layer.key_norm);
  numbers.attention_output = add_matrix(arena, {layer.attention_output}, seed + 1);
  numbers.post_attention_norm = arena.add_floats(layer.post_attention_norm);
  numbers.feed_forward_norm = arena.add_floats(layer.feed_forward_norm);
  numbers.gate_up = add_matrix(arena, {layer.gate, layer.up}, seed + 2);
  numbers.down = add_matrix(arena, {layer.down}, seed + 3);
  numbers.post_feed_forward_norm = arena.add_floats(layer.post_feed_forward_norm);
  return numbers;
}

DenseLayerCuda resolve(const DeviceWeights& arena, const LayerNumbers& numbers) {
  DenseLayerCuda layer;
  layer.attention_norm = arena.floats(numbers.attention_norm);
  layer.query_key_value = &arena.matrix(numbers.query_key_value);
  layer.query_key_value_bias = arena.floats(numbers.bias);
  layer.query_norm = arena.floats(numbers.query_norm);
  layer.key_norm = arena.floats(numbers.key_norm);
  layer.attention_output = &arena.matrix(numbers.attention_output);
  layer.post_attention_norm = arena.floats(numbers.post_attention_norm);
  layer.feed_forward_norm = arena.floats(numbers.feed_forward_norm);
  layer.gate_up = &arena.matrix(numbers.gate_up);
  layer.down = &arena.matrix(numbers.down);
  layer.post_feed_forward_norm = arena.floats(numbers.post_feed_forward_norm);
  return layer;
}

}  // namespace

DenseWeightsCuda::DenseWeightsCuda(
    const DenseWeights& weights, ThreadPool& pool,
    const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  constexpr std::uint64_t matrices_per_layer = 4;
  std::uint64_t seed = 1;
  const std::size_t embedding = add_matrix(arena_, {weights.embedding}, seed++);
  std::vector<LayerNumbers> numbers;
  for (const DenseLayerWeights& layer : weights.layers) {
    numbers.push_back(add_layer(arena_, layer, seed));
    seed += matrices_per_layer;
  }
  const std::size_t output_norm = arena_.add_floats(weights.output_norm);
  const bool tied = weights.output.data == weights.embedding.data &&
                    weights.output.name == weights.embedding.name;
  const std::size_t output = tied ? embedding : add_matrix(arena_, {weights.output}, seed);
  arena_.upload(pool, progress);

  embedding_ = &arena_.matrix(embedding);
  for (const LayerNumbers& layer : numbers) layers_.push_back(resolve(arena_, layer));
  output_norm_ = arena_.floats(output_norm);
  output_ = &arena_.matrix(output);
}

}  // namespace octet

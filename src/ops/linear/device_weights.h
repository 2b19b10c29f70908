// All weights of a model on the GPU: one arena, filled once.
//
//   DeviceWeights weights;
//   const std::size_t qkv = weights.add({query, key, value});
//   const std::size_t norm = weights.add_floats(layer.attention_norm);
//   weights.upload(pool, progress);
//   linear_cuda(launch, workspace, {.weight = &weights.matrix(qkv), ...});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "core/thread_pool.h"
#include "ops/linear/device_matrix.h"

namespace octet {

class DeviceWeights {
 public:
  DeviceWeights();
  ~DeviceWeights();
  DeviceWeights(DeviceWeights&&) noexcept;
  DeviceWeights& operator=(DeviceWeights&&) noexcept;

  // Plans a matrix: tensors of rank 2 with the same number of columns, stacked by rows in their
  // order. Their bytes are read by upload() and not needed after it. The same tensors planned again
  // (a tied output) get the number of the first time. Throws Error{internal} where shapes or sizes
  // do not fit.
  std::size_t add(std::vector<TensorView> tensors);

  // Plans a matrix of random weights, so that a geometry can be timed without its file: bfloat16 of
  // about N(0, 1 / columns), or float8_e4m3 with one scale a row to the same effect. Other types
  // are Error{unsupported}. The same seed gives the same weights.
  std::size_t add_random(const std::string& name, std::int64_t rows, std::int64_t columns,
                         DataType dtype, std::uint64_t seed);

  // Plans a vector of float32, such as a norm's weights or a bias. An empty one is a null pointer
  // later.
  std::size_t add_floats(std::vector<float> values);

  // What upload() will take of the device's memory.
  std::size_t planned_bytes() const;

  // Allocates the arena and fills it: the pool's threads pack rows into page-locked memory while
  // what is packed already is on its way. `progress` (or none) is told bytes done and in all, from
  // the calling thread. Returns when everything is there. To be called once. Throws
  // Error{out_of_memory} that says what was needed and what was free, Error{device}.
  void upload(ThreadPool& pool,
              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

  // After upload().
  const DeviceMatrix& matrix(std::size_t number) const;
  const float* floats(std::size_t number) const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

}  // namespace octet

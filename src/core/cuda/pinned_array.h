// Page-locked memory of the host, which copies to and from the GPU do not wait for.
#pragma once

#include <cstddef>
#include <utility>

#include "core/cuda/check.h"

namespace octet {

// `size` elements, not initialised.
template <typename T>
class PinnedArray {
 public:
  PinnedArray() = default;
  explicit PinnedArray(std::size_t size) : size_(size) {
    if (size > 0) check_cuda(cudaMallocHost(&data_, size * sizeof(T)), "cudaMallocHost");
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(PinnedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) const { return data()[index]; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace octet

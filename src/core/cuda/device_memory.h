// Memory of the GPU with one owner.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/cuda/check.h"

namespace octet {

// `size` elements of device memory, not initialised. Copies are synchronous unless a stream is
// named.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : size_(size) {
    if (size > 0) check_cuda(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { upload(host); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  void upload(std::span<const T> host) {
    check_cuda(host.size() == size_ ? cudaSuccess : cudaErrorInvalidValue,
               "upload of another size");
    if (size_ == 0) return;
    check_cuda(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<T> download() const {
    std::vector<T> host(size_);
    if (size_ > 0) {
      check_cuda(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
    return host;
  }
  // Every byte becomes `value`; 0xFF makes NaNs of all float formats.
  void fill_bytes(int value, cudaStream_t stream = nullptr) {
    if (size_ > 0) check_cuda(cudaMemsetAsync(data_, value, bytes(), stream), "cudaMemsetAsync");
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace octet

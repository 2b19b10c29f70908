// cuBLASLt, opened at run time so that the program starts where it is not installed. Internal to
// ops/linear and to its benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include <cublasLt.h>

#include "core/cuda/device_memory.h"

namespace octet {

// y = x W^T + bias of bfloat16 matrices, accumulated in float32. Strides in elements.
struct CublasLtProduct {
  const void* x = nullptr;  // [rows, k]
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const void* weights = nullptr;  // [outputs, k]
  std::int64_t weight_stride = 0;
  std::int64_t outputs = 0;
  std::int64_t k = 0;
  const void* bias = nullptr;  // [outputs] of y's type, or null
  void* y = nullptr;
  std::int64_t y_stride = 0;
  bool y_float32 = false;
};

// The program is built against CUDA 13, whose library this is; the second is where its toolkit puts
// it when the loader was not told.
inline constexpr const char* cublaslt_files[] = {"libcublasLt.so.13",
                                                 "/usr/local/cuda/lib64/libcublasLt.so.13"};

class CublasLt {
 public:
  // Of these files the first that can be opened. Throws Error{device} that names the library and
  // the first file where none can, or where it does not start.
  explicit CublasLt(std::span<const char* const> files = cublaslt_files);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // With the algorithm that the library's heuristics put first for the shape: the same one in every
  // run, so that the same input gives the same bits. False where they have none, with nothing done.
  bool multiply(const CublasLtProduct& product, cudaStream_t stream);

  // How many algorithms the heuristics give, and the product by one of them: for the benchmark.
  int algorithms(const CublasLtProduct& product);
  void multiply_by(const CublasLtProduct& product, int algorithm, cudaStream_t stream);

  std::size_t bytes() const { return workspace_.bytes(); }

 private:
  struct Library;
  struct Plan;
  // What a plan is made for: the shape, the strides and how the pointers are aligned.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, int>;
  Plan& plan_of(const CublasLtProduct& product, int wanted);
  void run(const CublasLtProduct& product, Plan& plan, int algorithm, cudaStream_t stream);

  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  DeviceArray<std::byte> workspace_;
};

}  // namespace octet

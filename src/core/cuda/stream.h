// A stream of the GPU, and the graphs that it replays, with one owner each.
#pragma once

#include <utility>

#include "core/cuda/check.h"

namespace octet {

class CudaStream {
 public:
  CudaStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// What was launched into a stream between two points, to be launched again as one.
class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  CudaGraph(CudaGraph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }

  // Runs `enqueue`, which launches into `stream`, without executing any of it.
  template <typename Enqueue>
  static CudaGraph capture(cudaStream_t stream, const Enqueue& enqueue) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    CudaGraph captured;
    const cudaError_t status = cudaGraphInstantiate(&captured.executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
    return captured;
  }

  bool empty() const { return executable_ == nullptr; }
  void launch(cudaStream_t stream) const {
    check_cuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace octet

// How fast the operations between a model's matrices are on this machine's GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octet {

// A model's shape (Llama-3.1-8B's) and a step's.
struct GpuOperationsBench {
  int hidden = 4096;
  int intermediate = 14336;
  int head_dim = 128;
  int query_heads = 32;
  int kv_heads = 8;
  int vocabulary = 128256;
  std::string cache = "bfloat16";  // K[:V] as --kv-cache-dtype takes it
  int rows = 1;                    // of the step: sequences of one token each
  int context = 4096;              // keys of each sequence in decode
  int prefill = 4096;              // tokens of one sequence's prefill; 0: none
};

struct GpuOperationFigure {
  std::string name;          // "RMS norm", "decode attention"
  double microseconds = 0;   // a launch: the median of samples over at least 200 ms
  double bytes = 0;          // read and written, each once; 0: not what limits it
  double multiply_adds = 0;  // on tensor cores, each two operations; 0: none
};

struct GpuOperationsReport {
  std::string device;
  std::vector<GpuOperationFigure> figures;
};

// Random activations, keys and values; caches that decode's launches take turns with together hold
// several times the L2. Attention is the portable one (ops/attention/attention_cuda.h). Throws
// Error{unsupported} in a build without CUDA and for what the kernels do not take, Error{device}
// where there is no GPU.
GpuOperationsReport bench_gpu_operations(const GpuOperationsBench& bench);

}  // namespace octet

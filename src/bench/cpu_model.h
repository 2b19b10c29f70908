// How fast a model reads and writes at chosen depths of context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "files/gguf.h"

namespace octet {

struct CpuModelBench {
  std::vector<KvPolicyOptions> caches;  // measured in turn, so that a disturbance hits all alike
  std::vector<std::int64_t> depths;     // tokens that the cache holds beforehand
  std::int64_t prefill = 512;           // tokens of a measured prompt; 0: none
  std::int64_t decode = 32;             // measured single tokens; 0: none
  int rounds = 3;
  EngineOptions engine;  // arithmetic, instruction set and threads
};

// One depth of one cache.
struct CpuModelFigure {
  std::string cache;
  std::string scales;
  std::string phase;  // "prefill", "decode"
  std::int64_t depth = 0;
  std::int64_t tokens = 0;  // of the measured prompt; 1 in decode
  double seconds = 0;       // of one prompt or one token: the median of all rounds
  double tokens_per_s = 0;
  double gb_per_s = 0;  // weights and cache, each byte counted once, 1e9 a second
  double gflops = 0;    // of matrices and attention, 2 a multiply-add, 1e9 a second
};

// Throws Error{bad_input} where a depth and what is measured there exceed the model's context.
// `progress` is told what is about to be done.
std::vector<CpuModelFigure> bench_cpu_model(const std::shared_ptr<Model>& model,
                                            const GgufFile& file, const CpuModelBench& bench,
                                            const std::function<void(std::string)>& progress);

}  // namespace octet

// How fast attention over the paged cache is on the CPU, by shape and format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/kv_policy.h"
#include "ops/context.h"

namespace octet {

struct CpuAttentionShape {
  int head_dim = 64;
  int query_heads = 9;
  int kv_heads = 3;
};

struct CpuAttentionFigure {
  CpuAttentionShape shape;
  std::string cache;
  std::string phase;         // "prefill", "decode"
  std::int64_t rows = 0;     // query tokens, the last of the context
  std::int64_t context = 0;  // keys of the sequence
  double seconds = 0;        // of one call: the median
  double gb_per_s = 0;       // keys, values and scales, each byte once, 1e9 a second
  double gflops = 0;         // 4 head_dim for each query head and key seen, 1e9 a second
};

// One sequence of `context` tokens of N(0, 1) keys and values. Calls go through copies of the cache
// that together are larger than the CPU's caches, as those of a step go through its layers.
CpuAttentionFigure bench_cpu_attention(const OpContext& context, const CpuAttentionShape& shape,
                                       const KvPolicyOptions& cache, std::int64_t rows,
                                       std::int64_t keys);

}  // namespace octet

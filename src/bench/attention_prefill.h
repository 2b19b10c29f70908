// How fast and how exact prefill attention is on this machine's GPU.
#pragma once

#include <cstdint>
#include <string>

#include "kv/kv_policy.h"

namespace octet {

struct AttentionPrefillBench {
  int head_dim = 128;
  int query_heads = 32;
  int kv_heads = 8;
  int batch = 1;
  int context = 4096;     // keys of every sequence, the query rows' own included
  int chunk = 0;          // query rows of every sequence, its newest tokens; 0: the whole context
  int window = 0;         // 0: all keys
  double value_mean = 0;  // added to values of N(0, 1)
  bool check = false;
  KvPolicyOptions cache{.dtype = "fp8", .scales = "dynamic"};
};

struct AttentionPrefillReport {
  std::string device;
  std::string cache;   // "fp8:fp8"
  std::string scales;  // "dynamic"
  std::int64_t launches = 0;
  double microseconds = 0;  // a launch: the median of samples over at least 200 ms
  double fastest_microseconds = 0;
  double operations = 0;          // 4 * head_dim * query heads * visible pairs of query row and key
  double teraflops = 0;           // operations / microseconds
  double multiply_teraflops = 0;  // of e4m3 products of random numbers by the tensor cores alone
  bool checked = false;
  // Over a sample of rows and heads: norm of the difference over norm of double-precision attention
  // over the stored keys and values; of the output in float32, and of the CPU's emulation of what
  // the kernel rounds (ops/attention/prefill_sm90_emulation.h).
  double error = 0;
  double emulated_error = 0;
};

// Queries, keys and values of N(0, 1) (values about value_mean) in pages of random order; what lies
// past the context is NaN, and so is the output before the checked launch, of which every element
// must be finite (else Error{internal}). Throws Error{unsupported} in a build without CUDA and for
// what the kernels do not take, Error{device} where there is no GPU.
AttentionPrefillReport bench_attention_prefill(const AttentionPrefillBench& bench);

}  // namespace octet

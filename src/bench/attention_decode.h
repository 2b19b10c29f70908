// How fast and how exact decode attention is on this machine's GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/kv_policy.h"

namespace octet {

struct AttentionDecodeBench {
  int head_dim = 128;
  int query_heads = 32;
  int kv_heads = 8;
  std::vector<int> lengths = {1024};  // keys of each sequence, the query rows' own included
  int query_rows = 1;
  int window = 0;             // 0: all keys
  double value_mean = 0;      // added to values of N(0, 1)
  bool sinks = false;         // each head has one more score, of N(2, 1), whose key has no value
  double soft_cap = 0;        // 0: none
  bool single_level = false;  // AttentionAccumulation
  bool overlap = true;        // launches overlap as those of a step do (DecodeSm90Args)
  bool check = false;
  // scales: dynamic, unit, tensor or head
  KvPolicyOptions cache{.dtype = "fp8", .scales = "dynamic"};
};

struct AttentionDecodeReport {
  std::string device;
  std::string cache;   // "fp8:fp8"
  std::string scales;  // "dynamic"
  int blocks = 0;
  int rotations = 0;  // caches that the launches take turns with, together larger than the L2
  std::int64_t launches = 0;
  double microseconds = 0;  // a launch: the median of samples over at least 200 ms
  double fastest_microseconds = 0;
  double bytes = 0;                      // keys, values and scales that a launch reads
  double terabytes_per_second = 0;       // bytes / microseconds
  double read_terabytes_per_second = 0;  // the same pages in random order, read and left unused
  bool checked = false;
  // Norm of the difference over norm of the double-precision attention over the stored keys and
  // values; the output as float32, and rounded to bfloat16.
  double error = 0;
  double bfloat16_error = 0;
};

// Keys and values of N(0, 1) (values about value_mean) in pages of random order; what lies past the
// context is NaN, and so is the output before each checked launch. Throws Error{unsupported} in a
// build without CUDA and for what the kernels do not take, Error{device} where there is no GPU.
AttentionDecodeReport bench_attention_decode(const AttentionDecodeBench& bench);

}  // namespace octet
